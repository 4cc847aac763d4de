"""Damage demonstrations files in thousands of ways and read each of them.

Every file must be refused in one line when it is opened, or be caught by `inspect_demos --verify`,
or be harmless: with the content that its recipe gives. A crash, a hang, too much memory, another
exception, a change that nothing noticed or the opening of a linked file is a failure: the exit
status is 1, and the file is kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.machine import machine
from oracle.demos import Demonstrations, Recipe, record_demonstrations
from pipelines.job.command_line import option, run
from tests.oracle.demos.hostile_files import DAMAGES
from tests.oracle.demos.hostile_reader import BYTES_BEYOND, SECONDS, HostileReader

EXAMPLE = "python -m benchmarks.fuzz_demos --files 10000 --seed 1"
#: The figures to print, and the kinds of answers that each counts.
OUTCOMES = {
    "refused on opening": ("refused",),
    "accepted, caught by --verify": ("caught",),
    "accepted, harmless": ("harmless",),
    "crashes, hangs, too much memory": ("crashed", "hung", "greedy"),
    "tracebacks, messages of many lines": ("raised", "wordy"),
    "silent changes, other files opened": ("misread", "strayed"),
}


@dataclass(frozen=True)
class Options:
    """The command line."""

    files: int = option(5_000, "files to damage")
    seed: int = option(0, "random seed of the damage")
    operations: int = option(120, "operations of the intact file")
    kept: Path = option(Path("runs/fuzz"), "folder for files that failed")


def main(options: Options) -> int:
    """Print the results by kind of damage."""
    print(f"machine: {machine()}")
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    failures, started = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        intact, damaged = Path(folder) / "intact.h5", Path(folder) / "damaged.h5"
        record_demonstrations(Recipe(operations=options.operations), intact)
        outside = Path(shutil.copy(intact, Path(folder) / "outside.h5"))
        reader = HostileReader(Demonstrations.open(intact).content_digest(), outside)
        for number in tqdm(range(options.files), unit=" files", disable=None):
            damage = DAMAGES[number % len(DAMAGES)]
            shutil.copy(intact, damaged)
            damage(damaged, np.random.default_rng([options.seed, number]))
            answer = reader.read(damaged)
            kinds[damage.__name__][answer.kind] += 1
            if not answer.is_acceptable:
                failures += 1
                kept = options.kept / f"{options.seed}-{number}-{damage.__name__}.h5"
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(damaged, kept)
                print(f"{kept}: {answer.kind}, {answer.text}", file=sys.stderr)
        reader.close()
    _print_results(kinds, failures, time.perf_counter() - started)
    return 1 if failures else 0


def _print_results(kinds: dict[str, Counter[str]], failures: int, seconds: float) -> None:
    for name, counts in kinds.items():
        text = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        print(f"{name.replace('_', ' '):<36} {text}")
    total = sum(kinds.values(), Counter())
    print(f"\n{'mutated files':<36} {total.total():,}, in {seconds:.0f} s")
    for text, names in OUTCOMES.items():
        print(f"{text:<36} {sum(total[name] for name in names):,}")
    print(f"{'failures in all':<36} {failures:,}")
    print(f"limits: {SECONDS:.0f} s a file, {BYTES_BEYOND / 2**20:.0f} MiB beyond an idle reader")


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
