"""A small world that learners solve in seconds: base 2, four columns, one or two digits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abacus.rules import AbacusConfig
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.recorder import Recorder
from pipelines.learning import cloning, value_table
from pipelines.learning.cloning_data import CloningSet

FRAMES = 2
#: Rounds of a table's training after `shorten_tables`.
TABLE_ROUNDS = 8
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


def shorten_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give tables of values fewer rounds and exercises, and less cloning, than in a run."""
    monkeypatch.setattr(value_table, "ROUNDS", TABLE_ROUNDS)
    for name in ("SEARCHED", "KEPT"):
        monkeypatch.setattr(value_table, name, 1_000)
    monkeypatch.setattr(value_table, "PRACTISED", 100)
    monkeypatch.setattr(value_table, "CLONED_EXERCISES", 2_000)
    monkeypatch.setattr(cloning, "EVERY_ACTION", replace(cloning.EVERY_ACTION, updates=300))
