"""Crashes: killed at any moment, a recording goes on and ends as if nothing had happened."""

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
from tests.oracle.demos.killable import finished_shards

ROOT = Path(__file__).parents[3]
RECIPE = Recipe(operations=1000, epsilon=0.05, seed=5)
PER_SHARD = 100
KILLS = 30


class Warm:
    """The process that forks recordings."""

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
        """Records, and kills that, so long after so many shards; returns the exit status."""
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
def warm() -> Iterator[Warm]:
    warm = Warm()
    yield warm
    warm.process.kill()
    warm.process.communicate()


def test_killed_at_random_points_it_ends_with_the_digest_of_an_undisturbed_run(
    warm: Warm, tmp_path: Path
) -> None:
    undisturbed = record_demonstrations(RECIPE, tmp_path / "undisturbed.h5")
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
            # Whatever the speed of the machine, half of the kills meet shards being written.
            after = float(rng.uniform(0, 0.02 * duration))
            status = warm.record(path, after, kill_at_shards=finished_shards(path) + 1)
        assert status in (0, -signal.SIGKILL)
        kills += status != 0
        shards_found.add(finished_shards(path))
        if path.exists():
            # It is there as a whole or not at all, whether the run ended or was killed after.
            assert Demonstrations.open(path, verify=True).content_digest() == undisturbed.digest
            finished += 1
            path.unlink()
    assert warm.record(path) == 0
    assert Demonstrations.open(path, verify=True).content_digest() == undisturbed.digest
    assert finished >= 2
    assert len(shards_found) >= 5
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["some.h5", "undisturbed.h5"]


def interrupted(path: Path, after: int, error: BaseException) -> None:
    """Records until so many shards are in, and is then stopped by the error."""
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


def test_a_second_run_goes_on_from_the_finished_shards(tmp_path: Path) -> None:
    path, digest = (
        tmp_path / "some.h5",
        record_demonstrations(RECIPE, tmp_path / "undisturbed.h5").digest,
    )
    interrupted(path, 4, KeyboardInterrupt())
    assert not path.exists()
    folder = path.with_name("some.h5.shards")
    kept = sorted(folder.glob("*.h5"))
    assert len(kept) >= 4
    assert not list(folder.glob("*.unfinished"))
    # A shard is a file of demonstrations like any other.
    assert Demonstrations.open(kept[1]).counts["operations"] == PER_SHARD
    report = record_demonstrations(RECIPE, path, operations_per_shard=PER_SHARD)
    assert report.resumed_shards == len(kept)
    assert report.digest == digest
    assert not folder.exists()


def test_damaged_and_foreign_shards_are_recorded_anew(tmp_path: Path) -> None:
    path, digest = (
        tmp_path / "some.h5",
        record_demonstrations(RECIPE, tmp_path / "undisturbed.h5").digest,
    )
    interrupted(path, 4, KeyboardInterrupt())
    first, second, third, *rest = sorted(path.with_name("some.h5.shards").glob("*.h5"))
    first.write_bytes(first.read_bytes()[:-100])
    shutil.copy(third, second)
    (first.parent / "0123456789abcdef-5-000000.h5").write_bytes(b"somebody else's")
    report = record_demonstrations(RECIPE, path, operations_per_shard=PER_SHARD)
    assert report.resumed_shards == 1 + len(rest)
    assert report.digest == digest


def test_other_arguments_do_not_go_on_from_these_shards(tmp_path: Path) -> None:
    path = tmp_path / "some.h5"
    interrupted(path, 2, KeyboardInterrupt())
    other = Recipe(operations=1000, epsilon=0.05, seed=6)
    report = record_demonstrations(other, path, operations_per_shard=PER_SHARD)
    assert report.resumed_shards == 0
    assert report.digest == record_demonstrations(other, tmp_path / "undisturbed.h5").digest


@pytest.mark.parametrize("shards", [0, 1, 3])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills while the shard after so many is written."""
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


LIMITED = """
import resource, sys
from oracle.demos import Recipe, record_demonstrations
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    record_demonstrations(Recipe(operations=3000), sys.argv[1], operations_per_shard=1000)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("bytes_allowed", [100, 60_000, 200_000])
def test_a_write_that_the_system_refuses_is_one_line(bytes_allowed: int, tmp_path: Path) -> None:
    """A limit on the size of files fails in the same calls as a full disk does."""
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "some.h5"), str(bytes_allowed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("no space left on the disk")
    assert not done.stderr
    assert not [entry for entry in tmp_path.rglob("*") if "unfinished" in entry.name]
    assert not (tmp_path / "some.h5").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_to_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        record_demonstrations(RECIPE, tmp_path / "some.h5")
    tmp_path.chmod(0o700)
    assert not list(tmp_path.iterdir())


def test_a_folder_on_a_read_only_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_: Any, **__: Any) -> None:
        if self.name.endswith(".shards"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match="Read-only"):
        record_demonstrations(RECIPE, tmp_path / "some.h5")
    assert not list(tmp_path.iterdir())
