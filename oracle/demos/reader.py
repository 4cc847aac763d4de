"""Reads HDF5 that may be hostile: nothing is followed, allocated or unpacked before it is checked.

Only hard links to chunked datasets of plain integers, packed by shuffle and deflate or not at
all, are read; their sizes are bounded by the file's own. Chunks are unpacked here, in threads,
each to exactly the size that it must have.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Collection, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from abacus.rules import TRUNCATING_ENDS, AbacusConfig
from oracle.demos.columns import Recording, digest_of
from oracle.demos.recipe import About, facts
from oracle.demos.schema import (
    ATTRIBUTES,
    SCALE,
    Array,
    Column,
    DemonstrationsError,
    groups,
    outcome_places,
    reward_table,
    tables,
)
from oracle.demos.writer import SealedFile

# Without types: the published stubs do not know the low-level interface.
_h5: Any = h5py
h5a, h5d, h5g, h5l, h5o, h5t, h5z = (
    getattr(_h5, name) for name in ("h5a", "h5d", "h5g", "h5l", "h5o", "h5t", "h5z")
)

#: What the HDF5 library and its wrapper raise on a file that they cannot make sense of.
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
#: A file may unpack to this many bytes for each of its own, or to so many in any case. Recorded
#: files unpack to six or seven times their size.
_MAX_EXPANSION = 64
_MAX_SMALL = 2**28


@contextmanager
def one_clear_error(what: str) -> Iterator[None]:
    """Turns whatever HDF5 raises into one line of our own."""
    try:
        yield
    except DemonstrationsError:
        raise
    except _ERRORS as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DemonstrationsError(f"{what} cannot be read: {reason}") from error


@dataclass(frozen=True)
class GuardedDataset:
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
        """All rows."""
        places = self._places()
        result = np.empty(self.shape, self.dtype)
        beside = (0,) * (len(self.shape) - 1)
        packed = (self.id.read_direct_chunk((row, *beside))[1] for row in places)
        for row, rows in zip(places, pool.map(self._unpack, packed), strict=True):
            result[row : row + self.chunk[0]] = rows[: self.shape[0] - row]
        return result

    def _places(self) -> range:
        """The first rows of the chunks, every one of which must be there and of a sane size."""
        places = range(0, self.shape[0], self.chunk[0])
        count = self.id.get_num_chunks()
        if count != len(places):
            raise DemonstrationsError(f"{self.name} has {count} chunks: it must have {len(places)}")
        found: dict[int, int] = {}

        def note(info: Any) -> None:
            if info.filter_mask == 0 and not any(info.chunk_offset[1:]):
                found[int(info.chunk_offset[0])] = int(info.size)

        self.id.chunk_iter(note)
        if set(found) != set(places) or max(found.values(), default=0) > self.chunk_size + 2**16:
            raise DemonstrationsError(f"{self.name} has chunks that do not fit its shape")
        return places

    def _unpack(self, packed: bytes) -> Array:
        raw = packed
        if self.deflated:
            stream = zlib.decompressobj()
            raw = stream.decompress(packed, self.chunk_size + 1)
        if len(raw) != self.chunk_size:
            raise DemonstrationsError(f"{self.name} has a chunk that unpacks to a wrong size")
        rows = np.frombuffer(raw, np.uint8)
        if self.shuffled:
            rows = np.ascontiguousarray(rows.reshape(self.dtype.itemsize, -1).T)
        return rows.view(self.dtype).reshape(self.chunk)


class GuardedFile:
    """An open HDF5 file of which only what is asked for by name, type and shape is touched."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = file.seek(0, 2)
        file.seek(0)
        # Through the file that is open already: no path is opened a second time.
        self._file = _h5.File(file, "r")
        self.root = h5o.open(self._file.id, b"/")

    def close(self) -> None:
        self._file.close()

    def attribute(self, name: str) -> Any:
        """A number, or what the JSON text of an attribute of the root says."""
        attribute = h5a.open(self.root, name.encode())
        kind = attribute.get_type()
        if attribute.shape != () or attribute.get_storage_size() > _MAX_TEXT:
            raise DemonstrationsError(f"attribute {name!r} is no single number or short text")
        if isinstance(kind, h5t.TypeIntegerID) and kind.get_size() <= 8:
            number = np.zeros((), np.int64)
            attribute.read(number)
            return int(number)
        if not isinstance(kind, h5t.TypeStringID) or kind.is_variable_str():
            raise DemonstrationsError(f"attribute {name!r} is neither a number nor a JSON text")
        text = np.zeros((), f"S{kind.get_size()}")
        attribute.read(text)
        try:
            return json.loads(bytes(text[()]))
        except (ValueError, RecursionError) as error:
            raise DemonstrationsError(f"attribute {name!r} is no JSON: {error}") from error

    def group(self, name: str, members: Collection[str]) -> Any:
        """A group (the root for an empty name) that has these members and no others."""
        group = self.root if not name else self._member(self.root, name, name)
        if not isinstance(group, h5g.GroupID):
            raise DemonstrationsError(f"{name} is no group")
        if group.get_num_objs() != len(members):
            raise DemonstrationsError(
                f"{name or 'the root'} has {group.get_num_objs()} members: it must have "
                f"{', '.join(sorted(members))}"
            )
        return group

    def _member(self, group: Any, member: str, name: str) -> Any:
        key = member.encode()
        if not group.links.exists(key):
            raise DemonstrationsError(f"{name} is missing")
        if group.links.get_info(key).type != h5l.TYPE_HARD:
            raise DemonstrationsError(f"{name} is a link to elsewhere: links are not followed")
        return h5o.open(group, key)

    def dataset(
        self,
        group: Any,
        name: str,
        dtype: np.dtype[np.generic],
        row_shape: tuple[int, ...],
    ) -> GuardedDataset:
        """A dataset of this type, with any number of rows of this shape."""
        dataset = self._member(group, name.rpartition("/")[2], name)
        if not isinstance(dataset, h5d.DatasetID):
            raise DemonstrationsError(f"{name} is no dataset")
        if not dataset.get_type().equal(h5t.py_create(dtype)):
            raise DemonstrationsError(f"{name} has another type than {dtype}")
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
        guarded = GuardedDataset(
            name, dataset, dtype, dataset.shape, plist.get_chunk(), deflated, shuffled
        )
        if guarded.chunk_size > _MAX_CHUNK_BYTES or guarded.chunk[1:] != row_shape:
            raise DemonstrationsError(f"{name} has chunks of shape {guarded.chunk}")
        return guarded

    def scale(self, dataset: GuardedDataset) -> float:
        """The attribute `scale` of a dataset."""
        attribute = h5a.open(dataset.id, SCALE.encode())
        if attribute.shape != () or not isinstance(attribute.get_type(), h5t.TypeFloatID):
            raise DemonstrationsError(f"{dataset.name} has a scale that is no number")
        value = np.zeros((), np.float64)
        attribute.read(value)
        return float(value)

    def check_memory(self, datasets: Collection[GuardedDataset]) -> None:
        """Refuses what would unpack to absurdly more than the file holds."""
        needed = sum(dataset.size for dataset in datasets)
        allowed = max(_MAX_SMALL, _MAX_EXPANSION * self.size)
        stored = sum(dataset.id.get_storage_size() for dataset in datasets)
        if needed > allowed or stored > self.size:
            raise DemonstrationsError(
                f"the file of {self.size:,} bytes claims to hold {needed:,}: it is not believed"
            )


