"""Files that are whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file by a function; a kill or a full disk leaves what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with _removed_on_failure(Path(name)):
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    write_whole(path, lambda file: file.write(text.encode()))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the others wait. The lock goes with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _removed_on_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise
