"""Demonstrations in memory, in the shapes that learners ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abacus.observation import frame_pixels, observation_lengths
from abacus.reward import terms_of
from abacus.rules import AbacusConfig, Action
from oracle.demos.columns import (
    Columns,
    Packed,
    Recording,
    digest_of,
    gather_codes,
    gather_observations,
    pack,
)
from oracle.demos.reader import load
from oracle.demos.recipe import About, Recipe, facts
from oracle.demos.schema import every_outcome, outcome_places

if TYPE_CHECKING:
    from imitation.data.types import TrajectoryWithRew
    from pandas import DataFrame

    from oracle.demos.learners import Batches, TorchDemonstrations

Observation = dict[str, npt.NDArray[np.float32]]
Rows = slice | npt.NDArray[np.integer[Any]]
EVERY_ROW = slice(None)


class Demonstrations:
    """A set of demonstrations, read into memory; the file is closed.

    `transitions`, `episodes` and `operations` are the columns as they are stored; the methods give
    stacked observations, rewards at any level, subsets, and what learners are fed with. A subset
    is a set of demonstrations too.
    """

    def __init__(self, recording: Recording, recipe: Recipe, about: About | None = None) -> None:
        self.recording = recording
        self.recipe = recipe
        #: What the file says about itself; None for a subset.
        self.about = about

    @classmethod
    def open(cls, path: str | Path, verify: bool = False) -> Demonstrations:
        """Reads a file. Format, version, seal and values are checked, the digest on request.

        Raises DemonstrationsError, a ValueError, for a file that is damaged or no set of
        demonstrations.
        """
        recording, about = load(Path(path), verify)
        return cls(recording, about.recipe, about)

    @property
    def config(self) -> AbacusConfig:
        """The world in which this was recorded."""
        return self.recipe.config

    @property
    def transitions(self) -> Columns:
        return self.recording.transitions

    @property
    def episodes(self) -> Columns:
        return self.recording.episodes

    @property
    def operations(self) -> Columns:
        return self.recording.operations

    @property
    def counts(self) -> dict[str, int]:
        return self.recording.counts

    def __len__(self) -> int:
        """Transitions."""
        return len(self.transitions["action"])

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return f"Demonstrations({counts})"

    def content_digest(self) -> str:
        """The digest of what is in memory; that of the file, if this is the whole of it."""
        return digest_of(self.recording, facts(self.recipe), self.config)

    def first(self, operations: int) -> Demonstrations:
        """The first operations; what fewer operations give is contained in what more give."""
        kept = self.recording.first(operations)
        return Demonstrations(kept, replace(self.recipe, operations=operations, transitions=None))

    def select(self, which: npt.NDArray[np.bool_]) -> Demonstrations:
        """The episodes for which `which`, a boolean for each, is True."""
        return Demonstrations(self.recording.select(which), self.recipe)

    @property
    def train(self) -> Demonstrations:
        """The episodes that are not for validation."""
        return self.select(self.episodes["validation"] == 0)

    @property
    def validation(self) -> Demonstrations:
        """The episodes for validation; none in a set of a single episode."""
        return self.select(self.episodes["validation"] == 1)

    @cached_property
    def _packed(self) -> Packed:
        """What observations are gathered from."""
        stacks = self.operations["start"][self.operations["fresh"] == 1]
        return pack(self.transitions, stacks)

    def _rows(self, rows: Rows) -> npt.NDArray[np.int64]:
        if isinstance(rows, slice):
            return np.arange(*rows.indices(len(self)), dtype=np.int64)
        numbers = np.ascontiguousarray(rows, np.int64)
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(self)):
            raise IndexError(f"rows are not all from 0 to {len(self) - 1}")
        return numbers

    def _config(self, frames: int | None) -> AbacusConfig:
        return self.config if frames is None else replace(self.config, frames=frames)

    def histories(self, rows: Rows = EVERY_ROW, frames: int | None = None) -> npt.NDArray[np.int32]:
        """The numbers of the last frames (rows, frames), oldest first."""
        return gather_codes(self._rows(rows), self._packed, self._config(frames).frames)

    def empty_observations(self, count: int, frames: int | None = None) -> Observation:
        """Arrays for so many observations, to be filled again and again."""
        lengths = observation_lengths(self._config(frames))
        return {key: np.empty((count, length), np.float32) for key, length in lengths.items()}

    def observations(
        self, rows: Rows = EVERY_ROW, frames: int | None = None, out: Observation | None = None
    ) -> Observation:
        """What was seen in these transitions, as the environment shows it, with any stack.

        Without `frames` the stack is that of `config`; `out` is filled where it is given.
        """
        numbers = self._rows(rows)
        out = self.empty_observations(len(numbers), frames) if out is None else out
        gather_observations(numbers, self._packed, frame_pixels(self.config.base), out)
        return out

    def final_observations(self, frames: int | None = None) -> Observation:
        """What was seen after the last action of each episode."""
        config, episodes = self._config(frames), self.episodes
        last = episodes["start"] + episodes["length"] - 1
        out = self.observations(last, frames)
        pixels = frame_pixels(config.base)
        # The frame seen last pushes the oldest one out.
        out["window"][:, : -pixels.shape[1]] = out["window"][:, pixels.shape[1] :].copy()
        out["window"][:, -pixels.shape[1] :] = pixels[episodes["final_frame"]]
        out["symbol"][:] = np.eye(config.symbols)[episodes["final_symbol"]]
        out["operation"][:, 0] = episodes["final_operation"]
        out["previous_action"][:] = np.eye(len(Action))[self.transitions["taken"][last]]
        return out

    def masks(self, rows: Rows = EVERY_ROW) -> npt.NDArray[np.bool_]:
        """The legal actions (rows, 8)."""
        mask = self.transitions["mask"][rows if isinstance(rows, slice) else self._rows(rows)]
        return np.unpackbits(mask[:, None], axis=1, bitorder="little").view(np.bool_)

    def terms(
        self, level: str | tuple[str, ...] | None = None, rows: Rows = EVERY_ROW
    ) -> npt.NDArray[np.float32]:
        """The reward terms (rows, 6) at a level, or of modules; without one, as recorded."""
        table = terms_of(every_outcome(), self.config.reward if level is None else level)
        flat: npt.NDArray[np.float32] = table.reshape(-1, table.shape[-1])
        return flat[self._outcome_places(rows)]

    def rewards(
        self, level: str | tuple[str, ...] | None = None, rows: Rows = EVERY_ROW
    ) -> npt.NDArray[np.float32]:
        """The rewards (rows,) at a level, or of modules; without one, as recorded."""
        table = terms_of(every_outcome(), self.config.reward if level is None else level)
        flat: npt.NDArray[np.float32] = table.sum(axis=-1).ravel()
        return flat[self._outcome_places(rows)]

    def _outcome_places(self, rows: Rows) -> npt.NDArray[np.uint8]:
        where = rows if isinstance(rows, slice) else self._rows(rows)
        return outcome_places(self.transitions["taken"][where], self.transitions["outcome"][where])

    def batches(
        self,
        batch_size: int,
        rng: np.random.Generator | None = None,
        frames: int | None = None,
    ) -> Batches:
        """Batches as `imitation`'s BC takes them; shuffled anew in each pass if `rng` is given."""
        from oracle.demos.learners import Batches

        return Batches(self, batch_size, rng, frames)

    def trajectories(
        self,
        frames: int | None = None,
        level: str | tuple[str, ...] | None = None,
        actions: str = "action",
    ) -> Iterator[TrajectoryWithRew]:
        """`imitation`'s trajectories with Dict observations, T + 1 for T actions.

        `actions` is "action" for the teacher's (what a clone learns) or "taken" for what was done
        (what rewards and next observations follow from); without detours they are the same.
        """
        from oracle.demos.learners import trajectories

        return trajectories(self, frames, level, actions)

    def torch_dataset(self, frames: int | None = None) -> TorchDemonstrations:
        """A torch `Dataset` of observation, action and mask."""
        from oracle.demos.learners import TorchDemonstrations

        return TorchDemonstrations(self, frames)

    def episodes_frame(self) -> DataFrame:
        """A pandas DataFrame with a row for each episode."""
        from oracle.demos.statistics import episodes_frame

        return episodes_frame(self)

    def operations_frame(self) -> DataFrame:
        """A pandas DataFrame with a row for each operation."""
        from oracle.demos.statistics import operations_frame

        return operations_frame(self)
