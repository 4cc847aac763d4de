"""DQN on the batched abacus, with illegal actions masked or without masks anywhere.

The algorithm is Stable-Baselines3's, and its loops are left as they are. Masks reach them inside
the observations: a row holds what the actor reads, then the legal actions, and the Q-network gives
an illegal action a value that no maximum picks. What is greedy is then legal, and so is the maximum
of the target, because the replay memory keeps the masks with the rows. Only the random actions are
drawn here: the library draws them from all eight, and for all abaci at the same steps. Without
masks every action is written down as legal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
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
from pipelines.learning.networks import CompactNetwork, RowLayout
from pipelines.learning.policy import MASKED_LOGIT, AbacusPolicy, new_policy
from pipelines.learning.settings import DqnSettings, Settings
from pipelines.scoring.scores import Evaluation

#: Every number that the actor reads is a multiple of 1 / PARTS, so that a byte holds it exactly.
PARTS = ENCODING_PERIOD + 1
#: Q-values become logits by this factor: far from the logits' bound, where values that differ would
#: become equal. A power of two, so that nothing is rounded.
LOGITS_PER_VALUE = 2.0**-6
#: Episodes between two lines of the log.
LOG_INTERVAL = 1000

Rows = npt.NDArray[np.uint8]
Evaluate = Callable[[AbacusPolicy, int], Evaluation]


@dataclass(frozen=True)
class DqnOutcome:
    """What came of a run."""

    #: The policy with the best evaluation, and the one that the training ended with. Greedy: their
    #: logits order the actions as the Q-network does, their probabilities mean nothing.
    best: AbacusPolicy
    last: AbacusPolicy
    evaluations: list[Evaluation]
    #: By the processor's clock when each evaluation began, those before it included.
    seconds_at_evaluation: list[float]
    longest_training_run: int
    illegal_actions: int


class RowsVecEnv(VecEnvWrapper):
    """Abaci that show one row of bytes each: what the actor reads, times PARTS, then the mask.

    The previous action is left out, as the actor does not read it. Without masks all actions are
    shown as legal. It also counts what a run reports.
    """

    venv: AbacusVecEnv

    def __init__(self, abaci: AbacusVecEnv, *, masked: bool) -> None:
        self.masked = masked
        self.layout = RowLayout(abaci.config.base, abaci.config.frames)
        #: Illegal actions so far.
        self.illegal_actions = 0
        self._longest_finished_run = 0
        length = self.layout.actor + len(Action)
        super().__init__(abaci, spaces.Box(0, PARTS, (length,), np.uint8))

    @property
    def longest_run(self) -> int:
        """The longest run of operations solved in an episode so far."""
        running = self.venv.batch.scalars["operations_solved"]
        return max(self._longest_finished_run, int(running.max()))

    def reset(self) -> Rows:
        """Starts an episode in every abacus."""
        self.venv.reset()
        return self._shown()

    def step_wait(self) -> tuple[Rows, npt.NDArray[np.float32], npt.NDArray[np.bool_], Any]:
        """One action in every abacus."""
        _, rewards, dones, infos = self.venv.step_wait()
        batch = self.venv.batch
        self.illegal_actions += int(batch.illegal.sum())
        ended = batch.ended
        if len(ended):
            finals = batch.final_scalars[: len(ended)]
            last_run = int(finals["operations_solved"].max())
            self._longest_finished_run = max(self._longest_finished_run, last_run)
            for i, row in zip(ended.tolist(), self._shown_last(), strict=True):
                infos[i]["terminal_observation"] = row
        return self._shown(), rewards, dones, infos

    def _shown(self) -> Rows:
        batch = self.venv.batch
        return self._rows(batch.out.seen, batch.masks)

    def _shown_last(self) -> Rows:
        """Of the abaci that have ended.

        The target of a truncated episode looks at what could have been done next. The masks of
        the environment are those of the next episode by then, hence these.
        """
        batch = self.venv.batch
        count = len(batch.ended)
        seen = batch.out.final_seen[:count]
        return self._rows(seen, legal_actions(batch.final_scalars[:count], seen, batch.config))

    def _rows(self, seen: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]) -> Rows:
        read = self.layout.actor
        rows = np.ones((len(seen), read + len(Action)), np.uint8)
        np.multiply(seen[:, :read], PARTS, out=rows[:, :read], casting="unsafe")
        if self.masked:
            rows[:, read:] = masks
        return rows


def legal_actions(
    scalars: npt.NDArray[np.void], seen: npt.NDArray[np.float32], config: AbacusConfig
) -> npt.NDArray[np.bool_]:
    """(N, 8): the legal actions of abaci that are gone, from their records and what they showed."""
    layout = RowLayout(config.base, config.frames)
    window = seen[:, : layout.window].reshape(-1, *layout.volume)
    finger_row = scalars["finger_row"].astype(np.intp)
    # On the newest frame: in the finger's column, below the top row, a gap where the digit is.
    bead_at_finger = window[np.arange(len(seen)), -1, 0, 1, 1 + finger_row] > 0
    legal = np.ones((len(seen), len(Action)), np.bool_)
    legal[:, Action.LEFT] = scalars["finger_column"] > 0
    legal[:, Action.RIGHT] = scalars["finger_column"] < config.columns - 1
    legal[:, Action.UP] = finger_row > 0
    legal[:, Action.DOWN] = finger_row < config.base - 1
    legal[:, Action.SIGNPOST_LEFT] = scalars["signpost"] > 0
    legal[:, Action.SIGNPOST_RIGHT] = scalars["signpost"] < config.columns - 1
    legal[:, Action.SLIDE] = bead_at_finger
    return legal


class ReadPart(BaseFeaturesExtractor):
    """Of a row, what the actor reads, as the environment gives it."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, observation_space.shape[0] - len(Action))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[:, : self.features_dim] / PARTS


