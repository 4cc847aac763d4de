"""Write a demonstrations file: HDF5 under a seal, with a digest of its content.

The seal is in the user block, the first 512 bytes, which every HDF5 reader skips. It holds two
lines of text: the format with its version, and the SHA-256 of everything after the block. A damaged
file is thus refused before the HDF5 library, which is not written to withstand one, parses a byte
of it.

The digest is over the values of the columns, not over their compression.

The file is made in memory and written with ordinary I/O: the HDF5 library does not survive every
error of a write. Compressed, a million operations take 60 MB.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from abacus.checks import check_integer
from abacus.rules import AbacusConfig
from oracle.demos.recipe import (
    DEFAULT_COMPRESSION,
    Recipe,
    content_attributes,
    initial_attributes,
)
from oracle.demos.schema import (
    FORMAT_NAME,
    FORMAT_VERSION,
    FORMAT_VERSIONS,
    KNOWN_VERSIONS,
    Array,
    Attributes,
    Column,
    DemonstrationsError,
    Groups,
    attributes_of,
    every_column,
    groups,
    tables,
)

#: The smallest user block that HDF5 allows.
USER_BLOCK = 512
_SEAL = re.compile(rb"([a-z0-9-]+) ([0-9]{1,9})\nsha256 ([0-9a-f]{64})\n\n*")
#: Files that HDF5 1.8 of 2008, and every later version, can open.
_LIBVER = ("v108", "v108")
#: Rows of a chunk, fewer where rows are long: chunks are compressed, padded and read as a whole.
_CHUNK_ROWS = {"transitions": 2**16, "operations": 2**13, "episodes": 2**11}
_CHUNK_BYTES = 2**20
#: Compressed chunks of a column that may wait to be written.
_MAX_PENDING = 64


def seal_of(content: bytes | memoryview, version: int = FORMAT_VERSION) -> bytes:
    """Return the user block that seals the content after it, of a version of the format."""
    digest = hashlib.sha256(content).hexdigest()
    text = f"{FORMAT_NAME} {version}\nsha256 {digest}\n".encode()
    return text.ljust(USER_BLOCK, b"\n")


@contextmanager
def open_sealed(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """Open a file whose seal is intact; yield it with its version of the format.

    Raise DemonstrationsError for any other file.
    """
    # A device or a pipe might never end.
    if path.exists() and not path.is_file():
        raise DemonstrationsError(f"{path} is not a regular file: give a demonstrations file")
    with path.open("rb") as file:
        block = file.read(USER_BLOCK)
        seal = _SEAL.fullmatch(block)
        if seal is None or len(block) < USER_BLOCK or seal[1].decode() != FORMAT_NAME:
            raise DemonstrationsError(
                f"{path} is not a demonstrations file: it does not start with {FORMAT_NAME!r}"
            )
        version = int(seal[2])
        if version not in FORMAT_VERSIONS:
            raise DemonstrationsError(
                f"{path} has format version {version}: this program reads version {KNOWN_VERSIONS}"
            )
        if hashlib.file_digest(file, "sha256").hexdigest() != seal[3].decode():
            raise DemonstrationsError(
                f"{path} is damaged: its SHA-256 is not the one that was recorded"
            )
        yield file, version


class ContentDigest:
    """The SHA-256 over the values of every column, updated part by part."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._columns: dict[str, Any] = {}
        self._shapes: dict[str, list[Any]] = {}

    def update(self, name: str, rows: Array) -> None:
        """Add the next rows of a column, named by its path."""
        if name not in self._columns:
            self._columns[name] = hashlib.sha256()
            self._shapes[name] = [rows.dtype.str, 0, *rows.shape[1:]]
        self._shapes[name][1] += len(rows)
        self._columns[name].update(np.ascontiguousarray(rows).view(np.uint8).data)

    def hexdigest(self) -> str:
        content = {
            "format": [FORMAT_NAME, self._recipe.content_version],
            "facts": content_attributes(self._recipe),
            "columns": {
                name: [self._shapes[name], column.hexdigest()]
                for name, column in self._columns.items()
            },
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def content_digest(columns: Groups, recipe: Recipe) -> str:
    """Return the digest of columns in memory."""
    digest = ContentDigest(recipe)
    for group, column in every_column(recipe.config):
        digest.update(f"{group}/{column.name}", columns[group][column.name])
    return digest.hexdigest()


class FileWriter:
    """Collects a demonstrations file episode by episode; `finish` completes and writes it."""

    def __init__(
        self,
        path: Path,
        recipe: Recipe,
        compression: int = DEFAULT_COMPRESSION,
        pool: Executor | None = None,
    ) -> None:
        config, filters = recipe.config, _Filters(compression)
        self._path, self._recipe = path, recipe
        self._digest = ContentDigest(recipe)
        #: Rows written to each group.
        self.counts = dict.fromkeys(groups(config), 0)
        self._image = BytesIO()
        # Untyped: the published stubs take a path only.
        image: Any = self._image
        self._file = h5py.File(image, "w", libver=_LIBVER, userblock_size=USER_BLOCK)
        self._writers = [
            (group, column, _ColumnWriter(self._file, group, column, config, filters, pool))
            for group, column in every_column(config)
        ]
        for name, table in tables(config).items():
            self._file.create_dataset(
                name, data=table.values, chunks=table.values.shape, **filters.of(table.values.dtype)
            )

    def append(self, columns: Groups) -> None:
        """Append episodes, whose row indices are offset by the rows that were written before."""
        for group, column, writer in self._writers:
            rows = columns[group][column.name]
            if column.index_of is not None:
                rows = rows + self.counts[column.index_of]
            self._digest.update(f"{group}/{column.name}", rows)
            writer.append(rows)
        for group in self.counts:
            self.counts[group] += len(next(iter(columns[group].values())))

    def finish(
        self, command: Sequence[str] = (), provenance: Mapping[str, Any] | None = None
    ) -> str:
        """Add pending rows, attributes and seal, write the file, and return the content digest.

        `provenance` replaces the attributes that tell how the content was recorded; by default, by
        this process.
        """
        for _, _, writer in self._writers:
            writer.finish()
        digest = self._digest.hexdigest()
        attributes = initial_attributes(self._recipe, command)
        attributes |= {"counts": self.counts, "digest": {"sha256": digest}}
        attributes |= provenance or {}
        _set_attributes(self._file, attributes)
        for name, of_item in attributes_of(self._recipe.config).items():
            _set_attributes(self._file[name], of_item)
        self._file.close()
        image = self._image.getbuffer()
        image[:USER_BLOCK] = seal_of(image[USER_BLOCK:])
        with self._path.open("wb") as file:
            file.write(image)
        return digest

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the memory of the file."""
        self._file.close()


def _set_attributes(item: Any, attributes: Attributes) -> None:
    """Set attributes: numbers and texts as they are, anything else as JSON.

    Texts have a fixed length: their size is known before they are read.
    """
    for name, value in attributes.items():
        if not isinstance(value, int | float):
            text = value if isinstance(value, str) else json.dumps(value)
            value = np.bytes_(text.encode("ascii"))
        item.attrs[name] = value


class _Filters:
    """HDF5's shuffle and deflate, as settings of a dataset and applied to chunks here."""

    def __init__(self, level: int) -> None:
        self._level = check_integer("compression", level, 0, 9)

    def of(self, dtype: np.dtype[np.generic]) -> dict[str, Any]:
        """Return the settings for `create_dataset`."""
        if self._level == 0:
            return {}
        shuffle = dtype.itemsize > 1
        return {"compression": "gzip", "compression_opts": self._level, "shuffle": shuffle}

    def apply(self, rows: Array) -> bytes:
        """Return the bytes of a chunk as HDF5 stores them."""
        if self._level == 0:
            return rows.tobytes()
        if rows.dtype.itemsize > 1:
            rows = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, rows.dtype.itemsize).T
        return zlib.compress(np.ascontiguousarray(rows).data, self._level)


