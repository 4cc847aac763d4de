"""Read a demonstrations file that may be hostile.

Nothing is followed, allocated or decompressed before it is checked. Only hard links to chunked
datasets of plain integers, compressed by shuffle and deflate or not at all, are read, and their
sizes are bounded by that of the file. Attributes and datasets that the format does not have are
refused. The values are checked last: compiled code relies on valid indices.

Chunks are decompressed here, in threads, each to exactly the size that it must have. The HDF5
library would return memory that it did not write for a chunk that is too short, and would expand a
chunk without a limit.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from abacus.rules import TRUNCATING_ENDS, AbacusConfig
from oracle.demos.recipe import Metadata, Recipe, format_attribute, tasks_of
from oracle.demos.schema import (
    DESCRIPTION,
    FORMAT_VERSION,
    SCALE,
    TEXTS,
    Array,
    Attributes,
    DemonstrationsError,
    Groups,
    attributes_of,
    every_column,
    groups,
    outcome_index,
    reward_table,
    root_attributes,
    tables,
)
from oracle.demos.writer import content_digest, open_sealed

# Untyped: the published stubs do not cover the low-level interface.
_h5: Any = h5py
h5a, h5d, h5g, h5l, h5o, h5t, h5z = (
    getattr(_h5, name) for name in ("h5a", "h5d", "h5g", "h5l", "h5o", "h5t", "h5z")
)

#: What the HDF5 library and its wrapper raise for a file that they cannot read.
_ERRORS = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    SystemError,
    zlib.error,
)
_MAX_TEXT = 2**16
_MAX_CHUNK_BYTES = 2**24
#: A file may expand to this many times its size, or to `_MAX_SMALL` bytes in any case. Recorded
#: files expand to six or seven times their size.
_MAX_EXPANSION = 64
_MAX_SMALL = 2**28


def read_file(path: Path, verify: bool = False) -> tuple[Groups, Recipe, Metadata]:
    """Return the columns, the recipe and the metadata of a file; `verify` checks the digest too.

    Raise DemonstrationsError if the file is damaged or holds no demonstrations.
    """
    with open_sealed(path) as (sealed, version), _errors_in_one_line(path):
        file = _GuardedFile(sealed)
        try:
            if file.attribute("format") != format_attribute(version):
                raise DemonstrationsError(f"{path} has two format versions: in seal and attribute")
            names = root_attributes(version)
            file.check_names(names)
            metadata = Metadata.from_attributes(
                {name: file.attribute(name, is_text=name in TEXTS) for name in names}
            )
            file.attributes = _expected_attributes(metadata.config, version)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                columns = _read_columns(file, metadata.config, pool)
        finally:
            file.close()
    _check_values(columns, metadata)
    tasks = tasks_of(columns, metadata.config.base) if metadata.has_tasks else None
    recipe = metadata.recipe(tasks)
    if verify and content_digest(columns, recipe) != metadata.digest:
        raise DemonstrationsError(f"{path} does not have the content of its digest")
    return columns, recipe, metadata


def _expected_attributes(config: AbacusConfig, version: int) -> dict[str, Attributes]:
    """Return the attributes of groups and datasets by path; old versions have scales alone."""
    attributes = attributes_of(config)
    if version == FORMAT_VERSION:
        return attributes
    return {
        name: {SCALE: of_item[SCALE]} if name in tables(config) else {}
        for name, of_item in attributes.items()
    }


@contextmanager
def _errors_in_one_line(path: Path) -> Iterator[None]:
    """Turn whatever HDF5 raises into a DemonstrationsError of one line."""
    try:
        yield
    except DemonstrationsError:
        raise
    except _ERRORS as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DemonstrationsError(f"{path} cannot be read: {reason}") from error


def _read_columns(file: _GuardedFile, config: AbacusConfig, pool: Executor) -> Groups:
    """Check all datasets, then the memory that they need, then read them."""
    file.group("", [*groups(config), "tables"])
    members = {
        group: [column.name for column in columns] for group, columns in groups(config).items()
    }
    found = {
        (group, column.name): file.dataset(
            file.group(group, members[group]),
            f"{group}/{column.name}",
            column.dtype,
            column.row_shape(config),
        )
        for group, column in every_column(config)
    }
    all_tables = tables(config)
    group = file.group("tables", [name.rpartition("/")[2] for name in all_tables])
    stored = {}
    for name, table in all_tables.items():
        dataset = file.dataset(group, name, table.values.dtype, table.values.shape[1:])
        if dataset.shape != table.values.shape:
            raise DemonstrationsError(f"{name} is not the table of this format")
        stored[name] = dataset
    file.check_memory([*found.values(), *stored.values()])
    for name, dataset in stored.items():
        if not np.array_equal(dataset.read(pool), all_tables[name].values):
            raise DemonstrationsError(f"{name} is not the table of this format")
    return {
        group: {name: found[group, name].read(pool) for name in names}
        for group, names in members.items()
    }


@dataclass(frozen=True)
class _GuardedDataset:
    """A dataset that passed every check but that of its chunks."""

    name: str
    id: Any  # h5py.h5d.DatasetID
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    deflated: bool
    shuffled: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def chunk_size(self) -> int:
        return math.prod(self.chunk) * self.dtype.itemsize

    def read(self, pool: Executor) -> Array:
        """Return all rows."""
        starts = self._chunk_starts()
        result = np.empty(self.shape, self.dtype)
        other_axes = (0,) * (len(self.shape) - 1)
        packed = (self.id.read_direct_chunk((row, *other_axes))[1] for row in starts)
        for row, rows in zip(starts, pool.map(self._decompress, packed), strict=True):
            result[row : row + self.chunk[0]] = rows[: self.shape[0] - row]
        return result

    def _chunk_starts(self) -> range:
        """Return the first rows of the chunks, all of which must exist and have a valid size.

        The library writes past its buffer if the stored size of an unfiltered chunk is too large.
        """
        starts = range(0, self.shape[0], self.chunk[0])
        count = self.id.get_num_chunks()
        if count != len(starts):
            raise DemonstrationsError(f"{self.name} has {count} chunks: it must have {len(starts)}")
        sizes: dict[int, int] = {}

        def add(info: Any) -> None:
            if info.filter_mask == 0 and not any(info.chunk_offset[1:]):
                sizes[int(info.chunk_offset[0])] = int(info.size)

        self.id.chunk_iter(add)
        smallest = 1 if self.deflated else self.chunk_size
        largest = self.chunk_size + (2**16 if self.deflated else 0)
        if set(sizes) != set(starts) or not all(
            smallest <= size <= largest for size in sizes.values()
        ):
            raise DemonstrationsError(f"{self.name} has chunks that do not fit its shape")
        return starts

    def _decompress(self, packed: bytes) -> Array:
        raw = packed
        if self.deflated:
            raw = zlib.decompressobj().decompress(packed, self.chunk_size + 1)
        if len(raw) != self.chunk_size:
            raise DemonstrationsError(f"{self.name} has a chunk that expands to a wrong size")
        rows = np.frombuffer(raw, np.uint8)
        if self.shuffled:
            rows = np.ascontiguousarray(rows.reshape(self.dtype.itemsize, -1).T)
        return rows.view(self.dtype).reshape(self.chunk)


class _GuardedFile:
    """An open HDF5 file of which only objects of an expected name, type and shape are touched."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = file.seek(0, 2)
        file.seek(0)
        # Through the file that is open already: no path is opened a second time.
        self._file = _h5.File(file, "r")
        self._root = h5o.open(self._file.id, b"/")
        #: The attributes that groups and datasets must have, by path.
        self.attributes: Mapping[str, Attributes] = {}

    def close(self) -> None:
        self._file.close()

    def check_names(self, known: Collection[str], item: Any = None, name: str = "the root") -> None:
        """Raise if an object, by default the root, has attributes other than the known ones."""
        item = self._root if item is None else item
        # One more than are known has a name that is not.
        for index in range(min(h5a.get_num_attrs(item), len(known) + 1)):
            found = h5a.open(item, index=index).name.decode(errors="replace")
            if found not in known:
                raise DemonstrationsError(f"{name} has an unknown attribute, {found[:40]!r}")

    def attribute(self, name: str, item: Any = None, is_text: bool = False) -> Any:
        """Return an attribute, by default of the root: a number, a text, or the value of JSON."""
        attribute = h5a.open(self._root if item is None else item, name.encode())
        kind = attribute.get_type()
        if attribute.shape != () or attribute.get_storage_size() > _MAX_TEXT:
            raise DemonstrationsError(f"attribute {name!r} is not a single number or short text")
        for number, numbers in ((np.int64, h5t.TypeIntegerID), (np.float64, h5t.TypeFloatID)):
            if isinstance(kind, numbers) and kind.get_size() <= 8:
                value = np.zeros((), number)
                attribute.read(value)
                return value.item()
        if not isinstance(kind, h5t.TypeStringID) or kind.is_variable_str():
            raise DemonstrationsError(f"attribute {name!r} is neither a number nor a text")
        text = np.zeros((), f"S{kind.get_size()}")
        attribute.read(text)
        if is_text:
            return bytes(text[()]).decode("ascii")
        try:
            return json.loads(bytes(text[()]))
        except (ValueError, RecursionError) as error:
            raise DemonstrationsError(f"attribute {name!r} is not JSON: {error}") from error

    def _check_attributes(self, item: Any, name: str) -> None:
        """Raise unless a group or dataset has the attributes of the format, in any wording."""
        expected = self.attributes[name]
        self.check_names(expected, item, name)
        for key, value in expected.items():
            found = self.attribute(key, item, is_text=isinstance(value, str))
            if type(found) is not type(value) or (found != value and key != DESCRIPTION):
                raise DemonstrationsError(f"{name} has an attribute {key!r} of another format")

    def group(self, name: str, members: Collection[str]) -> Any:
        """Return a group (the root for an empty name) with these members and no others."""
        group = self._member(self._root, name, name) if name else self._root
        if not isinstance(group, h5g.GroupID):
            raise DemonstrationsError(f"{name} is not a group")
        if group.get_num_objs() != len(members):
            raise DemonstrationsError(
                f"{name or 'the root'} has {group.get_num_objs()} members: it must have "
                f"{', '.join(sorted(members))}"
            )
        if name:
            self._check_attributes(group, name)
        return group

    def _member(self, group: Any, member: str, name: str) -> Any:
        key = member.encode()
        if not group.links.exists(key):
            raise DemonstrationsError(f"{name} is missing")
        if group.links.get_info(key).type != h5l.TYPE_HARD:
            raise DemonstrationsError(f"{name} is a soft or external link: links are not followed")
        return h5o.open(group, key)

    def dataset(
        self, group: Any, name: str, dtype: np.dtype[np.generic], row_shape: tuple[int, ...]
    ) -> _GuardedDataset:
        """Return a dataset of this type, with any number of rows of this shape."""
        dataset = self._member(group, name.rpartition("/")[2], name)
        if not isinstance(dataset, h5d.DatasetID):
            raise DemonstrationsError(f"{name} is not a dataset")
        self._check_attributes(dataset, name)
        if not dataset.get_type().equal(h5t.py_create(dtype)):
            raise DemonstrationsError(f"{name} does not have the type {dtype}")
        if dataset.rank != 1 + len(row_shape) or dataset.shape[1:] != row_shape:
            raise DemonstrationsError(
                f"{name} has shape {dataset.shape}: it must be (rows, *{row_shape})"
            )
        plist = dataset.get_create_plist()
        if plist.get_layout() != h5d.CHUNKED:
            raise DemonstrationsError(f"{name} is not stored in chunks in this file")
        filters = [plist.get_filter(k)[0] for k in range(min(plist.get_nfilters(), 3))]
        shuffled = filters[:1] == [h5z.FILTER_SHUFFLE] and dtype.itemsize > 1
        if filters[shuffled:] not in ([], [h5z.FILTER_DEFLATE]):
            raise DemonstrationsError(f"{name} has filters other than shuffle and deflate")
        deflated = len(filters) > shuffled
        guarded = _GuardedDataset(
            name, dataset, dtype, dataset.shape, plist.get_chunk(), deflated, shuffled
        )
        if guarded.chunk_size > _MAX_CHUNK_BYTES or guarded.chunk[1:] != row_shape:
            raise DemonstrationsError(f"{name} has chunks of shape {guarded.chunk}")
        return guarded

    def check_memory(self, datasets: Collection[_GuardedDataset]) -> None:
        """Raise if the datasets would expand to far more than a recorded file of this size."""
        needed = sum(dataset.size for dataset in datasets)
        allowed = max(_MAX_SMALL, _MAX_EXPANSION * self.size)
        stored = sum(dataset.id.get_storage_size() for dataset in datasets)
        if needed > allowed or stored > self.size:
            raise DemonstrationsError(
                f"the file of {self.size:,} bytes claims to hold {needed:,}: that is not plausible"
            )


