"""Intervals for an error rate that hold for few errors and for none.

Clopper and Pearson's: the rates for which so many errors, or so few, would not be rarer than 2.5 %
on either side. It is exact, if wide: the true rate is inside in at least 95 of 100 cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
#: Halvings of an interval of length 1: to the last bit of a number near it.
_HALVINGS = 200
_TINY = 1e-300
_TERMS = 10_000
_ENOUGH = 1e-15


@dataclass(frozen=True)
class ErrorRate:
    """Errors among trials, with the interval of the rate."""

    errors: int
    trials: int

    def __post_init__(self) -> None:
        if self.trials < 1 or not 0 <= self.errors <= self.trials:
            raise ValueError(
                f"{self.errors} errors in {self.trials} trials: give 1 trial or more, and no more "
                "errors than trials"
            )

    @property
    def rate(self) -> float:
        return self.errors / self.trials

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        if self.errors == 0:
            return 0.0
        return _beta_quantile((1 - CONFIDENCE) / 2, self.errors, self.trials - self.errors + 1)

    @property
    def high(self) -> float:
        """The upper end of the interval; about 3.7 / trials where there were no errors."""
        if self.errors == self.trials:
            return 1.0
        return _beta_quantile((1 + CONFIDENCE) / 2, self.errors + 1, self.trials - self.errors)


def _beta_quantile(probability: float, a: float, b: float) -> float:
    """Where the beta distribution's sum reaches a probability, by halving."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beta_sum(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return high


def beta_sum(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function: the part of a beta(a, b) variable below x."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    # The fraction converges fast below the mean; above it, the other tail is taken.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_sum(1 - x, b, a)
    scale = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return scale * _continued_fraction(x, a, b) / a


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the fraction in Abramowitz and Stegun 26.5.8."""
    numerator, denominator = 1.0, _away_from_zero(1 - (a + b) * x / (a + 1))
    denominator = 1 / denominator
    value = denominator
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1 / _away_from_zero(1 + term * denominator)
            numerator = _away_from_zero(1 + term / numerator)
            change = numerator * denominator
            value *= change
        if abs(change - 1) < _ENOUGH:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
