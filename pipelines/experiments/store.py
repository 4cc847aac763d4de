"""The store of the study: records on disk, one line each, safe against kills; and its status.

The file `records.jsonl` opens with a line that names its format. Every other line starts with a
checksum, by which a line that a kill cut short is recognised; it is moved to a file of its own.
One process at a time writes, under a lock; any process may read.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from oracle.files import atomic_write_text, lock
from pipelines.experiments.records import Cell, Record
from pipelines.job.command_line import relative_path

FILE = "records.jsonl"
LOCK = ".records.lock"
FORMAT, VERSION = "abacus-study-records", 2
_HEADER = json.dumps({"format": FORMAT, "version": VERSION}).encode() + b"\n"
#: Seconds to retry for the lock: `being_written` holds it briefly.
_LOCK_TIMEOUT = 0.5


@dataclass(frozen=True)
class MissingCell:
    """A cell without a record; `error` is that of its last attempt, None if there was none."""

    cell: Cell
    error: str | None


@dataclass
class Contents:
    """Contents of a store."""

    records: dict[str, Record] = field(default_factory=dict)
    #: Errors of cells that failed and have no record since.
    failures: dict[str, str] = field(default_factory=dict)
    #: Bytes up to the end of the last whole line, and those after it.
    whole: int = 0
    damaged: int = 0

    def records_of(self, cells: Sequence[Cell]) -> list[Record]:
        """Return the last record of each cell that has one, whatever its settings were.

        A changed default makes other cells of a whole grid: records that were made before it can
        still be reported.
        """
        by_place = {record.cell.place: record for record in self.records.values()}
        return [by_place[cell.place] for cell in cells if cell.place in by_place]

    def missing(self, cells: Sequence[Cell]) -> list[MissingCell]:
        """Return the cells without a record, with the errors of those that failed."""
        found = {record.cell.place for record in self.records.values()}
        return [
            MissingCell(cell, self.failures.get(cell.key))
            for cell in cells
            if cell.place not in found
        ]


def read_store(folder: Path) -> Contents:
    """Read everything up to the last whole line; raise ValueError for a file of another kind."""
    path = folder / FILE
    contents = Contents()
    if not path.is_file():
        return contents
    data = path.read_bytes()
    if len(data) < len(_HEADER) and _HEADER.startswith(data):
        # Killed while the first line was written.
        contents.damaged = len(data)
        return contents
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if number == 1:
            _check_header(line, path)
        elif _is_whole(line):
            _read_line(line, contents, path, number)
        else:
            _check_tail(data[contents.whole + len(line) :], path, number)
            break
        contents.whole += len(line)
    contents.damaged = len(data) - contents.whole
    return contents


def _check_header(line: bytes, path: Path) -> None:
    try:
        header = json.loads(line)
        known = header["format"] == FORMAT
    except (ValueError, TypeError, KeyError, RecursionError):
        known = False
    if not known:
        raise ValueError(f"{relative_path(path)} is not the store of a study: give another --store")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{relative_path(path)} is a store of version {header.get('version')}, this is "
            f"{VERSION}: give another --store"
        )


def _is_whole(line: bytes) -> bool:
    checksum, _, text = line.partition(b" ")
    return line.endswith(b"\n") and checksum == _checksum(text.rstrip(b"\n"))


def _checksum(text: bytes) -> bytes:
    return f"{zlib.crc32(text):08x}".encode()


def _read_line(line: bytes, contents: Contents, path: Path, number: int) -> None:
    try:
        values = json.loads(line.partition(b" ")[2])
        if "failed" in values:
            contents.failures[Cell(**values["failed"]).key] = values["error"]
            return
        record = Record.from_dict(values["record"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{relative_path(path)}, line {number}, is not a record of this version ({error}): "
            "give another --store"
        ) from None
    contents.records[record.cell.key] = record
    contents.failures.pop(record.cell.key, None)


def _check_tail(tail: bytes, path: Path, number: int) -> None:
    """Refuse whole lines after a damaged one: a kill damages the end alone."""
    if any(_is_whole(line) for line in tail.splitlines(keepends=True)):
        raise ValueError(
            f"{relative_path(path)} is damaged in line {number}, before whole records: remove the "
            "line, or give another --store"
        )


class Store:
    """A store that is open for writing; see `open_store`."""

    def __init__(self, file: BinaryIO, contents: Contents) -> None:
        self._file = file
        self.contents = contents

    def add(self, record: Record) -> None:
        """Append a record; it is on disk when this returns."""
        self._append({"record": record.to_dict()})
        self.contents.records[record.cell.key] = record
        self.contents.failures.pop(record.cell.key, None)

    def add_failure(self, cell: Cell, error: str) -> None:
        """Append the failure of a cell, which the next study tries again."""
        self._append({"failed": asdict(cell), "error": error})
        self.contents.failures[cell.key] = error

    def _append(self, values: dict[str, Any]) -> None:
        text = json.dumps(values, separators=(",", ":")).encode()
        _write(self._file, _checksum(text) + b" " + text + b"\n")


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def open_store(folder: Path) -> Iterator[tuple[Store, str | None]]:
    """Open the store of a folder for writing; yield it with a message on a damaged end, if any."""
    path = folder / FILE
    with ExitStack() as stack:
        try:
            stack.enter_context(lock(folder / LOCK, timeout=_LOCK_TIMEOUT))
        except TimeoutError:
            raise ValueError(
                f"another study is writing to {relative_path(path)}: wait for it, or give another "
                "--store (--status shows its progress)"
            ) from None
        contents = read_store(folder)
        message = _move_damage(path, contents) if contents.damaged else None
        file = stack.enter_context(path.open("ab"))
        if contents.whole == 0:
            _write(file, _HEADER)
        yield Store(file, contents), message


def _move_damage(path: Path, contents: Contents) -> str:
    """Move the damaged end into a file of its own, and return a message."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    with path.open("rb+") as file:
        file.seek(contents.whole)
        aside.write_bytes(file.read())
        file.truncate(contents.whole)
        os.fsync(file.fileno())
    return (
        f"{relative_path(path)} was damaged at its end: {len(contents.records)} records are whole, "
        f"the last {contents.damaged} bytes were moved to {relative_path(aside)}"
    )


