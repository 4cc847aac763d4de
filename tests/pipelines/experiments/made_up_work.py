"""Work for engines without training, in a module that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pipelines.experiments.records import Cell, Record
from tests.pipelines.experiments.synthetic_records import record


def answer(cell: Cell) -> Record:
    """Return a record with the process id as its labels."""
    return record(
        0.5,
        labels=os.getpid(),
        asked=cell.labels,
        seed=cell.seed,
        comparison=cell.comparison,
        settings=cell.settings,
    )


def slow_answer(cell: Cell) -> Record:
    """Leave a file with the process id, and take some seconds."""
    folder = Path(cell.settings["folder"])
    (folder / f"{cell.seed}-{os.getpid()}").touch()
    time.sleep(cell.settings["seconds"])
    return answer(cell)


def waits_for_a_file(cell: Cell) -> Record:
    """End when the file exists that the test makes after the start."""
    go, waited_until = Path(cell.settings["folder"]) / f"go-{cell.seed}", time.monotonic() + 60
    while not go.exists():
        if time.monotonic() > waited_until:
            raise TimeoutError("the start was not reported")
        time.sleep(0.02)
    return answer(cell)


def dies_first(cell: Cell) -> Record:
    """Kill the process of an odd cell several times before it returns a record."""
    marks = Path(cell.settings["folder"])
    number = len(list(marks.glob(f"{cell.seed}-*")))
    if cell.seed % 2 and number < cell.settings["deaths"]:
        (marks / f"{cell.seed}-{number}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(cell)


def fails_on_odd(cell: Cell) -> Record:
    """Raise for odd seeds."""
    if cell.seed % 2:
        raise ValueError("odd\nand even")
    return answer(cell)


def raises_timeout(cell: Cell) -> Record:
    """Raise the exception with which the engine waits."""
    raise TimeoutError("too slow")


def threads_of_torch(cell: Cell) -> Record:
    """Return the number of threads as the longest run of a record."""
    import torch  # here: most workers need none, and it takes longer than their work

    return record(run=torch.get_num_threads(), seed=cell.seed)
