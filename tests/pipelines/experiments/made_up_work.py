"""Work for engines that trains nothing: importable, because workers are other processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch

from pipelines.experiments.records import Cell, Record
from tests.pipelines.experiments.synthetic_records import record


def answer(cell: Cell) -> Record:
    """A record that says which process made it."""
    return record(
        0.5,
        labels=os.getpid(),
        asked=cell.labels,
        seed=cell.seed,
        comparison=cell.comparison,
        settings=cell.settings,
    )


def slow_answer(cell: Cell) -> Record:
    """Leaves a file with the number of its process, and takes a while."""
    folder = Path(cell.settings["folder"])
    (folder / f"{cell.seed}-{os.getpid()}").touch()
    time.sleep(cell.settings["seconds"])
    return answer(cell)


def waits_to_be_let_go(cell: Cell) -> Record:
    """Ends when somebody has noticed that it began."""
    go, waited_until = Path(cell.settings["folder"]) / f"go-{cell.seed}", time.monotonic() + 60
    while not go.exists():
        if time.monotonic() > waited_until:
            raise TimeoutError("nobody noticed")
        time.sleep(0.02)
    return answer(cell)


def dies_first(cell: Cell) -> Record:
    """The process of an odd cell dies so many times before it answers."""
    marks = Path(cell.settings["folder"])
    number = len(list(marks.glob(f"{cell.seed}-*")))
    if cell.seed % 2 and number < cell.settings["deaths"]:
        (marks / f"{cell.seed}-{number}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(cell)


def fails_on_odd(cell: Cell) -> Record:
    """Raises for odd seeds."""
    if cell.seed % 2:
        raise ValueError("odd\nand even")
    return answer(cell)


def raises_timeout(cell: Cell) -> Record:
    """Fails of what the engine waits with."""
    raise TimeoutError("too slow")


def threads_of_torch(cell: Cell) -> Record:
    """The number of threads, as the run of a record."""
    return record(run=torch.get_num_threads(), seed=cell.seed)
