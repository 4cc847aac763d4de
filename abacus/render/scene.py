"""The picture of an abacus: its sizes, its colours, and a scene for every view.

Sprites are cached by what they show, so that consecutive frames of a film share them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from abacus.render.shapes import Box, Polygon, Scene, Shape, Sprite, Text, fitted, mixed, text_width
from abacus.render.view import (
    AbacusView,
    ColumnRange,
    base_numeral,
    decimal_numeral,
    visible_columns,
)
from abacus.rules import ENCODING_PERIOD

Placed = tuple[int, int, Sprite]

#: Columns shown by default.
PICTURE_COLUMNS = 14

BACKGROUND, CARD, INK, FAINT = "#f5f2ec", "#ffffff", "#27303a", "#6d747c"
WOOD, WOOD_LIGHT, WOOD_DARK, INLAY = "#8c5a35", "#a87349", "#6b4226", "#f1e3c8"
PANEL, PANEL_LIT, WINDOW = "#ddd3c4", "#fffdf6", "#f0ae1e"
ROD, BEAD = "#a08a5c", "#dd7230"
FINGER, SIGNPOST = "#1860d6", "#cf2f48"
#: Colours of adding and subtracting.
OPERATIONS = ("#1f7a55", "#8a3a83")
#: Share of the panel's colour that is mixed into columns outside the window.
DIMMING = 0.45

CELL, ROW = 64, 46
POST, BEAM, SILL, PANEL_EDGE = 38, 30, 18, 8
MARGIN, TILE, FLAG, LABELS, READOUT = 28, 96, 62, 66, 84
MIN_WIDTH = 720
#: Width of the meaning of a symbol, right of its tile.
MEANING = 240
SHADOW, STRIPE = 5, 5
#: Upper edge of the window, which includes the beam with the encoding and the signpost.
WINDOW_TOP = 2
#: Baselines of the digits and of the column numbers, below the frame.
DIGIT_LINE, COLUMN_LINE = 33, 60
#: Distance from the middle of capitals and digits to their baseline, as a share of the size.
CAPITAL = 0.355


class Layout:
    """Positions, which depend only on the base and the number of columns shown.

    Left and right of the frame there is a slot as wide as a column, for the padding that the window
    shows at column 0 and for the marks of hidden columns.
    """

    def __init__(self, shown: int, base: int) -> None:
        self.shown = shown
        self.frame_width = shown * CELL + 2 * POST
        self.panel_height = base * ROW + 2 * PANEL_EDGE
        self.width = max(MIN_WIDTH, self.frame_width + 2 * (CELL + MARGIN))
        self.frame_left = (self.width - self.frame_width) // 2
        self.frame_top = MARGIN + TILE + FLAG
        self.panel_top = self.frame_top + BEAM
        self.frame_bottom = self.panel_top + self.panel_height + SILL
        self.readout_top = self.frame_bottom + LABELS + 10
        self.height = self.readout_top + READOUT + MARGIN

    def slot_left(self, slot: int) -> int:
        """Return the left edge of a column shown; slots -1 and `shown` are outside the frame."""
        if slot < 0:
            return self.frame_left - CELL
        return self.frame_left + POST + slot * CELL + (POST if slot == self.shown else 0)

    def row_top(self, row: int) -> int:
        """Return the upper edge of a row."""
        return self.panel_top + PANEL_EDGE + row * ROW


def scene_of(view: AbacusView, max_columns: int = PICTURE_COLUMNS) -> Scene:
    """Return the picture of a view, with at most `max_columns` columns."""
    shown = visible_columns(view, max_columns)
    layout = Layout(len(shown), view.base)
    finger_left = layout.slot_left(view.finger_column - shown.first)
    sprites = [
        (layout.frame_left, layout.frame_top, _frame(layout.frame_width, layout.panel_height)),
        (layout.frame_left - CELL, layout.frame_bottom, _label_names()),
        *_header(view, layout),
        *_window_light(view, shown, layout),
        *_columns(view, shown, layout),
        *(
            (layout.frame_left, layout.row_top(row), _row_number(row, row == view.finger_row))
            for row in range(view.base)
        ),
        _window_outline(view, shown, layout),
        (finger_left, layout.row_top(view.finger_row), _ring()),
        *_hidden_marks(shown, layout),
        _signpost(view, shown, layout),
        *_readouts(view, layout),
    ]
    return Scene(layout.width, layout.height, BACKGROUND, tuple(sprites))


def _baseline(middle: float, size: int) -> float:
    return middle + CAPITAL * size


@lru_cache(maxsize=64)
def _frame(width: int, panel_height: int) -> Sprite:
    """Return the wooden frame, light above and dark below, with the panel inside."""
    height, inside = BEAM + panel_height + SILL, width - 2 * POST
    shapes = (
        Box(0, SHADOW, width, height, mixed(BACKGROUND, INK, 0.16), 16),
        Box(0, 0, width, height, WOOD_DARK, 16),
        Box(0, 0, width, height - 4, WOOD_LIGHT, 16),
        Box(0, 3, width, height - 7, WOOD, 14),
        Box(POST - 3, BEAM - 3, inside + 6, panel_height + 6, WOOD_DARK, 5),
        Box(POST, BEAM, inside, panel_height, PANEL, 3),
    )
    return Sprite(width, height + SHADOW, shapes)


@lru_cache(maxsize=1)
def _label_names() -> Sprite:
    """Return the names of the two lines under the columns."""
    right, size = CELL + POST - 10, 17
    shapes = (
        Text(right, DIGIT_LINE, "digit", size, FAINT, "end"),
        Text(right, COLUMN_LINE, "column", size, FAINT, "end"),
    )
    return Sprite(CELL + POST, LABELS, shapes)


def _columns(view: AbacusView, shown: ColumnRange, layout: Layout) -> Iterator[Placed]:
    for slot, column in enumerate(range(shown.first, shown.stop)):
        lit = view.finger_column - 1 <= column <= view.finger_column
        digit, x = view.digits[column], layout.slot_left(slot)
        yield x, layout.frame_top, _column(view.base, digit, column % ENCODING_PERIOD, lit)
        label = _column_label(column, digit, lit, column == view.finger_column)
        yield x, layout.frame_bottom, label


@lru_cache(maxsize=1024)
def _column(base: int, digit: int, place: int, lit: bool) -> Sprite:
    """Return a rod with its beads and, on the beam, one to three inlays: the encoding."""

    def shade(colour: str, ground: str = PANEL) -> str:
        return colour if lit else mixed(colour, ground, DIMMING)

    height = BEAM + base * ROW + 2 * PANEL_EDGE
    dots = [
        Box(CELL / 2 - 3 + 11 * (k - place / 2), BEAM / 2 - 4, 6, 6, shade(INLAY, WOOD), 3)
        for k in range(place + 1)
    ]
    rod = [
        Box(CELL / 2 - 4, BEAM, 8, height - BEAM, shade(mixed(ROD, "#000000", 0.25))),
        Box(CELL / 2 - 3, BEAM, 4, height - BEAM, shade(mixed(ROD, "#ffffff", 0.25))),
    ]
    beads: list[Shape] = []
    for row in range(base):
        if row != digit:
            beads += _bead(BEAM + PANEL_EDGE + row * ROW, shade(BEAD), shade("#ffffff", BEAD))
    return Sprite(CELL, height, (*dots, *rod, *beads))


def _bead(top: int, colour: str, light: str) -> list[Shape]:
    """Return a bead: a pill with a dark lower edge and a highlight on its upper side."""
    x, y, width, height = 5, top + 3, CELL - 10, ROW - 6
    return [
        Box(x, y, width, height, mixed(colour, "#000000", 0.28), height / 2),
        Box(x, y, width, height - 4, colour, (height - 4) / 2),
        Box(x + 13, y + 6, width - 26, 5, mixed(colour, light, 0.5), 2.5),
    ]


@lru_cache(maxsize=1024)
def _column_label(column: int, digit: int, lit: bool, finger: bool) -> Sprite:
    """Return the digit and the number under a column."""
    middle = CELL / 2
    shapes: list[Shape] = [
        Text(middle, DIGIT_LINE, str(digit), 26, INK if lit else FAINT, "middle", 0.5),
    ]
    # Numbers of six digits must leave room between columns.
    size = 17 if column < 100_000 else 14
    if finger:
        room = min(CELL, text_width(str(column), size) + 16)
        shapes.append(Box(middle - room / 2, COLUMN_LINE - 18, room, 24, FINGER, 12))
    fill = "#ffffff" if finger else INK if lit else FAINT
    shapes.append(Text(middle, COLUMN_LINE, str(column), size, fill, "middle"))
    return Sprite(CELL, LABELS, tuple(shapes))


@lru_cache(maxsize=32)
def _row_number(row: int, finger: bool) -> Sprite:
    """Return a row's number on the left post, marked if the finger is there."""
    middle = (POST - 3) / 2
    number = Text(middle, _baseline(ROW / 2, 20), str(row), 20, INLAY, "middle", 0.4)
    if not finger:
        return Sprite(POST, ROW, (number,))
    pointer = Polygon(((middle + 8, 11), (POST, ROW / 2), (middle + 8, ROW - 11)), FINGER)
    pill = Box(middle - 13, ROW / 2 - 13, 26, 26, FINGER, 13)
    white = Text(number.x, number.y, number.text, number.size, "#ffffff", "middle", 0.4)
    return Sprite(POST, ROW, (pointer, pill, white))


