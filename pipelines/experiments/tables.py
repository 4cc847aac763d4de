"""The tables of the study, from the rows of `frame_of`, with the paper's Table 1 among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise, product
from statistics import median

import pandas as pd

from pipelines.experiments.arms import ARMS
from pipelines.experiments.records import (
    POLICIES,
    SETTING,
    Kind,
    budget,
    by_setting,
    comparison_of,
    comparisons,
    groups,
    kind_of,
    main_comparison,
    stepping_arms,
)
from pipelines.experiments.statistics import (
    BEYOND,
    FEWEST_SEEDS,
    INTERVAL_NOTE,
    NOT_WITHIN,
    Estimate,
    Text,
    accuracies_at,
    difference,
    estimate,
    exactness_threshold,
    first_reaching,
    iqm,
    seeds_text,
)
from pipelines.experiments.store import MissingCell
from pipelines.job.tables import (
    MISSING,
    OPERATION_WORDS,
    Table,
    count,
    decimal_percent,
    points,
)
from pipelines.scoring.paper import LONGEST_RUNS, LONGEST_RUNS_BY_LEVEL

MILESTONES = (0.5, 0.9, 0.99, 1.0)
#: Parts of the budget at which runs are compared.
BUDGET_PARTS = (0.1, 0.25, 0.5, 1.0)
#: Shares of seeds that must be exact, for the two columns of thresholds.
ALL_SEEDS, HALF_OF_SEEDS = 1.0, 0.5


@dataclass(frozen=True)
class Measure:
    """A value of a policy: the name of its columns, its title and its format."""

    key: str
    title: str
    text: Text


ACCURACY = Measure("accuracy", "Operations solved, %", decimal_percent)
LONG_ERRORS = Measure("long_error_rate", "Errors at 16 digits, %", decimal_percent)
WRONG = Measure("wrong", "Wrong observations of the complete set", count)
MEASURES = (ACCURACY, LONG_ERRORS, WRONG)


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


def tables_of(rows: pd.DataFrame) -> list[Table]:
    """Return all tables for which there are records."""
    return list(_tables(rows))


def _tables(rows: pd.DataFrame) -> Iterator[Table]:
    main = main_comparison(rows)
    if len(main):
        yield from _grid_tables(main)
        yield _thresholds(main)
    tuned = comparisons(rows, "ppo")
    fine_tuned = [part for part in tuned if part["demonstrations"].any()]
    if fine_tuned:
        yield _ppo_added(fine_tuned)
    stepping = comparisons(rows, *stepping_arms())
    yield from map(_milestones, stepping)
    # A single row of the paper's compares nothing.
    papers = [part for part in tuned if len(_paper_rows_in(part)) > 1]
    if papers:
        yield _longest_runs(papers)
        yield _paper_claims(papers)
    if (rows["arm"] == "dagger").any():
        yield _by_labels(rows)
    for part in stepping:
        if part["arm"].isin(("dqn", "dqn_unmasked")).any():
            yield _dqn(part[part["demonstrations"] == 0])
    for part in tuned:
        if part["demonstrations"].nunique() > 1 and (part["demonstrations"] == 0).any():
            yield _equal_steps(part)


def missing_cells(missing: Sequence[MissingCell]) -> Table | None:
    """Return a table of the cells without a record, or None if there are none."""
    if not missing:
        return None
    seeds_of: dict[tuple[str, str, str], list[MissingCell]] = {}
    for each in missing:
        cell = each.cell
        amount = f"{cell.labels:,} answers" if cell.labels else f"{cell.demonstrations:,}"
        where = (cell.comparison, kind_of(cell).title, amount)
        seeds_of.setdefault(where, []).append(each)
    cells = []
    for where, found in seeds_of.items():
        errors = [each.error for each in found if each.error is not None]
        cells.append(
            {
                **dict(zip(("comparison", "arm", "demonstrations"), where, strict=True)),
                "failed": f"{len(errors)}",
                "not run": f"{len(found) - len(errors)}",
                "seeds": ", ".join(f"{each.cell.seed}" for each in found),
                "errors": "; ".join(sorted(set(errors))) or MISSING,
            }
        )
    return _table(
        "missing",
        "Cells without a record",
        "Cells of the grid that are in no other table: those that failed, with the error of the "
        "last attempt, and those that were not run.",
        cells,
    )


def final_estimate(seeds: pd.DataFrame, measure: Measure) -> Estimate:
    """Estimate a measure of the policies that the runs kept."""
    return estimate([seeds[f"final_{measure.key}"]])


def _final_text(seeds: pd.DataFrame, measure: Measure, usual: int = 0) -> str:
    return final_estimate(seeds, measure).text(measure.text, usual)


def _exact_text(seeds: pd.DataFrame) -> str:
    return f"{seeds['final_exact'].sum()} of {len(seeds)}"


def _steps_text(rows: pd.DataFrame) -> str:
    return f"{budget(rows):,} steps"


def _table(key: str, title: str, note: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """Make a table whose header is the names of the first row's cells."""
    return Table(key, title, note, tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def _pivot(rows: pd.DataFrame, cell: Callable[[pd.DataFrame], str]) -> list[dict[str, str]]:
    """Return a row of texts for each number of demonstrations, a column for each kind."""
    wide = rows.groupby(["demonstrations", "kind"]).apply(cell).unstack(fill_value=MISSING)
    names = [kind.name for kind in sorted(set(rows["kind"]))]
    return [
        {"demonstrations": f"{n:,}", **dict(zip(names, cells, strict=True))}
        for n, *cells in wide.itertuples()
    ]


def _grid_tables(rows: pd.DataFrame) -> Iterator[Table]:
    """Yield numbers of demonstrations by kinds of supervision: a table for each measure."""
    usual = int(rows.groupby(SETTING).size().mode().max())
    kinds = rows.groupby("demonstrations")["kind"].nunique()
    shared = kinds.index[kinds == rows["kind"].nunique()]
    note = (
        f"Comparison `{comparison_of(rows)}`; the policy that each run kept; {INTERVAL_NOTE}; "
        f"{seeds_text([usual])} unless a cell says otherwise. PPO: {_steps_text(rows)}."
    )
    if len(shared) > 1:
        note += (
            " The last row averages over the numbers of demonstrations that every column "
            f"has ({', '.join(f'{n:,}' for n in shared)}); seeds are resampled within each."
        )
    for measure in MEASURES:
        cells = _pivot(rows, partial(_final_text, measure=measure, usual=usual))
        if len(shared) > 1:
            together = {"demonstrations": f"{shared[0]:,} to {shared[-1]:,} together"}
            for kind, part in groups(rows[rows["demonstrations"].isin(shared)], "kind"):
                strata = [s[f"final_{measure.key}"] for _, s in groups(part, "demonstrations")]
                together[kind.name] = estimate(strata).text(measure.text, usual)
            cells.append(together)
        yield _table(measure.key, measure.title, note, cells)
    yield _table(
        "certified",
        "Seeds that were certified exact",
        f"Comparison `{comparison_of(rows)}`; policies kept by the runs that are right for every "
        "observation that the algorithm can meet, at any length; of all seeds.",
        _pivot(rows, _exact_text),
    )


def kind_thresholds(rows: pd.DataFrame, share: float) -> dict[Kind, Estimate]:
    """Return from how many demonstrations on each kind of supervision was exact."""
    found = {}
    for kind, part in groups(rows, "kind"):
        exact = part.pivot(index="seed", columns="demonstrations", values="final_exact")
        found[kind] = exactness_threshold(exact.astype(float), share)
    return found


def threshold_text(found: Estimate) -> str:
    """Format a threshold: `3,000 (1,000 to 3,000; 5 seeds)`."""
    if found.value == found.low == BEYOND:
        return f"{NOT_WITHIN} ({seeds_text([found.seeds])})"
    return found.text(lambda n: NOT_WITHIN if n == BEYOND else f"{n:,.0f}", usual=-1)


def _thresholds(rows: pd.DataFrame) -> Table:
    every, half = (kind_thresholds(rows, share) for share in (ALL_SEEDS, HALF_OF_SEEDS))
    cells = []
    for kind, part in groups(rows, "kind"):
        seeds = part.groupby("demonstrations").size()
        cells.append(
            {
                "supervision": kind.name,
                "all seeds exact": threshold_text(every[kind]),
                "at least half": threshold_text(half[kind]),
                "numbers run": f"{seeds.index[0]:,} to {seeds.index[-1]:,}",
                "seeds a number": seeds_text(seeds),
            }
        )
    return _table(
        "demonstrations_to_exact",
        "Demonstrations to exactness",
        f"Comparison `{comparison_of(rows)}`: the smallest number of demonstrations from which on "
        "the kept policies of all seeds, or of at least half of them, were certified exact. In "
        "brackets, a 95 % bootstrap interval over the seeds that were run with every number, and "
        "the number of these seeds. For all seeds, its upper end cannot lie above the number.",
        cells,
    )


@dataclass(frozen=True)
class Change:
    """Number of seeds in which a measure rose, and in which it fell."""

    rose: int
    fell: int
    seeds: int

    @classmethod
    def of(cls, rows: pd.DataFrame, policy: str, measure: Measure) -> Change:
        """Compare the clones with the policies `final` or `last` of the same runs."""
        change = (rows[f"{policy}_{measure.key}"] - rows[f"clone_{measure.key}"]).dropna()
        return cls(int((change > 0).sum()), int((change < 0).sum()), len(change))


def _ppo_added(parts: Sequence[pd.DataFrame]) -> Table:
    cells = []
    for rows in parts:
        cloned = by_setting(rows.dropna(subset="clone_accuracy"))
        counts = sorted(set(rows["demonstrations"]) - {0})
        for kind, n in product(sorted(set(rows["kind"])), counts):
            seeds = cloned.get((kind, n))
            where = (comparison_of(rows), kind.name, f"{n:,}")
            row = dict(zip(("comparison", "reward", "demonstrations"), where, strict=True))
            for name, measure in (("solved, %", ACCURACY), ("wrong", WRONG)):
                row |= {f"{name}: {key}": text for key, text in _added(seeds, measure).items()}
            cells.append(row | {"seeds": f"{0 if seeds is None else len(seeds)}"})
    budgets = ", ".join(f"`{comparison_of(rows)}` {_steps_text(rows)}" for rows in parts)
    return _table(
        "ppo_added",
        "What PPO added to each clone",
        "The clone, the policy kept by the run and its last policy: interquartile means, and the "
        "number of seeds in which the value rose or fell from the clone's, by however little "
        "(equal values are neither). Accuracy is sampled, wrong observations are counted in full. "
        f"Steps of PPO: {budgets}.",
        cells,
    )


def _added(seeds: pd.DataFrame | None, measure: Measure) -> dict[str, str]:
    names = ("clone", "kept", "last", "kept: rose / fell", "last: rose / fell")
    if seeds is None:
        return dict.fromkeys(names, MISSING)
    means = [float(iqm(seeds[f"{policy}_{measure.key}"])) for policy in POLICIES]
    changes = [Change.of(seeds, policy, measure) for policy in ("final", "last")]
    texts = [*map(measure.text, means), *(f"{one.rose} / {one.fell}" for one in changes)]
    return dict(zip(names, texts, strict=True))


def _milestones(rows: pd.DataFrame) -> Table:
    return _table(
        f"milestones_{comparison_of(rows)}",
        f"Steps and processor time to an accuracy: {comparison_of(rows)}",
        f"{_steps_text(rows)}: environment steps, and processor seconds of reinforcement learning, "
        "until an evaluation of the greedy policy first had this accuracy; median of the seeds "
        "that reached it, and their number. A clone that had it took 0 steps.",
        [
            {
                "arm": ARMS[kind.arm].title,
                "reward": kind.name,
                "demonstrations": f"{n:,}",
                **{f"to {share:.0%}": _milestone(seeds, share) for share in MILESTONES},
                "seeds": f"{len(seeds)}",
            }
            for (kind, n), seeds in by_setting(rows).items()
        ],
    )


def _milestone(seeds: pd.DataFrame, share: float) -> str:
    found = [point for record in seeds["record"] if (point := first_reaching(record, share))]
    of_all = f"{len(found)} of {len(seeds)}"
    if not found:
        return f"not reached ({of_all})"
    steps, seconds = median(p.step for p in found), median(p.seconds for p in found)
    return f"{steps:,.0f} steps, {seconds:,.0f} s ({of_all})"


def label_groups(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the seeds of DAgger and of cloning alone, by the teacher's answers that they used.

    Clones of another comparison than DAgger's will do, as cloning has no budget of steps. They are
    taken from one comparison, so that no seed counts twice.
    """
    dagger = rows[rows["arm"] == "dagger"]
    own = set(dagger["comparison"])
    clones = rows[(rows["arm"] == "cloning") & rows["operations"].isin(dagger["operations"])]
    most = max(
        comparisons(clones),
        key=lambda part: (comparison_of(part) in own, len(part)),
        default=clones,
    )
    setting = ["arm", "operations", "demonstrations", "allowed_labels"]
    found = [seeds for _, seeds in groups(pd.concat([dagger, most]), setting)]
    return sorted(found, key=median_labels)


def median_labels(seeds: pd.DataFrame) -> float:
    """Return the median number of the teacher's answers that were learned from."""
    return float(seeds["labels"].median())


def _by_labels(rows: pd.DataFrame) -> Table:
    cells = []
    for seeds in label_groups(rows):
        cell = seeds["record"].iloc[0].cell
        cells.append(
            {
                "answers": f"{median_labels(seeds):,.0f}",
                "arm": ARMS[cell.arm].title,
                "operations": OPERATION_WORDS[cell.operations],
                "demonstrations": f"{cell.demonstrations:,}",
                **{m.title.lower(): _final_text(seeds, m) for m in MEASURES},
                "certified exact": _exact_text(seeds),
            }
        )
    return _table(
        "labels",
        "DAgger and cloning by the teacher's answers",
        "By the number of the teacher's answers that were learned from (median of seeds); "
        f"{INTERVAL_NOTE}.",
        cells,
    )


def _compared_steps(rows: pd.DataFrame) -> list[int]:
    return [round(part * budget(rows)) for part in BUDGET_PARTS]


def _accuracy_text(seeds: pd.DataFrame | None, step: int) -> str:
    accuracies = [] if seeds is None else accuracies_at(seeds["record"], step)
    return estimate([accuracies]).text(decimal_percent) if accuracies else MISSING


def _dqn(rows: pd.DataFrame) -> Table:
    steps = _compared_steps(rows)
    by_name = sorted(by_setting(rows).items(), key=lambda item: (item[0][0].name, item[0]))
    return _table(
        f"dqn_{comparison_of(rows)}",
        f"DQN and PPO at equal numbers of environment steps: {comparison_of(rows)}",
        "Without demonstrations: operations solved by the greedy policy, %, at a step, and by the "
        f"policy that the run kept; {INTERVAL_NOTE}. Linear between evaluations.",
        [
            {
                "reward": kind.name,
                "arm": ARMS[kind.arm].title,
                **{f"{step:,} steps": _accuracy_text(seeds, step) for step in steps},
                "kept": _final_text(seeds, ACCURACY),
                "seeds": f"{len(seeds)}",
            }
            for (kind, _), seeds in by_name
        ],
    )


def added_by_demonstrations(
    seeds: pd.DataFrame | None, without: pd.DataFrame | None, step: int
) -> Estimate | None:
    """Estimate the accuracy with demonstrations less that without, at a step."""
    if seeds is None or without is None:
        return None
    given, none = (accuracies_at(part["record"], step) for part in (seeds, without))
    return difference(given, none) if given and none else None


def _equal_steps(rows: pd.DataFrame) -> Table:
    steps, settings = _compared_steps(rows), by_setting(rows)
    cells = []
    for kind, n in product(sorted(set(rows["kind"])), sorted(set(rows["demonstrations"]))):
        seeds, without = settings.get((kind, n)), settings.get((kind, 0))
        row = {
            "reward": kind.name,
            "demonstrations": f"{n:,}",
            "teacher's answers": MISSING if seeds is None else f"{median_labels(seeds):,.0f}",
        }
        for step in steps:
            text = _accuracy_text(seeds, step)
            if n and text != MISSING:
                added = added_by_demonstrations(seeds, without, step)
                text += f"; {added.text(points) if added else MISSING}"
            row[f"{step:,} steps"] = text
        cells.append(row | {"seeds": f"{0 if seeds is None else len(seeds)}"})
    return _table(
        f"equal_steps_{comparison_of(rows)}",
        f"Demonstrations against none at equal numbers of environment steps: {comparison_of(rows)}",
        f"Operations solved by the greedy policy, %, at a step of PPO; {INTERVAL_NOTE}. "
        "After the semicolon, the difference to no demonstrations in percentage points, with its "
        "interval. Linear between evaluations. The steps are the agent's own; the third column has "
        "the teacher's answers that were cloned before.",
        cells,
    )


def _paper_rows_in(rows: pd.DataFrame) -> list[str]:
    """Return the paper's rows that a comparison has, the longest run first."""
    return [name for name in _BY_LENGTH if PAPER_ROWS[name][0] in set(rows["kind"])]


def training_runs(rows: pd.DataFrame) -> Iterator[tuple[int, dict[str, list[int]]]]:
    """Yield for each number of demonstrations the longest training runs, by the paper's row.

    A list has a value for each seed, and none if the row was not run.
    """
    kinds = {name: kind for name, (kind, _) in PAPER_ROWS.items()}
    for n, part in groups(rows[rows["kind"].isin(kinds.values())], "demonstrations"):
        runs = part.groupby("kind")["longest_training_run"].apply(list)
        yield int(n), {name: runs.get(kind, []) for name, kind in kinds.items()}


def _longest_runs(parts: Sequence[pd.DataFrame]) -> Table:
    paper = [f"{longest:,}" for _, longest in PAPER_ROWS.values()]
    ends = (MISSING, MISSING, "not stated", "not stated")
    cells: list[Sequence[str]] = [("the paper", "0", *paper, *ends)]
    for rows in parts:
        for n, runs in training_runs(rows):
            cells.append(
                (
                    f"{comparison_of(rows)}, {_steps_text(rows)}",
                    f"{n:,}",
                    *map(_runs_text, runs.values()),
                    order_reproduced({name: max(ls) for name, ls in runs.items() if ls}),
                    order_reproduced({name: float(iqm(ls)) for name, ls in runs.items() if ls}),
                    _steps_of_an_abacus(rows),
                    seeds_text(len(ls) for ls in runs.values() if ls).partition(" seed")[0],
                )
            )
    header = (
        *("comparison", "demonstrations", *PAPER_ROWS, "order reproduced? (best)"),
        *("order reproduced? (mean)", "steps an abacus", "seeds"),
    )
    return _table(
        "longest_runs",
        "The paper's Table 1: longest run of operations during training",
        "The longest run solved by the sampling policy during training: the best of the seeds, "
        f"then the {INTERVAL_NOTE}. The paper gives one number a row. Its order, from long to "
        f"short, is {', '.join(_BY_LENGTH)}; two columns say whether the best runs and the means, "
        "in the columns that were run, have this order. A run cannot be longer than the steps of "
        "one abacus allow, at nearly thirty steps an operation: runs near this limit show the "
        "length of the training, not the quality of the policy.",
        [dict(zip(header, row, strict=True)) for row in cells],
    )


def _steps_of_an_abacus(rows: pd.DataFrame) -> str:
    """Format the budget divided by the environments that share it."""
    environments = [record.cell.settings.get("n_envs", 0) for record in rows["record"]]
    return f"{budget(rows) // max(environments):,}" if any(environments) else MISSING


def _runs_text(lengths: Sequence[int]) -> str:
    return f"best {max(lengths):,}; {estimate([lengths]).text(count)}" if lengths else MISSING


def order_reproduced(lengths: Mapping[str, float]) -> str:
    """Say whether lengths by the paper's row fall strictly in the paper's order."""
    ours = [lengths[name] for name in _BY_LENGTH if name in lengths]
    if len(ours) < 2:
        return MISSING
    falls = all(longer > shorter for longer, shorter in pairwise(ours))
    of_some = f" (of {len(ours)} columns)" if len(ours) < len(PAPER_ROWS) else ""
    return ("yes" if falls else "no") + of_some


def _paper_claims(parts: Sequence[pd.DataFrame]) -> Table:
    cells = []
    for rows in parts:
        runs_of = dict(training_runs(rows))
        counts = rows["demonstrations"]
        for n, (longer, shorter) in product(
            sorted({counts.min(), counts.max()}), combinations(_paper_rows_in(rows), 2)
        ):
            (one, paper), (other, less) = PAPER_ROWS[longer], PAPER_ROWS[shorter]
            # The paper compares levels with each other, and single operations with both.
            if one.operations != other.operations and one.reward != other.reward:
                continue
            runs = [runs_of.get(n, {}).get(name) for name in (longer, shorter)]
            found = difference(*runs) if all(runs) else None  # type: ignore[arg-type]
            cells.append(
                {
                    "claim": f"{longer} > {shorter}",
                    "comparison": f"{comparison_of(rows)}, {_steps_text(rows)}",
                    "demonstrations": f"{n:,}",
                    "the paper": f"{paper - less:,}",
                    "here": found.text(lambda value: f"{value:+,.0f}") if found else MISSING,
                    "reproduced?": verdict(found),
                }
            )
    return _table(
        "paper_claims",
        "The paper's Table 1, row against row",
        "How much longer the longest run during training is, in the paper and here (difference "
        "of interquartile means over seeds, 95 % bootstrap interval). Reproduced: the interval "
        "lies above 0; opposite: below; not decided: it holds 0, or there are fewer than "
        f"{FEWEST_SEEDS} seeds. With the fewest and the most demonstrations of each comparison, "
        "and for the rows that it has.",
        cells,
    )


def verdict(found: Estimate | None) -> str:
    """Say whether a difference is above 0."""
    if found is None:
        return MISSING
    if found.low is None or found.high is None or found.low <= 0 <= found.high:
        return "not decided"
    return "yes" if found.low > 0 else "opposite"
