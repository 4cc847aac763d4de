"""Demonstrations files that are damaged, or forged on purpose.

Every kind of damage is a function that spoils an intact file in place. Those that use h5py seal the
file again, so that it passes the check of the seal, as a forger would.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py as typed_h5py
import numpy as np

from oracle.demos import Demonstrations, DemonstrationsError
from oracle.demos.writer import USER_BLOCK, seal_of

# Untyped: the published stubs cover neither links nor virtual datasets.
h5py: Any = typed_h5py
Rng = np.random.Generator
File = Any
Damage = Callable[[Path, Rng], None]

GROUPS = ("transitions", "episodes", "operations", "tables")


def write_seal(path: Path) -> None:
    """Seal a file whose content was changed."""
    content = path.read_bytes()[USER_BLOCK:]
    path.write_bytes(seal_of(content) + content)


def flipped_bytes(path: Path, rng: Rng) -> None:
    data = bytearray(path.read_bytes())
    for place in rng.integers(len(data), size=rng.integers(1, 20)):
        data[place] ^= int(rng.integers(1, 256))
    path.write_bytes(data)


def flipped_bytes_in_the_seal(path: Path, rng: Rng) -> None:
    data = bytearray(path.read_bytes())
    data[int(rng.integers(120))] ^= int(rng.integers(1, 256))
    path.write_bytes(data)


def overwritten_block(path: Path, rng: Rng) -> None:
    data = bytearray(path.read_bytes())
    start = int(rng.integers(len(data)))
    length = min(int(rng.integers(1, 4096)), len(data) - start)
    data[start : start + length] = rng.bytes(length) if rng.random() < 0.5 else bytes(length)
    path.write_bytes(data)


def truncated(path: Path, rng: Rng) -> None:
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def lengthened(path: Path, rng: Rng) -> None:
    with path.open("ab") as file:
        file.write(rng.bytes(int(rng.integers(1, 10_000))))


def something_else(path: Path, rng: Rng) -> None:
    path.write_bytes(rng.bytes(int(rng.integers(0, 5000))))


def without_the_block(path: Path, rng: Rng) -> None:
    path.write_bytes(path.read_bytes()[USER_BLOCK:])


def forged(damage: Damage) -> Damage:
    """Apply the damage to the HDF5 part only, and seal the file again."""

    def spoil(path: Path, rng: Rng) -> None:
        head = path.read_bytes()[:USER_BLOCK]
        damage(path, rng)
        data = path.read_bytes()
        path.write_bytes(head + data[USER_BLOCK:])
        write_seal(path)

    spoil.__name__ = f"forged_{damage.__name__}"
    return spoil


def flipped_metadata(path: Path, rng: Rng) -> None:
    """Flip bytes in HDF5's own structures, the first kilobytes after the user block."""
    data = bytearray(path.read_bytes())
    for place in USER_BLOCK + rng.integers(12_000, size=rng.integers(1, 6)):
        data[place] ^= int(rng.integers(1, 256))
    path.write_bytes(data)


@contextmanager
def explained(path: Path, **settings: Any) -> Iterator[File]:
    """Open a file to change it; what replaces a dataset or group gets its attributes."""
    with h5py.File(str(path), "r+", **settings) as file:
        before: dict[str, dict[str, Any]] = {}
        file.visititems(lambda name, item: before.update({name: dict(item.attrs)}))
        yield file
        for name, attributes in before.items():
            parts = name.split("/")
            paths = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
            if all(isinstance(file.get(part, getlink=True), h5py.HardLink) for part in paths):
                item = file[name]
                if not len(item.attrs):
                    item.attrs.update(attributes)


def edited(edit: Callable[[File, Rng], None]) -> Damage:
    """Edit with h5py, and seal the file again."""

    def spoil(path: Path, rng: Rng) -> None:
        with explained(path) as file:
            edit(file, rng)
        write_seal(path)

    spoil.__name__ = edit.__name__
    return spoil


