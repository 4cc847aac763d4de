"""Views, numerals, text, pixels, shapes and SVG."""

from __future__ import annotations

import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from abacus.batch import AbacusBatch
from abacus.render import AbacusView, render_ansi, render_rgb, render_svg, view_of
from abacus.render.scene import (
    BACKGROUND,
    BEAD,
    BEAM,
    CELL,
    FINGER,
    FLAG,
    LABELS,
    MARGIN,
    PANEL,
    PANEL_LIT,
    POST,
    ROW,
    SIGNPOST,
    Layout,
    scene_of,
)
from abacus.render.shapes import Box, Polygon, Shape, Text, font, text_width
from abacus.render.view import base_numeral, decimal_numeral, visible_columns
from abacus.rules import AbacusConfig, Action
from abacus.tasks import numeral, value_of

START = AbacusView(
    base=5,
    digits=(0,) * 6,
    finger_column=0,
    finger_row=0,
    signpost=0,
    symbol=3,
    operation=0,
    step=0,
    expression="3+4-2",
)
CARRY = AbacusView(
    base=5,
    digits=(1, 2, 2, 3, 0, 1, 0, 0, 0, 0),
    finger_column=3,
    finger_row=2,
    signpost=1,
    symbol=4,
    operation=1,
    action="SIGNPOST_RIGHT",
    step=1042,
)
WIDE = AbacusView(
    base=3,
    digits=tuple(column % 3 for column in range(10_000)),
    finger_column=5003,
    finger_row=2,
    signpost=812,
    symbol=4,
    operation=1,
)


