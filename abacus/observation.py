"""Observations: frame codes, their pixels, and the observation space.

A frame depends on the digit left of the finger (or padding), the digit under the finger, the
finger's row, the finger's column modulo the encoding's period, and the place of the signpost in the
window. Together they make a small integer, the frame code. Tables hold what follows from a code:
its pixels, which the kernel copies, and the actions that it shows to be illegal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from abacus.rules import ENCODING_PERIOD, WINDOW_COLUMNS, WINDOW_PLANES, AbacusConfig, Action

#: Where the signpost is in the window.
SIGNPOST_UNSEEN, SIGNPOST_LEFT, SIGNPOST_RIGHT = 0, 1, 2
SIGNPOST_PLACES = 3
#: The entry of both operations.
_BINARY = np.array([[0.0], [1.0]], np.float32)


def frame_codes(base: int) -> int:
    """Return the number of frame codes."""
    return (base + 1) * base * base * ENCODING_PERIOD * SIGNPOST_PLACES


def encode_frame(base: int, left: Any, right: Any, row: Any, phase: Any, signpost: Any) -> Any:
    """Return the code of a frame, or of arrays of frames.

    `left` is `base` for padding, `phase` the finger's column modulo 3.
    """
    return (
        ((left * base + right) * base + row) * ENCODING_PERIOD + phase
    ) * SIGNPOST_PLACES + signpost


def decode_frame(base: int, code: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return (left, right, row, phase, signpost) of a frame code, or of an array of them."""
    code, signpost = divmod(code, SIGNPOST_PLACES)
    code, phase = divmod(code, ENCODING_PERIOD)
    code, row = divmod(code, base)
    left, right = divmod(code, base)
    return left, right, row, phase, signpost


@cache
def frame_pixels(base: int) -> npt.NDArray[np.float32]:
    """Return the pixels of every frame code, (codes, 2 * 2 * (base + 1)), read-only."""
    pixels = np.zeros((frame_codes(base), WINDOW_PLANES, WINDOW_COLUMNS, base + 1), np.float32)
    for code, (beads, marks) in enumerate(pixels):
        left, right, row, phase, signpost = decode_frame(base, code)
        if left < base:
            _draw_column(beads[0], left, (phase - 1) % ENCODING_PERIOD)
        _draw_column(beads[1], right, phase)
        marks[1, 1 + row] = 1.0
        if signpost != SIGNPOST_UNSEEN:
            marks[0 if signpost == SIGNPOST_LEFT else 1, 0] = 1.0
    return _read_only(pixels.reshape(len(pixels), -1))


@cache
def visibly_illegal_actions(base: int) -> npt.NDArray[np.bool_]:
    """Return the actions that each frame code shows to be illegal, (codes, 8), read-only.

    An edge in view, or nothing to slide. An action may be illegal for an edge out of view as well,
    which only the action mask of the environment tells.
    """
    left, right, row, _, signpost = decode_frame(base, np.arange(frame_codes(base)))
    illegal = np.zeros((len(left), len(Action)), np.bool_)
    illegal[:, Action.LEFT] = left == base
    illegal[:, Action.UP] = row == 0
    illegal[:, Action.DOWN] = row == base - 1
    illegal[:, Action.SIGNPOST_LEFT] = (left == base) & (signpost == SIGNPOST_RIGHT)
    illegal[:, Action.SLIDE] = right == row
    return _read_only(illegal)


@cache
def _one_hot(length: int) -> npt.NDArray[np.float32]:
    """Return one-hot rows of 0 to `length` - 1, and zeros in a last row, for `length` and -1."""
    return _read_only(np.eye(length + 1, length, dtype=np.float32))


