"""Operations and numbers: parse expressions, convert values to digits and back."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abacus.checks import check_integer, not_allowed

EXAMPLE = "'1234+567-89'"
_EXPRESSION = re.compile(r"\s*[+-]?\s*[0-9]+(?:\s*[+-]\s*[0-9]+)*\s*")
_TERM = re.compile(r"([+-]?)\s*([0-9]+)")
#: Digits converted at once: Python refuses to convert longer decimal text.
_DECIMAL_CHUNK = 4000
#: Digits split off a long value at once: each division walks the whole value.
_CHUNK_DIGITS = 9


@dataclass(frozen=True)
class Operation:
    """One operation: add (sign 1) or subtract (sign -1) the operand."""

    sign: int
    operand: int

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise not_allowed("sign", self.sign, "1 or -1")
        check_integer("operand", self.operand, 0)

    @property
    def symbol(self) -> str:
        """The sign as a character."""
        return "+" if self.sign > 0 else "-"


def parse_expression(text: str) -> tuple[Operation, ...]:
    """Parse an expression of decimal numbers, such as `"3+4-2"` into +3, +4, -2.

    A leading sign and white space around signs are allowed.
    """
    if not _EXPRESSION.fullmatch(text):
        allowed = f"decimal numbers joined by + and -, such as {EXAMPLE}"
        raise not_allowed("expression", text, allowed)
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
    """Return the digits of a value, least significant first; 0 has one digit."""
    value, base = check_integer("value", value, 0), check_integer("base", base, 2)
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
    """Return the value of digits, least significant first."""
    value = 0
    for digit in reversed(np.asarray(digits).tolist()):
        value = value * base + digit
    return value


def numeral(value: int, base: int) -> str:
    """Return a value as text in a base up to 10, most significant digit first."""
    check_integer("base", base, 2, 10, reason="one character per digit")
    return "".join(str(digit) for digit in reversed(digits_of(value, base)))
