"""The paper's Table 1 beside the study: the longest runs of operations during training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from abacus.rules import Operations
from pipelines.evaluation.published import LONGEST_RUNS, LONGEST_RUNS_BY_LEVEL
from pipelines.evaluation.tables import Table
from pipelines.studying.groups import Grid, Kind, budget, seeds_said
from pipelines.studying.statistics import (
    FEWEST_SEEDS,
    Estimate,
    difference,
    iqm,
    report_generator,
)
from pipelines.studying.wording import (
    INTERVALS_SAID,
    MISSING,
    count,
    estimate_of,
    estimated,
    steps_said,
)


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
