"""Which transitions look the same: one pass over coded observations with a table of those seen."""

# numba types the compiled functions from the arguments that they meet.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.kernel import ACTIONS, compiled

_EMPTY = -1


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
        slots = np.full(2 * capacity, _EMPTY, np.int32)
        count = _group(histories, symbols, operations, actions, masks, slots, first, answers, legal)
        if count >= 0:
            return Groups(first[:count], answers[:count], legal[:count])
        capacity *= 4


@compiled
def _group(histories, symbols, operations, actions, masks, slots, first, answers, legal):
    """How many groups there are, or -1 if there is no room for them."""
    count = 0
    last = np.uint64(len(slots) - 1)
    for row in range(len(symbols)):
        key = np.uint64(symbols[row]) * np.uint64(2) + np.uint64(operations[row])
        for k in range(histories.shape[1]):
            key = (key + np.uint64(histories[row, k])) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(32)
        slot = key & last
        while slots[slot] != _EMPTY:
            other = first[slots[slot]]
            same = symbols[row] == symbols[other] and operations[row] == operations[other]
            for k in range(histories.shape[1]):
                same = same and histories[row, k] == histories[other, k]
            if same:
                break
            slot = (slot + np.uint64(1)) & last
        if slots[slot] == _EMPTY:
            if count == len(first):
                return -1
            slots[slot] = count
            first[count] = row
            count += 1
        group = slots[slot]
        answers[group, actions[row]] += 1
        legal[group] |= masks[row]
    return count
