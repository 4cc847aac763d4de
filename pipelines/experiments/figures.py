"""The figures of the study, from the rows of `frame_of`. Titles are computed from the records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.experiments.arms import ARMS
from pipelines.experiments.drawing import (
    FAINT,
    LOOKS,
    FigureFiles,
    Look,
    count_tick,
    legend_below,
    logarithmic,
    look_of,
    panels,
    percent_tick,
    range_text,
    shifted,
    short_tick,
    write_figure,
)
from pipelines.experiments.records import (
    POLICIES,
    Kind,
    budget,
    by_setting,
    comparison_of,
    comparisons,
    groups,
    main_comparison,
    stepping_arms,
)
from pipelines.experiments.statistics import (
    BEYOND,
    FEWEST_SEEDS,
    NOT_WITHIN,
    Estimate,
    Text,
    accuracies_at,
    estimate,
    iqm,
    seeds_text,
    shared_steps,
)
from pipelines.experiments.tables import (
    ACCURACY,
    ALL_SEEDS,
    WRONG,
    Change,
    Measure,
    final_estimate,
    kind_thresholds,
    label_groups,
    median_labels,
)
from pipelines.job.tables import decimal_percent as percent
from pipelines.scoring.figures import GREY, INK

#: Errors below this share have one colour in the heat map.
_FINEST = 1e-3
Seeds = Mapping[tuple[Kind, int], pd.DataFrame]


ERROR = Measure("error", "operations not solved", percent_tick)
LONG_ERROR = Measure("long_error_rate", "errors at 16 digits", percent_tick)
WRONG_OBSERVATIONS = Measure("wrong", "wrong observations", count_tick)


def draw_figures(rows: pd.DataFrame, folder: Path) -> list[FigureFiles]:
    """Draw all figures for which there are records into a folder."""
    errors = {f"{policy}_error": 1 - rows[f"{policy}_accuracy"] for policy in POLICIES}
    return list(_figures(rows.assign(**errors), folder))


def _figures(rows: pd.DataFrame, folder: Path) -> Iterator[FigureFiles]:
    main = main_comparison(rows)
    # With one number of demonstrations there is nothing to draw against.
    if main["demonstrations"].nunique() > 1:
        yield error_by_demonstrations(_both_operations(main), folder)
        yield heat_map(main, folder)
    trained = _rows_with_curves(rows)
    if len(trained):
        yield learning_curves(_both_operations(trained), "curves_levels", folder)
        single = trained[trained["reward"] == "dense"]
        if (single["operations"] != "both").any():
            yield learning_curves(single, "curves_operations", folder)
    tuned = main_comparison(rows[(rows["arm"] == "ppo") & rows["clone_accuracy"].notna()])
    if len(tuned):
        yield ppo_added(_both_operations(tuned), folder)
    if (rows["arm"] == "dagger").any():
        yield error_by_labels(rows, folder)
    for curves in comparisons(rows[rows["evaluations"] > 0], *stepping_arms()):
        if curves["arm"].isin(("dqn", "dqn_unmasked")).any():
            yield dqn_curves(curves[curves["demonstrations"] == 0], folder)


def _both_operations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with both operations, or all if there are none."""
    both = rows[rows["operations"] == "both"]
    return both if len(both) else rows


def _averages(parts: Sequence[pd.DataFrame]) -> str:
    """Describe lines and bands over seeds."""
    counts = [len(seeds) for seeds in parts]
    if max(counts, default=0) < FEWEST_SEEDS:
        return f"Interquartile mean of {seeds_text(counts)}: too few for an interval"
    few = f" (none for fewer than {FEWEST_SEEDS})" if min(counts) < FEWEST_SEEDS else ""
    return f"Interquartile mean and 95 % interval{few} of {seeds_text(counts)}"


def _errors_alt(settings: Seeds) -> str:
    """Describe the errors with the fewest and the most demonstrations of each kind."""
    parts = []
    for kind in dict.fromkeys(kind for kind, _ in settings):
        counts = [n for other, n in settings if other == kind]
        ends = (
            f"{percent(final_estimate(settings[kind, n], ERROR).value)} % at {n:,}"
            for n in (counts[0], counts[-1])
        )
        parts.append(f"{kind.name}: {', '.join(ends)}")
    return "Operations not solved, by demonstrations: " + "; ".join(parts)


