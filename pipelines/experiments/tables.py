"""The tables of the study, from the rows of `frame_of`: supervision spent, and what was reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from abacus.reward import LEVELS
from pipelines.experiments.paper_tables import paper_tables
from pipelines.experiments.records import (
    POLICIES,
    Kind,
    approach_of,
    budget,
    by_setting,
    comparison_of,
    comparisons,
    early_step,
    fine_tuning,
    groups,
    kind_of,
    reward_alone,
    with_steps,
    without_steps,
)
from pipelines.experiments.statistics import (
    BEYOND,
    INTERVAL_NOTE,
    NOT_WITHIN,
    Estimate,
    Text,
    accuracies_at,
    estimate,
    exactness_threshold,
    first_reaching,
    iqm,
    range_text,
    seeds_text,
)
from pipelines.experiments.store import MissingCell
from pipelines.job.tables import (
    MISSING,
    OPERATION_WORDS,
    Table,
    count,
    decimal_percent,
    table_of,
)

MILESTONES = (0.5, 0.9, 0.99, 1.0)
#: Parts of the budget at which learners are compared.
BUDGET_PARTS = (0.1, 0.25, 0.5, 1.0)
#: Shares of seeds that must be exact, for the two columns of thresholds.
ALL_SEEDS, HALF_OF_SEEDS = 1.0, 0.5


@dataclass(frozen=True)
class Measure:
    """A value of a policy: the name of its columns, its title and its format."""

    key: str
    title: str
    text: Text


ACCURACY = Measure("accuracy", "operations solved, %", decimal_percent)
OWN_ACCURACY = Measure("own_accuracy", "by the level's own rules, %", decimal_percent)
LONG_ERRORS = Measure("long_error_rate", "errors at 16 digits, %", decimal_percent)
WRONG = Measure("wrong", "wrong observations", count)
MEASURES = (ACCURACY, LONG_ERRORS, WRONG)
_CERTIFICATES_NOTE = (
    "Two certificates, for the policy that a run kept, in seeds of all seeds: it agrees with the "
    "teacher on every observation of the complete set; none of its own runs goes wrong by the "
    "rules of its level, whomever it resembles. The second is not asked for single operations."
)


def tables_of(rows: pd.DataFrame, missing: Sequence[MissingCell] = ()) -> list[Table]:
    """Return all tables for which there are records, and one of the cells without a record."""
    return list(_tables(rows, missing))


def _tables(rows: pd.DataFrame, missing: Sequence[MissingCell]) -> Iterator[Table]:
    answers, steps = without_steps(rows), with_steps(rows)
    if len(answers):
        yield _by_answers(answers)
    if len(steps):
        yield _by_steps(steps)
    tuned = fine_tuning(rows)
    if len(tuned):
        yield _by_level(tuned)
        yield _short_and_long(tuned)
    if tuned["clone_accuracy"].notna().any():
        yield _ppo_added(tuned.dropna(subset="clone_accuracy"))
    counted_by_demonstrations = with_clones(tuned, rows)
    if len(counted_by_demonstrations):
        yield _thresholds(counted_by_demonstrations)
    for part in comparisons(steps):
        yield _milestones(part)
        if part["arm"].nunique() > 1:
            yield _learners(part)
    for part in reward_alone(rows):
        yield _each_seed(part)
    yield from paper_tables(rows)
    if len(rows):
        yield _seconds(rows)
    if missing:
        yield _missing_cells(missing)


def final_estimate(seeds: pd.DataFrame, measure: Measure) -> Estimate:
    """Estimate a measure of the policies that the runs kept."""
    return estimate(seeds[f"final_{measure.key}"])


def _final_texts(seeds: pd.DataFrame, *measures: Measure) -> dict[str, str]:
    return {m.title: final_estimate(seeds, m).text(m.text) for m in measures}


def _certificates(seeds: pd.DataFrame) -> dict[str, str]:
    """Return the numbers of seeds that each certificate proves exact."""
    verdicts = seeds["final_own_runs"].dropna()
    own = f"{(verdicts == 'exact').sum()} of {len(verdicts)}" if len(verdicts) else MISSING
    open_cases = int((verdicts == "not proven").sum())
    return {
        "exact as the teacher": f"{seeds['final_exact'].sum()} of {len(seeds)}",
        "exact by own runs": own + (f" ({open_cases} not decided)" if open_cases else ""),
    }


def median_labels(seeds: pd.DataFrame) -> float:
    """Return the median number of the teacher's answers that were learned from."""
    return float(seeds["labels"].median())


