"""What the agent sees: frames as integers, the pixels of each, and the observation space.

A frame depends on few things: the digit left of the finger (or padding), the digit under it, the
finger's row, the finger's column modulo the encoding's period, and whether the signpost is in
view. They make a small integer, the frame's code; one table holds the pixels of every code. The
kernel copies from this table, and whoever enumerates observations decodes with it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from abacus.rules import ENCODING_PERIOD, WINDOW_COLUMNS, WINDOW_PLANES, AbacusConfig, Action

#: Where the signpost is in the window.
SIGNPOST_UNSEEN, SIGNPOST_LEFT, SIGNPOST_RIGHT = 0, 1, 2
SIGNPOST_PLACES = 3


def frame_codes(base: int) -> int:
    """How many frame codes there are."""
    return (base + 1) * base * base * ENCODING_PERIOD * SIGNPOST_PLACES


def encode_frame(base: int, left: int, right: int, row: int, phase: int, signpost: int) -> int:
    """The code of a frame; `left` is `base` for padding, `phase` the finger's column mod 3."""
    return (
        ((left * base + right) * base + row) * ENCODING_PERIOD + phase
    ) * SIGNPOST_PLACES + signpost


def decode_frame(base: int, code: int) -> tuple[int, int, int, int, int]:
    """(left, right, row, phase, signpost) of a frame's code."""
    code, signpost = divmod(code, SIGNPOST_PLACES)
    code, phase = divmod(code, ENCODING_PERIOD)
    code, row = divmod(code, base)
    left, right = divmod(code, base)
    return left, right, row, phase, signpost


@cache
def frame_pixels(base: int) -> npt.NDArray[np.float32]:
    """The pixels (codes, 2 * 2 * (base + 1)) of every frame; read-only."""
    pixels = np.zeros((frame_codes(base), WINDOW_PLANES, WINDOW_COLUMNS, base + 1), np.float32)
    for code, (beads, marks) in enumerate(pixels):
        left, right, row, phase, signpost = decode_frame(base, code)
        if left < base:
            _draw_column(beads[0], left, (phase - 1) % ENCODING_PERIOD)
        _draw_column(beads[1], right, phase)
        marks[1, 1 + row] = 1.0
        if signpost != SIGNPOST_UNSEEN:
            marks[0 if signpost == SIGNPOST_LEFT else 1, 0] = 1.0
    flat = pixels.reshape(len(pixels), -1)
    flat.flags.writeable = False
    return flat


def _draw_column(column: npt.NDArray[np.float32], digit: int, phase: int) -> None:
    column[0] = (phase + 1) / (ENCODING_PERIOD + 1)
    column[1:] = 1.0
    column[1 + digit] = 0.0


def observation_lengths(config: AbacusConfig) -> dict[str, int]:
    """The entries of an observation and their lengths, in the order in which they are kept."""
    return {
        "window": int(np.prod(config.window_shape)),
        "symbol": config.symbols,
        "operation": 1,
        "previous_action": len(Action),
    }


def observation_space(config: AbacusConfig) -> spaces.Dict:
    """The Dict space of flat arrays; `config.window_shape` gives the window its shape back."""
    return spaces.Dict(
        {
            key: spaces.Box(0.0, 1.0, (length,), np.float32)
            for key, length in observation_lengths(config).items()
        }
    )
