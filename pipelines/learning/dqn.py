"""DQN on the batched abacus, with or without action masks.

The algorithm and its loops are Stable-Baselines3's. Action masks are part of the observations: a
row holds the inputs of the actor, then the mask, and the Q-network gives illegal actions a value
below all others. Greedy actions are then legal, and so are those of the target, because the replay
buffer stores the masks with the rows. Random actions are drawn here: the library draws them from
all eight actions, and for all environments at the same steps. Without masks, all actions are marked
as legal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecEnvWrapper
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork

from abacus.rules import ENCODING_PERIOD, AbacusConfig, Action
from abacus.sb3 import AbacusVecEnv
from pipelines.learning.inference import RowLayout
from pipelines.learning.learner import Job, Learner, Trained
from pipelines.learning.networks import CompactNetwork
from pipelines.learning.policy import MASKED_LOGIT, AbacusPolicy, new_policy, prepare_torch
from pipelines.learning.settings import DqnSettings, Settings
from pipelines.scoring.scores import Evaluation, Evaluator, best_of

#: Inputs of the actor are multiples of 1 / SCALE, so that bytes hold them exactly.
SCALE = ENCODING_PERIOD + 1
#: Factor from Q-values to logits, which keeps them far below the bound of the logits, where
#: different values would become equal. A power of two, so that nothing is rounded.
LOGITS_PER_VALUE = 2.0**-6
#: Disables the log of the library.
NEVER = 10**9

Rows = npt.NDArray[np.uint8]
Evaluate = Callable[[AbacusPolicy, int], Evaluation]


@dataclass(frozen=True)
class DqnResult:
    """Results of a training with DQN.

    The logits of the policies rank the actions as the Q-network does; their probabilities have no
    meaning.
    """

    #: The policy with the best evaluation, and the one at the end of the training.
    best: AbacusPolicy
    last: AbacusPolicy
    evaluations: list[Evaluation]
    #: Processor time at the start of each evaluation, including the evaluations before it.
    seconds_at_evaluation: list[float]
    longest_training_run: int
    illegal_actions: int


class RowsVecEnv(VecEnvWrapper):
    """Wrapper whose observations are rows of bytes: inputs of the actor times SCALE, then the mask.

    The previous action is left out, because the actor does not read it. Also counts illegal actions
    and the longest run of operations.
    """

    venv: AbacusVecEnv

    def __init__(self, abaci: AbacusVecEnv, *, masked: bool) -> None:
        self.masked = masked
        self.layout = RowLayout(abaci.config.base, abaci.config.frames)
        self.illegal_actions = 0
        self._longest_finished_run = 0
        length = self.layout.actor + len(Action)
        super().__init__(abaci, spaces.Box(0, SCALE, (length,), np.uint8))

    @property
    def longest_run(self) -> int:
        """Most operations solved in one episode so far."""
        running = self.venv.batch.scalars["operations_solved"]
        return max(self._longest_finished_run, int(running.max()))

    def reset(self) -> Rows:
        """Reset all environments."""
        self.venv.reset()
        return self._rows(self.venv.batch.out.rows, self.venv.batch.masks)

    def step_wait(self) -> tuple[Rows, npt.NDArray[np.float32], npt.NDArray[np.bool_], Any]:
        """Wait for the step; final observations hold the mask of the final state."""
        _, rewards, dones, infos = self.venv.step_wait()
        batch = self.venv.batch
        self.illegal_actions += int(batch.illegal.sum())
        count = len(batch.ended)
        if count:
            longest = int(batch.final_scalars[:count]["operations_solved"].max())
            self._longest_finished_run = max(self._longest_finished_run, longest)
            finals = self._rows(batch.out.final_rows[:count], batch.final_masks[:count])
            for i, row in zip(batch.ended.tolist(), finals, strict=True):
                infos[i]["terminal_observation"] = row
        return self._rows(batch.out.rows, batch.masks), rewards, dones, infos

    def _rows(self, seen: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]) -> Rows:
        inputs = self.layout.actor
        rows = np.ones((len(seen), inputs + len(Action)), np.uint8)
        np.multiply(seen[:, :inputs], SCALE, out=rows[:, :inputs], casting="unsafe")
        if self.masked:
            rows[:, inputs:] = masks
        return rows


class ActorInputs(BaseFeaturesExtractor):
    """Restores the inputs of the actor from rows of bytes."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, observation_space.shape[0] - len(Action))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[:, : self.features_dim] / SCALE


