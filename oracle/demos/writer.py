"""Writes columns into one HDF5 file, part by part, in chunks that threads compress.

Chunks are compressed outside the HDF5 library, which would hold its lock meanwhile, and handed
over as they go to disk. The result is what the library's own shuffle and deflate filters make.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from abacus.rules import AbacusConfig
from oracle.demos.digest import ContentDigest
from oracle.demos.recording import Recording
from oracle.demos.schema import SCALE, Array, Column, names, tables
from oracle.demos.seal import BLOCK, write_seal

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
