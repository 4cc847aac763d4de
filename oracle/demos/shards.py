"""Record a set of demonstrations into a file, in shards that survive a kill.

A shard is a block of episodes, in a file of the same format as the whole, in a folder beside the
target. It gets its name only when it is complete and on disk: a recording that was killed at any
moment resumes from the finished shards.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from abacus.checks import check_integer
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import DEFAULT_COMPRESSION, OPERATIONS_PER_SHARD, Recipe, episode_seeds
from oracle.demos.recorder import Recorder
from oracle.demos.schema import DemonstrationsError
from oracle.demos.writer import FileWriter
from oracle.files import followed, is_special, lock, move_into_place

#: Where files are stored by default, relative to the working directory.
FOLDER = Path("datasets")

_SUFFIX = ".shards"
_UNFINISHED = ".unfinished"
#: Shards are read once, if at all: compressing them well is not worth the time.
_SHARD_COMPRESSION = 1
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Called with the numbers of operations and transitions that were added.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RecordedFile:
    """The result of `record_demonstrations`."""

    path: Path
    digest: str
    seconds: float
    #: Whether the file existed already, with this content.
    existed: bool
    resumed_shards: int = 0


def record_demonstrations(
    recipe: Recipe,
    path: str | Path,
    *,
    workers: int | None = None,
    compression: int = DEFAULT_COMPRESSION,
    operations_per_shard: int = OPERATIONS_PER_SHARD,
    command: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress = lambda operations, transitions: None,
) -> RecordedFile:
    """Record a file, resuming from the shards of an earlier call that did not finish.

    An existing file of the same recipe is kept; any other is replaced only with `overwrite`.

    Args:
        recipe: the settings that decide the content.
        path: the file to write.
        workers: threads, by default one for each core. They do not change the content.
        compression: the level of deflate, 0 for none.
        operations_per_shard: operations that a kill can lose.
        command: the command line to store in the file.
        overwrite: whether to replace a file with other content.
        progress: called after each shard.
    """
    started, target = time.perf_counter(), followed(Path(path))
    if is_special(target) or target.is_dir():
        raise ValueError(f"{target} is not a regular file: give another output")
    workers = check_integer("workers", os.cpu_count() or 1 if workers is None else workers, 1)
    # As many episodes as make a shard's operations, but not more than the set needs.
    wanted = min(
        check_integer("operations_per_shard", operations_per_shard, 1),
        recipe.operations or operations_per_shard,
    )
    episodes = -(-wanted // recipe.longest_episode)
    if not overwrite and (digest := _existing_digest(target, recipe)) is not None:
        _remove_leftovers(target, recipe, episodes)
        return RecordedFile(target, digest, time.perf_counter() - started, existed=True)
    with _full_disk_in_one_line(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _shards_beside(target, recipe, episodes) as shards:
            # Another process may have recorded the file before this one took the lock.
            digest = None if overwrite else _existing_digest(target, recipe)
            existed = digest is not None
            if digest is None:
                unfinished = shards.folder / f"result{_UNFINISHED}"
                digest = _write(shards, unfinished, workers, compression, command, progress)
                move_into_place(unfinished, target)
    seconds = time.perf_counter() - started
    return RecordedFile(target, digest, seconds, existed, shards.resumed)


def default_path(recipe: Recipe) -> Path:
    """Return the default file of a recipe."""
    return FOLDER / recipe.file_name


def warm_up(recipe: Recipe) -> None:
    """Compile the recorder, which takes half a minute once on a machine."""
    Recorder(recipe).record(0, 1)


def _existing_digest(target: Path, recipe: Recipe) -> str | None:
    """Return the digest of a file of this recipe, None if there is no file.

    Raise ValueError if the file holds anything else.
    """
    try:
        existing = Demonstrations.open(target)
    except FileNotFoundError:
        return None
    except DemonstrationsError as error:
        raise ValueError(f"{error}; give another output, or --overwrite") from error
    if existing.recipe != recipe:
        raise ValueError(
            f"{target} holds other demonstrations: give another output, or --overwrite"
        )
    assert existing.metadata is not None
    return existing.metadata.digest


@contextmanager
def _full_disk_in_one_line(target: Path) -> Iterator[None]:
    """Say, when the disk is full, that nothing is lost; name the target in other errors."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        text = error.strerror
        if error.errno in _FULL_DISK:
            text = "no space left on the disk; the same command resumes from the finished shards"
        raise OSError(error.errno, text, error.filename or str(target)) from error


def _folder_of(target: Path) -> Path:
    return target.with_name(target.name + _SUFFIX)


def _remove_leftovers(target: Path, recipe: Recipe, episodes: int) -> None:
    """Remove the shards of a recording that was killed after its file was complete, if possible."""
    if _folder_of(target).exists():
        with suppress(OSError, ValueError), _shards_beside(target, recipe, episodes):
            pass


