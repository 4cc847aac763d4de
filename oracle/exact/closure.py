"""Check that explored situations are closed under stretching: no wider abacus adds anything.

Three columns that no frame shows can be inserted or removed without changing any frame, because the
encoding repeats after three columns: left of everything, between a signpost and the finger, or
inside a carry. Two situations that differ only by such columns are *equivalent*. If a set of
situations contains every equivalent situation that fits its width, a run on an abacus of any width
can be followed in it, step by step (`docs/exactness.md`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from abacus.kernel import ADD
from abacus.observation import decode_frame
from abacus.rules import ENCODING_PERIOD
from oracle.exact.exploration import (
    DIGIT_INDEX,
    FINGER_COLUMN,
    HEADER,
    OPEN,
    SIGNPOST,
    Exploration,
)

STRETCH = ENCODING_PERIOD

Rows = npt.NDArray[np.uint8]
Chosen = npt.NDArray[np.bool_]


def missing_equivalents(exploration: Exploration) -> Rows:
    """Return situations that are equivalent to an explored one and were not explored."""
    explored = _as_items(exploration.situations)
    explored.sort()
    missing = [
        rows[~_contains(explored, _as_items(rows))]
        for rows in equivalents(exploration)
        if len(rows)
    ]
    return np.concatenate([exploration.situations[:0], *missing])


def equivalents(exploration: Exploration) -> Iterator[Rows]:
    """Yield all situations of the same width that are one stretch, or its reverse, away."""
    stretcher = _Stretcher(exploration)
    yield from stretcher.move_everything()
    yield from stretcher.move_signpost()
    for first in range(exploration.width):
        yield from stretcher.stretch_carry(first)


class _Stretcher:
    """Insert and remove hidden columns in all explored situations at once."""

    def __init__(self, exploration: Exploration) -> None:
        self.rows = exploration.situations
        self.width = exploration.width
        self.base = exploration.base
        self.frames = exploration.frames
        self.finger = self.rows[:, FINGER_COLUMN].astype(int)
        self.signpost = self.rows[:, SIGNPOST].astype(int)
        self.index = self.rows[:, DIGIT_INDEX].astype(int) - 1
        self.adding = exploration.operations == ADD
        self.digits = exploration.digits
        self.targets = self.rows[:, HEADER + self.width : HEADER + 2 * self.width]
        known = self.digits != OPEN
        self.lowest_known = np.argmax(known, axis=1)
        self.highest_known = self.width - 1 - np.argmax(known[:, ::-1], axis=1)
        left, _, _, phases, _ = decode_frame(self.base, exploration.histories)
        self.edge_seen = (left == self.base).any(axis=1)
        # The finger moves at most one column per step, so the phases of the frames give its path.
        moves = (phases[:, :-1] - phases[:, 1:] + 1) % ENCODING_PERIOD - 1
        offsets = np.cumsum(moves[:, ::-1], axis=1)
        self.lowest_seen = self.finger + offsets.min(axis=1, initial=0) - 1
        self.highest_seen = self.finger + offsets.max(axis=1, initial=0)

    def move_everything(self) -> Iterator[Rows]:
        """Move everything away from or towards column 0, except first digits and their reset."""
        on_digit = self.index >= 0
        place = np.where(on_digit, self.index, self.signpost)
        for by in (STRETCH, -STRETCH):
            chosen = ~self.edge_seen & (np.minimum(place, place + by) >= 1)
            chosen &= (self.finger + by >= 1) & (self.lowest_known + by >= 0)
            chosen &= self._fits(by) & (place + by < self.width - 1)
            rows = self._rebuilt(chosen, by, 0, fill=False)
            _shift(rows, FINGER_COLUMN, by)
            _shift(rows, SIGNPOST, by)
            _shift(rows, DIGIT_INDEX, by, on_digit[chosen])
            yield rows

    def move_signpost(self) -> Iterator[Rows]:
        """Move a signpost that is hidden on the right, while the reset moves the finger left."""
        hidden = (self.index < 0) & (self.signpost > self.highest_seen)
        for by in (STRETCH, -STRETCH):
            chosen = hidden & (self.signpost + by > self.highest_seen)
            # The frames may hold moves of the signpost: it came from further right.
            chosen &= self.signpost + by < self.width - self.frames
            rows = self.rows[chosen].copy()
            _shift(rows, SIGNPOST, by)
            yield rows

    def stretch_carry(self, first: int) -> Iterator[Rows]:
        """Insert or remove hidden columns of a carry, from column `first` on."""
        columns = range(first, min(first + STRETCH + 1, self.width))
        for done in (True, False):
            hidden = [self._hidden_carry(column, done) for column in columns]
            rows = self._rebuilt(hidden[0] & self._fits(STRETCH), STRETCH, first, fill=True)
            if done:
                _shift(rows, FINGER_COLUMN, STRETCH)
            yield rows
            if first + STRETCH < self.width:
                rows = self._rebuilt(np.all(hidden, axis=0), -STRETCH, first, fill=True)
                if done:
                    _shift(rows, FINGER_COLUMN, -STRETCH)
                yield rows

    def _hidden_carry(self, column: int, done: bool) -> Chosen:
        """Return where a hidden column was (`done`) or will be changed by a carry."""
        full = np.where(self.adding, self.base - 1, 0)
        empty = np.where(self.adding, 0, self.base - 1)
        chosen: Chosen = (self.index >= 0) & (self.targets[:, column] == empty)
        if done:
            chosen &= (self.index < column) & (column < self.lowest_seen)
            chosen &= self.digits[:, column] == empty
        else:
            chosen &= (self.index + 1 < column) & (self.highest_seen < column)
            chosen &= self.digits[:, column] == full
        return chosen

    def _fits(self, by: int) -> Chosen:
        """Return what fits with a column to spare: on the way back, a carry ended one further."""
        fits: Chosen = (by < 0) | (self.highest_known + by < self.width - 1)
        return fits

    def _rebuilt(self, chosen: Chosen, by: int, first: int, fill: bool) -> Rows:
        """Return the chosen rows with everything from column `first` on moved by `by` columns.

        Inserted columns are open or, with `fill`, copies of column `first`.
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


def _shift(rows: Rows, field: int, by: int, where: Chosen | slice = slice(None)) -> None:
    rows[where, field] += np.uint8(by % 256)


def _as_items(rows: Rows) -> npt.NDArray[np.void]:
    rows = np.ascontiguousarray(rows)
    return rows.view(np.dtype((np.void, rows.shape[1]))).ravel().copy()


def _contains(ordered: npt.NDArray[np.void], items: npt.NDArray[np.void]) -> Chosen:
    places = np.minimum(np.searchsorted(ordered, items), len(ordered) - 1)
    found: Chosen = ordered[places] == items
    return found
