"""Export to the layout of D4RL: flat arrays in the root of one HDF5 file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from oracle.demos import Demonstrations
from oracle.demos.shards import publish
from pipelines.demonstrations.flat import flat_rows

_ROWS_AT_ONCE = 2**14


def export_d4rl(demonstrations: Demonstrations, path: Path) -> None:
    """Writes the file; it has its name once it is complete.

    `actions` are those taken, which rewards and next observations follow from.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with h5py.File(str(unfinished), "w") as file:
            _write_columns(file, demonstrations)
            _write_observations(file, demonstrations)
            for name, value in _metadata(demonstrations).items():
                file[f"metadata/{name}"] = value
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_columns(file: h5py.File, demonstrations: Demonstrations) -> None:
    columns = demonstrations.transitions
    arrays: dict[str, Any] = {
        "actions": columns["taken"].astype(np.int64),
        "rewards": demonstrations.rewards(),
        "terminals": columns["terminated"].astype(np.bool_),
        "timeouts": columns["truncated"].astype(np.bool_),
        "infos/expert_action": columns["action"].astype(np.int64),
        "infos/action_mask": demonstrations.masks(),
    }
    for name, array in arrays.items():
        file.create_dataset(name, data=array, compression="gzip", compression_opts=1)


def _write_observations(file: h5py.File, demonstrations: Demonstrations) -> None:
    """Block by block: stacked, they take a hundred times the room of the recording."""
    config = demonstrations.config
    finals = flat_rows(demonstrations.final_observations(), config)
    last = demonstrations.episodes["start"] + demonstrations.episodes["length"] - 1
    count, length = len(demonstrations), finals.shape[1]
    settings: dict[str, Any] = {
        "shape": (count, length),
        "dtype": np.float32,
        "chunks": (min(_ROWS_AT_ONCE, count), length),
        "compression": "gzip",
        "compression_opts": 1,
        "shuffle": True,
    }
    observations = file.create_dataset("observations", **settings)
    following = file.create_dataset("next_observations", **settings)
    for start in range(0, count, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, count)
        rows = np.minimum(np.arange(start, stop + 1), count - 1)
        seen = flat_rows(demonstrations.observations(rows), config)
        seen_next = seen[1:].copy()
        ends = slice(*np.searchsorted(last, (start, stop)))
        seen_next[last[ends] - start] = finals[ends]
        observations[start:stop] = seen[:-1]
        following[start:stop] = seen_next


def _metadata(demonstrations: Demonstrations) -> dict[str, str]:
    recipe = demonstrations.recipe
    return {
        "algorithm": f"reference algorithm, {recipe.variant}, epsilon {recipe.epsilon:g}",
        "config": json.dumps(recipe.config.to_dict()),
    }
