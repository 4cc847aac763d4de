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
from pipelines.experiments.records import (
    Record,
    budget,
    by_setting,
    comparison_of,
    comparisons,
    frame_of,
    main_comparison,
)
from pipelines.experiments.statistics import BEYOND, NOT_WITHIN, Estimate, seeds_text
from pipelines.experiments.store import MissingCell
from pipelines.experiments.tables import (
    ACCURACY,
    ALL_SEEDS,
    HALF_OF_SEEDS,
    MEASURES,
    WRONG,
    Change,
    added_by_demonstrations,
    final_estimate,
    kind_thresholds,
    label_groups,
    median_labels,
    missing_cells,
    order_reproduced,
    tables_of,
    training_runs,
)

FORMAT, VERSION = "virtual-abacus-study-report", 1
TABLES_FILE, SUMMARY_FILE = "tables.md", "summary.json"


def write_report(
    records: Sequence[Record], missing: Sequence[MissingCell], folder: Path, command: str
) -> list[Path]:
    """Write tables, figures and numbers into a folder, and return their paths.

    The study may be unfinished. The same records make the same files, in whatever order.
    """
    rows = frame_of(records)
    pictures = draw_figures(rows, folder)
    page = markdown(rows, missing, pictures, command)
    atomic_write_text(folder / TABLES_FILE, page)
    numbers = json.dumps(summary(rows, command), indent=1, allow_nan=False)
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
        f"Written by `{command}` from {len(rows):,} records.",
        "",
        *(f"- `{comparison_of(part)}`: {_contents(part)}" for part in comparisons(rows)),
        "",
        "A `-` is a cell that was not run. An interquartile mean leaves out the lowest and the "
        "highest quarter of seeds, with fractions of seeds if a quarter is not whole; with five "
        "seeds it does not see one that fails. Intervals are percentiles of a bootstrap over "
        "seeds. They have no width if all seeds are equal, which is not certainty, and with five "
        "seeds they are narrower than 95 % intervals should be.",
        "",
    ]
    for picture in pictures:
        lines += [f"![{picture.alt}]({picture.key}{SCREEN})", ""]
    lines += [table.markdown() for table in tables_of(rows)]
    not_run = missing_cells(missing)
    lines += [] if not_run is None else [not_run.markdown()]
    return "\n".join(lines)


def _contents(rows: pd.DataFrame) -> str:
    arms = ", ".join(sorted(set(rows["arm"]), key=list(ARMS).index))
    seeds = seeds_text([rows["seed"].nunique()])
    return f"{len(rows):,} records, {arms}, {seeds}, up to {budget(rows):,} steps"


def summary(rows: pd.DataFrame, command: str) -> dict[str, Any]:
    """Return the numbers of the tables as plain values; shares are of 1, not per cent."""
    main = main_comparison(rows)
    dagger = rows["arm"] == "dagger"
    final, ppo_added, equal_steps = [], [], []
    # DAgger's amount of supervision is its labels, not demonstrations.
    for part in comparisons(rows[~dagger]):
        steps, settings = budget(part), by_setting(part)
        for (kind, n), seeds in settings.items():
            where = {"comparison": comparison_of(part), **asdict(kind), "demonstrations": n}
            final.append(where | _measured(seeds))
            if kind.arm == "ppo" and n and seeds["clone_accuracy"].notna().any():
                ppo_added.append(where | _changes(seeds))
            added = added_by_demonstrations(seeds, settings.get((kind, 0)), steps) if n else None
            if added:
                equal_steps.append(where | {"steps": steps, "accuracy_added": asdict(added)})
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "records": len(rows),
        "comparisons": {comparison_of(part): _counts(part) for part in comparisons(rows)},
        "main_comparison": comparison_of(main) if len(main) else None,
        "final": final,
        "demonstrations_to_exact": list(_thresholds(main)),
        "ppo_added": ppo_added,
        "equal_steps": equal_steps,
        "longest_training_runs": [
            row for part in comparisons(rows, "ppo") for row in _longest_runs(part)
        ],
        "labels": [
            asdict(seeds["kind"].iloc[0]) | {"labels": median_labels(seeds)} | _measured(seeds)
            for seeds in (label_groups(rows) if dagger.any() else [])
        ],
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
        "exact": int(seeds["final_exact"].sum()),
        **{measure.key: asdict(final_estimate(seeds, measure)) for measure in MEASURES},
    }


def _thresholds(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    every, half = (kind_thresholds(rows, share) for share in (ALL_SEEDS, HALF_OF_SEEDS))
    for kind in every:
        yield {
            "comparison": comparison_of(rows),
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


def _longest_runs(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for n, runs in training_runs(rows):
        best = {name: max(lengths, default=None) for name, lengths in runs.items()}
        known = {name: length for name, length in best.items() if length is not None}
        if len(known) > 1:
            yield {
                "comparison": comparison_of(rows),
                "demonstrations": n,
                "best": best,
                "by_seed": runs,
                "order_reproduced_by_best": order_reproduced(known),
            }
