"""Hollow marks, where every seed is certified exact."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from pipelines.evaluation.figures import INK
from pipelines.studying.drawing import Look
from pipelines.studying.records import Record


def all_exact(seeds: Sequence[Record]) -> bool:
    """Whether every seed kept a policy that is certified exact."""
    return all(record.final.exact for record in seeds)


def mark_certified(axes: Axes, look: Look, xs: Sequence[float], ys: Sequence[float]) -> None:
    """No errors in a sample is not yet exact, and a mean of none may hide a seed that has some."""
    hollow = {"markerfacecolor": "white", "linestyle": "none", "zorder": 4}
    axes.plot(xs, ys, **{**look.line(), **hollow})


def explain_marks(axes: Axes) -> None:
    """Puts the hollow marks into the legend."""
    label = "hollow: every seed certified exact"
    axes.plot([], [], "o", color=INK, markerfacecolor="white", label=label)
