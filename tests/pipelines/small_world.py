"""A small world that learners solve in seconds: base 2, four columns, one or two digits."""

from __future__ import annotations

from abacus.rules import AbacusConfig
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.recorder import Recorder
from pipelines.learning.cloning_data import CloningSet

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
