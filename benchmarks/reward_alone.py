"""Learn a table of values from the reward alone, with and without each of its ingredients.

Without --without all ingredients are used. Accuracy is that of the greedy table, by the rules of
the reward level, on operations of the training world that it has not met in this order.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from abacus.rules import AbacusConfig
from pipelines.job.command_line import option, run
from pipelines.learning.settings import PRESETS
from pipelines.learning.value_table import INGREDIENTS, TableTraining
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import training_score

EXAMPLE = 'python -m benchmarks.reward_alone --reward no_of --without "own errors" --seeds 0 1 2'
#: Episodes of a score, and their seed.
EPISODES, SCORE_SEED = 2_000, 3
#: Rounds from one line to the next.
ROUNDS_PER_LINE = 3


@dataclass(frozen=True)
class Options:
    """Options of the trials."""

    reward: str = option("no_of", "reward level")
    steps: int = option(40_000_000, "environment steps of the table")
    seeds: tuple[int, ...] = option((0, 1, 2), "random seeds")
    without: tuple[str, ...] = option((), f"ingredients to leave out: {', '.join(INGREDIENTS)}")
    curve: bool = option(False, "print the accuracy during the training too")


def main(options: Options) -> int:
    """Run the seeds one after another, and print a line for each."""
    world = AbacusConfig(reward=options.reward, start="random")
    unknown = sorted(set(options.without) - set(INGREDIENTS))
    if unknown:
        raise ValueError(f"--without {unknown[0]!r}: give {', '.join(INGREDIENTS)}")
    used = [name for name in INGREDIENTS if name not in options.without]
    print(f"{options.reward}, without {', '.join(options.without) or 'nothing'}")
    for seed in options.seeds:
        started = time.process_time()
        training = TableTraining(world, options.steps, PRESETS["alone"].ppo.gamma, seed, used)
        for learned in training.rounds():
            if options.curve and learned.number % ROUNDS_PER_LINE == ROUNDS_PER_LINE - 1:
                print(f"  {_line(training, world, seed, started)}", flush=True)
        print(_line(training, world, seed, started), flush=True)
    return 0


def _line(training: TableTraining, world: AbacusConfig, seed: int, started: float) -> str:
    seconds = time.process_time() - started
    table = GreedyTable(training.table, world.base, world.frames)
    score = training_score(table, world, EPISODES, SCORE_SEED)
    failures = ", ".join(f"{kind} {count}" for kind, count in score.failures.items() if count)
    return (
        f"seed {seed}: {training.table.steps:,} steps, {seconds:.0f} processor seconds, "
        f"{score.accuracy:.2%} solved; failures: {failures or 'none'}"
    )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
