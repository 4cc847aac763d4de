"""Scores: intervals, errors by operation, runs, and one rule for policies of every reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.reward import LEVELS
from abacus.rules import AbacusConfig, Action, Operations
from oracle.exact.certificate import Observations, answers_of
from oracle.expert import expert_actions
from pipelines.learning.networks import Network
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_policy
from pipelines.scoring import operations
from pipelines.scoring.operations import drawn_operations
from pipelines.scoring.players import Actions, GreedyTable, NamedPolicy, StepPlayer, expert_player
from pipelines.scoring.protocol import evaluate_policy
from pipelines.scoring.request import Request
from pipelines.scoring.scores import (
    EVALUATION_SEED,
    ErrorRate,
    Evaluation,
    Evaluator,
    Failures,
    Runs,
    Score,
    best_of,
    measure,
    measure_runs,
    training_score,
)

EXACT = Path(__file__).parents[3] / "pipelines" / "policies" / "base5"
BASE, FRAMES = 5, 3
#: Far above the network's logits.
CERTAIN = 1000.0
SMALL_WORLD = AbacusConfig(
    columns=4, base=2, max_digits=2, frames=2, start="random", max_operations=10
)
four_digits = partial(drawn_operations, digits=4, base=5)


def long_score(
    table: GreedyTable, kind: Operations = "both", count: int = 200, digits: int = 16
) -> Score:
    score = Score.of_length(digits, count)
    sampler = partial(drawn_operations, digits=digits, base=table.base, operations=kind)
    measure(table, score, sampler, 0, table.frames)
    return score


def binomial_tail(errors: int, trials: int, rate: float) -> float:
    """Return the probability of at most this number of errors."""
    return math.fsum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(errors + 1)
    )


@pytest.mark.parametrize("trials", [1, 7, 100, 100_000])
def test_the_interval_without_errors(trials: int) -> None:
    rate = ErrorRate(0, trials)
    assert rate.rate == rate.low == 0
    assert rate.high == pytest.approx(1 - 0.025 ** (1 / trials), rel=1e-9)


def test_the_interval_with_errors_only_mirrors_that_without() -> None:
    assert ErrorRate(7, 7).high == 1
    assert ErrorRate(7, 7).low == pytest.approx(1 - ErrorRate(0, 7).high)


@pytest.mark.parametrize(("errors", "trials"), [(1, 10), (3, 7), (5, 200), (150, 200)])
def test_the_ends_of_the_interval_by_its_definition(errors: int, trials: int) -> None:
    rate = ErrorRate(errors, trials)
    assert binomial_tail(errors, trials, rate.high) == pytest.approx(0.025, rel=1e-9)
    assert 1 - binomial_tail(errors - 1, trials, rate.low) == pytest.approx(0.025, rel=1e-9)


@pytest.mark.parametrize(
    ("errors", "trials", "low", "high"),
    [
        (0, 1, 0.0, 0.975),
        (0, 100_000, 0.0, 3.6888114161748316e-05),
        (1, 10, 0.002528578544461785, 0.44501611702819516),
        (67, 10_000, 0.0051960704261477, 0.008501060190209075),
        (150, 200, 0.6840371666701319, 0.8083928303774116),
        (601, 100_000, 0.005540328199095264, 0.006508660319194559),
        (7, 7, 0.5903836027749967, 1.0),
        (99_999, 100_000, 0.999944284839649, 0.9999997468219524),
    ],
)
def test_intervals_of_reports_written_before(
    errors: int, trials: int, low: float, high: float
) -> None:
    """Values by Lentz's continued fraction, which earlier reports used."""
    rate = ErrorRate(errors, trials)
    assert (rate.low, rate.high) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("errors", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(errors: int, trials: int) -> None:
    with pytest.raises(ValueError, match="errors"):
        ErrorRate(errors, trials)


def only_subtracts(batch: AbacusBatch) -> Actions:
    """Act as the expert in subtractions; submit at once in additions."""
    subtracts = batch.program.headers[:, 1] == SUBTRACT
    return np.where(subtracts, expert_actions(batch), Action.SUBMIT)


def test_errors_are_counted_by_operation_and_some_failures_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operations, "MOST_AT_ONCE", 20)
    score, failures = Score.of_length(4, 50), Failures(15)
    chunks: list[int] = []
    player = StepPlayer(only_subtracts)
    measure(player, score, four_digits, 0, 3, failures=failures, progress=chunks.append)
    assert chunks == [20, 20, 10]
    assert (score.additions, score.addition_errors) == (25, 25)
    assert (score.subtractions, score.subtraction_errors) == (25, 0)
    assert (score.errors, score.wrong_results, score.complete) == (25, 25, True)
    assert score.rate() == ErrorRate(25, 50)
    assert score.rates() == {"addition": ErrorRate(25, 25), "subtraction": ErrorRate(0, 25)}
    assert len(failures) == 15
    assert all((part.kinds != SUBTRACT).all() for part, _ in failures.parts)
    assert score.illegal_actions == 0


