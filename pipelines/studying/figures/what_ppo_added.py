"""What PPO made of the clones: errors before and after, by number of demonstrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.evaluation.figures import INK
from pipelines.studying.drawing import (
    FAINT,
    BrokenLog,
    Picture,
    drawn,
    legend_below,
    look_of,
    panels,
    short,
)
from pipelines.studying.figures.captions import seeds_in
from pipelines.studying.figures.drawn_values import ERROR, WRONG, Drawn, both_operations
from pipelines.studying.groups import Grid, Kind
from pipelines.studying.statistics import iqm
from pipelines.studying.tables import MEASURES, changes


def what_ppo_added(grid: Grid, folder: Path) -> Picture:
    """Errors above, wrong observations below; a column of panels for each kind."""
    kinds = both_operations(grid.kinds)
    accuracy, _, wrong = MEASURES
    runs = [r for kind in kinds for n in grid.demonstrations for r in grid.seeds(kind, n)]
    kept, fewer = changes(runs, "final", accuracy), changes(runs, "final", wrong)
    title = (
        f"What PPO made of {kept.seeds} clones: operations solved rose in {kept.rose} and fell in "
        f"{kept.fell};\nwrong observations fell in {fewer.fell} and rose in {fewer.rose} "
        f"(comparison {grid.comparison}; policy kept by the run; "
        f"{seeds_in(list(grid.parts.values()))} a point)"
    )

    def draw(figure: Figure) -> None:
        across = BrokenLog.of(grid.demonstrations)
        rows = panels(figure, len(kinds), 2)
        for row, measured in zip(rows, (ERROR, WRONG), strict=True):
            scores = (s for r in runs for s in (r.clone, r.final, r.last) if s)
            up = BrokenLog.of(measured[1](one) for one in scores)
            for axes, kind in zip(row, kinds, strict=True):
                _draw_change(axes, grid, kind, measured, across, up)
                up.on_y(axes, measured[2])
            row[0].set_ylabel(measured[0])
        for axes, kind in zip(rows[0], kinds, strict=True):
            axes.set_title(kind.name)
        for axes in rows[1]:
            across.on_x(axes, short)
            axes.set_xlabel("demonstrations")
        legend_below(figure, rows[0][0], 4)

    alt = "; ".join(_change_alt(grid, kind) for kind in kinds)
    return drawn(folder, "ppo_added", title, alt, (max(2.3 * len(kinds) + 0.6, 7.5), 5.6), draw)


def _change_alt(grid: Grid, kind: Kind) -> str:
    seeds = [record for n in grid.demonstrations for record in grid.seeds(kind, n)]
    kept = changes(seeds, "final", MEASURES[0])
    return f"{kind.name}: rose in {kept.rose}, fell in {kept.fell} of {kept.seeds}"


def _draw_change(
    axes: Axes, grid: Grid, kind: Kind, measured: Drawn, across: BrokenLog, up: BrokenLog
) -> None:
    """An arrow from the clone to what was kept, before it every seed's own as a thin line."""
    look, of = look_of(kind), measured[1]
    for n in grid.demonstrations:
        seeds = grid.seeds(kind, n)
        x = across.place(n)
        for place, record in enumerate(seeds):
            ends = [up.place(of(score)) for score in (record.clone, record.final) if score]
            aside = x - 0.28 + 0.18 * (place + 0.5) / len(seeds)
            axes.plot([aside, aside], ends, color=FAINT, linewidth=1, solid_capstyle="round")
            axes.plot([aside], ends[1:], ".", color="#8a8f94", markersize=2.5)
        if seeds:
            clones = [of(record.clone) for record in seeds if record.clone]
            start = up.place(float(iqm(clones)))
            end = up.place(float(iqm([of(record.final) for record in seeds])))
            last = up.place(float(iqm([of(record.last) for record in seeds])))
            axes.annotate(
                "",
                (x, end),
                (x, start),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": look.colour,
                    "linewidth": 1.2,
                    "shrinkA": 3,
                    "shrinkB": 2,
                    "mutation_scale": 7,
                },
            )
            axes.plot([x], [start], "o", color=look.colour, markerfacecolor="white", markersize=5)
            axes.plot([x], [end], "o", color=look.colour, markersize=4)
            axes.plot([x + 0.13], [last], "x", color=INK, markersize=4, markeredgewidth=1)
    handles: tuple[tuple[str, dict[str, Any]], ...] = (
        ("clone", {"marker": "o", "markerfacecolor": "white", "linestyle": "none"}),
        ("kept by the run", {"marker": "o", "linestyle": "none"}),
        ("last of the run", {"marker": "x", "markersize": 4, "linestyle": "none"}),
        ("each seed, clone to kept", {"color": "#8a8f94", "marker": "."}),
    )
    for label, style in handles:
        axes.plot([], [], label=label, **{"color": INK, "markersize": 5, **style})
