"""Runs of operations, as in the paper's Table 1: how many are solved in one episode.

The world is that of training. An episode ends at the first wrong slide or submit, when the abacus
can hold no more, or at a limit, which a perfect policy reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, End, Operations
from pipelines.evaluation.players import Player

#: Steps for each operation after which an episode is given up; the paper's longest takes 120.
_STEPS_PER_OPERATION = 2_000
_EPISODES_AT_ONCE = 20


@dataclass
class Runs:
    """Episodes of one kind of operations."""

    operations: Operations
    limit: int
    asked: int
    lengths: list[int] = field(default_factory=list)
    #: Why they ended.
    mistakes: int = 0
    capacity: int = 0
    limited: int = 0

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def complete(self) -> bool:
        return self.episodes == self.asked

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def median(self) -> float:
        return float(np.median(self.lengths))


def measure_runs(
    player: Player,
    runs: Runs,
    base: int,
    frames: int,
    seed: int,
    columns: int = 10,
    max_digits: int = 6,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Runs the episodes that `runs` asks for, one portion after the other."""
    config = AbacusConfig(
        columns=columns,
        base=base,
        max_digits=max_digits,
        frames=frames,
        operations=runs.operations,
        # What ends an episode at every level that the paper trained with.
        reward="no_of_sp",
        max_operations=runs.limit,
    )
    for first in range(0, runs.asked, _EPISODES_AT_ONCE):
        count = min(_EPISODES_AT_ONCE, runs.asked - first)
        batch = AbacusBatch(config, count, autoreset=False)
        batch.reset(seed + first)
        outcome = player.run(batch, _STEPS_PER_OPERATION * runs.limit)
        runs.lengths += outcome.solved.tolist()
        runs.capacity += int((outcome.ends == End.CAPACITY).sum())
        runs.limited += int((outcome.ends == End.LIMIT).sum())
        runs.mistakes = runs.episodes - runs.capacity - runs.limited
        if progress:
            progress(batch.num_envs)
