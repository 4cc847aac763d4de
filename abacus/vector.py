"""N abaci as a Gymnasium vector environment, for `gymnasium.make_vec`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from abacus.batch import AbacusBatch
from abacus.checks import not_allowed
from abacus.env import check_render_mode, render_abacus
from abacus.observation import observation_space
from abacus.rules import AbacusConfig, Action

Observation = dict[str, npt.NDArray[np.float32]]


class AbacusVectorEnv(VectorEnv[Observation, npt.NDArray[np.integer], npt.NDArray[Any]]):
    """N abaci that step together, with the rules of `abacus.env.AbacusEnv`.

    Make one with `gymnasium.make_vec("Abacus-v0", num_envs=N, vectorization_mode="custom",
    vector_kwargs={"columns": 20, ...})`. Gymnasium passes settings to a custom vector environment
    only through `vector_kwargs`; others raise ValueError.

    Abacus i has the seed `seed + i`. An abacus that ends is reset within the same step; its last
    observation is in `infos["final_observation"][i]`, the end and the counts of its episode in
    `infos["final_info"][i]`. The infos of every step hold `action_mask`, `outcomes`,
    `reward_terms` and `illegal` as arrays. With `copy=False` all results are read-only arrays that
    the next step overwrites. `batch.set_tasks` mixes given tasks into the random episodes.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        copy: bool = True,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **settings: Any,
    ) -> None:
        if max_episode_steps is not None:
            allowed = "None, as episodes have a step budget"
            raise not_allowed("max_episode_steps", max_episode_steps, allowed)
        check_render_mode(render_mode)
        self.config = AbacusConfig.from_dict(settings)
        self.batch = AbacusBatch(self.config, num_envs)
        self.copy = copy
        self.render_mode = render_mode
        self.num_envs = num_envs
        self.single_observation_space = observation_space(self.config)
        self.single_action_space = gym.spaces.Discrete(len(Action))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._spec: EnvSpec | None = None

    @property  # type: ignore[override]
    def spec(self) -> EnvSpec | None:
        """The specification, which Gymnasium sets after construction."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        ignored = set(spec.kwargs) if spec is not None else set()
        if ignored:
            raise ValueError(
                f"{', '.join(sorted(ignored))} would be ignored by gymnasium.make_vec: give "
                "settings as vector_kwargs={...}"
            )
        self._spec = spec

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every abacus."""
        self.batch.reset(seed)
        return self._observation(), {"action_mask": self.action_masks()}

    def step(
        self, actions: npt.NDArray[np.integer]
    ) -> tuple[
        Observation,
        npt.NDArray[np.float64],
        npt.NDArray[np.bool_],
        npt.NDArray[np.bool_],
        dict[str, Any],
    ]:
        """Carry out one action in every abacus."""
        batch = self.batch
        batch.step(np.asarray(actions))
        infos = {
            "action_mask": self._result(batch.masks),
            "outcomes": self._result(batch.outcomes),
            "reward_terms": self._result(batch.terms),
            "illegal": self._result(batch.illegal),
        }
        if len(batch.ended):
            self._add_finals(infos)
        return (
            self._observation(),
            self._result(batch.reward),
            self._result(batch.terminated),
            self._result(batch.truncated),
            infos,
        )

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the action masks, (N, 8)."""
        return self._result(self.batch.masks)

    def render(self) -> tuple[Any, ...] | None:
        """Return a text or a picture of every abacus, as `render_mode` says."""
        if self.render_mode is None:
            return None
        return tuple(render_abacus(self.batch, i, self.render_mode) for i in range(self.num_envs))

    def close(self, **kwargs: Any) -> None:
        """Do nothing: there is nothing to close."""

    def _result(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array.copy() if self.copy else array

    def _observation(self) -> Observation:
        return self.batch.observation_copy() if self.copy else dict(self.batch.observation)

    def _add_finals(self, infos: dict[str, Any]) -> None:
        ended = self.batch.ended
        for key, values in (
            ("final_observation", self.batch.ended_observations()),
            ("final_info", self.batch.ended_reports()),
        ):
            infos[key] = np.full(self.num_envs, None, dtype=object)
            infos[key][ended] = values
            infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
            infos[f"_{key}"][ended] = True
