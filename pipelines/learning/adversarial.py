"""GAIL with imitation: PPO on a reward that a discriminator learns from demonstrations.

A discriminator learns to tell the expert's transitions from those of the policy, which is rewarded
for what looks like the expert's. The reward of the environment is not used. The trainer, its
wrappers and its losses are imitation's; the generator is sb3-contrib's masked PPO with the policy
of the other learners, so that neither side ever takes an illegal action.

- imitation 1.0.1 takes no Dict observations: those here are rows, see `FlatObservations`.
- A mistake does not end the episode. The reward of GAIL is never negative: where mistakes end the
  episode, a policy lives longest that neither slides nor submits, and that is what it learned.
- Episodes still differ in length, because right slides prolong them; imitation allows this only on
  request, as it tells something about the task beyond the demonstrations.
- Of the settings of PPO, the learning rate and the entropy bonus keep their initial values: the
  trainer calls PPO once for each round, whose schedules would start over. What keeps PPO from
  forgetting a clone is not used, because there is none.
- The trainer samples the policy's transitions with NumPy's global generator, which PPO seeds.
- A run that is interrupted starts over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from imitation.algorithms.adversarial import gail as imitation_gail
from imitation.data.rollout import flatten_trajectories
from imitation.rewards.reward_nets import BasicRewardNet
from imitation.util.logger import HierarchicalLogger
from imitation.util.networks import training
from sb3_contrib import MaskablePPO
from stable_baselines3.common.logger import Logger

from abacus.checks import check_integer, check_number
from abacus.sb3 import AbacusVecEnv
from oracle.demos.dataset import Demonstrations
from oracle.demos.learners import trajectories
from oracle.policy import FlatObservations
from pipelines.learning.cloning_data import open_demonstrations
from pipelines.learning.learner import Job, Learner, Trained
from pipelines.learning.policy import AbacusPolicy, LearningRate, new_policy, prepare_torch
from pipelines.learning.settings import Settings
from pipelines.scoring.scores import Evaluation, Evaluator, best_of

#: The trainer wants a folder; nothing can be written to this one.
NOWHERE = os.devnull


@dataclass(frozen=True)
class GailSettings:
    """Hyperparameters of the discriminator; those of the generator are the run's for PPO."""

    #: Transitions of the expert in an update, and as many of the policy.
    batch_size: int = 1024
    #: Updates after each rollout of PPO.
    updates: int = 8
    learning_rate: float = 1e-3
    #: Hidden layers of the discriminator, and the width of each.
    layers: int = 2
    width: int = 256

    def __post_init__(self) -> None:
        check_integer("batch_size", self.batch_size, 1)
        check_integer("updates", self.updates, 1)
        check_number("learning_rate", self.learning_rate, 0, low_open=True)
        check_integer("layers", self.layers, 0)
        check_integer("width", self.width, 1)


class RowsPolicy(AbacusPolicy):
    """The policy of the other learners for observations that are rows."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: LearningRate,
        *,
        abaci: spaces.Dict,
        network: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(abaci, action_space, lr_schedule, network=network, **kwargs)
        self.observation_space = observation_space


class CountedRows(FlatObservations):
    """Wrapper whose observations are rows; also counts the longest run of operations."""

    def __init__(self, abaci: AbacusVecEnv) -> None:
        self.batch = abaci.batch
        self._longest_finished_run = 0
        super().__init__(abaci)

    @property
    def longest_run(self) -> int:
        """Most operations solved in one episode so far."""
        running = self.batch.scalars["operations_solved"]
        return max(self._longest_finished_run, int(running.max()))

    def step_wait(self) -> Any:
        """Wait for the step."""
        step = super().step_wait()
        finished = self.batch.final_scalars[: len(self.batch.ended)]["operations_solved"]
        self._longest_finished_run = max([self._longest_finished_run, *finished.tolist()])
        return step


class ExpertBatches:
    """Transitions of the expert in minibatches, shuffled in each pass.

    All have the same size, which the trainer requires: what is left over is skipped in this pass.
    The library's own loader makes them sample by sample.
    """

    def __init__(self, settings: Settings, demonstrations: Demonstrations, batch_size: int) -> None:
        episodes = trajectories(demonstrations, settings.world.frames, flat=True)
        self.transitions = flatten_trajectories(list(episodes))
        self.batch_size = min(batch_size, len(self.transitions))
        self.rng = np.random.default_rng([settings.seed, 1])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        order = self.rng.permutation(len(self.transitions))
        for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
            chosen = order[start : start + self.batch_size]
            names = ("obs", "acts", "next_obs", "dones")
            yield {name: getattr(self.transitions, name)[chosen] for name in names}


class SilentLogger(HierarchicalLogger):
    """Logger that writes nothing; the library's makes folders."""

    def __init__(self) -> None:
        super().__init__(Logger(None, []), [])

    @contextmanager
    def accumulate_means(self, name: str) -> Iterator[None]:
        """Do nothing: there is no log of raw values."""
        yield


