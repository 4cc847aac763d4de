"""Spoils files of demonstrations in thousands of ways and has each one read.

Every file must be read correctly, with a matching digest, or be refused in one line; a crash, a
hang, too much memory, another exception, a wrong digest, or the opening of a file that it links to
makes the exit status 1. Files that did harm are kept.
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


@dataclass(frozen=True)
class Options:
    """The command line."""

    files: int = option(2_000, "files to spoil")
    seed: int = option(0, "seed of the damage")
    operations: int = option(120, "operations of the sound file")
    kept: Path = option(Path("runs/fuzz"), "folder for files that did harm")


def main(options: Options) -> int:
    """Prints what became of every kind of damage."""
    print(f"machine: {machine()}")
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    harm, started = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        sound, spoilt = Path(folder) / "sound.h5", Path(folder) / "spoilt.h5"
        record_demonstrations(Recipe(operations=options.operations), sound)
        outside = Path(shutil.copy(sound, Path(folder) / "outside.h5"))
        reader = HostileReader(Demonstrations.open(sound).content_digest(), outside)
        for number in tqdm(range(options.files), unit=" files", disable=None):
            damage = DAMAGES[number % len(DAMAGES)]
            shutil.copy(sound, spoilt)
            damage(spoilt, np.random.default_rng([options.seed, number]))
            answer = reader.read(spoilt)
            kinds[damage.__name__][answer.kind] += 1
            if not answer.is_sound:
                harm += 1
                kept = options.kept / f"{options.seed}-{number}-{damage.__name__}.h5"
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(spoilt, kept)
                print(f"{kept}: {answer.kind}, {answer.text}", file=sys.stderr)
        reader.close()
    _tell(kinds, harm, time.perf_counter() - started)
    return 1 if harm else 0


def _tell(kinds: dict[str, Counter[str]], harm: int, seconds: float) -> None:
    for name, counts in kinds.items():
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        print(f"{name.replace('_', ' '):<36} {shown}")
    total = sum(kinds.values(), Counter())
    shown = ", ".join(f"{count:,} {kind}" for kind, count in total.most_common())
    print(f"\n{total.total():,} files in {seconds:.0f} s: {shown}; {harm} did harm")
    print(f"limits: {SECONDS:.0f} s a file, {BYTES_BEYOND / 2**20:.0f} MiB beyond an idle reader")


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
