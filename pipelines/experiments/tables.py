"""The paper's Table 1 beside the study: the longest runs of operations during training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from statistics import median

from abacus.rules import Operations
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
    grids_of,
    kind_of,
    main_grid,
    seeds_said,
    split,
)
from pipelines.experiments.statistics import (
    FEWEST_SEEDS,
    INTERVALS_SAID,
    MISSING,
    Estimate,
    Threshold,
    accuracies_at,
    count,
    difference,
    estimate,
    estimate_of,
    estimated,
    exactness_threshold,
    iqm,
    percent,
    points,
    reached,
    report_generator,
    steps_said,
    threshold_said,
)
from pipelines.scoring.paper import LONGEST_RUNS, LONGEST_RUNS_BY_LEVEL
from pipelines.scoring.tables import OPERATION_WORDS, Table


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's Table 1."""

    name: str
    reward: str
    operations: Operations
    longest: int


#: Table 1: most operations solved in an episode during training.
PAPER_ROWS = (
    *(PaperRow(level, level, "both", longest) for level, longest in LONGEST_RUNS_BY_LEVEL.items()),
    PaperRow("addition", "dense", "add", LONGEST_RUNS["add"]),
    PaperRow("subtraction", "dense", "subtract", LONGEST_RUNS["subtract"]),
)


def _paper_kind(row: PaperRow) -> Kind:
    return Kind("ppo", row.reward, row.operations)


def paper_rows_of(grid: Grid) -> list[PaperRow]:
    """The paper's rows that a comparison has; one alone compares nothing."""
    rows = [row for row in PAPER_ROWS if _paper_kind(row) in grid.kinds]
    return rows if len(rows) > 1 else []


def training_runs(grid: Grid, row: PaperRow, demonstrations: int) -> list[int]:
    """By seed, the longest run of operations during training."""
    seeds = grid.seeds(_paper_kind(row), demonstrations)
    return [record.longest_training_run for record in seeds]


def longest_runs(grids: Sequence[Grid]) -> Table:
    """The paper's rows beside ours."""
    paper = [
        "the paper",
        "0",
        *(f"{row.longest:,}" for row in PAPER_ROWS),
        MISSING,
        MISSING,
        "not said",
        "not said",
    ]
    rows = [tuple(paper)]
    for grid in grids:
        for n in grid.demonstrations:
            runs = [training_runs(grid, row, n) for row in PAPER_ROWS]
            if not any(runs):
                continue
            counts = [len(lengths) for lengths in runs if lengths]
            rows.append(
                (
                    f"{grid.comparison}, {steps_said(grid)}",
                    f"{n:,}",
                    *(_runs_said(lengths) for lengths in runs),
                    order_reproduced([max(lengths, default=None) for lengths in runs]),
                    order_reproduced([float(iqm(ls)) if ls else None for ls in runs]),
                    _steps_of_an_abacus(grid),
                    seeds_said(counts).partition(" seed")[0],
                )
            )
    return Table(
        "longest_runs",
        "The paper's Table 1: longest run of operations during training",
        "The longest run that the sampling policy solved while it was trained: the best of the "
        f"seeds, then the {INTERVALS_SAID}. The paper gives one number a row. Its order, from "
        f"long to short, is {', '.join(row.name for row in _by_length())}; the last columns say "
        "whether the best and the means of the columns that were run are in that order. A run "
        "cannot be longer than what an abacus has steps for, at nearly thirty an operation: where "
        "runs come near that, they say how long the training was and not how good it is.",
        (
            "comparison",
            "demonstrations",
            *(row.name for row in PAPER_ROWS),
            "order reproduced? (best)",
            "order reproduced? (mean)",
            "steps an abacus",
            "seeds",
        ),
        tuple(rows),
    )


def _steps_of_an_abacus(grid: Grid) -> str:
    """The budget is shared by the abaci that act at once."""
    settings = [record.cell.settings for record in grid.records]
    abaci = {each["n_envs"] for each in settings if "n_envs" in each}
    return f"{budget(grid.records) // max(abaci):,}" if abaci else MISSING


def _by_length() -> list[PaperRow]:
    return sorted(PAPER_ROWS, key=lambda row: -row.longest)


def _runs_said(lengths: Sequence[int]) -> str:
    if not lengths:
        return MISSING
    return f"best {max(lengths):,}; {estimated(estimate_of([float(n) for n in lengths]), count)}"