class MaskedQNetwork(QNetwork):
    """Q-network in which illegal actions have a value below all others."""

    def forward(self, obs: Any) -> torch.Tensor:
        values: torch.Tensor = super().forward(obs)
        return values.masked_fill(obs[:, -len(Action) :] == 0, MASKED_LOGIT)


class RowsPolicy(DQNPolicy):
    """The library's policy with a masked Q-network and a masked target network."""

    def make_q_net(self) -> QNetwork:
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return MaskedQNetwork(**arguments).to(self.device)


class SeededReplayBuffer(ReplayBuffer):
    """The library's replay buffer with a random generator of its own.

    The library samples with NumPy's global generator, which other code may use between updates.
    """

    def __init__(self, *args: Any, seed: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rng = np.random.default_rng([seed, 1])

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """Sample transitions with replacement; a truncated episode is not a terminated one."""
        drawn = self.rng.integers(self.size() * self.n_envs, size=batch_size)
        indices = np.divmod(drawn, self.n_envs)
        terminated = self.dones[indices] * (1 - self.timeouts[indices])
        parts = (
            self.observations[indices],
            self.actions[indices],
            self.next_observations[indices],
            terminated[:, None],
            self.rewards[indices][:, None],
        )
        return ReplayBufferSamples(*(self.to_torch(part, copy=False) for part in parts))


class AbacusDQN(DQN):
    """DQN for `RowsVecEnv`."""

    def __init__(self, env: RowsVecEnv, settings: DqnSettings, seed: int, device: str) -> None:
        self.rng = np.random.default_rng([seed, 0])
        super().__init__(
            RowsPolicy,
            env,
            learning_rate=settings.learning_rate,
            buffer_size=settings.buffer_size,
            learning_starts=settings.learning_starts,
            batch_size=settings.batch_size,
            gamma=settings.gamma,
            train_freq=settings.train_freq // settings.n_envs,
            gradient_steps=settings.gradient_steps,
            replay_buffer_class=SeededReplayBuffer,
            replay_buffer_kwargs={"seed": seed},
            target_update_interval=settings.target_update_interval,
            exploration_fraction=settings.exploration_fraction,
            exploration_final_eps=settings.exploration_final_eps,
            max_grad_norm=settings.max_grad_norm,
            policy_kwargs={
                "net_arch": list(CompactNetwork.ACTOR),
                "features_extractor_class": ActorInputs,
                # Faster for small networks, as in `AbacusPolicy`.
                "optimizer_kwargs": {"fused": True},
            },
            seed=seed,
            device=device,
        )

    def predict(  # type: ignore[override]
        self,
        observation: Rows,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[np.int64], Any]:
        """Return actions: greedy, or with the present exploration rate."""
        rate = 0.0 if deterministic else self.exploration_rate
        return self._actions(observation, rate), state

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        rate = 1.0 if self.num_timesteps < learning_starts else self.exploration_rate
        assert isinstance(self._last_obs, np.ndarray)
        actions = self._actions(self._last_obs, rate)
        return actions, actions

    def _actions(self, rows: Rows, rate: float) -> npt.NDArray[np.int64]:
        """Return greedy actions, replaced by random legal ones at the exploration rate."""
        actions: npt.NDArray[np.int64] = self.policy.predict(rows, deterministic=True)[0]
        if rate > 0:
            explores = self.rng.random(len(rows)) < rate
            scores = self.rng.random((len(rows), len(Action))) + 1
            random_actions = (rows[:, -len(Action) :] * scores).argmax(axis=1)
            actions = np.where(explores, random_actions, actions)
        return actions


def greedy_policy(model: AbacusDQN, config: AbacusConfig) -> AbacusPolicy:
    """Return a compact policy with the greedy actions of the model."""
    policy = new_policy("compact", config.base, config.frames)
    assert isinstance(policy.network, CompactNetwork)
    weights = model.q_net.q_net.state_dict()
    policy.network.actor.load_state_dict(weights)
    last = policy.network.actor[-1]
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(LOGITS_PER_VALUE)
    return policy


def run_dqn(
    settings: Settings,
    masked: bool,
    evaluate: Evaluate,
    dqn: DqnSettings | None = None,
) -> DqnResult:
    """Train for `settings.n_timesteps` steps in `settings.world`, with evaluations.

    Of the settings, the world, `seed`, `device`, `threads`, `n_timesteps` and `eval_freq` are used;
    the hyperparameters are those of `dqn`.
    """
    if dqn is None:
        dqn = DqnSettings()
    prepare_torch(settings.threads)
    env = RowsVecEnv(AbacusVecEnv(dqn.n_envs, config=settings.world), masked=masked)
    model = AbacusDQN(env, dqn, settings.seed, settings.device)
    # Without a logger, the library makes a folder for its own.
    model.set_logger(Logger(None, []))
    evaluations = _EvaluationCallback(settings, evaluate)
    model.learn(settings.n_timesteps, callback=evaluations, log_interval=NEVER)
    return DqnResult(
        best=evaluations.best,
        last=evaluations.last,
        evaluations=evaluations.evaluations,
        seconds_at_evaluation=evaluations.seconds,
        longest_training_run=env.longest_run,
        illegal_actions=env.illegal_actions,
    )


class _EvaluationCallback(BaseCallback):
    """Evaluates at the start, every `eval_freq` steps and at the end; keeps the best policy."""

    model: AbacusDQN
    best: AbacusPolicy
    last: AbacusPolicy

    def __init__(self, settings: Settings, evaluate: Evaluate) -> None:
        super().__init__()
        self.settings = settings
        self.evaluate = evaluate
        self.evaluations: list[Evaluation] = []
        self.seconds: list[float] = []

    def _on_training_start(self) -> None:
        self._started = time.process_time()
        self._evaluate(0)

    def _on_rollout_start(self) -> None:
        step, last, frequency = self._step, self.evaluations[-1].step, self.settings.eval_freq
        if step // frequency > last // frequency:
            self._evaluate(step)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._step > self.evaluations[-1].step:
            self._evaluate(self._step)

    @property
    def _step(self) -> int:
        return self.model.num_timesteps

    def _evaluate(self, step: int) -> None:
        self.seconds.append(time.process_time() - self._started)
        self.last = greedy_policy(self.model, self.settings.world)
        self.evaluations.append(self.evaluate(self.last, step))
        if self.evaluations[-1] is best_of(self.evaluations, alone=True):
            self.best = self.last


def _run_job(job: Job, masked: bool) -> Trained:
    evaluator = Evaluator(job.settings.world, job.settings.eval_episodes)
    result = run_dqn(job.settings, masked, evaluator)
    return Trained(
        best=result.best,
        last=result.last,
        seconds={"dqn": result.seconds_at_evaluation[-1]},
        evaluations=result.evaluations,
        seconds_at_evaluation=result.seconds_at_evaluation,
        longest_training_run=result.longest_training_run,
        stage_steps={"dqn": result.evaluations[-1].step},
    )


MASKED = Learner(partial(_run_job, masked=True), {"dqn": asdict(DqnSettings())})
UNMASKED = Learner(partial(_run_job, masked=False), MASKED.settings)
