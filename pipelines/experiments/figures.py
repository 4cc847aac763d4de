"""The figures of the study, from the rows of `frame_of`. Titles are computed from the records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abacus.reward import LEVELS
from pipelines.experiments.drawing import (
    LOOKS,
    FigureFiles,
    Look,
    Place,
    SeedLine,
    count_tick,
    draw_lines,
    legend_below,
    logarithmic,
    look_of,
    panels,
    percent_tick,
    short_tick,
    write_figure,
)
from pipelines.experiments.records import (
    Record,
    budget,
    by_setting,
    comparison_of,
    comparisons,
    early_step,
    fine_tuning,
    groups,
    reward_alone,
    with_steps,
    without_steps,
)
from pipelines.experiments.statistics import (
    FEWEST_SEEDS,
    accuracies_at,
    accuracy_at,
    estimate,
    first_reaching,
    iqm,
    range_text,
    seeds_text,
    shared_steps,
    whole_curve,
)
from pipelines.experiments.tables import median_labels
from pipelines.job.tables import OPERATION_WORDS, points
from pipelines.job.tables import decimal_percent as percent

#: Where no error among those of a score is drawn: between the smallest error rate and "exact".
NONE_SEEN = 4e-5
_SMALLEST_ERROR = 1e-4
#: Accuracy whose first evaluation is named in the title of learning curves.
_MILESTONE = 0.99
#: Panels of learning curves in a row.
MOST_PANELS = 3
#: Places of the looks of approaches among `LOOKS`.
_APPROACH_LOOKS = {
    "cloning alone": 0,
    "teaching": 2,
    "DAgger": 3,
    "PPO from nothing": 5,
    "planning and mending": 10,
    "DQN, masked": 7,
    "DQN, unmasked": 4,
    "GAIL": 8,
}
#: Of arms that are not listed.
_OTHER_LOOK = 6
#: Of PPO after clones: with the most and the least reward, or most and fewer demonstrations.
_TUNED_LOOKS, _DEMONSTRATION_LOOKS = (1, 4), (1, 9)


def draw_figures(rows: pd.DataFrame, folder: Path) -> list[FigureFiles]:
    """Draw all figures for which there are records into a folder."""
    return list(_figures(rows, folder))


def _figures(rows: pd.DataFrame, folder: Path) -> Iterator[FigureFiles]:
    if len(rows):
        yield supervision(rows, folder)
    tuned = fine_tuning(rows)
    if len(tuned):
        yield reward_modules(tuned, folder)
    curves = [part[part["evaluations"] > 0] for part in reward_alone(rows)]
    levels = [part[part["operations"] == "both"] for part in curves]
    if any(map(len, levels)):
        yield learning_curves([part for part in levels if len(part)], "curves_levels", folder)
    single = [part[part["reward"] == "dense"] for part in curves]
    single = [part for part in single if (part["operations"] != "both").any()]
    if single:
        yield learning_curves(single, "curves_operations", folder)


def _look(approach: str) -> Look:
    return LOOKS[_APPROACH_LOOKS.get(approach, _OTHER_LOOK)]


def _averages(counts: Sequence[int]) -> str:
    """Describe lines, bands and points."""
    if max(counts, default=0) < FEWEST_SEEDS:
        return f"Interquartile mean of {seeds_text(counts)}: too few for an interval"
    few = f" (none for fewer than {FEWEST_SEEDS})" if min(counts) < FEWEST_SEEDS else ""
    return f"Interquartile mean and 95 % interval{few} of {seeds_text(counts)}; a dot is a seed"


# The figure that answers the question: supervision spent against what was reached.


def supervision(rows: pd.DataFrame, folder: Path) -> FigureFiles:
    """Draw the teacher's answers against wrong observations, and steps against errors."""
    both = _longest_from_nothing(_both_operations(rows))
    answers, steps = answer_lines(both), step_lines(both)
    level = _shared_level(both)
    counts = [len(place.ys) for line in (*answers, *steps) for place in line.places]
    title = f"{finding(both)}\n{_averages(counts)}."

    def draw(figure: Figure) -> None:
        left, *others = panels(figure, 2 if steps else 1, shared=False)
        draw_lines(left, answers)
        _scale_answers(left, answers)
        left.set_title("What the teacher's answers reach")
        if not others:
            return
        (right,) = others
        draw_lines(right, steps, spread=0.01)
        _scale_steps(right, steps)
        right.set_title(f"What steps with a reward reach (level {level})")

    alt = f"Supervision spent and reached. {' '.join(finding(both).split())}"
    return write_figure(folder, "supervision", title, alt, (11.5 if steps else 8.2, 6.4), draw)


