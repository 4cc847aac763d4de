"""The reference algorithm, to be read beside the paper's Algorithm 1.

It has the paper's words and order; the numbers in the comments are the paper's lines, and a comment
explains each change. The algorithm uses what the agent sees, the two columns of the window, and
remembers one thing between steps: whether there is a carry. Subtraction mirrors addition: it writes
a difference, and its carry is a borrow.

Two variants differ in when the signpost moves. `before` moves it before the write, which a
memoryless agent with two frames can learn. `printed` moves it after the write, as printed, which no
memoryless agent with three frames can learn: see `python -m pipelines.audit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from abacus.checks import check_choice
from abacus.rules import Action

if TYPE_CHECKING:
    from abacus.batch import AbacusBatch

Variant = Literal["before", "printed"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


class Window(Protocol):
    """Input of the algorithm: the symbol, and the two columns c_l and c_r of the window."""

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
    """Yield the actions of the reference algorithm; the caller takes each before the next."""
    check_variant(variant)
    while True:  # 1
        s = window.symbol  # 2
        if s < window.base:  # 3
            # Moved up from 5-6 in the variant `before`. After the write, the window does not show
            # whether the digit was added: the same two columns may need a write or a step.
            if variant == "before" and window.signpost_in_left:
                yield Action.SIGNPOST_RIGHT
            # 7-10 before the write: the test needs the digit that 4 overwrites. As printed, 5
            # and 7 are one if-elif, so that a carry would be ignored when the signpost moves.
            carry = _overflows(window, s)
            yield from _write(window, s)  # 4
            if variant == "printed" and window.signpost_in_left:  # 5
                yield Action.SIGNPOST_RIGHT  # 6
            # 12 before the loop as well: without a carry the finger stays on the signpost's
            # column, and the loop of 18 would move left for ever.
            yield Action.RIGHT
            while carry:  # 11
                # 14 before 13, as above. As printed, 13 adds s; the carry is 1.
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
        yield Action.SUBMIT  # not printed: requests the next symbol of line 2


def check_variant(variant: str) -> None:
    """Raise ValueError for an unknown variant."""
    check_choice("variant", variant, VARIANTS)


def _overflows(window: Window, amount: int) -> bool:
    """Return whether adding the amount to c_r, or subtracting it, leaves a carry or a borrow."""
    if window.subtracting:
        return window.right_digit < amount
    return window.right_digit + amount >= window.base


def _write(window: Window, amount: int) -> Iterator[Action]:
    """Write the sum or difference to c_r: move the finger to its row, then slide."""
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
