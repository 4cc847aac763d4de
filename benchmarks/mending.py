"""Compare three ways of mending a policy by practice, with the reward as the only judge.

`table` tries other actions in failing exercises and corrects the policy as a table
(`pipelines.learning.mending`, which `python -m pipelines.mend` runs). `imitation` clones the
policy's own solved operations into new weights, round by round. `ppo` continues PPO from the
policy, with half of its episodes drawn from failing exercises.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from abacus.rules import AbacusConfig
from abacus.sb3 import AbacusVecEnv
from benchmarks.machine import machine
from pipelines.job.command_line import argument, option, run
from pipelines.learning.cloning import Cloning
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import EXTREME, Exercises, hard_exercises
from pipelines.learning.mending import RANDOM_EXERCISES, Mending, MendingRound
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_run
from pipelines.learning.ppo import AbacusPPO
from pipelines.learning.practice import Practice
from pipelines.learning.settings import PRESETS, MendingSettings

#: Exercises whose solved operations are cloned in a round, and the most steps of one.
IMITATED, MOST_STEPS = 30_000, 600

EXAMPLE = "python -m benchmarks.mending runs/alone-wide-s0-1 --way ppo --level no_of"


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    policy: Path = argument("folder of a run or of a policy")
    way: Literal["table", "imitation", "ppo"] = option("table", "how it practises")
    level: Literal["dense", "no_of", "no_of_sp"] = option("no_of", "reward level")
    rounds: int = option(10, "most rounds")
    steps: int = option(200_000, "environment steps of PPO in a round")
    learning_rate: float = option(0.003, "learning rate of PPO")
    seed: int = option(0, "random seed")


class PpoMending(Mending):
    """Rounds of PPO on failing exercises in place of corrections."""

    def __init__(self, model: AbacusPPO, settings: MendingSettings, seed: int, steps: int) -> None:
        super().__init__(model.policy, model.batch.config, settings, seed)
        self.model, self.steps = model, steps

    def _correct(self, score: MendingRound, rng: np.random.Generator) -> MendingRound:
        world = self.world
        exercises = Exercises.draw(rng, RANDOM_EXERCISES, world, (world.columns,), EXTREME)
        failing = np.flatnonzero(~self.practice.play(exercises).solved)
        self.model.batch.set_tasks([exercises[row].task for row in failing.tolist()], share=0.5)
        self.model.learn(self.steps, reset_num_timesteps=False)
        self.practice = Practice(self.policy, world)
        return replace(score, practised=len(failing))

    def clone_table(self, repetitions: int, *, exact: bool) -> int:
        """Return 0: PPO has trained the policy itself."""
        return 0


class ImitationMending(Mending):
    """Rounds of cloning the solved operations in place of corrections."""

    def _correct(self, score: MendingRound, rng: np.random.Generator) -> MendingRound:
        exercises = hard_exercises(rng, IMITATED, self.world)
        runs = self.practice.play(exercises, depth=MOST_STEPS)
        own = runs.solved & (runs.lengths <= MOST_STEPS)
        rows, taken = runs.trail[own], runs.taken[own]
        pairs = np.unique(np.column_stack([rows[rows >= 0], taken[rows >= 0]]), axis=0)
        codes = self.practice.table.codes_of(pairs[:, 0])
        masks = ~self.practice.illegal_actions(codes[:, -3])
        scores = self.practice.table.scores_at(pairs[:, 0])
        # Where an edge out of view made a better action illegal, the mask lacks it.
        masks &= scores <= scores[np.arange(len(pairs)), pairs[:, 1]][:, None]
        data = CloningSet.of_codes(self.world.base, codes, pairs[:, 1], masks)
        self.policy = self.new_network(self.policy.network_name)
        Cloning(self.policy, data, self.settings.cloning, self.seed, Logger(None, [])).run()
        self.practice = Practice(self.policy, self.world)
        return replace(score, practised=int(own.sum()))

    def clone_table(self, repetitions: int, *, exact: bool) -> int:
        """Return 0: the policy was cloned in the round."""
        return 0


def main(options: Options) -> int:
    """Print the rounds of one way."""
    torch.set_num_threads(1)
    print(machine())
    policy = load_run(options.policy)
    world = AbacusConfig(
        base=policy.layout.base, frames=policy.layout.frames, reward=options.level, start="random"
    )
    settings = MendingSettings(rounds=options.rounds)
    mending = Mending(policy, world, settings, options.seed)
    if options.way == "imitation":
        mending = ImitationMending(policy, world, settings, options.seed)
    elif options.way == "ppo":
        mending = PpoMending(_model(policy, world, options), settings, options.seed, options.steps)
    began = time.process_time()

    def after_round(score: MendingRound) -> None:
        seconds = time.process_time() - began
        print(f"round {score.number}, {seconds:.0f} CPU seconds: {score.describe()}", flush=True)

    exact = mending.run(after_round)
    print(f"{'exact' if exact else 'not exact'} after {len(mending.rounds) - 1} rounds")
    return 0 if exact else 1


def _model(policy: AbacusPolicy, world: AbacusConfig, options: Options) -> AbacusPPO:
    alone = PRESETS["alone"].ppo
    ppo = replace(
        alone,
        learning_rate=replace(alone.learning_rate, kind="constant", start=options.learning_rate),
        entropy=replace(alone.entropy, start=0.005),
    )
    model = AbacusPPO(
        AbacusPolicy,
        AbacusVecEnv(ppo.n_envs, config=world),
        ppo,
        seed=options.seed,
        policy_kwargs={"network": policy.network_name},
    )
    model.policy.load_state_dict(policy.state_dict())
    model.set_logger(Logger(None, []))
    return model


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
