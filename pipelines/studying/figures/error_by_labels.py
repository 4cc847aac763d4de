"""Errors against the answers that the teacher gave, to DAgger and to cloning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.evaluation.tables import OPERATION_WORDS
from pipelines.studying.drawing import (
    LOOKS,
    BrokenLog,
    Look,
    Picture,
    drawn,
    legend_below,
    panels,
    short,
)
from pipelines.studying.figures.captions import averaged
from pipelines.studying.figures.certified_marks import all_exact, explain_marks, mark_certified
from pipelines.studying.figures.drawn_values import (
    ERROR,
    LONG_ERROR,
    WRONG,
    Drawn,
    ends_of,
    value_of,
)
from pipelines.studying.groups import arm_words, split
from pipelines.studying.records import Record
from pipelines.studying.statistics import FEWEST_SEEDS
from pipelines.studying.tables import label_groups, median_labels
from pipelines.studying.wording import NOT_WITHIN, percent


def error_by_labels(records: Sequence[Record], folder: Path) -> Picture:
    """DAgger beside cloning: a panel for each measure."""
    groups = label_groups(records)
    arms = split([r for seeds in groups for r in seeds], lambda r: (r.cell.arm, r.cell.operations))
    fewest = "; ".join(
        f"{arm_words(arm)} {_fewest_exact([g for g in groups if g[0] in part])}"
        for (arm, _), part in arms.items()
    )
    title = (
        f"Error by the teacher's answers. {averaged(groups)}\n"
        f"Every seed was exact from so many on: {fewest}"
    )

    def draw(figure: Figure) -> None:
        across = BrokenLog.of(median_labels(seeds) for seeds in groups)
        (row,) = panels(figure, 3, alike=False)
        for axes, measured in zip(row, (ERROR, LONG_ERROR, WRONG), strict=True):
            up = BrokenLog.of(end for seeds in groups for end in ends_of(value_of(seeds, measured)))
            for place, ((arm, operations), part) in enumerate(arms.items()):
                own = [seeds for seeds in groups if seeds[0] in part]
                look = (LOOKS[0] if arm == "cloning" else LOOKS[2]) if place < 2 else LOOKS[place]
                alone = "" if operations == "both" else f", {OPERATION_WORDS[operations]}"
                _draw_labels(axes, look, arm_words(arm) + alone, own, measured, across, up)
            across.on_x(axes, _short_count)
            up.on_y(axes, measured[2])
            axes.set_xlabel("teacher's answers")
            axes.set_title(measured[0])
        explain_marks(row[0])
        legend_below(figure, row[0], 4)

    alt = "; ".join(
        f"{arm_words(seeds[0].cell.arm)}, {median_labels(seeds):,.0f} answers: "
        f"{percent(value_of(seeds, ERROR).value)} % not solved"
        for seeds in groups
    )
    return drawn(folder, "labels", title, alt, (9, 3.7), draw)


def _short_count(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else short(value)


def _fewest_exact(groups: Sequence[Sequence[Record]]) -> str:
    """The number of answers from which on every seed is exact, also with more."""
    lasting = takewhile(
        lambda seeds: all_exact(seeds) and len(seeds) >= FEWEST_SEEDS, reversed(groups)
    )
    exact = [median_labels(seeds) for seeds in lasting]
    return f"{min(exact):,.0f}" if exact else NOT_WITHIN


def _draw_labels(
    axes: Axes,
    look: Look,
    label: str,
    groups: Sequence[Sequence[Record]],
    measured: Drawn,
    across: BrokenLog,
    up: BrokenLog,
) -> None:
    xs = across.places(median_labels(seeds) for seeds in groups)
    found = [value_of(seeds, measured) for seeds in groups]
    axes.plot(xs, up.places(one.value for one in found), label=label, **look.line())
    exact = [place for place, seeds in enumerate(groups) if all_exact(seeds)]
    ys = [up.place(found[place].value) for place in exact]
    mark_certified(axes, look, [xs[place] for place in exact], ys)
    lows, highs = (up.places(ends_of(one)[k] for one in found) for k in (0, 1))
    axes.fill_between(xs, lows, highs, color=look.colour, alpha=0.15, linewidth=0)