@contextmanager
def _shards_beside(target: Path, recipe: Recipe, episodes: int) -> Iterator[_Shards]:
    """Lock the folder of shards; afterwards remove it, or keep finished shards after an error."""
    folder = _folder_of(target)
    finished = False
    with ExitStack() as held:
        try:
            held.enter_context(lock(folder / "lock", timeout=0))
        except TimeoutError:
            raise ValueError(f"{folder} is in use: another process records the same file") from None
        try:
            _remove_unfinished(folder)
            yield _Shards(folder, recipe, episodes)
            finished = True
        finally:
            _remove_unfinished(folder)
            if finished or not any(folder.glob("*.h5")):
                shutil.rmtree(folder, ignore_errors=True)


def _remove_unfinished(folder: Path) -> None:
    for path in folder.glob(f"*{_UNFINISHED}"):
        path.unlink(missing_ok=True)


class _Shards:
    """The shards of a recipe, read from the folder if they are there, recorded otherwise."""

    def __init__(self, folder: Path, recipe: Recipe, episodes: int) -> None:
        self.folder, self.recipe, self.episodes = folder, recipe, episodes
        #: Shards that were read from the folder.
        self.resumed = 0
        self._of_thread = threading.local()

    def produce(self, pool: ThreadPoolExecutor, workers: int) -> Iterator[Demonstrations]:
        """Yield shards in order and without end, starting few more than are needed."""
        # How long operations are is not known: with a number of transitions there is no bound.
        needed = 2**62
        if self.recipe.tasks is not None:
            needed = -(-len(self.recipe.tasks) // self.episodes)
        elif self.recipe.operations is not None:
            needed = -(-self.recipe.operations // (self.episodes * self.recipe.longest_episode))
        pending: deque[Future[Demonstrations]] = deque()
        started = 0
        while True:
            while not pending or (len(pending) <= workers and started < needed):
                pending.append(pool.submit(self._shard, started))
                started += 1
            yield pending.popleft().result()

    def _shard(self, index: int) -> Demonstrations:
        # Recipe and size are in the name: shards of other recordings are ignored.
        path = self.folder / f"{self.recipe.fingerprint}-{self.episodes}-{index:06d}.h5"
        shard = self._load(path, index)
        if shard is not None:
            self.resumed += 1
            return shard
        recorder: Recorder | None = getattr(self._of_thread, "recorder", None)
        if recorder is None:
            recorder = self._of_thread.recorder = Recorder(self.recipe)
        shard = recorder.record(index * self.episodes, self.episodes)
        unfinished = path.with_suffix(_UNFINISHED)
        with FileWriter(unfinished, shard.recipe, _SHARD_COMPRESSION) as writer:
            writer.append(shard.columns)
            writer.finish()
        move_into_place(unfinished, path)
        return shard

    def _load(self, path: Path, index: int) -> Demonstrations | None:
        """Return a finished shard, None if there is no intact one."""
        try:
            shard = Demonstrations.open(path, verify=True)
        except FileNotFoundError:
            return None
        except DemonstrationsError:
            path.unlink(missing_ok=True)
            return None
        first = index * self.episodes
        recipe = self.recipe.part(first, self.episodes)
        count = self.episodes if recipe.tasks is None else len(recipe.tasks)
        seeds = episode_seeds(recipe.seed, first, count)
        is_ours = shard.recipe == recipe and np.array_equal(shard.episodes["seed"], seeds)
        return shard if is_ours else None


def _write(
    shards: _Shards,
    path: Path,
    workers: int,
    compression: int,
    command: Sequence[str],
    progress: Progress,
) -> str:
    """Write shards to a file until the recipe is fulfilled; return the digest."""
    recipe = shards.recipe
    with ThreadPoolExecutor(workers, thread_name_prefix="recorder") as pool:
        try:
            with FileWriter(path, recipe, compression, pool) as writer:
                for shard in shards.produce(pool, workers):
                    available = shard.counts["operations"]
                    wanted = _wanted_operations(recipe, writer.counts, shard)
                    part = shard.first(min(wanted, available))
                    writer.append(part.columns)
                    progress(part.counts["operations"], len(part))
                    if wanted <= available:
                        break
                return writer.finish(command)
        finally:
            pool.shutdown(cancel_futures=True)


def _wanted_operations(recipe: Recipe, written: dict[str, int], shard: Demonstrations) -> int:
    """Return how many operations of a shard are needed; more than it has if it is not enough."""
    if recipe.operations is not None:
        return recipe.operations - written["operations"]
    assert recipe.transitions is not None
    stops = shard.operations["start"] + shard.operations["length"]
    return int(stops.searchsorted(recipe.transitions - written["transitions"])) + 1
