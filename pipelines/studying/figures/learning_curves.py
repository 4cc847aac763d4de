"""Operations solved in the course of training, with and without demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.studying.drawing import (
    LOOKS,
    Look,
    Picture,
    drawn,
    legend_below,
    look_of,
    panels,
    said_range,
)
from pipelines.studying.figures.captions import averaged
from pipelines.studying.figures.drawn_values import ends_of
from pipelines.studying.groups import Grid, Kind, budget, grids_of
from pipelines.studying.records import Record
from pipelines.studying.statistics import (
    accuracies_at,
    estimate,
    iqm,
    report_generator,
    shared_steps,
)
from pipelines.studying.wording import percent

#: Curves stand in so many panels at most: none, some and most demonstrations.
MOST_PANELS = 3


def curve_grid(records: Sequence[Record]) -> Grid | None:
    """The comparison with the longest budget of those that have curves with and without.

    Where none has both, which is so while a study is under way, the longest.
    """
    grids = grids_of([record for record in records if record.curve], "ppo")
    return max(
        grids,
        key=lambda g: (0 in g.demonstrations and len(g.demonstrations) > 1, budget(g.records)),
        default=None,
    )


def _shown_counts(grid: Grid) -> list[int]:
    counts = grid.demonstrations
    places = {0, len(counts) // 2, len(counts) - 1}
    return [counts[place] for place in sorted(places)][:MOST_PANELS]


def learning_curves(
    grid: Grid, kinds: Sequence[Kind], key: str, name: Callable[[Kind], str], folder: Path
) -> Picture:
    """A panel for each of some numbers of demonstrations, a curve for each kind."""
    counts = _shown_counts(grid)
    shown = [grid.seeds(kind, n) for kind in kinds for n in counts]
    steps = budget([record for seeds in shown for record in seeds])
    of = "levels of reward" if key == "curves_levels" else "operations"
    given = " and ".join(["with"] * any(counts) + ["without"] * (0 in counts))
    title = (
        f"Learning {given} demonstrations, by {of}\n"
        f"Comparison {grid.comparison}, greedy policy, {steps:,} steps. {averaged(shown)}"
    )
    ends = {
        n: [accuracy_at_end(grid.seeds(kind, n)) for kind in kinds if grid.seeds(kind, n)]
        for n in counts
    }

    def draw(figure: Figure) -> None:
        (row,) = panels(figure, len(counts))
        for axes, n in zip(row, counts, strict=True):
            for kind in kinds:
                look = look_of(kind) if key == "curves_levels" else _operation_look(kind)
                draw_curve(axes, look, name(kind), grid.seeds(kind, n))
            panel = f"{n:,} demonstrations" if n else "no demonstrations"
            at_end = f": {said_range(ends[n], percent)} % at the end" if ends[n] else ": not run"
            finish_curves(axes, panel + at_end)
        row[0].set_ylabel("operations solved, %")
        legend_below(figure, row[0], 5)

    alt = "; ".join(
        f"{name(kind)}, {n:,} demonstrations: "
        f"{percent(accuracy_at_end(grid.seeds(kind, n)))} % at the end"
        for n in counts
        for kind in kinds
        if grid.seeds(kind, n)
    )
    return drawn(folder, key, title, alt, (max(3.6 * len(counts), 6.5), 3.7), draw)


def _operation_look(kind: Kind) -> Look:
    return {"both": look_of(kind), "add": LOOKS[2], "subtract": LOOKS[3]}[kind.operations]


def accuracy_at_end(seeds: Sequence[Record]) -> float:
    """The accuracy of the seeds' last policies, their interquartile mean."""
    return float(iqm([record.last.accuracy for record in seeds]))


def draw_curve(axes: Axes, look: Look, label: str, seeds: Sequence[Record]) -> None:
    """A line of means over seeds, with its band."""
    steps = shared_steps(seeds)
    found = [estimate([accuracies_at(seeds, step)], report_generator()) for step in steps]
    millions = [step / 1e6 for step in steps]
    often = max(1, len(steps) // 8)
    line = {**look.line(), "markevery": often}
    axes.plot(millions, [100 * one.value for one in found], label=label, **line)
    lows, highs = ([100 * ends_of(one)[k] for one in found] for k in (0, 1))
    axes.fill_between(millions, lows, highs, color=look.colour, alpha=0.15, linewidth=0)


def finish_curves(axes: Axes, title: str) -> None:
    """What all panels of learning curves have."""
    axes.set_title(title)
    axes.set_xlabel("environment steps, millions")
    axes.set_ylim(-3, 103)