def _median_text(values: pd.Series) -> str:
    """Format a median, with the range if the values differ: `330 (300 to 363)`."""
    low, high = values.min(), values.max()
    middle = f"{values.median():,.0f}"
    return middle if low == high else f"{middle} ({low:,.0f} to {high:,.0f})"


def _by_answers(rows: pd.DataFrame) -> Table:
    settings = [seeds for part in comparisons(rows) for seeds in by_setting(part)]
    return table_of(
        "by_answers",
        "The teacher's answers: spent and reached",
        "Arms that learn from the teacher alone, by the number of its answers: median of seeds, "
        "and range. Operations are demonstrated ones; DAgger asks for single answers. "
        f"{_CERTIFICATES_NOTE} Otherwise {INTERVAL_NOTE}.",
        [
            {
                "arm": str(seeds["approach"].iloc[0]),
                "operations of the task": OPERATION_WORDS[seeds["operations"].iloc[0]],
                "answers": _median_text(seeds["labels"]),
                "demonstrated operations": _median_text(seeds["demonstrated"]),
                **_final_texts(seeds, *MEASURES),
                **_certificates(seeds),
            }
            for seeds in sorted(settings, key=median_labels)
        ],
    )


def _stages_text(seeds: pd.DataFrame) -> str:
    """Format the median steps of each stage: `planning 27,000,000; mending 58,000,000`."""
    stages = pd.DataFrame([record.stage_steps for record in seeds["record"]]).fillna(0)
    medians = {name: stages[name].median() for name in stages.columns}
    if len(medians) == 1:
        return f"{next(iter(medians.values())):,.0f}"
    return "; ".join(f"{name} {steps:,.0f}" for name, steps in medians.items()) or MISSING


def _by_steps(rows: pd.DataFrame) -> Table:
    return table_of(
        "by_steps",
        "The reward's steps: spent and reached",
        "Arms that take environment steps: median steps by stage, and the teacher's answers that "
        "were learned from before. Any mistake ends an episode for `operations solved`; the next "
        "column is by the rules of the level, at which some mistakes pass. "
        f"{_CERTIFICATES_NOTE} Otherwise {INTERVAL_NOTE}.",
        [
            {
                "comparison": comparison_of(part),
                "arm": str(seeds["approach"].iloc[0]),
                "reward": seeds["kind"].iloc[0].level,
                "demonstrations": f"{seeds['demonstrations'].iloc[0]:,}",
                "answers": _median_text(seeds["labels"]),
                "steps": _stages_text(seeds),
                **_final_texts(seeds, ACCURACY, OWN_ACCURACY, LONG_ERRORS, WRONG),
                **_certificates(seeds),
            }
            for part in comparisons(rows)
            for seeds in by_setting(part)
        ],
    )


def _by_level(rows: pd.DataFrame) -> Table:
    levels = [level for level in LEVELS if (rows["reward"] == level).any()]
    return table_of(
        "by_level",
        "Operations solved by number of demonstrations and reward level",
        f"Comparison `{comparison_of(rows)}`, {budget(rows):,} steps of PPO: the policy that a run "
        "kept, by the rules of its level, %, lowest and highest seed; and the number of seeds that "
        "one of the two certificates proves exact, where there are any. The clone's range is over "
        "seeds and levels, each by the rules of the level.",
        [
            {
                "demonstrations": f"{number:,}",
                "clone": _range_of(part["clone_own_accuracy"].dropna()),
                **{level: _reached(part[part["reward"] == level]) for level in levels},
            }
            for number, part in groups(rows, "demonstrations")
        ],
    )


def _range_of(shares: pd.Series) -> str:
    return range_text(list(shares), decimal_percent) if len(shares) else MISSING


def _reached(seeds: pd.DataFrame) -> str:
    proven = int(seeds["final_proven"].sum())
    exact = f", exact {proven} of {len(seeds)}" if proven else ""
    return _range_of(seeds["final_own_accuracy"]) + exact


def _nonzero(number: int) -> str:
    return f"{number:,}" if number else MISSING


