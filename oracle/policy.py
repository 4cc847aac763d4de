"""The expert as a Stable-Baselines3 policy, for rollouts and for the labels of DAgger."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvWrapper

from abacus.batch import AbacusBatch
from abacus.env import AbacusEnv
from abacus.observation import observation_space
from abacus.sb3 import AbacusVecEnv
from oracle.algorithm import Variant, check_variant
from oracle.expert import expert_actions

Observation = npt.NDArray[Any] | dict[str, npt.NDArray[Any]]


class ExpertPolicy(BasePolicy):
    """The expert's actions in the current states of one environment.

    The environment is an `AbacusVecEnv` or a `DummyVecEnv` of `AbacusEnv`, also inside wrappers
    that keep its observations or flatten them, like `FlatObservations` and Gymnasium's
    `FlattenObservation`. Off the algorithm's path, an observation does not determine the expert's
    action; the state does. So the policy belongs to an environment, and `predict` checks that it is
    given the current observations of that environment.
    """

    def __init__(self, env: VecEnv, variant: Variant = "before") -> None:
        check_variant(variant)
        abaci = env.unwrapped
        self._batches = _batches_of(abaci)
        first = self._batches[0]
        #: The order in which a wrapper concatenates the entries of an observation.
        self._flat_entries = tuple(
            first.observation
            if isinstance(abaci, AbacusVecEnv)
            else observation_space(first.config).spaces
        )
        super().__init__(env.observation_space, env.action_space)
        self._variant = variant

    def predict(
        self,
        observation: Observation,
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
        action_masks: npt.NDArray[Any] | None = None,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """Return the expert's actions; masks are ignored, because every action is legal."""
        batched = self._check_current(observation)
        answers = [expert_actions(batch, self._variant) for batch in self._batches]
        actions = np.concatenate(answers)
        return (actions if batched else actions[0]), state

    def _check_current(self, observation: Observation) -> bool:
        """Raise ValueError unless this is the current observation; return whether it is batched."""
        current: dict[str, npt.NDArray[Any]] = {
            key: np.concatenate([batch.observation[key] for batch in self._batches])
            for key in self._batches[0].observation
        }
        given = observation
        if not isinstance(given, dict):
            flat = np.concatenate([current[key] for key in self._flat_entries], axis=1)
            current, given = {"": flat}, {"": given}
        if set(given) != set(current):
            raise ValueError(
                f"observation has the entries {', '.join(map(str, given))}: give "
                f"{', '.join(current)}, as the environment does"
            )
        batched = {np.ndim(rows) > 1 for rows in given.values()} == {True}
        for key, now in current.items():
            if not np.array_equal(given[key] if batched else np.asarray(given[key])[None], now):
                name = f"observation[{key!r}]" if key else "observation"
                raise ValueError(
                    f"{name} is not the current one of the environment: give the observations of "
                    f"its last step, all {len(now)} in order"
                )
        return batched

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        raise NotImplementedError("the expert needs the state of its environment: call predict()")


def _batches_of(abaci: VecEnv) -> list[AbacusBatch]:
    """Return the states of an environment, in the order of its abaci."""
    if isinstance(abaci, AbacusVecEnv):
        return [abaci.batch]
    singles = [env.unwrapped for env in abaci.envs] if isinstance(abaci, DummyVecEnv) else [abaci]
    for single in singles:
        if not isinstance(single, AbacusEnv):
            raise ValueError(
                f"env is a {type(single).__name__}: give an AbacusVecEnv, or a DummyVecEnv of "
                "AbacusEnv"
            )
    return [single.batch for single in singles if isinstance(single, AbacusEnv)]


Flat = npt.NDArray[np.float32]


class FlatObservations(VecEnvWrapper):
    """Concatenate window, symbol, operation and previous action into one array.

    imitation's DAgger, GAIL and AIRL take no Dict observations. Their demonstrations must be flat
    too: `oracle.demos.learners.trajectories(demonstrations, flat=True)`.
    """

    def __init__(self, venv: AbacusVecEnv) -> None:
        self._keys = tuple(venv.batch.observation)
        length = venv.batch.out.rows.shape[1]
        super().__init__(venv, spaces.Box(0.0, 1.0, (length,), np.float32))

    def reset(self) -> Flat:
        """Start an episode in every abacus."""
        return self._flat(self.venv.reset())

    def step_wait(
        self,
    ) -> tuple[Flat, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Finish a step in every abacus."""
        observation, rewards, dones, infos = self.venv.step_wait()
        for i in np.flatnonzero(dones):
            infos[i] = infos[i] | {
                "terminal_observation": self._flat(infos[i]["terminal_observation"])
            }
        return self._flat(observation), rewards, dones, infos

    def _flat(self, observation: Any) -> Flat:
        return np.concatenate([observation[key] for key in self._keys], axis=-1)
