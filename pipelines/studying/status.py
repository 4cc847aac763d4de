"""How far a study is: what is done, running, failed and left, and how long that will take."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from pipelines.learning.files import write_text
from pipelines.studying.records import Cell
from pipelines.studying.store import Contents


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
            write_text(self._path, json.dumps(self._since))

    def remove(self, cell: Cell) -> None:
        """A cell is through."""
        with self._lock:
            self._since.pop(cell.key, None)
            write_text(self._path, json.dumps(self._since))

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