def _read_only(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    table.flags.writeable = False
    return table


def _draw_column(column: npt.NDArray[np.float32], digit: int, phase: int) -> None:
    column[0] = (phase + 1) / (ENCODING_PERIOD + 1)
    column[1:] = 1.0
    column[1 + digit] = 0.0


def observation_arrays(
    base: int,
    histories: npt.NDArray[np.integer],
    symbols: npt.NDArray[np.integer],
    operations: npt.NDArray[np.integer],
    previous_actions: npt.NDArray[np.integer] | None = None,
    out: Mapping[str, npt.NDArray[np.float32]] | None = None,
) -> dict[str, npt.NDArray[np.float32]]:
    """Return N coded observations as the environment gives them.

    `histories` holds frame codes, (N, frames), oldest first; the others are (N,). A previous action
    of -1 or 8 stands for none; so does leaving them out. `out` gives the arrays to write
    to; then codes out of range are not detected.
    """
    count = len(histories)
    if previous_actions is None:
        previous_actions = np.full(count, len(Action))
    tables = {
        "window": (frame_pixels(base), histories),
        "symbol": (_one_hot(base + 2), symbols),
        "operation": (_BINARY, operations),
        "previous_action": (_one_hot(len(Action)), previous_actions),
    }
    if out is None:
        lengths = _lengths(base, histories.shape[1])
        return {
            key: np.take(table, indices, axis=0).reshape(count, lengths[key])
            for key, (table, indices) in tables.items()
        }
    for key, (table, indices) in tables.items():
        target = out[key].reshape(*indices.shape, table.shape[1])
        # The check of the indices would write to a copy first.
        np.take(table, indices, axis=0, out=target, mode="wrap")
    return dict(out)


def observation_rows(
    base: int,
    histories: npt.NDArray[np.integer],
    symbols: npt.NDArray[np.integer],
    operations: npt.NDArray[np.integer],
    previous_actions: npt.NDArray[np.integer] | None = None,
) -> npt.NDArray[np.float32]:
    """Return N coded observations as rows, their entries side by side; see `observation_arrays`."""
    arrays = observation_arrays(base, histories, symbols, operations, previous_actions)
    return np.concatenate(list(arrays.values()), axis=1)


def window_codes(base: int, windows: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Return the frame codes (N, frames) of windows (N, length); the inverse of their pixels."""
    frames = np.asarray(windows).reshape(len(windows), -1, WINDOW_PLANES, WINDOW_COLUMNS, base + 1)
    beads, marks = frames[:, :, 0], frames[:, :, 1]
    codes: npt.NDArray[np.int32] = encode_frame(
        base,
        np.where(beads[:, :, 0, 0] == 0, base, beads[:, :, 0, 1:].argmin(axis=-1)),
        beads[:, :, 1, 1:].argmin(axis=-1),
        marks[:, :, 1, 1:].argmax(axis=-1),
        np.rint(beads[:, :, 1, 0] * (ENCODING_PERIOD + 1)).astype(np.int64) - 1,
        np.select([marks[:, :, 0, 0] > 0, marks[:, :, 1, 0] > 0], [SIGNPOST_LEFT, SIGNPOST_RIGHT]),
    ).astype(np.int32)
    valid = (codes >= 0) & (codes < frame_codes(base))
    if not (valid.all() and np.array_equal(frame_pixels(base)[codes].ravel(), frames.ravel())):
        raise ValueError("the windows hold a frame that no abacus shows")
    return codes


def observation_lengths(config: AbacusConfig) -> dict[str, int]:
    """Return the entries of an observation and their lengths, in the order of its rows."""
    return _lengths(config.base, config.frames)


def _lengths(base: int, frames: int) -> dict[str, int]:
    return {
        "window": frames * WINDOW_PLANES * WINDOW_COLUMNS * (base + 1),
        "symbol": base + 2,
        "operation": 1,
        "previous_action": len(Action),
    }


def observation_space(config: AbacusConfig) -> spaces.Dict:
    """Return the Dict space of flat arrays; `config.window_shape` restores the window's shape."""
    return spaces.Dict(
        {
            key: spaces.Box(0.0, 1.0, (length,), np.float32)
            for key, length in observation_lengths(config).items()
        }
    )
