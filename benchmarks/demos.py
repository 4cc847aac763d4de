"""Time the recording and reading of demonstrations, beside the storage of Minari and imitation.

A large set is recorded to disk in a separate process, whose memory is measured, then read and
stacked. Then fewer trajectories are written and read by this project, by Minari and by imitation's
serializer: from memory to disk, and from disk to stacked observations in memory. The best of a few
repetitions counts. Processor time is printed beside wall time: on a busy machine it is the fairer
measure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.machine import machine
from oracle.demos import Demonstrations, Recipe
from oracle.demos.shards import warm_up
from oracle.demos.writer import FileWriter
from pipelines.job.command_line import option, run

# Read when imitation imports `datasets`.
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

EXAMPLE = "python -m benchmarks.demos --operations 1e5"
BATCH = 4096

RECORD = """
import json, resource, sys, time
from oracle.demos import Recipe, record_demonstrations
from oracle.demos.shards import warm_up
recipe = Recipe(operations=int(sys.argv[2]))
warm_up(recipe)
busy = time.process_time()
file = record_demonstrations(recipe, sys.argv[1], workers=int(sys.argv[3]))
busy = time.process_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([[file.seconds, busy], peak]))
"""


@dataclass(frozen=True)
class Options:
    """The command line."""

    operations: int = option(1_000_000, "operations of the large set")
    workers: int = option(2, "threads that record the large set")
    operations_side_by_side: int = option(
        1_000, "operations written and read by all three libraries"
    )
    repetitions: int = option(3, "repetitions; the best counts")
    folder: Path | None = option(None, "folder to write to (default: the temporary folder)")


def main(options: Options) -> int:
    """Print two tables."""
    print(f"machine: {machine()}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        demonstrations = large_set(options, Path(folder))
        side_by_side(demonstrations.first(options.operations_side_by_side), options, Path(folder))
    return 0


def large_set(options: Options, folder: Path) -> Demonstrations:
    """Record, read and stack a large set."""
    path = folder / "large.h5"
    words = [str(path), str(options.operations), str(options.workers)]
    done = subprocess.run(
        [sys.executable, "-c", RECORD, *words], capture_output=True, text=True, check=True
    )
    recorded, peak = json.loads(done.stdout)
    demonstrations = Demonstrations.open(path)
    count, size = len(demonstrations), path.stat().st_size
    print(f"\n{options.operations:,} operations, {count:,} transitions\n")
    print(f"{'':<44} {'seconds':>8} {'processor':>10} {'million a second':>17}  target")
    _line("recorded to disk", Timing(*recorded), count, "1.5 on two cores")
    opened, _ = _best(lambda: Demonstrations.open(path), options.repetitions)
    _line("read from disk, checked, in memory", opened, count)
    rows = np.arange(count)
    for name in ("in order", "shuffled"):
        stacked, _ = _best(lambda: _stack(demonstrations, rows), options.repetitions)
        _line(f"stacked into batches of {BATCH:,}, {name}", stacked, count)
        _line(f"from disk into stacked batches, {name}", opened + stacked, count, "10")
        np.random.default_rng(0).shuffle(rows)
    print(f"\n{size / count:.2f} bytes a transition on disk (target 4)")
    print(f"{peak / 2**30:.2f} GiB of memory while recording (target 2)")
    return demonstrations


def _stack(demonstrations: Demonstrations, rows: npt.NDArray[np.int64]) -> None:
    """Gather the observations of all batches into the same arrays."""
    out = demonstrations.empty_observations(BATCH)
    for start in range(0, len(rows) - BATCH + 1, BATCH):
        demonstrations.observations(rows[start : start + BATCH], out=out)


@dataclass(frozen=True)
class Timing:
    """Wall time and processor time in seconds."""

    seconds: float
    busy: float

    def __add__(self, other: Timing) -> Timing:
        return Timing(self.seconds + other.seconds, self.busy + other.busy)


def _line(name: str, timing: Timing, count: int, target: str = "") -> None:
    rate = count / timing.seconds / 1e6
    print(
        f"{name:<44} {timing.seconds:>8.2f} {timing.busy:>10.2f} {rate:>17.2f}  {target}".rstrip()
    )


def _best(work: Callable[[], Any], repetitions: int) -> tuple[Timing, Any]:
    timings = []
    for _ in range(repetitions):
        started, busy = time.perf_counter(), time.process_time()
        result = work()
        timings.append(Timing(time.perf_counter() - started, time.process_time() - busy))
    return min(timings, key=lambda timing: timing.seconds), result


def side_by_side(demonstrations: Demonstrations, options: Options, folder: Path) -> None:
    """Write and read the same trajectories with three libraries."""
    count = len(demonstrations)
    print(f"\nThe same {count:,} transitions, from memory to disk and back to stacked arrays\n")
    print(f"{'':<12} {'write/s':>12} {'read/s':>12} {'bytes each':>11} {'write':>8} {'read':>8}")
    ours: tuple[Timing, Timing] | None = None
    for name, library in (("ours", _ours), ("Minari", _minari), ("imitation", _imitation)):
        try:
            write, read, size = library(demonstrations, options.repetitions, folder)
        except ImportError as error:
            print(f"{name:<12} not installed ({error})")
            continue
        ours = ours or (write, read)
        print(
            f"{name:<12} {count / write.seconds:>12,.0f} {count / read.seconds:>12,.0f} "
            f"{size / count:>11.2f} {write.seconds / ours[0].seconds:>7.1f}x "
            f"{read.seconds / ours[1].seconds:>7.1f}x"
        )
    print("\nwrite, read: the time as a multiple of ours")


Result = tuple[Timing, Timing, int]


def _ours(demonstrations: Demonstrations, repetitions: int, folder: Path) -> Result:
    path, recipe = folder / "ours.h5", demonstrations.recipe

    def write() -> None:
        with FileWriter(path, recipe) as writer:
            writer.append(demonstrations.columns)
            writer.finish()

    def read() -> dict[str, Any]:
        return Demonstrations.open(path).observations()

    written, _ = _best(write, repetitions)
    return written, _best(read, repetitions)[0], path.stat().st_size


def _minari(demonstrations: Demonstrations, repetitions: int, folder: Path) -> Result:
    import minari

    from pipelines.export import episode_buffers

    spaces = _spaces(demonstrations)
    episodes = list(episode_buffers(demonstrations))
    os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")
    names = iter(f"side-by-side-{number}-v0" for number in range(1000))

    def write() -> str:
        name = next(names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            minari.create_dataset_from_buffers(name, episodes, **spaces)
        return name

    def read() -> int:
        return sum(len(episode.rewards) for episode in minari.load_dataset(name).iterate_episodes())

    written, name = _best(write, repetitions)
    seconds, _ = _best(read, repetitions)
    return written, seconds, _size(folder / "minari" / name)


def _spaces(demonstrations: Demonstrations) -> dict[str, Any]:
    from abacus.env import AbacusEnv

    env = AbacusEnv(**demonstrations.config.to_dict())
    return {"observation_space": env.observation_space, "action_space": env.action_space}


def _imitation(demonstrations: Demonstrations, repetitions: int, folder: Path) -> Result:
    from imitation.data import serialize

    from pipelines.export import flat_trajectories

    trajectories = flat_trajectories(demonstrations)
    path = folder / "imitation"

    def write() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            serialize.save(path, trajectories)

    def read() -> int:
        return sum(len(trajectory.obs) for trajectory in serialize.load(path))

    written, _ = _best(write, repetitions)
    return written, _best(read, repetitions)[0], _size(path)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    warm_up(Recipe())
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
