"""Players: the table plays as the policy does, and every player keeps to the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.observation import observation_arrays
from abacus.rules import AbacusConfig, Action, End
from benchmarks.evaluation import direct_player
from oracle.exact.certificate import Observations
from oracle.exact.own_runs import Asked
from oracle.exact.policy_exploration import explore_policy
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.scoring.operations import drawn_operations, step_limit
from pipelines.scoring.players import GreedyTable, expert_player, mistakes_of, random_player

FRAMES = 2
WORLD = AbacusConfig(columns=4, base=2, max_digits=2, frames=FRAMES, start="random")


@pytest.fixture(scope="module")
def policy() -> AbacusPolicy:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return new_policy("compact", WORLD.base, FRAMES)


def arbitrary_scores(observations: Observations) -> npt.NDArray[np.float32]:
    """Return scores that depend on everything in an observation."""
    seen = np.hstack([observations[key] for key in ("window", "symbol", "operation")])
    weights = np.random.default_rng(3).normal(size=(seen.shape[1], len(Action)))
    return (seen @ weights).astype(np.float32)


def run_stepwise(policy: AbacusPolicy, batch: AbacusBatch) -> list[tuple[int, ...]]:
    """Return (steps, solved, done, end) of each abacus, with a network call for every step."""
    ended: dict[int, tuple[int, ...]] = {}
    while len(ended) < batch.num_envs:
        rows = torch.from_numpy(batch.out.rows)
        with torch.no_grad():
            actions = policy.log_probs(rows, batch.masks.copy()).argmax(dim=1).numpy()
        batch.step(actions)
        for i in batch.ended:
            s = batch.scalars[i]
            names = ("steps", "operations_solved", "operations_done")
            ended.setdefault(int(i), (*(int(s[name]) for name in names), int(batch.ends[i])))
    return [ended[i] for i in range(batch.num_envs)]


@pytest.mark.parametrize("on_error", ["terminate", "continue"])
def test_the_table_plays_as_the_policy_does(policy: AbacusPolicy, on_error: Any) -> None:
    config = replace(WORLD, on_error=on_error, max_operations=3)
    batches = [AbacusBatch(config, 40, autoreset=False) for _ in range(2)]
    for batch in batches:
        batch.reset(5)
    outcome = GreedyTable(policy, WORLD.base, FRAMES).run(batches[0], 10**6)
    s = outcome.scalars
    ours = zip(
        s["steps"].tolist(),
        s["operations_solved"].tolist(),
        s["operations_done"].tolist(),
        outcome.ends.tolist(),
        strict=True,
    )
    assert list(ours) == run_stepwise(policy, batches[1])


def test_the_table_does_as_a_network_call_at_every_step() -> None:
    operations = drawn_operations(60, 4, 5, np.random.default_rng(0))
    limit = 300
    with_table = GreedyTable(arbitrary_scores, 5, 3).run(operations.batch(3), limit)
    without = direct_player(arbitrary_scores).run(operations.batch(3), limit)
    assert (with_table.digits == without.digits).all()
    assert (with_table.ends == without.ends).all()
    assert (with_table.scalars["steps"] == without.scalars["steps"]).all()
    assert len(set(with_table.ends.tolist())) > 1 or (with_table.solved == 0).any()


def test_actions_of_the_table_are_those_of_its_policy() -> None:
    batch = drawn_operations(40, 3, 5, np.random.default_rng(1)).batch(3)
    table, direct = GreedyTable(arbitrary_scores, 5, 3), direct_player(arbitrary_scores)
    for _ in range(30):
        actions = table.actions(batch)
        assert (actions == direct.actions(batch)).all()
        batch.step(actions)


def test_the_table_grows_and_keeps_its_scores(policy: AbacusPolicy) -> None:
    table = GreedyTable(policy, 2, 2)
    rng = np.random.default_rng(0)
    codes = np.column_stack(
        [rng.integers(0, 100, (9000, 2)), rng.integers(0, 4, 9000), rng.integers(0, 2, 9000)]
    ).astype(np.int32)
    table.learn(np.unique(codes, axis=0))
    kept = table._codes[: len(table)]
    with torch.no_grad():
        arrays = observation_arrays(2, kept[:, :-2], kept[:, -2], kept[:, -1])
        seen: Any = policy.obs_to_tensor(arrays)[0]
        expected = torch.log_softmax(policy.network.logits(policy.rows(seen)), dim=1).numpy()
    assert np.allclose(table._scores[: len(table)], expected, atol=1e-5)


def test_an_exploration_of_the_table_is_that_of_its_policy(policy: AbacusPolicy) -> None:
    table = GreedyTable(policy, 2, 2)
    one, other = (
        explore_policy(ask, 2, 2, "no_of", exact_columns=4)
        for ask in (table.orders_of, Asked(policy, 2, 2))
    )
    assert len(one) > 10
    np.testing.assert_array_equal(one.observations, other.observations)
    np.testing.assert_array_equal(one.actions, other.actions)
    np.testing.assert_array_equal(one.failures, other.failures)
    # Actions that were preferred to those of the policy count.
    codes = one.observations[:1]
    second = table.orders_of(codes)[:, 1]
    table.prefer(table.known_rows(codes[:, :-1]), second)
    assert table.orders_of(codes)[0, 0] == second[0]


def test_the_expert_solves_everything() -> None:
    batch = drawn_operations(100, 12, 5, np.random.default_rng(0)).batch(3)
    outcome = expert_player().run(batch, step_limit(batch.config))
    assert (outcome.solved == 1).all()
    assert (outcome.ends == End.EXPRESSION).all()


def test_the_random_player_takes_legal_actions_and_fails() -> None:
    batch = drawn_operations(100, 4, 5, np.random.default_rng(0)).batch(3)
    outcome = random_player(0).run(batch, step_limit(batch.config))
    assert outcome.illegal_actions == 0
    assert (outcome.solved == 1).mean() < 0.1


def test_a_player_in_circles_is_stopped_at_the_step_limit() -> None:
    def up_and_down(observations: Observations) -> npt.NDArray[np.float32]:
        scores = np.zeros((len(observations["symbol"]), len(Action)), np.float32)
        scores[:, [Action.UP, Action.DOWN]] = 1
        return scores

    batch = drawn_operations(3, 2, 5, np.random.default_rng(0)).batch(3)
    outcome = direct_player(up_and_down).run(batch, 40)
    assert (outcome.ends == End.BUDGET).all()
    assert (outcome.scalars["steps"] == 40).all()


def test_sliding_to_and_fro_is_stopped_at_the_step_limit() -> None:
    """Each right slide grants steps: without a limit this would never end."""

    def to_and_fro(seen: Observations) -> npt.NDArray[np.float32]:
        scores = np.zeros((len(seen["symbol"]), len(Action)), np.float32)
        scores[:, [Action.SLIDE, Action.UP, Action.DOWN]] = (3, 2, 1)
        return scores

    config = AbacusConfig(on_error="continue", columns=4, max_digits=2, base=2)
    batch = AbacusBatch(config, 20, autoreset=False)
    batch.reset(0)
    outcome = GreedyTable(to_and_fro, 2, 3).run(batch, step_limit(config))
    assert (outcome.ends == End.BUDGET).all()


@pytest.mark.parametrize(
    ("action", "end"),
    [
        (Action.SIGNPOST_RIGHT, End.WRONG_SIGNPOST),
        (Action.SLIDE, End.WRONG_SLIDE),
        (Action.SUBMIT, End.WRONG_SUBMIT),
        (Action.RIGHT, End.NONE),
    ],
)
def test_a_mistake_is_named_by_the_end_that_it_causes(action: Action, end: End) -> None:
    """23 + 23 in base 5 with the finger on row 0: sliding writes a wrong digit."""
    config = AbacusConfig(start=13, expression="13")
    ended, continued = (
        AbacusBatch(replace(config, on_error=on_error), 1, autoreset=False)
        for on_error in ("terminate", "continue")
    )
    for batch in (ended, continued):
        batch.reset(0)
        batch.step(np.array([action]))
        assert mistakes_of(batch) == end
    assert ended.ends[0] == end
    assert continued.ends[0] == End.NONE


def test_batches_that_reset_themselves_are_refused(policy: AbacusPolicy) -> None:
    for player in (expert_player(), GreedyTable(policy, 2, 2)):
        with pytest.raises(ValueError, match="autoreset"):
            player.run(AbacusBatch(WORLD, 2), 10)
