"""The report of the study: its tables as one page, its numbers as JSON, its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from oracle.files import atomic_write_text
from pipelines.experiments.arms import ARMS
from pipelines.experiments.drawing import SCREEN, FigureFiles
from pipelines.experiments.figures import draw_figures
from pipelines.experiments.paper_tables import order_reproduced, training_runs
from pipelines.experiments.records import (
    Record,
    budget,
    by_setting,
    comparison_of,
    comparisons,
    fine_tuning,
    frame_of,
    reward_alone,
)
from pipelines.experiments.statistics import BEYOND, NOT_WITHIN, Estimate, seeds_text
from pipelines.experiments.store import MissingCell
from pipelines.experiments.tables import (
    ACCURACY,
    ALL_SEEDS,
    HALF_OF_SEEDS,
    MEASURES,
    OWN_ACCURACY,
    WRONG,
    Change,
    final_estimate,
    kind_thresholds,
    median_labels,
    tables_of,
    with_clones,
)

FORMAT, VERSION = "virtual-abacus-study-report", 2
TABLES_FILE, SUMMARY_FILE = "tables.md", "summary.json"


def write_report(
    records: Sequence[Record], missing: Sequence[MissingCell], folder: Path, command: str
) -> list[Path]:
    """Write tables, figures and numbers into a folder, and return their paths.

    The study may be unfinished: `missing` are its cells without a record. The same records make the
    same files, in whatever order.
    """
    rows = frame_of(records)
    pictures = draw_figures(rows, folder)
    page = markdown(rows, missing, pictures, command)
    atomic_write_text(folder / TABLES_FILE, page)
    numbers = json.dumps(summary(rows, missing, command), indent=1, allow_nan=False)
    atomic_write_text(folder / SUMMARY_FILE, numbers + "\n")
    files = [path for picture in pictures for path in picture.files]
    return [folder / TABLES_FILE, folder / SUMMARY_FILE, *files]


def markdown(
    rows: pd.DataFrame,
    missing: Sequence[MissingCell],
    pictures: Sequence[FigureFiles],
    command: str,
) -> str:
    """Return the page: a list of the comparisons, the figures, the tables."""
    lines = [
        "# The study: tables",
        "",
        f"Written by `{command}` from {len(rows):,} records; {_missing_text(missing)}.",
        "",
        *(f"- `{comparison_of(part)}`: {_contents(part)}" for part in comparisons(rows)),
        "",
        "An interquartile mean leaves out the lowest and the "
        "highest quarter of seeds, with fractions of seeds if a quarter is not whole; with five "
        "seeds it does not see one that fails. Intervals are percentiles of a bootstrap over "
        "seeds. They have no width if all seeds are equal, which is not certainty, and with five "
        "seeds they are narrower than 95 % intervals should be.",
        "",
    ]
    for picture in pictures:
        lines += [f"![{picture.alt}]({picture.key}{SCREEN})", ""]
    lines += [table.markdown() for table in tables_of(rows, missing)]
    return "\n".join(lines)


def _missing_text(missing: Sequence[MissingCell]) -> str:
    failed = sum(each.error is not None for each in missing)
    return f"{failed:,} cells failed, {len(missing) - failed:,} were not run"


def _contents(rows: pd.DataFrame) -> str:
    arms = ", ".join(sorted(set(rows["arm"]), key=list(ARMS).index))
    seeds = sorted(set(rows["seed"]))
    text = f"{len(rows):,} records, {arms}, {seeds_text([len(seeds)])} from {seeds[0]} on"
    return text + (f", {budget(rows):,} steps" if budget(rows) else "")


def summary(rows: pd.DataFrame, missing: Sequence[MissingCell], command: str) -> dict[str, Any]:
    """Return the numbers of the tables as plain values; shares are of 1, not per cent."""
    tuned = fine_tuning(rows)
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "records": len(rows),
        "failed": sum(each.error is not None for each in missing),
        "not_run": sum(each.error is None for each in missing),
        "comparisons": {comparison_of(part): _counts(part) for part in comparisons(rows)},
        "settings": [
            _where(seeds) | _spent(seeds) | _measured(seeds)
            for part in comparisons(rows)
            for seeds in by_setting(part)
        ],
        "demonstrations_to_exact": list(_thresholds(with_clones(tuned, rows))),
        "ppo_added": [
            _where(seeds) | _changes(seeds)
            for seeds in by_setting(tuned)
            if seeds["clone_accuracy"].notna().any()
        ],
        "longest_training_runs": [
            _longest_runs(part) for part in reward_alone(rows[rows["arm"] == "ppo"])
        ],
    }


def _where(seeds: pd.DataFrame) -> dict[str, Any]:
    names = ("comparison", "approach", "demonstrations", "allowed_labels")
    found = {name: seeds[name].iloc[0] for name in names}
    plain = {name: v if isinstance(v, str) else int(v) for name, v in found.items()}
    return plain | asdict(seeds["kind"].iloc[0])


def _spent(seeds: pd.DataFrame) -> dict[str, Any]:
    """Return medians of what the seeds of a setting used."""
    return {
        "answers": median_labels(seeds),
        "demonstrated": float(seeds["demonstrated"].median()),
        "all_steps": float(seeds["all_steps"].median()),
        "stage_steps": [record.stage_steps for record in seeds["record"]],
    }


def _counts(rows: pd.DataFrame) -> dict[str, Any]:
    return {
        "records": len(rows),
        "seeds": sorted(set(rows["seed"])),
        "steps": budget(rows),
        "demonstrations": sorted(set(rows["demonstrations"])),
    }


def _measured(seeds: pd.DataFrame) -> dict[str, Any]:
    return {
        "seeds": len(seeds),
        "exact_as_the_teacher": int(seeds["final_exact"].sum()),
        "exact_by_own_runs": int((seeds["final_own_runs"] == "exact").sum()),
        "own_runs_asked": int(seeds["final_own_runs"].notna().sum()),
        "proven": int(seeds["final_proven"].sum()),
        **{
            measure.key: asdict(final_estimate(seeds, measure))
            for measure in (*MEASURES, OWN_ACCURACY)
        },
    }


def _thresholds(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    every, half = (kind_thresholds(rows, share) for share in (ALL_SEEDS, HALF_OF_SEEDS))
    for kind in every:
        yield {
            **asdict(kind),
            "all_seeds": _threshold(every[kind]),
            "half_of_seeds": _threshold(half[kind]),
        }


def _threshold(found: Estimate) -> dict[str, Any]:
    """Return plain values; JSON has no infinity, so a threshold beyond the grid is a text."""
    values = asdict(found)
    numbers = {name: value for name, value in values.items() if value not in (None, BEYOND)}
    words = {name: NOT_WITHIN for name, value in values.items() if value == BEYOND}
    return values | {name: int(value) for name, value in numbers.items()} | words


def _changes(seeds: pd.DataFrame) -> dict[str, Any]:
    return {
        f"{policy}_{measure.key}": asdict(Change.of(seeds, policy, measure))
        for policy in ("final", "last")
        for measure in (ACCURACY, WRONG)
    }


def _longest_runs(rows: pd.DataFrame) -> dict[str, Any]:
    runs = training_runs(rows)
    best = {name: max(lengths, default=None) for name, lengths in runs.items()}
    known = {name: length for name, length in best.items() if length is not None}
    return {
        "comparison": comparison_of(rows),
        "best": best,
        "by_seed": runs,
        "order_reproduced_by_best": order_reproduced(known),
    }