def _each_seed(rows: pd.DataFrame) -> Table:
    return table_of(
        f"each_seed_{comparison_of(rows)}",
        f"Each seed without demonstrations: {comparison_of(rows)}",
        "Operations solved by the rules of the level, by the last policy of PPO or the clone of "
        "the plan, and by the policy that the run kept; of the latter, errors at 16 digits, the "
        "longest run of operations, and the verdict on its own runs; the longest "
        "run while training, in which actions are sampled; steps of all stages, and seconds.",
        [
            {
                "arm": str(row["approach"]),
                "reward": row["kind"].level,
                "seed": f"{row['seed']}",
                "solved by the last, %": decimal_percent(row["last_own_accuracy"]),
                "solved by the kept, %": decimal_percent(row["final_own_accuracy"]),
                "errors at 16 digits, %": decimal_percent(row["final_long_error_rate"]),
                "longest run": f"{row['final_longest_run']:,}",
                "while training": _nonzero(row["longest_training_run"]),
                "own runs": row["record"].final.own_runs or "not asked",
                "steps": f"{row['all_steps']:,}",
                "seconds": f"{row['record'].seconds['all']:,.0f}",
            }
            for _, row in rows.iterrows()
        ],
    )


def _accuracy_text(seeds: pd.DataFrame, step: int) -> str:
    accuracies = accuracies_at(seeds["record"], step)
    return estimate(accuracies).text(decimal_percent) if accuracies else MISSING


