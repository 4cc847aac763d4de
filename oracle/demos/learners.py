"""Demonstrations for `imitation` and torch, which take seconds to import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from imitation.data.types import DictObs, TrajectoryWithRew

from abacus.checks import check_choice, check_integer
from oracle.demos.dataset import Demonstrations, Reward

Sample = dict[str, Any]


class Batches:
    """Minibatches for `imitation`'s BC, an iterable of mappings of `obs`, `acts` and `masks`.

    BC requires batches of one size, so the last, smaller one of a pass is left out. With `rng`
    every pass is shuffled differently. If there are fewer transitions than `batch_size`, they make
    one batch: pass this object's `batch_size` to BC.
    """

    def __init__(
        self,
        demonstrations: Demonstrations,
        batch_size: int,
        rng: np.random.Generator | None = None,
        frames: int | None = None,
    ) -> None:
        check_integer("batch_size", batch_size, 1)
        if not len(demonstrations):
            raise ValueError("there are no transitions to make batches of")
        self._demonstrations = demonstrations
        self._rng = rng
        self._frames = frames
        self.batch_size = min(batch_size, len(demonstrations))

    def __len__(self) -> int:
        return len(self._demonstrations) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        demonstrations = self._demonstrations
        order = np.arange(len(demonstrations))
        if self._rng is not None:
            self._rng.shuffle(order)
        actions = demonstrations.transitions["action"]
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            rows = order[start : start + self.batch_size]
            yield {
                "obs": DictObs(demonstrations.observations(rows, self._frames)),
                "acts": actions[rows].astype(np.int64),
                "masks": demonstrations.masks(rows),
            }


def trajectories(
    demonstrations: Demonstrations,
    frames: int | None = None,
    level: Reward = None,
    actions: Literal["action", "taken"] = "action",
    flat: bool = False,
) -> Iterator[TrajectoryWithRew]:
    """Yield episodes as `imitation`'s trajectories, with T + 1 observations for T actions.

    `actions` is "action" for the expert's, which a clone learns, or "taken" for those that led to
    the rewards and next observations. They are the same without detours. Observations are Dict
    observations or, with `flat`, the rows of `oracle.policy.FlatObservations`.
    """
    check_choice("actions", actions, ("action", "taken"))
    terminated = demonstrations.transitions["terminated"]
    for rows, observations in demonstrations.episode_observations(frames):
        yield TrajectoryWithRew(
            obs=np.concatenate([*observations.values()], 1) if flat else DictObs(observations),
            acts=demonstrations.transitions[actions][rows].astype(np.int64),
            infos=None,
            terminal=bool(terminated[rows.stop - 1]),
            rews=demonstrations.rewards(level, rows),
        )


class TorchDemonstrations(torch.utils.data.Dataset[Sample]):
    """A torch dataset of samples of `obs` (a dict of tensors), `action` and `mask`.

    A `DataLoader` requests whole batches, which are gathered at once.
    """

    def __init__(self, demonstrations: Demonstrations, frames: int | None = None) -> None:
        self._demonstrations = demonstrations
        self._frames = frames

    def __len__(self) -> int:
        return len(self._demonstrations)

    def __getitem__(self, index: int) -> Sample:
        # Iteration over a Dataset ends with an IndexError.
        if not -len(self) <= index < len(self):
            raise IndexError(f"index={index} is not from 0 to {len(self) - 1}")
        return self.__getitems__([index % len(self)])[0]

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        batch = self.batch(np.asarray(indices))
        return [
            {
                "obs": {key: array[k] for key, array in batch["obs"].items()},
                "action": batch["action"][k],
                "mask": batch["mask"][k],
            }
            for k in range(len(indices))
        ]

    def batch(self, rows: np.ndarray[Any, Any]) -> Sample:
        """Return the samples of these rows as one batch, without collating them."""
        demonstrations = self._demonstrations
        observations = demonstrations.observations(rows, self._frames)
        return {
            "obs": {key: torch.from_numpy(array) for key, array in observations.items()},
            "action": torch.from_numpy(demonstrations.transitions["action"][rows].astype(np.int64)),
            "mask": torch.from_numpy(demonstrations.masks(rows)),
        }