def _both_operations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with both operations, or all if there are none."""
    both = rows[rows["operations"] == "both"]
    return both if len(both) else rows


def _longest_from_nothing(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out PPO from nothing where another comparison trains it for longer."""
    from_nothing = rows[(rows["arm"] == "ppo") & (rows["demonstrations"] == 0)]
    longest = from_nothing.groupby("kind")["steps"].transform("max")
    return rows.drop(from_nothing.index[from_nothing["steps"] < longest])


def _shared_level(rows: pd.DataFrame) -> str:
    """Return the level with most approaches that learn from its reward; more reward if equal."""
    stepping = with_steps(rows)
    approaches = {level: set(stepping[stepping["reward"] == level]["approach"]) for level in LEVELS}
    return max(LEVELS, key=lambda level: len(approaches[level]))


def wrong_or_exact(seeds: pd.DataFrame) -> list[float]:
    """Return the wrong observations of the kept policies; 0 for those that are proven exact."""
    wrong = seeds["final_wrong"].where(~seeds["final_proven"].astype(bool), 0)
    return [float(value) for value in wrong]


def error_or_exact(rate: float, *, proven: bool = False) -> float:
    """Return an error rate; 0 if proven exact, `NONE_SEEN` if there was no error by chance."""
    return 0.0 if proven else rate or NONE_SEEN


def answer_lines(rows: pd.DataFrame) -> list[SeedLine]:
    """Return a line for each approach, by the teacher's answers; PPO at two levels."""
    lines = [
        SeedLine(approach, _look(approach), _teaching_places(part) or _answer_places(part))
        for approach, part in _approaches(without_steps(rows))
    ]
    tuned = fine_tuning(rows).query("demonstrations > 0")
    kinds = sorted(set(tuned["kind"]))
    ends = dict.fromkeys((*kinds[:1], *kinds[-1:]))
    for kind, place in zip(ends, _TUNED_LOOKS, strict=False):
        label = f"clone, then PPO, {kind.reward}"
        part = tuned[tuned["kind"] == kind]
        lines.append(SeedLine(label, LOOKS[place], _answer_places(part)))
    level = _shared_level(rows)
    for part in reward_alone(rows):
        shown = part[part["reward"] == level]
        for approach, seeds in _approaches(shown):
            label = f"{approach}, {level}"
            lines.append(SeedLine(label, _look(approach), _answer_places(seeds)))
    return lines