def order_reproduced(lengths: Sequence[float | None]) -> str:
    """Whether lengths, in the order of `PAPER_ROWS`, fall as the paper's do; equal ones do not."""
    by_row = dict(zip(PAPER_ROWS, lengths, strict=True))
    ours = [length for row in _by_length() if (length := by_row[row]) is not None]
    if len(ours) < 2:
        return MISSING
    falls = all(longer > shorter for longer, shorter in pairwise(ours))
    of_some = f" (of {len(ours)} columns)" if len(ours) < len(PAPER_ROWS) else ""
    return ("yes" if falls else "no") + of_some


def paper_claims(grids: Sequence[Grid]) -> Table:
    """The paper's rows one against the other."""
    rows = []
    for grid in grids:
        for n in sorted({grid.demonstrations[0], grid.demonstrations[-1]}):
            for longer, shorter in _claims(grid):
                found = _claim(grid, n, longer, shorter)
                where = (f"{grid.comparison}, {steps_said(grid)}", f"{n:,}")
                claim = f"{longer.name} > {shorter.name}"
                gap = f"{longer.longest - shorter.longest:,}"
                said = estimated(found, lambda value: f"{value:+,.0f}")
                rows.append((claim, *where, gap, said, verdict(found)))
    return Table(
        "paper_claims",
        "The paper's Table 1, row against row",
        "How much longer the longest run during training is, in the paper and here (difference "
        "of interquartile means over seeds, 95 % bootstrap interval). Reproduced: the interval "
        "lies above 0; opposite: below; not decided: 0 is in it, or there are fewer than "
        f"{FEWEST_SEEDS} seeds. With the fewest and the most demonstrations of each comparison, "
        "and for the rows that it has.",
        ("claim", "comparison", "demonstrations", "the paper", "here", "reproduced?"),
        tuple(rows),
    )


def _claims(grid: Grid) -> Iterator[tuple[PaperRow, PaperRow]]:
    """What the paper says of its rows: of levels among each other, and of one operation alone."""
    ordered = [row for row in _by_length() if _paper_kind(row) in grid.kinds]
    for place, longer in enumerate(ordered):
        for shorter in ordered[place + 1 :]:
            if longer.operations == shorter.operations or longer.reward == shorter.reward:
                yield longer, shorter


def _claim(grid: Grid, n: int, longer: PaperRow, shorter: PaperRow) -> Estimate | None:
    runs = [[float(r) for r in training_runs(grid, row, n)] for row in (longer, shorter)]
    return difference(runs[0], runs[1], report_generator()) if all(runs) else None


def verdict(found: Estimate | None) -> str:
    """Whether a difference is above 0."""
    if found is None:
        return MISSING
    if found.low is None or found.high is None or found.low <= 0 <= found.high:
        return "not decided"
    return "yes" if found.low > 0 else "opposite"


MILESTONES = (0.5, 0.9, 0.99, 1.0)
#: Parts of the budget at which runs are compared.
BUDGET_PARTS = (0.1, 0.25, 0.5, 1.0)
#: Shares of seeds that must be exact, as they are asked for in two columns.
ALL_SEEDS, HALF_OF_SEEDS = 1.0, 0.5


def tables_of(records: Sequence[Record]) -> list[Table]:
    """All tables for which there is something to show."""
    return list(_tables(checked(records)))


def _tables(records: Sequence[Record]) -> Iterator[Table]:
    grid = main_grid(records)
    if grid:
        yield from _grid_tables(grid)
        yield _thresholds(grid)
    tuned = [grid for grid in grids_of(records, "ppo") if any(grid.demonstrations)]
    if tuned:
        yield _what_ppo_added(tuned)
    for name, part in comparisons([r for r in records if r.cell.arm in REWARDED]).items():
        yield _milestones(name, part)
    grids = [paper for paper in grids_of(records, "ppo") if paper_rows_of(paper)]
    if grids:
        yield longest_runs(grids)
        yield paper_claims(grids)
    if any(record.cell.arm == "dagger" for record in records):
        yield _by_labels(records)
    for name, part in comparisons(records).items():
        if any(record.cell.arm in ("dqn", "dqn_unmasked") for record in part):
            yield _dqn(name, part)
    for fine_tuned in grids_of(records, "ppo"):
        if 0 in fine_tuned.demonstrations and len(fine_tuned.demonstrations) > 1:
            yield _equal_steps(fine_tuned)


@dataclass(frozen=True)
class Measure:
    """What is averaged of a policy, and how it is shown."""

    key: str
    title: str
    of: Callable[[Score], float]
    shown: Callable[[float], str]


