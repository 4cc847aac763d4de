"""Errors against the number of demonstrations, a line for each kind of supervision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.studying.drawing import (
    BrokenLog,
    Look,
    Picture,
    drawn,
    legend_below,
    look_of,
    panels,
    plain,
)
from pipelines.studying.figures.captions import averaged, grid_alt
from pipelines.studying.figures.certified_marks import all_exact, explain_marks, mark_certified
from pipelines.studying.figures.drawn_values import (
    ERROR,
    LONG_ERROR,
    Drawn,
    both_operations,
    ends_of,
    value_of,
)
from pipelines.studying.groups import Grid, Kind
from pipelines.studying.statistics import BEYOND, FEWEST_SEEDS, Estimate, Threshold
from pipelines.studying.tables import ALL_SEEDS, kind_threshold


def error_by_demonstrations(grid: Grid, folder: Path) -> Picture:
    """Two panels: errors where policies were trained, and at 16 digits."""
    kinds = both_operations(grid.kinds)
    thresholds = [kind_threshold(grid, kind, ALL_SEEDS) for kind in kinds]
    # Fewer seeds than an interval takes are no ground for saying so.
    exact = sum(found is not None and _within_for_sure(found) for found in thresholds)
    parts = [grid.seeds(kind, n) for kind in kinds for n in grid.demonstrations]
    title = (
        "Error by number of demonstrations; exact in every seed from some number on: "
        f"{exact} of {len(kinds)} kinds of supervision\n"
        f"Comparison {grid.comparison}. {averaged(parts)}, "
        f"up to {max(grid.demonstrations):,} demonstrations"
    )

    def draw(figure: Figure) -> None:
        across = BrokenLog.of(grid.demonstrations)
        (row,) = panels(figure, 2, alike=False)
        for axes, measured in zip(row, (ERROR, LONG_ERROR), strict=True):
            _error_panel(axes, grid, kinds, measured, across)
        explain_marks(row[0])
        legend_below(figure, row[0], 4)

    return drawn(folder, "error_by_demonstrations", title, grid_alt(grid, kinds), (9, 4.6), draw)


def _within_for_sure(found: Threshold) -> bool:
    return found.value != BEYOND and found.seeds >= FEWEST_SEEDS


def _error_panel(
    axes: Axes, grid: Grid, kinds: Sequence[Kind], measured: Drawn, across: BrokenLog
) -> None:
    found = {
        (kind, n): value_of(grid.seeds(kind, n), measured)
        for kind in kinds
        for n in grid.demonstrations
        if grid.seeds(kind, n)
    }
    up = BrokenLog.of(
        [end for one in found.values() for end in (*ends_of(one), one.value)] or [1.0]
    )
    for place, kind in enumerate(kinds):
        # A step aside, so that levels with the same error do not hide each other.
        aside = 0.045 * (place - (len(kinds) - 1) / 2)
        run = [n for n in grid.demonstrations if (kind, n) in found]
        _draw_level(axes, look_of(kind), aside, across, up, {n: found[kind, n] for n in run})
        certified = [n for n in run if all_exact(grid.seeds(kind, n))]
        xs = [across.place(n) + aside for n in certified]
        mark_certified(axes, look_of(kind), xs, [up.place(found[kind, n].value) for n in certified])
        axes.plot([], [], label=kind.name, **look_of(kind).line())
    across.on_x(axes, plain)
    up.on_y(axes, measured[2])
    axes.set_xlabel("demonstrated operations")
    axes.set_title(measured[0])


def _draw_level(
    axes: Axes,
    look: Look,
    aside: float,
    across: BrokenLog,
    up: BrokenLog,
    found: dict[int, Estimate],
) -> None:
    """A line with its band; no demonstrations are beyond the break, and no line leads there."""
    for counts in ([n for n in found if n == 0], [n for n in found if n > 0]):
        xs = [across.place(n) + aside for n in counts]
        lows, highs = ([up.place(ends_of(found[n])[k]) for n in counts] for k in (0, 1))
        axes.plot(xs, [up.place(found[n].value) for n in counts], **look.line())
        if len(counts) == 1:
            axes.vlines(xs, lows, highs, color=look.colour, linewidth=1, alpha=0.7)
        elif counts:
            axes.fill_between(xs, lows, highs, color=look.colour, alpha=0.1, linewidth=0)
