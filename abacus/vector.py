"""N abaci behind Gymnasium's vector interface, for `gymnasium.make_vec`."""

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
from abacus.env import check_render_mode
from abacus.observation import observation_space
from abacus.render import render_ansi, render_rgb, view_of
from abacus.rules import AbacusConfig, Action

Observation = dict[str, npt.NDArray[np.float32]]


class AbacusVectorEnv(VectorEnv[Observation, npt.NDArray[np.integer], npt.NDArray[Any]]):
    """N abaci that step together; the rules are those of `abacus.env.AbacusEnv`.

    `gymnasium.make_vec("Abacus-v0", num_envs=N, vectorization_mode="custom",
    vector_kwargs={"columns": 20, ...})` makes one: Gymnasium passes settings to a custom vector
    environment through `vector_kwargs` alone, and settings given otherwise are refused here.

    Abacus i has the seed `seed + i`. An abacus that ends starts anew within the same step; its
    last observation is in `infos["final_observation"][i]`, its report in
    `infos["final_info"][i]`. Every step's infos hold `action_mask`, `outcomes`, `reward_terms`
    and `illegal` as arrays. With `copy=False` all results are read-only arrays that the next step
    overwrites.
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
            raise ValueError(
                f"max_episode_steps={max_episode_steps!r} is not allowed: episodes end by their "
                "step budget, give None"
            )
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
        """Set by Gymnasium once the environment stands, with the settings its caller gave."""
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
        """Starts an episode in every abacus."""
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
        """One action in every abacus."""
        batch = self.batch
        batch.step(np.asarray(actions))
        infos = {
            "action_mask": self._mine(batch.masks),
            "outcomes": self._mine(batch.outcomes),
            "reward_terms": self._mine(batch.terms),
            "illegal": self._mine(batch.illegal),
        }
        if len(batch.ended):
            self._add_finals(infos)
        return (
            self._observation(),
            self._mine(batch.reward),
            self._mine(batch.terminated),
            self._mine(batch.truncated),
            infos,
        )

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """The legal actions of every abacus, (N, 8)."""
        return self._mine(self.batch.masks)

    def render(self) -> tuple[Any, ...] | None:
        """One text or picture an abacus, by `render_mode`."""
        if self.render_mode is None:
            return None
        draw = render_ansi if self.render_mode == "ansi" else render_rgb
        return tuple(draw(view_of(self.batch, i)) for i in range(self.num_envs))

    def close(self, **kwargs: Any) -> None:
        """Nothing to close."""

    def _mine(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
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