def test_a_wrong_submit_is_an_error_even_with_a_right_result() -> None:
    def no_reset(batch: AbacusBatch) -> Actions:
        resetting = batch.scalars["digit_index"] < 0
        return np.where(resetting, Action.SUBMIT, expert_actions(batch))

    score = Score.of_length(4, 10)
    measure(StepPlayer(no_reset), score, four_digits, 0, 3)
    assert (score.errors, score.wrong_results) == (10, 0)


def test_the_expert_makes_no_error_at_any_length(expert_table: GreedyTable) -> None:
    assert long_score(expert_table).errors == 0
    score = training_score(expert_table, SMALL_WORLD, episodes=50)
    assert (score.accuracy, score.illegal_actions) == (1.0, 0)


@pytest.mark.parametrize("kind", ["add", "subtract"])
def test_a_policy_for_one_operation_is_scored_on_that_alone(
    kind: Operations, expert_answers: Callable[[Observations], Any]
) -> None:
    """The expert, but lost wherever the other operation is in the flag or in the symbol."""
    known = 0 if kind == "add" else 1

    def answers(seen: Observations) -> Any:
        other = (seen["operation"][:, 0] != known) | (seen["symbol"][:, 2 + 1 - known] > 0)
        return np.where(other, Action.SUBMIT, expert_answers(seen))

    one = GreedyTable(answers, 2, 2)
    assert long_score(one, kind).errors == 0
    assert long_score(one).errors >= 100
    evaluation = Evaluator(replace(SMALL_WORLD, operations=kind), 20, long_operations=50)(
        answers, 0
    )
    assert (evaluation.accuracy, evaluation.longest_run) == (1.0, 10)
    assert evaluation.long_error_rate == 0


def test_a_policy_that_always_submits_solves_nothing() -> None:
    def submit(seen: Observations) -> Any:
        return np.full(len(seen["symbol"]), Action.SUBMIT)

    table = GreedyTable(submit, 5, 3)
    score = training_score(table, AbacusConfig(), episodes=50)
    assert score.operations == 50
    assert score.failures["wrong_submit"] == 50
    assert long_score(table, digits=4, count=100).rate().rate == 1.0


def test_the_expert_runs_to_the_limit() -> None:
    runs = Runs("both", limit=12, asked=23)
    measure_runs(expert_player(), runs, AbacusConfig(), 0)
    assert runs.complete
    assert runs.lengths == [12] * 23
    assert (runs.mistakes, runs.capacity, runs.limited) == (0, 0, 23)


def test_additions_fill_a_small_abacus() -> None:
    runs = Runs("add", limit=1_000, asked=4)
    measure_runs(expert_player(), runs, AbacusConfig(columns=4, max_digits=3), 0)
    assert (runs.mistakes, runs.capacity, runs.limited) == (0, 4, 0)
    assert 0 < runs.longest < 1_000
    assert min(runs.lengths) <= runs.median <= runs.longest


def test_a_run_ends_at_the_first_wrong_submit() -> None:
    def choose(batch: AbacusBatch) -> Actions:
        fourth = batch.scalars["operations_done"] == 3
        return np.where(fourth, Action.SUBMIT, expert_actions(batch))

    runs = Runs("both", limit=50, asked=5)
    measure_runs(StepPlayer(choose), runs, AbacusConfig(), 0)
    assert runs.lengths == [3] * 5
    assert (runs.mistakes, runs.limited) == (5, 0)


def test_the_lengths_of_runs_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    def lengths() -> list[int]:
        runs = Runs("add", limit=40, asked=6)
        measure_runs(expert_player(), runs, AbacusConfig(columns=4, max_digits=3), 0)
        return runs.lengths

    together = lengths()
    monkeypatch.setattr("pipelines.scoring.scores._RUN_OPERATIONS_AT_ONCE", 80)
    assert lengths() == together


