"""The folder beside a file that is being recorded: its finished shards, and a lock.

A shard is a block of episodes in a file of the same format as the whole. It appears under its
name only when it is complete and on disk, so that a recording that was killed at any moment goes
on from the shards that are there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from oracle.demos.about import facts, origin
from oracle.demos.load import load
from oracle.demos.recipe import Recipe
from oracle.demos.recording import Recording
from oracle.demos.schema import DemonstrationsError
from oracle.demos.seeds import episode_seeds
from oracle.demos.writer import FileWriter

try:
    import fcntl
except ImportError:  # not on Windows, where nobody is kept from recording twice at a time
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".shards"
_UNFINISHED = ".unfinished"
#: Shards are read once, if at all: packing them well is not worth the time.
_COMPRESSION = 1


class ShardFolder:
    """The folder of one recording, locked while it is used."""

    def __init__(self, target: Path, recipe: Recipe, episodes_per_shard: int) -> None:
        self.path = target.with_name(target.name + _SUFFIX)
        #: Where the whole is put together before it takes its name.
        self.result = self.path / f"result{_UNFINISHED}"
        self._recipe = recipe
        self._episodes = episodes_per_shard
        self._lock: BinaryIO | None = None

    def __enter__(self) -> ShardFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / "lock").open("wb")
        if fcntl is not None:
            try:
                # The system lets go of it however the process ends.
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                raise ValueError(
                    f"{self.path} is in use: another process records the same file"
                ) from None
        self._remove_unfinished()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keeps finished shards after an error, and nothing else."""
        self._remove_unfinished()
        if kind is None or not any(self.path.glob("*.h5")):
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()

    def _remove_unfinished(self) -> None:
        for path in self.path.glob(f"*{_UNFINISHED}"):
            path.unlink(missing_ok=True)

    def _shard(self, index: int) -> Path:
        # The recipe and the size of the blocks are in the name: other shards are not ours.
        return self.path / f"{self._recipe.fingerprint}-{self._episodes}-{index:06d}.h5"

    def load(self, index: int) -> Recording | None:
        """A finished shard; None if there is none, or none that is whole."""
        path = self._shard(index)
        try:
            recording, about = load(path, verify=True)
        except FileNotFoundError:
            return None
        except DemonstrationsError:
            path.unlink(missing_ok=True)
            return None
        seeds = episode_seeds(self._recipe.seed, index * self._episodes, self._episodes)
        ours = about.recipe == self._recipe and np.array_equal(recording.episodes["seed"], seeds)
        return recording if ours else None

    def save(self, index: int, recording: Recording) -> None:
        """Writes a shard; it has its name once it is complete and on disk."""
        path = self._shard(index)
        unfinished = path.with_suffix(_UNFINISHED)
        writer = FileWriter(unfinished, self._recipe.config, facts(self._recipe), _COMPRESSION)
        with writer:
            writer.append(recording)
            writer.finish(origin(self._recipe, []))
        publish(unfinished, path)


def publish(unfinished: Path, path: Path) -> None:
    """Gives a file that is on disk its name, and sees the name to disk."""
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
