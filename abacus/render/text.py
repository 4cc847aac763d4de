"""An abacus as text for a terminal, plain or with ANSI colours."""

from __future__ import annotations

from collections.abc import Callable

from abacus.render.view import (
    AbacusView,
    ColumnRange,
    base_numeral,
    decimal_numeral,
    visible_columns,
)
from abacus.rules import ENCODING_PERIOD, WINDOW_COLUMNS

#: Columns shown by default: they fit on a terminal of 80 characters.
TEXT_COLUMNS = 16

BEAD, GAP, FLAG, PADDING = "●", "┆", "⚑", "░"
#: The periodic encoding of a column, as the agent sees it in the top row.
ENCODING = ("¼", "½", "¾")
#: A column is three characters wide, with one more for the line between it and the next.
_PITCH = 4
#: Left of the frame: the name of a line, and a space.
_MARGIN = 9
_NUMERAL_LIMIT = 32
_DECIMAL_LIMIT = 24
_EXPRESSION_LIMIT = 40

#: Joints by the weight of the line to the left, up or down, and to the right: none, light for the
#: frame, heavy for the window.
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


def render_ansi(view: AbacusView, max_columns: int = TEXT_COLUMNS, colour: bool = False) -> str:
    """Return the abacus as lines of text, without a final line end.

    At most `max_columns` columns are shown, with those of the window always among them; `colour`
    adds ANSI escape codes.
    """
    grid = _Grid(view, visible_columns(view, max_columns), colour)
    lines = [
        *_caption(view),
        grid.signpost_line(),
        grid.border(_TOP),
        grid.encoding_line(),
        *(grid.row(row) for row in range(view.base)),
        grid.border(_BOTTOM),
        grid.digit_line(),
        grid.column_line(),
        "",
        *_readings(view),
    ]
    return "\n".join(lines)


