"""Which transitions look the same: one pass over coded observations with a table of those seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abacus.hash_index import EMPTY, empty_slots, find_slot
from abacus.kernel import ACTIONS, compiled
from abacus.observation import frame_pixels
from abacus.rules import Action
from oracle.demos.dataset import Demonstrations
from oracle.demos.shards import FOLDER, record
from oracle.files import lock
from pipelines.job.command_line import shown_path
from pipelines.learning.settings import Settings

# numba types the compiled functions from the arguments that they meet.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators


@dataclass(frozen=True)
class Groups:
    """Transitions by what they look like, in the order in which each look was first met."""

    first: npt.NDArray[np.int64]  # (M,): the first transition that looks so
    answers: npt.NDArray[np.int64]  # (M, 8): how often each action was the teacher's
    masks: npt.NDArray[np.uint8]  # (M,): bits of what was legal in any of them


def group_transitions(
    histories: npt.NDArray[np.int32],
    symbols: npt.NDArray[Any],
    operations: npt.NDArray[Any],
    actions: npt.NDArray[Any],
    masks: npt.NDArray[Any],
) -> Groups:
    """Groups transitions by frames, symbol and operation."""
    capacity = 1 << 16
    while True:
        first = np.zeros(capacity, np.int64)
        answers = np.zeros((capacity, ACTIONS), np.int64)
        legal = np.zeros(capacity, np.uint8)
        codes = np.zeros((capacity + 1, histories.shape[1] + 2), np.int32)
        index = empty_slots(capacity), codes
        count = _group(histories, symbols, operations, actions, masks, index, first, answers, legal)
        if count >= 0:
            return Groups(first[:count], answers[:count], legal[:count])
        capacity *= 4


@compiled
def _group(histories, symbols, operations, actions, masks, index, first, answers, legal):
    """Return the number of groups, or -1 if there is no room for them."""
    slots, codes = index
    frames = histories.shape[1]
    count = 0
    for row in range(len(symbols)):
        codes[count, 0] = symbols[row]
        codes[count, 1] = operations[row]
        for k in range(frames):
            codes[count, 2 + k] = histories[row, k]
        slot = find_slot(slots, codes, count)
        if slots[slot] == EMPTY:
            if count == len(first):
                return -1
            slots[slot] = count
            first[count] = row
            count += 1
        group = slots[slot]
        answers[group, actions[row]] += 1
        legal[group] |= masks[row]
    return count


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


Say = Callable[[str], None]


def cloning_sets(settings: Settings, say: Say) -> tuple[CloningSet, CloningSet | None]:
    """What is cloned, and what is held out; None of that where there is a single episode."""
    demonstrations = open_demonstrations(settings, say)
    validation = demonstrations.episodes["validation"]
    train = distinct(demonstrations.train, settings.frames)
    held_out = distinct(demonstrations.validation, settings.frames) if validation.any() else None
    say(
        f"{settings.demo_operations:,} operations: {len(demonstrations):,} transitions, "
        f"{len(train):,} distinct observations to clone"
    )
    return train, held_out


def open_demonstrations(settings: Settings, say: Say) -> Demonstrations:
    """The first operations of the run's file."""
    path = settings.demonstrations or recorded_file(settings, say)
    demonstrations = Demonstrations.open(path)
    check_world(demonstrations, settings, path)
    wanted, there = settings.demo_operations or 0, demonstrations.counts["operations"]
    if wanted > there:
        raise ValueError(
            f"{shown_path(path)} has {there:,} operations, and {wanted:,} are asked for: give "
            f"--demo-operations {there} or a larger file"
        )
    return demonstrations.first(wanted)


def recorded_file(settings: Settings, say: Say) -> Path:
    """The file for these settings, recorded if it is not there."""
    recipe = settings.recipe()
    path = FOLDER / recipe.file_name
    # Several runs may want it at the same time: the first records it, the others wait.
    if not path.is_file():
        with lock(path.with_name(f".{path.name}.lock")):
            if not path.is_file():
                say(f"recording {recipe.operations:,} operations into {path}")
                record(recipe, path)
    return path


def check_world(demonstrations: Demonstrations, settings: Settings, path: Path) -> None:
    """Raises where the demonstrations are of another abacus."""
    world, recorded = settings.world(), demonstrations.config
    for name in ("base", "columns"):
        asked, there = getattr(world, name), getattr(recorded, name)
        if asked != there:
            raise ValueError(
                f"{shown_path(path)} was recorded with {name}={there}, the run has "
                f"{name}={asked}: give --{name} {there} or another file"
            )
