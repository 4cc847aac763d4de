"""Loads a file into memory: seal, structure and values are checked, the digest on request."""

from __future__ import annotations

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from abacus.rules import TRUNCATING_ENDS, AbacusConfig
from oracle.demos.about import About, facts
from oracle.demos.digest import digest_of
from oracle.demos.guarded import GuardedDataset, GuardedFile, one_clear_error
from oracle.demos.recording import Recording
from oracle.demos.schema import (
    ATTRIBUTES,
    Array,
    Column,
    DemonstrationsError,
    groups,
    outcome_places,
    reward_table,
    tables,
)
from oracle.demos.seal import SealedFile


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
