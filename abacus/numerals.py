"""Numerals to show: short at any length, and computed no further than they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
