"""The folder of a run: settings, checkpoint, logs, policies and reports.

command.txt       the command line
config.json       the settings, with their digest
checkpoint.pt     the state to resume from: tensors and plain values, loaded without running code
cloning.csv       a row per 500 updates of cloning
progress.csv      a row per update of PPO
evaluations.csv   a row per evaluation of the greedy policy
tensorboard/      the same logs for TensorBoard
clone/ best/ last/ tuned/ mended/ taught/   policies: policy.safetensors and policy.json
teaching_set.h5   the demonstrations that were asked for in teaching
own_operations.h5 operations that the best policy solves by itself, after mending
model.zip         the last policy for Stable-Baselines3
certificate.json, own_runs.json, report.md, summary.json

A run resumes from its settings and its checkpoint, and both are compared with their digests.
Logs and policies are derived: the checkpoint holds them as well, and a resumed run writes them
again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import pickle
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.logger import KVWriter, Logger
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from oracle.files import atomic_write, atomic_write_text, lock
from pipelines.job.command_line import relative_path
from pipelines.learning.policy_files import (
    CERTIFICATE_FILE,
    DESCRIPTION_FILE,
    OWN_RUNS_FILE,
    SAVED_POLICIES,
    WEIGHTS_FILE,
)
from pipelines.learning.settings import Settings, parse_json

CONFIG, COMMAND, CHECKPOINT, LOCK = "config.json", "command.txt", "checkpoint.pt", ".lock"
#: Key of the digest in config.json.
DIGEST = "sha256"
#: First words of a checkpoint; its digest and a line feed follow, then what `torch.save` writes.
MAGIC = b"virtual-abacus-checkpoint 1 "
_HEADER_BYTES = len(MAGIC) + 65
#: Flags that may change on resume, because they do not change the result.
FREE_FLAGS = ("threads",)
#: The column of logs with the step or the epoch.
STEP = "time/total_timesteps"
LOGS = ("cloning", "progress", "evaluations")
MODEL, REPORT, SUMMARY = "model.zip", "report.md", "summary.json"
TEACHING_SET, OWN_OPERATIONS = "teaching_set.h5", "own_operations.h5"
#: Files that are written atomically.
WRITTEN = (
    *(COMMAND, CONFIG, CHECKPOINT, MODEL, CERTIFICATE_FILE, OWN_RUNS_FILE, REPORT, SUMMARY),
    OWN_OPERATIONS,
    *(f"{name}.csv" for name in LOGS),
    *(f"{policy}/{name}" for policy in SAVED_POLICIES for name in (WEIGHTS_FILE, DESCRIPTION_FILE)),
)
#: What reading values of a checkpoint raises where they are not those of a run.
_NOT_A_STATE = (
    *(AttributeError, EOFError, IndexError, KeyError, OverflowError, RuntimeError),
    *(TypeError, ValueError, pickle.UnpicklingError),
)

Row = dict[str, str]


class RunFolder:
    """The folder of one run, with its settings, checkpoint and logs."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        #: Rows of the logs; the checkpoint holds those that were written before it.
        self.rows: dict[str, list[Row]] = {name: [] for name in LOGS}
        self._loggers: dict[str, Logger] = {}

    @classmethod
    def create(cls, path: Path, settings: Settings, command: Sequence[str]) -> RunFolder:
        """Create the folder of a new run; raise ValueError if `check_new` does."""
        check_new(path)
        remove_temporary(path)
        path.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path / COMMAND, shlex.join(command) + "\n")
        values = json.loads(settings.to_json())
        with_digest = {**values, DIGEST: _digest(values)}
        atomic_write_text(path / CONFIG, json.dumps(with_digest, indent=2) + "\n")
        return cls(path, settings)

    @classmethod
    def open(cls, path: Path, given: Mapping[str, Any]) -> RunFolder:
        """Open the folder of a run to resume; the flags given must be those of its settings."""
        check_run(path)
        try:
            settings = _read_settings((path / CONFIG).read_text())
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
        remove_temporary(path)
        free = {name: value for name, value in given.items() if name in FREE_FLAGS}
        return cls(path, settings.with_flags(free))

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint atomically; it holds the rows of the logs too."""
        content = io.BytesIO()
        # As text: torch takes longer to write many small values than to write the weights.
        torch.save({**state, "logs": json.dumps(self.rows)}, content)
        payload = content.getvalue()
        atomic_write(self.path / CHECKPOINT, lambda file: file.write(_header(payload) + payload))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the last checkpoint, or None before the first one; code in it is not run.

        Raise ValueError if it is damaged.
        """
        path = self.path / CHECKPOINT
        if not path.is_file():
            return None
        content = path.read_bytes()
        payload = content[_HEADER_BYTES:]
        if content[:_HEADER_BYTES] != _header(payload):
            raise self._damaged("its content does not have its digest")
        with self.reading_checkpoint():
            state: dict[str, Any] = torch.load(
                io.BytesIO(payload), weights_only=True, map_location="cpu"
            )
            self.rows = _read_rows(state.pop("logs"))
        return state

    @contextmanager
    def reading_checkpoint(self) -> Iterator[None]:
        """Turn whatever the values of a forged checkpoint cause into a ValueError of one line."""
        try:
            yield
        except _NOT_A_STATE as error:
            reason = " ".join(str(error).split())[:100]
            raise self._damaged(f"{type(error).__name__}: {reason}") from error

    def _damaged(self, reason: str) -> ValueError:
        return ValueError(
            f"{relative_path(self.path / CHECKPOINT)} is damaged: {reason}; remove it to start the "
            "run from its beginning"
        )

    def write_logs(self) -> None:
        """Write the logs with the rows of the checkpoint alone."""
        for name, rows in self.rows.items():
            if rows:
                CsvLog(self.path / f"{name}.csv", rows)

    def logger(self, name: str) -> Logger:
        """Return the logger to CSV and TensorBoard that appends to the rows of the checkpoint."""
        if name in self._loggers:
            return self._loggers[name]
        rows = self.rows[name]
        outputs: list[KVWriter] = [
            TensorBoardLog(self.path / "tensorboard" / name, int(rows[-1][STEP]) if rows else None),
            CsvLog(self.path / f"{name}.csv", rows),
        ]
        self._loggers[name] = Logger(folder=str(self.path), output_formats=outputs)
        return self._loggers[name]


@contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a run folder; raise ValueError if another process has it."""
    with ExitStack() as held:
        try:
            held.enter_context(lock(path / LOCK, timeout=0))
        except TimeoutError:
            raise ValueError(f"{relative_path(path)} is in use: another process runs it") from None
        yield


def check_new(path: Path) -> None:
    """Raise ValueError for a path that holds anything.

    What is left of a run that was killed before it wrote its settings does not count.
    """
    if (path / CONFIG).is_file():
        raise ValueError(
            f"{relative_path(path)} holds a run: give --resume {relative_path(path)}, or another "
            "--run-folder"
        )
    temporary = {*path.glob(f".{COMMAND}.????????"), *path.glob(f".{CONFIG}.????????")}
    known = {path / COMMAND, path / LOCK} | temporary
    if path.exists() and (not path.is_dir() or set(path.iterdir()) - known):
        raise ValueError(f"{relative_path(path)} holds other files: give another --run-folder")


def check_run(path: Path) -> None:
    """Raise ValueError for a folder without a run."""
    if not (path / CONFIG).is_file():
        raise ValueError(f"{relative_path(path)} holds no run: {CONFIG} is missing")


def _header(payload: bytes) -> bytes:
    return MAGIC + hashlib.sha256(payload).hexdigest().encode() + b"\n"


def _read_rows(text: str) -> dict[str, list[Row]]:
    values = parse_json(text)
    return {name: [{**row, STEP: str(int(row[STEP]))} for row in values[name]] for name in LOGS}


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _read_settings(text: str) -> Settings:
    values = parse_json(text)
    digest = values.pop(DIGEST, None) if isinstance(values, dict) else None
    settings = Settings.from_values(values)
    if digest != _digest(values):
        raise ValueError("the settings do not have their digest: the file was changed")
    return settings


def remove_temporary(folder: Path) -> None:
    """Remove what atomic writes leave behind when they are killed."""
    for path in map(folder.joinpath, WRITTEN):
        for temporary in path.parent.glob(f".{path.name}.????????"):
            shutil.rmtree(temporary, ignore_errors=True)


class CsvLog(KVWriter):
    """CSV log with a row per dump; the file is rewritten when a column is added."""

    def __init__(self, path: Path, rows: list[Row]) -> None:
        """Write the given rows; new ones are appended to them and to the file."""
        self.path = path
        self.rows = rows
        self.columns = [STEP]
        for row in rows:
            self.columns += [key for key in row if key not in self.columns]
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


class TensorBoardLog(KVWriter):
    """Event file for TensorBoard, written at once: the library's writer does so in a thread.

    An error of a thread, such as a full disk, would be printed as a traceback.
    """

    def __init__(self, folder: Path, after: int | None) -> None:
        """Start a file; TensorBoard then ignores what earlier files hold after step `after`."""
        self.path = folder / f"events.out.tfevents.{time.time_ns()}"
        folder.mkdir(parents=True, exist_ok=True)
        self._append(Event(wall_time=time.time(), file_version="brain.Event:2"))
        start = SessionLog(status=SessionLog.START)
        self._append(
            Event(wall_time=time.time(), step=0 if after is None else after + 1, session_log=start)
        )

    def write(
        self,
        key_values: dict[str, Any],
        key_excluded: dict[str, tuple[str, ...]],
        step: int = 0,
    ) -> None:
        """Append the numbers of a row."""
        values = [
            Summary.Value(tag=key, simple_value=float(value))
            for key, value in sorted(key_values.items())
            if "tensorboard" not in (key_excluded.get(key) or ())
        ]
        self._append(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _append(self, event: Any) -> None:
        with self.path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())

    def close(self) -> None:
        """Do nothing: no file is kept open."""