def _window_light(view: AbacusView, shown: ColumnRange, layout: Layout) -> Iterator[Placed]:
    """Yield the background of the window's two slots; left of column 0 it is padding."""
    for slot in (view.finger_column - shown.first - 1, view.finger_column - shown.first):
        x, height = layout.slot_left(slot), layout.panel_height
        if slot < 0:
            yield x, layout.frame_top + WINDOW_TOP, _padding(height + BEAM - WINDOW_TOP)
        else:
            yield x, layout.panel_top, Sprite(CELL, height, (Box(0, 0, CELL, height, PANEL_LIT),))


@lru_cache(maxsize=16)
def _padding(height: int) -> Sprite:
    """Return the padding left of column 0: stripes and its name."""
    stripes = [_stripe(rise, height) for rise in range(8, CELL + height - STRIPE, 16)]
    middle = height / 2
    card = Box(4, middle - 13, CELL - 8, 26, PANEL_LIT, 6)
    label = Text(CELL / 2, _baseline(middle, 15), "padding", 15, FAINT, "middle")
    return Sprite(CELL, height, (Box(0, 0, CELL, height, PANEL_LIT), *stripes, card, label))


def _stripe(rise: int, height: int) -> Polygon:
    """Return the part of a slanted stripe, `rise` below the left corner, within the slot."""
    left, right = max(0, rise - height + STRIPE), min(CELL, rise)
    top, bottom = rise - right, rise - left
    points = ((left, bottom), (right, top), (right, top + STRIPE), (left, bottom + STRIPE))
    return Polygon(points, "#e6dfd2")


