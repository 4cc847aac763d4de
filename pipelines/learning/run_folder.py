"""The folder of a run: what was asked for, how far it is, what came of it.

command.txt       the exact command line
config.json       the settings
checkpoint.pt     where to go on from; tensors and plain values, nothing that runs
cloning.csv       a line for each epoch
progress.csv      a line for each update
evaluations.csv   a line for each evaluation of the greedy policy
tensorboard/      the same for TensorBoard
clone/ best/ last/    policies: policy.safetensors and policy.json
model.zip         the last one for Stable-Baselines3
certificate.json, report.md, summary.json
"""

from __future__ import annotations

import csv
import io
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat

from oracle.files import atomic_write, atomic_write_text
from pipelines.job.command_line import shown_path
from pipelines.learning.settings import Settings

CONFIG, COMMAND, CHECKPOINT = "config.json", "command.txt", "checkpoint.pt"
#: Settings that may differ when a run goes on: none of them changes what comes out.
FREE_TO_CHANGE = ("threads",)


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    @classmethod
    def create(cls, path: Path, settings: Settings, command: Sequence[str]) -> RunFolder:
        """A new run; refuses a folder that holds one, or anything else."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            what = "a run" if (path / CONFIG).is_file() else "other files"
            hint = f"--resume {shown_path(path)}, or " if what == "a run" else ""
            raise ValueError(f"{shown_path(path)} holds {what}: give {hint}another --run-folder")
        path.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path / COMMAND, shlex.join(command) + "\n")
        atomic_write_text(path / CONFIG, settings.to_json())
        return cls(path, settings)

    @classmethod
    def open(cls, path: Path, given: Settings, named: Sequence[str]) -> RunFolder:
        """A run to go on with; `named` are the settings that the command line names."""
        if not (path / CONFIG).is_file():
            raise ValueError(f"{shown_path(path)} holds no run: {CONFIG} is missing")
        saved = Settings.from_json((path / CONFIG).read_text())
        changed = [
            f"--{name.replace('_', '-')} {getattr(given, name)} (was {getattr(saved, name)})"
            for name in named
            if name not in FREE_TO_CHANGE and getattr(given, name) != getattr(saved, name)
        ]
        if changed:
            raise ValueError(
                f"a run goes on with its own settings; changed: {', '.join(changed)}. Leave them "
                "out, or start another run"
            )
        return cls(path, saved)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replaces the checkpoint, at once or not at all."""
        atomic_write(self.path / CHECKPOINT, lambda file: torch.save(state, file))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last checkpoint; None if there is none yet. Runs no code of the file."""
        path = self.path / CHECKPOINT
        if not path.is_file():
            return None
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        return state


def next_folder(log_folder: Path, name: str) -> Path:
    """The first free folder of this name and a number."""
    number = 1
    while (log_folder / f"{name}-{number}").exists():
        number += 1
    return log_folder / f"{name}-{number}"


def named_on_command_line(argv: Sequence[str] | None = None) -> list[str]:
    """The settings that the command line names."""
    given = {word.split("=")[0] for word in (sys.argv[1:] if argv is None else argv)}
    return [
        field.name
        for field in fields(Settings)
        if {f"--{field.name.replace('_', '-')}", f"--no-{field.name.replace('_', '-')}"} & given
    ]


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
        atomic_write_text(self.path, text.getvalue())

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
