"""Operations, tasks and numbers: parse expressions, convert values to digits and back."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.checks import check_integer, not_allowed

EXAMPLE = "'1234+567-89'"
_EXPRESSION = re.compile(r"\s*[+-]?\s*[0-9]+(?:\s*[+-]\s*[0-9]+)*\s*")
_TASK = re.compile(r"\s*([0-9]+)((?:\s*[+-]\s*[0-9]+)+)\s*")
_TERM = re.compile(r"([+-]?)\s*([0-9]+)")
#: Up to this many digits a conversion is done digit by digit; longer ones are split in halves,
#: because the time of a plain conversion grows with the square of the digits. Python refuses to
#: convert decimal text of more than a few thousand digits at once.
_PLAIN_DIGITS = 500


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


@dataclass(frozen=True)
class Task:
    """A starting value and the operations to carry out on it, in order, as one episode."""

    start: int
    operations: tuple[Operation, ...]

    def __post_init__(self) -> None:
        check_integer("start", self.start, 0)
        if not self.operations:
            raise ValueError("a task has no operations: give at least one")

    @classmethod
    def parse(cls, text: str) -> Task:
        """Parse a starting value and operations in decimal, such as `"12 + 34 - 5"`."""
        found = _TASK.fullmatch(text)
        if found is None:
            allowed = "a value and operations in decimal, such as '12 + 34 - 5'"
            raise not_allowed("task", text, allowed)
        return cls(_int_of_decimal(found[1]), parse_expression(found[2]))

    @property
    def expression(self) -> str:
        """The operations in decimal, such as `"+ 34 - 5"`."""
        return " ".join(
            f"{operation.symbol} {numeral(operation.operand, 10)}" for operation in self.operations
        )

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return f"{numeral(self.start, 10)} {self.expression}"


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
    if len(text) <= _PLAIN_DIGITS:
        return int(text)
    low = len(text) // 2
    high: int = _int_of_decimal(text[:-low]) * 5**low
    return (high << low) + _int_of_decimal(text[-low:])


def digits_of(value: int, base: int) -> list[int]:
    """Return the digits of a value, least significant first; 0 has one digit."""
    value, base = check_integer("value", value, 0), check_integer("base", base, 2)
    # The powers base**(_PLAIN_DIGITS * 2**k) up to the value: each is the square of the one before.
    powers = [base**_PLAIN_DIGITS]
    while powers[-1] <= value:
        powers.append(powers[-1] ** 2)
    return _digits(value, base, powers[:-1]) or [0]


def _digits(value: int, base: int, powers: list[int]) -> list[int]:
    """Return the digits of a value below the square of the last power, none for 0."""
    if powers:
        high, low = divmod(value, powers[-1])
        digits = _digits(low, base, powers[:-1])
        if high:
            digits += [0] * (_PLAIN_DIGITS * 2 ** (len(powers) - 1) - len(digits))
            digits += _digits(high, base, powers[:-1])
        return digits
    digits = []
    while value:
        value, digit = divmod(value, base)
        digits.append(digit)
    return digits


def digit_count(value: int, base: int) -> int:
    """Return the number of digits of a value, without finding them; 0 has one digit."""
    value, base = check_integer("value", value, 0), check_integer("base", base, 2)
    # The logarithm of a long value is exact to 15 places: it may be one off, which is corrected.
    count = max(1, int(math.log(value, base)) if value else 1)
    while base**count <= value:
        count += 1
    while count > 1 and base ** (count - 1) > value:
        count -= 1
    return count


def value_of(digits: npt.ArrayLike, base: int) -> int:
    """Return the value of digits, least significant first."""
    return _value(np.asarray(digits).tolist(), base)


def values_of(rows: npt.NDArray[np.integer], base: int) -> npt.NDArray[Any]:
    """Return the values of rows of digits, least significant first.

    They are Python integers, in an array of objects, if 64 bits are too few.
    """
    if base ** rows.shape[1] < 2**63:
        return rows.astype(np.int64) @ base ** np.arange(rows.shape[1], dtype=np.int64)
    values = np.empty(len(rows), object)
    values[:] = [value_of(row, base) for row in rows]
    return values


def _value(digits: list[int], base: int) -> int:
    if len(digits) > _PLAIN_DIGITS:
        low = len(digits) // 2
        high: int = _value(digits[low:], base) * base**low
        return high + _value(digits[:low], base)
    value = 0
    for digit in reversed(digits):
        value = value * base + digit
    return value


def numeral(value: int, base: int) -> str:
    """Return a value as text in a base up to 10, most significant digit first."""
    check_integer("base", base, 2, 10, reason="one character per digit")
    return "".join(str(digit) for digit in reversed(digits_of(value, base)))
