"""A set of demonstrations in memory: its columns, subsets, observations and rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.checks import check_integer
from abacus.compiling import compiled_with
from abacus.observation import observation_arrays, observation_lengths, visibly_illegal_actions
from abacus.reward import terms_of
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Task, values_of
from oracle.demos.reader import read_file
from oracle.demos.recipe import DEFAULT_COMPRESSION, Metadata, Recipe, tasks_of
from oracle.demos.schema import Array, Columns, Groups, every_outcome, outcome_index
from oracle.demos.writer import FileWriter, content_digest
from oracle.files import atomic_path

#: The previous action where there is none.
_NO_ACTION = len(Action)
_MAX_AGE = AbacusConfig.MAX_FRAMES - 1
# A transition packed in 32 bits, so that a random access touches one place in memory: 16 bits of
# frame, 4 each of age (frames before it in its stack), symbol and previous action, 1 of operation.
_AGE, _SYMBOL, _PREVIOUS, _OPERATION = 16, 20, 24, 28
_FRAME_MASK, _FOUR_BITS = 0xFFFF, 0xF

_compiled = compiled_with(nogil=True)

Observation = dict[str, npt.NDArray[np.float32]]
#: A level of the reward, or its modules; None for the recorded one.
Reward = str | tuple[str, ...] | None
Rows = slice | npt.NDArray[np.integer[Any]]
EVERY_ROW = slice(None)


class Demonstrations:
    """A set of demonstrations, read into memory; its file is closed.

    `transitions`, `episodes` and `operations` are the columns as they are stored. Methods return
    stacked observations, rewards at any level, and subsets, which are Demonstrations too.
    """

    def __init__(self, columns: Groups, recipe: Recipe, metadata: Metadata | None = None) -> None:
        #: The columns by group and name; see `oracle.demos.schema`. They are never modified.
        self.columns = columns
        self.recipe = recipe
        #: The attributes of the file; None for what does not come from one as a whole.
        self.metadata = metadata

    @classmethod
    def open(cls, path: str | Path, verify: bool = False) -> Demonstrations:
        """Read a file. Format, version, seal and values are checked, the digest on request.

        Raise DemonstrationsError, a ValueError, if the file is damaged or holds no demonstrations.
        """
        columns, recipe, metadata = read_file(Path(path), verify)
        return cls(columns, recipe, metadata)

    def write(
        self,
        path: Path,
        *,
        compression: int = DEFAULT_COMPRESSION,
        command: Sequence[str] = (),
        provenance: Mapping[str, Any] | None = None,
    ) -> str:
        """Write a whole set into a file, and return its digest; see `FileWriter.finish`."""
        if self.recipe.operations not in (None, self.counts["operations"]):
            raise ValueError(
                f"{self} is a part of {self.recipe.operations:,} operations: write the whole set"
            )
        with (
            atomic_path(path) as temporary,
            FileWriter(temporary, self.recipe, compression) as writer,
        ):
            writer.append(self.columns)
            return writer.finish(command, provenance)

    @property
    def config(self) -> AbacusConfig:
        """The configuration of the environment in which the set was recorded."""
        return self.recipe.config

    @property
    def transitions(self) -> Columns:
        return self.columns["transitions"]

    @property
    def episodes(self) -> Columns:
        return self.columns["episodes"]

    @property
    def operations(self) -> Columns:
        return self.columns["operations"]

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of transitions, episodes and operations."""
        return {
            "transitions": len(self),
            "episodes": len(self.episodes["start"]),
            "operations": len(self.operations["start"]),
        }

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self.transitions["action"])

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return f"Demonstrations({counts})"

    def content_digest(self) -> str:
        """Return the digest of the columns, which is the file's if they are complete."""
        return content_digest(self.columns, self.recipe)

    def first(self, operations: int) -> Demonstrations:
        """Return the first operations; a smaller set is contained in a larger one.

        If they end within an episode, it ends there as on its limit of operations. A given task
        that is cut so is not what the recorder would make of its first operations: their last
        reset would show a plus.
        """
        check_integer("operations", operations, 1, self.counts["operations"])
        last = operations - 1
        counts = {
            "transitions": int(self.operations["start"][last] + self.operations["length"][last]),
            "episodes": int(self.operations["episode"][last]) + 1,
            "operations": operations,
        }
        kept = {
            group: {name: rows[: counts[group]] for name, rows in columns.items()}
            for group, columns in self.columns.items()
        }
        _end_by_limit(kept)
        if self.recipe.tasks is None:
            recipe = replace(self.recipe, operations=operations, transitions=None)
        else:
            recipe = replace(self.recipe, tasks=tasks_of(kept, self.config.base))
        return Demonstrations(kept, recipe)

    def select(self, which: npt.NDArray[np.bool_]) -> Demonstrations:
        """Return the episodes for which `which`, a boolean for each, is True."""
        if which.shape != self.episodes["start"].shape:
            raise ValueError(
                f"which has shape {which.shape}: give one boolean for each of the "
                f"{self.counts['episodes']} episodes"
            )
        kept = {
            "transitions": np.repeat(which, self.episodes["length"]),
            "episodes": which,
            "operations": np.repeat(which, self.episodes["operations"]),
        }
        columns = {
            group: {name: rows[kept[group]] for name, rows in self.columns[group].items()}
            for group in kept
        }
        episodes, operations = columns["episodes"], columns["operations"]
        episodes["start"] = _starts(episodes["length"])
        episodes["first_operation"] = _starts(episodes["operations"])
        operations["start"] = _starts(operations["length"])
        operations["episode"] = np.repeat(np.arange(which.sum()), episodes["operations"])
        return Demonstrations(columns, self.recipe)

    @property
    def train(self) -> Demonstrations:
        """The episodes for training."""
        return self.select(self.episodes["validation"] == 0)

    @property
    def validation(self) -> Demonstrations:
        """The episodes for validation; none in a set of a single episode."""
        return self.select(self.episodes["validation"] == 1)

    def histories(self, rows: Rows = EVERY_ROW, frames: int | None = None) -> npt.NDArray[np.int32]:
        """Return the codes of the stacked frames, (rows, frames), oldest first."""
        numbers = self._row_numbers(rows)
        codes = np.empty((len(numbers), self._with_frames(frames).frames), np.int32)
        _gather_codes(numbers, self._packed, codes)
        return codes

    def empty_observations(self, count: int, frames: int | None = None) -> Observation:
        """Return uninitialised arrays for `count` observations, for use as `out`."""
        lengths = observation_lengths(self._with_frames(frames))
        return {key: np.empty((count, length), np.float32) for key, length in lengths.items()}

    def observations(
        self, rows: Rows = EVERY_ROW, frames: int | None = None, out: Observation | None = None
    ) -> Observation:
        """Return the observations of transitions, as the environment gives them.

        `frames` is the number of stacked frames, by default that of `config`. The arrays of `out`
        are written to if it is given.
        """
        numbers = self._row_numbers(rows)
        packed = self._packed[numbers]
        out = self.empty_observations(len(numbers), frames) if out is None else out
        observation_arrays(
            self.config.base,
            self.histories(numbers, frames),
            (packed >> _SYMBOL) & _FOUR_BITS,
            (packed >> _OPERATION) & 1,
            (packed >> _PREVIOUS) & _FOUR_BITS,
            out,
        )
        return out

    def final_observations(self, frames: int | None = None) -> Observation:
        """Return the observation after the last action of each episode."""
        episodes = self.episodes
        last = episodes["start"] + episodes["length"] - 1
        # The last frame pushes the oldest one out.
        histories = np.roll(self.histories(last, frames), -1, axis=1)
        histories[:, -1] = episodes["final_frame"]
        return observation_arrays(
            self.config.base,
            histories,
            episodes["final_symbol"],
            episodes["final_operation"],
            self.transitions["taken"][last],
        )

    def episode_observations(
        self, frames: int | None = None
    ) -> Iterator[tuple[slice, Observation]]:
        """Yield the rows of each episode, with its observations: one more than it has rows."""
        finals = self.final_observations(frames)
        starts, lengths = self.episodes["start"].tolist(), self.episodes["length"].tolist()
        for e, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            rows = slice(start, start + length)
            observations = self.empty_observations(length + 1, frames)
            before = {key: array[:-1] for key, array in observations.items()}
            self.observations(rows, frames, out=before)
            for key, array in observations.items():
                array[-1] = finals[key][e]
            yield rows, observations

    def final_masks(self) -> npt.NDArray[np.bool_]:
        """Return the action masks after the last action of each episode, (episodes, 8).

        The file does not store them. They follow from the final frame, but for edges out of view:
        an episode ends with a reset, for which the signpost is on column 0, and the column of the
        finger is the sum of its moves since the abacus was loaded.
        """
        taken, episodes = self.transitions["taken"], self.episodes
        moves = (taken == Action.RIGHT).astype(np.int64) - (taken == Action.LEFT)
        position = np.cumsum(moves)
        stacks = self.operations["start"][self.operations["fresh"] == 1]
        last = episodes["start"] + episodes["length"] - 1
        first = stacks[np.searchsorted(stacks, last, side="right") - 1]
        finger = position[last] - position[first] + moves[first]
        masks = ~visibly_illegal_actions(self.config.base)[episodes["final_frame"]]
        masks[:, Action.SIGNPOST_LEFT] = False
        masks[:, Action.RIGHT] = finger < self.config.columns - 1
        return masks

    def masks(self, rows: Rows = EVERY_ROW) -> npt.NDArray[np.bool_]:
        """Return the action masks, (rows, 8)."""
        mask = self.transitions["mask"][self._checked(rows)]
        return np.unpackbits(mask[:, None], axis=1, bitorder="little").view(np.bool_)

    def terms(self, level: Reward = None, rows: Rows = EVERY_ROW) -> npt.NDArray[np.float32]:
        """Return the reward terms, (rows, 6), at a level or of modules; by default as recorded."""
        table = terms_of(every_outcome(), self.config.reward if level is None else level)
        return self._of_outcomes(table.reshape(-1, table.shape[-1]), rows)

    def rewards(self, level: Reward = None, rows: Rows = EVERY_ROW) -> npt.NDArray[np.float32]:
        """Return the rewards, (rows,), at a level or of modules; by default as recorded."""
        table = terms_of(every_outcome(), self.config.reward if level is None else level)
        return self._of_outcomes(table.sum(axis=-1).ravel(), rows)

    def numbers(self, name: str, operations: slice = EVERY_ROW) -> Array:
        """Return the numbers of operations: "before", "operand" or "after".

        They are Python integers, in an array of objects, if 64 bits are too few.
        """
        return values_of(self.operations[name][operations], self.config.base)

    def tasks(self) -> tuple[Task, ...]:
        """Return what was calculated: a task for each episode, or part of one after a reload.

        Recorded as tasks, random episodes have the same operations and the same histories of
        frames. Only the symbol of the last reset may differ: after a task it is a plus, and in a
        random episode it announces the operation that would come next.
        """
        return tasks_of(self.columns, self.config.base)

    @cached_property
    def _packed(self) -> npt.NDArray[np.uint32]:
        columns = self.transitions
        stacks = self.operations["start"][self.operations["fresh"] == 1]
        packed = np.empty(len(self), np.uint32)
        _pack(
            *(columns[name] for name in ("frame", "symbol", "operation", "taken")), stacks, packed
        )
        return packed

    def _row_numbers(self, rows: Rows) -> npt.NDArray[np.int64]:
        if isinstance(rows, slice):
            return np.arange(*rows.indices(len(self)), dtype=np.int64)
        numbers = np.ascontiguousarray(rows, np.int64)
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(self)):
            raise IndexError(f"rows are not all from 0 to {len(self) - 1}")
        return numbers

    def _checked(self, rows: Rows) -> Rows:
        return rows if isinstance(rows, slice) else self._row_numbers(rows)

    def _with_frames(self, frames: int | None) -> AbacusConfig:
        return self.config if frames is None else replace(self.config, frames=frames)

    def _of_outcomes(self, table: npt.NDArray[np.float32], rows: Rows) -> npt.NDArray[np.float32]:
        checked = self._checked(rows)
        taken, outcome = (self.transitions[name][checked] for name in ("taken", "outcome"))
        return table[outcome_index(taken, outcome)]


