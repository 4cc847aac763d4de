"""Interrupt a job at each of its file operations: by a kill, or by an error such as a full disk.

Operations are counted where they touch a watched folder: opening a file for writing, renaming,
removing, creating a folder (audit events of the interpreter), and every fsync. A kill leaves the
folder as it was before the operation, so `folder_states` copies the folder before each operation
of one run instead of running the job once per kill. `small_disk` is a disk that gets full.

Each test interrupts its job at a sample of places that `spread` takes; with INTERRUPT_EVERYWHERE=1
in the environment, it takes all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

Job = Callable[[], object]
T = TypeVar("T")

EVERYWHERE = os.environ.get("INTERRUPT_EVERYWHERE", "0") != "0"
#: A disk in memory, and the bytes that must be free there to use it.
_MEMORY, _MEMORY_BYTES = Path("/dev/shm"), 2**25
#: Audit events that change a folder.
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}
#: Exit status of a child whose job raised an exception.
RAISED = 70

#: What to do before an operation; audit hooks cannot be removed, so one hook serves all tests.
_observer: Callable[[], None] | None = None
_watched = ""
#: The file that is about to be flushed, None before other operations.
_flushed: Path | None = None
_installed = False


def spread(items: Sequence[T], count: int) -> list[T]:
    """Return `count` items at equal distances, the first and the last among them, or all."""
    if EVERYWHERE or len(items) <= count:
        return list(items)
    return [items[number * (len(items) - 1) // (count - 1)] for number in range(count)]


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """Yield an empty folder in memory, where a flush takes no time, or another if there is none.

    Hold one run of a job there at a time: a container may have little memory for files.
    """
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
    if usable and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES:
        with tempfile.TemporaryDirectory(dir=_MEMORY.resolve(), prefix="pytest-") as folder:
            yield Path(folder)
    else:
        otherwise.mkdir(parents=True, exist_ok=True)
        yield otherwise


@contextmanager
def before_operations(folder: Path, observer: Callable[[], None]) -> Iterator[None]:
    """Call `observer` before each file operation below a folder."""
    global _observer, _watched
    _install()
    _observer, _watched = observer, str(folder)
    try:
        yield
    finally:
        _observer = None


def _install() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    sys.addaudithook(_audit)
    fsync = os.fsync

    def observed_fsync(fd: Any) -> None:
        global _flushed
        number = fd if isinstance(fd, int) else fd.fileno()
        _flushed = Path(f"/proc/self/fd/{number}").resolve()
        try:
            _observe([_flushed])
        finally:
            _flushed = None
        fsync(fd)

    os.fsync = observed_fsync


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _observer is None:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if writes or (isinstance(mode, str) and any(letter in mode for letter in "wax+")):
            _observe([path])
    elif event in _CHANGES:
        paths = [path for path in arguments[:2] if not isinstance(path, int)]
        # `shutil.rmtree` removes entries of an open folder, by their names alone.
        folder = arguments[-1]
        if isinstance(folder, int) and folder >= 0 and event in {"os.remove", "os.rmdir"}:
            paths = [Path(f"/proc/self/fd/{folder}").resolve() / os.fsdecode(paths[0])]
        _observe(paths)


def _observe(paths: list[Any]) -> None:
    global _observer
    observer = _observer
    if observer is None or not any(
        os.fsdecode(path).startswith(_watched)
        for path in paths
        if isinstance(path, str | bytes | os.PathLike)
    ):
        return
    # What the observer itself does to files is not an operation of the job.
    _observer = None
    try:
        observer()
    finally:
        _observer = observer


def folder_states(
    job: Job, folder: Path, copies: Path, cut: bool = False
) -> tuple[list[Path], int]:
    """Run a job; return a copy of each distinct state in which a kill can leave its folder.

    Args:
        job: the job to run.
        folder: the folder that it changes.
        copies: a folder for the copies.
        cut: whether to copy also the states in which a file that is not yet flushed is cut in half,
            as by a kill within a write or a power failure.

    Returns:
        The copies, in order of time, and the number of file operations.
    """
    states: dict[str, Path] = {}
    count = 0

    def copy() -> None:
        nonlocal count
        count += 1
        state = copies / f"{count:05}"
        if folder.exists():
            shutil.copytree(folder, state)
        else:
            state.mkdir(parents=True)
        add(state)
        if cut and _flushed is not None and _flushed.is_file():
            state = copies / f"{count:05}-cut"
            shutil.copytree(folder, state)
            os.truncate(
                state / _flushed.relative_to(folder.resolve()), _flushed.stat().st_size // 2
            )
            add(state)

    def add(state: Path) -> None:
        if states.setdefault(content_digest(state), state) != state:
            shutil.rmtree(state)

    with before_operations(folder, copy):
        job()
    return list(states.values()), count


def content_digest(folder: Path) -> str:
    """Return a digest of the names and contents below a folder; temporary names are equal."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(".lock"):
            continue
        temporary = any(part.startswith(".") for part in path.relative_to(folder).parts)
        name = "temporary" if temporary else str(path.relative_to(folder))
        digest.update(f"{name}\0{path.is_dir()}\0".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Failed:
    """How a job ended one of whose file operations failed, and a copy of what it left.

    Children that leave the same share a copy.
    """

    status: int
    error: str
    folder: Path


def failing_states(
    job: Job, folder: Path, copies: Path, number: int, first: int = 1, every: int = 1
) -> list[Failed]:
    """Run a job; at each of its file operations fork a child in which the operation fails.

    The folder is copied before the child runs and put back afterwards, so that the job runs once
    and not once per operation. Operations during which the job has other threads, which a fork
    would not have, are left out.

    Args:
        job: the job to run.
        folder: the folder that it changes.
        copies: a folder for the copies of what the children leave.
        number: the number of the error.
        first: the first operation that fails; those before it take a lock, which refuses to be
            taken in a fork.
        every: fail at every operation, or at one of this many.
    """
    count = 0
    states: dict[str, Path] = {}
    failed: list[Failed] = []
    parent = os.getpid()
    before = folder.with_name(f"{folder.name}-before")

    def fail() -> None:
        nonlocal count
        count += 1
        if os.getpid() != parent or count < first or (count - first) % every:
            return
        # Those of libraries, such as the monitor of progress bars, are daemons.
        if sum(not thread.daemon for thread in threading.enumerate()) > 1:
            return
        place = copies / f"{count:05}"
        after, error = place / "after", place / "stderr"
        place.mkdir(parents=True)
        if folder.exists():
            shutil.copytree(folder, before)
        child = os.fork()
        if child == 0:
            sys.stderr = error.open("w")
            raise OSError(number, os.strerror(number))
        _, status = os.waitpid(child, 0)
        digest = content_digest(folder)
        if digest not in states:
            shutil.move(folder, after) if folder.exists() else after.mkdir()
            states[digest] = after
        shutil.rmtree(folder, ignore_errors=True)
        if before.exists():
            before.rename(folder)
        text = error.read_text() if error.exists() else ""
        failed.append(Failed(os.waitstatus_to_exitcode(status), text, states[digest]))

    with before_operations(folder, fail):
        try:
            status = job()
        except BaseException:
            if os.getpid() != parent:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(RAISED)
            raise
        if os.getpid() != parent:
            sys.stderr.flush()
            os._exit(status if isinstance(status, int) else 0)
    return failed


def failing_at(job: Job, folder: Path, at: int, number: int) -> int:
    """Run a job in a forked child whose `at`-th file operation fails; return its exit status."""

    def fail() -> None:
        nonlocal at
        at -= 1
        if at == 0:
            raise OSError(number, os.strerror(number))

    def run() -> object:
        with before_operations(folder, fail):
            return job()

    return in_child(run)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[str], None]]:
    """Mount a disk of `size` bytes at a folder, which needs root; else skip the test.

    Yields:
        A function that mounts it again with other options, such as "size=10m" or "ro".
    """
    folder.mkdir(parents=True, exist_ok=True)

    def mount(options: str) -> int:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    if shutil.which("mount") is None or mount(f"size={size}") != 0:
        pytest.skip("a small disk can be mounted by root only")
    try:
        yield lambda options: None if mount(f"remount,{options}") == 0 else pytest.fail(options)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)


def in_child(job: Job) -> int:
    """Run a job in a forked child; return its exit status, `RAISED` if it raised an exception."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = RAISED
        try:
            result = job()
            status = result if isinstance(result, int) else 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else RAISED
        finally:
            if status == RAISED:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
