"""The longest way between two grants of the step budget: a bound that holds, and is attained."""

from __future__ import annotations

import numpy as np
import pytest

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action
from oracle.exact.budget import Ways, longest_ways
from oracle.exact.complete_set import enumerate_observations
from oracle.exact.endless_runs import drifts
from oracle.exact.own_runs import Asked
from oracle.exact.policy_exploration import explore_policy
from oracle.expert import expert_actions
from pipelines.scoring.players import GreedyTable, Player, expert_player
from tests.oracle.exact.shortcut_policy import shortcut_policy
from tests.oracle.exact.test_own_runs import TablePolicy


def ways_of(policy: object, base: int, frames: int) -> Ways:
    found = longest_ways(explore_policy(Asked(policy, base, frames), base, frames))
    assert found is not None
    return found


def longest_seen(player: Player, config: AbacusConfig, seed: int, steps: int) -> int:
    """Return the longest way between two grants in random episodes."""
    batch = AbacusBatch(config, 64)
    batch.reset(seed)
    since = np.zeros(64, np.int64)
    longest = 0
    for _ in range(steps):
        budget = batch.scalars["budget"].copy()
        batch.step(player.actions(batch))
        since += 1
        granted = batch.scalars["budget"] != budget
        ended = np.zeros(64, np.bool_)
        ended[batch.ended] = True
        longest = max(longest, int(since[granted | ended].max(initial=0)))
        since[granted | ended] = 0
    return longest


@pytest.mark.parametrize("base", [2, 3])
def test_the_bound_of_the_expert_is_the_worlds(base: int) -> None:
    known = enumerate_observations(base, 3)
    ways = ways_of(TablePolicy(known), base, 3)
    assert (1, 3, base - 6) in ways.bounds
    assert ways.within_budget


def test_the_longest_way_of_the_expert_is_attained() -> None:
    """After a carry to the last column, over zeros to the leading digit, and up or down."""
    base, columns = 3, 14
    ways = ways_of(TablePolicy(enumerate_observations(base, 3)), base, 3)
    operand = base ** (columns - 2) + 1
    start = base ** (columns - 2) - 1
    config = AbacusConfig(
        columns=columns, base=base, max_digits=columns - 1, start=start, expression=str(operand)
    )
    batch = AbacusBatch(config, 1, autoreset=False)
    batch.reset(0)
    longest = since = 0
    while not batch.terminated[0]:
        budget = int(batch.scalars["budget"][0])
        batch.step(expert_actions(batch))
        since += 1
        if int(batch.scalars["budget"][0]) != budget:
            longest, since = max(longest, since), 0
    assert ways.steps(columns, columns - 1) - base <= longest <= ways.steps(columns, columns - 1)


@pytest.mark.parametrize(("columns", "digits"), [(3, 2), (6, 5), (12, 4), (20, 19)])
def test_random_runs_stay_within_the_bound(columns: int, digits: int) -> None:
    config = AbacusConfig(columns=columns, base=3, max_digits=digits, start="random")
    shortcut = shortcut_policy(3)
    ways = ways_of(shortcut, 3, 3)
    seen = longest_seen(GreedyTable(shortcut, 3, 3), config, columns, 1_500)
    assert 0 < seen <= ways.steps(columns, digits)
    assert ways.within_budget
    expert = ways_of(TablePolicy(enumerate_observations(3, 3)), 3, 3)
    assert longest_seen(expert_player(), config, columns, 1_500) <= expert.steps(columns, digits)


@pytest.mark.parametrize(
    ("bounds", "within"),
    [
        (((1, 3, -1),), True),
        (((1, 3, 0),), False),
        (((3, 0, 0),), True),
        (((4, 0, -20),), False),
        (((0, 4, 0),), True),
        (((0, 4, 1),), False),
        (((0, 0, 32),), True),
        (((0, 0, 33),), False),
    ],
)
def test_the_budget_of_base_5(bounds: tuple[tuple[int, int, int], ...], within: bool) -> None:
    assert Ways(5, bounds).within_budget is within


def test_a_zigzag_that_moves_on_is_no_endless_run() -> None:
    right, left = int(Action.RIGHT), int(Action.LEFT)
    cycle = np.array([[0, 1], [1, 2], [2, 0]], np.int32)
    assert drifts(np.array([right, right, left], np.uint8), cycle)
    assert drifts(np.array([left, right, left], np.uint8), cycle)
    balanced = np.array([[0, 1], [1, 0]], np.int32)
    assert not drifts(np.array([right, left], np.uint8), balanced)
    # Two cycles that move in opposite directions can be combined into one that does not move.
    both = np.array([[0, 1], [1, 0], [0, 2], [2, 0]], np.int32)
    assert not drifts(np.array([int(Action.UP), right, left], np.uint8), both)
