"""Measure the enumeration of a complete set, its cache, and the search for witnesses.

Each stage runs in a process of its own: the enumeration into an empty cache, loading the set from
the cache, and a number of witnesses with the cached paths. Peak memory is that of the process.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oracle.exact.complete_set import (
    cache_path,
    complete_set,
    enumerate_observations,
    is_known,
)
from oracle.exact.witness import WitnessFinder
from pipelines.job.command_line import option, run


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    base: int = option(10, "base of the abacus")
    frames: int = option(3, "frames of an observation")
    witnesses: int = option(40, "number of witnesses to find")


def _measure(title: str, work: Callable[[], object]) -> None:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{title:<28}{cpu:>10.2f}{wall:>10.2f}{peak:>10,.0f}", flush=True)


def _enumerate(options: Options, folder: Path) -> None:
    enumerate_observations(2, 1)  # Compile first.
    _measure("enumerate", lambda: complete_set(options.base, options.frames, cache_folder=folder))


def _load(options: Options, folder: Path) -> None:
    _measure("load", lambda: complete_set(options.base, options.frames, cache_folder=folder))


def _find_witnesses(options: Options, folder: Path) -> None:
    small = WitnessFinder(complete_set(2, 1, cache_folder=folder), cache_folder=folder)
    small.find(0)  # Compile first.
    known = complete_set(options.base, options.frames, cache_folder=folder)
    finder = WitnessFinder(known, cache_folder=folder)
    _measure("paths and nearest", lambda: finder.nearest_first(np.arange(len(known))))
    count = min(options.witnesses, len(known))
    rows = np.random.default_rng(0).choice(len(known), count, replace=False).tolist()
    _measure(f"{count} witnesses", lambda: [finder.find(row) for row in rows])


def main(options: Options) -> int:
    """Print seconds of CPU and wall clock and the peak memory of each stage."""
    if not is_known(options.base, options.frames, "before"):
        raise ValueError(
            f"base={options.base} with frames={options.frames} is not cached: choose a base from 2 "
            "to 10 with 1 to 3 frames, or base 5 with 4"
        )
    print(f"base {options.base}, {options.frames} frames, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<28}{'CPU s':>10}{'wall s':>10}{'peak MB':>10}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stage in (_enumerate, _load, _find_witnesses):
            process = multiprocessing.get_context("spawn").Process(
                target=stage, args=(options, folder)
            )
            process.start()
            process.join()
            if process.exitcode != 0:
                return 1
        known = complete_set(options.base, options.frames, cache_folder=folder)
        size = cache_path(options.base, options.frames, "before", folder).stat().st_size
    print(f"{len(known):,} observations, digest {known.digest[:32]}, file of {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, "python -m benchmarks.enumeration --base 10 --frames 3"))
