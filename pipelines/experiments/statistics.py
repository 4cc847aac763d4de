"""What several seeds say together: interquartile means, bootstrap intervals, exactness, curves.

The interquartile mean of n values leaves out n/4 at either end, where n/4 need not be whole: of
five values the inner three count, with weights 3/4, 1 and 3/4. It is blind to one bad seed of
five, which is why the number of exact seeds is shown beside it. Intervals are percentiles of
means of seeds drawn anew; with few seeds they are too narrow (of five normal seeds a 95 %
interval holds the truth in about 90 % of cases, of three in 75 %), and of equal seeds they have
no width at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.experiments.records import CurvePoint, Grid, Record, budget, seeds_said

CONFIDENCE = 0.95
RESAMPLES = 2_000
#: With fewer seeds there is no interval, only their number.
FEWEST_SEEDS = 3
#: A threshold that lies beyond the greatest number of demonstrations.
BEYOND = math.inf
_REPORT_SEED = 0
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)

Floats = npt.NDArray[np.float64]


def report_generator() -> np.random.Generator:
    """A generator for one interval of a report.

    Each interval starts anew, so that the same seeds have the same interval in tables, figures
    and JSON, whatever else is shown.
    """
    return np.random.default_rng(_REPORT_SEED)


@dataclass(frozen=True)
class Estimate:
    """An interquartile mean, with its interval where there are seeds enough for one."""

    value: float
    low: float | None
    high: float | None
    #: The smallest number of seeds of a setting that it is a mean of.
    seeds: int


def iqm(values: npt.ArrayLike) -> Floats:
    """Interquartile means along the last axis."""
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    count = ordered.shape[-1]
    if not count:
        raise ValueError("the interquartile mean of no values")
    places = np.arange(count)
    # The part of each value's place that lies between the quartiles.
    weights = np.minimum(places + 1, 3 * count / 4) - np.maximum(places, count / 4)
    weights = np.maximum(weights, 0)
    means = ordered @ weights / weights.sum()
    # Rounding must not lead out of the range: 100 % is not to become less, nor more.
    return np.asarray(np.clip(means, ordered[..., 0], ordered[..., -1]))


def estimate(strata: Sequence[Sequence[float]], generator: np.random.Generator) -> Estimate:
    """The interquartile mean over all strata; seeds are drawn anew within each of them.

    A stratum holds the seeds of one setting. Drawn from all together, a setting that is easy
    could stand in for one that is hard.
    """
    value = float(iqm([value for stratum in strata for value in stratum]))
    return _with_interval(value, _resampled(strata, generator), _fewest(strata))


def difference(
    first: Sequence[float], second: Sequence[float], generator: np.random.Generator
) -> Estimate:
    """How far the first interquartile mean lies above the second; the seeds are not paired."""
    value = float(iqm(first) - iqm(second))
    resampled = _resampled([first], generator) - _resampled([second], generator)
    return _with_interval(value, resampled, _fewest((first, second)))


def _fewest(strata: Sequence[Sequence[float]]) -> int:
    return min(len(stratum) for stratum in strata)


def _resampled(strata: Sequence[Sequence[float]], generator: np.random.Generator) -> Floats:
    drawn = []
    for stratum in strata:
        seeds = generator.integers(len(stratum), size=(RESAMPLES, len(stratum)))
        drawn.append(np.asarray(stratum, np.float64)[seeds])
    return iqm(np.concatenate(drawn, axis=1))


def _with_interval(value: float, resampled: Floats, seeds: int) -> Estimate:
    if seeds < FEWEST_SEEDS:
        return Estimate(value, None, None, seeds)
    low, high = np.quantile(resampled, _TAILS)
    return Estimate(value, float(low), float(high), seeds)


@dataclass(frozen=True)
class Threshold:
    """The number of demonstrations from which on a kind of supervision is exact."""

    #: `BEYOND` where the grid has no such number; so may be the ends of the interval.
    value: float
    low: float | None
    high: float | None
    #: Seeds that were run with every number of demonstrations.
    seeds: int


#: By number of demonstrations, then by seed: whether a certificate was given.
Exactness = Mapping[int, Mapping[int, bool]]


def exactness_threshold(
    exact: Exactness, share: float, generator: np.random.Generator
) -> Threshold:
    """The smallest number from which on at least that share of seeds is exact, also with more.

    The interval draws whole seeds, each with all its numbers of demonstrations: what a seed has
    in common with itself stays together. Only seeds that are complete can be drawn. Where all
    seeds are asked for, a draw can leave out the worst seed but not find a worse one, so that
    the upper end is the value itself.
    """
    counts = sorted(exact)
    shares = np.array([[np.mean(list(exact[count].values())) for count in counts]])
    value = float(_first_lasting(shares >= share, counts)[0])
    complete = sorted(set.intersection(*(set(exact[count]) for count in counts)))
    if len(complete) < FEWEST_SEEDS:
        return Threshold(value, None, None, len(complete))
    answers = np.array([[exact[count][seed] for count in counts] for seed in complete])
    drawn = generator.integers(len(complete), size=(RESAMPLES, len(complete)))
    values = np.sort(_first_lasting(answers[drawn].mean(axis=1) >= share, counts))
    # Values of the grid or infinite: nothing to interpolate between.
    low, high = (float(values[math.ceil(tail * RESAMPLES) - 1]) for tail in _TAILS)
    return Threshold(value, low, high, len(complete))


def _first_lasting(enough: npt.NDArray[np.bool_], counts: Sequence[int]) -> Floats:
    """For each row, the first count from which on all is true."""
    lasting = np.logical_and.accumulate(enough[:, ::-1], axis=1)[:, ::-1]
    first = np.asarray(counts, np.float64)[lasting.argmax(axis=1)]
    return np.where(lasting.any(axis=1), first, BEYOND)


def whole_curve(record: Record) -> tuple[CurvePoint, ...]:
    """The curve from step 0 on, if something is known of step 0: the clone is."""
    curve, clone = record.curve, record.clone
    if clone is None or (curve and curve[0].step == 0):
        return curve
    start = CurvePoint(0, 0.0, clone.accuracy, clone.long_error_rate, clone.wrong)
    return (start, *curve)


def reached(record: Record, accuracy: float) -> CurvePoint | None:
    """The first point of the curve at which the greedy policy was so good; the clone counts."""
    return next((point for point in whole_curve(record) if point.accuracy >= accuracy), None)


def accuracy_at(record: Record, step: float) -> float | None:
    """Accuracy after so many steps of the environment, between two evaluations on a line.

    After the last evaluation it stays as it is until the budget is spent: a training that ended
    early ended as it was. Before the first one and beyond the budget nothing is known.
    """
    curve = whole_curve(record)
    if not curve or step < curve[0].step or step > max(record.cell.steps, curve[-1].step):
        return None
    steps = [point.step for point in curve]
    return float(np.interp(step, steps, [point.accuracy for point in curve]))


def accuracies_at(records: Sequence[Record], step: float) -> list[float]:
    """Those of the seeds for which the accuracy after so many steps is known."""
    found = (accuracy_at(record, step) for record in records)
    return [accuracy for accuracy in found if accuracy is not None]


def shared_steps(records: Sequence[Record], most: int = 100) -> list[int]:
    """Steps at which every seed's accuracy is known; those of the evaluations, if not too many."""
    curves = [whole_curve(record) for record in records]
    if not records or not all(curves):
        return []
    start = max(curve[0].step for curve in curves)
    budgets = [max(r.cell.steps, c[-1].step) for r, c in zip(records, curves, strict=True)]
    end = min(max(curve[-1].step for curve in curves), *budgets)
    steps = sorted(
        {point.step for curve in curves for point in curve if start <= point.step <= end}
    )
    if len(steps) <= most:
        return steps
    return [round(step) for step in np.linspace(start, end, most)]


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
