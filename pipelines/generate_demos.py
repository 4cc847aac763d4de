"""Record demonstrations of the expert into an HDF5 file, by default into datasets/.

The same options give the same content, with any number of workers. A run that was killed resumes
when it is started again with the same options.

--tasks FILE records given tasks instead of random operations: a text file with a task a line, such
as `12 + 34 - 5`, the first number being the one on the abacus. Numbers are decimal; empty lines and
lines that start with # are skipped. Each task is one episode.
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
from oracle.demos.recipe import (
    DEFAULT_COMPRESSION,
    DEFAULT_OPERATIONS,
    OPERATIONS_PER_EPISODE,
    OPERATIONS_PER_SHARD,
    Recipe,
    read_tasks,
)
from pipelines.job.command_line import option, run

EXAMPLE = "python -m pipelines.generate_demos --n-operations 1e6 --epsilon 0.05 --seed 1"
#: Flags that do not change the content.
_NOT_CONTENT = ("workers", "output", "shard_operations", "overwrite")
#: Options that only random operations have.
_NOT_WITH_TASKS = ("n_operations", "n_transitions", "operations_per_episode", "operations", "start")


@dataclass(frozen=True)
class Options:
    """The command line."""

    n_operations: int | None = option(
        None, f"operations to record (default: {DEFAULT_OPERATIONS}, without --n-transitions)"
    )
    n_transitions: int | None = option(
        None, "record whole operations until there are at least this many transitions"
    )
    tasks: Path | None = option(None, "text file of tasks to record, one a line: 12 + 34 - 5")
    operations_per_episode: int = option(OPERATIONS_PER_EPISODE, "operations of an episode")
    max_digits: int = option(6, "digits of the longest operand")
    columns: int = option(10, "columns of the abacus")
    base: int = option(5, "base, from 2 to 10")
    operations: Operations = option("both", "which operations are drawn")
    start: str = option("0", "first number on the abacus: a number, or 'random'")
    variant: Variant = option(
        "before", "order of lines in the algorithm: mended, or as printed in the paper"
    )
    reward: str = option("dense", "level (or modules, joined by commas) of the stored reward")
    epsilon: float = option(
        0.0, "probability of a detour: another action than the expert's that the operation survives"
    )
    frames: int = option(
        3, "frames that learners stack by default; any other number can be read too"
    )
    seed: int = option(0, "random seed")
    workers: int | None = option(None, "threads (default: one for each core)")
    output: Path | None = option(
        None, "file to write (default: a file in datasets/ named by the settings)"
    )
    compression: int = option(DEFAULT_COMPRESSION, "deflate level, 0 for none, 9 for the smallest")
    shard_operations: int = option(OPERATIONS_PER_SHARD, "operations that a kill can lose")
    overwrite: bool = option(False, "replace a file with other content")

    def recipe(self) -> Recipe:
        """Return the settings that decide the content."""
        if self.tasks is not None:
            return self._task_recipe(self.tasks)
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

    def _task_recipe(self, path: Path) -> Recipe:
        for field in dataclasses.fields(self):
            if field.name in _NOT_WITH_TASKS and getattr(self, field.name) != field.default:
                flag = "--" + field.name.replace("_", "-")
                raise ValueError(f"{flag} has no effect on --tasks: give one of them")
        config = AbacusConfig(
            columns=self.columns,
            base=self.base,
            max_digits=self.max_digits,
            frames=self.frames,
            reward=self.reward,
        )
        tasks = read_tasks(path, config)
        return Recipe(config, self.variant, self.epsilon, self.seed, tasks=tasks)

    def command(self) -> list[str]:
        """Return the command that records the same content."""
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
    """Record, and print a summary."""
    from oracle.demos import Demonstrations, default_path, record_demonstrations
    from oracle.demos.shards import warm_up
    from pipelines.inspect_demos import summary

    recipe = options.recipe()
    path = options.output or default_path(recipe)
    with _notice_if_slow("compiling the recorder: this happens once on a machine"):
        warm_up(recipe)
    total = recipe.operations or recipe.transitions
    with tqdm(total=total, unit_scale=True, disable=None, desc="recording") as bar:
        bar.unit = " operations" if recipe.operations else " transitions"

        def progress(operations: int, transitions: int) -> None:
            bar.update(operations if recipe.operations else transitions)

        file = record_demonstrations(
            recipe,
            path,
            workers=options.workers,
            compression=options.compression,
            operations_per_shard=options.shard_operations,
            command=options.command(),
            overwrite=options.overwrite,
            progress=progress,
        )
    demonstrations = Demonstrations.open(file.path, verify=True)
    print(summary(demonstrations, file.path))
    if file.existed:
        print("time          none: the file exists already, with this content")
    else:
        rate = len(demonstrations) / file.seconds
        print(f"time          {file.seconds:.1f} s, {rate:,.0f} transitions a second")
    return 0


@contextmanager
def _notice_if_slow(text: str, after: float = 5.0) -> Iterator[None]:
    timer = threading.Timer(after, lambda: print(text, file=sys.stderr))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
