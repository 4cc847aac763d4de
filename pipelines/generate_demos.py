"""Records demonstrations of the teacher into an HDF5 file, by default into datasets/.

The same options give the same content, whatever the number of workers. A run that was killed goes
on where it stopped when it is started again with the same options.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from abacus.rules import START_RANDOM, AbacusConfig, Operations
from oracle.algorithm import Variant
from oracle.demos import Demonstrations, Recipe, default_path, record
from oracle.demos.recipe import DEFAULT_OPERATIONS, OPERATIONS_PER_EPISODE
from oracle.demos.shards import OPERATIONS_PER_SHARD, warm_up
from oracle.demos.writer import DEFAULT_COMPRESSION
from pipelines.inspect_demos import summary
from pipelines.job.command_line import option, run

EXAMPLE = "python -m pipelines.generate_demos --n-operations 1e6 --epsilon 0.05 --seed 1"
#: Flags that say how and where to record, not what.
_NOT_CONTENT = ("workers", "output", "shard_operations", "overwrite")


@dataclass(frozen=True)
class Options:
    """The command line."""

    n_operations: int | None = option(
        None, f"operations to record (default: {DEFAULT_OPERATIONS}, without --n-transitions)"
    )
    n_transitions: int | None = option(
        None, "record whole operations until there are so many transitions"
    )
    operations_per_episode: int = option(OPERATIONS_PER_EPISODE, "operations of an episode")
    max_digits: int = option(6, "digits of the longest operand")
    columns: int = option(10, "columns of the abacus")
    base: int = option(5, "base, from 2 to 10")
    operations: Operations = option("both", "which operations are drawn")
    start: str = option("0", "what the abacus shows at first: a number, or 'random'")
    variant: Variant = option("before", "when the algorithm moves the signpost: before the write")
    reward: str = option("dense", "level (or modules, joined by commas) of the stored reward")
    epsilon: float = option(
        0.0, "chance of a detour: another action than the teacher's that the operation survives"
    )
    frames: int = option(3, "frames that learners stack by default; any number can be read")
    seed: int = option(0, "seed of everything random")
    workers: int | None = option(None, "threads (default: one for each core)")
    output: Path | None = option(None, "file to write (default: a name in datasets/ by settings)")
    compression: int = option(DEFAULT_COMPRESSION, "deflate level, 0 for none, 9 for the smallest")
    shard_operations: int = option(OPERATIONS_PER_SHARD, "operations that a kill can lose")
    overwrite: bool = option(False, "replace a file that holds something else")

    def recipe(self) -> Recipe:
        """What decides the content."""
        n_operations = self.n_operations
        if n_operations is None and self.n_transitions is None:
            n_operations = DEFAULT_OPERATIONS
        config = AbacusConfig(
            columns=self.columns,
            base=self.base,
            max_digits=self.max_digits,
            frames=self.frames,
            operations=self.operations,
            reward=self.reward,
            start=_start(self.start),
            max_operations=self.operations_per_episode,
        )
        return Recipe(
            config, self.variant, self.epsilon, self.seed, n_operations, self.n_transitions
        )

    def command(self) -> list[str]:
        """The command that records the same content."""
        words = ["python", "-m", "pipelines.generate_demos"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in _NOT_CONTENT and value != field.default:
                words += ["--" + field.name.replace("_", "-"), str(value)]
        return words


def _start(text: str) -> int | Literal["random"]:
    if text == START_RANDOM:
        return "random"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"start={text!r} is not allowed: give a number, or 'random'") from None


def main(options: Options) -> int:
    """Records, and tells what was recorded."""
    recipe = options.recipe()
    path = options.output or default_path(recipe)
    with _told_if_slow("compiling the abacus: this happens once on a machine"):
        warm_up(recipe)
    total = recipe.operations or recipe.transitions
    with tqdm(total=total, unit_scale=True, disable=None, desc="recording") as bar:
        bar.unit = " operations" if recipe.operations else " transitions"

        def progress(operations: int, transitions: int) -> None:
            bar.update(operations if recipe.operations else transitions)

        report = record(
            recipe,
            path,
            workers=options.workers,
            compression=options.compression,
            operations_per_shard=options.shard_operations,
            command=options.command(),
            overwrite=options.overwrite,
            progress=progress,
        )
    demonstrations = Demonstrations.open(report.path, verify=True)
    print(summary(demonstrations, report.path))
    if report.existed:
        print("time          it was there already, and holds what was asked for")
    else:
        rate = len(demonstrations) / report.seconds
        print(f"time          {report.seconds:.1f} s, {rate:,.0f} transitions a second")
    return 0


@contextmanager
def _told_if_slow(text: str, after: float = 5.0) -> Iterator[None]:
    timer = threading.Timer(after, lambda: print(text, file=sys.stderr))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
