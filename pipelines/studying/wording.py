"""Numbers of a study as its tables and figures show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.studying.groups import Grid, budget, seeds_said
from pipelines.studying.statistics import (
    BEYOND,
    FEWEST_SEEDS,
    Estimate,
    Threshold,
    estimate,
    report_generator,
)

#: A cell that was not run.
MISSING = "-"
NOT_WITHIN = "not within this grid"
#: Of a percentage; less is the rounding of a sum.
_DECIMALS = 9
INTERVALS_SAID = (
    "interquartile mean over seeds, with a 95 % bootstrap interval by seed in brackets, or the "
    f"number of seeds where there are fewer than {FEWEST_SEEDS}"
)


def percent(share: float) -> str:
    """A share in per cent; what is not 0 or 100 is not rounded to it."""
    value, decimals = round(100 * share, _DECIMALS), 2
    while 0 < value < 100 and round(value, decimals) in (0, 100):
        decimals += 1
    return f"{value:.{decimals}f}" if value not in (0, 100) else f"{value:.0f}"


def points(share: float) -> str:
    """A difference of shares, in percentage points, with its sign."""
    return f"{100 * share:+.2f}"


def count(value: float) -> str:
    """A count, or a mean of counts."""
    return f"{value:,.1f}" if value < 10 and value != round(value) else f"{value:,.0f}"


def estimated(found: Estimate | None, shown: Callable[[float], str], usual: int = 0) -> str:
    """`97.84 (95.10 to 98.20)`; the seeds too where they are few, or not as many as usual."""
    if found is None:
        return MISSING
    said = seeds_said([found.seeds])
    if found.low is None or found.high is None:
        return f"{shown(found.value)} ({said})"
    more = f"; {said}" if usual and found.seeds != usual else ""
    return f"{shown(found.value)} ({shown(found.low)} to {shown(found.high)}{more})"


def threshold_said(found: Threshold | None) -> str:
    """`3,000 (1,000 to 3,000; 5 seeds)`."""
    if found is None:
        return MISSING
    said = seeds_said([found.seeds])
    if found.low is None or found.high is None:
        return f"{_demonstrations_said(found.value)} ({said})"
    if found.low == found.high == BEYOND:
        return f"{NOT_WITHIN} ({said})"
    low, high = _demonstrations_said(found.low), _demonstrations_said(found.high)
    return f"{_demonstrations_said(found.value)} ({low} to {high}; {said})"


def _demonstrations_said(value: float) -> str:
    return NOT_WITHIN if value == BEYOND else f"{value:,.0f}"


def estimate_of(values: Sequence[float]) -> Estimate | None:
    """Of seeds; None where there are none."""
    return estimate([values], report_generator()) if values else None


def steps_said(grid: Grid) -> str:
    """The budget of a comparison."""
    return f"{budget(grid.records):,} steps"
