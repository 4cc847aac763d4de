"""The expert as a Stable-Baselines3 policy, for rollouts and for the labels of DAgger."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvWrapper

from abacus.sb3 import AbacusVecEnv
from oracle.algorithm import Variant, check_variant
from oracle.expert import expert_actions

Observation = npt.NDArray[Any] | dict[str, npt.NDArray[Any]]


class ExpertPolicy(BasePolicy):
    """The expert's actions in the current states of one environment.

    The environment is an `AbacusVecEnv`, also inside wrappers that keep its observations or, like
    `FlatObservations`, flatten them. Off the algorithm's path, an observation does not determine
    the expert's action; the state does. So the policy belongs to an environment, and `predict`
    checks that it is given the current observations of that environment.
    """

    def __init__(self, env: VecEnv, variant: Variant = "before") -> None:
        check_variant(variant)
        abaci = env.unwrapped
        if not isinstance(abaci, AbacusVecEnv):
            raise ValueError(f"env is a {type(abaci).__name__}: give an AbacusVecEnv")
        super().__init__(env.observation_space, env.action_space)
        self._batch = abaci.batch
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
        actions = expert_actions(self._batch, self._variant)
        return (actions if batched else actions[0]), state

    def _check_current(self, observation: Observation) -> bool:
        """Raise ValueError unless this is the current observation; return whether it is batched."""
        current: dict[str, npt.NDArray[Any]] = dict(self._batch.observation)
        given = observation
        if not isinstance(given, dict):
            current, given = {"": self._batch.out.rows}, {"": given}
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


Flat = npt.NDArray[np.float32]


class FlatObservations(VecEnvWrapper):
    """Concatenate window, symbol, operation and previous action into one array."""

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
