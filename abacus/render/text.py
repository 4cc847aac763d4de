"""Numerals to show: short at any length, and computed no further than they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abacus.render.view import AbacusView, ColumnRange, shorten, visible_columns
from abacus.rules import ENCODING_PERIOD, WINDOW_COLUMNS
from abacus.tasks import value_of

#: Up to this many digits of a base the exact decimal value is computed, in no time.
_EXACT_DIGITS = 64


@dataclass(frozen=True)
class ShortNumeral:
    """A numeral's text; `exact` is False where digits are left out or rounded away."""

    text: str
    exact: bool
    digits: int

    @property
    def length_text(self) -> str:
        """`10,000 digits`."""
        return f"{self.digits:,} digit{'s' if self.digits != 1 else ''}"


def base_numeral(digits: Sequence[int], limit: int) -> ShortNumeral:
    """Digits given least significant first, as a numeral of at most `limit` characters.

    A longer one keeps both ends: `1203…4410`.
    """
    count = significant_digits(digits)
    if count <= limit:
        return ShortNumeral(_written(digits[:count]), True, count)
    tail = (limit - 1) // 2
    head = limit - 1 - tail
    text = f"{_written(digits[count - head : count])}…{_written(digits[:tail])}"
    return ShortNumeral(text, False, count)


def decimal_numeral(digits: Sequence[int], base: int, limit: int) -> ShortNumeral:
    """The decimal value: exact, as `1,234`, up to `limit` digits; longer, as `1.23e+6989`."""
    count = significant_digits(digits)
    if count <= _EXACT_DIGITS:
        value = value_of(digits[:count], base)
        length = len(str(value))
        if length <= limit:
            return ShortNumeral(f"{value:,}", True, length)
    # Sixteen leading digits decide a float; the others only shift its exponent.
    leading = min(count, 16)
    logarithm = math.log10(value_of(digits[count - leading : count], base))
    logarithm += (count - leading) * math.log10(base)
    exponent = math.floor(logarithm)
    mantissa = f"{10 ** (logarithm - exponent):.2f}"
    if mantissa == "10.00":
        mantissa, exponent = "1.00", exponent + 1
    return ShortNumeral(f"{mantissa}e+{exponent}", False, exponent + 1)


def significant_digits(digits: Sequence[int]) -> int:
    """Digits without the leading zeros; 0 has one digit."""
    count = len(digits)
    while count > 1 and digits[count - 1] == 0:
        count -= 1
    return count


def _written(digits: Sequence[int]) -> str:
    return "".join(str(digit) for digit in reversed(digits))


#: Columns shown by default: a terminal of 80 characters holds them.
TEXT_COLUMNS = 16

BEAD, GAP, FLAG, PADDING = "●", "┆", "⚑", "░"
#: The periodic encoding of a column, as the agent reads it in the top row.
ENCODING = ("¼", "½", "¾")
#: A column is three characters wide, with one more for the line between it and the next.
_PITCH = 4
#: Left of the frame: the name of a line, and a space.
_MARGIN = 9
_NUMERAL_LIMIT = 32
_DECIMAL_LIMIT = 24
_EXPRESSION_LIMIT = 40

#: Where lines meet, by the weight of the line to the left, up or down, and to the right: none,
#: light for the frame, heavy for the window.
_TOP = {
    "   ": " ", "l l": "─", "h h": "━", " ll": "╭", "ll ": "╮",
    " hh": "┏", "hh ": "┓", "lhh": "┲", "hhl": "┱", "hlh": "┯",
}  # fmt: skip
_BOTTOM = {
    "   ": " ", "l l": "─", "h h": "━", " ll": "╰", "ll ": "╯",
    " hh": "┗", "hh ": "┛", "lhh": "┺", "hhl": "┹", "hlh": "┷",
}  # fmt: skip

_COLOURS = {
    "plain": "",
    "faint": "\x1b[2m",
    "lit": "\x1b[33;1m",
    "finger": "\x1b[36;1m",
    "signpost": "\x1b[31;1m",
    "window": "\x1b[33m",
}

Paint = Callable[[str, str], str]


def render_ansi(view: AbacusView, max_columns: int = TEXT_COLUMNS, colour: bool = False) -> str:
    """The abacus as lines of text, without a line end after the last.

    At most `max_columns` columns are shown, among them always those of the window; `colour` adds
    ANSI escape codes.
    """
    grid = _Grid(view, visible_columns(view, max_columns), _coloured if colour else _uncoloured)
    rows = [grid.row(str(row), row) for row in range(view.base)]
    lines = [
        *_caption(view),
        grid.signpost_line(),
        grid.border(_TOP),
        grid.encoding_line(),
        *rows,
        grid.border(_BOTTOM),
        grid.digit_line(),
        grid.column_line(),
        "",
        *_readings(view),
    ]
    return "\n".join(lines)


def _uncoloured(text: str, role: str) -> str:
    return text


def _coloured(text: str, role: str) -> str:
    return f"{_COLOURS[role]}{text}\x1b[0m" if _COLOURS[role] and not text.isspace() else text


