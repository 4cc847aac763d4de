"""Hash index of integer rows: find a row among millions in compiled code.

The rows stay in the caller's array; the index is an array of slots, each with the number of a row
or `EMPTY` (open addressing, linear probing). Compiled code writes the row to look up into a row of
the same array and asks for its slot:

    slot = find_slot(slots, rows, candidate)
    if slots[slot] == EMPTY:
        slots[slot] = candidate
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abacus.compiling import compiled, compiled_inline

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

EMPTY = -1


def empty_slots(capacity: int) -> npt.NDArray[np.int32]:
    """Return the slots of an index for up to `capacity` rows."""
    # At most half of the slots are taken, which keeps the probes short.
    return np.full(1 << (2 * capacity - 1).bit_length(), EMPTY, np.int32)


@compiled_inline
def find_slot(slots, rows, row):
    """Return the slot of the row equal to `rows[row]`, or the empty slot where it belongs."""
    key = np.uint64(0)
    for k in range(rows.shape[1]):
        key = (key + np.uint64(rows[row, k])) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    mask = np.uint64(len(slots) - 1)
    slot = key & mask
    while slots[slot] != EMPTY:
        other = slots[slot]
        k = 0
        while k < rows.shape[1] and rows[other, k] == rows[row, k]:
            k += 1
        if k == rows.shape[1]:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def insert_rows(slots, rows, start, stop):
    """Insert the rows from `start` up to `stop`, which must be distinct."""
    for row in range(start, stop):
        slots[find_slot(slots, rows, row)] = row
