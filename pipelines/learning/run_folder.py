"""The folder of a run: settings, checkpoint, logs, policies and reports.

command.txt       the command line
config.json       the settings
checkpoint.pt     the state to resume from: tensors and plain values, loaded without running code
cloning.csv       a row per epoch of cloning
progress.csv      a row per update of PPO
evaluations.csv   a row per evaluation of the greedy policy
tensorboard/      the same logs for TensorBoard
clone/ best/ last/    policies: policy.safetensors and policy.json
model.zip         the last policy for Stable-Baselines3
certificate.json, report.md, summary.json
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat

from oracle.files import atomic_write, atomic_write_text
from pipelines.job.command_line import relative_path
from pipelines.learning.settings import Settings

CONFIG, COMMAND, CHECKPOINT = "config.json", "command.txt", "checkpoint.pt"
#: Flags that may change on resume, because they do not change the result.
FREE_FLAGS = ("threads",)
#: The column of logs with the step or the epoch.
STEP = "time/total_timesteps"


class RunFolder:
    """The folder of one run, with its settings and its checkpoint."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    @classmethod
    def create(cls, path: Path, settings: Settings, command: Sequence[str]) -> RunFolder:
        """Create the folder of a new run; raise ValueError if it holds any files."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            what = "a run" if (path / CONFIG).is_file() else "other files"
            hint = f"--resume {relative_path(path)}, or " if what == "a run" else ""
            raise ValueError(f"{relative_path(path)} holds {what}: give {hint}another --run-folder")
        path.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path / COMMAND, shlex.join(command) + "\n")
        atomic_write_text(path / CONFIG, settings.to_json())
        return cls(path, settings)

    @classmethod
    def open(cls, path: Path, given: Mapping[str, Any]) -> RunFolder:
        """Open the folder of a run to resume; the flags given must be those of its settings."""
        if not (path / CONFIG).is_file():
            raise ValueError(f"{relative_path(path)} holds no run: {CONFIG} is missing")
        try:
            settings = Settings.from_json((path / CONFIG).read_text())
        except ValueError as error:
            raise ValueError(f"{relative_path(path / CONFIG)}: {error}") from None
        wanted, saved = settings.with_flags(given).flags(), settings.flags()
        changed = [
            f"--{name.replace('_', '-')} {wanted[name]} (was {saved[name]})"
            for name in given
            if name not in FREE_FLAGS and wanted[name] != saved[name]
        ]
        if changed:
            raise ValueError(
                f"a resumed run keeps its settings; changed: {', '.join(changed)}. Leave them out, "
                "or start another run"
            )
        free = {name: value for name, value in given.items() if name in FREE_FLAGS}
        return cls(path, settings.with_flags(free))

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint atomically."""
        atomic_write(self.path / CHECKPOINT, lambda file: torch.save(state, file))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the last checkpoint, or None before the first one; code in it is not run."""
        path = self.path / CHECKPOINT
        if not path.is_file():
            return None
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        return state

    def logger(self, name: str, after: int | None = None) -> Logger:
        """Return a logger to CSV and TensorBoard; see `CsvLog` for `after`."""
        outputs: list[KVWriter] = [
            TensorBoardOutputFormat(str(self.path / "tensorboard" / name)),
            CsvLog(self.path / f"{name}.csv", after),
        ]
        return Logger(folder=str(self.path), output_formats=outputs)


class CsvLog(KVWriter):
    """CSV log with a row per dump; the file is rewritten when a column is added."""

    def __init__(self, path: Path, after: int | None = None) -> None:
        """Open a log.

        Args:
            path: the file.
            after: on resume, the step of the checkpoint: later rows of the file are discarded.
                None discards all.
        """
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
        """Append a row."""
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
        """Do nothing: no file is kept open."""