class Gail:
    """A discriminator and the policy that it rewards."""

    def __init__(
        self, settings: Settings, demonstrations: Demonstrations, gail: GailSettings | None = None
    ) -> None:
        self.settings = settings
        gail = GailSettings() if gail is None else gail
        prepare_torch(settings.threads)
        torch.manual_seed(settings.seed)
        # Evaluations keep the world of the settings.
        world = replace(settings.world, on_error="continue")
        self.abaci = AbacusVecEnv(settings.ppo.n_envs, config=world)
        self.env = env = CountedRows(self.abaci)
        self.ppo = self._new_ppo()
        batches: Any = ExpertBatches(settings, demonstrations, gail.batch_size)
        self.updates = gail.updates
        self.trainer = imitation_gail.GAIL(
            demonstrations=batches,
            demo_batch_size=batches.batch_size,
            venv=env,
            gen_algo=self.ppo,
            reward_net=BasicRewardNet(
                env.observation_space, env.action_space, hid_sizes=[gail.width] * gail.layers
            ),
            disc_opt_kwargs={"lr": gail.learning_rate},
            allow_variable_horizon=True,
            custom_logger=SilentLogger(),
            log_dir=NOWHERE,
        )

    def _new_ppo(self) -> MaskablePPO:
        settings, ppo = self.settings, self.settings.ppo
        return MaskablePPO(
            RowsPolicy,
            self.env,
            learning_rate=ppo.learning_rate.start,
            n_steps=ppo.n_steps,
            batch_size=min(ppo.batch_size, ppo.rollout),
            n_epochs=ppo.n_epochs,
            gamma=ppo.gamma,
            gae_lambda=ppo.gae_lambda,
            clip_range=ppo.clip_range,
            ent_coef=ppo.entropy.start,
            vf_coef=ppo.vf_coef,
            max_grad_norm=ppo.max_grad_norm,
            target_kl=ppo.target_kl or None,
            policy_kwargs={"abaci": self.abaci.observation_space, "network": settings.network},
            seed=settings.seed,
            device=settings.device,
        )

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.ppo.num_timesteps

    def round(self) -> None:
        """Collect a rollout, update the policy, then the discriminator."""
        self.trainer.train_gen()
        for _ in range(self.updates):
            with training(self.trainer.reward_train):
                self.trainer.train_disc()

    def policy(self) -> AbacusPolicy:
        """Return a copy of the policy, for observations of the environment."""
        settings = self.settings
        copy = new_policy(settings.network, settings.world.base, settings.world.frames)
        copy.load_state_dict(self.ppo.policy.state_dict())
        return copy


def run_gail(
    settings: Settings,
    demonstrations: Demonstrations,
    evaluate: Callable[[AbacusPolicy, int], Evaluation],
    gail: GailSettings | None = None,
) -> Trained:
    """Train for `settings.n_timesteps` steps, with evaluations."""
    learner = Gail(settings, demonstrations, gail)
    started = time.process_time()
    best = last = learner.policy()
    evaluations, seconds = [evaluate(last, 0)], [0.0]
    while learner.steps < settings.n_timesteps:
        learner.round()
        due = learner.steps // settings.eval_freq > evaluations[-1].step // settings.eval_freq
        if due or learner.steps >= settings.n_timesteps:
            seconds.append(time.process_time() - started)
            last = learner.policy()
            evaluations.append(evaluate(last, learner.steps))
            if evaluations[-1] is best_of(evaluations, alone=False):
                best = last
    return Trained(
        best=best,
        last=last,
        seconds={"gail": seconds[-1]},
        evaluations=evaluations,
        seconds_at_evaluation=seconds,
        longest_training_run=learner.env.longest_run,
        labels=len(demonstrations),
        demonstrated=settings.demo_operations,
        stage_steps={"gail": learner.steps},
    )


def _run_job(job: Job) -> Trained:
    settings = job.settings
    demonstrations = open_demonstrations(settings, lambda line: None)
    return run_gail(settings, demonstrations, Evaluator(settings.world, settings.eval_episodes))


GAIL = Learner(_run_job, {"gail": asdict(GailSettings())})
