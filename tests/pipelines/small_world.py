"""A small world that learners solve in seconds: base 2, four columns, one or two digits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from abacus.rules import AbacusConfig
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.recorder import Recorder
from pipelines.learning import mending, planning
from pipelines.learning.cloning import Cloning
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import Exercise
from tests.abacus.slow_reference import SlowAbacus

FRAMES = 2
WORLD = AbacusConfig(
    columns=4, base=2, max_digits=2, frames=FRAMES, start="random", max_operations=10
)


def small_demonstrations(operations: int = 400) -> Demonstrations:
    """Record demonstrations in memory."""
    recipe = Recipe(config=WORLD, operations=operations)
    return Recorder(recipe).record(0, -(-operations // 10)).first(operations)


def small_set(operations: int = 400) -> CloningSet:
    """Return the distinct observations of demonstrations."""
    return CloningSet.from_demonstrations(small_demonstrations(operations), frames=FRAMES)


def abacus_for(exercise: Exercise, world: AbacusConfig) -> AbacusConfig:
    """Return the abacus on which an exercise is calculated, with its end."""
    columns, operations = exercise.columns, len(exercise.task.operations)
    return replace(world, columns=columns, max_digits=columns - 1, max_operations=operations)


def slow_abacus(exercise: Exercise, world: AbacusConfig) -> SlowAbacus:
    """Return an exercise that is about to start, in the slow reference implementation."""
    task = exercise.task
    text = "".join(f"{'+' if each.sign > 0 else '-'}{each.operand}" for each in task.operations)
    abacus = SlowAbacus(replace(abacus_for(exercise, world), expression=text, start=task.start))
    abacus.reset(0)
    return abacus


def shorten_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan on few columns, where an exercise has hundreds of states."""
    monkeypatch.setattr(planning, "WIDTHS", (2, 3, 4))


def shorten_mending(monkeypatch: pytest.MonkeyPatch, tried: int = 200, updates: int = 30) -> None:
    """Try fewer random exercises in a round of mending, and clone with fewer updates.

    The number of updates is no flag of a run, which is why it is replaced here.
    """
    monkeypatch.setattr(mending, "TRIED", tried)

    def shorter(policy: Any, data: CloningSet, settings: Any, *more: Any) -> Cloning:
        return Cloning(policy, data, replace(settings, updates=updates), *more)

    monkeypatch.setattr(mending, "Cloning", shorter)
