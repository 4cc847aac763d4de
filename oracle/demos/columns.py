"""Recorded columns in memory: joined, cut to the first operations, reduced to some episodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.compiling import compiled_with
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import value_of
from oracle.demos.schema import FORMAT_NAME, FORMAT_VERSION, Array, names

Columns = Mapping[str, Array]


@dataclass(frozen=True)
class Recording:
    """The three groups of columns; see `oracle.demos.schema`. Arrays are not written to."""

    transitions: Columns
    episodes: Columns
    operations: Columns

    @property
    def counts(self) -> dict[str, int]:
        return {
            "transitions": len(self.transitions["action"]),
            "episodes": len(self.episodes["start"]),
            "operations": len(self.operations["start"]),
        }

    def group(self, name: str) -> Columns:
        columns: Columns = getattr(self, name)
        return columns

    def moved(self, transitions: int, episodes: int, operations: int) -> Recording:
        """The same rows, to stand behind so many others."""
        return Recording(
            self.transitions,
            _added(self.episodes, start=transitions, first_operation=operations),
            _added(self.operations, start=transitions, episode=episodes),
        )

    def first(self, operations: int) -> Recording:
        """The first operations; an episode that they end in ends there, as on a limit."""
        count = self.counts["operations"]
        if not 1 <= operations <= count:
            raise ValueError(f"operations={operations!r} is not allowed: give 1 to {count}")
        if operations == count:
            return self
        last = operations - 1
        transitions = int(self._stops[last])
        episodes = int(self.operations["episode"][last]) + 1
        kept = Recording(
            _sliced(self.transitions, transitions),
            _sliced(self.episodes, episodes),
            _sliced(self.operations, operations),
        )
        return kept._ended_by_limit()

    @property
    def _stops(self) -> npt.NDArray[np.int64]:
        """The transition after the last of each operation."""
        stops: npt.NDArray[np.int64] = self.operations["start"] + self.operations["length"]
        return stops

    def _ended_by_limit(self) -> Recording:
        """The last episode ends with its last operation, if it went on after that.

        On a limit the abacus and the symbol stay as the reset that closes the operation found
        them: what is seen last is what its submit saw.
        """
        transitions, episodes = dict(self.transitions), dict(self.episodes)
        count = len(transitions["action"])
        length = count - int(episodes["start"][-1])
        if length == episodes["length"][-1]:
            return self
        changes = {
            "length": length,
            "operations": len(self.operations["start"]) - int(episodes["first_operation"][-1]),
            "end": End.LIMIT,
            "final_frame": transitions["frame"][-1],
            "final_symbol": transitions["symbol"][-1],
            "final_operation": transitions["operation"][-1],
        }
        for name, value in changes.items():
            episodes[name] = _with_last(episodes[name], value)
        transitions["truncated"] = _with_last(transitions["truncated"], 1)
        return Recording(transitions, episodes, self.operations)

    def select(self, which: npt.NDArray[np.bool_]) -> Recording:
        """The episodes for which `which` is True, with their operations and transitions."""
        if which.shape != self.episodes["start"].shape:
            raise ValueError(
                f"which has shape {which.shape}: give one boolean for each of the "
                f"{self.counts['episodes']} episodes"
            )
        of_operations = np.repeat(which, self.episodes["operations"])
        of_transitions = np.repeat(which, self.episodes["length"])
        episodes = {name: rows[which] for name, rows in self.episodes.items()}
        operations = {name: rows[of_operations] for name, rows in self.operations.items()}
        episodes["start"] = _starts(episodes["length"])
        episodes["first_operation"] = _starts(episodes["operations"])
        operations["start"] = _starts(operations["length"])
        operations["episode"] = np.repeat(np.arange(which.sum()), episodes["operations"])
        transitions = {name: rows[of_transitions] for name, rows in self.transitions.items()}
        return Recording(transitions, episodes, operations)


def _added(columns: Columns, **amounts: int) -> Columns:
    return {
        name: rows + amounts[name] if name in amounts else rows for name, rows in columns.items()
    }


def _sliced(columns: Columns, count: int) -> Columns:
    return {name: rows[:count] for name, rows in columns.items()}


def _with_last(rows: Array, value: int | np.generic) -> Array:
    changed = rows.copy()
    changed[-1] = value
    return changed


def _starts(lengths: Array) -> npt.NDArray[np.int64]:
    return np.cumsum(lengths, dtype=np.int64) - lengths


#: The previous action where there is none.
NO_ACTION = len(Action)
MAX_AGE = AbacusConfig.MAX_FRAMES - 1

# The lowest bits of what is packed: 16 of frame, 4 each of age, symbol and previous action, 1 of
# operation.
AGE, SYMBOL, PREVIOUS, OPERATION = 16, 20, 24, 28
_FRAME_MASK, _FOUR_BITS = 0xFFFF, 0xF

_compiled = compiled_with(nogil=True)

Packed = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int64]


@_compiled
def _pack(frame, symbol, operation, taken, stacks, packed):
    stack, age, previous = 0, 0, NO_ACTION
    for row in range(len(packed)):
        if stack < len(stacks) and stacks[stack] == row:
            stack += 1
            age, previous = 0, NO_ACTION
        packed[row] = (
            frame[row]
            | (age << AGE)
            | (symbol[row] << SYMBOL)
            | (previous << PREVIOUS)
            | (operation[row] << OPERATION)
        )
        age = min(age + 1, MAX_AGE)
        previous = taken[row]


def pack(transitions: Columns, stacks: Rows) -> Packed:
    """What observations are made of; `stacks` are the rows where stacks of frames start anew."""
    packed = np.empty(len(transitions["frame"]), np.uint32)
    _pack(
        transitions["frame"],
        transitions["symbol"],
        transitions["operation"],
        transitions["taken"],
        stacks,
        packed,
    )
    return packed


@_compiled
def _gather_codes(rows, packed, codes):
    frames = codes.shape[1]
    for i in range(len(rows)):
        row = rows[i]
        age = np.int64((packed[row] >> AGE) & _FOUR_BITS)
        for k in range(frames):
            codes[i, k] = packed[row - min(frames - 1 - k, age)] & _FRAME_MASK


def gather_codes(rows: Rows, packed: Packed, frames: int) -> npt.NDArray[np.int32]:
    """The numbers of the last frames (rows, frames), oldest first."""
    codes = np.empty((len(rows), frames), np.int32)
    _gather_codes(rows, packed, codes)
    return codes


@_compiled
def _expand(codes, rest, pixels, windows, symbols, operations, previous_actions):
    length = pixels.shape[1]
    symbols[:] = 0
    previous_actions[:] = 0
    for i in range(len(rest)):
        for k in range(codes.shape[1]):
            code, place = codes[i, k], k * length
            for p in range(length):
                windows[i, place + p] = pixels[code, p]
        now = np.int64(rest[i])
        symbols[i, (now >> SYMBOL) & _FOUR_BITS] = 1
        operations[i, 0] = (now >> OPERATION) & 1
        previous = (now >> PREVIOUS) & _FOUR_BITS
        if previous < NO_ACTION:
            previous_actions[i, previous] = 1


def gather_observations(
    rows: Rows,
    packed: Packed,
    pixels: npt.NDArray[np.float32],
    out: Mapping[str, npt.NDArray[np.float32]],
) -> None:
    """Writes the observations of the rows into arrays of the environment's entries.

    In two passes: a short loop over far places in memory, whose waits overlap, and then a long
    one over near ones.
    """
    codes = gather_codes(rows, packed, out["window"].shape[1] // pixels.shape[1])
    entries = [out[key] for key in ("window", "symbol", "operation", "previous_action")]
    _expand(codes, packed[rows], pixels, *entries)


class ContentDigest:
    """SHA-256 of every column, fed part by part, and one over them all."""

    def __init__(self, facts: dict[str, Any]) -> None:
        """`facts`: the attributes that belong to the content."""
        self._facts = facts
        self._columns: dict[str, Any] = {}
        self._kinds: dict[str, list[Any]] = {}

    def add(self, name: str, rows: Array) -> None:
        """Feeds the next rows of a column."""
        if name not in self._columns:
            self._columns[name] = hashlib.sha256()
            self._kinds[name] = [rows.dtype.str, 0, *rows.shape[1:]]
        self._kinds[name][1] += len(rows)
        self._columns[name].update(np.ascontiguousarray(rows).view(np.uint8).data)

    def hexdigest(self) -> str:
        content = {
            "format": [FORMAT_NAME, FORMAT_VERSION],
            "facts": self._facts,
            "columns": {
                name: [self._kinds[name], column.hexdigest()]
                for name, column in self._columns.items()
            },
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest_of(recording: Recording, facts: dict[str, Any], config: Any) -> str:
    """The digest of columns in memory."""
    digest = ContentDigest(facts)
    for path, column in names(config):
        group = path.partition("/")[0]
        digest.add(path, recording.group(group)[column.name])
    return digest.hexdigest()


def values_of(digits: Array, base: int) -> Array:
    """Rows of digits, least significant first, as numbers; Python's own where they are long."""
    if base ** digits.shape[1] < 2**63:
        return digits.astype(np.int64) @ base ** np.arange(digits.shape[1], dtype=np.int64)
    values = np.empty(len(digits), object)
    values[:] = [value_of(row, base) for row in digits]
    return values
