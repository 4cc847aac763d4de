"""The store of a study: one line a record, added at the end, safe against kills.

The file `records.jsonl` opens with a line that names its format. Every other line carries a
checksum; a line that a kill cut short is recognised, put aside and said. One process at a time
writes; anyone may read.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, BinaryIO

from oracle.files import atomic_write_text
from pipelines.experiments.records import Cell, Record
from pipelines.job.command_line import shown_path

FILE = "records.jsonl"
FORMAT, VERSION = "abacus-study-records", 1
_HEADER = json.dumps({"format": FORMAT, "version": VERSION}) + "\n"


@dataclass(frozen=True)
class Failure:
    """A cell that could not be run to its end."""

    cell: Cell
    error: str


@dataclass
class Contents:
    """What a store holds."""

    records: dict[str, Record] = field(default_factory=dict)
    #: Cells that failed, and were not done since.
    failures: dict[str, Failure] = field(default_factory=dict)
    #: Bytes up to the end of the last whole line, and those after it.
    whole: int = 0
    damaged: int = 0


def read_store(folder: Path) -> Contents:
    """Everything up to the last whole line; ValueError for a file of another kind."""
    path = folder / FILE
    contents = Contents()
    if not path.is_file():
        return contents
    data = path.read_bytes()
    if len(data) < len(_HEADER) and _HEADER.encode().startswith(data):
        # Killed while the first line was written, which says nothing that we do not know.
        contents.damaged = len(data)
        return contents
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if number == 1:
            _check_header(line, path)
        elif not _whole(line):
            _check_tail(data, contents.whole + len(line), path, number)
            break
        else:
            _take(line, contents, path, number)
        contents.whole += len(line)
    contents.damaged = len(data) - contents.whole
    return contents


def _check_header(line: bytes, path: Path) -> None:
    try:
        header = json.loads(line)
        known = header["format"] == FORMAT
    except (ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise ValueError(f"{shown_path(path)} is not the store of a study: give another --store")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{shown_path(path)} is a store of version {header.get('version')}, this is {VERSION}: "
            "give another --store"
        )


def _whole(line: bytes) -> bool:
    """Whether a line is as it was written."""
    checksum, _, text = line.partition(b" ")
    return line.endswith(b"\n") and checksum == _checksum(text.rstrip(b"\n"))


def _take(line: bytes, contents: Contents, path: Path, number: int) -> None:
    """Takes over what a whole line says."""
    try:
        values = json.loads(line.partition(b" ")[2])
        if "failed" in values:
            failure = Failure(Cell(**values["failed"]), values["error"])
            contents.failures[failure.cell.key] = failure
            return
        record = Record.from_dict(values["record"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{shown_path(path)}, line {number}, is not a record of this version ({error}): give "
            "another --store"
        ) from None
    contents.records[record.cell.key] = record
    contents.failures.pop(record.cell.key, None)


def _check_tail(data: bytes, after: int, path: Path, number: int) -> None:
    """A kill damages nothing but the end; whole lines behind a damaged one mean something else."""
    for line in data[after:].splitlines(keepends=True):
        if _whole(line):
            raise ValueError(
                f"{shown_path(path)} is damaged in line {number}, before records that are whole: "
                "take the line out, or give another --store"
            )


def _checksum(text: bytes) -> bytes:
    return f"{zlib.crc32(text):08x}".encode()


class Store:
    """A store that is open for writing; see `open_store`."""

    def __init__(self, file: BinaryIO, contents: Contents) -> None:
        self._file = file
        self.contents = contents

    def add(self, record: Record) -> None:
        """Keeps a record: when this returns it is on the disk."""
        self._append({"record": record.to_dict()})
        self.contents.records[record.cell.key] = record
        self.contents.failures.pop(record.cell.key, None)

    def add_failure(self, cell: Cell, error: str) -> None:
        """Keeps that a cell failed; the next study tries it again."""
        self._append({"failed": asdict(cell), "error": error})
        self.contents.failures[cell.key] = Failure(cell, error)

    def _append(self, values: dict[str, Any]) -> None:
        text = json.dumps(values, separators=(",", ":")).encode()
        self._file.write(_checksum(text) + b" " + text + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def open_store(folder: Path) -> Iterator[tuple[Store, str | None]]:
    """The store of a folder for writing, and what had to be put aside; one writer at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    with path.open("ab") as file:
        if not _locked(file):
            raise ValueError(
                f"another study is writing to {shown_path(path)}: wait for it, or give another "
                "--store (--status shows how far it is)"
            )
        contents = read_store(folder)
        said = _put_aside(path, contents) if contents.damaged else None
        if contents.whole == 0:
            file.write(_HEADER.encode())
            file.flush()
            os.fsync(file.fileno())
        yield Store(file, contents), said


