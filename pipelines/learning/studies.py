"""Studies: many runs as data, each in a folder of its own, skipped when it is done.

A study that was killed is started again by the same command: finished runs are read, the one that
was broken off goes on from its checkpoint.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.learning.logs import STEP
from pipelines.learning.report import certify_best, write_report
from pipelines.learning.runs import CONFIG, RunFolder
from pipelines.learning.settings import Settings
from pipelines.learning.training import Training

SUMMARY = "summary.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    name: str
    settings: Settings


def run_cell(cell: Cell, folder: Path, command: list[str], say: Say) -> dict[str, Any]:
    """The summary of a run, which is done first, or to its end, if it is not."""
    path = folder / cell.name
    settings = cell.settings.settled()
    if (path / CONFIG).is_file():
        saved = Settings.from_json((path / CONFIG).read_text())
        if saved != settings:
            raise ValueError(f"{path} holds a run with other settings: give another folder")
        run = RunFolder(path, saved)
    else:
        run = RunFolder.create(path, settings, command)
    if not (path / SUMMARY).is_file():
        say(f"run {cell.name}")
        outcome = Training(run, lambda line: say(f"  {line}")).run()
        write_report(path, settings, outcome, certify_best(path, settings, outcome))
    summary: dict[str, Any] = json.loads((path / SUMMARY).read_text())
    return summary


def finished(cells: Iterable[Cell], folder: Path) -> list[tuple[Cell, dict[str, Any]]]:
    """The cells whose runs are done, with their summaries."""
    return [
        (cell, json.loads((folder / cell.name / SUMMARY).read_text()))
        for cell in cells
        if (folder / cell.name / SUMMARY).is_file()
    ]


def evaluations(path: Path) -> list[dict[str, float]]:
    """The evaluations of a run, also of one that is under way."""
    file = path / "evaluations.csv"
    if not file.is_file():
        return []
    with file.open(newline="") as lines:
        return [
            {key: float(value) for key, value in row.items() if value}
            for row in csv.DictReader(lines)
        ]


def seconds_at(path: Path, step: float, clock: str) -> float | None:
    """The time that a run had taken when it reached a step."""
    file = path / "progress.csv"
    if not file.is_file():
        return None
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if float(row[STEP]) >= step and row.get(clock):
                return float(row[clock])
    return None


def markdown(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table."""
    names = list(headers)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
