"""A correct algorithm that is not the teacher's, as a function of observations.

It submits a digit without a carry right after the write, without the step to the right; then it
moves the signpost before the finger. In a reset it moves the signpost first: to column 0, where the
mask ends these moves, and the finger afterwards. It needs three frames or more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from abacus.observation import (
    SIGNPOST_LEFT,
    SIGNPOST_RIGHT,
    SIGNPOST_UNSEEN,
    decode_frame,
    window_codes,
)
from abacus.rules import ENCODING_PERIOD, Action

Observations = dict[str, npt.NDArray[np.float32]]


def shortcut_policy(base: int) -> Callable[[Observations], npt.NDArray[np.float64]]:
    """Return the policy: a function from observations to (N, 8) scores."""

    def answers(seen: Observations) -> npt.NDArray[np.float64]:
        codes = window_codes(base, seen["window"])
        symbols = np.argmax(seen["symbol"], axis=1)
        subtracts = seen["operation"][:, 0] > 0
        scores = np.zeros((len(codes), len(Action)))
        for row, (frames, symbol, subtract) in enumerate(
            zip(codes.tolist(), symbols.tolist(), subtracts.tolist(), strict=True)
        ):
            if symbol >= base:
                scores[row, [Action.SIGNPOST_LEFT, Action.LEFT, Action.SUBMIT]] = 3, 2, 1
            else:
                scores[row, on_digit(base, frames[-3:], symbol, subtract)] = 1
        return scores

    return answers


def on_digit(base: int, frames: list[int], symbol: int, subtract: bool) -> Action:
    """Return the action on a digit, from the last three frames."""
    oldest, before, now = (decode_frame(base, code) for code in frames)
    left, digit, row, _, signpost = now
    moved = (now[3] - before[3]) % ENCODING_PERIOD
    wrote = moved == 0 and digit != before[1]
    wrapped = wrote and (digit > before[1] if subtract else digit < before[1])
    waited = frames[-1] == frames[-2]
    sign = -1 if subtract else 1

    def write(amount: int) -> Action:
        target = (digit + sign * amount) % base
        if row == target:
            return Action.SLIDE
        return Action.UP if row > target else Action.DOWN

    if signpost == SIGNPOST_RIGHT:
        if wrote:
            return Action.RIGHT if wrapped else Action.SUBMIT
        wrote_before = oldest[3] == before[3] and oldest[1] != before[1]
        if waited and wrote_before:
            return Action.SIGNPOST_RIGHT
        return write(symbol) if symbol > 0 else Action.RIGHT
    if signpost == SIGNPOST_LEFT:
        carried = left + symbol >= base if subtract else left < symbol
        if waited:
            return Action.SIGNPOST_RIGHT
        if wrote:
            return Action.RIGHT if wrapped else Action.SUBMIT
        if carried and moved != ENCODING_PERIOD - 1:
            return write(1)
        return Action.SUBMIT
    assert signpost == SIGNPOST_UNSEEN
    if before[4] == SIGNPOST_RIGHT and moved == 0:
        return Action.RIGHT
    if wrote:
        return Action.RIGHT if wrapped else Action.LEFT
    return Action.LEFT if moved == ENCODING_PERIOD - 1 else write(1)