def _short_and_long(rows: pd.DataFrame) -> Table:
    early, late = early_step(rows), budget(rows)
    return table_of(
        "short_and_long",
        f"PPO after {early:,} and after {late:,} steps",
        f"Comparison `{comparison_of(rows)}`: operations solved by the greedy policy, %, before "
        f"PPO, at {early:,} steps, near the budget of the first study, and at the end; and by the "
        f"policy that the run kept. {INTERVAL_NOTE.capitalize()}. Linear between evaluations.",
        [
            {
                "demonstrations": f"{seeds['demonstrations'].iloc[0]:,}",
                "reward": seeds["kind"].iloc[0].level,
                "before PPO": _accuracy_text(seeds, 0),
                f"{early:,} steps": _accuracy_text(seeds, early),
                f"{late:,} steps": _accuracy_text(seeds, late),
                "kept": final_estimate(seeds, ACCURACY).text(decimal_percent),
                "seeds": f"{len(seeds)}",
            }
            for _, part in groups(rows, "demonstrations")
            for seeds in by_setting(part)
        ],
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


def _ppo_added(rows: pd.DataFrame) -> Table:
    cells = []
    for _, part in groups(rows, "demonstrations"):
        for seeds in by_setting(part):
            row = {
                "demonstrations": f"{seeds['demonstrations'].iloc[0]:,}",
                "reward": seeds["kind"].iloc[0].level,
            }
            for name, measure in (("solved, %", ACCURACY), ("wrong", WRONG)):
                row |= {f"{name}: {key}": text for key, text in _added(seeds, measure).items()}
            cells.append(row | {"seeds": f"{len(seeds)}"})
    return table_of(
        "ppo_added",
        "What PPO added to each clone",
        f"Comparison `{comparison_of(rows)}`, {budget(rows):,} steps. The clone, the policy kept "
        "by the run and its last policy: interquartile means, and the number of seeds in which the "
        "value rose or fell from the clone's, by however little (equal values are neither). "
        "Accuracy is sampled, wrong observations are counted in full.",
        cells,
    )


def _added(seeds: pd.DataFrame, measure: Measure) -> dict[str, str]:
    means = [float(iqm(seeds[f"{policy}_{measure.key}"])) for policy in POLICIES]
    changes = [Change.of(seeds, policy, measure) for policy in ("final", "last")]
    names = ("clone", "kept", "last", "kept: rose / fell", "last: rose / fell")
    texts = [*map(measure.text, means), *(f"{one.rose} / {one.fell}" for one in changes)]
    return dict(zip(names, texts, strict=True))


def with_clones(tuned: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return PPO after clones together with cloning alone, whose comparison has no steps."""
    clones = rows[(rows["arm"] == "cloning") & (rows["operations"] == "both")]
    return pd.concat([part for part in (clones, tuned) if len(part)] or [rows[:0]])


def kind_thresholds(rows: pd.DataFrame, share: float) -> dict[Kind, Estimate]:
    """Return from how many demonstrations on each kind of supervision was proven exact."""
    found = {}
    for kind, part in groups(rows, "kind"):
        exact = part.pivot(index="seed", columns="demonstrations", values="final_proven")
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
    return table_of(
        "demonstrations_to_exact",
        "Random demonstrations to exactness",
        "The smallest number of demonstrations from which on the kept policies of all seeds, or of "
        "at least half of them, were proven exact by one of the two certificates; rewards name PPO "
        "after clones. In brackets, a 95 % bootstrap interval over the seeds that were run with "
        "every number, and the number of these seeds. For all seeds, its upper end cannot lie "
        "above the number.",
        cells,
    )


def _milestones(rows: pd.DataFrame) -> Table:
    return table_of(
        f"milestones_{comparison_of(rows)}",
        f"Steps and processor time to an accuracy: {comparison_of(rows)}",
        f"{budget(rows):,} steps: environment steps, and processor seconds of reinforcement "
        "learning, until an evaluation of the greedy policy first had this accuracy; median of the "
        "seeds that reached it, and their number. A clone that had it took 0 steps.",
        [
            {
                "arm": str(seeds["approach"].iloc[0]),
                "reward": seeds["kind"].iloc[0].level,
                "demonstrations": f"{seeds['demonstrations'].iloc[0]:,}",
                **{f"to {share:.0%}": _milestone(seeds, share) for share in MILESTONES},
                "seeds": f"{len(seeds)}",
            }
            for seeds in by_setting(rows)
        ],
    )


def _milestone(seeds: pd.DataFrame, share: float) -> str:
    found = [point for record in seeds["record"] if (point := first_reaching(record, share))]
    of_all = f"{len(found)} of {len(seeds)}"
    if not found:
        return f"not reached ({of_all})"
    steps, seconds = median(p.step for p in found), median(p.seconds for p in found)
    return f"{steps:,.0f} steps, {seconds:,.0f} s ({of_all})"


def _learners(rows: pd.DataFrame) -> Table:
    """Return the learners of a comparison at equal steps, PPO without demonstrations."""
    shown = rows[(rows["arm"] != "ppo") | (rows["demonstrations"] == 0)]
    steps = [round(part * budget(rows)) for part in BUDGET_PARTS]
    return table_of(
        f"learners_{comparison_of(rows)}",
        f"Learners at equal numbers of environment steps: {comparison_of(rows)}",
        "Operations solved by the greedy policy, %, at a step, and by the policy that the run "
        f"kept; {INTERVAL_NOTE}. Linear between evaluations.",
        [
            {
                "arm": str(seeds["approach"].iloc[0]),
                "reward": seeds["kind"].iloc[0].level,
                "demonstrations": f"{seeds['demonstrations'].iloc[0]:,}",
                **{f"{step:,} steps": _accuracy_text(seeds, step) for step in steps},
                "kept": final_estimate(seeds, ACCURACY).text(decimal_percent),
                "seeds": f"{len(seeds)}",
            }
            for seeds in by_setting(shown)
        ],
    )


def _seconds(rows: pd.DataFrame) -> Table:
    taken = rows.assign(seconds=[record.seconds["all"] for record in rows["record"]])
    return table_of(
        "seconds",
        "Seconds of a cell",
        "Wall-clock time of the attempt that finished, scoring and certificates included, on the "
        "machine that ran the study, beside whatever else it ran: median of the cells, their "
        "longest, and the sum in hours of one worker.",
        [
            _seconds_row(name, approach, part["seconds"])
            for (name, approach), part in (
                *groups(taken, ["comparison", "approach"]),
                (("all", MISSING), taken),
            )
        ],
    )


def _seconds_row(name: str, approach: str, seconds: pd.Series) -> dict[str, str]:
    return {
        "comparison": name,
        "arm": approach,
        "cells": f"{len(seconds)}",
        "median": f"{seconds.median():,.0f}",
        "longest": f"{seconds.max():,.0f}",
        "hours": f"{seconds.sum() / 3600:.2f}",
    }


def _missing_cells(missing: Sequence[MissingCell]) -> Table:
    seeds_of: dict[tuple[str, str, str, str], list[MissingCell]] = {}
    for each in missing:
        cell = each.cell
        amount = f"{cell.labels:,} answers" if cell.labels else f"{cell.demonstrations:,}"
        where = (cell.comparison, approach_of(cell), kind_of(cell).level, amount)
        seeds_of.setdefault(where, []).append(each)
    cells: list[Mapping[str, str]] = []
    for where, found in seeds_of.items():
        errors = [each.error for each in found if each.error is not None]
        names = ("comparison", "arm", "reward", "demonstrations")
        cells.append(
            {
                **dict(zip(names, where, strict=True)),
                "failed": f"{len(errors)}",
                "not run": f"{len(found) - len(errors)}",
                "seeds": ", ".join(f"{each.cell.seed}" for each in found),
                "errors": "; ".join(sorted(set(errors))) or MISSING,
            }
        )
    failed = sum(each.error is not None for each in missing)
    return table_of(
        "missing",
        "Cells without a record",
        f"{failed} cells failed, {len(missing) - failed} were not run. They are in no other table; "
        "a failed cell is shown with the error of its last attempt.",
        cells,
    )
