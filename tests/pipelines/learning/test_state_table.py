"""The table of the state: it learns from the reward alone, sees no target, and is cloned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from pipelines.learning import state_table
from pipelines.learning.policy import new_policy
from pipelines.learning.settings import CloningSettings
from pipelines.learning.state_table import StateTable, TableCloning, train_table
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import training_score
from tests.pipelines.small_world import FRAMES, WORLD

LEVEL = replace(WORLD, reward="no_of")


def nothing(line: str) -> None:
    """Discard a line of a log."""


def accuracy_of(table: StateTable) -> float:
    """Return the part of the operations that the table itself solves."""
    batch = AbacusBatch(LEVEL, 200, autoreset=False)
    batch.reset(5)
    before = batch.digits.copy()
    running = np.ones(200, np.bool_)
    solved = 0
    for _ in range(5000):
        if not running.any():
            break
        actions = table.answers(batch, before)
        batch.step(actions)
        table.note(batch, actions, before)
        ended = running & (batch.terminated | batch.truncated)
        solved += int(batch.scalars["operations_solved"][ended].sum())
        running &= ~ended
    assert not running.any()
    return solved / (200 * 10)


def trained_table(steps: int = 1_000_000, seed: int = 0) -> StateTable:
    table = StateTable(LEVEL, 0.95, seed)
    train_table(table, steps, nothing)
    return table


def test_the_table_learns_from_the_reward_alone() -> None:
    table = StateTable(LEVEL, 0.95, 0)
    assert accuracy_of(table) < 0.01
    train_table(table, 1_000_000, nothing)
    assert accuracy_of(table) > 0.95
    unpaid = StateTable(replace(LEVEL, reward=("step",)), 0.95, 0)
    train_table(unpaid, 1_000_000, nothing)
    assert accuracy_of(unpaid) < 0.01


def test_the_table_sees_no_target() -> None:
    table = trained_table(100_000)
    batch, before = table.batch, table.before
    answers = table.answers(batch, before)
    batch.world.cells["target"] = 1 - batch.world.cells["target"]
    batch.world.scalars["wrong_count"] = 1
    batch.world.scalars["first_wrong"] = 2
    batch.world.cells["operand"] = 0
    assert np.array_equal(table.answers(batch, before), answers)


def test_digits_are_noted_when_a_symbol_appears() -> None:
    """By the sequence of actions, in episodes that mistakes do not end."""
    batch = AbacusBatch(replace(WORLD, on_error="continue", max_operations=None), 50)
    batch.reset(1)
    rng, noted = np.random.default_rng(0), batch.digits.copy()
    expected, changed = noted.copy(), 0
    for _ in range(100):
        actions = (rng.random(batch.masks.shape) * batch.masks).argmax(axis=1)
        batch.step(actions)
        StateTable.note(batch, actions, noted)
        new = batch.terminated | batch.truncated | (actions == 7)
        expected[new] = batch.digits[new]
        assert np.array_equal(noted, expected)
        changed = max(changed, int((noted != batch.digits).sum(axis=1).max()))
    assert changed > 1


@pytest.mark.parametrize("level", ["no_of_sp", "no_of_sp_ms"])
def test_the_table_learns_where_slides_or_signpost_are_not_rewarded(level: str) -> None:
    table = StateTable(replace(LEVEL, reward=level), 0.95, 0)
    train_table(table, 12_000_000, nothing)
    assert accuracy_of(table) > 0.5


def test_a_full_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = trained_table(10_000)
    monkeypatch.setattr(state_table, "SLOTS", 16)
    with pytest.raises(ValueError, match="the table is full"):
        table.learn(64, 0.1)


def test_the_table_is_cloned_and_seeds_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_table, "ROUND_STEPS", 50)

    def cloned(seed: int) -> Any:
        torch.manual_seed(seed)
        policy = new_policy("onehot", WORLD.base, FRAMES)
        settings = CloningSettings(updates=200)
        TableCloning(policy, trained_table(seed=seed), settings, LEVEL, seed).run(nothing)
        return policy

    first, again = cloned(0), cloned(0)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    untrained = new_policy("onehot", WORLD.base, FRAMES)
    scores = [
        training_score(GreedyTable(policy, WORLD.base, FRAMES), LEVEL, 100, 7).accuracy
        for policy in (untrained, first)
    ]
    assert scores[0] < 0.1 < 0.2 < scores[1]