@_compiled
def _pack(frame, symbol, operation, taken, stacks, packed):
    """Pack transitions; `stacks` are the rows at which stacks of frames start."""
    stack, age, previous = 0, 0, _NO_ACTION
    for row in range(len(packed)):
        if stack < len(stacks) and stacks[stack] == row:
            stack += 1
            age, previous = 0, _NO_ACTION
        packed[row] = (
            frame[row]
            | (age << _AGE)
            | (symbol[row] << _SYMBOL)
            | (previous << _PREVIOUS)
            | (operation[row] << _OPERATION)
        )
        age = min(age + 1, _MAX_AGE)
        previous = taken[row]


@_compiled
def _gather_codes(rows, packed, codes):
    frames = codes.shape[1]
    for i in range(len(rows)):
        row = rows[i]
        age = np.int64((packed[row] >> _AGE) & _FOUR_BITS)
        for k in range(frames):
            codes[i, k] = packed[row - min(frames - 1 - k, age)] & _FRAME_MASK


def _starts(lengths: Array) -> npt.NDArray[np.int64]:
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _end_by_limit(columns: dict[str, dict[str, Array]]) -> None:
    """End the last episode with the last operation, if it was cut there.

    On its limit of operations an episode shows the abacus and the symbol as they were before the
    reset that closes the last operation.
    """
    transitions, episodes = columns["transitions"], columns["episodes"]
    length = len(transitions["action"]) - int(episodes["start"][-1])
    if length == episodes["length"][-1]:
        return
    operations = len(columns["operations"]["start"]) - int(episodes["first_operation"][-1])
    changes = {
        "length": length,
        "operations": operations,
        "end": End.LIMIT,
        "final_frame": transitions["frame"][-1],
        "final_symbol": transitions["symbol"][-1],
        "final_operation": transitions["operation"][-1],
    }
    for name, value in changes.items():
        episodes[name] = _with_last(episodes[name], value)
    transitions["truncated"] = _with_last(transitions["truncated"], 1)


def _with_last(rows: Array, value: int | np.generic) -> Array:
    changed = rows.copy()
    changed[-1] = value
    return changed
