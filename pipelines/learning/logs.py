"""Logs that survive: lines behind a checkpoint are dropped when a run goes on from it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat

from pipelines.learning.files import write_text

STEP = "time/total_timesteps"


class CsvLog(KVWriter):
    """A CSV file with a line for each dump; a new column rewrites it."""

    def __init__(self, path: Path, after: int | None = None) -> None:
        """`after` is the step behind which lines that are there are dropped; None: all."""
        self.path = path
        self.rows: list[dict[str, str]] = []
        if after is not None and path.is_file():
            with path.open(newline="") as file:
                self.rows = [row for row in csv.DictReader(file) if int(row[STEP]) <= after]
        self.columns: list[str] = list(self.rows[0]) if self.rows else [STEP]
        self._rewrite()

    def write(
        self,
        key_values: dict[str, Any],
        key_excluded: dict[str, tuple[str, ...]],
        step: int = 0,
    ) -> None:
        """Adds a line."""
        row = {key: str(value) for key, value in sorted(key_values.items())}
        row[STEP] = str(step)
        self.rows.append(row)
        new = [key for key in row if key not in self.columns]
        if new:
            self.columns += new
            self._rewrite()
        else:
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, self.columns).writerow(row)

    def _rewrite(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns)
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue())

    def close(self) -> None:
        """Nothing is kept open."""


def file_logger(folder: Path, name: str, after: int | None = None) -> Logger:
    """A logger into TensorBoard and a CSV file; see CsvLog for `after`."""
    outputs: list[KVWriter] = [
        TensorBoardOutputFormat(str(folder / "tensorboard" / name)),
        CsvLog(folder / f"{name}.csv", after),
    ]
    return Logger(folder=str(folder), output_formats=outputs)


def seconds_at(folder: Path, step: int, clock: str) -> float | None:
    """The time that a run had taken when it was evaluated at a step, from its evaluations' log."""
    file = folder / "evaluations.csv"
    if not file.is_file():
        return None
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if int(row[STEP]) == step and row.get(clock):
                return float(row[clock])
    return None
