"""Export a demonstrations file to the formats of other libraries.

minari      a dataset for minari.load_dataset, with Dict observations
imitation   a folder for imitation.data.serialize.load, with flat observations
d4rl        one HDF5 file of flat arrays: observations, actions, rewards, terminals, timeouts

Observations are stacked and rewards are scalar, at any level and with any number of frames.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import h5py
import numpy as np
import numpy.typing as npt

from abacus.observation import observation_space
from abacus.rules import AbacusConfig
from oracle.demos import Demonstrations, Recipe
from oracle.demos.statistics import random_return
from oracle.files import atomic_path, atomic_write
from pipelines.job.command_line import argument, option, relative_path, run

if TYPE_CHECKING:
    from imitation.data.types import TrajectoryWithRew

EXAMPLE = "python -m pipelines.export datasets/sample.h5 --to d4rl --frames 4 --reward no_of"
_MINARI_ROOT = "MINARI_DATASETS_PATH"
_MINARI_ID = re.compile(r"(?:[A-Za-z0-9_][\w.-]*/)*[A-Za-z0-9_][\w.-]*-v[0-9]+", re.ASCII)
_MINARI_DESCRIPTION = (
    "Demonstrations of exact addition and subtraction on a virtual abacus, by the reference "
    "algorithm. Actions are those taken; infos/expert_action is the expert's."
)
#: Rows of stacked observations in memory: stacked, a set takes a hundred times its own memory.
_ROWS_AT_ONCE = 2**14


@dataclass(frozen=True)
class Options:
    """The command line."""

    file: Path = argument("the demonstrations file")
    to: Literal["minari", "imitation", "d4rl"] = option(dataclasses.MISSING, "the format to write")
    output: Path | None = option(
        None, "file or folder to write; for minari its root (default: beside the file; Minari's)"
    )
    dataset_id: str | None = option(None, "id of the Minari dataset (default: the file's name)")
    n_operations: int | None = option(None, "number of operations to export (default: all)")
    split: Literal["all", "train", "validation"] = option("all", "the part to export")
    frames: int | None = option(None, "frames to stack (default: as in the file)")
    reward: str | None = option(None, "reward level (default: as in the file)")


def main(options: Options) -> int:
    """Export, and print how to load the result."""
    demonstrations = _selected(options)
    if options.to == "minari":
        root = options.output or Path(
            os.environ.get(_MINARI_ROOT, Path.home() / ".minari" / "datasets")
        )
        dataset_id = _checked_id(options.dataset_id or f"{options.file.stem}-v0")
        output, loader = root / dataset_id, f"minari.load_dataset({dataset_id!r})"
        if options.output is not None:
            loader += f" with {_MINARI_ROOT}={relative_path(root)}"
    else:
        suffix = {"d4rl": "-d4rl.h5", "imitation": "-imitation"}[options.to]
        output = options.output or options.file.with_name(options.file.stem + suffix)
        function = {"d4rl": "h5py.File", "imitation": "imitation.data.serialize.load"}[options.to]
        loader = f"{function}({str(output)!r})"
    if output.exists():
        raise ValueError(f"{output} exists already: remove it, or give another --output")
    if options.to == "minari":
        export_minari(demonstrations, dataset_id, output)
    elif options.to == "imitation":
        export_imitation(demonstrations, output)
    else:
        export_d4rl(demonstrations, output)
    print(f"{demonstrations} -> {relative_path(output)}")
    print(f"load it with {loader}")
    return 0


def _checked_id(dataset_id: str) -> str:
    """Return an id of Minari; raise ValueError for any other, as it becomes a path."""
    if not _MINARI_ID.fullmatch(dataset_id):
        raise ValueError(
            f"dataset id {dataset_id!r} is not allowed: give --dataset-id a name of letters, "
            "digits, '-', '_' and '.' that ends with a version, as name-v0 or namespace/name-v0"
        )
    return dataset_id


def _selected(options: Options) -> Demonstrations:
    """Return the part of the file to export, with the frames and the reward to export."""
    demonstrations = Demonstrations.open(options.file)
    if options.split != "all":
        demonstrations = getattr(demonstrations, options.split)
    if options.n_operations is not None:
        demonstrations = demonstrations.first(options.n_operations)
    if not len(demonstrations):
        raise ValueError(f"{options.file} has no episodes for {options.split}")
    changes = {"frames": options.frames, "reward": options.reward}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    config = dataclasses.replace(demonstrations.config, **given)
    return Demonstrations(
        demonstrations.columns, dataclasses.replace(demonstrations.recipe, config=config)
    )


def flat_rows(
    observations: Mapping[str, npt.NDArray[np.float32]], config: AbacusConfig
) -> npt.NDArray[np.float32]:
    """Return observations as rows, in the order of Gymnasium's `FlattenObservation`."""
    return np.concatenate([observations[key] for key in observation_space(config)], axis=1)


def _algorithm(recipe: Recipe) -> str:
    return f"reference algorithm, {recipe.variant}, epsilon {recipe.epsilon:g}"


