"""DAgger by imitation, paid in labels: a label is an answer of the teacher that is learned from.

In each state the teacher says what it would do. In the first round it also acts; from round to
round the learner acts in more of the steps. After a round the labels of all rounds are cloned.

The rounds, the schedule of who acts, and the mixing of both are `DAggerTrainer`'s and
`InteractiveTrajectoryCollector`'s. Four things take another way than in imitation 1.0.1:

- Labels stay in memory. The library writes a file for each episode when it ends, and knows an
  unfinished one not at all: the answers in it were asked for and would be lost.
- A round is a number of steps. The library's goes on until every abacus has ended an episode, so
  that a budget could not be kept, and drops the answers given to those that ended first.
- What is legal goes with every observation: the library knows no masks, and its learner would take
  illegal actions.
- The cloning is `pipelines.learning.cloning`, from distinct observations, with an early stop; the
  weights start anew in each round.

Who acts was chosen by trials with one seed, and the study's figures favour it by that. A learner
that acts in all steps and knows little runs to and fro in front of one observation until the steps
are used up, and labels are spent on what is known; the teacher's steps between take it on. Mistakes
end the episode: after one that does not, states look like those of the algorithm and ask for
something else, and the most frequent answer to an observation can be a wrong one.
"""

from __future__ import annotations

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
from abacus.rules import AbacusConfig, Action
from abacus.sb3 import AbacusVecEnv
from oracle.demos.recipe import OPERATIONS_PER_EPISODE
from oracle.demos.schema import SPLIT_EVERY, SPLIT_FIRST
from oracle.policy import ExpertPolicy, Flat, FlatObservations
from pipelines.learning.cloning import Cloning
from pipelines.learning.cloning_data import CloningSet, distinct_observations, split_masks
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.settings import Settings
from pipelines.scoring.scores import Evaluation

ROUNDS = 10
#: A round has at least about the labels of one operation, so that few labels make few rounds.
SMALLEST_ROUND = 30
#: Steps of an abacus in a round, about those of an episode; few labels make shorter ones.
ROUND_STEPS = 300
MOST_ABACI = 256
#: What a run depends on beside its settings.
CONSTANTS = {
    "rounds": ROUNDS,
    "smallest_round": SMALLEST_ROUND,
    "round_steps": ROUND_STEPS,
    "most_abaci": MOST_ABACI,
}
#: Nothing is written, and whatever tried to would fail there.
NOWHERE = "/dev/null"

Evaluate = Callable[[AbacusPolicy, int], Evaluation]


@dataclass(frozen=True)
class DaggerRound:
    """A round of labels and the policy that was cloned after it."""

    #: Of this round and all before it.
    labels: int
    #: Distinct among them, held-out ones apart.
    observations: int
    #: The step of it is the number of labels; None where nobody asked for one.
    evaluation: Evaluation | None


@dataclass(frozen=True)
class DaggerOutcome:
    """What came of a budget of labels."""

    policy: AbacusPolicy
    #: Labels that were used, at most those allowed.
    labels: int
    rounds: list[DaggerRound]
    #: Of collecting and cloning; evaluations are not counted.
    seconds: float


@dataclass(frozen=True)
class Plan:
    """How a budget of labels is spent."""

    abaci: int
    #: Of each abacus in each round.
    steps: tuple[int, ...]

    @property
    def labels(self) -> int:
        return self.abaci * sum(self.steps)


