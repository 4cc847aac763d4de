"""Statistics over seeds: interquartile means, bootstrap intervals, exactness, learning curves.

The interquartile mean of n values leaves out n/4 at either end, where n/4 need not be whole: of
five values the inner three count, with weights 3/4, 1 and 3/4. It does not see one bad seed of
five, which is why tables show the number of exact seeds beside it. Intervals are percentiles of a
bootstrap over seeds. With few seeds they are too narrow (a 95 % interval holds the true mean in
about 90 % of cases with five normal seeds, in 75 % with three), and with equal seeds they have no
width at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from pipelines.experiments.records import CurvePoint, Record
from pipelines.job.tables import counted

CONFIDENCE = 0.95
RESAMPLES = 2_000
#: With fewer seeds no interval is given, only their number.
FEWEST_SEEDS = 3
#: A threshold above the greatest number of demonstrations of the grid.
BEYOND = math.inf
NOT_WITHIN = "not within this grid"
INTERVAL_NOTE = (
    "interquartile mean over seeds, with a 95 % bootstrap interval by seed in brackets, or the "
    f"number of seeds if there are fewer than {FEWEST_SEEDS}"
)
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
#: Every interval starts from this seed, so that the same seeds of a setting have the same interval
#: in tables, figures and JSON.
_SEED = 0

Floats = npt.NDArray[np.float64]
Values = Sequence[float] | pd.Series
#: Formats a value for a cell of a table.
Text = Callable[[float], str]


def iqm(values: npt.ArrayLike) -> Floats:
    """Return interquartile means along the last axis."""
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    count = ordered.shape[-1]
    if not count:
        raise ValueError("the interquartile mean of no values")
    places = np.arange(count)
    # The part of each value's place that lies between the quartiles.
    weights = np.minimum(places + 1, 3 * count / 4) - np.maximum(places, count / 4)
    weights = np.maximum(weights, 0)
    means = ordered @ weights / weights.sum()
    # Rounding must not leave the range of the values: 100 % stays 100 %.
    return np.asarray(np.clip(means, ordered[..., 0], ordered[..., -1]))


@dataclass(frozen=True)
class Estimate:
    """Value over seeds, with its interval if there are enough seeds."""

    value: float
    low: float | None
    high: float | None
    #: The number of seeds, or the smaller of two.
    seeds: int

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the interval, or the value twice if there is none."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high

    def text(self, text: Text, usual: int = 0) -> str:
        """Format as `97.84 (95.10 to 98.20)`; add the seeds if they are few or not `usual`."""
        seeds = counted(self.seeds, "seed")
        if self.low is None or self.high is None:
            return f"{text(self.value)} ({seeds})"
        more = f"; {seeds}" if usual and self.seeds != usual else ""
        return f"{text(self.value)} ({text(self.low)} to {text(self.high)}{more})"


def estimate(values: Values, generator: np.random.Generator | None = None) -> Estimate:
    """Estimate the interquartile mean over the seeds of one setting."""
    resampled = _resampled(values, _generator(generator))
    return _with_interval(float(iqm(values)), resampled, len(values))


def difference(
    first: Values, second: Values, generator: np.random.Generator | None = None
) -> Estimate:
    """Estimate the first interquartile mean less the second; the seeds are not paired."""
    generator = _generator(generator)
    value = float(iqm(first) - iqm(second))
    resampled = _resampled(first, generator) - _resampled(second, generator)
    return _with_interval(value, resampled, min(len(first), len(second)))


def _generator(generator: np.random.Generator | None) -> np.random.Generator:
    return np.random.default_rng(_SEED) if generator is None else generator


def _resampled(values: Values, generator: np.random.Generator) -> Floats:
    seeds = generator.integers(len(values), size=(RESAMPLES, len(values)))
    return iqm(np.asarray(values, np.float64)[seeds])


def _with_interval(value: float, resampled: Floats, seeds: int) -> Estimate:
    if seeds < FEWEST_SEEDS:
        return Estimate(value, None, None, seeds)
    low, high = np.quantile(resampled, _TAILS)
    return Estimate(value, float(low), float(high), seeds)


def exactness_threshold(
    exact: pd.DataFrame, share: float, generator: np.random.Generator | None = None
) -> Estimate:
    """Return the number of demonstrations from which on at least that share of seeds is exact.

    It is `BEYOND` if the grid has no such number; so may be the ends of its interval.
    `exact` has a row for each seed and a column for each number of demonstrations: 1 if certified,
    0 if not, NaN if not run. The interval resamples whole rows, of complete seeds alone. With a
    share of 1 a resample can leave out the worst seed but not find a worse one, so that the upper
    end is the value itself.
    """
    exact = exact.sort_index(axis=1)
    counts = np.asarray(exact.columns, np.float64)
    value = float(_first_lasting(exact.mean().to_numpy()[None] >= share, counts)[0])
    complete = exact.dropna().sort_index().to_numpy(np.float64)
    if len(complete) < FEWEST_SEEDS:
        return Estimate(value, None, None, len(complete))
    drawn = _generator(generator).integers(len(complete), size=(RESAMPLES, len(complete)))
    values = np.sort(_first_lasting(complete[drawn].mean(axis=1) >= share, counts))
    # Values of the grid or infinite: no interpolation.
    low, high = (float(values[math.ceil(tail * RESAMPLES) - 1]) for tail in _TAILS)
    return Estimate(value, low, high, len(complete))


def _first_lasting(enough: npt.NDArray[np.bool_], counts: Floats) -> Floats:
    """Return for each row the first count from which on all is true."""
    lasting = np.logical_and.accumulate(enough[:, ::-1], axis=1)[:, ::-1]
    return np.where(lasting.any(axis=1), counts[lasting.argmax(axis=1)], BEYOND)


def whole_curve(record: Record) -> tuple[CurvePoint, ...]:
    """Return the curve with the clone as step 0, if there is a clone."""
    curve, clone = record.curve, record.clone
    if clone is None or (curve and curve[0].step == 0):
        return curve
    start = CurvePoint(0, 0.0, clone.own_accuracy, clone.long_error_rate, clone.wrong)
    return (start, *curve)


def first_reaching(record: Record, accuracy: float) -> CurvePoint | None:
    """Return the first point of the curve with at least that accuracy; the clone counts."""
    return next((point for point in whole_curve(record) if point.accuracy >= accuracy), None)


def accuracy_at(record: Record, step: float) -> float | None:
    """Return the accuracy at a step, linear between evaluations.

    After the last evaluation it stays until the budget is spent, as in a training that ended
    early. Return None before the first evaluation and beyond the budget.
    """
    curve = whole_curve(record)
    if not curve or step < curve[0].step or step > max(record.cell.steps, curve[-1].step):
        return None
    steps = [point.step for point in curve]
    return float(np.interp(step, steps, [point.accuracy for point in curve]))


def accuracies_at(records: Iterable[Record], step: float) -> list[float]:
    """Return the accuracies at a step of the seeds for which it is known."""
    found = (accuracy_at(record, step) for record in records)
    return [accuracy for accuracy in found if accuracy is not None]


def shared_steps(records: Sequence[Record]) -> list[int]:
    """Return the steps of all evaluations at which every seed's accuracy is known."""
    curves = [whole_curve(record) for record in records]
    steps = sorted({point.step for curve in curves for point in curve})
    return [step for step in steps if len(accuracies_at(records, step)) == len(records)]


def range_text(values: Sequence[float], text: Text) -> str:
    """Format a range: `45 to 98`, or `98` if all are equal."""
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"


def seeds_text(counts: Iterable[int]) -> str:
    """Format numbers of seeds: `5 seeds`, or `3 to 5 seeds`."""
    low, high = min(counts := list(counts), default=0), max(counts, default=0)
    return counted(high, "seed") if low == high else f"{low} to {high} seeds"
