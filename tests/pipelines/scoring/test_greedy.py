"""The table against the plain way: the same policy asked at every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action, End, Operations
from oracle.exact.complete_set import complete_set
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.scoring.players import GreedyTable, coded_observations
from pipelines.scoring.scores import (
    episode_step_limit,
    load_operations,
    long_score,
    training_score,
)
from tests.pipelines.small_world import FRAMES, WORLD


@pytest.fixture(scope="module")
def policy() -> AbacusPolicy:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return new_policy("compact", WORLD.base, FRAMES)


def run_plainly(policy: AbacusPolicy, batch: AbacusBatch) -> list[tuple[int, ...]]:
    """(steps, solved, done, end) of each abacus, with a network call for every step."""
    ended: dict[int, tuple[int, ...]] = {}
    while len(ended) < batch.num_envs:
        rows = torch.from_numpy(batch.out.seen)
        with torch.no_grad():
            actions = policy.log_probs(rows, batch.masks.copy()).argmax(dim=1).numpy()
        batch.step(actions)
        for i in batch.ended:
            s = batch.scalars[i]
            ended.setdefault(
                int(i),
                (
                    int(s["steps"]),
                    int(s["operations_solved"]),
                    int(s["operations_done"]),
                    int(batch.ends[i]),
                ),
            )
    return [ended[i] for i in range(batch.num_envs)]


@pytest.mark.parametrize("on_error", ["terminate", "continue"])
def test_the_table_plays_as_the_policy_does(policy: AbacusPolicy, on_error: Any) -> None:
    config = replace(WORLD, on_error=on_error, max_operations=3)
    batches = [AbacusBatch(config, 40, autoreset=False) for _ in range(2)]
    for batch in batches:
        batch.reset(5)
    outcome = GreedyTable(policy, WORLD.base, FRAMES).run(batches[0], 10**6)
    plain = run_plainly(policy, batches[1])
    s = outcome.scalars
    ours = list(
        zip(
            s["steps"].tolist(),
            s["operations_solved"].tolist(),
            s["operations_done"].tolist(),
            outcome.ends.tolist(),
            strict=True,
        )
    )
    assert ours == plain


def teacher_table(base: int = 5, frames: int = 3) -> GreedyTable:
    """A table that answers as the teacher does on the whole set."""
    observations = complete_set(base, frames)
    rows = {
        row.tobytes(): action
        for row, action in zip(
            np.concatenate([observations.observations()[key] for key in KEYS], axis=1),
            observations.actions,
            strict=True,
        )
    }

    def answers(seen: dict[str, Any]) -> Any:
        codes = np.concatenate([seen[key] for key in KEYS], axis=1)
        return np.array([rows.get(code.tobytes(), Action.SUBMIT) for code in codes])

    return GreedyTable(answers, base, frames)


KEYS = ("window", "symbol", "operation")


def test_the_teacher_makes_no_error_at_any_length() -> None:
    table = teacher_table(base=2, frames=2)
    assert long_score(table, digits=16, operations=200).errors == 0
    score = training_score(table, WORLD, episodes=50)
    assert (score.accuracy, score.illegal_actions) == (1.0, 0)
    assert score.longest_run == WORLD.max_operations


@pytest.mark.parametrize("kind", ["add", "subtract"])
def test_a_policy_that_knows_one_operation_alone_is_measured_by_it(kind: Operations) -> None:
    """The teacher, but lost wherever the other operation shows in the flag or in the symbol."""
    table = teacher_table(base=2, frames=2)
    teacher, known = table.answers, 0 if kind == "add" else 1

    def answers(seen: dict[str, Any]) -> Any:
        other = (seen["operation"][:, 0] != known) | (seen["symbol"][:, 2 + 1 - known] > 0)
        return np.where(other, Action.SUBMIT, teacher(seen))

    one = GreedyTable(answers, 2, 2)
    assert long_score(one, digits=16, operations=200, kind=kind).errors == 0
    assert long_score(one, digits=16, operations=200).errors > 20


def test_a_policy_that_always_submits_solves_nothing() -> None:
    def submit(seen: dict[str, Any]) -> Any:
        return np.full(len(seen["symbol"]), Action.SUBMIT)

    table = GreedyTable(submit, 5, 3)
    score = training_score(table, AbacusConfig(), episodes=50)
    assert score.operations == 50
    assert score.failures["wrong_submit"] == 50
    assert long_score(table, digits=4, operations=100).error_rate == 1.0


def test_a_policy_that_slides_to_and_fro_is_given_up() -> None:
    """Each right slide grants steps: without a limit this would never end."""

    def to_and_fro(seen: dict[str, Any]) -> Any:
        scores = np.zeros((len(seen["symbol"]), 8), np.float32)
        scores[:, [Action.SLIDE, Action.UP, Action.DOWN]] = (3, 2, 1)
        return scores

    config = AbacusConfig(on_error="continue", columns=4, max_digits=2, base=2)
    batch = AbacusBatch(config, 20, autoreset=False)
    batch.reset(0)
    outcome = GreedyTable(to_and_fro, 2, 3).run(batch, episode_step_limit(config, 1))
    assert (outcome.ends == End.BUDGET).all()


def test_the_first_mistake_is_named() -> None:
    def signpost(seen: dict[str, Any]) -> Any:
        return np.full(len(seen["symbol"]), Action.SIGNPOST_RIGHT)

    batch = AbacusBatch(AbacusConfig(), 5, autoreset=False)
    batch.reset(0)
    outcome = GreedyTable(signpost, 5, 3).run(batch, 1000)
    assert (outcome.first_mistakes == End.WRONG_SIGNPOST).all()


def test_the_table_grows_and_keeps_what_it_knows(policy: AbacusPolicy) -> None:
    table = GreedyTable(policy, 2, 2)
    rng = np.random.default_rng(0)
    codes = np.column_stack(
        [rng.integers(0, 100, (9000, 2)), rng.integers(0, 4, 9000), rng.integers(0, 2, 9000)]
    ).astype(np.int32)
    table.learn(np.unique(codes, axis=0))
    with torch.no_grad():
        seen: Any = policy.obs_to_tensor(coded_observations(2, table._codes[: len(table)]))[0]
        expected = torch.log_softmax(policy.network.logits(policy.rows(seen)), dim=1).numpy()
    assert np.allclose(table._scores[: len(table)], expected, atol=1e-5)


def test_operations_of_a_length_are_possible_ones() -> None:
    config = AbacusConfig(columns=20, max_digits=16, on_error="continue")
    batch = AbacusBatch(config, 500, autoreset=False)
    load_operations(batch, 16, np.random.default_rng(0))
    batch.reset(0)
    assert (batch.scalars["operand_length"] == 16).all()
    assert (batch.digits[:, 15] > 0).all()
    assert (batch.digits[:, 16:] == 0).all()
    assert 0.2 < batch.scalars["operation"].mean() < 0.3


def test_a_batch_that_starts_anew_is_refused(policy: AbacusPolicy) -> None:
    with pytest.raises(ValueError, match="autoreset"):
        GreedyTable(policy, 2, 2).run(AbacusBatch(WORLD, 2), 10)