def export_d4rl(demonstrations: Demonstrations, path: Path) -> None:
    """Write a file of flat arrays; `actions` are those taken, which rewards follow from."""
    columns, recipe = demonstrations.transitions, demonstrations.recipe
    arrays: dict[str, Any] = {
        "actions": columns["taken"].astype(np.int64),
        "rewards": demonstrations.rewards(),
        "terminals": columns["terminated"].astype(np.bool_),
        "timeouts": columns["truncated"].astype(np.bool_),
        "infos/expert_action": columns["action"].astype(np.int64),
        "infos/action_mask": demonstrations.masks(),
    }
    # In memory: the HDF5 library does not survive every error of a write, as on a full disk.
    image: Any = BytesIO()
    with h5py.File(image, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip", compression_opts=1)
        _write_observations(file, demonstrations)
        file["metadata/algorithm"] = _algorithm(recipe)
        file["metadata/config"] = json.dumps(recipe.config.to_dict())
    atomic_write(path, lambda target: target.write(image.getbuffer()))


def _write_observations(file: h5py.File, demonstrations: Demonstrations) -> None:
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
    next_observations = file.create_dataset("next_observations", **settings)
    for start in range(0, count, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, count)
        rows = np.minimum(np.arange(start, stop + 1), count - 1)
        flat = flat_rows(demonstrations.observations(rows), config)
        following = flat[1:].copy()
        ends = slice(*np.searchsorted(last, (start, stop)))
        following[last[ends] - start] = finals[ends]
        observations[start:stop] = flat[:-1]
        next_observations[start:stop] = following


def export_imitation(demonstrations: Demonstrations, path: Path) -> None:
    """Write a folder of trajectories; actions are the expert's, which a clone learns."""
    from datasets.utils import disable_progress_bars
    from imitation.data import serialize

    # A bar would stand before the one line of an error.
    disable_progress_bars()
    with atomic_path(path) as temporary:
        serialize.save(temporary, flat_trajectories(demonstrations))


def flat_trajectories(demonstrations: Demonstrations) -> list[TrajectoryWithRew]:
    """Return episodes with flat observations: imitation's serializer refuses Dict observations."""
    from oracle.demos.learners import trajectories

    config = demonstrations.config
    return [
        dataclasses.replace(
            trajectory,
            obs=flat_rows(trajectory.obs.unwrap(), config),  # type: ignore[union-attr]
        )
        for trajectory in trajectories(demonstrations)
    ]


def export_minari(demonstrations: Demonstrations, dataset_id: str, path: Path) -> None:
    """Write a Minari dataset to a folder, which its id gives below Minari's root."""
    try:
        import minari
    except ImportError as error:
        raise ValueError("Minari is not installed: pip install 'virtual-abacus[minari]'") from error
    recipe, config = demonstrations.recipe, demonstrations.config
    episodes = demonstrations.counts["episodes"]
    with atomic_path(path) as temporary, warnings.catch_warnings():
        # Minari asks for a contact and a link, which a generated file does not have.
        warnings.filterwarnings("ignore", category=UserWarning, module="minari")
        with _minari_root(temporary.parent), _minari_in_memory():
            minari.create_dataset_from_buffers(
                dataset_id,
                episode_buffers(demonstrations),
                env=gym.make("Abacus-v0", **config.to_dict()),
                algorithm_name=_algorithm(recipe),
                author="The virtual-abacus authors",
                ref_min_score=random_return(config),
                ref_max_score=float(demonstrations.rewards().sum(dtype=np.float64)) / episodes,
                num_episodes_average_score=episodes,
                description=_MINARI_DESCRIPTION,
            )
        # An id may have a namespace, for which Minari creates a folder.
        (temporary.parent / dataset_id).replace(temporary)


@contextmanager
def _minari_root(folder: Path) -> Iterator[None]:
    """Set Minari's root, which it reads from the environment only."""
    before = os.environ.get(_MINARI_ROOT)
    os.environ[_MINARI_ROOT] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(_MINARI_ROOT)
        if before is not None:
            os.environ[_MINARI_ROOT] = before


@contextmanager
def _minari_in_memory() -> Iterator[None]:
    """Let Minari make its new HDF5 file in memory, and write it to disk when it is complete.

    The HDF5 library crashes on a full disk.
    """
    from minari.dataset._storages import hdf5_storage

    @contextmanager
    def new_file(path: Path, mode: str, **settings: Any) -> Iterator[h5py.File]:
        image: Any = BytesIO()
        with h5py.File(image, "w", **settings) as file:
            yield file
        path.write_bytes(image.getbuffer())

    hdf5_storage.h5py = SimpleNamespace(**{**vars(h5py), "File": new_file})
    try:
        yield
    finally:
        hdf5_storage.h5py = h5py


def episode_buffers(demonstrations: Demonstrations) -> Iterator[object]:
    """Yield episodes as Minari's buffers."""
    from minari.data_collector import EpisodeBuffer

    from oracle.demos.learners import trajectories

    columns, episodes = demonstrations.transitions, demonstrations.episodes
    for e, trajectory in enumerate(trajectories(demonstrations, actions="taken")):
        start = int(episodes["start"][e])
        rows = slice(start, start + len(trajectory))
        yield EpisodeBuffer(
            id=e,
            seed=int(episodes["seed"][e]),
            observations=trajectory.obs.unwrap(),  # type: ignore[union-attr]
            actions=trajectory.acts,
            rewards=trajectory.rews,
            terminations=columns["terminated"][rows].astype(np.bool_),
            truncations=columns["truncated"][rows].astype(np.bool_),
            infos={"expert_action": columns["action"][rows].astype(np.int64)},
        )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
