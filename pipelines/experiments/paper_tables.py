"""The paper's Table 1 beside the study's runs: the longest runs of operations during training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

import pandas as pd

from pipelines.experiments.records import Kind, budget, comparison_of, reward_alone
from pipelines.experiments.statistics import (
    FEWEST_SEEDS,
    INTERVAL_NOTE,
    Estimate,
    difference,
    estimate,
    iqm,
    seeds_text,
)
from pipelines.job.tables import MISSING, Table, count, table_of
from pipelines.scoring.paper import LONGEST_RUNS, LONGEST_RUNS_BY_LEVEL

#: The paper's Table 1: kind of supervision here, most operations solved in an episode of training.
PAPER_ROWS: dict[str, tuple[Kind, int]] = {
    **{
        level: (Kind("ppo", level, "both"), longest)
        for level, longest in LONGEST_RUNS_BY_LEVEL.items()
    },
    "addition": (Kind("ppo", "dense", "add"), LONGEST_RUNS["add"]),
    "subtraction": (Kind("ppo", "dense", "subtract"), LONGEST_RUNS["subtract"]),
}
_BY_LENGTH = sorted(PAPER_ROWS, key=lambda name: -PAPER_ROWS[name][1])


def paper_tables(rows: pd.DataFrame) -> Iterator[Table]:
    """Yield Table 1 and its claims, for each comparison with PPO from reward alone.

    A single row of the paper's compares nothing.
    """
    parts = [part for part in reward_alone(rows[rows["arm"] == "ppo"]) if len(_rows_in(part)) > 1]
    if parts:
        yield _longest_runs(parts)
        yield _claims(parts)


def _rows_in(rows: pd.DataFrame) -> list[str]:
    """Return the paper's rows that a comparison has, the longest run first."""
    return [name for name in _BY_LENGTH if PAPER_ROWS[name][0] in set(rows["kind"])]


def training_runs(rows: pd.DataFrame) -> dict[str, list[int]]:
    """Return the longest training run of each seed, by the paper's row; none if it was not run."""
    runs = rows.groupby("kind")["longest_training_run"].apply(list)
    return {name: runs.get(kind, []) for name, (kind, _) in PAPER_ROWS.items()}


def _longest_runs(parts: Sequence[pd.DataFrame]) -> Table:
    paper = [f"{longest:,}" for _, longest in PAPER_ROWS.values()]
    ends = (MISSING, MISSING, "not stated", "not stated")
    cells: list[Sequence[str]] = [("the paper, 35 million steps", *paper, *ends)]
    for rows in parts:
        runs = training_runs(rows)
        cells.append(
            (
                f"{comparison_of(rows)}, {budget(rows):,} steps",
                *map(_runs_text, runs.values()),
                order_reproduced({name: max(ls) for name, ls in runs.items() if ls}),
                order_reproduced({name: float(iqm(ls)) for name, ls in runs.items() if ls}),
                _steps_of_an_abacus(rows),
                seeds_text(len(ls) for ls in runs.values() if ls).partition(" seed")[0],
            )
        )
    header = (
        *("comparison", *PAPER_ROWS, "order reproduced? (best)"),
        *("order reproduced? (mean)", "steps an abacus", "seeds"),
    )
    return table_of(
        "longest_runs",
        "The paper's Table 1: longest run of operations during training",
        "Without demonstrations: the longest run solved by the sampling policy during training, "
        f"the best of the seeds, then the {INTERVAL_NOTE}. The paper gives one number a row. Its "
        f"order, from long to short, is {', '.join(_BY_LENGTH)}; two columns say whether the best "
        "runs and the means, in the columns that were run, have this order. A run cannot be longer "
        "than the steps of one abacus allow, at nearly thirty steps an operation: runs near this "
        "limit show the length of the training, not the quality of the policy.",
        [dict(zip(header, row, strict=True)) for row in cells],
    )


def _steps_of_an_abacus(rows: pd.DataFrame) -> str:
    """Format the budget divided by the environments that share it."""
    environments = [record.cell.settings.get("n_envs", 0) for record in rows["record"]]
    return f"{budget(rows) // max(environments):,}" if any(environments) else MISSING


def _runs_text(lengths: Sequence[int]) -> str:
    return f"best {max(lengths):,}; {estimate(lengths).text(count)}" if lengths else MISSING


def order_reproduced(lengths: Mapping[str, float]) -> str:
    """Say whether lengths by the paper's row fall strictly in the paper's order."""
    ours = [lengths[name] for name in _BY_LENGTH if name in lengths]
    if len(ours) < 2:
        return MISSING
    falls = all(longer > shorter for longer, shorter in pairwise(ours))
    of_some = f" (of {len(ours)} columns)" if len(ours) < len(PAPER_ROWS) else ""
    return ("yes" if falls else "no") + of_some


def _claims(parts: Sequence[pd.DataFrame]) -> Table:
    cells = []
    for rows in parts:
        runs_of = training_runs(rows)
        for longer, shorter in combinations(_rows_in(rows), 2):
            (one, paper), (other, less) = PAPER_ROWS[longer], PAPER_ROWS[shorter]
            # The paper compares levels with each other, and single operations with both.
            if one.operations != other.operations and one.reward != other.reward:
                continue
            found = difference(runs_of[longer], runs_of[shorter])
            cells.append(
                {
                    "claim": f"{longer} > {shorter}",
                    "comparison": f"{comparison_of(rows)}, {budget(rows):,} steps",
                    "the paper": f"{paper - less:,}",
                    "here": found.text(lambda value: f"{value:+,.0f}"),
                    "reproduced?": verdict(found),
                }
            )
    return table_of(
        "paper_claims",
        "The paper's Table 1, row against row",
        "How much longer the longest run during training is, in the paper and here (difference "
        "of interquartile means over seeds, 95 % bootstrap interval). Reproduced: the interval "
        "lies above 0; opposite: below; not decided: it holds 0, or there are fewer than "
        f"{FEWEST_SEEDS} seeds. For the rows that a comparison has.",
        cells,
    )


def verdict(found: Estimate) -> str:
    """Say whether a difference is above 0."""
    if found.low is None or found.high is None or found.low <= 0 <= found.high:
        return "not decided"
    return "yes" if found.low > 0 else "opposite"
