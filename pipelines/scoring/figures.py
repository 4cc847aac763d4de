"""The figures of an evaluation report, as SVG.

The colours are those of Okabe and Ito; shapes, hatches or labels differ wherever colours do.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from pipelines.job.tables import OPERATION_WORDS, counted
from pipelines.scoring import paper
from pipelines.scoring.errors import ErrorAnalysis
from pipelines.scoring.operations import PAPER_DIGITS
from pipelines.scoring.protocol import ADVERSARIAL, Curve, Results
from pipelines.scoring.scores import ErrorRate, Runs, Score

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
SKY, YELLOW, GREY, INK = "#56b4e9", "#e69f00", "#8a8f94", "#27303a"
GRID, PAPER = "#dddddd", "#ffffff"
#: Colours that are those of the page, light or dark, by the names of its CSS variables.
PAGE_COLOURS = {INK: "ink", GRID: "line", PAPER: "card"}
LINES = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, INK)
MARKERS = "osD^vPX"
WIDE, NARROW = (7.2, 3.4), (7.2, 3.0)
#: Operands of the paper's Table 2 and Fig. 5.
PAPER_LENGTH = counted(PAPER_DIGITS, "digit")
STYLE: dict[str, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    # Text as text: it can be read aloud, searched and copied.
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, with a description in words."""

    key: str
    title: str
    alt: str
    svg: str

    def html(self) -> Markup:
        """Return the SVG element with its description."""
        opening = Markup('<svg role="img" aria-label="{}" ').format(self.alt)
        return Markup(self.svg.replace("<svg ", opening, 1))


def pictures_of(results: Results, subject: str) -> list[Picture]:
    """Return the figures of all parts that have results; `subject` names what was evaluated."""
    pictures = []
    if results.generalisation:
        pictures.append(_generalisation(results.generalisation, subject))
    if results.errors:
        pictures += [_classes(results.errors, subject), _columns(results.errors)]
    if results.runs:
        pictures.append(_runs(results.runs, subject))
    if results.curves:
        pictures.append(_curves(results.curves))
    return pictures


def _draw_picture(key: str, title: str, alt: str, size: tuple[float, float], draw: Any) -> Picture:
    settings: Any = {**STYLE, "svg.hashsalt": key}
    with mpl.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        file = io.StringIO()
        # Without the date, equal results give equal files.
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    svg = file.getvalue()
    for colour, variable in PAGE_COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # Figures on one page would share the identifiers of their groups.
    return Picture(key, title, alt, re.sub(r'<g id="[^"]*"', "<g", svg))


def _legend(axes: Axes, **style: Any) -> None:
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), **style)


