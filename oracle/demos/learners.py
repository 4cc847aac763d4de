"""Demonstrations as `imitation` and torch take them. Imported where a learner is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from imitation.data.types import DictObs, TrajectoryWithRew

if TYPE_CHECKING:
    from oracle.demos.dataset import Demonstrations


class Batches:
    """Batches for `imitation`'s BC: an iterable that starts anew each time it is asked.

    BC wants batches of one size, so that the rest of a pass is left out; with a generator each
    pass is shuffled anew, and leaves out another rest. Where there are fewer transitions than
    `batch_size` asks for, all of them are one batch: give BC this object's `batch_size`.
    """

    def __init__(
        self,
        demonstrations: Demonstrations,
        batch_size: int,
        rng: np.random.Generator | None,
        frames: int | None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r} is not allowed: give 1 or more")
        if not len(demonstrations):
            raise ValueError("there are no transitions to make batches of")
        self._demonstrations = demonstrations
        self._rng = rng
        self._frames = frames
        self.batch_size = min(batch_size, len(demonstrations))

    def __len__(self) -> int:
        return len(self._demonstrations) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Mappings of `obs`, `acts` (the teacher's) and, beyond what BC asks for, `masks`."""
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
    frames: int | None,
    level: str | tuple[str, ...] | None,
    actions: str,
) -> Iterator[TrajectoryWithRew]:
    """Episodes as trajectories; see `Demonstrations.trajectories`."""
    if actions not in ("action", "taken"):
        raise ValueError(f"actions={actions!r} is not allowed: give 'action' or 'taken'")
    episodes = demonstrations.episodes
    finals = demonstrations.final_observations(frames)
    terminated = demonstrations.transitions["terminated"]
    for e, (start, length) in enumerate(
        zip(episodes["start"].tolist(), episodes["length"].tolist(), strict=True)
    ):
        rows = slice(start, start + length)
        seen = demonstrations.empty_observations(length + 1, frames)
        demonstrations.observations(
            rows, frames, out={key: array[:-1] for key, array in seen.items()}
        )
        for key, array in seen.items():
            array[-1] = finals[key][e]
        yield TrajectoryWithRew(
            obs=DictObs(seen),
            acts=demonstrations.transitions[actions][rows].astype(np.int64),
            infos=None,
            terminal=bool(terminated[start + length - 1]),
            rews=demonstrations.rewards(level, rows),
        )


Sample = dict[str, Any]


class TorchDemonstrations(torch.utils.data.Dataset[Sample]):
    """A torch dataset: samples of `obs` (a dict of tensors), `action` and `mask`.

    A `DataLoader` asks for a batch at once, which is gathered at once.
    """

    def __init__(self, demonstrations: Demonstrations, frames: int | None) -> None:
        self._demonstrations = demonstrations
        self._frames = frames

    def __len__(self) -> int:
        return len(self._demonstrations)

    def __getitem__(self, index: int) -> Sample:
        # A Dataset without an IndexError at its end would be iterated for ever.
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
        """The samples of these rows as one, without collating them."""
        demonstrations = self._demonstrations
        seen = demonstrations.observations(rows, self._frames)
        return {
            "obs": {key: torch.from_numpy(array) for key, array in seen.items()},
            "action": torch.from_numpy(demonstrations.transitions["action"][rows].astype(np.int64)),
            "mask": torch.from_numpy(demonstrations.masks(rows)),
        }
