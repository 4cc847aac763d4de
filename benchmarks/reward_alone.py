"""Learn from the reward alone: plan, clone, then practise until the policy's own runs are exact.

Prints a line for each round of mending, and the scores of the best policy at the end: operations
solved by the rules of the reward level, errors at 16 digits and the longest run, on the operations
of the study's scores. Ingredients are left out by --plan-exercises 0 (start from new weights), by
--plan-order (other orders of equally good actions) and by --mend-without.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import partial

import torch
from stable_baselines3.common.logger import Logger

from abacus.rules import AbacusConfig, Operations
from pipelines.experiments.cells import RUN_EPISODES, RUN_LIMIT, SCORE_EPISODES, SCORE_SEED
from pipelines.job.command_line import option, run
from pipelines.learning.cloning import Cloning
from pipelines.learning.mending import Mending, MendingRound
from pipelines.learning.planning import planned_actions
from pipelines.learning.policy import AbacusPolicy, new_policy, prepare_torch
from pipelines.learning.settings import FLAGS, PRESETS, PlanningSettings, PlanOrder
from pipelines.scoring.operations import PAPER_DIGITS, drawn_operations
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import Runs, Score, measure, measure_runs, training_score

EXAMPLE = "python -m benchmarks.reward_alone --reward no_of_sp --seeds 0 1 2 --rounds 6"
#: Operations of 16 digits of a score.
LONG_OPERATIONS = 10_000
ALONE = PRESETS["alone"]


@dataclass(frozen=True)
class Options:
    """Options of the trials."""

    reward: str = option("no_of", "reward level")
    operations: Operations = option("both", "operations of the world")
    seeds: tuple[int, ...] = option((0, 1, 2), "random seeds")
    plan_exercises: int = option(ALONE.planning.exercises, "exercises that are planned; 0: none")
    plan_order: PlanOrder = option(ALONE.planning.order, "order of equally good actions")
    rounds: int = option(ALONE.mending.rounds, "most rounds of mending")
    mend_without: str = option("", FLAGS["mend_without"].help)


def main(options: Options) -> int:
    """Run the seeds one after another."""
    prepare_torch(1)
    world = AbacusConfig(reward=options.reward, operations=options.operations, start="random")
    settings = replace(ALONE.mending, rounds=options.rounds, without=options.mend_without)
    planning = replace(ALONE.planning, exercises=options.plan_exercises, order=options.plan_order)
    for seed in options.seeds:
        started = time.process_time()
        policy, steps = _planned(planning, world, seed)
        print(f"seed {seed}: planned, {steps:,} steps, {_accuracy(policy, world)}", flush=True)
        mending = Mending(policy, world, settings, seed, planning if planning.exercises else None)

        def after_round(done: MendingRound, mending: Mending = mending) -> None:
            print(f"  round {done.number}: {done.describe()}", flush=True)

        mending.run(after_round)
        steps += sum(done.steps for done in mending.rounds)
        seconds = time.process_time() - started
        print(
            f"seed {seed}: {steps:,} steps, {seconds:.0f} processor seconds, "
            f"{_accuracy(mending.best, world)}; {_more(mending.best, world)}; own runs "
            f"{max(mending.rounds, key=lambda each: each.rank).verdict}",
            flush=True,
        )
    return 0


def _planned(
    settings: PlanningSettings, world: AbacusConfig, seed: int
) -> tuple[AbacusPolicy, int]:
    """Return the policy that clones planned actions, and the steps that planning took."""
    torch.manual_seed(seed)
    policy = new_policy(ALONE.network, world.base, world.frames)
    if not settings.exercises:
        return policy, 0
    data, steps = planned_actions(world, settings, seed)
    torch.manual_seed(seed)
    Cloning(policy, data, ALONE.cloning, seed, Logger(None, [])).run()
    return policy, steps


def _accuracy(policy: AbacusPolicy, world: AbacusConfig) -> str:
    table = GreedyTable(policy, world.base, world.frames)
    score = training_score(table, world, SCORE_EPISODES, SCORE_SEED)
    failures = ", ".join(f"{kind} {count}" for kind, count in score.failures.items() if count)
    return f"{score.accuracy:.2%} solved ({failures or 'no failures'})"


def _more(policy: AbacusPolicy, world: AbacusConfig) -> str:
    """Return the errors at 16 digits, and the longest run of operations."""
    table = GreedyTable(policy, world.base, world.frames)
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