@dataclass(frozen=True)
class ErrorLine:
    """A line of errors: its look, and the seeds at each amount of supervision."""

    label: str
    look: Look
    seeds: Mapping[float, pd.DataFrame]


def _draw_errors(
    figure: Figure,
    lines: Sequence[ErrorLine],
    measures: Sequence[Measure],
    xlabel: str,
    tick: Text,
) -> None:
    """Draw a panel for each measure, with hollow marks where every seed is certified exact.

    No errors in a sample is not yet exact, and a mean of zero may hide a seed with errors.
    """
    (row,) = panels(figure, len(measures), shared=False)
    for axes, measure in zip(row, measures, strict=True):
        drawn = []
        for place, line in enumerate(lines):
            # Shifted, so that equal errors do not hide each other.
            shift = 0.045 * (place - (len(lines) - 1) / 2)
            found = {amount: final_estimate(seeds, measure) for amount, seeds in line.seeds.items()}
            _draw_error_line(axes, line, found, shift)
            drawn += [value for one in found.values() for value in (*one.ends, one.value)]
        logarithmic(axes, "x", [amount for line in lines for amount in line.seeds], tick)
        logarithmic(axes, "y", drawn, measure.text)
        axes.set_xlabel(xlabel)
        axes.set_title(measure.title)
    certified = any(seeds["final_exact"].all() for line in lines for seeds in line.seeds.values())
    style: Any = {"color": INK, "marker": "o", "markerfacecolor": "white", "linestyle": "none"}
    mark = Line2D([], [], label="hollow: every seed certified exact", **style)
    legend_below(figure, 4, [mark] if certified else [])


def _draw_error_line(
    axes: Axes, line: ErrorLine, found: Mapping[float, Estimate], shift: float
) -> None:
    """Draw a line with its band; zero lies beyond a break of the axis, without a line to it."""
    for amounts in ([n for n in found if n == 0], [n for n in found if n > 0]):
        xs = [shifted(n, shift) for n in amounts]
        lows, highs = ([found[n].ends[k] for n in amounts] for k in (0, 1))
        axes.plot(xs, [found[n].value for n in amounts], label=line.label, **line.look.line())
        if len(amounts) == 1:
            axes.vlines(xs, lows, highs, color=line.look.colour, linewidth=1, alpha=0.7)
        elif amounts:
            axes.fill_between(xs, lows, highs, color=line.look.colour, alpha=0.1, linewidth=0)
    exact = [n for n in found if line.seeds[n]["final_exact"].all()]
    hollow = {"markerfacecolor": "white", "linestyle": "none", "zorder": 4}
    xs, ys = [shifted(n, shift) for n in exact], [found[n].value for n in exact]
    axes.plot(xs, ys, **{**line.look.line(), **hollow})


def error_by_demonstrations(rows: pd.DataFrame, folder: Path) -> FigureFiles:
    """Draw errors on the training distribution and at 16 digits, a line for each kind."""
    settings, thresholds = by_setting(rows), kind_thresholds(rows, ALL_SEEDS)
    exact = sum(
        found.value != BEYOND and found.seeds >= FEWEST_SEEDS for found in thresholds.values()
    )
    title = (
        f"Exact in every seed with up to {rows['demonstrations'].max():,} demonstrations: "
        f"{exact} of {len(thresholds)} kinds of supervision\n"
        f"Comparison {comparison_of(rows)}. {_averages(list(settings.values()))}."
    )
    lines = [
        ErrorLine(kind.name, look_of(kind), {n: s for (k, n), s in settings.items() if k == kind})
        for kind in thresholds
    ]

    def draw(figure: Figure) -> None:
        _draw_errors(figure, lines, (ERROR, LONG_ERROR), "demonstrated operations", count_tick)

    alt = _errors_alt(settings)
    return write_figure(folder, "error_by_demonstrations", title, alt, (9, 4.6), draw)


