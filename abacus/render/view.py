"""What a picture of an abacus needs, taken out of the batch and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from abacus.rules import AbacusConfig, Action

#: Fewest columns a scrolled picture can show: the window's two and the one the finger goes to.
MIN_SHOWN = 3


def _check_int(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not _within(value, low, high):
        allowed = f"of {low} or more" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name}={value!r} is not allowed: give an integer {allowed}")


def _within(value: int, low: int, high: int | None) -> bool:
    return low <= value and (high is None or value <= high)


@dataclass(frozen=True)
class AbacusView:
    """One moment of one abacus. Checks itself: an impossible moment raises ValueError.

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
        _check_int("base", self.base, 2, 10)
        self._check_digits()
        _check_int("finger_column", self.finger_column, 0, self.columns - 1)
        _check_int("finger_row", self.finger_row, 0, self.base - 1)
        _check_int("signpost", self.signpost, 0, self.columns - 1)
        _check_int("symbol", self.symbol, 0, self.base + 1)
        _check_int("operation", self.operation, 0, 1)
        if self.symbol >= self.base and self.operation != self.symbol - self.base:
            raise ValueError(
                f"operation={self.operation} is not allowed with symbol={self.symbol}: give "
                f"{self.symbol - self.base}, the operation which that symbol announces"
            )
        self._check_captions()

    def _check_digits(self) -> None:
        digits = self.digits
        if not isinstance(digits, tuple) or not 2 <= len(digits) <= AbacusConfig.MAX_COLUMNS:
            length = f" of length {len(digits)}" if isinstance(digits, tuple) else ""
            raise ValueError(
                f"digits={type(digits).__name__}{length} is not allowed: give a tuple of 2 to "
                f"{AbacusConfig.MAX_COLUMNS} integers"
            )
        # A million digits are checked as the few values they take; the column of a bad one is
        # looked for only once there is one.
        if set(map(type, digits)) == {int} and min(digits) >= 0 and max(digits) < self.base:
            return
        for column, digit in enumerate(digits):
            _check_int(f"digits[{column}]", digit, 0, self.base - 1)

    def _check_captions(self) -> None:
        if self.action is not None and self.action not in Action.__members__:
            names = ", ".join(Action.__members__)
            raise ValueError(f"action={self.action!r} is not allowed: give None or one of {names}")
        if self.step is not None:
            _check_int("step", self.step, 0)
        text = self.expression
        if text is not None and not (isinstance(text, str) and text.isprintable()):
            raise ValueError(
                f"expression={shorten(repr(text), 40)} is not allowed: give None or printable text"
            )

    @property
    def columns(self) -> int:
        return len(self.digits)

    @property
    def resetting(self) -> bool:
        """Whether an operation's symbol is shown, which asks for the reset."""
        return self.symbol >= self.base

    @property
    def symbol_text(self) -> str:
        return "+-"[self.symbol - self.base] if self.resetting else str(self.symbol)

    @property
    def operation_text(self) -> str:
        return ("adding", "subtracting")[self.operation]

    @property
    def action_text(self) -> str:
        """The last action in words; at step 0 there is none, which is said."""
        if self.action is None:
            return "start" if self.step == 0 else ""
        return self.action.lower().replace("_", " ")

    @property
    def step_text(self) -> str:
        return "" if self.step is None else f"step {self.step:,}"


class BatchLike(Protocol):
    """The part of `AbacusBatch` that is drawn; naming it here keeps the batch's imports away."""

    @property
    def config(self) -> AbacusConfig: ...
    @property
    def digits(self) -> npt.NDArray[Any]: ...
    @property
    def scalars(self) -> npt.NDArray[Any]: ...


def view_of(batch: BatchLike, index: int) -> AbacusView:
    """Abacus `index` of a batch as it stands now; later steps do not change the view."""
    scalars = batch.scalars[index]
    action = int(scalars["previous_action"])
    expression = batch.config.expression
    return AbacusView(
        base=batch.config.base,
        digits=tuple(batch.digits[index].tolist()),
        finger_column=int(scalars["finger_column"]),
        finger_row=int(scalars["finger_row"]),
        signpost=int(scalars["signpost"]),
        symbol=int(scalars["symbol"]),
        operation=int(scalars["operation"]),
        action=Action(action).name if action >= 0 else None,
        step=int(scalars["steps"]),
        # Expressions may be written with any white space, line ends included.
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
        return self.first

    @property
    def hidden_right(self) -> int:
        return self.columns - self.stop


def visible_columns(view: AbacusView, max_columns: int) -> ColumnRange:
    """The columns to show: the whole window, and the finger's next column, are always in it.

    Wide abaci scroll by pages that overlap by two columns, so that the picture stands still
    while the finger works and moves only when it leaves the page.
    """
    _check_int("max_columns", max_columns, MIN_SHOWN)
    shown = min(view.columns, max_columns)
    stride = max(1, shown - 2)
    page = max(0, view.finger_column - 1) // stride
    first = min(page * stride, view.columns - shown)
    return ColumnRange(first, first + shown, view.columns)


def shorten(text: str, limit: int) -> str:
    """The text with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"
