"""Learning curves, as in the paper's Figs. 2 and 3, from the logs of any number of runs.

A log is the CSV that training writes: its steps, and the fraction of operations solved.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from pipelines.command_line import shown_path

LOG_FILE = "progress.csv"
STEP_KEYS = ("time/total_timesteps", "total_timesteps", "step")
ACCURACY_KEYS = ("rollout/accuracy", "eval/accuracy", "accuracy")
#: What is told of a curve: the steps to these accuracies.
MILESTONES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Curve:
    """Accuracy over the steps of one run."""

    name: str
    steps: tuple[int, ...]
    accuracies: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.accuracies) or not self.steps:
            raise ValueError(
                f"{self.name}: {len(self.steps)} steps and {len(self.accuracies)} accuracies: give "
                "as many of both, and at least one"
            )

    def steps_to(self, accuracy: float) -> int | None:
        """The steps after which it was first reached."""
        for step, reached in zip(self.steps, self.accuracies, strict=True):
            if reached >= accuracy:
                return step
        return None


def read_curve(path: Path) -> Curve:
    """The curve of a run's folder, or of a CSV file."""
    file = _log_of(path)
    name = (file.parent if file.name == LOG_FILE else file).stem
    with file.open(newline="") as lines:
        reader = csv.DictReader(lines)
        keys = reader.fieldnames or []
        step_key = _present(STEP_KEYS, keys, file)
        accuracy_key = _present(ACCURACY_KEYS, keys, file)
        # Rows of other phases, such as cloning, have no accuracy of rollouts.
        rows = [row for row in reader if row[step_key] and row[accuracy_key]]
    if not rows:
        raise ValueError(f"{shown_path(file)} holds no line with {accuracy_key}")
    try:
        steps = tuple(int(float(row[step_key])) for row in rows)
        accuracies = tuple(float(row[accuracy_key]) for row in rows)
    except ValueError as error:
        raise ValueError(f"{shown_path(file)} is damaged: {error}") from error
    return Curve(name, steps, accuracies)


def _log_of(path: Path) -> Path:
    if path.is_file():
        return path
    logs = sorted(path.rglob(LOG_FILE)) if path.is_dir() else []
    if not logs:
        raise ValueError(
            f"{shown_path(path)} holds no log: give the folder of a run with a {LOG_FILE}, or a CSV"
        )
    return logs[0]


def _present(wanted: tuple[str, ...], keys: object, file: Path) -> str:
    assert isinstance(keys, list | tuple)
    for key in wanted:
        if key in keys:
            return key
    raise ValueError(f"{shown_path(file)} has no column {' or '.join(wanted)}")
