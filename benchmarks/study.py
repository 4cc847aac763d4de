"""Time the engines of the study: the same cells with one worker and with two.

Two workers can halve the time at best. Imports and the loading of compiled code are not timed:
every worker runs a cell first.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from pipelines.experiments.cells import WorkFolder, run_cell
from pipelines.experiments.engines import DaskCluster, Engine, LocalProcesses
from pipelines.experiments.grid import Grid
from pipelines.experiments.records import Cell
from pipelines.job.command_line import option, run

EXAMPLE = "python -m benchmarks.study --cells 8"


@dataclass(frozen=True)
class Options:
    """Options of the benchmark."""

    cells: int = option(8, "cells to run, PPO without demonstrations each")
    steps: int = option(50_000, "steps of each cell")
    dask: bool = option(True, "also time a Dask cluster of this machine")


def cells(options: Options) -> list[Cell]:
    """Return independent cells that take the same time."""
    comparison = {
        "seeds": options.cells,
        "steps": options.steps,
        "settings": {"eval_freq": options.steps, "eval_episodes": 100},
        "blocks": [{"arm": "ppo", "demonstrations": [0], "reward": ["dense"]}],
    }
    grid = {"format": "abacus-study-grid", "version": 1, "comparisons": {"timing": comparison}}
    return list(Grid.from_dict(grid).cells)


def seconds(engine: Engine, workers: int, timed: list[Cell]) -> float:
    """Return the seconds from the end of the warm-up to the end of the last cell."""
    warm_up = [replace(timed[0], comparison=f"warm-up {number}") for number in range(workers)]
    with tempfile.TemporaryDirectory() as folder:
        done = engine.run(partial(run_cell, work=WorkFolder(Path(folder))), warm_up + timed, _quiet)
        for _ in warm_up:
            _check(next(done))
        started = time.perf_counter()
        for one in done:
            _check(one)
        return time.perf_counter() - started


def _check(done: Any) -> None:
    if done.record is None:
        raise ValueError(f"a cell failed: {done.error}")


def _quiet(cell: Cell) -> None:
    pass


@contextmanager
def dask_engine(workers: int) -> Iterator[Engine]:
    """Start a Dask cluster of processes of this machine."""
    from distributed import LocalCluster

    cluster: Any = LocalCluster
    with cluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
    ) as running:
        yield DaskCluster(running.scheduler_address)


def main(options: Options) -> int:
    """Print the times and their ratios."""
    print(machine())
    timed = cells(options)
    local = [seconds(LocalProcesses(workers), workers, timed) for workers in (1, 2)]
    show("processes", local, options)
    if options.dask:
        times = []
        for workers in (1, 2):
            with dask_engine(workers) as engine:
                times.append(seconds(engine, workers, timed))
        show("dask", times, options)
    return 0


def show(name: str, times: list[float], options: Options) -> None:
    """Print the line of an engine."""
    one, two = times
    print(
        f"{name}: {options.cells} cells of {options.steps:,} steps: one worker {one:.1f} s, two "
        f"workers {two:.1f} s, {one / two:.2f} times as fast"
    )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
