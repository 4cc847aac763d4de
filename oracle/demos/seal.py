"""A seal over the bytes of a file, in the block before the data that HDF5 leaves to its users.

Every HDF5 reader skips that block. It holds two lines of text: the format with its version, and
the SHA-256 of all that follows. A damaged file is thus refused before the HDF5 library parses a
byte of it; the library is not written to withstand one.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path

from oracle.demos.schema import FORMAT_NAME, FORMAT_VERSION, DemonstrationsError

#: The smallest block that HDF5 allows.
BLOCK = 512
#: What an HDF5 file, without its block, starts with.
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LINES = re.compile(rb"([a-z0-9-]+) ([0-9]{1,9})\nsha256 ([0-9a-f]{64})\n\n*")


def write_seal(path: Path) -> None:
    """Seals a finished file, and waits until the disk has it."""
    with path.open("r+b") as file:
        file.seek(BLOCK)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        text = f"{FORMAT_NAME} {FORMAT_VERSION}\nsha256 {digest}\n".encode()
        file.seek(0)
        file.write(text.ljust(BLOCK, b"\n"))
        file.flush()
        os.fsync(file.fileno())


class SealedFile(AbstractContextManager[BufferedReader]):
    """An open file whose seal holds; DemonstrationsError for any other."""

    def __init__(self, path: Path) -> None:
        # A device or a pipe might never end.
        if path.exists() and not path.is_file():
            raise DemonstrationsError(f"{path} is no ordinary file: give a file of demonstrations")
        self._file = path.open("rb")
        try:
            _check(self._file, path)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> BufferedReader:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _check(file: BufferedReader, path: Path) -> None:
    block = file.read(BLOCK)
    lines = _LINES.fullmatch(block)
    if lines is None or len(block) < BLOCK or lines[1].decode() != FORMAT_NAME:
        raise DemonstrationsError(
            f"{path} is not a file of demonstrations: it does not start with {FORMAT_NAME!r}"
        )
    version = int(lines[2])
    if version != FORMAT_VERSION:
        raise DemonstrationsError(
            f"{path} has format version {version}: this program reads version {FORMAT_VERSION}"
        )
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != lines[3].decode():
        raise DemonstrationsError(
            f"{path} is damaged: its bytes are not those that were recorded (SHA-256 differs)"
        )
