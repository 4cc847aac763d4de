"""Crash tests: a recording that was killed at any moment resumes to the same content."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle.demos import Demonstrations, Recipe, record_demonstrations
from oracle.demos.writer import FileWriter
from tests.interruptions import folder_states, in_child
from tests.oracle.demos.killable import finished_shards

ROOT = Path(__file__).parents[3]
RECIPE = Recipe(operations=1000, epsilon=0.05, seed=5)
PER_SHARD = 100
KILLS = 30


class WarmProcess:
    """A client of the process that forks recordings; see `killable`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle.demos.killable"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def record(
        self, path: Path, kill_after: float | None = None, kill_at_shards: int | None = None
    ) -> int:
        """Record, kill after a number of shards and of seconds, return the exit status."""
        order = {
            "recipe": RECIPE.to_dict(),
            "path": str(path),
            "operations_per_shard": PER_SHARD,
            "kill_at_shards": kill_at_shards,
            "kill_after": kill_after,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.line())


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmProcess]:
    warm = WarmProcess()
    yield warm
    warm.process.kill()
    warm.process.communicate()


def test_recordings_killed_at_random_points_resume_to_the_same_digest(
    warm: WarmProcess, tmp_path: Path
) -> None:
    uninterrupted = record_demonstrations(RECIPE, tmp_path / "uninterrupted.h5")
    path, rng = tmp_path / "some.h5", np.random.default_rng(0)
    started = time.perf_counter()
    assert warm.record(path) == 0
    duration = time.perf_counter() - started
    kills, finished, shards_found = 0, 0, set()
    path.unlink()
    while kills < KILLS:
        if kills % 2:
            status = warm.record(path, kill_after=float(rng.uniform(0, 1.1 * duration)))
        else:
            # On a machine of any speed, half of the kills hit shards that are being written.
            after = float(rng.uniform(0, 0.02 * duration))
            status = warm.record(path, after, kill_at_shards=finished_shards(path) + 1)
        assert status in (0, -signal.SIGKILL)
        kills += status != 0
        shards_found.add(finished_shards(path))
        if path.exists():
            # A file that exists is complete, whether the run ended or was killed afterwards.
            assert Demonstrations.open(path, verify=True).content_digest() == uninterrupted.digest
            finished += 1
            path.unlink()
    assert warm.record(path) == 0
    assert Demonstrations.open(path, verify=True).content_digest() == uninterrupted.digest
    assert finished >= 2
    assert len(shards_found) >= 5
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["some.h5", "uninterrupted.h5"]


def record_interrupted(path: Path, after: int, error: BaseException) -> None:
    """Record until `after` shards are written, then stop by raising the error."""
    count = 0

    def stop(operations: int, transitions: int) -> None:
        nonlocal count
        count += 1
        if count == after:
            raise error

    with pytest.raises(type(error)):
        record_demonstrations(
            RECIPE, path, workers=1, operations_per_shard=PER_SHARD, progress=stop
        )


def test_a_second_run_resumes_from_the_finished_shards(tmp_path: Path) -> None:
    path, digest = (
        tmp_path / "some.h5",
        record_demonstrations(RECIPE, tmp_path / "uninterrupted.h5").digest,
    )
    record_interrupted(path, 4, KeyboardInterrupt())
    assert not path.exists()
    folder = path.with_name("some.h5.shards")
    kept = sorted(folder.glob("*.h5"))
    assert len(kept) >= 4
    assert not list(folder.glob("*.unfinished"))
    # A shard is a demonstrations file like any other.
    assert Demonstrations.open(kept[1]).counts["operations"] == PER_SHARD
    report = record_demonstrations(RECIPE, path, operations_per_shard=PER_SHARD)
    assert report.resumed_shards == len(kept)
    assert report.digest == digest
    assert not folder.exists()


def test_damaged_and_foreign_shards_are_recorded_again(tmp_path: Path) -> None:
    path, digest = (
        tmp_path / "some.h5",
        record_demonstrations(RECIPE, tmp_path / "uninterrupted.h5").digest,
    )
    record_interrupted(path, 4, KeyboardInterrupt())
    first, second, third, *rest = sorted(path.with_name("some.h5.shards").glob("*.h5"))
    first.write_bytes(first.read_bytes()[:-100])
    shutil.copy(third, second)
    (first.parent / "0123456789abcdef-5-000000.h5").write_bytes(b"not a shard")
    report = record_demonstrations(RECIPE, path, operations_per_shard=PER_SHARD)
    assert report.resumed_shards == 1 + len(rest)
    assert report.digest == digest