class _Grid:
    """The lines whose characters are aligned in columns.

    Slots are counted from the first column shown; slot -1, left of the frame, holds the padding
    that the window shows when the finger is on column 0. Boundary i is left of slot i.
    """

    def __init__(self, view: AbacusView, shown: ColumnRange, colour: bool) -> None:
        self.view, self.shown, self.colour = view, shown, colour
        self.window = view.finger_column - shown.first - WINDOW_COLUMNS + 1
        self.window_stop = self.window + WINDOW_COLUMNS

    def paint(self, text: str, role: str) -> str:
        if not self.colour or not _COLOURS[role] or text.isspace():
            return text
        return f"{_COLOURS[role]}{text}\x1b[0m"

    def lit(self, slot: int) -> bool:
        return self.window <= slot < self.window_stop

    def vertical(self, boundary: int) -> str:
        """Return the weight of the vertical line at a boundary."""
        if boundary in (self.window, self.window_stop):
            return "h"
        return "l" if boundary in (0, len(self.shown)) else " "

    def horizontal(self, slot: int) -> str:
        """Return the weight of the frame's edge over a slot."""
        if self.lit(slot):
            return "h"
        return "l" if 0 <= slot < len(self.shown) else " "

    def border(self, joints: dict[str, str]) -> str:
        line = " " * _MARGIN
        for slot in range(-1, len(self.shown) + 1):
            weights = self.horizontal(slot - 1) + self.vertical(slot) + self.horizontal(slot)
            line += self._edge(joints[weights], slot)
            if slot < len(self.shown):
                edge = {"h": "━", "l": "─", " ": " "}[self.horizontal(slot)] * (_PITCH - 1)
                line += self.paint(edge, "window" if self.lit(slot) else "plain")
        return line

    def _edge(self, character: str, boundary: int) -> str:
        heavy = self.window <= boundary <= self.window_stop
        return self.paint(character, "window" if heavy else "plain")

    def _line(self, label: str, cell: Callable[[int], tuple[str, str]], role: str) -> str:
        """Return a line inside the frame; `cell` gives a slot's three characters and role."""
        line = self.paint(f"{label:>{_MARGIN - 1}} ", role)
        for slot in range(-1, len(self.shown) + 1):
            # The frame's side is broken where it hides columns.
            hidden = self.shown.hidden_right if slot else self.shown.hidden_left
            side = {"h": "┃", "l": "┊" if hidden else "│", " ": " "}[self.vertical(slot)]
            line += self._edge(side, slot)
            if slot == -1:
                line += self.paint(PADDING * (_PITCH - 1) if self.lit(slot) else "   ", "faint")
            elif slot < len(self.shown):
                line += self.paint(*cell(slot))
        return line

    def row(self, row: int) -> str:
        def cell(slot: int) -> tuple[str, str]:
            column = self.shown.first + slot
            inner = GAP if self.view.digits[column] == row else BEAD
            if (column, row) == (self.view.finger_column, self.view.finger_row):
                return f"[{inner}]", "finger"
            return f" {inner} ", "lit" if self.lit(slot) else "faint"

        return self._line(str(row), cell, "finger" if row == self.view.finger_row else "faint")

    def encoding_line(self) -> str:
        def cell(slot: int) -> tuple[str, str]:
            encoding = ENCODING[(self.shown.first + slot) % ENCODING_PERIOD]
            return f" {encoding} ", "plain" if self.lit(slot) else "faint"

        return self._line("place", cell, "faint")

    def signpost_line(self) -> str:
        """Return the line with the flag over its column, or at the end that hides its column."""
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
        return self._under("digit", [f" {digit} " for digit in digits], "plain")

    def column_line(self) -> str:
        """Return the column numbers; of long ones every second, the finger's included."""
        numbers = range(self.shown.first, self.shown.stop)
        every = 1 if len(str(self.view.columns - 1)) < _PITCH else 2
        shown = [(number - self.view.finger_column) % every == 0 for number in numbers]
        texts = [str(number) if show else "" for number, show in zip(numbers, shown, strict=True)]
        return self._under("column", texts, "faint")

    def _under(self, label: str, texts: list[str], role: str) -> str:
        """Return a line under the frame: texts centred on their slots, dots for hidden columns."""
        width = _MARGIN + _PITCH * (len(self.shown) + 2) + 1
        line = list(f"{label:>{_MARGIN - 1}}".ljust(width))
        left = "…" if self.shown.hidden_left else ""
        right = "…" if self.shown.hidden_right else ""
        for slot, text in enumerate([left, *texts, right]):
            start = _MARGIN + _PITCH * slot + 2 - len(text) // 2
            line[start : start + len(text)] = text
        return self.paint("".join(line).rstrip(), role)


def _caption(view: AbacusView) -> list[str]:
    expression = view.expression or ""
    if len(expression) > _EXPRESSION_LIMIT:
        tail = (_EXPRESSION_LIMIT - 1) // 2
        expression = f"{expression[: _EXPRESSION_LIMIT - 1 - tail]}…{expression[-tail:]}"
    parts = [part for part in (view.step_text, view.action_text, expression) if part]
    return [f"{' ' * _MARGIN}{' · '.join(parts)}", ""] if parts else []


def _readings(view: AbacusView) -> list[str]:
    """Return the lines under the frame: the symbol with the operation, and the value."""
    meaning = "reset, then" if view.resetting else "digit read,"
    symbol = f"{view.symbol_text}   {meaning} {view.operation_text}"
    numeral = base_numeral(view.digits, _NUMERAL_LIMIT)
    length = "" if numeral.exact else f" ({numeral.length_text})"
    value = f"{numeral.text}{length}  base {view.base}"
    if view.base != 10:
        decimal = decimal_numeral(view.digits, view.base, _DECIMAL_LIMIT)
        value += f"  {'=' if decimal.exact else '≈'}  {decimal.text}"
    return [f"{'symbol':>{_MARGIN - 1}} {symbol}", f"{'value':>{_MARGIN - 1}} {value}"]