class Stumbling(Network):
    """Exact, except that it moves the signpost away at the start of an episode, and back."""

    def __init__(self, exact: Network) -> None:
        super().__init__()
        self.exact, self.layout = exact, exact.layout

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        # Its inputs are the rows: `inputs` is the identity.
        rows = inputs
        length = self.layout.window
        frames = rows[:, :length].reshape(-1, *self.layout.volume).clone()
        digit = rows[:, length : length + BASE].any(dim=1)
        marks = frames[:, :, 1, :, 0].clone()
        beads = frames.clone()
        beads[:, :, 1, :, 0] = 0
        still = (beads == beads[:, -1:]).flatten(1).all(dim=1)
        under_finger, in_view = marks[:, :, 1].bool(), marks.any(dim=2)
        leaves = digit & still & under_finger.all(dim=1)
        comes_back = digit & still & under_finger[:, -2] & ~in_view[:, -1]
        # The frames of the detour are hidden from the network, which has never seen them.
        for newer, older in ((2, 1), (1, 0)):
            gone = under_finger[:, newer] & ~in_view[:, older] & digit
            frames[gone, : older + 1] = frames[gone, newer : newer + 1]
        seen = torch.cat([frames.flatten(1), rows[:, length:]], dim=1)
        logits = self.exact.logits(self.exact.inputs(seen))
        logits[leaves, Action.SIGNPOST_RIGHT] = CERTAIN
        logits[comes_back, Action.SIGNPOST_LEFT] = CERTAIN
        return logits


@pytest.fixture(scope="module")
def stumbling() -> AbacusPolicy:
    policy = load_policy(EXACT)
    policy.network = Stumbling(policy.network)
    return policy


def test_accuracy_counts_mistakes_that_the_reward_of_a_level_ignores(
    stumbling: AbacusPolicy,
) -> None:
    worlds = {
        level: AbacusConfig(reward=level, start="random", max_operations=1) for level in LEVELS
    }
    own = training_score(GreedyTable(stumbling, BASE, FRAMES), worlds["no_of_sp"], 50)
    assert own.accuracy == 1.0, "it would pass if the level's own reward decided"
    for level, world in worlds.items():
        evaluation = Evaluator(world, 50, with_set=False, long_operations=10)(stumbling, 0)
        assert evaluation.own_accuracy == (None if level in ("dense", "no_of") else 1.0)
        assert evaluation.accuracy == 0.0
        assert evaluation.failures["wrong_signpost"] == 50
        assert evaluation.long_error_rate == 0.0, "there an error is a wrong submit or result"
        assert evaluation.longest_run == 1, "a wrong signpost move does not end a run"


def test_training_and_evaluate_give_the_same_error_rate() -> None:
    """A policy with a few wrong answers makes the same errors in the same operations."""
    exact = answers_of(load_policy(EXACT))
    weights = np.random.default_rng(1).normal(size=(72, len(Action)))

    def answers(seen: Observations) -> Any:
        return exact(seen) + 0.3 * seen["window"] @ weights

    evaluation = Evaluator(AbacusConfig(), 5, with_set=False, long_operations=300)(answers, 0)
    table = GreedyTable(answers, BASE, FRAMES)
    request = Request(
        digits=(16,),
        n_operations=300,
        sets=(),
        n_episodes=0,
        n_errors=0,
        certificate=False,
        seed=EVALUATION_SEED,
    )
    results = evaluate_policy(NamedPolicy("noisy", "test", BASE, FRAMES, answers, table), request)
    assert 0 < results.generalisation[0].errors < 300
    assert evaluation.long_error_rate == results.generalisation[0].rate().rate
    assert results.generalisation[0].subtractions == 150


def test_evaluations_are_ranked_by_accuracy_then_by_wrong_observations() -> None:
    best = Evaluation(0, 1.0, 10, 0, {}, wrong=0, long_error_rate=0.0)
    order = [
        replace(best, accuracy=0.9),
        replace(best, wrong=None),
        replace(best, wrong=7),
        best,
    ]
    ranks = [evaluation.rank for evaluation in order]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks), "not counted is not the same as none wrong"


def test_without_a_teacher_errors_at_16_digits_decide_among_equals() -> None:
    best = Evaluation(0, 0.9, 10, 0, {}, wrong=70, long_error_rate=0.1, own_accuracy=1.0)
    order = [
        replace(best, own_accuracy=0.99, accuracy=0.99, long_error_rate=0.0),
        replace(best, wrong=0, long_error_rate=0.2),
        best,
    ]
    ranks = [evaluation.rank_without_teacher for evaluation in order]
    assert ranks == sorted(ranks)
    assert best.rank_without_teacher == replace(best, wrong=0).rank_without_teacher
    assert best_of([best, replace(best, wrong=0)], alone=True) is best
    assert best_of([best, replace(best, wrong=0)], alone=False) is not best