def being_written(folder: Path) -> bool:
    """Return whether a study is writing to the store now."""
    if not (folder / LOCK).is_file():
        return False
    try:
        with lock(folder / LOCK, timeout=0):
            return False
    except TimeoutError:
        return True


class Running:
    """File of the cells that are being run, for `--status`. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "running.json"
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: Any) -> None:
        self._path.unlink(missing_ok=True)

    def add(self, cell: Cell) -> None:
        """Add a cell that was started."""
        with self._lock:
            self._since[cell.key] = time.time()
            atomic_write_text(self._path, json.dumps(self._since))

    def remove(self, cell: Cell) -> None:
        """Remove a cell that has ended."""
        with self._lock:
            self._since.pop(cell.key, None)
            atomic_write_text(self._path, json.dumps(self._since))

    def read(self) -> dict[str, float]:
        """Return keys of cells and their starting times."""
        try:
            since: dict[str, float] = json.loads(self._path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return since


def status_lines(
    cells: Sequence[Cell], contents: Contents, running: dict[str, float], workers: int
) -> list[str]:
    """Return a line for each comparison, one for all, then what is running and what failed."""
    states = {cell.key: _state(cell, contents, running) for cell in cells}
    by_comparison: dict[str, list[str]] = {}
    for cell in cells:
        by_comparison.setdefault(cell.comparison, []).append(states[cell.key])
    by_comparison["all"] = list(states.values())
    lines = [f"{name}: {_counts(found)}" for name, found in by_comparison.items()]
    left = [cell for cell in cells if states[cell.key] != "done"]
    if left:
        lines.append(_time_left(left, contents, running, workers))
    if contents.damaged:
        lines.append(
            f"the last {contents.damaged} bytes of the store are damaged: the next run repairs it"
        )
    for cell in left:
        if states[cell.key] == "running":
            minutes = (time.time() - running[cell.key]) / 60
            lines.append(f"running for {minutes:.1f} min: {cell.name}")
    failed = (cell for cell in left if states[cell.key] == "failed")
    lines += (f"failed: {cell.name}: {contents.failures[cell.key]}" for cell in failed)
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
    if not contents.records:
        return "time left: not known before a cell is done"
    now = time.time()
    ages = (now - running.get(cell.key, now) for cell in left)
    expected = expected_seconds(left, contents)
    seconds = sum(max(0.0, whole - age) for whole, age in zip(expected, ages, strict=True))
    return f"time left: about {seconds / workers / 60:.0f} min with {workers} workers"


def expected_seconds(cells: Sequence[Cell], contents: Contents) -> list[float]:
    """Predict the seconds of cells from those of the records.

    Take the mean of cells with the same arm and amounts; else of the arm, scaled by the steps;
    else of all.
    """
    alike = ["arm", "steps", "demonstrations", "labels"]
    rows = pd.DataFrame([{name: getattr(cell, name) for name in alike} for cell in cells])
    done = pd.DataFrame([vars(record.cell) for record in contents.records.values()])
    done["seconds"] = [record.seconds["all"] for record in contents.records.values()]
    done["per_step"] = done["seconds"] / done["steps"].clip(lower=1)
    same = rows.merge(done.groupby(alike)["seconds"].mean(), how="left", on=alike)["seconds"]
    by_arm = rows["arm"].map(done.groupby("arm")["per_step"].mean()) * rows["steps"].clip(lower=1)
    return same.fillna(by_arm).fillna(done["seconds"].mean()).tolist()
