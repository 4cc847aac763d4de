"""Atomic writes and locks between processes, for every file that the project writes.

A file or folder appears under its name only when it is complete and on disk. A crash, a kill or a
full disk leaves what was there before. A symbolic link is followed; what exists and is neither a
file nor a folder, such as a terminal, a pipe or another device, is written to and never replaced.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import FileLock


def atomic_write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file with a function that is given an open binary file."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        write(file)


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8; undecodable bytes of file names are written as escapes."""
    atomic_write(path, lambda file: file.write(text.encode(errors="backslashreplace")))


@contextmanager
def atomic_path(path: Path, replaces_folder: bool = False) -> Iterator[Path]:
    """Yield a path at which to create a file or folder, and rename it to `path` afterwards.

    The temporary path is on the same file system. Nothing is renamed, and what was created is
    removed, if the block raises. For a device or pipe, the file is copied to it afterwards.

    A folder that exists at `path` is an error unless `replaces_folder`: then it is moved aside, and
    removed when the new one is in place.
    """
    in_place = is_special(path)
    path = path if in_place else followed(path)
    parent = None if in_place else path.parent
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(
            dir=parent, prefix=f".{path.name}.", ignore_cleanup_errors=True
        ) as folder:
            temporary = Path(folder) / path.name
            yield temporary
            if in_place:
                _copy_to_special(temporary, path)
            elif replaces_folder and path.is_dir():
                # A dataset of Minari, which shares this folder, cannot have a name with a dot.
                _exchange(temporary, path, Path(folder) / ".replaced")
            else:
                move_into_place(temporary, path)
    except OSError as error:
        # Errors of a write name no file.
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def move_into_place(temporary: Path, path: Path) -> None:
    """Flush a complete file or folder to disk, rename it to `path`, and flush the new name."""
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


def _exchange(temporary: Path, path: Path, aside: Path) -> None:
    """Move a folder aside and a complete one to its place, or leave it where it is."""
    path.replace(aside)
    try:
        move_into_place(temporary, path)
    except OSError:
        if not path.exists():
            aside.replace(path)
        raise


def followed(path: Path) -> Path:
    """Return the file to write for `path`: the target of a symbolic link, which may be missing."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def is_special(path: Path) -> bool:
    """Return whether a path exists and is not to be replaced: a device, a pipe, standard output."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    is_replaceable = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return not is_replaceable or _standard_stream(status) is not None


def _standard_stream(status: os.stat_result) -> int | None:
    """Return the descriptor of standard output or error if it is open on this file."""
    for descriptor in (1, 2):
        try:
            if os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
        except OSError:  # the stream is closed
            continue
    return None


def _copy_to_special(temporary: Path, path: Path) -> None:
    stream = _standard_stream(path.stat())
    if stream is None:
        descriptor = os.open(path, os.O_WRONLY)
    else:
        # A second open file would start at the beginning of a redirected output.
        sys.stdout.flush()
        descriptor = os.dup(stream)
    with temporary.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        shutil.copyfileobj(source, target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock(path: Path, timeout: float | None = None) -> Iterator[None]:
    """Hold an exclusive lock between processes on a lock file, which is created if needed.

    Wait until the lock is free, or raise TimeoutError after `timeout` seconds (0: try once). The
    operating system releases the lock when the process ends, even if it is killed. The lock file
    is left in place; lock a file of its own, never one that is written atomically.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, timeout=-1 if timeout is None else timeout):
        yield
