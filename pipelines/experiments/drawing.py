"""Style of the study's figures: looks, axes, legends, and the files for screen and print.

Colours are Okabe and Ito's. What differs in colour differs in line and marker too, so that a grey
print can be read.
"""

from __future__ import annotations

import math
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
from pipelines.experiments.statistics import Text
from pipelines.scoring.figures import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, YELLOW
from pipelines.scoring.figures import STYLE as REPORT_STYLE

SCREEN, PRINT = ".png", ".pdf"
SCREEN_DPI = 200
FAINT = "#c9ced3"
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
#: Distance between zero and the smallest power of ten on an axis, in powers of ten.
_ZERO_GAP = 0.8
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
)


def look_of(kind: Kind) -> Look:
    """Return the look of a kind of supervision, the same in every figure."""
    levels, operations = list(LEVELS), ("both", "add", "subtract")
    if kind.reward in levels:
        place = 1 + levels.index(kind.reward) + operations.index(kind.operations)
        return LOOKS[place % len(LOOKS)]
    return LOOKS[0] if kind.arm == "cloning" else LOOKS[-1]


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
    """Return an empty figure with its title, which is wrapped at the figure's edge."""
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", wrap=True)
    return figure


def logarithmic(axes: Axes, which: Literal["x", "y"], values: Iterable[float], tick: Text) -> None:
    """Make an axis logarithmic, with room for `values`; zero is shown beyond a dotted line."""
    values = list(values)
    powers = [math.log10(value) for value in values if value > 0] or [0.0]
    # The logarithm of a power of ten may be rounded down.
    smallest = 10.0 ** math.floor(min(powers) + 1e-9)
    zero = min(values, default=1.0) <= 0
    low = -smallest * _MARGIN / _ZERO_GAP if zero else 10 ** (min(powers) - _MARGIN)
    # Limits first: they end the automatic scaling, which a single value would confuse.
    axes.set(**{f"{which}lim": (low, 10 ** (max(powers) + _MARGIN))})
    set_scale = axes.set_xscale if which == "x" else axes.set_yscale
    if zero:
        # Linear below the threshold; the length of this part is given in powers of ten.
        scale: Any = {"linthresh": smallest, "linscale": 0.9 * _ZERO_GAP}
        set_scale("symlog", **scale)
        line = axes.axvline if which == "x" else axes.axhline
        line(smallest / 2, color=INK, linewidth=0.7, linestyle=":")
    else:
        set_scale("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, place: tick(value))
    axis.set_minor_formatter(NullFormatter())


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


def panels(figure: Figure, columns: int, rows: int = 1, *, shared: bool = True) -> list[list[Axes]]:
    """Return axes by row; `shared`: with one horizontal axis, and a vertical one for each row."""
    axes: Any = figure.subplots(
        rows, columns, squeeze=False, sharex=shared, sharey="row" if shared else False
    )
    return [list(row) for row in axes]


def legend_below(figure: Figure, columns: int, marks: Sequence[Line2D] = ()) -> None:
    """Add a legend under the axes: every labelled line that was drawn, then the given marks."""
    by_label: dict[str, Line2D] = {}
    for axes in figure.axes:
        for line in axes.lines:
            # matplotlib gives lines without a label one that starts with an underscore.
            if np.size(line.get_xdata()) and not str(line.get_label()).startswith("_"):
                by_label.setdefault(str(line.get_label()), line)
    handles = [*by_label.values(), *marks]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def range_text(values: Sequence[float], text: Text) -> str:
    """Format a range: `45 to 98`, or `98` if all are equal."""
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"
