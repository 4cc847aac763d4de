"""Style of the study's figures: looks, axes, legends, and the files for screen and print.

Colours are Okabe and Ito's. What differs in colour differs in line and marker too, so that a grey
print can be read.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from abacus.reward import LEVELS
from oracle.files import atomic_write
from pipelines.experiments.records import Kind
from pipelines.experiments.statistics import Text, estimate
from pipelines.scoring.figures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, YELLOW
from pipelines.scoring.figures import STYLE as REPORT_STYLE

SCREEN, PRINT = ".png", ".pdf"
SCREEN_DPI = 200
BROWN, PALE, OLIVE = "#7a5230", "#7ea6cc", "#6b7d1f"
#: Characters of a title on an inch of its figure.
_TITLE_CHARACTERS = 13.5
STYLE: dict[str, Any] = {
    **REPORT_STYLE,
    "font.size": 9,
    # Comes with matplotlib: the same file on every machine.
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.grid.axis": "both",
    "grid.color": "#e4e7ea",
    "grid.linewidth": 0.6,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.handlelength": 3.2,
    "figure.titlesize": 10,
    # Embed letters, not outlines.
    "pdf.fonttype": 42,
}
#: Distance between zero and the smallest power of ten on an axis, in powers of ten; the second if
#: something is drawn between them.
_ZERO_GAP, _WIDE_GAP = 0.8, 1.5
#: Room for markers at the ends of an axis, in powers of ten.
_MARGIN = 0.35


@dataclass(frozen=True)
class Look:
    """Colour, marker and dashes of a line."""

    colour: str
    marker: str
    dashes: Any

    def line(self) -> dict[str, Any]:
        """Return the keyword arguments of `plot`."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dashes,
            "linewidth": 1.4,
            "markersize": 4.5,
        }


LOOKS = (
    Look(INK, "o", "-"),
    Look(BLUE, "s", "--"),
    Look(ORANGE, "D", "-"),
    Look(GREEN, "^", "-."),
    Look(PURPLE, "v", ":"),
    Look(YELLOW, "P", (0, (6, 1.5, 1, 1.5, 1, 1.5))),
    Look(SKY, "X", (0, (2, 1))),
    Look(GREY, "<", (0, (4, 1, 1, 1))),
    Look(BROWN, ">", (0, (1, 1))),
    Look(PALE, "p", (0, (3, 1.5))),
    Look(OLIVE, "h", (0, (5, 1, 2, 1))),
)


def look_of(kind: Kind) -> Look:
    """Return the look of a kind of supervision, the same in every figure."""
    levels, operations = list(LEVELS), ("both", "add", "subtract")
    if kind.reward in levels:
        place = 1 + levels.index(kind.reward) + operations.index(kind.operations)
        return LOOKS[place % len(LOOKS)]
    return LOOKS[0] if kind.arm == "cloning" else LOOKS[9]


@dataclass(frozen=True)
class FigureFiles:
    """Files of a figure, with its description in words."""

    key: str
    title: str
    alt: str
    files: tuple[Path, ...]


def write_figure(
    folder: Path,
    key: str,
    title: str,
    alt: str,
    size: tuple[float, float],
    draw: Callable[[Figure], None],
) -> FigureFiles:
    """Draw a figure and write it for screen and print; the same data make the same files."""
    style: Any = STYLE
    with mpl.rc_context(style):
        figure = new_figure(title, size)
        draw(figure)
        screen, paper = folder / f"{key}{SCREEN}", folder / f"{key}{PRINT}"
        # Without dates and versions, which would make every file another one.
        bare: Any = {"Software": None}
        atomic_write(
            screen, lambda file: figure.savefig(file, format="png", dpi=SCREEN_DPI, metadata=bare)
        )
        # Keep the layout of the first file.
        figure.set_layout_engine("none")
        undated: Any = {"CreationDate": None, "Creator": None, "Producer": None}
        atomic_write(paper, lambda file: figure.savefig(file, format="pdf", metadata=undated))
    return FigureFiles(key, title, alt, (screen, paper))


def new_figure(title: str, size: tuple[float, float]) -> Figure:
    """Return an empty figure with its title, whose lines are broken at the figure's edge."""
    figure = Figure(figsize=size, layout="constrained")
    width = round(_TITLE_CHARACTERS * size[0])
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, width)]
    figure.suptitle("\n".join(lines), x=0.01, ha="left")
    return figure


