"""The checks of arguments: what passes, as which type, and the message of what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abacus.checks import check_choice, check_integer, check_number


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_integers_become_plain(value: Any) -> None:
    assert type(check_integer("n", value, 1, 3)) is int
    assert check_integer("n", value, 3) == 3


@pytest.mark.parametrize("value", [True, np.True_, 3.0, "3", None, np.arange(2), 0, 4, 10**100])
def test_other_integers_raise_one_line(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^n=[^\n]* is not allowed: give an integer from 1 to 3$"):
        check_integer("n", value, 1, 3)


def test_integer_messages_state_the_bounds() -> None:
    with pytest.raises(ValueError, match=r"^n=0 is not allowed: give an integer of 1 or more$"):
        check_integer("n", 0, 1)
    with pytest.raises(ValueError, match=r"from 1 to 3 \(below columns=4\)$"):
        check_integer("n", 9, 1, 3, reason="below columns=4")


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
def test_numbers_become_floats(value: Any) -> None:
    number = check_number("rate", value, 0, 1)
    assert type(number) is float
    assert number == value


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), True, "0.5", None, 1j, 10**400, -0.1, 1.1]
)
def test_other_numbers_raise_one_line(value: Any) -> None:
    message = r"^rate=[^\n]* is not allowed: give a finite number of 0 or more and at most 1$"
    with pytest.raises(ValueError, match=message):
        check_number("rate", value, 0, 1)


def test_open_bounds_are_excluded() -> None:
    assert check_number("rate", 1e-9, 0, 1, low_open=True) == 1e-9
    with pytest.raises(ValueError, match=r"a finite number above 0$"):
        check_number("rate", 0, 0, low_open=True)
    with pytest.raises(ValueError, match=r"of 0 or more and below 1$"):
        check_number("rate", 1.0, 0, 1, high_open=True)
    with pytest.raises(ValueError, match=r"give a finite number$"):
        check_number("rate", float("nan"))


def test_choices() -> None:
    assert check_choice("level", "dense", ("dense", "sparse")) == "dense"
    for value in ("other", None, ["dense"]):
        with pytest.raises(ValueError, match=r"is not allowed: give one of dense, sparse$"):
            check_choice("level", value, ("dense", "sparse"))
