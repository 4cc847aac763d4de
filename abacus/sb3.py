"""N abaci as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices

from abacus.batch import AbacusBatch
from abacus.env import AbacusEnv, check_render_mode
from abacus.observation import observation_space
from abacus.render import render_ansi, render_rgb, view_of
from abacus.rules import AbacusConfig, Action

Observation = dict[str, npt.NDArray[np.float32]]


class AbacusVecEnv(VecEnv):
    """N abaci that step together, with the rules of `abacus.env.AbacusEnv`.

    Abacus i has the seed `seed + i`. An abacus that ends is reset within the same step. Only these
    abaci have infos: `terminal_observation`, `TimeLimit.truncated`, `episode` (r, l and t, like
    `Monitor` and `VecMonitor`), and the report of `AbacusBatch.ended_reports`. `action_masks()`
    returns all masks as one array; `batch.terms` and `batch.outcomes` hold the reward terms and
    outcomes of the last step, and `batch.set_tasks` mixes given tasks into the random episodes.
    """

    def __init__(
        self, num_envs: int, *, config: AbacusConfig | None = None, render_mode: str | None = None
    ) -> None:
        check_render_mode(render_mode)
        self.config = config or AbacusConfig()
        self.batch = AbacusBatch(self.config, num_envs)
        self.render_mode = render_mode
        self._actions = np.zeros(num_envs, np.int64)
        self._started = time.time()
        super().__init__(num_envs, observation_space(self.config), gym.spaces.Discrete(len(Action)))
        # The base class sets metadata of its own, without the frame rate.
        self.metadata = AbacusEnv.metadata

    def reset(self) -> Observation:
        """Start an episode in every abacus, with the seeds that `seed` set."""
        seeds = [seed for seed in self._seeds if seed is not None]
        self.batch.reset(seeds or None)
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._started = time.time()
        return self.batch.observation_copy()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seed `seed + i` of abacus i for the next reset; None draws a seed."""
        # For None, the base class would draw one from NumPy's global generator.
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        return super().seed(seed)

    def step_async(self, actions: npt.NDArray[np.integer]) -> None:
        """Store the actions for `step_wait`."""
        self._actions = np.asarray(actions)

    def step_wait(
        self,
    ) -> tuple[Observation, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the stored actions."""
        batch = self.batch
        batch.step(self._actions)
        # Wrappers write into them: each abacus has its own.
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if len(batch.ended):
            self._add_finals(infos)
        dones = batch.terminated | batch.truncated
        return self.batch.observation_copy(), batch.reward.copy(), dones, infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the action masks, (N, 8)."""
        return self.batch.masks.copy()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of this environment once for each index."""
        value = getattr(self, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Raise AttributeError: abaci of a batch have no attributes of their own."""
        raise AttributeError(
            f"cannot set {attr_name!r}: abaci of a batch share their settings; make a new batch"
        )

    def env_method(
        self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        """Call `action_masks`, the only method, for the abaci at `indices`."""
        if method_name != "action_masks":
            raise AttributeError(f"abaci of a batch have no method {method_name!r} of their own")
        return list(self.batch.masks[list(self._get_indices(indices))])

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Return False for each index: abaci of a batch cannot be wrapped."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """Return a picture of every abacus, for `render`."""
        if self.render_mode != "rgb_array":
            return [None] * self.num_envs
        return [render_rgb(view_of(self.batch, i)) for i in range(self.num_envs)]

    def ansi(self, index: int = 0) -> str:
        """Return abacus `index` as text."""
        return render_ansi(view_of(self.batch, index))

    def _add_finals(self, infos: list[dict[str, Any]]) -> None:
        elapsed = round(time.time() - self._started, 6)
        truncated = self.batch.truncated[self.batch.ended].tolist()
        rows: Iterable[tuple[Any, ...]] = zip(
            self.batch.ended.tolist(),
            self.batch.ended_reports(),
            self.batch.ended_observations(),
            truncated,
            strict=True,
        )
        for i, report, observation, was_truncated in rows:
            report["terminal_observation"] = observation
            report["TimeLimit.truncated"] = was_truncated
            report["episode"] = {"r": report["episode_return"], "l": report["steps"], "t": elapsed}
            infos[i] = report
