"""DAgger with imitation, on a budget of labels: actions of the expert that are learned from.

In each state the expert is asked for an action. In the first round its actions are taken; from
round to round the learner acts in more of the steps. After each round the labels of all rounds are
cloned.

The rounds, the schedule of who acts and the mixing are those of `DAggerTrainer` and
`InteractiveTrajectoryCollector`. Four things differ from imitation 1.0.1:

- Labels stay in memory. The library writes a file per finished episode, and would lose the labels
  of unfinished ones.
- A round is a number of steps. The library's lasts until every environment has ended an episode,
  so that it could not keep a budget, and drops labels of those that ended first.
- Observations carry their action masks. The library knows no masks, and its learner would take
  illegal actions.
- Cloning is `pipelines.learning.cloning`, on distinct observations; the weights are
  initialised in each round.

The schedule was chosen in trials with one seed, which favours DAgger in the study. A learner that
acts in all steps and knows little walks to and fro in front of one observation until the step
budget ends, and spends labels on known observations; the expert's steps lead it further. Mistakes
end the episode: after a mistake, states look like those of the algorithm but need other actions, so
that the most frequent label of an observation could be wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from imitation.algorithms.dagger import (
    DAggerTrainer,
    InteractiveTrajectoryCollector,
    LinearBetaSchedule,
)
from imitation.util.logger import HierarchicalLogger
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper

from abacus.batch import AbacusBatch
from abacus.checks import check_integer
from abacus.rules import Action
from abacus.sb3 import AbacusVecEnv
from oracle.demos.recipe import OPERATIONS_PER_EPISODE
from oracle.policy import ExpertPolicy, Flat, FlatObservations
from pipelines.learning.cloning import Cloning
from pipelines.learning.cloning_data import CloningSet, split_masks
from pipelines.learning.learner import Job, Learner, Trained
from pipelines.learning.policy import AbacusPolicy, new_policy, prepare_torch
from pipelines.learning.settings import Settings

ROUNDS = 10
#: Fewest labels of a round, about those of one operation; a small budget has fewer rounds.
SMALLEST_ROUND = 30
#: Steps of an environment in a round, about those of an episode; fewer with a small budget.
ROUND_STEPS = 300
MOST_ABACI = 256
#: Constants that the result depends on, beside the settings.
CONSTANTS = {
    "rounds": ROUNDS,
    "smallest_round": SMALLEST_ROUND,
    "round_steps": ROUND_STEPS,
    "most_abaci": MOST_ABACI,
}
#: The library wants a folder; nothing can be written to this one.
NOWHERE = os.devnull


@dataclass(frozen=True)
class DaggerResult:
    """Results of DAgger."""

    policy: AbacusPolicy
    labels: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """Environments, and the steps of each of them in every round."""

    abaci: int
    steps: tuple[int, ...]

    @property
    def labels(self) -> int:
        return self.abaci * sum(self.steps)


def plan_rounds(labels: int) -> Plan:
    """Split a budget into rounds of equal size; less than one step of all abaci is left over."""
    check_integer("labels", labels, 1)
    rounds = min(max(labels // SMALLEST_ROUND, 1), ROUNDS)
    abaci = min(max(labels // rounds // ROUND_STEPS, 1), MOST_ABACI)
    ends = [labels * k // (rounds * abaci) for k in range(rounds + 1)]
    return Plan(abaci, tuple(np.diff(ends).tolist()))


class Labels:
    """Actions of the expert, with the observations and action masks that they belong to."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, batch: AbacusBatch, actions: npt.NDArray[np.integer]) -> None:
        """Append a label for the present state of each abacus."""
        columns = {
            "history": batch.history,
            "symbol": batch.scalars["symbol"],
            "operation": batch.scalars["operation"],
            "action": actions,
            "mask": np.packbits(batch.masks, axis=1, bitorder="little")[:, 0],
        }
        for name, values in columns.items():
            self._columns.setdefault(name, []).append(values.copy())
        self._count += len(actions)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all labels, in the order in which they were added."""
        return {name: np.concatenate(parts) for name, parts in self._columns.items()}

    def cloning_set(self) -> CloningSet:
        """Return the distinct observations of the labels."""
        return CloningSet.from_transitions(self.base, *self.columns().values())


class RowsWithMasks(VecEnvWrapper):
    """Wrapper whose observations are rows with the action masks appended, as for `split_masks`.

    A mask stays with its observation when the collector asks the learner about some environments
    only. Final observations have no mask; they are not labelled.
    """

    def __init__(self, abaci: AbacusVecEnv) -> None:
        rows = FlatObservations(abaci)
        assert rows.observation_space.shape is not None
        length = rows.observation_space.shape[0] + len(Action)
        super().__init__(rows, spaces.Box(0.0, 1.0, (length,), np.float32))
        self.rows = rows
        self.abaci = abaci

    def reset(self) -> Flat:
        """Reset all environments."""
        return self._with_masks(self.rows.reset())

    def step_wait(
        self,
    ) -> tuple[Flat, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Wait for the step."""
        rows, rewards, dones, infos = self.rows.step_wait()
        return self._with_masks(rows), rewards, dones, infos

    def _with_masks(self, rows: Flat) -> Flat:
        return np.concatenate([rows, self.abaci.action_masks().astype(np.float32)], axis=1)


