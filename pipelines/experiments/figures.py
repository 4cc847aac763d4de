"""What figures show: which kinds of supervision, which measures, and their values over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.experiments.drawing import (
    FAINT,
    LOOKS,
    BrokenLog,
    Look,
    Picture,
    drawn,
    in_percent,
    legend_below,
    look_of,
    panels,
    plain,
    said_range,
    short,
)
from pipelines.experiments.records import (
    REWARDED,
    Grid,
    Kind,
    Record,
    Score,
    arm_words,
    budget,
    checked,
    comparisons,
    grid_of,
    grids_of,
    kind_of,
    main_grid,
    seeds_said,
    split,
)
from pipelines.experiments.statistics import (
    BEYOND,
    FEWEST_SEEDS,
    NOT_WITHIN,
    Estimate,
    Threshold,
    accuracies_at,
    estimate,
    iqm,
    percent,
    report_generator,
    shared_steps,
)
from pipelines.experiments.tables import (
    ALL_SEEDS,
    MEASURES,
    changes,
    kind_threshold,
    label_groups,
    median_labels,
)
from pipelines.scoring.figures import INK
from pipelines.scoring.tables import OPERATION_WORDS

#: What is drawn of a policy: a name with its unit, the value, and how a tick shows it.
Drawn = tuple[str, Callable[[Score], float], Callable[[float], str]]
ERROR: Drawn = ("operations not solved", lambda score: 1 - score.accuracy, in_percent)
LONG_ERROR: Drawn = ("errors at 16 digits", lambda score: score.long_error_rate, in_percent)
WRONG: Drawn = ("wrong observations", lambda score: float(score.wrong), plain)


def both_operations(kinds: Sequence[Kind]) -> list[Kind]:
    """One curve a level; where both operations were never asked for, what there is."""
    return [kind for kind in kinds if kind.operations == "both"] or list(kinds)


def value_of(seeds: Sequence[Record], measured: Drawn) -> Estimate:
    """A measure of the policies that the seeds kept."""
    _, of, _ = measured
    return estimate([[of(record.final) for record in seeds]], report_generator())


def ends_of(found: Estimate) -> tuple[float, float]:
    """The interval, or the value itself where there is none."""
    low = found.value if found.low is None else found.low
    return low, found.value if found.high is None else found.high


def seeds_in(parts: Sequence[Sequence[Record]]) -> str:
    """How many seeds the parts have, in words."""
    return seeds_said([len(part) for part in parts if part])


def averaged(parts: Sequence[Sequence[Record]]) -> str:
    """What a line and its band are, and of how many seeds."""
    counts = [len(part) for part in parts if part]
    if max(counts, default=0) < FEWEST_SEEDS:
        return f"Interquartile mean of {seeds_in(parts)}: too few for an interval"
    few = f" (none for fewer than {FEWEST_SEEDS})" if min(counts) < FEWEST_SEEDS else ""
    return f"Interquartile mean and 95 % interval{few} of {seeds_in(parts)}"


def grid_alt(grid: Grid, kinds: Sequence[Kind]) -> str:
    """The errors with the fewest and the most demonstrations, for those who see no picture."""
    parts = []
    for kind in kinds:
        run = [n for n in grid.demonstrations if grid.seeds(kind, n)]
        errors = (value_of(grid.seeds(kind, n), ERROR).value for n in (run[0], run[-1]))
        first, last = (percent(error) for error in errors)
        parts.append(f"{kind.name}: {first} % at {run[0]:,}, {last} % at {run[-1]:,}")
    return "Operations not solved, by demonstrations: " + "; ".join(parts)


def all_exact(seeds: Sequence[Record]) -> bool:
    """Whether every seed kept a policy that is certified exact."""
    return all(record.final.exact for record in seeds)


def mark_certified(axes: Axes, look: Look, xs: Sequence[float], ys: Sequence[float]) -> None:
    """No errors in a sample is not yet exact, and a mean of none may hide a seed that has some."""
    hollow = {"markerfacecolor": "white", "linestyle": "none", "zorder": 4}
    axes.plot(xs, ys, **{**look.line(), **hollow})


def explain_marks(axes: Axes) -> None:
    """Puts the hollow marks into the legend."""
    label = "hollow: every seed certified exact"
    axes.plot([], [], "o", color=INK, markerfacecolor="white", label=label)


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


#: Errors below this share have one colour.
_FINEST = 1e-3
#: The luminance of the ink, with the 0.05 that contrasts are reckoned with.
_INK_LIGHT = 0.08


def heat_map(grid: Grid, folder: Path) -> Picture:
    """Demonstrations down, kinds of supervision across."""
    values = np.full((len(grid.demonstrations), len(grid.kinds)), np.nan)
    for y, n in enumerate(grid.demonstrations):
        for x, kind in enumerate(grid.kinds):
            if grid.seeds(kind, n):
                values[y, x] = iqm([record.final.accuracy for record in grid.seeds(kind, n)])
    known = values[~np.isnan(values)].tolist()
    title = (
        f"Operations solved, %: {said_range(known, percent)}, by demonstrations and supervision\n"
        f"Comparison {grid.comparison}. Interquartile mean of "
        f"{seeds_in(list(grid.parts.values()))}; "
        "below it, how many seeds were certified exact, if any"
    )

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shown = -np.log10(np.maximum(1 - values, _FINEST))
        finest = -math.log10(_FINEST)
        image = axes.imshow(shown, cmap="cividis", vmin=0, vmax=finest, aspect="auto")
        for (y, x), value in np.ndenumerate(values):
            seeds = grid.seeds(grid.kinds[x], grid.demonstrations[y])
            axes.text(
                x,
                y,
                _heat_text(seeds, value),
                ha="center",
                va="center",
                fontsize=7.5,
                color=_readable_on(image.to_rgba(shown[y, x])) if seeds else INK,
                linespacing=1.1,
            )
        names = [kind.name.replace(", ", ",\n").replace(" alone", "\nalone") for kind in grid.kinds]
        axes.set_xticks(range(len(names)), names, fontsize=7.5)
        axes.set_yticks(range(len(grid.demonstrations)), [f"{n:,}" for n in grid.demonstrations])
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

    size = (2.0 + 0.72 * len(grid.kinds), 1.6 + 0.38 * len(grid.demonstrations))
    size = (max(size[0], 6.5), size[1])
    return drawn(folder, "heat_map", title, grid_alt(grid, grid.kinds), size, draw)


def _readable_on(colour: Any) -> str:
    """White or ink, whichever stands out more by the contrast of WCAG."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
    return "white" if 1.05 / light > light / _INK_LIGHT else INK