def _window_outline(view: AbacusView, shown: ColumnRange, layout: Layout) -> Placed:
    slot = view.finger_column - shown.first
    left, right = layout.slot_left(slot - 1), layout.slot_left(slot) + CELL
    width, height = right - left + 8, layout.panel_height + BEAM - WINDOW_TOP + 4
    sprite = Sprite(width, height, (Box(0, 0, width, height, None, 9, WINDOW, 5),))
    return left - 4, layout.frame_top + WINDOW_TOP, sprite


@lru_cache(maxsize=1)
def _ring() -> Sprite:
    """Return the ring around the finger's cell, with white edges for contrast."""
    shapes = (
        Box(0, 0, CELL, ROW, None, ROW / 2, "#ffffff", 8),
        Box(2, 2, CELL - 4, ROW - 4, None, ROW / 2 - 2, FINGER, 5),
    )
    return Sprite(CELL, ROW, shapes)


def _signpost(view: AbacusView, shown: ColumnRange, layout: Layout) -> Placed:
    top = layout.frame_top - FLAG
    if view.signpost in shown:
        return layout.slot_left(view.signpost - shown.first), top, _flag()
    right = view.signpost >= shown.stop
    slot = len(shown) if right else -1
    return layout.slot_left(slot), top, _hidden_flag(view.signpost, right)


@lru_cache(maxsize=1)
def _flag() -> Sprite:
    x, height = CELL // 2 - 2, FLAG + 8
    shapes = (
        Box(x - 7, height - 11, 18, 7, mixed(SIGNPOST, "#000000", 0.35), 3),
        Box(x, 10, 4, height - 16, mixed(SIGNPOST, "#000000", 0.35), 2),
        Polygon(((x + 4, 11), (x + 31, 22), (x + 4, 33)), SIGNPOST),
    )
    return Sprite(CELL, height, shapes)


@lru_cache(maxsize=256)
def _hidden_flag(column: int, right: bool) -> Sprite:
    """Return a flag for the edge that hides the signpost's column, with the column's number."""
    middle = CELL / 2
    tip, back = (CELL - 6, CELL - 16) if right else (6, 16)
    arrow = ((tip, 24), (back, 17), (back, 31))
    shapes = (
        Box(middle - 7, 10, 3, 30, mixed(SIGNPOST, "#000000", 0.35), 1.5),
        Polygon(((middle - 4, 11), (middle + 14, 19), (middle - 4, 27)), SIGNPOST),
        Polygon(arrow, SIGNPOST),
        Text(middle, 58, str(column), 17, SIGNPOST, "middle", 0.4),
    )
    return Sprite(CELL, FLAG, shapes)


