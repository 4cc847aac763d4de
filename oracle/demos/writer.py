"""A seal over the bytes of a file, in the block before the data that HDF5 leaves to its users.

Every HDF5 reader skips that block. It holds two lines of text: the format with its version, and
the SHA-256 of all that follows. A damaged file is thus refused before the HDF5 library parses a
byte of it; the library is not written to withstand one.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from abacus.rules import AbacusConfig
from oracle.demos.columns import ContentDigest, Recording
from oracle.demos.schema import (
    FORMAT_NAME,
    FORMAT_VERSION,
    SCALE,
    Array,
    Column,
    DemonstrationsError,
    names,
    tables,
)

#: The smallest block that HDF5 allows.
BLOCK = 512
#: What an HDF5 file, without its block, starts with.
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LINES = re.compile(rb"([a-z0-9-]+) ([0-9]{1,9})\nsha256 ([0-9a-f]{64})\n\n*")


def write_seal(path: Path) -> None:
    """Seal a finished file."""
    with path.open("r+b") as file:
        file.seek(BLOCK)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        text = f"{FORMAT_NAME} {FORMAT_VERSION}\nsha256 {digest}\n".encode()
        file.seek(0)
        file.write(text.ljust(BLOCK, b"\n"))


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


#: Files that HDF5 1.8 of 2008, and every reader since, can open.
LIBVER = ("v108", "v108")
#: Rows of a chunk, fewer where rows are long: a chunk is packed, padded and read as a whole.
CHUNK_ROWS = {"transitions": 2**16, "operations": 2**13, "episodes": 2**11}
CHUNK_BYTES = 2**20
#: Level of deflate from which higher ones gain little and take much longer.
DEFAULT_COMPRESSION = 4
#: Compressed chunks that may wait for the disk.
_PENDING = 64


class FileWriter:
    """Writes a file of demonstrations; it is no such file until `finish` has sealed it."""

    def __init__(
        self,
        path: Path,
        config: AbacusConfig,
        facts: dict[str, Any],
        compression: int = DEFAULT_COMPRESSION,
        pool: Executor | None = None,
    ) -> None:
        self._path = path
        self._digest = ContentDigest(facts)
        self._counts = {"transitions": 0, "episodes": 0, "operations": 0}
        # Nobody else knows this file yet, and not every file system can lock one.
        self._file = h5py.File(str(path), "w", libver=LIBVER, userblock_size=BLOCK, locking=False)
        filters = _Filters(compression)
        self._columns = {
            name: _ColumnWriter(self._file, name, column, config, filters, pool)
            for name, column in names(config)
        }
        for name, table in tables(config).items():
            dataset = self._file.create_dataset(
                name, data=table.values, chunks=table.values.shape, **filters.of(table.values.dtype)
            )
            dataset.attrs[SCALE] = table.scale

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def append(self, recording: Recording) -> None:
        """Adds episodes behind those that are there."""
        moved = recording.moved(**self._counts)
        for path, writer in self._columns.items():
            group, _, name = path.partition("/")
            rows = moved.group(group)[name]
            self._digest.add(path, rows)
            writer.append(rows)
        for name, count in recording.counts.items():
            self._counts[name] += count

    def finish(self, attributes: Mapping[str, Any]) -> str:
        """Writes what is left, attributes and seal; returns the digest of the content."""
        for writer in self._columns.values():
            writer.finish()
        digest = self._digest.hexdigest()
        described = {**attributes, "counts": self._counts, "digest": {"sha256": digest}}
        for name, value in described.items():
            self._file.attrs[name] = value if isinstance(value, int) else _json(value)
        self._file.close()
        write_seal(self._path)
        return digest

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Closes the file, however it is; a full disk makes that fail as well."""
        with suppress(OSError, RuntimeError):
            self._file.close()


def _json(value: Any) -> np.bytes_:
    # Of fixed length: the size of such a text is known before it is read.
    return np.bytes_(json.dumps(value).encode("ascii"))


class _Filters:
    """Shuffle and deflate, by HDF5 and by hand."""

    def __init__(self, level: int) -> None:
        if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= 9:
            raise ValueError(f"compression={level!r} is not allowed: give an integer from 0 to 9")
        self._level = level

    def of(self, dtype: np.dtype[np.generic]) -> dict[str, Any]:
        """What `create_dataset` is told."""
        if self._level == 0:
            return {}
        shuffle = dtype.itemsize > 1
        return {"compression": "gzip", "compression_opts": self._level, "shuffle": shuffle}

    def apply(self, rows: Array) -> bytes:
        """The bytes of a chunk as the filters make them."""
        if self._level == 0:
            return rows.tobytes()
        if rows.dtype.itemsize > 1:
            rows = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, rows.dtype.itemsize).T
        return zlib.compress(np.ascontiguousarray(rows).data, self._level)


class _ColumnWriter:
    def __init__(
        self,
        file: h5py.File,
        name: str,
        column: Column,
        config: AbacusConfig,
        filters: _Filters,
        pool: Executor | None,
    ) -> None:
        row_shape = column.row_shape(config)
        row_bytes = int(np.prod(row_shape)) * column.dtype.itemsize
        rows = min(CHUNK_ROWS[name.partition("/")[0]], CHUNK_BYTES // row_bytes)
        self._chunk = (max(rows, 1), *row_shape)
        self._dataset = file.create_dataset(
            name,
            shape=(0, *row_shape),
            maxshape=(None, *row_shape),
            chunks=self._chunk,
            dtype=column.dtype,
            **filters.of(column.dtype),
        )
        # Without types: the published stubs do not know the low-level interface.
        self._low: Any = self._dataset.id
        self._filters, self._pool = filters, pool
        self._rest: list[Array] = []
        self._rest_rows = 0
        self._rows = 0
        self._pending: deque[tuple[int, Future[bytes]]] = deque()

    def append(self, rows: Array) -> None:
        self._rest.append(rows)
        self._rest_rows += len(rows)
        if self._rest_rows < self._chunk[0]:
            return
        rest = np.concatenate(self._rest)
        whole = len(rest) - len(rest) % self._chunk[0]
        for start in range(0, whole, self._chunk[0]):
            self._submit(rest[start : start + self._chunk[0]])
        self._rest, self._rest_rows = [rest[whole:]], len(rest) - whole

    def finish(self) -> None:
        rest = np.concatenate(self._rest)
        rows = self._rows + len(rest)
        if len(rest):
            padded = np.zeros(self._chunk, self._dataset.dtype)
            padded[: len(rest)] = rest
            self._submit(padded)
        self._write_pending(0)
        self._extend(rows)

    def _submit(self, chunk: Array) -> None:
        self._write_pending(_PENDING)
        if self._pool is None:
            packed: Future[bytes] = Future()
            packed.set_result(self._filters.apply(chunk))
        else:
            packed = self._pool.submit(self._filters.apply, chunk)
        self._pending.append((self._rows, packed))
        self._rows += len(chunk)

    def _write_pending(self, allowed: int) -> None:
        """Hands over what is packed, and waits until no more than so many chunks are not."""
        while self._pending and (len(self._pending) > allowed or self._pending[0][1].done()):
            row, packed = self._pending.popleft()
            self._extend(row + self._chunk[0])
            offset = (row, *(0 for _ in self._chunk[1:]))
            self._low.write_direct_chunk(offset, packed.result())

    def _extend(self, rows: int) -> None:
        self._low.set_extent((rows, *self._chunk[1:]))