def _heat_text(seeds: Sequence[Record], value: float) -> str:
    if not seeds:
        return "-"
    exact = sum(record.final.exact for record in seeds)
    return percent(value) + (f"\n{exact}/{len(seeds)} exact" if exact else "")


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


def dqn_curves(comparison: str, records: Sequence[Record], folder: Path) -> Picture:
    """A panel for each level of reward, a curve for each learner."""
    rewarded = [r for r in records if r.cell.arm in REWARDED and r.curve]
    chosen = [r for r in rewarded if not r.cell.demonstrations]
    grid = grid_of(comparison, chosen)
    levels = list(dict.fromkeys((kind.reward, kind.operations) for kind in grid.kinds))
    by_arm = split(chosen, lambda record: record.cell.arm)
    title = (
        f"DQN and PPO without demonstrations, {budget(chosen):,} steps\n"
        f"Greedy policy. {averaged(list(grid.parts.values()))}"
    )
    looks = dict(zip(by_arm, LOOKS[1:], strict=False))

    def draw(figure: Figure) -> None:
        (row,) = panels(figure, len(levels))
        for axes, (reward, operations) in zip(row, levels, strict=True):
            for arm in by_arm:
                seeds = [r for r in chosen if kind_of(r) == Kind(arm, reward, operations)]
                draw_curve(axes, looks[arm], arm_words(arm), seeds)
            finish_curves(axes, Kind("ppo", reward, operations).name)
        row[0].set_ylabel("operations solved, %")
        legend_below(figure, row[0], 4)

    alt = "; ".join(
        f"{arm_words(kind.arm)}, {kind.name}: {percent(accuracy_at_end(seeds))} % at the end"
        for (kind, _), seeds in grid.parts.items()
    )
    return drawn(folder, f"dqn_{comparison}", title, alt, (max(3.6 * len(levels), 7.2), 3.6), draw)


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


def draw_figures(records: Sequence[Record], folder: Path) -> list[Picture]:
    """Draws all figures into a folder."""
    return list(_figures(checked(records), folder))


def _figures(records: Sequence[Record], folder: Path) -> Iterator[Picture]:
    grid = main_grid(records)
    # With one number of demonstrations there is nothing to draw against.
    if grid and len(grid.demonstrations) > 1:
        yield error_by_demonstrations(grid, folder)
        yield heat_map(grid, folder)
    trained = curve_grid(records)
    if trained:
        kinds = both_operations(trained.kinds)
        yield learning_curves(trained, kinds, "curves_levels", lambda kind: kind.name, folder)
        single = [kind for kind in trained.kinds if kind.reward == "dense"]
        if any(kind.operations != "both" for kind in single):
            yield learning_curves(
                trained,
                single,
                "curves_operations",
                lambda kind: f"{OPERATION_WORDS[kind.operations]}, dense",
                folder,
            )
    tuned = main_grid([r for r in records if r.cell.arm == "ppo" and r.clone])
    if tuned:
        yield what_ppo_added(tuned, folder)
    if any(record.cell.arm == "dagger" for record in records):
        yield error_by_labels(records, folder)
    for name, part in comparisons(records).items():
        if any(r.cell.arm in ("dqn", "dqn_unmasked") and r.curve for r in part):
            yield dqn_curves(name, part, folder)