@st.composite
def views(draw: st.DrawFn) -> AbacusView:
    base = draw(st.integers(2, 10))
    digits = draw(st.lists(st.integers(0, base - 1), min_size=2, max_size=40))
    # Some abaci have long column numbers; their additional columns are zeros.
    digits += [0] * draw(st.sampled_from([0, 0, 0, 900, 10_000, 120_000]))
    columns = st.integers(0, len(digits) - 1)
    symbol = draw(st.integers(0, base + 1))
    return AbacusView(
        base=base,
        digits=tuple(digits),
        finger_column=draw(columns),
        finger_row=draw(st.integers(0, base - 1)),
        signpost=draw(columns),
        symbol=symbol,
        operation=draw(st.integers(0, 1)) if symbol < base else symbol - base,
        action=draw(st.sampled_from([None, *Action.__members__])),
        step=draw(st.none() | st.integers(0, 10**9)),
        expression=draw(st.none() | st.text("0123456789+-", max_size=200)),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": 1}, "base=1 is not allowed: give an integer from 2 to 10"),
        ({"base": True}, "base=True is not allowed: give an integer from 2 to 10"),
        (
            {"digits": (1,)},
            "digits=tuple of length 1 is not allowed: give a tuple of 2 to 1000000 integers",
        ),
        ({"digits": [1, 2]}, "digits=list is not allowed: give a tuple of 2 to 1000000 integers"),
        ({"digits": (0, 5)}, "digits[1]=5 is not allowed: give an integer from 0 to 4"),
        ({"digits": (0, 1, -1)}, "digits[2]=-1 is not allowed: give an integer from 0 to 4"),
        ({"digits": (True, 1)}, "digits[0]=True is not allowed: give an integer from 0 to 4"),
        ({"finger_column": 10}, "finger_column=10 is not allowed: give an integer from 0 to 9"),
        ({"finger_column": 1.0}, "finger_column=1.0 is not allowed: give an integer from 0 to 9"),
        ({"finger_row": 5}, "finger_row=5 is not allowed: give an integer from 0 to 4"),
        ({"signpost": -1}, "signpost=-1 is not allowed: give an integer from 0 to 9"),
        ({"symbol": 7}, "symbol=7 is not allowed: give an integer from 0 to 6"),
        ({"operation": 2}, "operation=2 is not allowed: give an integer from 0 to 1"),
        (
            {"symbol": 5, "operation": 1},
            "operation=1 is not allowed with symbol=5: give 0, the operation which that symbol "
            "announces",
        ),
        (
            {"action": "JUMP"},
            "action='JUMP' is not allowed: give None or one of LEFT, RIGHT, UP, DOWN, "
            "SIGNPOST_LEFT, SIGNPOST_RIGHT, SLIDE, SUBMIT",
        ),
        ({"step": -1}, "step=-1 is not allowed: give an integer of 0 or more"),
        (
            {"expression": "1+\n2"},
            r"expression='1+\n2' is not allowed: give None or printable text",
        ),
    ],
)
def test_impossible_views_raise_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        replace(CARRY, **changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("render", [render_ansi, render_rgb, render_svg])
@pytest.mark.parametrize("max_columns", [2, True, 3.5])
def test_too_few_columns_raise(render: Any, max_columns: Any) -> None:
    with pytest.raises(ValueError, match=f"max_columns={max_columns} is not allowed: .* 3 or more"):
        render(CARRY, max_columns=max_columns)


@pytest.mark.parametrize("scale", [0, 5, 1.5, True])
def test_impossible_scales_raise(scale: Any) -> None:
    with pytest.raises(ValueError, match=f"scale={scale} is not allowed: give an integer from 1"):
        render_rgb(CARRY, scale=scale)


@dataclass(frozen=True)
class FakeBatch:
    config: AbacusConfig
    digits: npt.NDArray[Any]
    scalars: npt.NDArray[Any]


def test_view_of_one_row_of_a_batch() -> None:
    names = ("finger_column", "finger_row", "signpost", "symbol", "operation", "previous_action")
    scalars = np.zeros(2, [(name, np.int32) for name in names] + [("steps", np.int64)])
    scalars[1] = (3, 2, 1, 4, 1, Action.SIGNPOST_RIGHT, 1042)
    digits = np.array([[0] * 10, CARRY.digits], np.uint8)
    assert view_of(FakeBatch(AbacusConfig(), digits, scalars), 1) == CARRY


def test_view_of_a_real_batch_is_a_snapshot() -> None:
    config = AbacusConfig(columns=6, expression="3 +\n4-2", on_error="continue")
    batch = AbacusBatch(config, 2, autoreset=False)
    batch.reset(seed=1)
    before = view_of(batch, 1)
    assert before == START
    for action in (Action.DOWN, Action.SLIDE, Action.SIGNPOST_RIGHT):
        batch.step(np.full(2, action))
    assert before == START
    moved = replace(START, digits=(1, 0, 0, 0, 0, 0), finger_row=1, signpost=1)
    assert view_of(batch, 1) == replace(moved, action="SIGNPOST_RIGHT", step=3)


@given(views(), st.integers(3, 20))
def test_scroll_shows_the_window_and_the_next_column(view: AbacusView, most: int) -> None:
    shown = visible_columns(view, most)
    assert len(shown) == min(most, view.columns)
    assert shown.first >= 0
    assert shown.stop <= view.columns
    for column in (view.finger_column - 1, view.finger_column, view.finger_column + 1):
        assert column in shown or not 0 <= column < view.columns


def test_scroll_stands_still_within_a_page() -> None:
    firsts = [visible_columns(replace(WIDE, finger_column=c), 14).first for c in range(40)]
    assert firsts == [0] * 13 + [12] * 12 + [24] * 12 + [36] * 3


@given(
    st.integers(2, 10), st.lists(st.integers(0, 1), min_size=1, max_size=300), st.integers(5, 40)
)
def test_base_numeral_keeps_both_ends(base: int, digits: list[int], limit: int) -> None:
    full = numeral(value_of(digits, base), base)
    short = base_numeral(digits, limit)
    assert short.digits == len(full)
    assert short.exact == (len(full) <= limit)
    if short.exact:
        assert short.text == full
    else:
        head, tail = short.text.split("…")
        assert len(short.text) == limit
        assert full.startswith(head)
        assert full.endswith(tail)
        assert 0 <= len(head) - len(tail) <= 1


@given(st.integers(2, 10), st.lists(st.integers(0, 1), min_size=1, max_size=3000))
def test_decimal_numeral_is_exact_or_rounded(base: int, digits: list[int]) -> None:
    value = value_of(digits, base)
    short = decimal_numeral(digits, base, 20)
    assert short.exact == (value < 10**20)
    if short.exact:
        assert short.text == f"{value:,}"
        return
    mantissa, exponent = short.text.split("e+")
    assert re.fullmatch(r"[1-9]\.[0-9]{2}", mantissa)
    # Half a unit of the last digit, and a margin for the rounding of the logarithm.
    rounded = int(mantissa.replace(".", "")) * 10 ** (int(exponent) - 2)
    assert abs(rounded - value) * 1999 <= 10 ** int(exponent) * 10


def test_decimal_numeral_rounds_up_to_the_next_power() -> None:
    assert decimal_numeral([0] * 26 + [6, 9, 9, 9], 10, 20).text == "1.00e+30"


def test_numerals_of_the_widest_abacus() -> None:
    digits = [4] * 1_000_000
    assert base_numeral(digits, 9).text == "4444…4444"
    assert base_numeral(digits, 9).length_text == "1,000,000 digits"
    exponent = math.floor(1_000_000 * math.log10(5))
    assert decimal_numeral(digits, 5, 20).text.endswith(f"e+{exponent}")


START_TEXT = """\
         step 0 · start · 3+4-2

               ⚑
         ┏━━━┯━━━┱───────────────────╮
   place ┃░░░│ ¼ ┃ ½   ¾   ¼   ½   ¾ │
       0 ┃░░░│[┆]┃ ┆   ┆   ┆   ┆   ┆ │
       1 ┃░░░│ ● ┃ ●   ●   ●   ●   ● │
       2 ┃░░░│ ● ┃ ●   ●   ●   ●   ● │
       3 ┃░░░│ ● ┃ ●   ●   ●   ●   ● │
       4 ┃░░░│ ● ┃ ●   ●   ●   ●   ● │
         ┗━━━┷━━━┹───────────────────╯
   digit       0   0   0   0   0   0
  column       0   1   2   3   4   5

  symbol 3   digit read, adding
   value 0  base 5  =  0"""

CARRY_TEXT = """\
         step 1,042 · signpost right

                   ⚑
             ╭───────┲━━━━━━━┱───────────────────────╮
   place     │ ¼   ½ ┃ ¾   ¼ ┃ ½   ¾   ¼   ½   ¾   ¼ │
       0     │ ●   ● ┃ ●   ● ┃ ┆   ●   ┆   ┆   ┆   ┆ │
       1     │ ┆   ● ┃ ●   ● ┃ ●   ┆   ●   ●   ●   ● │
       2     │ ●   ┆ ┃ ┆  [●]┃ ●   ●   ●   ●   ●   ● │
       3     │ ●   ● ┃ ●   ┆ ┃ ●   ●   ●   ●   ●   ● │
       4     │ ●   ● ┃ ●   ● ┃ ●   ●   ●   ●   ●   ● │
             ╰───────┺━━━━━━━┹───────────────────────╯
   digit       1   2   2   3   0   1   0   0   0   0
  column       0   1   2   3   4   5   6   7   8   9

  symbol 4   digit read, subtracting
   value 103221  base 5  =  3,561"""

# The digits repeat 2, 1, 0 from the highest on: 3**9998 * (2 + 1/3) * 27/26 is 4.39e+4770.
WIDE_TEXT = """\
             ◂ ⚑ 812
             ╭───────┲━━━━━━━┱───────╮
   place     ┊ ¾   ¼ ┃ ½   ¾ ┃ ¼   ½ ┊
       0     ┊ ●   ┆ ┃ ●   ● ┃ ┆   ● ┊
       1     ┊ ●   ● ┃ ┆   ● ┃ ●   ┆ ┊
       2     ┊ ┆   ● ┃ ●  [┆]┃ ●   ● ┊
             ╰───────┺━━━━━━━┹───────╯
   digit   …   2   0   1   2   0   1   …
  column   …     5001    5003    5005  …

  symbol -   reset, then subtracting
   value 2102102102102102…210210210210210 (9,999 digits)  base 3  ≈  4.39e+4770"""


def test_text_at_the_start_shows_the_padding() -> None:
    assert render_ansi(START) == START_TEXT


def test_text_shows_beads_finger_signpost_and_window() -> None:
    assert render_ansi(CARRY) == CARRY_TEXT


def test_text_of_a_wide_abacus_scrolls() -> None:
    assert render_ansi(WIDE, max_columns=6) == WIDE_TEXT


def test_text_names_the_operation_that_a_symbol_announces() -> None:
    assert "symbol +   reset, then adding" in render_ansi(replace(CARRY, symbol=5, operation=0))
    assert "symbol -   reset, then subtracting" in render_ansi(replace(CARRY, symbol=6))


def test_text_in_base_ten_shows_the_value_once() -> None:
    assert render_ansi(replace(CARRY, base=10)).endswith("value 103221  base 10")


def _display_width(line: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in line)


def _grid_lines(text: str) -> list[str]:
    """Return the lines from the frame's upper edge to its lower edge."""
    lines = text.split("\n")
    top = next(k for k, line in enumerate(lines) if re.search("[╭┏]", line))
    bottom = next(k for k, line in enumerate(lines) if re.search("[╰┗]", line))
    return lines[top : bottom + 1]


@settings(deadline=None)
@given(views(), st.integers(3, 20))
def test_text_of_any_view_is_aligned_and_correct(view: AbacusView, most: int) -> None:
    text = render_ansi(view, max_columns=most)
    grid = _grid_lines(text)
    assert len({_display_width(line) for line in grid}) == 1
    assert len(grid) == view.base + 3
    assert "\x1b" not in text
    shown = visible_columns(view, most)
    rows = grid[2:-1]
    for slot, column in enumerate(range(shown.first, shown.stop)):
        cells = [row[14 + 4 * slot : 17 + 4 * slot] for row in rows]
        assert [cell[1] for cell in cells].index("┆") == view.digits[column]
        assert [cell[1] for cell in cells].count("●") == view.base - 1
        fingers = [row for row, cell in enumerate(cells) if cell[0] == "["]
        assert fingers == ([view.finger_row] if column == view.finger_column else [])
    assert all(row.count("┃") == 2 for row in rows)


@settings(deadline=None)
@given(st.integers(0, 9_999), st.integers(3, 20))
def test_text_numbers_the_fingers_column_anywhere(column: int, most: int) -> None:
    lines = render_ansi(replace(WIDE, finger_column=column), max_columns=most).split("\n")
    finger = next(line for line in lines if "[" in line).index("[") + 1
    numbers = next(line for line in lines if line.startswith("  column"))
    spans = {match.group(): match.span() for match in re.finditer("[0-9]+", numbers)}
    start, stop = spans[str(column)]
    assert start <= finger < stop


@pytest.mark.parametrize(("column", "line"), [(9_999, "◂ ⚑ 812"), (0, "812 ⚑ ▸")])
def test_text_points_to_a_hidden_signpost(column: int, line: str) -> None:
    first = render_ansi(replace(WIDE, finger_column=column)).split("\n")[0]
    assert first.strip() == line


@given(views())
@settings(deadline=None)
def test_colour_adds_nothing_but_escape_codes(view: AbacusView) -> None:
    coloured = render_ansi(view, colour=True)
    assert coloured.count("\x1b[0m") > view.base
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == render_ansi(view)


Pixels = npt.NDArray[np.uint8]
LAYOUT = Layout(10, 5)


def _rgb(colour: str) -> list[int]:
    return list(bytes.fromhex(colour[1:]))


def _changed(one: Pixels, other: Pixels) -> npt.NDArray[np.bool_]:
    changed: npt.NDArray[np.bool_] = (one != other).any(axis=2)
    return changed


def test_pixels_have_one_size_for_a_base_and_a_number_of_columns() -> None:
    states = [
        CARRY,
        replace(CARRY, finger_column=0, signpost=9),
        replace(CARRY, symbol=6, action=None, step=None),
        replace(CARRY, digits=(4,) * 10, step=10**9, expression="1234567890+" * 50 + "1"),
        replace(CARRY, digits=(3,) * 5000, finger_column=4000, signpost=17),
        replace(CARRY, digits=(3,) * 200, finger_column=50, signpost=170),
    ]
    for view in states:
        pixels = render_rgb(view, max_columns=10)
        assert pixels.shape == (LAYOUT.height, LAYOUT.width, 3)
        assert pixels.dtype == np.uint8
    assert render_rgb(CARRY, scale=2).shape == (2 * LAYOUT.height, 2 * LAYOUT.width, 3)


def test_pixels_are_writable_copies() -> None:
    first = render_rgb(CARRY)
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(render_rgb(CARRY), kept)


def test_pixels_change_where_the_finger_moves_and_nowhere_else() -> None:
    """A move down changes two cells of the finger's column and two row numbers."""
    changed = _changed(render_rgb(CARRY), render_rgb(replace(CARRY, finger_row=3)))
    allowed = np.zeros_like(changed)
    for row in (2, 3):
        x, y = LAYOUT.slot_left(3), LAYOUT.row_top(row)
        assert changed[y : y + ROW, x : x + CELL].any()
        assert changed[y : y + ROW, LAYOUT.frame_left : LAYOUT.frame_left + POST].any()
        allowed[y : y + ROW, x : x + CELL] = True
        allowed[y : y + ROW, LAYOUT.frame_left : LAYOUT.frame_left + POST] = True
    assert not (changed & ~allowed).any()


def test_pixels_change_in_the_columns_that_enter_and_leave_the_window() -> None:
    changed = _changed(render_rgb(CARRY), render_rgb(replace(CARRY, finger_column=6)))
    by_slot = [
        changed[:, LAYOUT.slot_left(slot) + 8 : LAYOUT.slot_left(slot) + CELL - 8].any()
        for slot in range(10)
    ]
    assert by_slot == [False, False, True, True, False, True, True, False, False, False]
    assert not changed[: LAYOUT.frame_top].any()
    assert not changed[LAYOUT.readout_top :].any()


def test_pixels_of_a_signpost_move_change_above_the_frame_only() -> None:
    changed = _changed(render_rgb(CARRY), render_rgb(replace(CARRY, signpost=8)))
    rows, columns = np.nonzero(changed)
    assert rows.min() >= LAYOUT.frame_top - FLAG
    assert rows.max() < LAYOUT.panel_top
    slots = {int(x - LAYOUT.slot_left(0)) // CELL for x in columns}
    assert slots == {1, 8}


def _cell_pixel(pixels: Pixels, slot: int, row: int) -> list[int]:
    """Return a pixel of a cell beside its rod, below the highlight of a bead."""
    y, x = LAYOUT.row_top(row) + ROW // 2 + 4, LAYOUT.slot_left(slot) + 14
    found: list[int] = pixels[y, x].tolist()
    return found


def test_pixels_show_beads_gaps_and_a_lit_window() -> None:
    pixels = render_rgb(replace(CARRY, finger_row=4))
    for slot, digit in enumerate(CARRY.digits):
        lit = slot in (2, 3)
        gap = _cell_pixel(pixels, slot, digit)
        assert gap == _rgb(PANEL_LIT if lit else PANEL)
        beads = [_cell_pixel(pixels, slot, row) for row in range(5) if row != digit]
        assert all((bead == _rgb(BEAD)) == lit for bead in beads)
        assert all(bead != gap for bead in beads)


def test_pixels_show_the_padding_only_with_the_finger_on_column_zero() -> None:
    at_zero, beside = (render_rgb(replace(CARRY, finger_column=column)) for column in (0, 1))
    x, y = LAYOUT.slot_left(-1), LAYOUT.panel_top
    slot = np.s_[y + 4 : y + LAYOUT.panel_height - 4, x + 4 : x + CELL - 4]
    assert (beside[slot] == _rgb(BACKGROUND)).all()
    assert (at_zero[slot] == _rgb(PANEL_LIT)).all(axis=2).mean() > 0.3
    assert not (at_zero[slot] == _rgb(BACKGROUND)).all(axis=2).any()


@pytest.mark.parametrize("column", [0, 1, 12, 13, 5003, 9_986, 9_998, 9_999])
def test_pixels_show_the_finger_anywhere_on_a_wide_abacus(column: int) -> None:
    pixels = render_rgb(replace(WIDE, finger_column=column))
    layout = Layout(14, 3)
    panel = pixels[layout.panel_top : layout.panel_top + layout.panel_height]
    ring = (panel[:, layout.slot_left(0) :] == _rgb(FINGER)).all(axis=2)
    assert 300 < ring.sum() < CELL * ROW / 2
    labels = pixels[layout.frame_bottom : layout.frame_bottom + LABELS]
    assert (labels == _rgb(FINGER)).all(axis=2).sum() > 200


@pytest.mark.parametrize(("signpost", "slot"), [(0, -1), (9_999, 14), (5000, 8)])
def test_pixels_show_the_signpost_or_where_it_is(signpost: int, slot: int) -> None:
    layout = Layout(14, 3)
    assert visible_columns(WIDE, 14).first == 4992
    pixels = render_rgb(replace(WIDE, signpost=signpost))
    band = pixels[layout.frame_top - FLAG : layout.frame_top]
    _, columns = np.nonzero((band == _rgb(SIGNPOST)).all(axis=2))
    assert layout.slot_left(slot) <= columns.min()
    assert columns.max() < layout.slot_left(slot) + CELL


def _bounds(shape: Shape) -> tuple[float, float, float, float]:
    match shape:
        case Box():
            return shape.x, shape.y, shape.x + shape.width, shape.y + shape.height
        case Polygon():
            xs, ys = zip(*shape.points, strict=True)
            return min(xs), min(ys), max(xs), max(ys)
        case Text():
            width = text_width(shape.text, shape.size)
            share = {"start": 0.0, "middle": 0.5, "end": 1.0}[shape.anchor]
            left = shape.x - share * width
            # Capitals above the baseline, descenders below it.
            return left, shape.y - 0.72 * shape.size, left + width, shape.y + 0.2 * shape.size


@settings(deadline=None, max_examples=50)
@given(views(), st.integers(3, 16))
@example(replace(START, base=8), 3)
@example(WIDE, 14)
def test_shapes_stay_in_their_sprites_and_sprites_in_the_picture(
    view: AbacusView, most: int
) -> None:
    """A sprite clips pixels but not vectors, so shapes must stay inside."""
    scene = scene_of(view, most)
    for x, y, sprite in scene.sprites:
        assert 0 <= x <= x + sprite.width <= scene.width
        assert 0 <= y <= y + sprite.height <= scene.height
        for shape in sprite.shapes:
            left, top, right, bottom = _bounds(shape)
            assert left >= 0, shape
            assert top >= 0, shape
            assert right <= sprite.width, shape
            assert bottom <= sprite.height, shape


@settings(deadline=None, max_examples=50)
@given(views())
@example(WIDE)
@example(replace(CARRY, digits=(4,) * 24))
@example(replace(CARRY, digits=(4,) * 120_000, finger_column=110_000))
def test_texts_do_not_touch(view: AbacusView) -> None:
    """Texts on one line keep a distance, also long expressions and numerals."""
    boxes = []
    for x, y, sprite in scene_of(view).sprites:
        for shape in sprite.shapes:
            if isinstance(shape, Text):
                left, top, right, bottom = _bounds(shape)
                boxes.append((x + left, y + top, x + right, y + bottom, shape.text))
    for k, one in enumerate(boxes):
        assert one[0] >= MARGIN - 1
        for other in boxes[:k]:
            apart = one[2] + 6 <= other[0] or other[2] + 6 <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1], (one, other)


def test_font_has_every_glyph_that_is_drawn() -> None:
    missing = bytes(font(40).getmask("\uffff"))
    views_drawn = [START, CARRY, WIDE, replace(WIDE, finger_column=9_999, expression="1+2-3" * 99)]
    views_drawn += [replace(CARRY, action=name) for name in Action.__members__]
    texts = {
        shape.text
        for view in views_drawn
        for _, _, sprite in scene_of(view).sprites
        for shape in sprite.shapes
        if isinstance(shape, Text)
    }
    drawn = set("".join(texts)) - {" "}
    assert {"…", "0", "9", "+", "-", ","} <= drawn
    assert not {glyph for glyph in drawn if bytes(font(40).getmask(glyph)) == missing}


SVG = "{http://www.w3.org/2000/svg}"


@settings(deadline=None, max_examples=50)
@given(views())
def test_svg_is_the_scene_as_well_formed_xml(view: AbacusView) -> None:
    root = ET.fromstring(render_svg(view))
    scene = scene_of(view)
    assert root.tag == f"{SVG}svg"
    assert root.get("viewBox") == f"0 0 {scene.width} {scene.height}"
    groups = root.findall(f"{SVG}g")
    assert [len(group) for group in groups] == [len(s.shapes) for _, _, s in scene.sprites]
    texts = [s.text for _, _, sprite in scene.sprites for s in sprite.shapes if isinstance(s, Text)]
    assert [element.text for element in root.iter(f"{SVG}text")] == texts


def test_svg_has_a_descriptive_title() -> None:
    root = ET.fromstring(render_svg(CARRY))
    assert root.findtext(f"{SVG}title") == (
        "Abacus of 10 columns in base 5: digit 4 read, subtracting, finger on column 3 and row 2, "
        "signpost on column 1"
    )
    texts = [element.text for element in root.iter(f"{SVG}text")]
    for text in ("digit read", "subtracting", "step 1,042", "signpost right", "103221", "3,561"):
        assert text in texts


def test_svg_escapes_captions() -> None:
    root = ET.fromstring(render_svg(replace(CARRY, expression='<b>&"')))
    assert '<b>&"' in [element.text for element in root.iter(f"{SVG}text")]


def test_svg_places_the_window_where_pixels_do() -> None:
    root = ET.fromstring(render_svg(CARRY))
    outline = next(
        group
        for group in root.findall(f"{SVG}g")
        if any(rect.get("fill") == "none" and rect.get("stroke") != FINGER for rect in group)
        and len(group) == 1
    )
    transform = outline.get("transform")
    assert transform == f"translate({LAYOUT.slot_left(2) - 4} {LAYOUT.panel_top - BEAM + 2})"
