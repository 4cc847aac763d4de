"""What fine-tuning does for clones of few demonstrations, with and without what protects them.

A grid: operations cloned, reward level, critic warm-up on or off, penalty toward the clone on or
off, seeds. Runs are done one after the other, cheapest questions first, and the table is written
after each; started again it goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.command_line import option, run, shown_path
from pipelines.learning.files import write_text
from pipelines.learning.settings import PRESETS, Settings
from pipelines.learning.studies import Cell, finished, markdown, run_cell

EXAMPLE = "python -m pipelines.study_fine_tuning --clones 500 --levels no_of --seeds 1"
HEADERS = (
    "operations",
    "level",
    "warm-up",
    "penalty",
    "seeds",
    "accuracy: clone",
    "best",
    "last",
    "wrong: clone",
    "best",
    "last",
)


@dataclass(frozen=True)
class Options:
    """The grid, and where it is kept."""

    clones: tuple[int, ...] = option((100, 500, 2000), "operations that are cloned")
    levels: tuple[str, ...] = option(("no_of", "no_of_sp_ms"), "reward levels")
    seeds: int = option(3, "seeds of each cell")
    n_timesteps: int = option(600_000, "steps of PPO")
    folder: Path = option(Path("runs/fine_tuning"), "folder of the runs")
    results: Path = option(Path("results/fine_tuning.md"), "table to write")
    table_only: bool = option(False, "write the table of what there is")


@dataclass(frozen=True)
class Question:
    """A row of the table."""

    operations: int
    level: str
    warmup: bool
    penalty: bool

    def cell(self, options: Options, seed: int) -> Cell:
        """The run of one seed."""
        protection = f"{'warm' if self.warmup else 'cold'}-{'held' if self.penalty else 'free'}"
        return Cell(
            f"{self.operations}-{self.level}-{protection}-s{seed}",
            Settings(
                demo_operations=self.operations,
                reward=self.level,
                seed=seed,
                n_timesteps=options.n_timesteps,
                critic_warmup=PRESETS["default"]["critic_warmup"] if self.warmup else 0,
                kl_weight=PRESETS["default"]["kl_weight"] if self.penalty else 0.0,
            ),
        )


def questions(options: Options) -> list[Question]:
    """The rows, protected ones first."""
    grid = product((True, False), (True, False), options.levels, options.clones)
    return [Question(clone, level, warm, held) for warm, held, level, clone in grid]


def all_cells(options: Options) -> Iterator[Cell]:
    """The runs, the first seed of every row before the second of any."""
    for seed in range(options.seeds):
        for question in questions(options):
            yield question.cell(options, seed)


def table_row(question: Question, options: Options) -> list[str] | None:
    """A line of the table; None where no run of it is done."""
    cells = [question.cell(options, seed) for seed in range(options.seeds)]
    done = [summary for _, summary in finished(cells, options.folder)]
    if not done:
        return None
    return [
        f"{question.operations:,}",
        question.level,
        "yes" if question.warmup else "no",
        "yes" if question.penalty else "no",
        str(len(done)),
        *(_accuracies(done, which) for which in ("clone", "best", "last")),
        *(_wrong(done, which) for which in ("clone", "best", "last")),
    ]


def _accuracies(done: list[dict[str, Any]], which: str) -> str:
    values = [100 * summary[which]["accuracy"] for summary in done]
    return f"{np.mean(values):.2f} ± {np.std(values):.2f} %"


def _wrong(done: list[dict[str, Any]], which: str) -> str:
    return f"{np.mean([summary[which]['wrong'] for summary in done]):,.0f}"


def write_table(options: Options) -> None:
    """Writes the table of what is done, and says what is not."""
    rows = [table_row(question, options) for question in questions(options)]
    total = len(list(all_cells(options)))
    done = len(finished(all_cells(options), options.folder))
    text = (
        "# Fine-tuning clones of few demonstrations\n\n"
        f"By `python -m pipelines.study_fine_tuning`: {done} of {total} runs done, "
        f"{options.n_timesteps:,} steps of PPO each. Accuracy is that of the greedy policy on the "
        "training distribution, mean and deviation over seeds; wrong are the observations of "
        "99,784 on which it does not do as the teacher. `best` is the policy that a run keeps, "
        "`last` the one that training ended with.\n\n"
    ) + markdown(HEADERS, [row for row in rows if row is not None])
    write_text(options.results, text)
    print(f"written: {shown_path(options.results)} ({done} of {total} runs)", flush=True)


def main(options: Options) -> int:
    """Runs what is missing, and writes the table."""
    if not options.table_only:
        command = ["python", "-m", "pipelines.study_fine_tuning", *sys.argv[1:]]
        for cell in all_cells(options):
            run_cell(cell, options.folder, command, lambda line: print(line, flush=True))
            write_table(options)
    write_table(options)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