MEASURES = (
    Measure("accuracy", "Operations solved, %", lambda score: score.accuracy, percent),
    Measure("long_error_rate", "Errors at 16 digits, %", lambda s: s.long_error_rate, percent),
    Measure("wrong", "Wrong observations of the complete set", lambda s: float(s.wrong), count),
)


def final_estimate(seeds: Sequence[Record], measure: Measure) -> Estimate | None:
    """Of the policies that the runs kept."""
    return estimate_of([measure.of(record.final) for record in seeds])


def _grid_tables(grid: Grid) -> Iterator[Table]:
    counts = [len(seeds) for seeds in grid.parts.values()]
    usual = max(set(counts), key=lambda number: (counts.count(number), number))
    header = ("demonstrations", *(kind.name for kind in grid.kinds))
    for measure in MEASURES:
        rows = [
            (
                f"{n:,}",
                *(
                    estimated(final_estimate(grid.seeds(kind, n), measure), measure.shown, usual)
                    for kind in grid.kinds
                ),
            )
            for n in grid.demonstrations
        ]
        shared = shared_demonstrations(grid)
        if len(shared) > 1:
            rows.append(_over_shared(grid, shared, measure, usual))
        note = (
            f"Comparison `{grid.comparison}`; the policy that each run kept; {INTERVALS_SAID}; "
            f"{seeds_said([usual])} unless a cell says otherwise. PPO: {steps_said(grid)}."
        )
        if len(shared) > 1:
            note += (
                " The last row averages over the numbers of demonstrations that every column "
                f"has ({', '.join(f'{n:,}' for n in shared)}); seeds are drawn within each."
            )
        yield Table(measure.key, measure.title, note, header, tuple(rows))
    yield _certified(grid, header)


def shared_demonstrations(grid: Grid) -> list[int]:
    """Numbers of demonstrations that every kind was run with."""
    return [n for n in grid.demonstrations if all(grid.seeds(kind, n) for kind in grid.kinds)]


def over_shared(grid: Grid, kind: Kind, measure: Measure) -> Estimate:
    """Averaged over numbers of demonstrations, which are the strata."""
    strata = [
        [measure.of(record.final) for record in grid.seeds(kind, n)]
        for n in shared_demonstrations(grid)
    ]
    return estimate(strata, report_generator())


def _over_shared(grid: Grid, shared: list[int], measure: Measure, usual: int) -> tuple[str, ...]:
    estimates = (over_shared(grid, kind, measure) for kind in grid.kinds)
    cells = (estimated(found, measure.shown, usual) for found in estimates)
    return (f"{shared[0]:,} to {shared[-1]:,} together", *cells)


def _certified(grid: Grid, header: tuple[str, ...]) -> Table:
    return Table(
        "certified",
        "Seeds that were certified exact",
        f"Comparison `{grid.comparison}`; the policies that the runs kept, and right on every "
        "observation that the algorithm can meet, at any length; of how many seeds.",
        header,
        tuple(
            (f"{n:,}", *(_exact_said(grid.seeds(kind, n)) for kind in grid.kinds))
            for n in grid.demonstrations
        ),
    )


def _exact_said(seeds: Sequence[Record]) -> str:
    exact = sum(record.final.exact for record in seeds)
    return f"{exact} of {len(seeds)}" if seeds else MISSING


def kind_threshold(grid: Grid, kind: Kind, share: float) -> Threshold | None:
    """From how many demonstrations on a kind of supervision was exact."""
    exact = {
        n: {record.cell.seed: record.final.exact for record in grid.seeds(kind, n)}
        for n in grid.demonstrations
        if grid.seeds(kind, n)
    }
    return exactness_threshold(exact, share, report_generator()) if exact else None


def _thresholds(grid: Grid) -> Table:
    rows = []
    for kind in grid.kinds:
        run = [n for n in grid.demonstrations if grid.seeds(kind, n)]
        rows.append(
            (
                kind.name,
                threshold_said(kind_threshold(grid, kind, ALL_SEEDS)),
                threshold_said(kind_threshold(grid, kind, HALF_OF_SEEDS)),
                f"{run[0]:,} to {run[-1]:,}",
                seeds_said([len(grid.seeds(kind, n)) for n in run]),
            )
        )
    return Table(
        "demonstrations_to_exact",
        "Demonstrations to exactness",
        f"Comparison `{grid.comparison}`: the smallest number of demonstrations of the grid from "
        "which on the kept policies of all seeds, or of at least half of them, were certified "
        "exact, with that number and with every greater one. In brackets a 95 % bootstrap "
        "interval over the seeds that were run with every number, and how many these are. Where "
        "all seeds are asked for, its upper end cannot lie above the number itself.",
        ("supervision", "all seeds exact", "at least half", "numbers run", "seeds a number"),
        tuple(rows),
    )