class MaskedQNetwork(QNetwork):
    """Q-values of rows; an action that the row's mask forbids is below all others."""

    def forward(self, obs: Any) -> torch.Tensor:
        values: torch.Tensor = super().forward(obs)
        return values.masked_fill(obs[:, -len(Action) :] == 0, MASKED_LOGIT)


class RowsPolicy(DQNPolicy):
    """The library's policy with that network, twice: the one that learns and the target's."""

    def make_q_net(self) -> QNetwork:
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return MaskedQNetwork(**arguments).to(self.device)


class Replay(ReplayBuffer):
    """The library's memory, sampled by a generator of its own.

    The library draws from NumPy's global one, which anybody may use between two updates.
    """

    def __init__(self, *args: Any, seed: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rng = np.random.default_rng([seed, 1])

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """Transitions drawn with replacement; only a truncated one counts as going on."""
        drawn = self.rng.integers(self.size() * self.n_envs, size=batch_size)
        which = np.divmod(drawn, self.n_envs)
        terminated = self.dones[which] * (1 - self.timeouts[which])
        parts = (
            self.observations[which],
            self.actions[which],
            self.next_observations[which],
            terminated[:, None],
            self.rewards[which][:, None],
        )
        return ReplayBufferSamples(*(self.to_torch(part, copy=False) for part in parts))


class AbacusDQN(DQN):
    """DQN for `RowsVecEnv`; see the module."""

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
            replay_buffer_class=Replay,
            replay_buffer_kwargs={"seed": seed},
            target_update_interval=settings.target_update_interval,
            exploration_fraction=settings.exploration_fraction,
            exploration_final_eps=settings.exploration_final_eps,
            max_grad_norm=settings.max_grad_norm,
            policy_kwargs={
                "net_arch": list(CompactNetwork.ACTOR),
                "features_extractor_class": ReadPart,
                # As in `AbacusPolicy`: one kernel for the whole step of a small network.
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
        """Actions of many rows: greedy, or with the random ones of the training."""
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
        """Greedy actions; in so many of the rows a random one of those that the row allows."""
        actions: npt.NDArray[np.int64] = self.policy.predict(rows, deterministic=True)[0]
        if rate > 0:
            explores = self.rng.random(len(rows)) < rate
            lots = self.rng.random((len(rows), len(Action))) + 1
            anything = (rows[:, -len(Action) :] * lots).argmax(axis=1)
            actions = np.where(explores, anything, actions)
        return actions


def greedy_policy(model: AbacusDQN, config: AbacusConfig) -> AbacusPolicy:
    """A policy of the compact network whose greedy actions are the model's as it is now."""
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
    logger: Logger | None = None,
) -> DqnOutcome:
    """Learns `settings.n_timesteps` steps in `settings.world()`; evaluates before, during, after.

    Of the settings only the world, the seed, the device, the threads, the steps and the frequency
    of evaluations count; `dqn` has the others.
    """
    dqn = dqn or DqnSettings()
    torch.set_num_threads(settings.threads)
    env = RowsVecEnv(AbacusVecEnv(dqn.n_envs, config=settings.world()), masked=masked)
    model = AbacusDQN(env, dqn, settings.seed, settings.device)
    # Without one, the library makes a folder for its own.
    model.set_logger(logger or Logger(None, []))
    watch = _Watch(settings, evaluate)
    model.learn(settings.n_timesteps or 0, callback=watch, log_interval=LOG_INTERVAL)
    return DqnOutcome(
        best=watch.best,
        last=watch.last,
        evaluations=watch.evaluations,
        seconds_at_evaluation=watch.seconds,
        longest_training_run=env.longest_run,
        illegal_actions=env.illegal_actions,
    )


class _Watch(BaseCallback):
    """Evaluates between updates when it is time to."""

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
        self.last = greedy_policy(self.model, self.settings.world())
        self.evaluations.append(self.evaluate(self.last, step))
        if self.evaluations[-1] is max(self.evaluations, key=lambda evaluation: evaluation.rank):
            self.best = self.last
