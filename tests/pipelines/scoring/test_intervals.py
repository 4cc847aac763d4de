"""Intervals: right for no errors, right for all, and by the definition in between."""

from __future__ import annotations

import math

import pytest

from pipelines.scoring.scores import ErrorRate, beta_sum


def binomial_tail(errors: int, trials: int, rate: float) -> float:
    """The chance of at most so many errors."""
    return math.fsum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(errors + 1)
    )


@pytest.mark.parametrize("trials", [1, 7, 100, 100_000])
def test_no_errors_leave_room_for_some(trials: int) -> None:
    rate = ErrorRate(0, trials)
    assert rate.rate == rate.low == 0
    assert rate.high == pytest.approx(1 - 0.025 ** (1 / trials), rel=1e-9)


def test_nothing_but_errors_mirrors_none() -> None:
    assert ErrorRate(7, 7).high == 1
    assert ErrorRate(7, 7).low == pytest.approx(1 - ErrorRate(0, 7).high)


@pytest.mark.parametrize(("errors", "trials"), [(1, 10), (3, 7), (5, 200), (150, 200)])
def test_the_ends_are_where_chance_would_give_so_many(errors: int, trials: int) -> None:
    rate = ErrorRate(errors, trials)
    assert binomial_tail(errors, trials, rate.high) == pytest.approx(0.025, rel=1e-9)
    assert 1 - binomial_tail(errors - 1, trials, rate.low) == pytest.approx(0.025, rel=1e-9)


def test_the_authors_figure() -> None:
    rate = ErrorRate(601, 100_000)
    assert (rate.low, rate.high) == pytest.approx((0.0055403, 0.0065087), rel=1e-4)


def test_the_beta_function_has_its_symmetry() -> None:
    assert beta_sum(0.3, 4, 9) == pytest.approx(1 - beta_sum(0.7, 9, 4))
    assert beta_sum(0.5, 6, 6) == pytest.approx(0.5)


@pytest.mark.parametrize(("errors", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(errors: int, trials: int) -> None:
    with pytest.raises(ValueError, match="errors"):
        ErrorRate(errors, trials)