def test_shards_of_another_recipe_are_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "some.h5"
    record_interrupted(path, 2, KeyboardInterrupt())
    other = Recipe(operations=1000, epsilon=0.05, seed=6)
    report = record_demonstrations(other, path, operations_per_shard=PER_SHARD)
    assert report.resumed_shards == 0
    assert report.digest == record_demonstrations(other, tmp_path / "uninterrupted.h5").digest


@pytest.mark.parametrize("shards", [0, 1, 3])
def test_a_full_disk_gives_one_line_and_leaves_no_partial_file(
    shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while the shard after `shards` finished ones is written."""
    append, count = FileWriter.append, 0

    def fail(self: FileWriter, recording: Any) -> None:
        nonlocal count
        if self._path.name.startswith(RECIPE.fingerprint):
            count += 1
            if count > shards:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, recording)

    monkeypatch.setattr(FileWriter, "append", fail)
    path = tmp_path / "some.h5"
    with pytest.raises(OSError, match="no space left on the disk"):
        record_demonstrations(RECIPE, path, workers=1, operations_per_shard=PER_SHARD)
    assert not path.exists()
    left = {entry.name for entry in tmp_path.rglob("*") if entry.is_file()}
    assert len(left) == (shards + 1 if shards else 0)
    assert not [name for name in left if "unfinished" in name]
    monkeypatch.undo()
    assert (
        record_demonstrations(RECIPE, path, operations_per_shard=PER_SHARD).resumed_shards == shards
    )


@pytest.mark.parametrize(
    ("bytes_allowed", "workers"),
    [(0, 1), (1, 1), (511, 1), (512, 1), (4097, 1), (4097, 2), (60_000, 1), (200_000, 1)],
)
def test_a_refused_write_gives_one_line(bytes_allowed: int, workers: int, tmp_path: Path) -> None:
    """A limit on the size of files makes the same calls fail as a full disk."""
    output, output_of_child = os.pipe()

    def record() -> None:
        # A pipe: a file for the messages would be limited too.
        os.dup2(output_of_child, sys.stderr.fileno())
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, bytes_allowed))
        recipe, path = Recipe(operations=3000), tmp_path / "some.h5"
        with pytest.raises(OSError, match="no space left on the disk"):
            record_demonstrations(recipe, path, workers=workers, operations_per_shard=1000)

    status = in_child(record)
    os.close(output_of_child)
    with os.fdopen(output) as messages:
        assert messages.read() == ""
    assert status == 0
    assert not [entry for entry in tmp_path.rglob("*") if "unfinished" in entry.name]
    assert not (tmp_path / "some.h5").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_folder_without_write_permission_gives_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        record_demonstrations(RECIPE, tmp_path / "some.h5")
    tmp_path.chmod(0o700)
    assert not list(tmp_path.iterdir())


def test_a_read_only_disk_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: Any, **__: Any) -> None:
        if self.name.endswith(".shards"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match="Read-only"):
        record_demonstrations(RECIPE, tmp_path / "some.h5")
    assert not list(tmp_path.iterdir())


SHARDS = 5
SMALL = Recipe(operations=100, epsilon=0.05, seed=5)


def record_small(path: Path) -> str:
    return record_demonstrations(SMALL, path, workers=1, operations_per_shard=100 // SHARDS).digest


def test_a_recording_killed_at_any_file_operation_resumes_to_the_same_digest(
    tmp_path: Path,
) -> None:
    folder, copies = tmp_path / "recording", tmp_path / "copies"
    folder.mkdir()
    digest = record_demonstrations(SMALL, tmp_path / "uninterrupted.h5").digest
    states, operations = folder_states(
        lambda: record_small(folder / "some.h5"), folder, copies, cut=True
    )
    print(f"{operations} file operations, {len(states)} different states")
    assert operations >= len(states) > 25
    shards = {len(list(state.glob("*.shards/*.h5"))) for state in states}
    assert shards == set(range(SHARDS + 1))
    for state in states:
        assert record_small(state / "some.h5") == digest
        assert Demonstrations.open(state / "some.h5", verify=True).content_digest() == digest
        assert [entry.name for entry in state.iterdir()] == ["some.h5"]


def test_a_target_that_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link.h5"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        with pytest.raises(ValueError, match="not a regular file"):
            record_demonstrations(SMALL, target, overwrite=True)
    assert pipe.is_fifo()
    link.symlink_to("target.h5")
    digest = record_small(link)
    assert link.is_symlink()
    assert Demonstrations.open(tmp_path / "target.h5", verify=True).content_digest() == digest
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link.h5", "pipe", "target.h5"]