def _approaches(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each approach, in the order of the rows."""
    return [(name, rows[rows["approach"] == name]) for name in dict.fromkeys(rows["approach"])]


def _answer_places(rows: pd.DataFrame) -> list[Place]:
    settings = [seeds for part in comparisons(rows) for seeds in by_setting(part)]
    places = [
        Place(median_labels(seeds), seeds["labels"].tolist(), wrong_or_exact(seeds))
        for seeds in settings
    ]
    return sorted(places, key=lambda place: place.x)


def _teaching_places(rows: pd.DataFrame) -> list[Place]:
    """Return a place for each round of teaching; a seed that has ended stays where it is."""
    found: list[Record] = [record for record in rows["record"] if record.rounds]
    places = []
    for number in range(max((len(record.rounds) for record in found), default=0)):
        now = [record.rounds[min(number, len(record.rounds) - 1)] for record in found]
        labels = [float(each.labels) for each in now]
        wrong = [float(each.wrong) for each in now]
        places.append(Place(median(labels), labels, wrong))
    return places


def step_lines(rows: pd.DataFrame) -> list[SeedLine]:
    """Return a line for each approach, by environment steps, at the level that most have."""
    shown = with_steps(rows[rows["reward"].isin((_shared_level(rows), "none"))])
    numbers = sorted(set(shown[shown["arm"] == "ppo"]["demonstrations"]) - {0})
    # Of clones, the middle and the largest number of demonstrations.
    kept = {0, *numbers[len(numbers) // 2 :][:1], *numbers[-1:]}
    lines = []
    for part in comparisons(shown):
        for seeds in by_setting(part):
            arm, n = seeds["arm"].iloc[0], int(seeds["demonstrations"].iloc[0])
            if arm == "ppo" and n not in kept:
                continue
            approach = str(seeds["approach"].iloc[0])
            look = _look(approach)
            if arm == "ppo" and n:
                look = LOOKS[_DEMONSTRATION_LOOKS[n != numbers[-1]]]
            name = "PPO" if arm == "ppo" else approach
            label = f"{name} after {n:,} demonstrations" if n else approach
            lines.append(SeedLine(label, look, _step_places(seeds)))
    return lines


def _step_places(seeds: pd.DataFrame) -> list[Place]:
    """Return the evaluations during training, and the kept policies after all steps."""
    records: list[Record] = seeds["record"].tolist()
    places = []
    for points_of_seeds in zip(*(whole_curve(record)[:-1] for record in records), strict=False):
        xs = [float(point.step) for point in points_of_seeds]
        ys = [error_or_exact(point.long_error_rate) for point in points_of_seeds]
        places.append(Place(median(xs), xs, ys))
    xs = [float(record.all_steps) for record in records]
    ys = [
        error_or_exact(record.final.long_error_rate, proven=record.final.proven)
        for record in records
    ]
    return [*places, Place(median(xs), xs, ys)]


def _scale_answers(axes: Axes, lines: Sequence[SeedLine]) -> None:
    places = [place for line in lines for place in line.places]
    logarithmic(axes, "x", [x for place in places for x in place.xs], short_tick)
    logarithmic(axes, "y", [0, 1, *(y for place in places for y in place.ys)], _wrong_tick)
    axes.set_xlabel("answers of the teacher")
    axes.set_ylabel("wrong observations of 99,784 (not as the teacher)")


def _wrong_tick(value: float) -> str:
    return count_tick(value) if value else "proven\nexact"


def _scale_steps(axes: Axes, lines: Sequence[SeedLine]) -> None:
    places = [place for line in lines for place in line.places]
    logarithmic(axes, "x", [x for place in places for x in place.xs], short_tick)
    _scale_errors(axes)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("errors at 16 digits")


def _scale_errors(axes: Axes) -> None:
    """Make the vertical axis one of error rates, with places for no error seen and for exact."""
    logarithmic(axes, "y", [0, _SMALLEST_ERROR, 1], percent_tick, NONE_SEEN)
    powers = [10.0**power for power in range(-4, 1)]
    labels = ["proven\nexact", "none seen", *map(percent_tick, powers)]
    axes.set_yticks([0, NONE_SEEN, *powers], labels)


def finding(rows: pd.DataFrame) -> str:
    """Say which approaches are proven exact in every seed, with what, and which are not.

    Of each approach, the level and the amount with the least supervision are named.
    """
    proven, others = [], []
    for _, part in _approaches(rows):
        enough = []
        for _, line in groups(part, "kind"):
            settings = [seeds for each in comparisons(line) for seeds in by_setting(each)]
            by_amount = sorted(settings, key=_amount)
            lasting = list(takewhile(_every_seed, reversed(by_amount)))
            enough += lasting[-1:]
        if enough:
            proven.append(min(enough, key=_amount))
        else:
            settings = [seeds for each in comparisons(part) for seeds in by_setting(each)]
            others.append(max(settings, key=_proven_share))
    texts = [
        f"{_name(seeds)} with {_spent(seeds)} ({seeds_text([len(seeds)])})"
        for seeds in sorted(proven, key=_amount)
    ]
    shares = [
        f"{_name(s)} ({s['final_proven'].sum()} of {len(s)} with {_spent(s)})" for s in others
    ]
    lines = [f"Proven exact in every seed: {'; '.join(texts) or 'nothing'}."]
    if shares:
        lines.append(f"Not in every one of {FEWEST_SEEDS} seeds or more: {'; '.join(shares)}.")
    return "\n".join(lines)


def _proven_share(seeds: pd.DataFrame) -> tuple[float, tuple[float, float]]:
    return float(seeds["final_proven"].mean()), _amount(seeds)


def _amount(seeds: pd.DataFrame) -> tuple[float, float]:
    return median_labels(seeds), float(seeds["all_steps"].median())


def _name(seeds: pd.DataFrame) -> str:
    reward, approach = seeds["reward"].iloc[0], seeds["approach"].iloc[0]
    return f"{approach}" if reward == "none" else f"{approach}, {reward}"


def _every_seed(seeds: pd.DataFrame) -> bool:
    return len(seeds) >= FEWEST_SEEDS and bool(seeds["final_proven"].all())


def _spent(seeds: pd.DataFrame) -> str:
    """Format the supervision of a setting: `2,816 answers and 1.0M steps`."""
    answers, steps = median_labels(seeds), float(seeds["all_steps"].median())
    parts = [f"{answers:,.0f} answers"] if answers or not steps else []
    parts += [f"{_million(steps)} steps"] if steps else []
    return " and ".join(parts)


def _million(steps: float) -> str:
    return f"{steps / 1e6:,.1f} million" if steps >= 1e5 else f"{steps:,.0f}"


# The price of reward modules.


def reward_modules(rows: pd.DataFrame, folder: Path) -> FigureFiles:
    """Draw the operations that PPO does not solve by level, a line for each number of clones."""
    early, late = early_step(rows), budget(rows)
    levels = [level for level in LEVELS if (rows["reward"] == level).any()]
    numbers = sorted(set(rows["demonstrations"]))
    by_step = {step: module_lines(rows, levels, numbers, step) for step in (early, late)}
    counts = [len(p.ys) for lines in by_step.values() for line in lines for p in line.places]
    worth = {step: _worth(rows, levels, numbers, step) for step in (early, late)}
    title = (
        f"Operations solved at {levels[0]} less those at {levels[-1]}, in percentage points:\n"
        f"after {late:,} steps {worth[late]} demonstrations;\n"
        f"after {early:,} steps {worth[early]} demonstrations.\n{_averages(counts)}."
    )

    def draw(figure: Figure) -> None:
        row = panels(figure, 2)
        for axes, (step, lines) in zip(row, by_step.items(), strict=True):
            for number, line in enumerate(lines):
                _moved(line, 0.09 * (number - (len(lines) - 1) / 2)).draw(axes)
            _scale_errors(axes)
            axes.set_xticks(range(1, len(levels) + 1), levels, fontsize=8)
            axes.set_xlim(0.5, len(levels) + 0.5)
            axes.set_title(f"after {step:,} steps of PPO")
        row[0].set_ylabel("operations not solved")
        legend_below(figure, 3)

    alt = f"Operations solved, {levels[0]} less {levels[-1]}, in points: {worth[late]}"
    return write_figure(folder, "reward_modules", title, alt, (11.5, 4.8), draw)


def module_lines(
    rows: pd.DataFrame, levels: Sequence[str], numbers: Sequence[int], step: int
) -> list[SeedLine]:
    """Return a line over levels for each number of demonstrations, at a step of PPO."""
    lines = []
    for look, n in zip(LOOKS, numbers, strict=False):
        part, places = rows[rows["demonstrations"] == n], []
        for place, level in enumerate(levels, 1):
            records: list[Record] = part[part["reward"] == level]["record"].tolist()
            ys = [_unsolved(record, step) for record in records]
            known = [y for y in ys if y is not None]
            if known:
                places.append(Place(float(place), [float(place)] * len(known), known))
        label = f"{n:,} demonstrations" if n else "no demonstrations"
        lines.append(SeedLine(label, look, places))
    return lines


def _unsolved(record: Record, step: int) -> float | None:
    """Return the share of operations not solved at a step; 0 if proven exact at the end."""
    accuracy = accuracy_at(record, step)
    if accuracy is None:
        return None
    return error_or_exact(1 - accuracy, proven=record.final.proven and step >= record.cell.steps)


def _moved(line: SeedLine, shift: float) -> SeedLine:
    """Return a line that is drawn beside others at categories."""
    places = [Place(p.x + shift, [x + shift for x in p.xs], p.ys) for p in line.places]
    return replace(line, places=places, band=False)


def _worth(rows: pd.DataFrame, levels: Sequence[str], numbers: Sequence[int], step: int) -> str:
    """Format what the richest level adds to the poorest: `+40.00 with 0, +1.00 with 10`."""
    parts = []
    for n in numbers:
        part = rows[rows["demonstrations"] == n]
        most, least = (
            accuracies_at(part[part["reward"] == level]["record"], step)
            for level in (levels[0], levels[-1])
        )
        if most and least:
            parts.append(f"{points(float(iqm(most) - iqm(least)))} with {n:,}")
    return ", ".join(parts) or "not known for these"


# Learning curves, as the paper's Figs. 2 and 3.


@dataclass(frozen=True)
class CurveLine:
    """A learning curve: its label, its look and its seeds."""

    label: str
    look: Look
    seeds: pd.DataFrame

    @property
    def end(self) -> float:
        """Interquartile mean of the accuracies at the end of training.

        Mending ends with the policy that is kept; what `last` scores there is the one before it.
        """
        mended = bool(self.seeds["record"].iloc[0].stage_steps.get("mending"))
        return float(iqm(self.seeds["final_own_accuracy" if mended else "last_own_accuracy"]))

    def draw(self, axes: Axes) -> None:
        """Draw a line of means over seeds with its band, and a thin line for each seed."""
        records = self.seeds["record"].tolist()
        steps = shared_steps(records)
        found = [estimate(accuracies_at(records, step)) for step in steps]
        millions = [step / 1e6 for step in steps]
        line = {**self.look.line(), "markevery": max(1, len(steps) // 8)}
        axes.plot(millions, [100 * one.value for one in found], label=self.label, **line)
        lows, highs = ([100 * one.ends[k] for one in found] for k in (0, 1))
        axes.fill_between(millions, lows, highs, color=self.look.colour, alpha=0.15, linewidth=0)
        thin: dict[str, Any] = {"color": self.look.colour, "alpha": 0.35, "linewidth": 0.7}
        for record in records:
            curve = whole_curve(record)
            xs = [point.step / 1e6 for point in curve]
            axes.plot(xs, [100 * point.accuracy for point in curve], **thin)

    def steps_to_milestone(self) -> list[int]:
        """Return the step of the first evaluation with 99 %, of the seeds that have one."""
        points = [first_reaching(record, _MILESTONE) for record in self.seeds["record"]]
        return [point.step for point in points if point is not None]

    def reached(self) -> str:
        """Format the median step of the first evaluation with 99 %, and the seeds that have it."""
        found = self.steps_to_milestone()
        of_all = f"{len(found)} of {len(self.seeds)} seeds"
        return f"{_million(median(found))} ({of_all})" if found else f"never ({of_all})"


def learning_curves(parts: Sequence[pd.DataFrame], key: str, folder: Path) -> FigureFiles:
    """Draw a panel for each comparison, a curve for each level or operation."""
    by_panel: Mapping[str, list[CurveLine]] = {
        _curve_panel(part): [
            CurveLine(_curve_label(key, seeds), look_of(seeds["kind"].iloc[0]), seeds)
            for seeds in by_setting(part)
        ]
        for part in parts
    }
    reached = "; ".join(f"{_reached(curves)} ({name})" for name, curves in by_panel.items())
    counts = [len(curve.seeds) for curves in by_panel.values() for curve in curves]
    title = (
        f"Steps to {100 * _MILESTONE:.0f} % of operations solved, without demonstrations: "
        f"{reached}.\nGreedy policy, by the rules of its level. "
        f"{_averages(counts).replace('dot', 'thin line')}."
    )

    rows = math.ceil(len(by_panel) / MOST_PANELS)
    columns = math.ceil(len(by_panel) / rows)

    def draw(figure: Figure) -> None:
        every = panels(figure, columns, rows, shared=False)
        for empty in every[len(by_panel) :]:
            empty.remove()
        for axes, (panel, curves) in zip(every, by_panel.items(), strict=False):
            for curve in curves:
                curve.draw(axes)
            ends = range_text([curve.end for curve in curves], percent)
            axes.set_title(f"{panel}, {ends} % at the end")
            axes.set_xlabel("environment steps, millions")
            axes.set_ylim(-3, 103)
        for axes in every[::columns]:
            axes.set_ylabel("operations solved, %")
        legend_below(figure, 5)

    alt = "; ".join(
        f"{curve.label}, {panel}: {percent(curve.end)} % at the end"
        for panel, curves in by_panel.items()
        for curve in curves
    )
    return write_figure(folder, key, title, alt, (max(5.2 * columns, 7.6), 4.2 * rows), draw)


def _reached(curves: Sequence[CurveLine]) -> str:
    """Format which curves of a panel reach 99 %, and after how many steps."""
    if all(curve.steps_to_milestone() == [] for curve in curves):
        return f"never in {sum(len(curve.seeds) for curve in curves)} runs"
    return ", ".join(f"{curve.label} {curve.reached()}" for curve in curves)


def _curve_panel(rows: pd.DataFrame) -> str:
    return f"{comparison_of(rows)}: {'; '.join(sorted(set(rows['approach'])))}"


def _curve_label(key: str, seeds: pd.DataFrame) -> str:
    kind = seeds["kind"].iloc[0]
    return kind.reward if key == "curves_levels" else OPERATION_WORDS[kind.operations]
