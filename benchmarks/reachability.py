"""Check the whole default set, of which the tests check parts (docs/exactness.md).

The explored situations are closed under stretching at the width of the proof, wider abaci add no
observation, and every observation has a witness that runs in the environment.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from dataclasses import dataclass
from functools import cache

import numpy as np
from tqdm import tqdm

from oracle.exact.closure import equivalents, missing_equivalents
from oracle.exact.complete_set import collect, complete_set
from oracle.exact.exploration import explore
from oracle.exact.witness import WitnessFinder
from pipelines.job.command_line import option, run

#: Columns beyond the frames, in the proof.
PROOF_MARGIN = 13


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    base: int = option(5, "base of the abacus")
    frames: int = option(3, "frames of an observation")
    sample: int = option(0, "number of observations to find witnesses for; 0: all")
    workers: int = option(2, "processes that search for witnesses")


@cache
def _finder(base: int, frames: int) -> WitnessFinder:
    return WitnessFinder(complete_set(base, frames))


def _steps_to(task: tuple[int, int, int]) -> int:
    """Return the steps of a row's witness, or -1 if there is none."""
    base, frames, row = task
    try:
        return _finder(base, frames).find(row).step
    except AssertionError:
        return -1


def _check_closure(options: Options) -> bool:
    width = options.frames + PROOF_MARGIN
    exploration = explore(options.base, options.frames, width)
    looked_up = sum(len(rows) for rows in equivalents(exploration))
    missing = len(missing_equivalents(exploration))
    narrow = complete_set(options.base, options.frames)
    same = collect(exploration).digest == narrow.digest
    print(f"situations on {width} columns      {len(exploration.parents):>12,}")
    print(f"equivalents, looked up        {looked_up:>12,}")
    print(f"not explored                  {missing:>12,}")
    print(f"observations as on fewer columns {'yes' if same else 'NO':>9}")
    return missing == 0 and same


def _check_witnesses(options: Options) -> bool:
    rows = np.arange(len(complete_set(options.base, options.frames)))
    if options.sample:
        rows = np.random.default_rng(0).choice(rows, min(options.sample, len(rows)), replace=False)
    tasks = [(options.base, options.frames, int(row)) for row in rows]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        found = pool.imap_unordered(_steps_to, tasks, chunksize=64)
        steps = np.array(list(tqdm(found, total=len(tasks), desc="witnesses", unit="obs")))
    print(f"observations                  {len(steps):>12,}")
    print(f"with a witness                {(steps >= 0).sum():>12,}")
    print(f"steps of the longest          {steps.max():>12,}")
    return bool((steps >= 0).all())


def main(options: Options) -> int:
    """Run both checks; the exit status is 0 if they hold."""
    began = time.perf_counter()
    closed = _check_closure(options)
    met = _check_witnesses(options)
    print(f"seconds                       {time.perf_counter() - began:>12,.0f}")
    return 0 if closed and met else 1


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, "python -m benchmarks.reachability --sample 5000"))
