"""What figures show: which kinds of supervision, which measures, and their values over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.studying.drawing import in_percent, plain
from pipelines.studying.groups import Kind
from pipelines.studying.records import Record, Score
from pipelines.studying.statistics import Estimate, estimate, report_generator

#: What is drawn of a policy: a name with its unit, the value, and how a tick shows it.
Drawn = tuple[str, Callable[[Score], float], Callable[[float], str]]
ERROR: Drawn = ("operations not solved", lambda score: 1 - score.accuracy, in_percent)
LONG_ERROR: Drawn = ("errors at 16 digits", lambda score: score.long_error_rate, in_percent)
WRONG: Drawn = ("wrong observations", lambda score: float(score.wrong), plain)


def both_operations(kinds: Sequence[Kind]) -> list[Kind]:
    """One curve a level; where both operations were never asked for, what there is."""
    return [kind for kind in kinds if kind.operations == "both"] or list(kinds)


def value_of(seeds: Sequence[Record], measured: Drawn) -> Estimate:
    """A measure of the policies that the seeds kept."""
    _, of, _ = measured
    return estimate([[of(record.final) for record in seeds]], report_generator())


def ends_of(found: Estimate) -> tuple[float, float]:
    """The interval, or the value itself where there is none."""
    low = found.value if found.low is None else found.low
    return low, found.value if found.high is None else found.high
