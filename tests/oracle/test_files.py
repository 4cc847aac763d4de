"""Atomic writes leave the old content or the new one; devices and links are not replaced."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from oracle.files import atomic_path, atomic_write, atomic_write_text, lock
from tests.interruptions import failing_at

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


def test_a_folder_is_replaced_as_a_whole_and_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("content")

    def write(**settings: bool) -> None:
        with atomic_path(path, **settings) as temporary:
            temporary.mkdir()
            (temporary / "new").write_text("content")

    with pytest.raises(OSError, match="not empty"):
        write()
    assert [entry.name for entry in path.iterdir()] == ["old"]
    write(replaces_folder=True)
    assert [entry.name for entry in path.iterdir()] == ["new"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_folder_stays_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("content")

    def fail(temporary: Path, path: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("oracle.files.move_into_place", fail)
    with (
        pytest.raises(OSError, match="no space left"),
        atomic_path(path, replaces_folder=True) as temporary,
    ):
        temporary.mkdir()
    assert [entry.name for entry in path.iterdir()] == ["old"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("content")
        assert not path.exists()
    assert (path / "file").read_text() == "content"
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_an_error_at_any_file_operation_leaves_the_old_file_or_the_new_one(
    number: int, tmp_path: Path
) -> None:
    failed = 0
    for at in range(1, 12):
        path = tmp_path / str(at) / "some.txt"
        atomic_write_text(path, "old")

        def write(path: Path = path) -> int:
            try:
                atomic_write_text(path, "new")
            except OSError as error:
                return int(error.errno != number or error.filename is None) or 2
            return 0

        status = failing_at(write, tmp_path, at, number)
        assert status in (0, 2)
        assert path.read_text() in ("old", "new")
        assert status == 2 or path.read_text() == "new"
        failed += status == 2
        atomic_write_text(path, "newer")
        assert path.read_text() == "newer"
    assert failed == len(["mkdir", "open", "fsync", "rename", "fsync of the folder"])


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """A device node of our own where root runs the tests: `/dev` is not risked."""
    devices = {"null": (1, 3), "full": (1, 7)}
    paths = {name: Path("/dev") / name for name in devices}
    if os.geteuid() == 0:
        paths = {name: tmp_path / name for name in devices}
        try:
            for name, number in devices.items():
                os.mknod(paths[name], 0o666 | stat.S_IFCHR, os.makedev(*number))
            paths["null"].write_bytes(b"")
        except PermissionError:
            pytest.skip("device nodes cannot be used here")
    atomic_write_text(paths["null"], "text")
    with pytest.raises(OSError, match="No space left") as refused:
        atomic_write_text(paths["full"], "text")
    assert refused.value.errno == errno.ENOSPC
    assert refused.value.filename == str(paths["full"])
    for path in paths.values():
        assert stat.S_ISCHR(path.lstat().st_mode)
    assert {entry.name for entry in tmp_path.iterdir()} <= set(devices)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(path.read_text()))
    reader.start()
    atomic_write_text(path, "text")
    reader.join(10)
    assert found == ["text"]
    assert path.is_fifo()


def test_a_link_is_followed_and_not_replaced(tmp_path: Path) -> None:
    target, link, chain = tmp_path / "folder" / "target", tmp_path / "link", tmp_path / "chain"
    link.symlink_to(target)
    chain.symlink_to(link)
    for text in ("a missing target is created", "an existing one is replaced"):
        atomic_write_text(chain, text)
        assert target.read_text() == text
    assert chain.is_symlink()
    assert link.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["chain", "folder", "link"]
    link.unlink()
    link.symlink_to("chain")
    with pytest.raises(OSError, match="symbolic links"):
        atomic_write_text(chain, "a circle of links")


PRINT_AND_WRITE = """
import sys
from pathlib import Path
from oracle.files import atomic_write_text
print("before")
atomic_write_text(Path(sys.argv[1]), "text\\n")
print("after")
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("redirected", [False, True])
def test_standard_streams_can_be_written(stream: str, redirected: bool, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRINT_AND_WRITE, f"/dev/{stream}"]
    if redirected:
        with (tmp_path / "output").open("w") as file:
            subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, check=True)
        output = (tmp_path / "output").read_text()
    else:
        output = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        ).stdout
    assert output == "before\ntext\nafter\n"


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