def error_by_labels(rows: pd.DataFrame, folder: Path) -> FigureFiles:
    """Draw DAgger beside cloning, a panel for each measure."""
    parts = label_groups(rows)
    by_kind: dict[Kind, list[pd.DataFrame]] = {}
    for seeds in parts:
        by_kind.setdefault(seeds["kind"].iloc[0], []).append(seeds)
    looks = (LOOKS[0], LOOKS[2], *LOOKS[3:])
    lines = [
        ErrorLine(kind.name, look, {median_labels(seeds): seeds for seeds in by_kind[kind]})
        for kind, look in zip(sorted(by_kind), looks, strict=False)
    ]
    exact = ", ".join(f"{_fewest_exact(by_kind[kind])} ({kind.name})" for kind in sorted(by_kind))
    title = f"Teacher's answers from which on every seed is exact: {exact}\n{_averages(parts)}."

    def draw(figure: Figure) -> None:
        measures = (ERROR, LONG_ERROR, WRONG_OBSERVATIONS)
        _draw_errors(figure, lines, measures, "teacher's answers", short_tick)

    alt = "; ".join(
        f"{ARMS[seeds['arm'].iloc[0]].title}, {median_labels(seeds):,.0f} answers: "
        f"{percent(final_estimate(seeds, ERROR).value)} % not solved"
        for seeds in parts
    )
    return write_figure(folder, "labels", title, alt, (9, 3.7), draw)


def _fewest_exact(parts: Sequence[pd.DataFrame]) -> str:
    """Format the number of answers from which on every seed is exact."""
    lasting = takewhile(
        lambda seeds: seeds["final_exact"].all() and len(seeds) >= FEWEST_SEEDS, reversed(parts)
    )
    exact = [median_labels(seeds) for seeds in lasting]
    return f"{min(exact):,.0f}" if exact else NOT_WITHIN


def heat_map(rows: pd.DataFrame, folder: Path) -> FigureFiles:
    """Draw the accuracy with demonstrations down and kinds of supervision across."""
    settings = by_setting(rows)
    wide = rows.groupby(["demonstrations", "kind"])["final_accuracy"].agg(lambda s: float(iqm(s)))
    table = wide.unstack()
    values = table.to_numpy(np.float64)
    kinds, counts = sorted(set(rows["kind"])), sorted(set(rows["demonstrations"]))
    title = (
        f"{range_text(wide.tolist(), percent)} % of operations are solved, depending on "
        f"demonstrations and supervision\nComparison {comparison_of(rows)}. "
        f"Interquartile mean of {seeds_text(map(len, settings.values()))}; "
        "below it, the number of seeds that were certified exact, if any"
    )

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shades = -np.log10(np.maximum(1 - values, _FINEST))
        finest = -math.log10(_FINEST)
        image = axes.imshow(shades, cmap="cividis", vmin=0, vmax=finest, aspect="auto")
        for (y, x), value in np.ndenumerate(values):
            seeds = settings.get((kinds[x], counts[y]))
            axes.text(
                x,
                y,
                "-" if seeds is None else _heat_text(seeds, value),
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if seeds is not None and shades[y, x] < 0.55 * finest else INK,
                linespacing=1.1,
            )
        names = [kind.name.replace(", ", ",\n").replace(" alone", "\nalone") for kind in kinds]
        axes.set_xticks(range(len(names)), names, fontsize=7.5)
        axes.set_yticks(range(len(counts)), [f"{n:,}" for n in counts])
        axes.set_ylabel("demonstrated operations")
        axes.grid(visible=False)
        for edges, line in ((values.shape[0], axes.axhline), (values.shape[1], axes.axvline)):
            for edge in range(1, edges):
                line(edge - 0.5, color="white", linewidth=0.8)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        ticks = range(round(finest) + 1)
        bar = figure.colorbar(image, ax=axes, ticks=list(ticks), pad=0.01, fraction=0.04)
        labels = [percent(1 - 10.0**-tick).rstrip("0").rstrip(".") or "0" for tick in ticks]
        bar.ax.set_yticklabels([*labels[:-1], f"{labels[-1]}+"])
        bar.outline.set_visible(False)
        bar.set_label("operations solved, %")

    size = (max(2.0 + 0.72 * values.shape[1], 6.5), 1.6 + 0.38 * values.shape[0])
    return write_figure(folder, "heat_map", title, _errors_alt(settings), size, draw)


def _heat_text(seeds: pd.DataFrame, value: float) -> str:
    exact = seeds["final_exact"].sum()
    return percent(value) + (f"\n{exact}/{len(seeds)} exact" if exact else "")