def _check_values(columns: Groups, metadata: Metadata) -> None:
    config = metadata.config
    for group in groups(config):
        lengths = {len(rows) for rows in columns[group].values()}
        count = metadata.counts.get(group)
        if lengths != {count} or not count:
            raise DemonstrationsError(
                f"{group} has columns of {sorted(lengths)} rows: the attribute 'counts' says "
                f"{count}"
            )
    for group, column in every_column(config):
        rows = columns[group][column.name]
        if rows.min() < column.low or rows.max() >= column.stop:
            raise DemonstrationsError(
                f"{group}/{column.name} has a value that is not from {column.low} to "
                f"{column.stop - 1}"
            )
    _check_indices(columns)
    _check_ends(columns)
    _check_steps(columns, config)


def _check_indices(columns: Groups) -> None:
    episodes, operations = columns["episodes"], columns["operations"]
    transitions = len(columns["transitions"]["action"])
    first = episodes["first_operation"]
    _check_partition("episodes", episodes["start"], episodes["length"], transitions)
    _check_partition("episodes", first, episodes["operations"], len(operations["start"]))
    _check_partition("operations", operations["start"], operations["length"], transitions)
    owner = np.repeat(np.arange(len(first)), episodes["operations"])
    if (operations["episode"] != owner).any() or (
        operations["start"][first] != episodes["start"]
    ).any():
        raise DemonstrationsError("operations do not lie in their episodes")
    if not operations["fresh"][first].all():
        raise DemonstrationsError("an episode starts with an operation that is not fresh")


