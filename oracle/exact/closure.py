"""Why no wider abacus brings anything new: the explored situations are closed under stretching.

Three columns that nobody sees can be put in or taken out without a change to anything that is seen,
the encoding's phase included: to the left of everything, between a signpost and the finger, inside
a carry. Two situations that differ so much and no more are *alike*. If a set of situations holds
every situation that is alike to one of its own and fits its width, a run on an abacus of any width
can be followed in it, step by step (`docs/exactness.md`). This module checks that it does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from abacus.kernel import ADD
from abacus.observation import SIGNPOST_PLACES
from abacus.rules import ENCODING_PERIOD
from oracle.exact.exploration import (
    DIGIT_INDEX,
    FINGER_COLUMN,
    HEADER,
    OPEN,
    OPERATION,
    SIGNPOST,
    Exploration,
)

STRETCH = ENCODING_PERIOD

Rows = npt.NDArray[np.uint8]


def missing_alike(exploration: Exploration) -> Rows:
    """Situations alike to an explored one, of the same width, that were not explored."""
    explored = _as_items(exploration.situations)
    explored.sort()
    missing = [
        rows[~_contains(explored, _as_items(rows))] for rows in alike(exploration) if len(rows)
    ]
    return np.concatenate([exploration.situations[:0], *missing])


def alike(exploration: Exploration) -> Iterator[Rows]:
    """All situations that are one stretch, or one shrinking, away from an explored one."""
    view = _View(exploration)
    yield from view.moved()
    yield from view.signpost_moved()
    for first in range(exploration.width):
        yield from view.carry_behind(first)
        yield from view.carry_ahead(first)


class _View:
    """The explored situations, and what of them is in sight."""

    def __init__(self, exploration: Exploration) -> None:
        self.rows = exploration.situations
        self.width = exploration.width
        self.base = exploration.base
        self.frames = exploration.frames
        self.finger = self.rows[:, FINGER_COLUMN].astype(int)
        self.signpost = self.rows[:, SIGNPOST].astype(int)
        self.index = self.rows[:, DIGIT_INDEX].astype(int) - 1
        self.digits = self.rows[:, HEADER : HEADER + self.width]
        self.targets = self.rows[:, HEADER + self.width : HEADER + 2 * self.width]
        self.known = self.digits != OPEN
        self.lowest_known = np.argmax(self.known, axis=1)
        self.highest_known = self.width - 1 - np.argmax(self.known[:, ::-1], axis=1)
        self.lowest_seen, self.highest_seen = self._span(exploration)
        padding = exploration.histories // (
            self.base * self.base * ENCODING_PERIOD * SIGNPOST_PLACES
        )
        self.edge_seen = (padding == self.base).any(axis=1)

    def _span(self, exploration: Exploration) -> tuple[npt.NDArray[np.int64], ...]:
        """The lowest and the highest column that the frames show."""
        phases = exploration.histories // SIGNPOST_PLACES % ENCODING_PERIOD
        moved = (phases[:, :-1] - phases[:, 1:] + 1) % ENCODING_PERIOD - 1
        before = np.cumsum(moved[:, ::-1], axis=1)
        places = (
            self.finger[:, None]
            + np.concatenate([0 * before[:, :1], before], axis=1)[:, : phases.shape[1]]
        )
        if phases.shape[1] == 1:
            places = self.finger[:, None]
        return places.min(axis=1) - 1, places.max(axis=1)

    def _rebuilt(self, chosen: npt.NDArray[np.bool_], by: int, first: int, fill: bool) -> Rows:
        """The chosen rows with everything from column `first` on moved by `by` columns.

        Columns put in are forgotten ones or, with `fill`, like the column that they push away.
        """
        rows = self.rows[chosen].copy()
        for start in (HEADER, HEADER + self.width):
            before = self.rows[chosen, start : start + self.width]
            after = rows[:, start : start + self.width]
            after[:, first:] = OPEN
            if by > 0:
                after[:, first + by :] = before[:, first : self.width - by]
                after[:, first : first + by] = before[:, first : first + 1] if fill else OPEN
            else:
                after[:, first : self.width + by] = before[:, first - by :]
        return rows

    def _shift(self, rows: Rows, field: int, by: int, where: npt.NDArray[np.bool_]) -> None:
        rows[where, field] = (rows[where, field].astype(int) + by).astype(np.uint8)

    def _fits(self, by: int) -> npt.NDArray[np.bool_]:
        """With a column to spare: where the finger walks back, the carry ended one further on."""
        fits: npt.NDArray[np.bool_] = (by < 0) | (self.highest_known + by < self.width - 1)
        return fits

    def moved(self) -> Iterator[Rows]:
        """Everything, away from or towards column 0; first digits and their reset stay there."""
        on_digit = self.index >= 0
        place = np.where(on_digit, self.index, self.signpost)
        for by in (STRETCH, -STRETCH):
            chosen = ~self.edge_seen & (np.minimum(place, place + by) >= 1)
            chosen &= (self.finger + by >= 1) & (self.lowest_known + by >= 0)
            chosen &= self._fits(by) & (place + by < self.width - 1)
            rows = self._rebuilt(chosen, by, 0, fill=False)
            everything = np.ones(len(rows), np.bool_)
            self._shift(rows, FINGER_COLUMN, by, everything)
            self._shift(rows, SIGNPOST, by, everything)
            self._shift(rows, DIGIT_INDEX, by, on_digit[chosen])
            yield rows

    def signpost_moved(self) -> Iterator[Rows]:
        """A signpost out of sight to the right, while the reset walks or waits on the left."""
        unseen = (self.index < 0) & (self.signpost > self.highest_seen)
        for by in (STRETCH, -STRETCH):
            chosen = unseen & (self.signpost + by > self.highest_seen)
            # The frames hold moves that it has made already: it came from further right.
            chosen &= self.signpost + by < self.width - self.frames
            rows = self.rows[chosen].copy()
            self._shift(rows, SIGNPOST, by, np.ones(len(rows), np.bool_))
            yield rows

    def _wraps(self, column: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """(carried over already, still to be carried over) of a column."""
        adding = self.rows[:, OPERATION] == ADD
        full, empty = np.where(adding, self.base - 1, 0), np.where(adding, 0, self.base - 1)
        digit, target = self.digits[:, column], self.targets[:, column]
        return (digit == empty) & (target == empty), (digit == full) & (target == empty)

    def carry_behind(self, first: int) -> Iterator[Rows]:
        """Columns that a carry has run over, between the digit's column and what is in sight."""
        chosen = (self.index >= 0) & (first > self.index) & (first < self.lowest_seen)
        chosen &= self._wraps(first)[0]
        grown = chosen & self._fits(STRETCH)
        rows = self._rebuilt(grown, STRETCH, first, fill=True)
        self._shift(rows, FINGER_COLUMN, STRETCH, np.ones(len(rows), np.bool_))
        yield rows
        for column in range(first + 1, min(first + STRETCH + 1, self.width)):
            chosen = chosen & (column < self.lowest_seen) & self._wraps(column)[0]
        if first + STRETCH < self.width:
            rows = self._rebuilt(chosen, -STRETCH, first, fill=True)
            self._shift(rows, FINGER_COLUMN, -STRETCH, np.ones(len(rows), np.bool_))
            yield rows

    def carry_ahead(self, first: int) -> Iterator[Rows]:
        """Columns that a carry has yet to run over, beyond what is in sight."""
        chosen = (self.index >= 0) & (first > self.highest_seen) & (first > self.index + 1)
        chosen &= self._wraps(first)[1]
        grown = chosen & self._fits(STRETCH)
        yield self._rebuilt(grown, STRETCH, first, fill=True)
        for column in range(first + 1, min(first + STRETCH + 1, self.width)):
            chosen = chosen & self._wraps(column)[1]
        if first + STRETCH < self.width:
            yield self._rebuilt(chosen, -STRETCH, first, fill=True)


def _as_items(rows: Rows) -> npt.NDArray[np.void]:
    rows = np.ascontiguousarray(rows)
    return rows.view(np.dtype((np.void, rows.shape[1]))).ravel().copy()


def _contains(ordered: npt.NDArray[np.void], items: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    places = np.minimum(np.searchsorted(ordered, items), len(ordered) - 1)
    found: npt.NDArray[np.bool_] = ordered[places] == items
    return found
