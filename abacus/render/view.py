"""The content of a picture: one moment of one abacus, the columns in view, and short numerals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from abacus.checks import check_integer, not_allowed
from abacus.rules import AbacusConfig, Action
from abacus.tasks import value_of

#: Fewest columns that a scrolled picture can show: the window's two and the next to the right.
MIN_SHOWN = 3
#: Up to this length in the abacus's base, decimal values are computed exactly.
_EXACT_DIGITS = 64


@dataclass(frozen=True)
class AbacusView:
    """One moment of one abacus, checked on construction.

    `digits` starts with column 0, the least significant. `symbol` is a digit, or `base` for `+`,
    or `base + 1` for `-`; `operation` is 0 while adding and 1 while subtracting. `action` (the
    name of the last one), `step` and `expression` are captions.
    """

    base: int
    digits: tuple[int, ...]
    finger_column: int
    finger_row: int
    signpost: int
    symbol: int
    operation: int
    action: str | None = None
    step: int | None = None
    expression: str | None = None

    def __post_init__(self) -> None:
        self._set_integer("base", 2, 10)
        self._set_digits()
        self._set_integer("finger_column", 0, self.columns - 1)
        self._set_integer("finger_row", 0, self.base - 1)
        self._set_integer("signpost", 0, self.columns - 1)
        self._set_integer("symbol", 0, self.base + 1)
        self._set_integer("operation", 0, 1)
        if self.step is not None:
            self._set_integer("step", 0)
        if self.symbol >= self.base and self.operation != self.symbol - self.base:
            raise ValueError(
                f"operation={self.operation} is not allowed with symbol={self.symbol}: give "
                f"{self.symbol - self.base}, the operation which that symbol announces"
            )
        if self.action is not None and self.action not in Action.__members__:
            names = ", ".join(Action.__members__)
            raise not_allowed("action", self.action, f"None or one of {names}")
        text = self.expression
        if text is not None and not (isinstance(text, str) and text.isprintable()):
            raise not_allowed("expression", text, "None or printable text")

    def _set_integer(self, name: str, low: int, high: int | None = None) -> None:
        object.__setattr__(self, name, check_integer(name, getattr(self, name), low, high))

    def _set_digits(self) -> None:
        digits = self.digits
        if not isinstance(digits, tuple) or not 2 <= len(digits) <= AbacusConfig.MAX_COLUMNS:
            length = f" of length {len(digits)}" if isinstance(digits, tuple) else ""
            raise ValueError(
                f"digits={type(digits).__name__}{length} is not allowed: give a tuple of 2 to "
                f"{AbacusConfig.MAX_COLUMNS} integers"
            )
        # A quick test first, as there may be a million of them.
        if set(map(type, digits)) == {int} and min(digits) >= 0 and max(digits) < self.base:
            return
        checked = (
            check_integer(f"digits[{column}]", digit, 0, self.base - 1)
            for column, digit in enumerate(digits)
        )
        object.__setattr__(self, "digits", tuple(checked))

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.digits)

    @property
    def resetting(self) -> bool:
        """Whether an operation symbol is shown, which asks for the reset."""
        return self.symbol >= self.base

    @property
    def symbol_text(self) -> str:
        """The symbol as one character."""
        return "+-"[self.symbol - self.base] if self.resetting else str(self.symbol)

    @property
    def operation_text(self) -> str:
        """The operation in a word."""
        return ("adding", "subtracting")[self.operation]

    @property
    def action_text(self) -> str:
        """The last action in words; "start" at step 0."""
        if self.action is None:
            return "start" if self.step == 0 else ""
        return Action[self.action].words

    @property
    def step_text(self) -> str:
        """The step in words, empty without one."""
        return "" if self.step is None else f"step {self.step:,}"


class BatchLike(Protocol):
    """The part of `AbacusBatch` that is drawn: importing the batch would import numba."""

    @property
    def config(self) -> AbacusConfig: ...
    @property
    def digits(self) -> npt.NDArray[Any]: ...
    @property
    def scalars(self) -> npt.NDArray[Any]: ...


def view_of(batch: BatchLike, index: int) -> AbacusView:
    """Return a snapshot of abacus `index` of a batch."""
    scalars = batch.scalars[index]
    action = int(scalars["previous_action"])
    expression = batch.config.expression
    names = ("finger_column", "finger_row", "signpost", "symbol", "operation")
    return AbacusView(
        base=batch.config.base,
        digits=tuple(batch.digits[index].tolist()),
        **{name: int(scalars[name]) for name in names},
        action=Action(action).name if action >= 0 else None,
        step=int(scalars["steps"]),
        # Expressions may contain any white space, line ends included.
        expression=None if expression is None else "".join(expression.split()),
    )


@dataclass(frozen=True)
class ColumnRange:
    """The columns `first` to `stop - 1` that a picture shows of `columns`."""

    first: int
    stop: int
    columns: int

    def __len__(self) -> int:
        return self.stop - self.first

    def __contains__(self, column: int) -> bool:
        return self.first <= column < self.stop

    @property
    def hidden_left(self) -> int:
        """Number of columns hidden on the left."""
        return self.first

    @property
    def hidden_right(self) -> int:
        """Number of columns hidden on the right."""
        return self.columns - self.stop


def visible_columns(view: AbacusView, max_columns: int) -> ColumnRange:
    """Return the columns to show, with the window and the finger's next column among them.

    Wide abaci scroll by pages that overlap by two columns: the picture moves only when the finger
    leaves the page.
    """
    check_integer("max_columns", max_columns, MIN_SHOWN)
    shown = min(view.columns, max_columns)
    stride = max(1, shown - 2)
    page = max(0, view.finger_column - 1) // stride
    first = min(page * stride, view.columns - shown)
    return ColumnRange(first, first + shown, view.columns)


@dataclass(frozen=True)
class ShortNumeral:
    """A numeral to show; `exact` is False where digits are omitted or rounded."""

    text: str
    exact: bool
    digits: int

    @property
    def length_text(self) -> str:
        """The number of digits in words, such as `10,000 digits`."""
        return f"{self.digits:,} digit{'s' if self.digits != 1 else ''}"


def base_numeral(digits: Sequence[int], limit: int) -> ShortNumeral:
    """Return digits, least significant first, as a numeral of at most `limit` characters.

    A longer one keeps both ends: `1203…4410`.
    """
    count = _significant_digits(digits)
    if count <= limit:
        return ShortNumeral(_written(digits[:count]), True, count)
    tail = (limit - 1) // 2
    head = limit - 1 - tail
    text = f"{_written(digits[count - head : count])}…{_written(digits[:tail])}"
    return ShortNumeral(text, False, count)


def decimal_numeral(digits: Sequence[int], base: int, limit: int) -> ShortNumeral:
    """Return the decimal value: exact up to `limit` digits, as `1,234`; else as `1.23e+6989`."""
    count = _significant_digits(digits)
    if count <= _EXACT_DIGITS:
        value = value_of(digits[:count], base)
        length = len(str(value))
        if length <= limit:
            return ShortNumeral(f"{value:,}", True, length)
    # Sixteen leading digits determine the mantissa; the others only shift the exponent.
    leading = min(count, 16)
    logarithm = math.log10(value_of(digits[count - leading : count], base))
    logarithm += (count - leading) * math.log10(base)
    exponent = math.floor(logarithm)
    mantissa = f"{10 ** (logarithm - exponent):.2f}"
    if mantissa == "10.00":
        mantissa, exponent = "1.00", exponent + 1
    return ShortNumeral(f"{mantissa}e+{exponent}", False, exponent + 1)


def _significant_digits(digits: Sequence[int]) -> int:
    count = len(digits)
    while count > 1 and digits[count - 1] == 0:
        count -= 1
    return count


def _written(digits: Sequence[int]) -> str:
    return "".join(str(digit) for digit in reversed(digits))
