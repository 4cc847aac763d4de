"""The report of a study: its tables as one page, its numbers as JSON, its figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oracle.files import atomic_write_text
from pipelines.experiments.drawing import SCREEN, Picture
from pipelines.experiments.figures import draw_figures
from pipelines.experiments.records import (
    ARMS,
    Grid,
    Kind,
    Record,
    budget,
    checked,
    comparisons,
    grids_of,
    kind_of,
    main_grid,
    seeds_said,
)
from pipelines.experiments.statistics import BEYOND, NOT_WITHIN, Threshold
from pipelines.experiments.tables import (
    ALL_SEEDS,
    HALF_OF_SEEDS,
    MEASURES,
    PAPER_ROWS,
    added_by_demonstrations,
    changes,
    final_estimate,
    kind_threshold,
    label_groups,
    median_labels,
    order_reproduced,
    tables_of,
    training_runs,
)

FORMAT, VERSION = "virtual-abacus-study-report", 1
TABLES_FILE, SUMMARY_FILE = "tables.md", "summary.json"


def write_report(records: Sequence[Record], folder: Path, command: str) -> list[Path]:
    """Writes tables, figures and numbers into a folder; returns the paths.

    The records may be those of a study that is under way. The same records make the same files,
    in whatever order they came.
    """
    records = checked(records)
    pictures = draw_figures(records, folder)
    atomic_write_text(folder / TABLES_FILE, markdown(records, pictures, command))
    numbers = json.dumps(summary(records, command), indent=1, allow_nan=False)
    atomic_write_text(folder / SUMMARY_FILE, numbers + "\n")
    drawn = [path for picture in pictures for path in picture.files]
    return [folder / TABLES_FILE, folder / SUMMARY_FILE, *drawn]


def markdown(records: Sequence[Record], pictures: Sequence[Picture], command: str) -> str:
    """The page: what there is, the figures, the tables."""
    lines = [
        "# The study: tables",
        "",
        f"Written by `{command}` from {len(records):,} records.",
        "",
        *(f"- `{name}`: {_said(part)}" for name, part in comparisons(records).items()),
        "",
        "A `-` is a cell that was not run. An interquartile mean leaves out the lowest and the "
        "highest quarter of seeds, with parts of seeds where a quarter is not whole; of five seeds "
        "it does not see one that fails. Intervals are percentiles of a bootstrap over seeds. They "
        "have no width where all seeds are alike, which is not certainty, and with five seeds they "
        "are narrower than 95 % ones should be.",
        "",
    ]
    for picture in pictures:
        lines += [f"![{picture.alt}]({picture.key}{SCREEN})", ""]
    lines += [table.markdown() for table in tables_of(records)]
    return "\n".join(lines)


def _said(records: Sequence[Record]) -> str:
    arms = ", ".join(sorted({record.cell.arm for record in records}, key=ARMS.index))
    seeds = seeds_said([len({record.cell.seed for record in records})])
    return f"{len(records):,} records, {arms}, {seeds}, up to {budget(records):,} steps"


def summary(records: Sequence[Record], command: str) -> dict[str, Any]:
    """The numbers of the tables, in plain values; shares are of 1, not per cent."""
    grid = main_grid(records)
    tuned = grids_of(records, "ppo")
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "records": len(records),
        "comparisons": {name: _counts(part) for name, part in comparisons(records).items()},
        "main_comparison": grid.comparison if grid else None,
        "final": [row for one in grids_of(records, *ARMS) for row in _final(one)],
        "demonstrations_to_exact": _thresholds(grid) if grid else [],
        "ppo_added": [row for one in tuned for row in _ppo_added(one)],
        "equal_steps": [row for one in tuned for row in _equal_steps(one)],
        "longest_training_runs": [row for one in tuned for row in _longest_runs(one)],
        "labels": _labels(records),
    }


def _counts(records: Sequence[Record]) -> dict[str, Any]:
    return {
        "records": len(records),
        "seeds": sorted({record.cell.seed for record in records}),
        "steps": budget(records),
        "demonstrations": sorted({record.cell.demonstrations for record in records}),
    }


def _where(grid: Grid, kind: Kind, demonstrations: int) -> dict[str, Any]:
    return {"comparison": grid.comparison, **asdict(kind), "demonstrations": demonstrations}


def _measured(seeds: Sequence[Record]) -> dict[str, Any]:
    estimates = ((measure.key, final_estimate(seeds, measure)) for measure in MEASURES)
    return {
        "seeds": len(seeds),
        "exact": sum(record.final.exact for record in seeds),
        **{key: asdict(found) for key, found in estimates if found},
    }


def _final(grid: Grid) -> list[dict[str, Any]]:
    """Of every setting but DAgger's, whose amount of supervision is its labels."""
    return [
        {**_where(grid, kind, n), **_measured(seeds)}
        for (kind, n), seeds in grid.parts.items()
        if kind.arm != "dagger"
    ]


def _labels(records: Sequence[Record]) -> list[dict[str, Any]]:
    if not any(record.cell.arm == "dagger" for record in records):
        return []
    return [
        {**asdict(kind_of(seeds[0])), "labels": median_labels(seeds), **_measured(seeds)}
        for seeds in label_groups(records)
    ]


def _thresholds(grid: Grid) -> list[dict[str, Any]]:
    return [
        {
            "comparison": grid.comparison,
            **asdict(kind),
            "all_seeds": _threshold(kind_threshold(grid, kind, ALL_SEEDS)),
            "half_of_seeds": _threshold(kind_threshold(grid, kind, HALF_OF_SEEDS)),
        }
        for kind in grid.kinds
    ]


def _threshold(found: Threshold | None) -> dict[str, Any] | None:
    """JSON has no infinity: what lies beyond the grid is said in words."""
    if found is None:
        return None
    return {name: _within(value) for name, value in asdict(found).items()}


def _within(value: float | None) -> int | str | None:
    if value is None:
        return None
    return NOT_WITHIN if value == BEYOND else int(value)


def _ppo_added(grid: Grid) -> list[dict[str, Any]]:
    accuracy, _, wrong = MEASURES
    rows = []
    for (kind, n), seeds in grid.parts.items():
        if n and any(record.clone for record in seeds):
            moved = {
                f"{after}_{measure.key}": asdict(changes(seeds, after, measure))
                for after in ("final", "last")
                for measure in (accuracy, wrong)
            }
            rows.append({**_where(grid, kind, n), **moved})
    return rows


def _equal_steps(grid: Grid) -> list[dict[str, Any]]:
    """With demonstrations less without, when the budget is spent."""
    steps = budget(grid.records)
    rows = []
    for kind, n in grid.parts:
        found = added_by_demonstrations(grid, kind, n, steps) if n else None
        if found:
            added = {"steps": steps, "accuracy_added": asdict(found)}
            rows.append({**_where(grid, kind, n), **added})
    return rows


def _longest_runs(grid: Grid) -> list[dict[str, Any]]:
    rows = []
    for n in grid.demonstrations:
        runs = [training_runs(grid, row, n) for row in PAPER_ROWS]
        if sum(map(bool, runs)) > 1:
            best = [max(lengths, default=None) for lengths in runs]
            names = [row.name for row in PAPER_ROWS]
            rows.append(
                {
                    "comparison": grid.comparison,
                    "demonstrations": n,
                    "best": dict(zip(names, best, strict=True)),
                    "by_seed": dict(zip(names, runs, strict=True)),
                    "order_reproduced_by_best": order_reproduced(best),
                }
            )
    return rows
