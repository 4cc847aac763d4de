"""How the study's figures look, and how they are written: for the screen and for print.

Colours are Okabe and Ito's; what differs in colour differs in line and marker too, so that a grey
print can be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abacus.reward import LEVELS
from oracle.files import atomic_write
from pipelines.experiments.records import Kind
from pipelines.scoring.figures import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, YELLOW

SCREEN, PRINT = ".png", ".pdf"
SCREEN_DPI = 200
FAINT = "#c9ced3"
STYLE: dict[str, Any] = {
    "font.size": 9,
    # It comes with matplotlib: the same file on every machine.
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7ea",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "figure.titlesize": 10,
    # Letters that a publisher can embed, not outlines.
    "pdf.fonttype": 42,
}
#: Room between the smallest power of ten that is shown and zero, in powers of ten.
_ZERO_GAP = 0.8
_MARGIN = 0.35
#: A power of ten may come out of the logarithm a hair too high or too low.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Look:
    """A line's colour, marker and dashes."""

    colour: str
    marker: str
    dashes: Any

    def line(self) -> dict[str, Any]:
        """What `plot` is given."""
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
    """The same level looks the same in every figure."""
    levels = list(LEVELS)
    if kind.reward in levels:
        return LOOKS[1 + levels.index(kind.reward)]
    return LOOKS[0] if kind.arm == "cloning" else LOOKS[-1]


@dataclass(frozen=True)
class Picture:
    """A figure on disk, with what it shows in words."""

    key: str
    title: str
    alt: str
    files: tuple[Path, ...]


def drawn(
    folder: Path,
    key: str,
    title: str,
    alt: str,
    size: tuple[float, float],
    draw: Callable[[Figure], None],
) -> Picture:
    """Draws a figure and writes it for screen and print; the same data make the same files."""
    style: Any = STYLE
    with mpl.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        draw(figure)
        files = folder / f"{key}{SCREEN}", folder / f"{key}{PRINT}"
        # Without a date, and without the version of what wrote it.
        bare: Any = {"Software": None}
        atomic_write(
            files[0],
            lambda file: figure.savefig(file, format="png", dpi=SCREEN_DPI, metadata=bare),
        )
        # Laid out once, the same on both.
        figure.set_layout_engine("none")
        undated: Any = {"CreationDate": None, "Creator": None, "Producer": None}
        atomic_write(files[1], lambda file: figure.savefig(file, format="pdf", metadata=undated))
    return Picture(key, title, alt, files)


@dataclass(frozen=True)
class BrokenLog:
    """A logarithmic axis that shows zero too, in a place of its own beyond a break.

    Places are powers of ten: what is drawn is drawn at `place(value)`.
    """

    #: The least and the greatest value above zero, as powers of ten.
    least: float
    greatest: float
    has_zero: bool

    @classmethod
    def of(cls, values: Iterable[float]) -> BrokenLog:
        """An axis that has room for all values, which are 0 or more."""
        found = list(values)
        powers = [math.log10(value) for value in found if value > 0] or [0.0]
        return cls(min(powers), max(powers), any(value <= 0 for value in found))

    @property
    def smallest(self) -> int:
        """The power of ten that the break lies below."""
        return math.floor(self.least + _ROUNDING)

    @property
    def zero(self) -> float:
        """Where zero is drawn."""
        return self.smallest - _ZERO_GAP

    def place(self, value: float) -> float:
        """Where a value is drawn."""
        return math.log10(value) if value > 0 else self.zero

    def places(self, values: Iterable[float]) -> list[float]:
        """Where values are drawn."""
        return [self.place(value) for value in values]

    def ticks(self, shown: Callable[[float], str]) -> tuple[list[float], list[str]]:
        """Zero and powers of ten; every second or third one where there are many."""
        greatest = math.ceil(self.greatest - _ROUNDING)
        apart = 1 + (greatest - self.smallest) // 7
        low, high = self.limits
        powers = [p for p in range(self.smallest, greatest + 1, apart) if low <= p <= high]
        places = [*([self.zero] if self.has_zero else []), *powers]
        return places, [*(["0"] if self.has_zero else []), *(shown(10.0**p) for p in powers)]

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis, with a margin for markers."""
        return (self.zero if self.has_zero else self.least) - _MARGIN, self.greatest + _MARGIN

    def on_x(self, axes: Axes, shown: Callable[[float], str]) -> None:
        """Makes it the horizontal axis."""
        axes.set_xticks(*self.ticks(shown))
        axes.set_xlim(*self.limits)
        if self.has_zero:
            axes.axvline(self.smallest - _ZERO_GAP / 2, color=INK, linewidth=0.7, linestyle=":")

    def on_y(self, axes: Axes, shown: Callable[[float], str]) -> None:
        """Makes it the vertical axis."""
        axes.set_yticks(*self.ticks(shown))
        axes.set_ylim(*self.limits)
        if self.has_zero:
            axes.axhline(self.smallest - _ZERO_GAP / 2, color=INK, linewidth=0.7, linestyle=":")


def plain(value: float) -> str:
    """A tick of a count: `10,000`; of less than 1: `0.01`."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def short(value: float) -> str:
    """A tick where there is little room: `10k`."""
    return f"{value / 1000:,.0f}k" if value >= 1000 else f"{value:.0f}"


def in_percent(value: float) -> str:
    """A tick of a share: `0.1 %`."""
    return f"{100 * value:g} %"


def panels(figure: Figure, columns: int, rows: int = 1, alike: bool = True) -> list[list[Axes]]:
    """Axes by row; alike, those of a row share what they measure."""
    axes: Any = figure.subplots(
        rows, columns, squeeze=False, sharex=alike, sharey="row" if alike else False
    )
    return [list(row) for row in axes]


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """A legend under the axes, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def said_range(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """`45 to 98 %`, or `98 %` where all are alike."""
    low, high = shown(min(values)), shown(max(values))
    return low if low == high else f"{low} to {high}"
