"""Demonstrations as cloning takes them: every distinct observation once, with its count.

A memory-less policy gives one answer to one observation, however often it is met: 50,000
operations are 1.2 million transitions, but fewer than 60,000 observations. Training on distinct
ones is the same task with all cases given the same weight, the rare carries too, and takes a
twentieth of the time. Held-out figures use the counts: they are those of the transitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abacus.observation import frame_pixels
from abacus.rules import Action
from oracle.demos.read import Demonstrations
from pipelines.learning.distinct import group_transitions


@dataclass(frozen=True)
class CloningSet:
    """Distinct observations, the teacher's answer to each, and what was legal.

    `masks` has True for what was legal in any transition that looked so: an edge out of sight
    makes an action illegal only sometimes, and the clone must not count on it.
    """

    rows: torch.Tensor  # (M, row length) float32, the previous action left at zeros
    actions: torch.Tensor  # (M,) int64
    masks: torch.Tensor  # (M, 8) bool
    counts: torch.Tensor  # (M,) float32: transitions that looked so

    def __len__(self) -> int:
        return len(self.actions)

    def __post_init__(self) -> None:
        lengths = {len(self.rows), len(self.actions), len(self.masks), len(self.counts)}
        if len(lengths) != 1:
            raise ValueError(f"a cloning set of lengths {sorted(lengths)}: give one length")


def distinct(demonstrations: Demonstrations, frames: int) -> CloningSet:
    """The distinct observations of demonstrations."""
    columns = demonstrations.transitions
    return distinct_observations(
        demonstrations.config.base,
        demonstrations.histories(frames=frames),
        *(columns[name] for name in ("symbol", "operation", "action", "mask")),
    )


def distinct_observations(
    base: int,
    histories: npt.NDArray[np.int32],
    symbols: npt.NDArray[Any],
    operations: npt.NDArray[Any],
    actions: npt.NDArray[Any],
    masks: npt.NDArray[Any],
) -> CloningSet:
    """Labelled observations, each once; where answers differ, the most frequent."""
    groups = group_transitions(histories, symbols, operations, actions, masks)
    first = groups.first
    legal = np.unpackbits(groups.masks[:, None], axis=1, bitorder="little")
    return CloningSet(
        rows=observation_rows(base, histories[first], symbols[first], operations[first]),
        actions=torch.from_numpy(groups.answers.argmax(axis=1)),
        masks=torch.from_numpy(legal.astype(np.bool_)),
        counts=torch.from_numpy(groups.answers.sum(axis=1).astype(np.float32)),
    )


def observation_rows(
    base: int,
    histories: npt.NDArray[np.integer],
    symbols: npt.NDArray[Any],
    operations: npt.NDArray[Any],
) -> torch.Tensor:
    """Coded observations as rows; no previous action."""
    count = len(histories)
    window = frame_pixels(base)[histories].reshape(count, -1)
    symbol = np.eye(base + 2, dtype=np.float32)[symbols.astype(np.int64)]
    operation = operations.astype(np.float32)[:, None]
    previous = np.zeros((count, len(Action)), np.float32)
    return torch.from_numpy(np.concatenate([window, symbol, operation, previous], axis=1))


class CloningBatches:
    """Batches for imitation's `BC`: an iterable that is shuffled anew in each pass.

    The last batch of a pass may be short. BC counts samples by its own batch size and would hold
    a short one back, so the batches of a pass are of one size, and what does not fit is left for
    the next shuffle.
    """

    def __init__(self, data: CloningSet, batch_size: int, generator: torch.Generator) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r} is not allowed: give 1 or more")
        self.data = data
        self.batch_size = min(batch_size, len(data))
        self.generator = generator
        self._rows_and_masks = torch.cat([data.rows, data.masks.float()], dim=1)

    def __len__(self) -> int:
        return len(self.data) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        order = torch.randperm(len(self.data), generator=self.generator)
        for batch in range(len(self)):
            picked = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield self.batch(picked)

    def batch(self, picked: torch.Tensor) -> dict[str, torch.Tensor]:
        """The samples picked, as BC takes them: masks ride behind the rows, see `split_masks`."""
        return {"obs": self._rows_and_masks[picked], "acts": self.data.actions[picked]}


def split_masks(rows_and_masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and masks of a batch: BC hands nothing but observations and actions to its loss."""
    return rows_and_masks[:, : -len(Action)], rows_and_masks[:, -len(Action) :] > 0