def _hidden_marks(shown: ColumnRange, layout: Layout) -> Iterator[Placed]:
    top = layout.panel_top + layout.panel_height // 2 - ROW // 2
    for slot, hidden in ((-1, shown.hidden_left), (len(shown), shown.hidden_right)):
        if hidden:
            yield layout.slot_left(slot), top, _dots(hidden)


@lru_cache(maxsize=256)
def _dots(hidden: int) -> Sprite:
    """Return three dots for hidden columns, with their number."""
    dots = [Box(CELL / 2 - 3.5 + 14 * k, 8, 7, 7, FAINT, 3.5) for k in (-1, 0, 1)]
    count = [
        Text(CELL / 2, 38, f"{hidden:,}", 15, FAINT, "middle"),
        Text(CELL / 2, 54, "more", 15, FAINT, "middle"),
    ]
    return Sprite(CELL, ROW + 16, (*dots, *count))


def _header(view: AbacusView, layout: Layout) -> Iterator[Placed]:
    yield MARGIN, MARGIN, _symbol_tile(view.symbol, view.base)
    yield MARGIN + TILE + 18, MARGIN, _symbol_meaning(view)
    caption = _caption(view, layout.width - 2 * MARGIN - TILE - 18 - MEANING)
    yield layout.width - MARGIN - caption.width, MARGIN, caption


@lru_cache(maxsize=32)
def _symbol_tile(symbol: int, base: int) -> Sprite:
    """Return the symbol, large; plus and minus are drawn, since the font's minus is a hyphen."""
    middle = TILE / 2
    if symbol < base:
        tile = Box(0, 0, TILE, TILE, INK, 16)
        number = Text(middle, _baseline(middle, 72), str(symbol), 72, "#ffffff", "middle", 1)
        return Sprite(TILE, TILE, (tile, number))
    bars = [Box(middle - 28, middle - 6, 56, 12, "#ffffff", 3)]
    if symbol == base:
        bars.append(Box(middle - 6, middle - 28, 12, 56, "#ffffff", 3))
    return Sprite(TILE, TILE, (Box(0, 0, TILE, TILE, OPERATIONS[symbol - base], 16), *bars))


def _symbol_meaning(view: AbacusView) -> Sprite:
    title = "reset" if view.resetting else "digit read"
    text = f"then {view.operation_text}" if view.resetting else view.operation_text
    width = text_width(text, 22) + 32
    shapes = (
        Text(0, 34, title, 32, INK, "start", 0.5),
        Box(0, 52, width, 36, OPERATIONS[view.operation], 18),
        Text(width / 2, _baseline(69.5, 22), text, 22, "#ffffff", "middle", 0.3),
    )
    return Sprite(MEANING, TILE, shapes)


def _caption(view: AbacusView, room: int) -> Sprite:
    """Return step, action and expression, one under the other at the right edge."""
    step, action = view.step_text, view.action_text
    expression = fitted(view.expression or "", 20, room)
    # No wider than its lines, since every frame draws it again.
    width = 2 + math.ceil(
        max(text_width(step, 20), text_width(action, 26), text_width(expression, 20))
    )
    shapes = (
        Text(width, 20, step, 20, FAINT, "end"),
        Text(width, 52, action, 26, INK, "end", 0.4),
        Text(width, 84, expression, 20, FAINT, "end"),
    )
    return Sprite(width, TILE, tuple(shape for shape in shapes if shape.text))


def _readouts(view: AbacusView, layout: Layout) -> Iterator[Placed]:
    """Yield the value on a card: in the abacus's base and, if that is not 10, in decimal."""
    width = layout.width - 2 * MARGIN
    card = Sprite(width, READOUT, (Box(0, 0, width, READOUT, CARD, 14),))
    yield MARGIN, layout.readout_top, card
    # As many digits as fit, with a reserve, since an SVG may be shown in a wider font.
    room = width // (1 if view.base == 10 else 2) - 24
    limit = int(0.85 * room / text_width("0", 34))
    numeral = base_numeral(view.digits, limit)
    label = f"value in base {view.base}" + ("" if numeral.exact else f", {numeral.length_text}")
    yield MARGIN + 24, layout.readout_top, _readout(label, numeral.text)
    if view.base != 10:
        # The separators take a fifth of the room.
        decimal = decimal_numeral(view.digits, view.base, limit * 4 // 5)
        label = "value in decimal" + ("" if decimal.exact else ", about")
        yield layout.width // 2 + 12, layout.readout_top, _readout(label, decimal.text)


def _readout(label: str, numeral: str) -> Sprite:
    width = 2 + math.ceil(max(text_width(label, 17), text_width(numeral, 34)))
    shapes = (Text(0, 29, label, 17, FAINT), Text(0, 66, numeral, 34, INK, "start", 0.5))
    return Sprite(width, READOUT, shapes)
