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
    slides = np.zeros(200, np.int64)
    running = np.ones(200, np.bool_)
    solved = 0
    for _ in range(1000):
        actions = table.answers(batch, slides)
        batch.step(actions)
        table.note(batch, actions, slides)
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
    batch, slides = table.batch, table.slides
    before = table.answers(batch, slides)
    batch.world.cells["target"] = 1 - batch.world.cells["target"]
    batch.world.scalars["wrong_count"] = 1
    batch.world.scalars["first_wrong"] = 2
    batch.world.cells["operand"] = 0
    assert np.array_equal(table.answers(batch, slides), before)


def test_slides_are_counted_since_the_last_symbol() -> None:
    """By the sequence of actions, in episodes that mistakes do not end."""
    batch = AbacusBatch(replace(WORLD, on_error="continue", max_operations=None), 50)
    batch.reset(1)
    rng, slides = np.random.default_rng(0), np.zeros(50, np.int64)
    expected = np.zeros(50, np.int64)
    for _ in range(100):
        actions = (rng.random(batch.masks.shape) * batch.masks).argmax(axis=1)
        batch.step(actions)
        StateTable.note(batch, actions, slides)
        ended = batch.terminated | batch.truncated
        expected = np.where(ended | (actions == 7), 0, expected + (actions == 6))
        assert np.array_equal(slides, np.minimum(expected, state_table.MOST_SLIDES))
    assert expected.max() > 1


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