def _check_partition(group: str, starts: Array, lengths: Array, total: int) -> None:
    stops = np.cumsum(lengths, dtype=np.int64)
    if stops[-1] != total or (stops - lengths != starts).any():
        raise DemonstrationsError(f"the {group} have gaps or overlaps")


def _check_ends(columns: Groups) -> None:
    """Check that exactly the last transition of each episode terminates or truncates it."""
    transitions, episodes = columns["transitions"], columns["episodes"]
    last = episodes["start"] + episodes["length"] - 1
    truncated = np.isin(episodes["end"], TRUNCATING_ENDS)
    for name, ended in (("truncated", truncated), ("terminated", ~truncated)):
        marks = transitions[name]
        if np.count_nonzero(marks) != ended.sum() or (marks[last] != ended).any():
            raise DemonstrationsError(f"transitions/{name} does not agree with the episodes")


def _check_steps(columns: Groups, config: AbacusConfig) -> None:
    """Check that actions are legal by the mask and that rewards follow from the outcomes."""
    rows = columns["transitions"]
    for name in ("action", "taken"):
        if not ((rows["mask"] >> rows[name]) & 1).all():
            raise DemonstrationsError(f"transitions/{name} has an action that the mask forbids")
    index = outcome_index(rows["taken"], rows["outcome"])
    if (reward_table(config.reward).ravel()[index] != rows["reward"]).any():
        raise DemonstrationsError("transitions/reward does not follow from actions and outcomes")