def _generalisation(scores: list[Score], subject: str) -> Picture:
    def draw(axes: Axes) -> None:
        for label, colour, marker, shift in (
            ("addition", BLUE, "o", 0.94),
            ("subtraction", ORANGE, "s", 1.06),
        ):
            rates = [
                (shift * score.digits, rate) for score in scores if (rate := score.rates()[label])
            ]
            _draw_rates(axes, rates, colour, marker)
            name = f"{subject}, {label}"
            axes.plot([], [], color=colour, marker=marker, linestyle="none", label=name)
        errors, trials = paper.ERRORS_AT_16
        axes.plot(
            [16], [100 * errors / trials], "*", color=INK, markersize=11, label="authors, both"
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([s.digits for s in scores], [f"{s.digits:,}" for s in scores], rotation=0)
        axes.minorticks_off()
        low, high = axes.get_ylim()
        # Few decades have too few powers of ten.
        digits = (1.0, 2.0, 3.0, 5.0) if high < 100 * low else (1.0,)
        axes.yaxis.set_major_locator(LogLocator(subs=digits))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("digits of the operands (training: 1 to 6)")
        axes.set_ylabel("error rate, %")
        _legend(axes, handletextpad=0.2)

    alt = "Error rate by number of digits, with 95 % intervals: " + "; ".join(
        f"{score.name} {score.errors} errors in {score.operations}" for score in scores
    )
    title = "Error rate on longer operands. Hollow: no error, the mark is the interval's upper end."
    return _draw_picture("generalisation", title, alt, WIDE, draw)


def _draw_rates(axes: Axes, rates: list[tuple[float, ErrorRate]], colour: str, marker: str) -> None:
    """Draw rates with their intervals; without errors, the upper end with an arrow down."""
    met = [(x, rate) for x, rate in rates if rate.errors]
    none = [(x, rate) for x, rate in rates if not rate.errors]
    style: Any = {"color": colour, "marker": marker, "linestyle": "none", "capsize": 3}
    if met:
        spans = [
            [100 * (rate.rate - rate.low) for _, rate in met],
            [100 * (rate.high - rate.rate) for _, rate in met],
        ]
        axes.errorbar([x for x, _ in met], [100 * r.rate for _, r in met], yerr=spans, **style)
    if none:
        tops = [100 * rate.high for _, rate in none]
        axes.errorbar(
            [x for x, _ in none],
            tops,
            yerr=[[0.6 * top for top in tops], [0.0 for _ in tops]],
            uplims=True,
            markerfacecolor=PAPER,
            **{**style, "capsize": 2},
        )


def _drawn_errors(errors: list[ErrorAnalysis]) -> list[ErrorAnalysis]:
    """Return the analyses to draw: the paper's length, or the longest, and the adversarial sets."""
    lengths = [analysis for analysis in errors if analysis.name != ADVERSARIAL]
    longest = [analysis for analysis in lengths if analysis.name == PAPER_LENGTH] or lengths[-1:]
    return [*longest, *(analysis for analysis in errors if analysis.name == ADVERSARIAL)]


def _classes(all_errors: list[ErrorAnalysis], subject: str) -> Picture:
    errors = _drawn_errors(all_errors)
    names = list(errors[0].classes)

    def draw(axes: Axes) -> None:
        bars = [
            *(
                (f"{subject}, {analysis.name}", [100 * analysis.share(n) for n in names])
                for analysis in errors
            ),
            ("authors", [paper.ERROR_CLASSES.get(n, 0.0) for n in names]),
        ]
        width = 0.8 / len(bars)
        for k, (label, values) in enumerate(bars):
            places = [x + (k - (len(bars) - 1) / 2) * width for x in range(len(names))]
            is_authors = label == "authors"
            axes.bar(
                places,
                values,
                width * 0.92,
                label=label,
                color=PAPER if is_authors else LINES[k % len(LINES)],
                edgecolor=INK,
                linewidth=0.8,
                hatch="////" if is_authors else ("", "..", "xx", "--")[k % 4],
            )
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel("share of first errors, %")
        _legend(axes)

    alt = "; ".join(
        f"{a.name}: " + ", ".join(f"{n} {100 * a.share(n):.1f} %" for n in names) for a in errors
    )
    return _draw_picture("classes", "Class of the first error.", alt, NARROW, draw)


def _columns(errors: list[ErrorAnalysis]) -> Picture:
    chosen = _drawn_errors(errors)[0]

    def draw(axes: Axes) -> None:
        columns = range(max(chosen.columns) + 1)
        shares = [100 * chosen.columns.get(column, 0) / chosen.analysed for column in columns]
        axes.bar(columns, shares, 0.75, color=BLUE, edgecolor=INK, linewidth=0.6)
        if len(columns) <= 30:
            axes.set_xticks(list(columns))
        axes.set_xlabel("column of the first error (0 is the least significant)")
        axes.set_ylabel("share, %")

    alt = ", ".join(f"column {column}: {count}" for column, count in chosen.columns.items())
    return _draw_picture("columns", f"Columns of first errors, {chosen.name}.", alt, NARROW, draw)


def _runs(all_runs: list[Runs], subject: str) -> Picture:
    def draw(axes: Axes) -> None:
        names = [OPERATION_WORDS[runs.operations] for runs in all_runs]
        authors = [paper.LONGEST_RUNS[runs.operations] for runs in all_runs]
        kinds: list[tuple[str, list[float], str, str]] = [
            (f"{subject}, longest", [runs.longest for runs in all_runs], BLUE, ""),
            (f"{subject}, median", [runs.median for runs in all_runs], SKY, ".."),
            ("authors, longest", [float(count) for count in authors], PAPER, "////"),
        ]
        for k, (label, values, colour, hatch) in enumerate(kinds):
            places = [y + (k - 1) * 0.26 for y in range(len(names))]
            bars = axes.barh(
                places, values, 0.24, color=colour, edgecolor=INK, hatch=hatch, label=label
            )
            axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlabel(f"operations solved in one episode (limit {all_runs[0].limit:,})")
        axes.margins(x=0.12)
        _legend(axes)

    alt = "; ".join(
        f"{OPERATION_WORDS[r.operations]}: longest {r.longest}, median {r.median}" for r in all_runs
    )
    return _draw_picture("runs", "Operations solved in one episode.", alt, NARROW, draw)


def _curves(curves: list[Curve]) -> Picture:
    def draw(axes: Axes) -> None:
        for k, curve in enumerate(curves):
            axes.plot(
                [step / 1e6 for step in curve.steps],
                [100 * accuracy for accuracy in curve.accuracies],
                color=LINES[k % len(LINES)],
                linestyle=("-", "--", ":", "-.")[(k // len(LINES)) % 4],
                marker=MARKERS[k % len(MARKERS)],
                markevery=(0.05 * k % 0.1, 0.1),
                markersize=4,
                linewidth=1.4,
                label=curve.name,
            )
        axes.set_xlabel("million steps")
        axes.set_ylabel("operations solved, %")
        axes.set_ylim(-2, 102)
        _legend(axes, fontsize=9)

    alt = "; ".join(f"{curve.name}: {curve.accuracies[-1]:.1%} at the end" for curve in curves)
    return _draw_picture("curves", "Operations solved during training.", alt, WIDE, draw)