@dataclass(frozen=True)
class Change:
    """In how many seeds something rose, and in how many it fell."""

    rose: int
    fell: int
    seeds: int


def changes(seeds: Sequence[Record], after: str, measure: Measure) -> Change:
    """From the clone to the policy `after`, which is `final` or `last`."""
    pairs = [
        (measure.of(record.clone), measure.of(getattr(record, after)))
        for record in seeds
        if record.clone
    ]
    rose = sum(new > old for old, new in pairs)
    return Change(rose, sum(new < old for old, new in pairs), len(pairs))


def _what_ppo_added(grids: Sequence[Grid]) -> Table:
    accuracy, _, wrong = MEASURES
    rows = []
    for grid in grids:
        for kind, n in product(grid.kinds, grid.demonstrations):
            seeds = [record for record in grid.seeds(kind, n) if record.clone]
            where = (grid.comparison, kind.name, f"{n:,}")
            if n and seeds:
                cells = (*_added(seeds, accuracy), *_added(seeds, wrong))
                rows.append((*where, *cells, f"{len(seeds)}"))
            elif n:
                rows.append((*where, *[MISSING] * 10, "0"))
    measured = ("clone", "kept", "last", "kept: rose / fell", "last: rose / fell")
    budgets = ", ".join(f"`{grid.comparison}` {steps_said(grid)}" for grid in grids)
    return Table(
        "ppo_added",
        "What PPO added to each clone",
        "The clone, the policy that the run kept and the one that it ended with; interquartile "
        "means, and in how many seeds the value rose or fell from the clone's, by however little "
        "(equal ones are neither). Accuracy is sampled, wrong observations are counted in full. "
        f"Steps of PPO: {budgets}.",
        (
            *("comparison", "reward", "demonstrations"),
            *(f"solved, %: {name}" for name in measured),
            *(f"wrong: {name}" for name in measured),
            "seeds",
        ),
        tuple(rows),
    )


def _added(seeds: Sequence[Record], measure: Measure) -> tuple[str, ...]:
    clones = [measure.of(record.clone) for record in seeds if record.clone]
    scores = (
        clones,
        [measure.of(record.final) for record in seeds],
        [measure.of(record.last) for record in seeds],
    )
    kept, last = (changes(seeds, after, measure) for after in ("final", "last"))
    return (
        *(measure.shown(float(iqm(values))) for values in scores),
        f"{kept.rose} / {kept.fell}",
        f"{last.rose} / {last.fell}",
    )


def _milestones(comparison: str, records: Sequence[Record]) -> Table:
    settings = split(records, lambda record: (kind_of(record), record.cell.demonstrations))
    return Table(
        f"milestones_{comparison}",
        f"Steps and processor time to an accuracy: {comparison}",
        f"Comparison `{comparison}`, {budget(records):,} steps: environment steps, and seconds of "
        "reinforcement learning by the processor's clock, until an evaluation of the greedy "
        "policy first was so good; median of the seeds that got there, and how many did. A clone "
        "that was so good took 0 steps.",
        (
            "arm",
            "reward",
            "demonstrations",
            *(f"to {share:.0%}" for share in MILESTONES),
            "seeds",
        ),
        tuple(
            (
                arm_words(kind.arm),
                kind.name,
                f"{n:,}",
                *(_milestone(seeds, share) for share in MILESTONES),
                f"{len(seeds)}",
            )
            for (kind, n), seeds in settings.items()
        ),
    )


def _milestone(seeds: Sequence[Record], share: float) -> str:
    found = [point for record in seeds if (point := reached(record, share))]
    of_all = f"{len(found)} of {len(seeds)}"
    if not found:
        return f"not reached ({of_all})"
    steps, seconds = median(p.step for p in found), median(p.seconds for p in found)
    return f"{steps:,.0f} steps, {seconds:,.0f} s ({of_all})"


def label_groups(records: Sequence[Record]) -> list[list[Record]]:
    """Seeds of DAgger and of cloning alone by how many answers of the teacher they learned from.

    Clones of another comparison than DAgger's are as good: cloning has no budget of steps. Only
    one comparison is taken, so that no seed counts twice.
    """
    asked = [record for record in records if record.cell.arm == "dagger"]
    operations = {record.cell.operations for record in asked}
    clones = comparisons(
        [r for r in records if r.cell.arm == "cloning" and r.cell.operations in operations]
    )
    own = {record.cell.comparison for record in asked}
    most = max(clones, key=lambda name: (name in own, len(clones[name])), default="")
    groups = split(
        [*asked, *clones.get(most, [])],
        lambda r: (r.cell.arm, r.cell.operations, r.cell.demonstrations, r.cell.labels),
    )
    return sorted(groups.values(), key=median_labels)