def _rows_with_curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Return PPO in the comparison with the largest budget, preferably with and without clones."""

    def preference(part: pd.DataFrame) -> tuple[bool, int]:
        counts = set(part["demonstrations"])
        return 0 in counts and len(counts) > 1, budget(part)

    return max(comparisons(rows[rows["evaluations"] > 0], "ppo"), key=preference, default=rows[:0])


@dataclass(frozen=True)
class CurveLine:
    """A learning curve: its label, its look and its seeds."""

    label: str
    look: Look
    seeds: pd.DataFrame

    @property
    def end(self) -> float:
        """Interquartile mean of the accuracies at the end of training."""
        return float(iqm(self.seeds["last_accuracy"]))

    def draw(self, axes: Axes) -> None:
        """Draw a line of means over seeds, with its band."""
        records = self.seeds["record"].tolist()
        steps = shared_steps(records)
        found = [estimate([accuracies_at(records, step)]) for step in steps]
        millions = [step / 1e6 for step in steps]
        line = {**self.look.line(), "markevery": max(1, len(steps) // 8)}
        axes.plot(millions, [100 * one.value for one in found], label=self.label, **line)
        lows, highs = ([100 * one.ends[k] for one in found] for k in (0, 1))
        axes.fill_between(millions, lows, highs, color=self.look.colour, alpha=0.15, linewidth=0)


def _curve_figure(
    folder: Path,
    key: str,
    finding: str,
    rows: pd.DataFrame,
    by_panel: Mapping[str, list[CurveLine]],
) -> FigureFiles:
    """Draw panels of learning curves side by side."""
    averages = _averages([curve.seeds for curves in by_panel.values() for curve in curves])
    title = f"{finding}\nComparison {comparison_of(rows)}, greedy policy. {averages}"

    def draw(figure: Figure) -> None:
        (row,) = panels(figure, len(by_panel))
        for axes, (name, curves) in zip(row, by_panel.items(), strict=True):
            for curve in curves:
                curve.draw(axes)
            ends = range_text([curve.end for curve in curves], percent)
            axes.set_title(f"{name}: {ends} % at the end")
            axes.set_xlabel("environment steps, millions")
            axes.set_ylim(-3, 103)
        row[0].set_ylabel("operations solved, %")
        legend_below(figure, 5)

    alt = "; ".join(
        f"{curve.label}, {name}: {percent(curve.end)} % at the end"
        for name, curves in by_panel.items()
        for curve in curves
    )
    return write_figure(folder, key, title, alt, (max(3.6 * len(by_panel), 7.2), 3.7), draw)


def learning_curves(rows: pd.DataFrame, key: str, folder: Path) -> FigureFiles:
    """Draw a panel for no, some and most demonstrations, a curve for each kind."""
    numbers = sorted(set(rows["demonstrations"]))
    counts = [numbers[place] for place in sorted({0, len(numbers) // 2, len(numbers) - 1})]
    by_panel = {
        f"{n:,} demonstrations" if n else "no demonstrations": [
            CurveLine(kind.name, look_of(kind), seeds)
            for (kind, other), seeds in by_setting(rows).items()
            if other == n
        ]
        for n in counts
    }
    ends = " and ".join(
        f"{range_text([curve.end for curve in by_panel[name]], percent)} % with {name}"
        for name in dict.fromkeys((next(iter(by_panel)), next(reversed(by_panel))))
    )
    finding = f"Operations that PPO solves after {budget(rows):,} steps: {ends}"
    return _curve_figure(folder, key, finding, rows, by_panel)


def dqn_curves(rows: pd.DataFrame, folder: Path) -> FigureFiles:
    """Draw a panel for each level of reward, a curve for each learner."""
    arms = [arm for arm in stepping_arms() if (rows["arm"] == arm).any()]
    by_panel: dict[str, list[CurveLine]] = {}
    for (kind, _), seeds in by_setting(rows).items():
        curve = CurveLine(ARMS[kind.arm].title, LOOKS[1 + arms.index(kind.arm)], seeds)
        by_panel.setdefault(kind.name, []).append(curve)
    by_arm: dict[str, list[float]] = {}
    for curve in (curve for curves in by_panel.values() for curve in curves):
        by_arm.setdefault(curve.label, []).append(curve.end)
    ends = ", ".join(f"{range_text(found, percent)} % ({arm})" for arm, found in by_arm.items())
    finding = f"Operations solved without demonstrations after {budget(rows):,} steps: {ends}"
    return _curve_figure(folder, f"dqn_{comparison_of(rows)}", finding, rows, by_panel)


def ppo_added(rows: pd.DataFrame, folder: Path) -> FigureFiles:
    """Draw errors above and wrong observations below, a column of panels for each kind."""
    settings = by_setting(rows)
    kinds = sorted(set(rows["kind"]))
    solved, wrong = (Change.of(rows, "final", measure) for measure in (ACCURACY, WRONG))
    title = (
        f"PPO solved more operations than the clone in {solved.rose} of {solved.seeds} runs and "
        f"fewer in {solved.fell};\nwrong observations fell in {wrong.fell} runs and rose in "
        f"{wrong.rose} (comparison {comparison_of(rows)}; policy kept by the run; "
        f"{seeds_text(map(len, settings.values()))} a point)"
    )

    def draw(figure: Figure) -> None:
        grid = panels(figure, len(kinds), 2)
        for row, measure in zip(grid, (ERROR, WRONG_OBSERVATIONS), strict=True):
            drawn = pd.concat([rows[f"{policy}_{measure.key}"] for policy in POLICIES])
            for axes, kind in zip(row, kinds, strict=True):
                for (other, n), seeds in settings.items():
                    if other == kind:
                        _draw_change(axes, look_of(kind), seeds, measure, n)
                logarithmic(axes, "y", drawn, measure.text)
            row[0].set_ylabel(measure.title)
        for axes, kind in zip(grid[0], kinds, strict=True):
            axes.set_title(kind.name)
        for axes in grid[1]:
            logarithmic(axes, "x", rows["demonstrations"], short_tick)
            axes.set_xlabel("demonstrations")
        marks: tuple[tuple[str, dict[str, Any]], ...] = (
            ("clone", {"marker": "o", "markerfacecolor": "white", "linestyle": "none"}),
            ("kept by the run", {"marker": "o", "linestyle": "none"}),
            ("last of the run", {"marker": "x", "markersize": 4, "linestyle": "none"}),
            ("each seed, clone to kept", {"color": GREY, "marker": "."}),
        )
        base = {"color": INK, "markersize": 5}
        legend_below(figure, 4, [Line2D([], [], label=k, **{**base, **v}) for k, v in marks])

    changes = {kind: Change.of(part, "final", ACCURACY) for kind, part in groups(rows, "kind")}
    alt = "; ".join(
        f"{kind.name}: rose in {change.rose}, fell in {change.fell} of {change.seeds}"
        for kind, change in changes.items()
    )
    size = (max(2.3 * len(kinds) + 0.6, 7.5), 5.6)
    return write_figure(folder, "ppo_added", title, alt, size, draw)


def _draw_change(axes: Axes, look: Look, seeds: pd.DataFrame, measure: Measure, x: float) -> None:
    """Draw an arrow from the clone to the kept policy, and to its left a thin line a seed."""
    values = {policy: seeds[f"{policy}_{measure.key}"] for policy in POLICIES}
    for place, ends in enumerate(zip(values["clone"], values["final"], strict=True)):
        left = shifted(x, -0.28 + 0.18 * (place + 0.5) / len(seeds))
        axes.plot([left, left], ends, color=FAINT, linewidth=1, solid_capstyle="round")
        axes.plot([left], ends[1:], ".", color=GREY, markersize=2.5)
    clone, kept, last = (float(iqm(values[policy])) for policy in POLICIES)
    arrow = {"arrowstyle": "-|>", "linewidth": 1.2, "shrinkA": 3, "shrinkB": 2, "mutation_scale": 7}
    axes.annotate("", (x, kept), (x, clone), arrowprops={"color": look.colour, **arrow})
    axes.plot([x], [clone], "o", color=look.colour, markerfacecolor="white", markersize=5)
    axes.plot([x], [kept], "o", color=look.colour, markersize=4)
    axes.plot([shifted(x, 0.13)], [last], "x", color=INK, markersize=4, markeredgewidth=1)