def load(path: Path, verify: bool = False) -> tuple[Recording, About]:
    """The columns of a file and what it says about itself; DemonstrationsError if it is none."""
    with SealedFile(path) as sealed, one_clear_error(str(path)):
        file = GuardedFile(sealed)
        try:
            about = About.of_attributes({name: file.attribute(name) for name in ATTRIBUTES})
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                recording = _read(file, about.config, pool)
        finally:
            file.close()
    _check_values(recording, about)
    if verify and digest_of(recording, facts(about.recipe), about.config) != about.digest:
        raise DemonstrationsError(f"{path} holds another content than its digest says")
    return recording, about


def _read(file: GuardedFile, config: AbacusConfig, pool: Executor) -> Recording:
    file.group("", [*groups(config), "tables"])
    found = {
        group: {column.name: _find(file, group, column, config) for column in columns}
        for group, columns in groups(config).items()
    }
    all_tables = _find_tables(file, config)
    everything = [dataset for group in found.values() for dataset in group.values()]
    file.check_memory([*everything, *all_tables.values()])
    for name, dataset in all_tables.items():
        if not np.array_equal(dataset.read(pool), tables(config)[name].values):
            raise DemonstrationsError(f"{name} is not the table of this format")
    return Recording(
        **{
            group: {name: dataset.read(pool) for name, dataset in columns.items()}
            for group, columns in found.items()
        }
    )


