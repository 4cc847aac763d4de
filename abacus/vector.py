"""N abaci as a Gymnasium vector environment, for `gymnasium.make_vec` of 0.29 and from 1.1 on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import batch_space

from abacus.batch import AbacusBatch
from abacus.checks import not_allowed
from abacus.env import AbacusEnv, check_render_mode, render_abacus
from abacus.observation import observation_space
from abacus.rules import AbacusConfig, Action

#: When an environment that ended is reset: an enumeration of Gymnasium 1.1 and later, None in 0.29.
AutoresetMode: Any = getattr(gym.vector, "AutoresetMode", None)
# Types are checked with 0.29, the locked version.
if TYPE_CHECKING or AutoresetMode is None:
    from gymnasium.experimental.vector import VectorEnv
else:
    from gymnasium.vector import VectorEnv

Observation = dict[str, npt.NDArray[np.float32]]


class AbacusVectorEnv(VectorEnv[Observation, npt.NDArray[np.integer], npt.NDArray[Any]]):
    """N abaci that step together, with the rules of `abacus.env.AbacusEnv`.

    Make one with Gymnasium 1.1 or later by `gymnasium.make_vec("Abacus-v0", num_envs=N, columns=20,
    ...)`, whose `vectorization_mode` is "vector_entry_point" if none is given; with Gymnasium 0.29
    by `gymnasium.make_vec("Abacus-v0", num_envs=N, vectorization_mode="custom",
    vector_kwargs={"columns": 20, ...})`. 0.29 passes settings only through `vector_kwargs`; others
    raise ValueError. `AbacusVectorEnv(N, columns=20, ...)` works with both.

    Abacus i has the seed `seed + i`. An abacus that ends is reset within the same step
    (`AutoresetMode.SAME_STEP`). Its last observation and the end and counts of its episode are in
    the infos, named and arranged as by the vector environments of the installed Gymnasium:

    | Gymnasium | last observation of abacus i | counts of its episode |
    |---|---|---|
    | 1.1 and later | `infos["final_obs"][i]` | `infos["final_info"]["steps"][i]` |
    | 0.29 | `infos["final_observation"][i]` | `infos["final_info"][i]["steps"]` |

    The infos of every step hold `action_mask`, `outcomes`, `reward_terms` and `illegal` as arrays.
    As in Gymnasium, `infos["_" + name]` tells which abaci have an info.

    With `copy=False` all results are read-only arrays that the next step overwrites.
    `batch.set_tasks` mixes given tasks into the random episodes.
    """

    metadata: dict[str, Any] = AbacusEnv.metadata | (
        {} if AutoresetMode is None else {"autoreset_mode": AutoresetMode.SAME_STEP}
    )

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
        #: Mask of an info that every abacus has.
        self._all = np.ones(num_envs, np.bool_)
        self._all.flags.writeable = False
        self._spec: EnvSpec | None = None

    @property  # type: ignore[override]
    def spec(self) -> EnvSpec | None:
        """The specification, which Gymnasium sets after construction."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        # Gymnasium 0.29 passes none of these on; later versions pass them all.
        ignored = set(spec.kwargs) if spec is not None and AutoresetMode is None else set()
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
        if options and "reset_mask" in options:
            raise ValueError("reset_mask is not supported: abaci that end are reset by step()")
        self.batch.reset(seed)
        return self._observation(), self._infos({"action_mask": self.batch.masks})

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
        infos = self._infos(
            {
                "action_mask": batch.masks,
                "outcomes": batch.outcomes,
                "reward_terms": batch.terms,
                "illegal": batch.illegal,
            }
        )
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

    def _result(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array.copy() if self.copy else array

    def _infos(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        """Return infos that every abacus has, each with the mask that wrappers expect."""
        infos = {}
        for key, array in arrays.items():
            infos[key], infos[f"_{key}"] = self._result(array), self._all
        return infos

    def _observation(self) -> Observation:
        return self.batch.observation_copy() if self.copy else dict(self.batch.observation)

    def _add_finals(self, infos: dict[str, Any]) -> None:
        """Add the last observations and the reports of the episodes that ended."""
        observations, reports = self.batch.ended_observations(), self.batch.ended_reports()
        if AutoresetMode is None:
            self._add_info_of_ended(infos, "final_observation", observations)
            self._add_info_of_ended(infos, "final_info", reports)
            return
        self._add_info_of_ended(infos, "final_obs", observations)
        infos["final_info"] = {}
        infos["_final_info"] = infos["_final_obs"].copy()
        for key in reports[0]:
            self._add_info_of_ended(infos["final_info"], key, [report[key] for report in reports])

    def _add_info_of_ended(self, infos: dict[str, Any], key: str, values: list[Any]) -> None:
        """Add an array with the values of the abaci that ended, and their mask, as Gymnasium does.

        Other abaci have 0 for a number and None for anything else.
        """
        if isinstance(values[0], (int, float)):
            infos[key] = np.zeros(self.num_envs, type(values[0]))
        else:
            infos[key] = np.full(self.num_envs, None, object)
        infos[key][self.batch.ended] = values
        infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
        infos[f"_{key}"][self.batch.ended] = True