def median_labels(seeds: Sequence[Record]) -> float:
    """Answers of the teacher that were learned from."""
    return float(median(record.labels for record in seeds))


def _by_labels(records: Sequence[Record]) -> Table:
    rows = []
    for seeds in label_groups(records):
        cell = seeds[0].cell
        rows.append(
            (
                f"{median_labels(seeds):,.0f}",
                arm_words(cell.arm),
                OPERATION_WORDS[cell.operations],
                f"{cell.demonstrations:,}",
                *(estimated(final_estimate(seeds, m), m.shown) for m in MEASURES),
                _exact_said(seeds),
            )
        )
    return Table(
        "labels",
        "DAgger and cloning by the teacher's answers",
        f"By answers of the teacher that were learned from (median of seeds); {INTERVALS_SAID}.",
        (
            "answers",
            "arm",
            "operations",
            "demonstrations",
            *(measure.title.lower() for measure in MEASURES),
            "certified exact",
        ),
        tuple(rows),
    )


def _checkpoints(records: Sequence[Record]) -> list[int]:
    return [round(part * budget(records)) for part in BUDGET_PARTS]


def accuracy_estimate(seeds: Sequence[Record], step: int) -> Estimate | None:
    """Operations solved after so many steps."""
    return estimate_of(accuracies_at(seeds, step))


def _dqn(comparison: str, records: Sequence[Record]) -> Table:
    chosen = [r for r in records if r.cell.arm in REWARDED and not r.cell.demonstrations]
    steps = _checkpoints(chosen)
    groups = split(chosen, kind_of)
    kinds = sorted(groups, key=lambda kind: (kind.name, kind.order))
    return Table(
        f"dqn_{comparison}",
        f"DQN and PPO at equal numbers of environment steps: {comparison}",
        f"Comparison `{comparison}`, without demonstrations: operations solved by the greedy "
        f"policy, %, after so many steps, and by the policy that the run kept; {INTERVALS_SAID}. "
        "Between two evaluations on a line.",
        ("reward", "arm", *(f"{step:,} steps" for step in steps), "kept", "seeds"),
        tuple(
            (
                kind.name,
                arm_words(kind.arm),
                *(estimated(accuracy_estimate(groups[kind], step), percent) for step in steps),
                estimated(final_estimate(groups[kind], MEASURES[0]), percent),
                f"{len(groups[kind])}",
            )
            for kind in kinds
        ),
    )


def added_by_demonstrations(grid: Grid, kind: Kind, n: int, step: int) -> Estimate | None:
    """Accuracy with n demonstrations less that without, after so many steps of each."""
    without, given = (accuracies_at(grid.seeds(kind, count), step) for count in (0, n))
    return difference(given, without, report_generator()) if without and given else None


def _equal_steps(grid: Grid) -> Table:
    steps = _checkpoints([record for seeds in grid.parts.values() for record in seeds])
    rows = []
    for kind in grid.kinds:
        for n in grid.demonstrations:
            seeds = grid.seeds(kind, n)
            cells = (_equal_steps_cell(grid, kind, n, step) for step in steps)
            answers = f"{median_labels(seeds):,.0f}" if seeds else MISSING
            rows.append((kind.name, f"{n:,}", answers, *cells, f"{len(seeds)}"))
    return Table(
        f"equal_steps_{grid.comparison}",
        f"Demonstrations against none at equal numbers of environment steps: {grid.comparison}",
        f"Comparison `{grid.comparison}`: operations solved by the greedy policy, %, after so many "
        f"environment steps of PPO; {INTERVALS_SAID}. After the semicolon, the difference to no "
        "demonstrations in percentage points, with its interval. Between two evaluations on a "
        "line. The steps are the agent's own; the teacher's answers that were cloned before are "
        "in the third column.",
        (
            "reward",
            "demonstrations",
            "teacher's answers",
            *(f"{step:,} steps" for step in steps),
            "seeds",
        ),
        tuple(rows),
    )


def _equal_steps_cell(grid: Grid, kind: Kind, n: int, step: int) -> str:
    found = estimated(accuracy_estimate(grid.seeds(kind, n), step), percent)
    if n == 0 or found == MISSING:
        return found
    return f"{found}; {estimated(added_by_demonstrations(grid, kind, n, step), points)}"