def planned(labels: int) -> Plan:
    """Rounds of the same number of labels; of the budget, less than a step of all is left over."""
    if labels < 1:
        raise ValueError(f"labels={labels!r} is not allowed: give 1 or more")
    rounds = min(max(labels // SMALLEST_ROUND, 1), ROUNDS)
    abaci = min(max(labels // rounds // ROUND_STEPS, 1), MOST_ABACI)
    ends = [labels * k // (rounds * abaci) for k in range(rounds + 1)]
    return Plan(abaci, tuple(np.diff(ends).tolist()))


class Labels:
    """The answers of the teacher, each with what the abacus showed and what was legal."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self,
        batch: AbacusBatch,
        answers: npt.NDArray[np.integer],
        episodes: npt.NDArray[np.integer],
    ) -> None:
        """An answer for each abacus, as it stands."""
        columns = {
            "history": batch.history,
            "symbol": batch.scalars["symbol"],
            "operation": batch.scalars["operation"],
            "action": answers,
            "mask": np.packbits(batch.masks, axis=1, bitorder="little")[:, 0],
            "episode": episodes,
        }
        for name, values in columns.items():
            self._columns.setdefault(name, []).append(values.copy())
        self._count += len(answers)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """All labels, in the order in which they were given."""
        return {name: np.concatenate(parts) for name, parts in self._columns.items()}

    def sets(self) -> tuple[CloningSet, CloningSet | None]:
        """What is cloned, and what is held out: the episodes that demonstrations hold out too."""
        columns = self.columns()
        held_out = columns["episode"] % SPLIT_EVERY == SPLIT_FIRST
        return self._distinct(columns, ~held_out), (
            self._distinct(columns, held_out) if held_out.any() else None
        )

    def _distinct(
        self, columns: dict[str, npt.NDArray[Any]], which: npt.NDArray[np.bool_]
    ) -> CloningSet:
        names = ("history", "symbol", "operation", "action", "mask")
        return distinct_observations(self.base, *(columns[name][which] for name in names))


class RowsWithMasks(VecEnvWrapper):
    """Observations as rows with what is legal behind them, as `split_masks` takes them.

    So a mask stays with its abacus where the collector asks the learner about some of them alone.
    What an episode showed last has no mask, and is not labelled.
    """

    def __init__(self, abaci: AbacusVecEnv) -> None:
        rows = FlatObservations(abaci)
        assert rows.observation_space.shape is not None
        length = rows.observation_space.shape[0] + len(Action)
        super().__init__(rows, spaces.Box(0.0, 1.0, (length,), np.float32))
        self.rows = rows
        self.abaci = abaci

    def reset(self) -> Flat:
        """Starts an episode in every abacus."""
        return self._with_masks(self.rows.reset())

    def step_wait(
        self,
    ) -> tuple[Flat, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """One action in every abacus."""
        rows, rewards, dones, infos = self.rows.step_wait()
        return self._with_masks(rows), rewards, dones, infos

    def _with_masks(self, rows: Flat) -> Flat:
        return np.concatenate([rows, self.abaci.action_masks().astype(np.float32)], axis=1)


class LabelCollector(InteractiveTrajectoryCollector):
    """Keeps every answer that it is given as a label, whoever acts."""

    def __init__(
        self,
        env: RowsWithMasks,
        get_robot_acts: Callable[[Flat], npt.NDArray[np.int64]],
        beta: float,
        rng: np.random.Generator,
        labels: Labels,
        first_episode: int,
    ) -> None:
        super().__init__(env, get_robot_acts, beta, NOWHERE, rng)
        self.labels = labels
        self.batch = env.abaci.batch
        self.episodes = first_episode + np.arange(self.num_envs)
        self.next_episode = first_episode + self.num_envs

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Keeps the teacher's actions; in the abaci they or the learner's are taken."""
        self.labels.add(self.batch, actions, self.episodes)
        super().step_async(actions)

    def step_wait(self) -> Any:
        """One action in every abacus; nothing is saved when an episode ends."""
        step = self.venv.step_wait()
        self._last_obs = step[0]  # type: ignore[assignment]
        ended = np.flatnonzero(step[2])
        self.episodes[ended] = self.next_episode + np.arange(len(ended))
        self.next_episode += len(ended)
        return step


class RoundCloner:
    """What `DAggerTrainer` asks of its BC, done by `Cloning`: a whole cloning for each round."""

    def __init__(self, env: RowsWithMasks, policy: AbacusPolicy, settings: Settings) -> None:
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.policy = policy
        self.settings = settings
        self.logger: Any = None
        self.sets: tuple[CloningSet, CloningSet | None] | None = None

    def set_demonstrations(self, sets: tuple[CloningSet, CloningSet | None]) -> None:
        """What the next `train` clones."""
        self.sets = sets

    def train(self, **_: Any) -> None:
        """Clones from the start; how long is decided by the settings, not by the trainer."""
        assert self.sets is not None
        self.policy.load_state_dict(fresh_policy(self.settings).state_dict())
        Cloning(
            self.policy,
            *self.sets,
            self.settings.cloning(),
            self.settings.seed,
            Logger(None, []),
        ).run()


def fresh_policy(settings: Settings) -> AbacusPolicy:
    """As it is before any training; the same for the same seed."""
    torch.manual_seed(settings.seed)
    return new_policy(settings.network, settings.base, settings.frames).to(settings.device)


class Dagger(DAggerTrainer):
    """Rounds of collecting and cloning on the abaci of one environment."""

    bc_trainer: RoundCloner  # type: ignore[assignment]

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self.settings = settings
        self.labels = Labels(settings.base)
        self.episodes = 0
        self.env = env = RowsWithMasks(AbacusVecEnv(plan.abaci, config=lesson_world(settings)))
        self.teacher = ExpertPolicy(env.rows)
        super().__init__(
            venv=env,
            scratch_dir=NOWHERE,
            rng=np.random.default_rng(settings.seed),
            beta_schedule=LinearBetaSchedule(len(plan.steps)),
            bc_trainer=RoundCloner(env, fresh_policy(settings), settings),  # type: ignore[arg-type]
            custom_logger=HierarchicalLogger(Logger(None, []), []),
        )

    def create_trajectory_collector(self) -> LabelCollector:
        """The collector of this round."""
        return LabelCollector(
            self.env,
            self._learner_actions,
            self.beta_schedule(self.round_num),
            self.rng,
            self.labels,
            self.episodes,
        )

    def round(self, steps: int) -> None:
        """Asks for so many labels in every abacus, then clones all labels there are."""
        collector = self.create_trajectory_collector()
        collector.seed(round_seed(self.settings.seed, self.round_num))
        observation: Any = collector.reset()
        for _ in range(steps):
            answers, _ = self.teacher.predict(observation[:, : -len(Action)])
            observation = collector.step(answers)[0]
        self.episodes = collector.next_episode
        self.extend_and_update()

    def _try_load_demos(self) -> None:
        self.bc_trainer.set_demonstrations(self.labels.sets())

    def _learner_actions(self, rows_and_masks: Flat) -> npt.NDArray[np.int64]:
        """What the learner does: the best of what is legal."""
        policy = self.bc_trainer.policy
        rows, masks = split_masks(torch.from_numpy(rows_and_masks).to(policy.device))
        with torch.no_grad():
            actions: npt.NDArray[np.int64] = policy.log_probs(rows, masks).argmax(dim=1).numpy()
        return actions


def lesson_world(settings: Settings) -> AbacusConfig:
    """The abacus on which labels are collected: episodes as long as the demonstrated ones."""
    return replace(settings.world(), max_operations=OPERATIONS_PER_EPISODE)


def round_seed(seed: int, number: int) -> int:
    """The seed of the abaci in a round, far from those of other rounds and of evaluations."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def run_dagger(settings: Settings, labels: int, evaluate: Evaluate | None = None) -> DaggerOutcome:
    """DAgger with at most so many labels; settings are settled ones.

    `evaluate` is called with the policy and the labels so far after each round, as an `Evaluator`.
    """
    torch.set_num_threads(settings.threads)
    plan = planned(labels)
    dagger = Dagger(settings, plan)
    rounds: list[DaggerRound] = []
    seconds = 0.0
    for steps in plan.steps:
        started = time.perf_counter()
        dagger.round(steps)
        seconds += time.perf_counter() - started
        policy, used = dagger.bc_trainer.policy, len(dagger.labels)
        assert dagger.bc_trainer.sets is not None
        evaluation = None if evaluate is None else evaluate(policy, used)
        rounds.append(DaggerRound(used, len(dagger.bc_trainer.sets[0]), evaluation))
    return DaggerOutcome(dagger.bc_trainer.policy, len(dagger.labels), rounds, seconds)
