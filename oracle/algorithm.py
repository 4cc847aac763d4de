"""The reference algorithm, to be read beside the paper's Algorithm 1.

Same words, same order; the numbers in the comments are the paper's lines. It sees what the agent
sees, the two columns of the window, and remembers one thing between steps: whether there is a
carry. Where a line had to change, the note says why. Subtraction mirrors addition: it writes a
difference, and its carry is a borrow.

Two variants differ in when the signpost moves. `before` moves it before the write, and a
memory-less agent with two frames can carry it out. `printed` moves it after the write, as printed,
and no memory-less agent with three frames can: see `python -m pipelines.audit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, get_args

from abacus.batch import AbacusBatch
from abacus.rules import Action

Variant = Literal["before", "printed"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


class Window(Protocol):
    """What the algorithm may look at: the symbol, and the two columns c_l and c_r."""

    @property
    def base(self) -> int: ...
    @property
    def symbol(self) -> int: ...
    @property
    def subtracting(self) -> bool: ...
    @property
    def right_digit(self) -> int: ...
    @property
    def finger_row(self) -> int: ...
    @property
    def left_is_padding(self) -> bool: ...
    @property
    def signpost_in_left(self) -> bool: ...
    @property
    def signpost_in_right(self) -> bool: ...


def reference_algorithm(window: Window, variant: Variant = "before") -> Iterator[Action]:
    """The actions of the reference algorithm; the caller carries each out before asking again."""
    check_variant(variant)
    while True:  # 1
        s = window.symbol  # 2
        if s < window.base:  # 3
            # Moved up from 5-6 in the variant `before`. After the write, the window no longer
            # tells whether the digit was added: the same two columns ask for a write or a step.
            if variant == "before" and window.signpost_in_left:
                yield Action.SIGNPOST_RIGHT
            # 7-10 before the write: the test needs the digit that 4 overwrites. As printed, 5
            # and 7 are one if-elif, so that a carry is never looked at when the signpost moves.
            carry = _overflows(window, s)
            yield from _write(window, s)  # 4
            if variant == "printed" and window.signpost_in_left:  # 5
                yield Action.SIGNPOST_RIGHT  # 6
            # 12 before the loop as well: without a carry the finger stays on the signpost's
            # column, and the loop of 18 would walk left for ever.
            yield Action.RIGHT
            while carry:  # 11
                # 14 before 13, as above. 13 adds s as printed; what is carried is 1.
                carry = _overflows(window, 1)
                yield from _write(window, 1)  # 13
                if carry:  # 12, only if there is a column left to carry to
                    yield Action.RIGHT
            while not window.signpost_in_left:  # 18
                yield Action.LEFT  # 19
        else:  # 20
            while not window.left_is_padding:  # 21
                yield Action.LEFT  # 22
            while not window.signpost_in_right:  # 23
                yield Action.SIGNPOST_LEFT  # 24
        yield Action.SUBMIT  # not printed: how the next symbol of line 2 is asked for


def check_variant(variant: str) -> None:
    """Raises ValueError for a variant that there is not."""
    if variant not in VARIANTS:
        raise ValueError(f"variant={variant!r} is not allowed: give one of {', '.join(VARIANTS)}")


def _overflows(window: Window, amount: int) -> bool:
    """Whether the amount, added to or taken from c_r, leaves a carry or a borrow."""
    if window.subtracting:
        return window.right_digit < amount
    return window.right_digit + amount >= window.base


def _write(window: Window, amount: int) -> Iterator[Action]:
    """Writes the sum or difference on c_r: the finger to its row, then the slide."""
    change = -amount if window.subtracting else amount
    digit = (window.right_digit + change) % window.base
    if digit == window.right_digit:
        return
    while window.finger_row > digit:
        yield Action.UP
    while window.finger_row < digit:
        yield Action.DOWN
    yield Action.SLIDE


class BatchWindow:
    """The window of one abacus of a batch."""

    def __init__(self, batch: AbacusBatch, index: int = 0) -> None:
        self._batch = batch
        self._index = index
        self.base = batch.config.base

    def _scalar(self, name: str) -> int:
        return int(self._batch.world.scalars[name][self._index])

    @property
    def symbol(self) -> int:
        return self._scalar("symbol")

    @property
    def subtracting(self) -> bool:
        return self._scalar("operation") == 1

    @property
    def right_digit(self) -> int:
        return int(self._batch.digits[self._index, self._scalar("finger_column")])

    @property
    def finger_row(self) -> int:
        return self._scalar("finger_row")

    @property
    def left_is_padding(self) -> bool:
        return self._scalar("finger_column") == 0

    @property
    def signpost_in_left(self) -> bool:
        return self._scalar("signpost") == self._scalar("finger_column") - 1

    @property
    def signpost_in_right(self) -> bool:
        return self._scalar("signpost") == self._scalar("finger_column")
