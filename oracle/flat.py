"""The abaci of an `AbacusVecEnv` with flat observations, for tools that know no Dict spaces.

imitation 1.0.1 rolls Dict observations out and clones them, but its DAgger keeps demonstrations in
a format that refuses them ("DictObs are not currently supported").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper

from abacus.sb3 import AbacusVecEnv

Flat = npt.NDArray[np.float32]


class FlatObservations(VecEnvWrapper):
    """Window, symbol, operation and previous action one after the other, in one array."""

    def __init__(self, venv: AbacusVecEnv) -> None:
        self._keys = tuple(venv.batch.observation)
        length = venv.batch.out.seen.shape[1]
        super().__init__(venv, spaces.Box(0.0, 1.0, (length,), np.float32))

    def reset(self) -> Flat:
        """Starts an episode in every abacus."""
        return self._flat(self.venv.reset())

    def step_wait(
        self,
    ) -> tuple[Flat, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """One action in every abacus."""
        observation, rewards, dones, infos = self.venv.step_wait()
        for i in np.flatnonzero(dones):
            infos[i] = infos[i] | {
                "terminal_observation": self._flat(infos[i]["terminal_observation"])
            }
        return self._flat(observation), rewards, dones, infos

    def _flat(self, observation: Any) -> Flat:
        return np.concatenate([observation[key] for key in self._keys], axis=-1)
