"""The five levels of supervision, worked out by hand: what each step of a short episode pays.

A table has a row for each action and, behind it, what that step pays at each of the levels, in
the order of LEVELS. Where an episode has ended at a level, its rows are OVER. All numbers are
in base 5, and abaci are written least significant digit first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action, End


@dataclass(frozen=True)
class Pay:
    """Return reward terms in the order step, finger, signpost, slide, submit, wrong."""

    terms: tuple[float, float, float, float, float, float]
    reward: float


STEP = Pay((-0.05, 0.0, 0.0, 0.0, 0.0, 0.0), -0.05)
NEAR = Pay((-0.05, 0.10, 0.0, 0.0, 0.0, 0.0), 0.05)
AWAY = Pay((-0.05, -0.10, 0.0, 0.0, 0.0, 0.0), -0.15)
SIGN = Pay((-0.05, 0.0, 1.0, 0.0, 0.0, 0.0), 0.95)
SLID = Pay((-0.05, 0.0, 0.0, 1.0, 0.0, 0.0), 0.95)
SUBM = Pay((-0.05, 0.0, 0.0, 0.0, 1.0, 0.0), 0.95)
FAIL = Pay((-0.05, 0.0, 0.0, 0.0, 0.0, -1.0), -1.05)
OVER = None

LEFT, RIGHT, UP, DOWN = Action.LEFT, Action.RIGHT, Action.UP, Action.DOWN
SIGNPOST_LEFT, SIGNPOST_RIGHT = Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT
SLIDE, SUBMIT = Action.SLIDE, Action.SUBMIT

LEVELS = ("dense", "no_of", "no_of_sp", "no_of_sp_ms", "answer_only")
Row = tuple[Action, Pay | None, Pay | None, Pay | None, Pay | None, Pay | None]
at_every_level = pytest.mark.parametrize("level", LEVELS)


def play(level: str, rows: list[Row], **settings: str | int | None) -> AbacusBatch:
    """Play a table at a level, compare every step with its row, and return the abacus."""
    config = AbacusConfig.from_dict({"base": 5, "columns": 4, "reward": level, **settings})
    batch = AbacusBatch(config, num_envs=1, autoreset=False)
    batch.reset(0)
    for number, (action, *pays) in enumerate(rows, start=1):
        pay = pays[LEVELS.index(level)]
        if pay is None:
            break
        step = f"step {number}, {action.name}"
        assert batch.ends[0] == End.NONE, f"already over before {step}"
        batch.step(np.array([action]))
        assert batch.terms[0].tolist() == pytest.approx(list(pay.terms), abs=1e-6), step
        assert batch.reward[0] == pytest.approx(pay.reward, abs=1e-6), step
    return batch


def assert_end(batch: AbacusBatch, end: End) -> None:
    truncations = (End.LIMIT, End.BUDGET)
    assert End(batch.ends[0]) is end
    assert batch.truncated[0] == (end in truncations)
    assert batch.terminated[0] == (end is not End.NONE and end not in truncations)


def expect_ends(batch: AbacusBatch, level: str, *ends: End) -> None:
    """Return the end at each level, in the order of LEVELS."""
    assert_end(batch, ends[LEVELS.index(level)])


# 21 is the digits 1, 4; after -2 the abacus must show 4, 3, which takes a borrow.
WITHOUT_MISTAKE: list[Row] = [
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    # Digit 4 of 21: the signpost and the finger belong on column 1, the finger on row 4.
    (SIGNPOST_RIGHT, SIGN, SIGN, STEP, STEP, STEP),
    (RIGHT, NEAR, STEP, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    # The symbol of -2 asks for the reset.
    (SIGNPOST_LEFT, SIGN, SIGN, STEP, STEP, STEP),
    (LEFT, NEAR, STEP, STEP, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    # Digit 2: 1 - 2 is 4 and a borrow, which turns the 4 of column 1 into a 3.
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    (UP, NEAR, STEP, STEP, STEP, STEP),
    (RIGHT, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    # The last `+`: its reset is only a submit, since the signpost never left column 0.
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
]


@at_every_level
@pytest.mark.parametrize("on_error", ["terminate", "continue"])
def test_21_minus_2_without_a_mistake(level: str, on_error: str) -> None:
    batch = play(level, WITHOUT_MISTAKE, expression="21-2", on_error=on_error)
    assert_end(batch, End.EXPRESSION)
    assert batch.digits[0].tolist() == [4, 3, 0, 0]
    assert batch.scalars[0]["operations_done"] == 2
    assert batch.scalars[0]["operations_solved"] == 2
    assert batch.scalars[0]["steps"] == 19
    # 32 at the start, for each of four right slides, and for each of two right resets.
    assert batch.scalars[0]["budget"] == 32 * 7


# Detours of the finger cost only at `dense`, and illegal actions cost only the step.
DETOURS: list[Row] = [
    (LEFT, STEP, STEP, STEP, STEP, STEP),
    (UP, STEP, STEP, STEP, STEP, STEP),
    (SIGNPOST_LEFT, STEP, STEP, STEP, STEP, STEP),
    (SLIDE, STEP, STEP, STEP, STEP, STEP),
    # The finger belongs on column 0, row 3.
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (UP, AWAY, STEP, STEP, STEP, STEP),
    (RIGHT, AWAY, STEP, STEP, STEP, STEP),
    (LEFT, NEAR, STEP, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    # All columns are right and the signpost is in place: the finger belongs on column 1, any row.
    (DOWN, STEP, STEP, STEP, STEP, STEP),
    (DOWN, STEP, STEP, STEP, STEP, STEP),
    (RIGHT, NEAR, STEP, STEP, STEP, STEP),
    (RIGHT, AWAY, STEP, STEP, STEP, STEP),
    (LEFT, NEAR, STEP, STEP, STEP, STEP),
    (LEFT, AWAY, STEP, STEP, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    # On the `+` the finger belongs on column 0, on any row.
    (LEFT, STEP, STEP, STEP, STEP, STEP),
    (RIGHT, AWAY, STEP, STEP, STEP, STEP),
    (UP, STEP, STEP, STEP, STEP, STEP),
    (LEFT, NEAR, STEP, STEP, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    # 3 + 4 is 2 and a carry: column 0 needs row 2, and its gap is at the finger.
    (SLIDE, STEP, STEP, STEP, STEP, STEP),
    (UP, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    # The carry: column 1, row 1.
    (UP, NEAR, STEP, STEP, STEP, STEP),
    (RIGHT, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
]


@at_every_level
@pytest.mark.parametrize("on_error", ["terminate", "continue"])
def test_3_plus_4_with_detours_and_illegal_actions(level: str, on_error: str) -> None:
    batch = play(level, DETOURS, expression="3+4", on_error=on_error)
    assert_end(batch, End.EXPRESSION)
    assert batch.digits[0].tolist() == [2, 1, 0, 0]
    assert batch.scalars[0]["illegal_actions"] == 7
    assert batch.scalars[0]["operations_solved"] == 2
    # 32 at the start, for each of three right slides, and for each of two right resets.
    assert batch.scalars[0]["budget"] == 32 * 6


@at_every_level
def test_wrong_signpost_move_ends_if_its_module_is_active(level: str) -> None:
    rows: list[Row] = [
        (SIGNPOST_RIGHT, FAIL, FAIL, STEP, STEP, STEP),
        (SIGNPOST_RIGHT, OVER, OVER, STEP, STEP, STEP),
        (SIGNPOST_LEFT, OVER, OVER, STEP, STEP, STEP),
    ]
    batch = play(level, rows, expression="3+4")
    wrong = End.WRONG_SIGNPOST
    expect_ends(batch, level, wrong, wrong, End.NONE, End.NONE, End.NONE)


@at_every_level
def test_wrong_signpost_move_on_the_way_to_the_second_digit(level: str) -> None:
    rows: list[Row] = [
        *WITHOUT_MISTAKE[:4],
        (SIGNPOST_LEFT, FAIL, FAIL, STEP, STEP, STEP),
        (SIGNPOST_RIGHT, OVER, OVER, STEP, STEP, STEP),
    ]
    batch = play(level, rows, expression="21-2")
    wrong = End.WRONG_SIGNPOST
    expect_ends(batch, level, wrong, wrong, End.NONE, End.NONE, End.NONE)


@at_every_level
def test_wrong_slide_ends_except_at_answer_only(level: str) -> None:
    rows: list[Row] = [
        (DOWN, NEAR, STEP, STEP, STEP, STEP),
        (SLIDE, FAIL, FAIL, FAIL, FAIL, STEP),
        # The gap is on row 1 now; a right slide pays nothing at this level.
        (DOWN, OVER, OVER, OVER, OVER, STEP),
        (DOWN, OVER, OVER, OVER, OVER, STEP),
        (SLIDE, OVER, OVER, OVER, OVER, STEP),
        (SUBMIT, OVER, OVER, OVER, OVER, SUBM),
    ]
    batch = play(level, rows, expression="3+4")
    wrong = End.WRONG_SLIDE
    expect_ends(batch, level, wrong, wrong, wrong, wrong, End.NONE)


@at_every_level
def test_slide_above_a_wrong_column_is_wrong(level: str) -> None:
    """The carry of 3 + 4 is written before column 0."""
    rows: list[Row] = [
        (RIGHT, AWAY, STEP, STEP, STEP, STEP),
        (DOWN, NEAR, STEP, STEP, STEP, STEP),
        (SLIDE, FAIL, FAIL, FAIL, FAIL, STEP),
    ]
    batch = play(level, rows, start=3, expression="4")
    wrong = End.WRONG_SLIDE
    expect_ends(batch, level, wrong, wrong, wrong, wrong, End.NONE)


@at_every_level
def test_slide_on_an_operation_symbol_is_wrong(level: str) -> None:
    rows: list[Row] = [
        *WITHOUT_MISTAKE[:3],
        (UP, STEP, STEP, STEP, STEP, STEP),
        (SLIDE, FAIL, FAIL, FAIL, FAIL, STEP),
    ]
    batch = play(level, rows, expression="1+2")
    wrong = End.WRONG_SLIDE
    expect_ends(batch, level, wrong, wrong, wrong, wrong, End.NONE)


@at_every_level
def test_submit_before_writing_ends_at_every_level(level: str) -> None:
    rows: list[Row] = [(SUBMIT, FAIL, FAIL, FAIL, FAIL, FAIL)]
    batch = play(level, rows, expression="3+4")
    assert_end(batch, End.WRONG_SUBMIT)


@at_every_level
def test_submit_without_the_carry_ends_at_every_level(level: str) -> None:
    rows: list[Row] = [
        # 3 + 4: column 0 needs row 2.
        (DOWN, NEAR, STEP, STEP, STEP, STEP),
        (DOWN, NEAR, STEP, STEP, STEP, STEP),
        (SLIDE, SLID, SLID, SLID, STEP, STEP),
        (SUBMIT, FAIL, FAIL, FAIL, FAIL, FAIL),
    ]
    batch = play(level, rows, start=3, expression="4")
    assert_end(batch, End.WRONG_SUBMIT)


@at_every_level
def test_submit_with_the_signpost_elsewhere_is_wrong(level: str) -> None:
    rows: list[Row] = [
        (DOWN, NEAR, STEP, STEP, STEP, STEP),
        (SLIDE, SLID, SLID, SLID, STEP, STEP),
        (SIGNPOST_RIGHT, FAIL, FAIL, STEP, STEP, STEP),
        (SUBMIT, OVER, OVER, FAIL, FAIL, FAIL),
    ]
    batch = play(level, rows, expression="1+2")
    signpost, submit = End.WRONG_SIGNPOST, End.WRONG_SUBMIT
    expect_ends(batch, level, signpost, signpost, submit, submit, submit)


@at_every_level
def test_reset_submitted_before_the_signpost_is_back_is_wrong(level: str) -> None:
    rows: list[Row] = [*WITHOUT_MISTAKE[:10], (SUBMIT, FAIL, FAIL, FAIL, FAIL, FAIL)]
    batch = play(level, rows, expression="21-2")
    assert_end(batch, End.WRONG_SUBMIT)


# Every kind of mistake in +3, then +4 from the resulting 1: 1 + 4 is 0 and a carry.
MISTAKES: list[Row] = [
    (SIGNPOST_LEFT, STEP, STEP, STEP, STEP, STEP),
    (SIGNPOST_RIGHT, FAIL, FAIL, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, FAIL, FAIL, FAIL, FAIL, STEP),
    (SUBMIT, FAIL, FAIL, FAIL, FAIL, FAIL),
    # The symbol of +4 is shown, and 1 is its first operand, whatever is slid now.
    (SLIDE, STEP, STEP, STEP, STEP, STEP),
    (DOWN, STEP, STEP, STEP, STEP, STEP),
    (SLIDE, FAIL, FAIL, FAIL, FAIL, STEP),
    (SIGNPOST_RIGHT, FAIL, FAIL, STEP, STEP, STEP),
    (SIGNPOST_LEFT, SIGN, SIGN, STEP, STEP, STEP),
    (SUBMIT, FAIL, FAIL, FAIL, FAIL, FAIL),
    # Digit 4: column 0 shows 2 and needs row 0.
    (SIGNPOST_LEFT, SIGN, SIGN, STEP, STEP, STEP),
    (UP, NEAR, STEP, STEP, STEP, STEP),
    (UP, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    # The carry: column 1, row 1.
    (RIGHT, NEAR, STEP, STEP, STEP, STEP),
    (RIGHT, AWAY, STEP, STEP, STEP, STEP),
    (LEFT, NEAR, STEP, STEP, STEP, STEP),
    (DOWN, NEAR, STEP, STEP, STEP, STEP),
    (SLIDE, SLID, SLID, SLID, STEP, STEP),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
    (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM),
]


@at_every_level
def test_mistakes_cost_but_do_not_end_in_continue_mode(level: str) -> None:
    batch = play(level, MISTAKES, expression="3+4", on_error="continue")
    assert_end(batch, End.EXPRESSION)
    assert batch.digits[0].tolist() == [0, 1, 0, 0]
    assert batch.scalars[0]["operations_done"] == 2
    assert batch.scalars[0]["operations_solved"] == 1
    assert batch.scalars[0]["illegal_actions"] == 2
    # 32 at the start, for each of two right slides, and for the one right reset.
    assert batch.scalars[0]["budget"] == 32 * 4


@at_every_level
def test_idling_ends_with_the_budget(level: str) -> None:
    rows: list[Row] = [(LEFT, STEP, STEP, STEP, STEP, STEP)] * 32
    batch = play(level, rows, expression="3+4")
    assert_end(batch, End.BUDGET)
    assert batch.scalars[0]["illegal_actions"] == 32


@at_every_level
def test_limit_on_operations_ends_with_the_reset(level: str) -> None:
    rows = [*WITHOUT_MISTAKE[:3], (SUBMIT, SUBM, SUBM, SUBM, SUBM, SUBM)]
    batch = play(level, rows, expression="1+2", max_operations=1)
    assert_end(batch, End.LIMIT)
    assert batch.scalars[0]["operations_solved"] == 1