def _locked(file: BinaryIO) -> bool:
    """Whether the file is this process's now; whoever asks for the status holds it an instant."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def _put_aside(path: Path, contents: Contents) -> str:
    """Cuts the damaged end off, and keeps it beside the store."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    with path.open("rb+") as file:
        file.seek(contents.whole)
        aside.write_bytes(file.read())
        file.truncate(contents.whole)
        os.fsync(file.fileno())
    kept = len(contents.records)
    return (
        f"{shown_path(path)} was damaged at its end: {kept} records are whole, the last "
        f"{contents.damaged} bytes were put into {shown_path(aside)}"
    )


def being_written(folder: Path) -> bool:
    """Whether a study is writing to the store now."""
    path = folder / FILE
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Running:
    """The cells that are being run, in a file for whoever asks. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "running.json"
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: Any) -> None:
        self._path.unlink(missing_ok=True)

    def add(self, cell: Cell) -> None:
        """A cell was started."""
        with self._lock:
            self._since[cell.key] = time.time()
            atomic_write_text(self._path, json.dumps(self._since))

    def remove(self, cell: Cell) -> None:
        """A cell is through."""
        with self._lock:
            self._since.pop(cell.key, None)
            atomic_write_text(self._path, json.dumps(self._since))

    def read(self) -> dict[str, float]:
        """Keys of the cells and the times at which they were started."""
        try:
            since: dict[str, float] = json.loads(self._path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return since


def status_lines(
    cells: Sequence[Cell], contents: Contents, running: dict[str, float], workers: int
) -> list[str]:
    """A line for each comparison, one for all, then what runs and what failed."""
    state = {cell.key: _state(cell, contents, running) for cell in cells}
    names = list(dict.fromkeys(cell.comparison for cell in cells))
    lines = [
        f"{name}: {_counts([state[cell.key] for cell in cells if cell.comparison == name])}"
        for name in names
    ]
    lines.append(f"all: {_counts(list(state.values()))}")
    left = [cell for cell in cells if state[cell.key] != "done"]
    if left:
        lines.append(_time_left(left, contents, running, workers))
    if contents.damaged:
        lines.append(
            f"the last {contents.damaged} bytes of the store are damaged: the next run mends it"
        )
    lines += [
        f"running for {(time.time() - running[cell.key]) / 60:.1f} min: {cell.name}"
        for cell in left
        if state[cell.key] == "running"
    ]
    lines += [
        f"failed: {cell.name}: {contents.failures[cell.key].error}"
        for cell in left
        if state[cell.key] == "failed"
    ]
    return lines


def _state(cell: Cell, contents: Contents, running: dict[str, float]) -> str:
    if cell.key in contents.records:
        return "done"
    if cell.key in running:
        return "running"
    return "failed" if cell.key in contents.failures else "left"


def _counts(states: list[str]) -> str:
    counts = Counter(states)
    return ", ".join(f"{counts[name]} {name}" for name in ("done", "running", "failed", "left"))


def _time_left(
    left: Sequence[Cell], contents: Contents, running: dict[str, float], workers: int
) -> str:
    expected = expected_seconds(contents)
    if expected is None:
        return "time left: not known before a cell is done"
    seconds = sum(
        max(0.0, expected(cell) - (time.time() - running.get(cell.key, time.time())))
        for cell in left
    )
    return f"time left: about {seconds / workers / 60:.0f} min with {workers} workers"


def expected_seconds(contents: Contents) -> Callable[[Cell], float] | None:
    """What a cell will take: the mean of those most like it, scaled by steps where none is."""
    exact: dict[Any, list[float]] = defaultdict(list)
    by_arm: dict[Any, list[float]] = defaultdict(list)
    everything: list[float] = []
    for record in contents.records.values():
        cell, seconds = record.cell, record.seconds["all"]
        exact[_kind(cell)].append(seconds)
        by_arm[cell.arm].append(seconds / max(cell.steps, 1))
        everything.append(seconds)
    if not everything:
        return None

    def expected(cell: Cell) -> float:
        if _kind(cell) in exact:
            return mean(exact[_kind(cell)])
        if cell.arm in by_arm:
            return mean(by_arm[cell.arm]) * max(cell.steps, 1)
        return mean(everything)

    return expected


def _kind(cell: Cell) -> tuple[Any, ...]:
    return (cell.arm, cell.steps, cell.demonstrations, cell.labels)