def logarithmic(
    axes: Axes,
    which: Literal["x", "y"],
    values: Iterable[float],
    tick: Text,
    between: float | None = None,
) -> None:
    """Make an axis logarithmic, with room for `values`; zero is shown beyond a dotted line.

    `between`: a value below the smallest power of ten that is drawn apart from zero.
    """
    values = [value for value in values if value != between]
    powers = [math.log10(value) for value in values if value > 0] or [0.0]
    # The logarithm of a power of ten may be rounded down.
    smallest = 10.0 ** math.floor(min(powers) + 1e-9)
    gap = _ZERO_GAP if between is None else _WIDE_GAP
    zero = min(values, default=1.0) <= 0
    low = -smallest * _MARGIN / gap if zero else 10 ** (min(powers) - _MARGIN)
    # Limits first: they end the automatic scaling, which a single value would confuse.
    axes.set(**{f"{which}lim": (low, 10 ** (max(powers) + _MARGIN))})
    set_scale = axes.set_xscale if which == "x" else axes.set_yscale
    if zero:
        # Linear below the threshold; the length of this part is given in powers of ten.
        scale: Any = {"linthresh": smallest, "linscale": 0.9 * gap}
        set_scale("symlog", **scale)
        line = axes.axvline if which == "x" else axes.axhline
        line((between or smallest) / 2, color=INK, linewidth=0.7, linestyle=":")
    else:
        set_scale("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, place: tick(value))
    axis.set_minor_formatter(NullFormatter())


@dataclass(frozen=True)
class Place:
    """Seeds of one setting in a figure: the place of their mean, and a point for each of them."""

    x: float
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class SeedLine:
    """A line through the interquartile means of several places, with its intervals and points."""

    label: str
    look: Look
    places: Sequence[Place]
    #: Whether intervals are a band between the places, or a bar at each of them.
    band: bool = True

    def draw(self, axes: Axes, shift: float = 0.0) -> None:
        """Draw the line; places at 0 lie beyond a break of the axis, without a line to them.

        `shift`: fraction of a power of ten by which it is moved, so that equal values do not hide
        each other.
        """
        for part in ([p for p in self.places if p.x <= 0], [p for p in self.places if p.x > 0]):
            xs = [shifted(place.x, shift) for place in part]
            found = [estimate(place.ys) for place in part]
            lows, highs = ([one.ends[k] for one in found] for k in (0, 1))
            axes.plot(xs, [one.value for one in found], label=self.label, **self.look.line())
            colour = self.look.colour
            if len(part) == 1 or not self.band:
                axes.vlines(xs, lows, highs, color=colour, linewidth=1, alpha=0.7)
            elif part:
                axes.fill_between(xs, lows, highs, color=colour, alpha=0.12, linewidth=0)
            for place in part:
                axes.plot(
                    [shifted(x, shift) for x in place.xs],
                    place.ys,
                    ".",
                    color=colour,
                    alpha=0.45,
                    markersize=4,
                    markeredgewidth=0,
                )


def draw_lines(axes: Axes, lines: Sequence[SeedLine], spread: float = 0.03) -> None:
    """Draw lines side by side, with a legend under the axes."""
    for number, line in enumerate(lines):
        line.draw(axes, spread * (number - (len(lines) - 1) / 2))
    axes.legend(
        handles=_labelled([axes]),
        loc="upper left",
        bbox_to_anchor=(-0.08, -0.14),
        ncols=2,
        fontsize=7.5,
        columnspacing=1.0,
    )


def shifted(value: float, shift: float) -> float:
    """Return the value that is drawn beside another by a fraction of a power of ten."""
    return value * 10**shift if value > 0 else shift


def count_tick(value: float) -> str:
    """Format a count: `10,000`; below 1: `0.01`."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def short_tick(value: float) -> str:
    """Format a count where there is little room: `10k`, `1M`."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1000:,.0f}k" if value >= 1000 else f"{value:.0f}"


def percent_tick(value: float) -> str:
    """Format a share: `0.1 %`, and `0`."""
    return f"{100 * value:g} %" if value else "0"


def panels(figure: Figure, columns: int, rows: int = 1, *, shared: bool = True) -> list[Axes]:
    """Return axes side by side, row by row; `shared`: with the same limits."""
    axes: Any = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return list(axes.flat)


def legend_below(figure: Figure, columns: int) -> None:
    """Add a legend of every labelled line that was drawn, under the axes."""
    handles = _labelled(figure.axes)
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _labelled(drawn: Iterable[Axes]) -> list[Line2D]:
    """Return a line for each label; matplotlib gives those without one an underscore."""
    by_label: dict[str, Line2D] = {}
    for line in (line for axes in drawn for line in axes.lines):
        if np.size(line.get_xdata()) and not str(line.get_label()).startswith("_"):
            by_label.setdefault(str(line.get_label()), line)
    return list(by_label.values())
