"""Observations out of unstacked frames, compiled: a frame's number is looked up, and copied.

A frame's age counts the frames before it that belong to the same stack, up to the longest stack
there is: the first frames of an episode repeat the first one, as in the environment. A reload of
the abacus starts a stack too, and forgets the previous action.

What an observation is made of is packed into one number for each transition. A shuffled batch
then touches one place in memory for each of its rows, instead of one in each of five columns,
which is most of its time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from abacus.compiling import compiled_with
from abacus.rules import AbacusConfig, Action
from oracle.demos.recording import Columns

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