class LabelCollector(InteractiveTrajectoryCollector):
    """Collector that keeps the expert's action of every step as a label."""

    def __init__(
        self,
        env: RowsWithMasks,
        get_robot_acts: Callable[[Flat], npt.NDArray[np.int64]],
        beta: float,
        rng: np.random.Generator,
        labels: Labels,
    ) -> None:
        super().__init__(env, get_robot_acts, beta, NOWHERE, rng)
        self.labels = labels
        self.batch = env.abaci.batch

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Keep the expert's actions, then take them or those of the learner."""
        self.labels.add(self.batch, actions)
        super().step_async(actions)

    def step_wait(self) -> Any:
        """Wait for the step; unlike the library, save nothing when an episode ends."""
        step = self.venv.step_wait()
        self._last_obs = step[0]  # type: ignore[assignment]
        return step


class RoundCloner:
    """Replaces the BC of `DAggerTrainer` by a complete `Cloning` in each round."""

    def __init__(self, env: RowsWithMasks, policy: AbacusPolicy, settings: Settings) -> None:
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.policy = policy
        self.settings = settings
        self.logger: Any = None
        self.data: CloningSet | None = None

    def set_demonstrations(self, data: CloningSet) -> None:
        """Set what the next `train` clones."""
        self.data = data

    def train(self, **_: Any) -> None:
        """Clone from random weights, as long as the settings say."""
        assert self.data is not None
        self.policy.load_state_dict(initial_policy(self.settings).state_dict())
        logger = Logger(None, [])
        settings = self.settings
        Cloning(self.policy, self.data, settings.cloning, settings.seed, logger).run()


def initial_policy(settings: Settings) -> AbacusPolicy:
    """Return an untrained policy, the same for the same seed."""
    torch.manual_seed(settings.seed)
    world = settings.world
    return new_policy(settings.network, world.base, world.frames).to(settings.device)


class Dagger(DAggerTrainer):
    """Rounds of collecting labels and cloning."""

    bc_trainer: RoundCloner  # type: ignore[assignment]

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self.settings = settings
        self.labels = Labels(settings.world.base)
        # Episodes are as long as those of demonstrations.
        world = replace(settings.world, max_operations=OPERATIONS_PER_EPISODE)
        self.env = env = RowsWithMasks(AbacusVecEnv(plan.abaci, config=world))
        self.expert = ExpertPolicy(env.rows)
        super().__init__(
            venv=env,
            scratch_dir=NOWHERE,
            rng=np.random.default_rng(settings.seed),
            beta_schedule=LinearBetaSchedule(len(plan.steps)),
            bc_trainer=RoundCloner(env, initial_policy(settings), settings),  # type: ignore[arg-type]
            custom_logger=HierarchicalLogger(Logger(None, []), []),
        )

    def create_trajectory_collector(self) -> LabelCollector:
        """Return the collector of this round."""
        return LabelCollector(
            self.env,
            self._learner_actions,
            self.beta_schedule(self.round_num),
            self.rng,
            self.labels,
        )

    def round(self, steps: int) -> None:
        """Collect labels for a number of steps, then clone all labels so far."""
        collector = self.create_trajectory_collector()
        collector.seed(round_seed(self.settings.seed, self.round_num))
        observation: Any = collector.reset()
        for _ in range(steps):
            actions, _ = self.expert.predict(observation[:, : -len(Action)])
            observation = collector.step(actions)[0]
        self.extend_and_update()

    def _try_load_demos(self) -> None:
        self.bc_trainer.set_demonstrations(self.labels.cloning_set())

    def _learner_actions(self, rows_and_masks: Flat) -> npt.NDArray[np.int64]:
        """Return the greedy legal actions of the learner."""
        policy = self.bc_trainer.policy
        rows, masks = split_masks(torch.from_numpy(rows_and_masks).to(policy.device))
        with torch.no_grad():
            actions: npt.NDArray[np.int64] = policy.log_probs(rows, masks).argmax(dim=1).numpy()
        return actions


def round_seed(seed: int, number: int) -> int:
    """Return the seed of the environments in a round, far from other rounds and evaluations."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def run_dagger(settings: Settings, labels: int) -> DaggerResult:
    """Train with at most `labels` labels."""
    started = time.perf_counter()
    prepare_torch(settings.threads)
    plan = plan_rounds(labels)
    dagger = Dagger(settings, plan)
    for steps in plan.steps:
        dagger.round(steps)
    seconds = time.perf_counter() - started
    return DaggerResult(dagger.bc_trainer.policy, len(dagger.labels), seconds)


def _run_job(job: Job) -> Trained:
    result = run_dagger(job.settings, job.labels)
    seconds = {"cloning": result.seconds}
    return Trained(result.policy, result.policy, seconds, labels=result.labels)


DAGGER = Learner(_run_job, {"dagger": CONSTANTS})
