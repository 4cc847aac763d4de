"""Turns a file of demonstrations into what other libraries load.

minari      a dataset for minari.load_dataset, with Dict observations
imitation   a folder for imitation.data.serialize.load, with flat observations
d4rl        one HDF5 file of flat arrays: observations, actions, rewards, terminals, timeouts

Observations are stacked and rewards are scalar, at any level and with any number of frames.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import h5py
import numpy as np
import numpy.typing as npt
from imitation.data import serialize
from imitation.data.types import TrajectoryWithRew

from abacus.observation import observation_space
from abacus.rules import AbacusConfig
from oracle.demos import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.statistics import random_return
from oracle.files import atomic_path
from pipelines.job.command_line import argument, option, run, shown_path


def flat_rows(
    observations: Mapping[str, npt.NDArray[np.float32]], config: AbacusConfig
) -> npt.NDArray[np.float32]:
    """(rows, length), in the order of Gymnasium's `FlattenObservation`."""
    return np.concatenate([observations[key] for key in observation_space(config)], axis=1)


_ROWS_AT_ONCE = 2**14


def export_d4rl(demonstrations: Demonstrations, path: Path) -> None:
    """Writes the file; it has its name once it is complete.

    `actions` are those taken, which rewards and next observations follow from.
    """
    with atomic_path(path) as temporary, h5py.File(str(temporary), "w") as file:
        _write_columns(file, demonstrations)
        _write_observations(file, demonstrations)
        for name, value in _metadata(demonstrations).items():
            file[f"metadata/{name}"] = value


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


def flat_trajectories(demonstrations: Demonstrations) -> list[TrajectoryWithRew]:
    """Episodes with flat observations: imitation's serializer refuses Dict observations."""
    config = demonstrations.config
    return [
        TrajectoryWithRew(
            obs=flat_rows(trajectory.obs.unwrap(), config),  # type: ignore[union-attr]
            acts=trajectory.acts,
            infos=None,
            terminal=trajectory.terminal,
            rews=trajectory.rews,
        )
        for trajectory in demonstrations.trajectories()
    ]


def export_imitation(demonstrations: Demonstrations, path: Path) -> None:
    """Writes the folder; it has its name once it is complete.

    Actions are the teacher's, since the readers of such a folder clone.
    """
    with atomic_path(path) as temporary:
        serialize.save(temporary, flat_trajectories(demonstrations))


_ROOT = "MINARI_DATASETS_PATH"
_DESCRIPTION = (
    "Demonstrations of exact addition and subtraction on a virtual abacus, by the reference "
    "algorithm. Actions are those taken; infos/expert_action is the teacher's."
)


def minari_root() -> Path:
    """Where Minari keeps its datasets."""
    return Path(os.environ.get(_ROOT, Path.home() / ".minari" / "datasets"))


def export_minari(demonstrations: Demonstrations, dataset_id: str, root: Path) -> Path:
    """Makes the dataset under the root; it is there once it is complete. Returns its folder."""
    target = root / dataset_id
    with atomic_path(target) as temporary:
        with _minari_in(temporary.parent):
            _create(demonstrations, dataset_id)
        # The id may have a namespace: Minari has made a folder for it.
        (temporary.parent / dataset_id).replace(temporary)
    return target


@contextmanager
def _minari_in(folder: Path) -> Iterator[None]:
    """Minari takes its root from the environment alone."""
    before = os.environ.get(_ROOT)
    os.environ[_ROOT] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(_ROOT)
        if before is not None:
            os.environ[_ROOT] = before