class _Grid:
    """The lines whose characters stand in columns.

    Slots are counted from the first column shown; slot -1, left of the frame, is there for the
    padding that the window shows when the finger is on column 0. Boundary i is left of slot i.
    """

    def __init__(self, view: AbacusView, shown: ColumnRange, paint: Paint) -> None:
        self.view, self.shown, self.paint = view, shown, paint
        self.window = view.finger_column - shown.first - WINDOW_COLUMNS + 1
        self.window_stop = self.window + WINDOW_COLUMNS

    def lit(self, slot: int) -> bool:
        return self.window <= slot < self.window_stop

    def upright(self, boundary: int) -> str:
        """The weight of the line up and down at a boundary."""
        if boundary in (self.window, self.window_stop):
            return "h"
        return "l" if boundary in (0, len(self.shown)) else " "

    def level(self, slot: int) -> str:
        """The weight of the frame's edge over a slot."""
        if self.lit(slot):
            return "h"
        return "l" if 0 <= slot < len(self.shown) else " "

    def border(self, joints: dict[str, str]) -> str:
        line = " " * _MARGIN
        for slot in range(-1, len(self.shown) + 1):
            weights = self.level(slot - 1) + self.upright(slot) + self.level(slot)
            line += self._edge(joints[weights], slot)
            if slot < len(self.shown):
                edge = {"h": "━", "l": "─", " ": " "}[self.level(slot)] * (_PITCH - 1)
                line += self.paint(edge, "window" if self.lit(slot) else "plain")
        return line

    def _edge(self, character: str, boundary: int) -> str:
        heavy = self.window <= boundary <= self.window_stop
        return self.paint(character, "window" if heavy else "plain")

    def _line(self, label: str, cell: Callable[[int], tuple[str, str]], role: str) -> str:
        """A line of the frame's inside: `cell` gives a column's three characters and role."""
        line = self.paint(f"{label:>{_MARGIN - 1}} ", role)
        for slot in range(-1, len(self.shown) + 1):
            character = {"h": "┃", "l": self._side(slot), " ": " "}[self.upright(slot)]
            line += self._edge(character, slot)
            if slot == -1:
                line += self.paint(PADDING * (_PITCH - 1) if self.lit(slot) else "   ", "faint")
            elif slot < len(self.shown):
                line += self.paint(*cell(slot))
        return line

    def _side(self, boundary: int) -> str:
        """The frame's side, broken where it hides columns."""
        hidden = self.shown.hidden_right if boundary else self.shown.hidden_left
        return "┊" if hidden else "│"

    def row(self, label: str, row: int) -> str:
        def cell(slot: int) -> tuple[str, str]:
            column = self.shown.first + slot
            inner = GAP if self.view.digits[column] == row else BEAD
            if (column, row) == (self.view.finger_column, self.view.finger_row):
                return f"[{inner}]", "finger"
            return f" {inner} ", "lit" if self.lit(slot) else "faint"

        return self._line(label, cell, "finger" if row == self.view.finger_row else "faint")

    def encoding_line(self) -> str:
        def cell(slot: int) -> tuple[str, str]:
            encoding = ENCODING[(self.shown.first + slot) % ENCODING_PERIOD]
            return f" {encoding} ", "plain" if self.lit(slot) else "faint"

        return self._line("place", cell, "faint")

    def signpost_line(self) -> str:
        """The flag above its column, or at the end behind which its column is hidden."""
        signpost, left = self.view.signpost, _MARGIN + _PITCH
        if signpost in self.shown:
            text, start = FLAG, left + _PITCH * (signpost - self.shown.first) + 2
        elif signpost < self.shown.first:
            text, start = f"◂ {FLAG} {signpost:,}", left
        else:
            text = f"{signpost:,} {FLAG} ▸"
            start = left + _PITCH * len(self.shown) + 1 - len(text)
        return " " * start + self.paint(text, "signpost")

    def digit_line(self) -> str:
        digits = self.view.digits[self.shown.first : self.shown.stop]
        cells = [(f" {digit} ", slot) for slot, digit in enumerate(digits)]
        return self._under("digit", cells, "plain")

    def column_line(self) -> str:
        """Column numbers; long ones every second column, the finger's always among them."""
        numbers = range(self.shown.first, self.shown.stop)
        every = 1 if len(str(self.view.columns - 1)) < _PITCH else 2
        cells = [
            (str(number) if (number - self.view.finger_column) % every == 0 else "", slot)
            for slot, number in enumerate(numbers)
        ]
        return self._under("column", cells, "faint")

    def _under(self, label: str, cells: list[tuple[str, int]], role: str) -> str:
        """A line under the frame: texts centred on their slots, dots where columns are hidden."""
        width = _MARGIN + _PITCH * (len(self.shown) + 2) + 1
        line = list(f"{label:>{_MARGIN - 1}}".ljust(width))
        if self.shown.hidden_left:
            cells = [("…", -1), *cells]
        if self.shown.hidden_right:
            cells = [*cells, ("…", len(self.shown))]
        for text, slot in cells:
            start = _MARGIN + _PITCH * (slot + 1) + 2 - len(text) // 2
            line[start : start + len(text)] = text
        return self.paint("".join(line).rstrip(), role)


def _caption(view: AbacusView) -> list[str]:
    expression = shorten(view.expression or "", _EXPRESSION_LIMIT)
    parts = [part for part in (view.step_text, view.action_text, expression) if part]
    return [f"{' ' * _MARGIN}{' · '.join(parts)}", ""] if parts else []


def _readings(view: AbacusView) -> list[str]:
    """What stands under the frame: the symbol, the operation, and the value."""
    meaning = "reset, then" if view.resetting else "digit read,"
    symbol = f"{view.symbol_text}   {meaning} {view.operation_text}"
    lines = [f"{'symbol':>{_MARGIN - 1}} {symbol}"]
    numeral = base_numeral(view.digits, _NUMERAL_LIMIT)
    length = "" if numeral.exact else f" ({numeral.length_text})"
    value = f"{numeral.text}{length}  base {view.base}"
    if view.base != 10:
        decimal = decimal_numeral(view.digits, view.base, _DECIMAL_LIMIT)
        value += f"  {'=' if decimal.exact else '≈'}  {decimal.text}"
    return [*lines, f"{'value':>{_MARGIN - 1}} {value}"]
