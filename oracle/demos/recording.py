"""Recorded columns in memory: joined, cut to the first operations, reduced to some episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abacus.rules import End
from oracle.demos.schema import Array

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
