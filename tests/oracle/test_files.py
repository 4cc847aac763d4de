"""Atomic writes leave the old content or the new one; locks are released with the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from oracle.files import atomic_path, atomic_write, atomic_write_text, lock

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from oracle.files import lock
with lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_write_replaces_the_file_and_creates_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "some.txt"
    for text in ("first", "second ⚑"):
        atomic_write_text(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert [entry.name for entry in path.parent.iterdir()] == ["some.txt"]


def test_a_failed_write_keeps_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    atomic_write_text(path, "old")

    def fail(file: IO[bytes]) -> None:
        file.write(b"new")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        atomic_write(path, fail)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.txt"]


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("content")
        assert not path.exists()
    assert (path / "file").read_text() == "content"
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_files_get_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic_write_text(tmp_path / "some.txt", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "some.txt").stat().st_mode & 0o777 == 0o640


def test_a_lock_is_exclusive_until_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "some.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        for timeout in (0, 0.1):
            with pytest.raises(TimeoutError), lock(path, timeout):
                pass
        holder.send_signal(signal.SIGKILL)
        with lock(path, timeout=10):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with lock(path):
        pass