class _ColumnWriter:
    """Collects the rows of a column into chunks, which the pool compresses."""

    def __init__(
        self,
        file: h5py.File,
        group: str,
        column: Column,
        config: AbacusConfig,
        filters: _Filters,
        pool: Executor | None,
    ) -> None:
        row_shape = column.row_shape(config)
        row_bytes = int(np.prod(row_shape)) * column.dtype.itemsize
        self._chunk = (max(min(_CHUNK_ROWS[group], _CHUNK_BYTES // row_bytes), 1), *row_shape)
        dataset = file.create_dataset(
            f"{group}/{column.name}",
            shape=(0, *row_shape),
            maxshape=(None, *row_shape),
            chunks=self._chunk,
            dtype=column.dtype,
            **filters.of(column.dtype),
        )
        # Untyped: the published stubs do not cover the low-level interface.
        self._dataset: Any = dataset.id
        self._dtype, self._filters, self._pool = column.dtype, filters, pool
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
        """Write the last, padded chunk and set the final number of rows."""
        rest = np.concatenate(self._rest)
        rows = self._rows + len(rest)
        if len(rest):
            padded = np.zeros(self._chunk, self._dtype)
            padded[: len(rest)] = rest
            self._submit(padded)
        self._write_pending(0)
        self._set_rows(rows)

    def _submit(self, chunk: Array) -> None:
        self._write_pending(_MAX_PENDING)
        if self._pool is None:
            packed: Future[bytes] = Future()
            packed.set_result(self._filters.apply(chunk))
        else:
            packed = self._pool.submit(self._filters.apply, chunk)
        self._pending.append((self._rows, packed))
        self._rows += len(chunk)

    def _write_pending(self, allowed: int) -> None:
        """Write finished chunks; block until at most `allowed` are pending."""
        while self._pending and (len(self._pending) > allowed or self._pending[0][1].done()):
            row, packed = self._pending.popleft()
            self._set_rows(row + self._chunk[0])
            self._dataset.write_direct_chunk((row, *(0 for _ in self._chunk[1:])), packed.result())

    def _set_rows(self, rows: int) -> None:
        self._dataset.set_extent((rows, *self._chunk[1:]))
