"""Learn a table of values from the reward alone, with and without each of its ingredients.

Without --without all ingredients are used. Accuracy is that of the greedy table, by the rules of
the reward level, on the operations of the study's scores.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial

from abacus.rules import AbacusConfig, Operations
from pipelines.experiments.cells import RUN_EPISODES, RUN_LIMIT, SCORE_EPISODES, SCORE_SEED
from pipelines.job.command_line import option, run
from pipelines.learning.settings import PRESETS
from pipelines.learning.value_table import INGREDIENTS, TableTraining
from pipelines.scoring.operations import PAPER_DIGITS, drawn_operations
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import (
    Runs,
    Score,
    measure,
    measure_runs,
    training_score,
)

EXAMPLE = 'python -m benchmarks.reward_alone --reward no_of --without "own errors" --seeds 0 1 2'
#: Operations of 16 digits of a score.
LONG_OPERATIONS = 10_000
#: Rounds from one line of a curve to the next.
ROUNDS_PER_LINE = 3


@dataclass(frozen=True)
class Options:
    """Options of the trials."""

    reward: str = option("no_of", "reward level")
    operations: Operations = option("both", "operations of the world")
    steps: int = option(40_000_000, "environment steps of the table")
    seeds: tuple[int, ...] = option((0, 1, 2), "random seeds")
    without: tuple[str, ...] = option((), f"ingredients to leave out: {', '.join(INGREDIENTS)}")
    curve: bool = option(False, "print the accuracy during the training too")


def main(options: Options) -> int:
    """Run the seeds one after another, and print a line for each."""
    world = AbacusConfig(reward=options.reward, operations=options.operations, start="random")
    unknown = sorted(set(options.without) - set(INGREDIENTS))
    if unknown:
        raise ValueError(f"--without {unknown[0]!r}: give {', '.join(INGREDIENTS)}")
    used = [name for name in INGREDIENTS if name not in options.without]
    print(f"{options.reward}, {options.operations}, without {', '.join(options.without) or 'none'}")
    for seed in options.seeds:
        started = time.process_time()
        training = TableTraining(world, options.steps, PRESETS["alone"].ppo.gamma, seed, used)
        for learned in training.rounds():
            seconds = time.process_time() - started
            line = f"seed {seed}: {learned.steps:,} steps, {seconds:.0f} processor seconds, "
            if learned.last:
                print(f"{line}{_accuracy(training, world)}; {_more(training, world)}", flush=True)
            elif options.curve and learned.number % ROUNDS_PER_LINE == 0:
                print(f"  {line}{_accuracy(training, world)}", flush=True)
    return 0


def _accuracy(training: TableTraining, world: AbacusConfig) -> str:
    table = GreedyTable(training.table, world.base, world.frames)
    score = training_score(table, world, SCORE_EPISODES, SCORE_SEED)
    failures = ", ".join(f"{kind} {count}" for kind, count in score.failures.items() if count)
    return f"{score.accuracy:.2%} solved ({failures or 'no failures'})"


def _more(training: TableTraining, world: AbacusConfig) -> str:
    """Return the errors at 16 digits, and the longest run of operations."""
    table = GreedyTable(training.table, world.base, world.frames)
    long = Score.of_length(PAPER_DIGITS, LONG_OPERATIONS)
    sampler = partial(
        drawn_operations, digits=PAPER_DIGITS, base=world.base, operations=world.operations
    )
    measure(table, long, sampler, SCORE_SEED, world.frames)
    runs = Runs(world.operations, RUN_LIMIT, RUN_EPISODES)
    measure_runs(table, runs, world, SCORE_SEED)
    return f"errors at 16 digits {long.rate().rate:.2%}, longest run {runs.longest:,}"


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