def any_dataset(file: File, rng: Rng) -> str:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "dtype") else None)
    return str(rng.choice(sorted(names)))


def any_group(rng: Rng) -> str:
    return str(rng.choice(GROUPS))


def put(file: File, name: str, data: Any, **settings: Any) -> None:
    del file[name]
    file.create_dataset(name, data=data, **settings)


@edited
def missing_dataset(file: File, rng: Rng) -> None:
    del file[any_dataset(file, rng)]


@edited
def missing_group(file: File, rng: Rng) -> None:
    del file[any_group(rng)]


@edited
def extra_dataset(file: File, rng: Rng) -> None:
    where = str(rng.choice(["extra", f"{any_group(rng)}/extra"]))
    file.create_dataset(where, data=np.arange(3))


@edited
def many_extra_groups(file: File, rng: Rng) -> None:
    for number in range(200):
        file.create_group(f"{any_group(rng)}/extra{number}")


@edited
def dataset_becomes_group(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    del file[name]
    file.create_group(name)


@edited
def group_becomes_dataset(file: File, rng: Rng) -> None:
    name = any_group(rng)
    del file[name]
    file.create_dataset(name, data=np.arange(5))


@edited
def named_type(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    del file[name]
    file[name] = np.dtype("f8")


TYPES = ("f4", "f8", ">u2", ">i8", "u4", "i2", "c8", "S7", "?", "V5")


@edited
def wrong_type(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    shape = file[name].shape
    put(file, name, np.zeros(shape, str(rng.choice(TYPES))), chunks=shape)


@edited
def type_of_variable_length(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    rows = len(file[name])
    kind = h5py.vlen_dtype(np.uint8) if rng.random() < 0.5 else h5py.string_dtype()
    del file[name]
    file.create_dataset(name, (rows,), dtype=kind, chunks=(rows,))


@edited
def references(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    rows = len(file[name])
    del file[name]
    file.create_dataset(name, (rows,), dtype=h5py.ref_dtype, chunks=(rows,))


@edited
def compound_type(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    shape = file[name].shape
    put(file, name, np.zeros(shape, [("a", "u1"), ("b", "f8")]), chunks=shape)


@edited
def enumeration(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, dtype=h5py.enum_dtype({"A": 0, "B": 1}, "u1"), chunks=shape)


@edited
def wrong_rank(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    data = file[name][:]
    data = data[:, None] if rng.random() < 0.5 else data.ravel()[:1].reshape(())
    put(file, name, data)


@edited
def other_number_of_rows(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    data = file[name][:]
    data = data[: len(data) // 2] if rng.random() < 0.5 else np.concatenate([data, data])
    put(file, name, data, chunks=data.shape, compression="gzip")


@edited
def no_rows(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    data = file[name][:0]
    put(file, name, data, chunks=(1, *data.shape[1:]), maxshape=(None, *data.shape[1:]))


@edited
def no_rows_anywhere(file: File, rng: Rng) -> None:
    for group in GROUPS[:3]:
        for name in file[group]:
            file[f"{group}/{name}"].resize(0, axis=0)
    counts = {"transitions": 0, "episodes": 0, "operations": 0}
    file.attrs["counts"] = np.bytes_(json.dumps(counts).encode())


@edited
def absurd_number_of_rows(file: File, rng: Rng) -> None:
    """Claim as many rows as the format allows, with nothing stored."""
    name = any_dataset(file, rng)
    kind, shape = file[name].dtype, file[name].shape[1:]
    del file[name]
    rows = int(rng.choice([10**9, 10**12, 10**15, 2**60]))
    file.create_dataset(name, (rows, *shape), kind, chunks=(65536, *shape), compression="gzip")


@edited
def absurd_number_of_rows_everywhere(file: File, rng: Rng) -> None:
    rows = int(rng.choice([10**9, 10**12, 10**15]))
    for name in list(file["transitions"]):
        kind = file[f"transitions/{name}"].dtype
        del file[f"transitions/{name}"]
        file.create_dataset(f"transitions/{name}", (rows,), kind, chunks=(65536,))
    counts = json.loads(file.attrs["counts"])
    file.attrs["counts"] = np.bytes_(json.dumps({**counts, "transitions": rows}).encode())


@edited
def bomb(file: File, rng: Rng) -> None:
    """Store a few hundred kilobytes that expand to gigabytes of zeros."""
    name = "transitions/" + str(rng.choice(sorted(file["transitions"])))
    kind = file[name].dtype
    del file[name]
    chunk = 2**23 // kind.itemsize
    dataset = file.create_dataset(name, (chunk * 400,), kind, chunks=(chunk,), compression="gzip")
    packed = zlib.compress(bytes(2**23), 9)
    for number in range(400):
        dataset.id.write_direct_chunk((number * chunk,), packed)


@edited
def absurd_chunks(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    kind, shape = file[name].dtype, file[name].shape
    del file[name]
    chunks = (2**31 // kind.itemsize // max(1, int(np.prod(shape[1:]))) - 1, *shape[1:])
    file.create_dataset(name, shape, kind, maxshape=(None, *shape[1:]), chunks=chunks)


@edited
def missing_chunks(file: File, rng: Rng) -> None:
    """Leave out the chunks: HDF5 would return fill values."""
    name = any_dataset(file, rng)
    kind, shape = file[name].dtype, file[name].shape
    del file[name]
    file.create_dataset(name, shape, kind, chunks=shape, compression="gzip")


@edited
def spoilt_chunk(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    dataset = file[name]
    offset = (0,) * dataset.ndim
    packed = bytearray(dataset.id.read_direct_chunk(offset)[1])
    if rng.random() < 0.5:
        packed[int(rng.integers(len(packed)))] ^= int(rng.integers(1, 256))
    else:
        packed = packed[: int(rng.integers(1, len(packed) + 1))]
    dataset.id.write_direct_chunk(offset, bytes(packed))


@edited
def chunk_that_skips_a_filter(file: File, rng: Rng) -> None:
    dataset = file[any_dataset(file, rng)]
    raw = bytes(int(np.prod(dataset.chunks)) * dataset.dtype.itemsize)
    dataset.id.write_direct_chunk((0,) * dataset.ndim, raw, filter_mask=1)


FILTERS: tuple[dict[str, Any], ...] = (
    {"compression": "lzf"},
    {"fletcher32": True},
    {"scaleoffset": 0},
    {"compression": "gzip", "fletcher32": True},
    {"shuffle": True},
)


@edited
def other_filter(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    data = file[name][:]
    put(file, name, data, chunks=data.shape, **FILTERS[int(rng.integers(len(FILTERS)))])


@edited
def contiguous(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    put(file, name, file[name][:])


@edited
def soft_link(file: File, rng: Rng) -> None:
    name = any_dataset(file, rng)
    del file[name]
    target = str(rng.choice(["/transitions/action", "/nowhere", f"/{name}", "/"]))
    file[name] = h5py.SoftLink(target)


@edited
def cycle_of_soft_links(file: File, rng: Rng) -> None:
    del file["episodes"], file["operations"]
    file["episodes"] = h5py.SoftLink("/operations")
    file["operations"] = h5py.SoftLink("/episodes")


@edited
def cycle_of_hard_links(file: File, rng: Rng) -> None:
    name = any_group(rng)
    if rng.random() < 0.5:
        del file[name]
        file[name] = file["/"]
    else:
        file[f"{name}/again"] = file["/"]


@edited
def two_names_for_one_dataset(file: File, rng: Rng) -> None:
    first, second = any_dataset(file, rng), any_dataset(file, rng)
    if first != second:
        del file[first]
        file[first] = file[second]


def outside(path: Path) -> Path:
    """Return the target of links, an intact file: following a link would succeed."""
    return path.with_name("outside.h5")


def external_link(path: Path, rng: Rng) -> None:
    with explained(path) as file:
        name = str(rng.choice([any_dataset(file, rng), any_group(rng)]))
        del file[name]
        file[name] = h5py.ExternalLink(str(outside(path)), name)
    write_seal(path)


def external_storage(path: Path, rng: Rng) -> None:
    with explained(path) as file:
        name = any_dataset(file, rng)
        kind, shape = file[name].dtype, file[name].shape
        size = int(np.prod(shape)) * kind.itemsize
        del file[name]
        file.create_dataset(name, shape, kind, external=[(str(outside(path)), 0, size)])
    write_seal(path)


def virtual_dataset(path: Path, rng: Rng) -> None:
    with explained(path) as file:
        name = any_dataset(file, rng)
        kind, shape = file[name].dtype, file[name].shape
        del file[name]
        layout = h5py.VirtualLayout(shape, kind)
        layout[:] = h5py.VirtualSource(str(outside(path)), name, shape, kind)
        file.create_virtual_dataset(name, layout)
    write_seal(path)


@edited
def missing_attribute(file: File, rng: Rng) -> None:
    del file.attrs[str(rng.choice(sorted(file.attrs)))]


ATTRIBUTE_VALUES: tuple[Any, ...] = (
    np.bytes_(b"not JSON"),
    np.bytes_(b""),
    np.bytes_(b"[" * 60_000),
    np.bytes_(b"\xff\xfe"),
    np.bytes_(b"null"),
    np.bytes_(b"[]"),
    np.bytes_(b'{"a": 1e999}'),
    np.bytes_(b"9" * 9000),
    "a text of variable length",
    np.nan,
    -1,
    2**63 - 1,
    np.zeros(100),
    np.zeros((3, 4), "i1"),
    np.array([b"a", b"b"]),
    np.bytes_(b"x" * 64_000),
)


@edited
def wrong_attribute(file: File, rng: Rng) -> None:
    name = str(rng.choice(sorted(file.attrs)))
    value = ATTRIBUTE_VALUES[int(rng.integers(len(ATTRIBUTE_VALUES)))]
    del file.attrs[name]
    file.attrs[name] = value


SETTINGS: tuple[tuple[str, str, Any], ...] = (
    ("format", "version", 2),
    ("format", "version", "3"),
    ("format", "name", "something-else"),
    ("config", "base", 4),
    ("config", "base", 10**9),
    ("config", "columns", 10**6),
    ("config", "columns", -1),
    ("config", "max_digits", 9),
    ("config", "frames", 10**9),
    ("config", "reward", "no_of"),
    ("config", "reward", ["step"]),
    ("config", "unknown", 1),
    ("config", "expression", "1+1"),
    ("config", "max_operations", None),
    ("algorithm", "variant", "other"),
    ("algorithm", "epsilon", 0.5),
    ("algorithm", "epsilon", None),
    ("algorithm", "name", "another"),
    ("counts", "transitions", 10**15),
    ("counts", "episodes", "many"),
    ("counts", "operations", -1),
    ("digest", "sha256", "0" * 64),
    ("request", "operations", 0),
    ("split", "validation", "all"),
)


@edited
def wrong_setting(file: File, rng: Rng) -> None:
    name, key, value = SETTINGS[int(rng.integers(len(SETTINGS)))]
    setting = json.loads(file.attrs[name])
    file.attrs[name] = np.bytes_(json.dumps({**setting, key: value}).encode())


@edited
def wrong_values(file: File, rng: Rng) -> None:
    """Replace some values of a column by any that its type can hold."""
    dataset = file[any_dataset(file, rng)]
    data = dataset[:]
    flat = data.reshape(-1)
    info = np.iinfo(data.dtype)
    for place in rng.integers(len(flat), size=rng.integers(1, 5)):
        flat[place] = rng.choice([info.min, info.max, int(rng.integers(info.min, info.max))])
    dataset[:] = data


@edited
def swapped_rows(file: File, rng: Rng) -> None:
    """Swap two rows, whose values are valid."""
    dataset = file[any_dataset(file, rng)]
    data = dataset[:]
    first, second = rng.integers(len(data), size=2)
    data[[first, second]] = data[[second, first]]
    dataset[:] = data


@edited
def wrong_scale(file: File, rng: Rng) -> None:
    name = str(rng.choice(["tables/frame", "tables/terms"]))
    del file[name].attrs["scale"]
    if rng.random() < 0.8:
        file[name].attrs["scale"] = rng.choice([0.5, np.nan, np.inf])


@edited
def wrong_explanation(file: File, rng: Rng) -> None:
    """Let an attribute of a group or dataset say something else, or nothing."""
    item = file[str(rng.choice([any_group(rng), any_dataset(file, rng)]))]
    name = str(rng.choice(sorted(item.attrs)))
    del item.attrs[name]
    if rng.random() < 0.8:
        item.attrs[name] = ATTRIBUTE_VALUES[int(rng.integers(len(ATTRIBUTE_VALUES)))]


@edited
def unchanged(file: File, rng: Rng) -> None:
    """Seal the file again as it is: it must be read."""


@edited
def extra_attribute(file: File, rng: Rng) -> None:
    place = str(rng.choice(["/", any_group(rng), any_dataset(file, rng)]))
    file[place].attrs[str(rng.choice(["note", "scale "]))] = "a note"


@edited
def extra_key(file: File, rng: Rng) -> None:
    name = str(rng.choice(["format", "config", "algorithm", "request", "counts", "digest"]))
    file.attrs[name] = np.bytes_(json.dumps({**json.loads(file.attrs[name]), "note": 1}).encode())


@edited
def other_request(file: File, rng: Rng) -> None:
    count = json.loads(file.attrs["counts"])["operations"]
    requests = ((count + 1, None), (count - 1, None), (None, 10**9), (None, 1), (10**12, None))
    operations, transitions = requests[int(rng.integers(len(requests)))]
    request = {"operations": operations, "transitions": transitions, "tasks": None}
    file.attrs["request"] = np.bytes_(json.dumps(request).encode())


@edited
def other_split(file: File, rng: Rng) -> None:
    split = file["episodes/validation"]
    split[int(rng.integers(len(split)))] ^= 1


@edited
def other_detour(file: File, rng: Rng) -> None:
    """Take another legal action once, and pay for it what the table says."""
    columns = file["transitions"]
    row = int(rng.integers(len(columns["mask"])))
    legal = [action for action in range(8) if columns["mask"][row] >> action & 1]
    columns["taken"][row] = rng.choice(legal)


def renewed(damage: Damage) -> Damage:
    """Store the digest of the changed values, if the file can still be opened."""

    def spoil(path: Path, rng: Rng) -> None:
        damage(path, rng)
        try:
            digest = Demonstrations.open(path).content_digest()
        except DemonstrationsError:
            return
        with explained(path) as file:
            file.attrs["digest"] = np.bytes_(json.dumps({"sha256": digest}).encode())
        write_seal(path)

    spoil.__name__ = f"{damage.__name__}_with_its_digest"
    return spoil


def stored_size(path: Path, rng: Rng) -> None:
    """Forge the stored size of an unfiltered chunk, which the HDF5 library believes."""
    with explained(path) as file:
        name = any_dataset(file, rng)
        data = file[name][:]
        chunks = (max(1, len(data) // int(rng.integers(1, 4))), *data.shape[1:])
        put(file, name, data, chunks=chunks, maxshape=(None, *data.shape[1:]))
        size = int(np.prod(chunks)) * data.dtype.itemsize
    content = path.read_bytes()
    # A node of the chunks' B-tree has 24 bytes before its first key, which starts with the size.
    key = re.escape(struct.pack("<II", size, 0))
    nodes = re.finditer(rb"TREE\x01\x00.{18}(?=" + key + b")", content, re.DOTALL)
    place = [node.end() for node in nodes][-1]
    factor = rng.choice([0.5, 0.9, 1.1, 2, 10, 1000])
    forged_size = int(rng.choice([0, 1, size - 1, size + 1, int(size * factor), 2**31]))
    path.write_bytes(content[:place] + struct.pack("<I", forged_size) + content[place + 4 :])
    write_seal(path)


def flipped_metadata_of_new_layouts(path: Path, rng: Rng) -> None:
    """Use the chunk indices of recent versions of HDF5, and flip bytes in them."""
    with explained(path, libver="latest") as file:
        name = any_dataset(file, rng)
        data = file[name][:]
        chunks = (max(1, len(data) // int(rng.integers(1, 4))), *data.shape[1:])
        filters = ({}, {"compression": "gzip"})[int(rng.integers(2))]
        limits = (None, (None, *data.shape[1:]))[int(rng.integers(2))]
        size = path.stat().st_size
        put(file, name, data, chunks=chunks, maxshape=limits, **filters)
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(4))):
        place = int(rng.integers(max(USER_BLOCK, min(size, len(content) - 500)), len(content)))
        content[place] ^= int(rng.integers(1, 256))
    path.write_bytes(content)
    write_seal(path)


def wrong_version(path: Path, rng: Rng) -> None:
    data = path.read_bytes()
    line = data[: data.index(b"\n")]
    name = line.rpartition(b" ")[0]
    path.write_bytes(name + b" %d" % rng.choice([1, 2, 4, 5, 6, 7, 8, 9]) + data[len(line) :])


#: Kinds that damage random places occur more often than the others.
DAMAGES: tuple[Damage, ...] = (
    *[flipped_bytes] * 6,
    *[truncated] * 4,
    *[overwritten_block] * 3,
    *[forged(flipped_bytes)] * 6,
    *[forged(flipped_metadata)] * 10,
    *[forged(overwritten_block)] * 4,
    *[forged(truncated)] * 3,
    flipped_bytes_in_the_seal,
    lengthened,
    forged(lengthened),
    something_else,
    without_the_block,
    wrong_version,
    missing_dataset,
    missing_group,
    extra_dataset,
    many_extra_groups,
    dataset_becomes_group,
    group_becomes_dataset,
    named_type,
    wrong_type,
    wrong_type,
    type_of_variable_length,
    references,
    compound_type,
    enumeration,
    wrong_rank,
    other_number_of_rows,
    no_rows,
    no_rows_anywhere,
    absurd_number_of_rows,
    absurd_number_of_rows_everywhere,
    bomb,
    absurd_chunks,
    missing_chunks,
    spoilt_chunk,
    chunk_that_skips_a_filter,
    other_filter,
    contiguous,
    soft_link,
    cycle_of_soft_links,
    cycle_of_hard_links,
    two_names_for_one_dataset,
    external_link,
    external_link,
    external_storage,
    virtual_dataset,
    missing_attribute,
    wrong_attribute,
    wrong_attribute,
    wrong_setting,
    wrong_setting,
    wrong_values,
    wrong_values,
    wrong_values,
    swapped_rows,
    swapped_rows,
    wrong_scale,
    wrong_explanation,
    wrong_explanation,
    unchanged,
    extra_attribute,
    extra_key,
    *[stored_size] * 4,
    *[flipped_metadata_of_new_layouts] * 4,
    *[renewed(wrong_values)] * 2,
    renewed(swapped_rows),
    renewed(wrong_setting),
    other_request,
    renewed(other_split),
    renewed(other_detour),
)
