"""Atomic writes and locks between processes, for every file that the project writes.

A file or folder appears under its name only when it is complete and on disk. A crash, a kill or a
full disk leaves what was there before.
"""

from __future__ import annotations

import os
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
    """Write a text file as UTF-8."""
    atomic_write(path, lambda file: file.write(text.encode()))


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path at which to create a file or folder, and rename it to `path` afterwards.

    The temporary path is on the same file system. Nothing is renamed, and what was created is
    removed, if the block raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder) / path.name
        yield temporary
        publish(temporary, path)


def publish(temporary: Path, path: Path) -> None:
    """Flush a complete file or folder to disk, rename it to `path`, and flush the new name."""
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


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
