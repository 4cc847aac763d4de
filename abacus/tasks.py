"""Operations and numbers: expressions read into operations, values into digits and back."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EXAMPLE = "'1234+567-89'"
_EXPRESSION = re.compile(r"\s*[+-]?\s*[0-9]+(?:\s*[+-]\s*[0-9]+)*\s*")
_TERM = re.compile(r"([+-]?)\s*([0-9]+)")
#: Digits read at once: below the length at which Python refuses to convert decimal text.
_DECIMAL_CHUNK = 4000
#: Digits taken off a long value at once: each cut walks the whole value, so fewer are faster.
_CHUNK_DIGITS = 9


@dataclass(frozen=True)
class Operation:
    """One operation: add (sign 1) or subtract (sign -1) the operand."""

    sign: int
    operand: int

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise ValueError(f"sign={self.sign!r} is not allowed: give 1 or -1")
        if self.operand < 0:
            raise ValueError(f"operand={self.operand!r} is not allowed: give 0 or more")

    @property
    def symbol(self) -> str:
        return "+" if self.sign > 0 else "-"


def parse_expression(text: str) -> tuple[Operation, ...]:
    """`"3+4-2"` as operations +3, +4, -2; decimal numbers, a sign may lead, spaces around signs."""
    if not _EXPRESSION.fullmatch(text):
        shown = text if len(text) <= 60 else text[:59] + "…"
        raise ValueError(
            f"expression={shown!r} is not allowed: give decimal numbers joined by + and -, "
            f"such as {EXAMPLE}"
        )
    return tuple(
        Operation(-1 if sign == "-" else 1, _int_of_decimal(number))
        for sign, number in _TERM.findall(text)
    )


def _int_of_decimal(text: str) -> int:
    value = 0
    for start in range(0, len(text), _DECIMAL_CHUNK):
        chunk = text[start : start + _DECIMAL_CHUNK]
        value = value * 10 ** len(chunk) + int(chunk)
    return value


def digits_of(value: int, base: int) -> list[int]:
    """Digits of a value, least significant first; 0 has one digit."""
    if value < 0:
        raise ValueError(f"value={value!r} is not allowed: give 0 or more")
    if base < 2:
        raise ValueError(f"base={base!r} is not allowed: give 2 or more")
    digits = []
    chunk = base**_CHUNK_DIGITS
    while value >= chunk:
        value, low = divmod(value, chunk)
        for _ in range(_CHUNK_DIGITS):
            low, digit = divmod(low, base)
            digits.append(digit)
    while True:
        value, digit = divmod(value, base)
        digits.append(digit)
        if value == 0:
            return digits


def value_of(digits: npt.ArrayLike, base: int) -> int:
    """The value of digits given least significant first."""
    value = 0
    for digit in reversed(np.asarray(digits).tolist()):
        value = value * base + digit
    return value


def numeral(value: int, base: int) -> str:
    """The value written in a base up to 10, most significant digit first."""
    if base > 10:
        raise ValueError(f"base={base!r} is not allowed: give at most 10, one character a digit")
    return "".join(str(digit) for digit in reversed(digits_of(value, base)))
