"""The teacher as a Stable-Baselines3 policy, for rollouts and for DAgger's labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.policies import BasePolicy

from abacus.sb3 import AbacusVecEnv
from oracle.algorithm import Variant, check_variant
from oracle.expert import expert_actions


class ExpertPolicy(BasePolicy):
    """Answers for the abaci of one `AbacusVecEnv`, as they stand.

    The teacher needs the state, which an observation does not hold off the algorithm's path. So
    the policy is made for an environment, and `predict` checks that the observations it is given
    are those which the environment shows now.
    """

    def __init__(self, env: AbacusVecEnv, variant: Variant = "before") -> None:
        check_variant(variant)
        super().__init__(env.observation_space, env.action_space)
        self._abaci = env
        self._variant = variant

    def predict(
        self,
        observation: npt.NDArray[Any] | dict[str, npt.NDArray[Any]],
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
        action_masks: npt.NDArray[Any] | None = None,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """The teacher's actions; masks are accepted, and met by every answer."""
        current = self._abaci.batch.observation
        if not isinstance(observation, dict) or set(observation) != set(current):
            raise ValueError("observation is not that of an abacus: give the environment's own")
        batched = np.ndim(observation["operation"]) > 1
        for key, shown in current.items():
            given = observation[key] if batched else np.asarray(observation[key])[None]
            if not np.array_equal(given, shown):
                raise ValueError(
                    f"observation[{key!r}] is not what the environment shows now: give the "
                    f"{len(shown)} observations of its last step, in order"
                )
        actions = expert_actions(self._abaci.batch, self._variant)
        return (actions if batched else actions[0]), state

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        raise NotImplementedError("the teacher answers by predict(): it needs the state")