def _find(file: GuardedFile, group: str, column: Column, config: AbacusConfig) -> GuardedDataset:
    members = [other.name for other in groups(config)[group]]
    return file.dataset(
        file.group(group, members),
        f"{group}/{column.name}",
        column.dtype,
        column.row_shape(config),
    )


def _find_tables(file: GuardedFile, config: AbacusConfig) -> dict[str, GuardedDataset]:
    wanted = tables(config)
    group = file.group("tables", [name.rpartition("/")[2] for name in wanted])
    found = {}
    for name, table in wanted.items():
        dataset = file.dataset(group, name, table.values.dtype, table.values.shape[1:])
        if dataset.shape != table.values.shape or file.scale(dataset) != table.scale:
            raise DemonstrationsError(f"{name} is not the table of this format")
        found[name] = dataset
    return found


def _check_values(recording: Recording, about: About) -> None:
    """Numbers in range, indices that fit: what is compiled trusts them."""
    for group, columns in groups(about.config).items():
        lengths = {len(rows) for rows in recording.group(group).values()}
        if lengths != {about.counts.get(group)} or lengths == {0}:
            raise DemonstrationsError(
                f"{group} has columns of {sorted(lengths)} rows: the attribute 'counts' says "
                f"{about.counts.get(group)}"
            )
        for column in columns:
            _check_range(f"{group}/{column.name}", recording.group(group)[column.name], column)
    _check_index(recording)
    _check_ends(recording)
    _check_steps(recording, about.config)


def _check_range(name: str, rows: Array, column: Column) -> None:
    if rows.min() < column.low:
        raise DemonstrationsError(f"{name} has a value below {column.low}")
    if rows.max() >= column.stop:
        raise DemonstrationsError(f"{name} has a value above {column.stop - 1}")


def _check_index(recording: Recording) -> None:
    counts, episodes, operations = recording.counts, recording.episodes, recording.operations
    _check_partition("episodes", episodes["start"], episodes["length"], counts["transitions"])
    _check_partition(
        "episodes", episodes["first_operation"], episodes["operations"], counts["operations"]
    )
    _check_partition("operations", operations["start"], operations["length"], counts["transitions"])
    owner = np.repeat(np.arange(counts["episodes"]), episodes["operations"])
    first = episodes["first_operation"]
    if (operations["episode"] != owner).any() or (
        operations["start"][first] != episodes["start"]
    ).any():
        raise DemonstrationsError("operations do not lie in the episodes that they name")
    if not operations["fresh"][first].all():
        raise DemonstrationsError("an episode starts with an operation that is not fresh")


def _check_partition(group: str, starts: Array, lengths: Array, total: int) -> None:
    stops = np.cumsum(lengths, dtype=np.int64)
    if stops[-1] != total or (stops - lengths != starts).any():
        raise DemonstrationsError(f"the {group} do not follow one another without a gap")


def _check_ends(recording: Recording) -> None:
    """The last transition of an episode, and no other, terminates it or truncates it."""
    transitions, episodes = recording.transitions, recording.episodes
    last = episodes["start"] + episodes["length"] - 1
    truncated = np.isin(episodes["end"], TRUNCATING_ENDS)
    for name, ended in (("truncated", truncated), ("terminated", ~truncated)):
        marks = transitions[name]
        if np.count_nonzero(marks) != ended.sum() or (marks[last] != ended).any():
            raise DemonstrationsError(f"transitions/{name} does not agree with the episodes")


def _check_steps(recording: Recording, config: AbacusConfig) -> None:
    """Actions are legal by the mask, and the reward is that of the outcome."""
    rows = recording.transitions
    for name in ("action", "taken"):
        if not ((rows["mask"] >> rows[name]) & 1).all():
            raise DemonstrationsError(f"transitions/{name} has an action that the mask forbids")
    places = outcome_places(rows["taken"], rows["outcome"])
    if (reward_table(config.reward).ravel()[places] != rows["reward"]).any():
        raise DemonstrationsError("transitions/reward is not that of the actions' outcomes")
