"""Checks of arguments: each returns the value or raises a ValueError of one line."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from numbers import Real
from typing import SupportsIndex


def check_integer(
    name: str, value: object, low: int, high: int | None = None, *, reason: str = ""
) -> int:
    """Return an integer within `low` and `high` as a plain int.

    NumPy integers are accepted; booleans, floats and text are not. `reason` explains the bounds in
    the message.
    """
    number = as_integer(value)
    if number is None or number < low or (high is not None and number > high):
        allowed = f"of {low} or more" if high is None else f"from {low} to {high}"
        raise not_allowed(name, value, f"an integer {allowed}" + (f" ({reason})" if reason else ""))
    return number


def check_number(
    name: str,
    value: object,
    low: float | None = None,
    high: float | None = None,
    *,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return a finite number within `low` and `high` as a float; an open bound is excluded."""
    number = _as_float(value)
    if (
        not math.isfinite(number)
        or (low is not None and (number <= low if low_open else number < low))
        or (high is not None and (number >= high if high_open else number > high))
    ):
        bounds = []
        if low is not None:
            bounds.append(f"above {low:g}" if low_open else f"of {low:g} or more")
        if high is not None:
            bounds.append(f"below {high:g}" if high_open else f"at most {high:g}")
        allowed = " and ".join(bounds)
        raise not_allowed(name, value, f"a finite number {allowed}".rstrip())
    return number


def check_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return a text that is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise not_allowed(name, value, f"one of {', '.join(choices)}")
    return value


def not_allowed(name: str, value: object, allowed: str) -> ValueError:
    """Return the error for an argument, with what to give instead."""
    return ValueError(f"{name}={shorten(value)} is not allowed: give {allowed}")


def as_integer(value: object) -> int | None:
    """Return any integer as a plain int, which JSON can write; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # An array of several values has the method too.
        return None


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def shorten(value: object, limit: int = 40) -> str:
    """Return a value as one short line; integers too long to print are described."""
    if isinstance(value, int) and value.bit_length() > 3 * limit:
        return f"a number of {value.bit_length()} bits"
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
