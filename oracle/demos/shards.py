"""The folder beside a file that is being recorded: its finished shards, and a lock.

A shard is a block of episodes in a file of the same format as the whole. It appears under its
name only when it is complete and on disk, so that a recording that was killed at any moment goes
on from the shards that are there.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from oracle.demos.columns import Recording
from oracle.demos.dataset import Demonstrations
from oracle.demos.reader import load
from oracle.demos.recipe import Recipe, episode_seeds, facts, origin
from oracle.demos.recorder import Recorder
from oracle.demos.schema import DemonstrationsError
from oracle.demos.writer import DEFAULT_COMPRESSION, FileWriter
from oracle.files import lock, publish

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
        self._held = ExitStack()

    def __enter__(self) -> ShardFolder:
        try:
            self._held.enter_context(lock(self.path / "lock", timeout=0))
        except TimeoutError:
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
        with self._held:
            self._remove_unfinished()
            if kind is None or not any(self.path.glob("*.h5")):
                shutil.rmtree(self.path, ignore_errors=True)

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


#: A third of a second of work, which is what a kill can lose.
OPERATIONS_PER_SHARD = 2**14

#: Where files are kept, from the folder in which a job is run.
FOLDER = Path("datasets")

#: Told how many operations and transitions were added.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Report:
    """What came of a recording."""

    path: Path
    digest: str
    seconds: float
    #: Whether the file was there already, with this content.
    existed: bool
    resumed_shards: int = 0


def record(
    recipe: Recipe,
    path: str | Path,
    *,
    workers: int | None = None,
    compression: int = DEFAULT_COMPRESSION,
    operations_per_shard: int = OPERATIONS_PER_SHARD,
    command: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress = lambda operations, transitions: None,
) -> Report:
    """Records a file, going on from the shards of an earlier call that did not finish.

    A file that is there and holds the recipe is left as it is; one that holds anything else is
    replaced only with `overwrite`.
    """
    started, target = time.perf_counter(), Path(path)
    workers = workers or os.cpu_count() or 1
    for name, number in (("workers", workers), ("operations_per_shard", operations_per_shard)):
        if number < 1:
            raise ValueError(f"{name}={number!r} is not allowed: give 1 or more")
    episodes = _episodes_per_shard(recipe, operations_per_shard)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _full_disk_in_one_line(target), ShardFolder(target, recipe, episodes) as folder:
        digest = None if overwrite else _digest_if_there(target, recipe)
        if digest is not None:
            return Report(target, digest, time.perf_counter() - started, existed=True)
        work = _Work(recipe, folder, episodes, workers)
        with work.pool:
            try:
                digest = _put_together(work, compression, command, progress)
            except BaseException:
                work.pool.shutdown(cancel_futures=True)
                raise
            work.pool.shutdown(cancel_futures=True)
        publish(folder.result, target)
    return Report(target, digest, time.perf_counter() - started, False, work.resumed)


def _episodes_per_shard(recipe: Recipe, operations_per_shard: int) -> int:
    """As many as make a shard's operations, but no more than are needed at all."""
    wanted = min(operations_per_shard, recipe.operations or operations_per_shard)
    return -(-wanted // recipe.longest_episode)


def _digest_if_there(target: Path, recipe: Recipe) -> str | None:
    """The digest of a finished file of this recipe; ValueError if another file is in its place."""
    try:
        there = Demonstrations.open(target)
    except FileNotFoundError:
        return None
    except DemonstrationsError as error:
        raise ValueError(f"{error}; give another output, or --overwrite") from error
    if there.recipe != recipe:
        raise ValueError(
            f"{target} holds other demonstrations: give another output, or --overwrite"
        )
    assert there.about is not None
    return there.about.digest


@contextmanager
def _full_disk_in_one_line(target: Path) -> Iterator[None]:
    """HDF5 reports a full disk in many lines, and not always by its number."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    try:
        yield
    except OSError as error:
        told = any(os.strerror(number) in str(error) for number in full)
        if error.errno not in full and not told:
            raise
        raise OSError(
            errno.ENOSPC,
            "no room left on the disk; the same command goes on where this one stopped",
            str(target),
        ) from error


class _Work:
    """Hands out shards to threads, and hands them back in their order."""

    def __init__(self, recipe: Recipe, folder: ShardFolder, episodes: int, workers: int) -> None:
        self.recipe, self.folder, self.episodes, self.workers = recipe, folder, episodes, workers
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="recorder")
        self.resumed = 0
        self._own = threading.local()

    def shards(self) -> Iterator[Recording]:
        """All shards, without end; no more are begun than may be needed."""
        pending: deque[Future[Recording]] = deque()
        begun = 0
        while True:
            while not pending or (len(pending) <= self.workers and begun < self._surely_needed):
                pending.append(self.pool.submit(self._shard, begun))
                begun += 1
            yield pending.popleft().result()

    @property
    def _surely_needed(self) -> int:
        if self.recipe.operations is None:
            # How long operations are is not known: a few shards may be recorded in vain.
            return 2**62
        return -(-self.recipe.operations // (self.episodes * self.recipe.longest_episode))

    def _shard(self, index: int) -> Recording:
        there = self.folder.load(index)
        if there is not None:
            self.resumed += 1
            return there
        if not hasattr(self._own, "recorder"):
            self._own.recorder = Recorder(self.recipe)
        recording: Recording = self._own.recorder.record(index * self.episodes, self.episodes)
        self.folder.save(index, recording)
        return recording


def _put_together(work: _Work, compression: int, command: Sequence[str], progress: Progress) -> str:
    """Writes shard after shard until there is enough; returns the digest."""
    recipe = work.recipe
    config, content = recipe.config, facts(recipe)
    with FileWriter(work.folder.result, config, content, compression, work.pool) as writer:
        for recording in work.shards():
            wanted = _still_wanted(recipe, writer.counts, recording)
            part = recording.first(min(wanted, recording.counts["operations"]))
            writer.append(part)
            progress(part.counts["operations"], part.counts["transitions"])
            if wanted <= recording.counts["operations"]:
                break
        return writer.finish(origin(recipe, command))


def _still_wanted(recipe: Recipe, counts: dict[str, int], recording: Recording) -> int:
    """How many operations to take of a shard; more than it has where it is not enough."""
    if recipe.operations is not None:
        return recipe.operations - counts["operations"]
    assert recipe.transitions is not None
    stops = recording.operations["start"] + recording.operations["length"]
    short = recipe.transitions - counts["transitions"]
    return int(stops.searchsorted(short)) + 1


def default_path(recipe: Recipe) -> Path:
    """Where a recipe is recorded if no other place is asked for."""
    return FOLDER / recipe.file_name


def open_or_record(
    recipe: Recipe, path: str | Path | None = None, workers: int | None = None
) -> Demonstrations:
    """The demonstrations of a recipe, recorded first if they are not there."""
    report = record(recipe, path or default_path(recipe), workers=workers)
    return Demonstrations.open(report.path)


def warm_up(recipe: Recipe) -> None:
    """Compiles the recorder, which takes half a minute once on a machine."""
    Recorder(recipe).record(0, 1)