def _create(demonstrations: Demonstrations, dataset_id: str) -> None:
    try:
        import minari
    except ImportError as error:
        raise ValueError("there is no Minari: pip install 'virtual-abacus[minari]'") from error
    recipe, config = demonstrations.recipe, demonstrations.config
    episodes = demonstrations.counts["episodes"]
    with warnings.catch_warnings():
        # Minari asks for a contact and a link, which a generated file does not have.
        warnings.filterwarnings("ignore", category=UserWarning, module="minari")
        minari.create_dataset_from_buffers(
            dataset_id,
            buffers(demonstrations),
            env=gym.make("Abacus-v0", **config.to_dict()),
            algorithm_name=f"reference algorithm, {recipe.variant}, epsilon {recipe.epsilon:g}",
            author="The virtual-abacus authors",
            ref_min_score=random_return(config),
            ref_max_score=float(demonstrations.rewards().sum(dtype=np.float64)) / episodes,
            num_episodes_average_score=episodes,
            description=_DESCRIPTION,
        )


def buffers(demonstrations: Demonstrations) -> Iterator[object]:
    """Episodes as Minari takes them."""
    from minari.data_collector import EpisodeBuffer

    columns, episodes = demonstrations.transitions, demonstrations.episodes
    for e, trajectory in enumerate(demonstrations.trajectories(actions="taken")):
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


EXAMPLE = "python -m pipelines.export datasets/sample.h5 --to d4rl --frames 4 --reward no_of"


@dataclass(frozen=True)
class Options:
    """The command line."""

    file: Path = argument("the file of demonstrations")
    to: Literal["minari", "imitation", "d4rl"] = option(dataclasses.MISSING, "the format to write")
    output: Path | None = option(
        None, "file or folder to write; for minari its root (default: beside the file; Minari's)"
    )
    dataset_id: str | None = option(None, "id of the Minari dataset (default: the file's name)")
    n_operations: int | None = option(None, "only the first so many operations")
    split: Literal["all", "train", "validation"] = option("all", "the part to write")
    frames: int | None = option(None, "frames to stack (default: as the file says)")
    reward: str | None = option(None, "reward level (default: as the file says)")


def main(options: Options) -> int:
    """Exports, and says what to load it with."""
    demonstrations = _chosen(options)
    if options.to == "minari":
        return _to_minari(demonstrations, options)
    suffix = {"d4rl": "-d4rl.h5", "imitation": "-imitation"}[options.to]
    output = options.output or options.file.with_name(options.file.stem + suffix)
    _refuse_to_replace(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    if options.to == "d4rl":
        export_d4rl(demonstrations, output)
        _tell(demonstrations, output, f"h5py.File({str(output)!r})")
    else:
        export_imitation(demonstrations, output)
        _tell(demonstrations, output, f"imitation.data.serialize.load({str(output)!r})")
    return 0


def _chosen(options: Options) -> Demonstrations:
    """The part of the file that is asked for, with the stack and the reward that are asked for."""
    demonstrations = Demonstrations.open(options.file)
    if options.split != "all":
        demonstrations = getattr(demonstrations, options.split)
    if options.n_operations is not None:
        demonstrations = demonstrations.first(options.n_operations)
    if not len(demonstrations):
        raise ValueError(f"{options.file} has no episodes for {options.split}")
    config = demonstrations.config
    changed = dataclasses.replace(
        config,
        frames=config.frames if options.frames is None else options.frames,
        reward=config.reward if options.reward is None else options.reward,
    )
    recipe: Recipe = dataclasses.replace(demonstrations.recipe, config=changed)
    return Demonstrations(demonstrations.recording, recipe)


def _to_minari(demonstrations: Demonstrations, options: Options) -> int:

    root = options.output or minari_root()
    dataset_id = options.dataset_id or f"{options.file.stem}-v0"
    _refuse_to_replace(root / dataset_id)
    folder = export_minari(demonstrations, dataset_id, root)
    how = f"minari.load_dataset({dataset_id!r})"
    if options.output is not None:
        how += f" with MINARI_DATASETS_PATH={shown_path(root)}"
    _tell(demonstrations, folder, how)
    return 0


def _refuse_to_replace(path: Path) -> None:
    if path.exists():
        raise ValueError(f"{path} is there already: remove it, or give another --output")


def _tell(demonstrations: Demonstrations, path: Path, how: str) -> None:
    print(f"{demonstrations} -> {shown_path(path)}")
    print(f"load it with {how}")


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
