"""Export a demonstrations file to the formats of other libraries.

minari      a dataset for minari.load_dataset, with Dict observations
imitation   a folder for imitation.data.serialize.load, with flat observations
d4rl        one HDF5 file of flat arrays: observations, actions, rewards, terminals, timeouts
parquet     a folder with a dataset card for Hugging Face's datasets.load_dataset

Observations are stacked and rewards are scalar, at any level and with any number of frames. All
formats have the action mask, the expert's action and the reward terms of every step.
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
import numpy as np
import numpy.typing as npt

from abacus.observation import observation_space
from abacus.reward import TERMS
from abacus.rules import AbacusConfig
from oracle.demos.parquet import CARD, TABLES, write_parquet
from oracle.demos.schema import TEXTS
from oracle.files import atomic_path, atomic_write
from pipelines.job.command_line import argument, option, relative_path, run

if TYPE_CHECKING:
    import h5py
    from imitation.data.types import TrajectoryWithRew

    from oracle.demos import Demonstrations, Recipe

EXAMPLE = "python -m pipelines.export datasets/sample.h5 --to d4rl --frames 4 --reward no_of"
_MINARI_ROOT = "MINARI_DATASETS_PATH"
_MINARI_ID = re.compile(r"(?:[A-Za-z0-9_][\w.-]*/)*[A-Za-z0-9_][\w.-]*-v[0-9]+", re.ASCII)
_MINARI_DESCRIPTION = (
    "Demonstrations of exact addition and subtraction on a virtual abacus, by the reference "
    "algorithm. Actions are those taken. For each observation, infos/expert_action is the expert's "
    "action (-1 for the last observation, which none follows) and infos/action_mask the legal "
    f"actions; for each step, infos/reward_terms has the terms {', '.join(TERMS)}. "
    f"{TEXTS['citation']}"
)
#: Rows of stacked observations in memory: stacked, a set takes a hundred times its own memory.
_ROWS_AT_ONCE = 2**14
#: The files of an export that is a folder: a folder with others is not replaced.
_FILES = {
    "minari": ("data/main_data.hdf5", "data/metadata.json"),
    "imitation": ("dataset_info.json", "state.json", "data-*.arrow"),
    "parquet": (CARD, *(f"{table}/*.parquet" for table in TABLES)),
}
_LOADERS = {
    "d4rl": "h5py.File",
    "imitation": "imitation.data.serialize.load",
    "parquet": "datasets.load_dataset",
}


@dataclass(frozen=True)
class Options:
    """The command line."""

    file: Path = argument("the demonstrations file")
    to: Literal["minari", "imitation", "d4rl", "parquet"] = option(
        dataclasses.MISSING, "the format to write"
    )
    output: Path | None = option(
        None, "file or folder to write; for minari its root (default: beside the file; Minari's)"
    )
    overwrite: bool = option(False, "replace an earlier export")
    dataset_id: str | None = option(None, "id of the Minari dataset (default: the file's name)")
    n_operations: int | None = option(None, "number of operations to export (default: all)")
    split: Literal["all", "train", "validation"] = option("all", "the part to export")
    frames: int | None = option(None, "frames to stack (default: as in the file)")
    reward: str | None = option(None, "reward level (default: as in the file)")
    author: str = option("The virtual-abacus authors", "author, for minari and parquet")
    author_email: str | None = option(None, "contact, for minari and parquet (default: none)")
    code_permalink: str | None = option(
        None, "address of the code, for minari and parquet (default: version and commit)"
    )


@dataclass(frozen=True)
class Origin:
    """Who made a set and with what, for the formats that tell."""

    author: str
    author_email: str | None
    code_permalink: str
    requirement: str

    @classmethod
    def of(cls, options: Options, generator: Mapping[str, Any]) -> Origin:
        """Return the origin of a file; without an address, the code is named by its commit."""
        package, version, commit = (generator[key] for key in ("package", "version", "commit"))
        code = f"{package} {version}" + (f", commit {commit}" if commit else "")
        return cls(
            author=options.author,
            author_email=options.author_email,
            code_permalink=options.code_permalink or code,
            requirement=f"{package}=={version}" if version else str(package),
        )


def main(options: Options) -> int:
    """Export, and print how to load the result."""
    demonstrations, origin = _selected(options)
    if options.to == "minari":
        root = options.output or Path(
            os.environ.get(_MINARI_ROOT, Path.home() / ".minari" / "datasets")
        )
        dataset_id = _checked_id(options.dataset_id or f"{options.file.stem}-v0")
        output, loader = root / dataset_id, f"minari.load_dataset({dataset_id!r})"
        if options.output is not None:
            loader += f" with {_MINARI_ROOT}={relative_path(root)}"
    else:
        suffix = "-d4rl.h5" if options.to == "d4rl" else f"-{options.to}"
        output = options.output or options.file.with_name(options.file.stem + suffix)
        loader = f"{_LOADERS[options.to]}({str(output)!r})"
    _check_output(output, options)
    if options.to == "minari":
        export_minari(demonstrations, dataset_id, output, origin)
    elif options.to == "imitation":
        export_imitation(demonstrations, output)
    elif options.to == "parquet":
        export_parquet(demonstrations, output, origin)
    else:
        export_d4rl(demonstrations, output)
    print(f"{demonstrations} -> {relative_path(output)}")
    print(f"load it with {loader}")
    return 0


def _check_output(output: Path, options: Options) -> None:
    """Raise ValueError for an output that must not be replaced."""
    if not output.exists():
        return
    if not options.overwrite:
        raise ValueError(f"{output} exists already: give another --output, or --overwrite")
    if options.to == "d4rl":
        if output.samefile(options.file):
            raise ValueError(f"{output} is the file to export: give another --output")
        return
    if not output.is_dir():
        raise ValueError(f"{output} is not a folder: give another --output")
    for path in output.rglob("*"):
        name = path.relative_to(output)
        if not path.is_dir() and not any(map(name.match, _FILES[options.to])):
            raise ValueError(
                f"{output} holds more than an export to {options.to}, such as {name}: give another "
                "--output, or remove it"
            )


def _checked_id(dataset_id: str) -> str:
    """Return an id of Minari; raise ValueError for any other, as it becomes a path."""
    if not _MINARI_ID.fullmatch(dataset_id):
        raise ValueError(
            f"dataset id {dataset_id!r} is not allowed: give --dataset-id a name of letters, "
            "digits, '-', '_' and '.' that ends with a version, as name-v0 or namespace/name-v0"
        )
    return dataset_id


def _selected(options: Options) -> tuple[Demonstrations, Origin]:
    """Return the part of the file to export, with the frames and the reward to export."""
    from oracle.demos import Demonstrations

    demonstrations = Demonstrations.open(options.file)
    assert demonstrations.metadata is not None
    origin = Origin.of(options, demonstrations.metadata.generator)
    if options.split != "all":
        demonstrations = getattr(demonstrations, options.split)
    if options.n_operations is not None:
        demonstrations = demonstrations.first(options.n_operations)
    if not len(demonstrations):
        raise ValueError(f"{options.file} has no episodes for {options.split}")
    changes = {"frames": options.frames, "reward": options.reward}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    config = dataclasses.replace(demonstrations.config, **given)
    recipe = dataclasses.replace(demonstrations.recipe, config=config)
    return Demonstrations(demonstrations.columns, recipe), origin


def flat_rows(
    observations: Mapping[str, npt.NDArray[np.float32]], config: AbacusConfig
) -> npt.NDArray[np.float32]:
    """Return observations as rows, in the order of Gymnasium's `FlattenObservation`."""
    return np.concatenate([observations[key] for key in observation_space(config)], axis=1)


def _algorithm(recipe: Recipe) -> str:
    if recipe.policy is not None:
        return str(recipe.policy)
    return f"reference algorithm, {recipe.variant}, epsilon {recipe.epsilon:g}"


def export_d4rl(demonstrations: Demonstrations, path: Path) -> None:
    """Write a file of flat arrays; `actions` are those taken, which rewards follow from."""
    import h5py

    columns, recipe = demonstrations.transitions, demonstrations.recipe
    arrays: dict[str, Any] = {
        "actions": columns["taken"].astype(np.int64),
        "rewards": demonstrations.rewards(),
        "terminals": columns["terminated"].astype(np.bool_),
        "timeouts": columns["truncated"].astype(np.bool_),
        "infos/expert_action": columns["action"].astype(np.int64),
        "infos/action_mask": demonstrations.masks(),
        "infos/reward_terms": demonstrations.terms(),
    }
    # In memory: the HDF5 library does not survive every error of a write, as on a full disk.
    image: Any = BytesIO()
    with h5py.File(image, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip", compression_opts=1)
        _write_observations(file, demonstrations)
        file["metadata/algorithm"] = _algorithm(recipe)
        file["metadata/config"] = json.dumps(recipe.config.to_dict())
        file["metadata/reward_terms"] = json.dumps(TERMS)
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
    with atomic_path(path, replaces_folder=True) as temporary:
        serialize.save(temporary, flat_trajectories(demonstrations))


def flat_trajectories(demonstrations: Demonstrations) -> list[TrajectoryWithRew]:
    """Return episodes with flat observations: imitation's serializer refuses Dict observations."""
    from oracle.demos.learners import trajectories

    config, flat, stop = demonstrations.config, [], 0
    for trajectory in trajectories(demonstrations):
        start, stop = stop, stop + len(trajectory)
        observations = flat_rows(trajectory.obs.unwrap(), config)  # type: ignore[union-attr]
        infos = np.array(_step_infos(demonstrations, slice(start, stop)), object)
        flat.append(dataclasses.replace(trajectory, obs=observations, infos=infos))
    return flat


def _step_infos(demonstrations: Demonstrations, rows: slice) -> list[dict[str, Any]]:
    """Return an info for each step, of plain values: imitation stores them as JSON."""
    columns = demonstrations.transitions
    return [
        {
            "action_mask": mask,
            "expert_action": expert,
            "taken_action": taken,
            "reward_terms": dict(zip(TERMS, terms, strict=True)),
        }
        for mask, expert, taken, terms in zip(
            demonstrations.masks(rows).tolist(),
            columns["action"][rows].tolist(),
            columns["taken"][rows].tolist(),
            demonstrations.terms(rows=rows).tolist(),
            strict=True,
        )
    ]


def export_parquet(demonstrations: Demonstrations, path: Path, origin: Origin) -> None:
    """Write a folder of Parquet files with a dataset card."""
    recipe = demonstrations.recipe
    facts = {
        "author": " ".join(filter(None, [origin.author, origin.author_email])),
        "code": origin.code_permalink,
        "algorithm": _algorithm(recipe),
        "environment": f"`Abacus-v0` with `{json.dumps(recipe.config.to_dict())}`",
    }
    with atomic_path(path, replaces_folder=True) as temporary:
        write_parquet(demonstrations, temporary, facts)


def export_minari(
    demonstrations: Demonstrations, dataset_id: str, path: Path, origin: Origin
) -> None:
    """Write a Minari dataset to a folder, which its id gives below Minari's root."""
    try:
        import minari
    except ImportError as error:
        raise ValueError("Minari is not installed: pip install 'virtual-abacus[minari]'") from error
    from oracle.demos.statistics import random_return

    recipe, config = demonstrations.recipe, demonstrations.config
    episodes = demonstrations.counts["episodes"]
    env = gym.make("Abacus-v0", **config.to_dict())
    with (
        atomic_path(path, replaces_folder=True) as temporary,
        warnings.catch_warnings(),
        _minari_root(temporary.parent),
        _minari_in_memory(),
    ):
        if origin.author_email is None:
            # Minari asks for a contact, which only a person can give.
            warnings.filterwarnings("ignore", message=".author_email.", module="minari")
        minari.create_dataset_from_buffers(
            dataset_id,
            episode_buffers(demonstrations),
            env=env,
            eval_env=env,
            algorithm_name=_algorithm(recipe),
            author=origin.author,
            author_email=origin.author_email,
            code_permalink=origin.code_permalink,
            requirements=[origin.requirement],
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
    import h5py
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
    """Yield episodes as Minari's buffers, with infos as the environment gives them.

    What belongs to an observation has one row more than what belongs to a step, as in the infos of
    Minari's own collector; TorchRL relies on it.
    """
    from minari.data_collector import EpisodeBuffer

    columns, final_masks = demonstrations.transitions, demonstrations.final_masks()
    seeds = demonstrations.episodes["seed"].tolist()
    for e, (rows, observations) in enumerate(demonstrations.episode_observations()):
        yield EpisodeBuffer(
            id=e,
            seed=seeds[e],
            observations=observations,
            actions=columns["taken"][rows].astype(np.int64),
            rewards=demonstrations.rewards(rows=rows),
            terminations=columns["terminated"][rows].astype(np.bool_),
            truncations=columns["truncated"][rows].astype(np.bool_),
            infos={
                "action_mask": np.vstack([demonstrations.masks(rows), final_masks[e]]),
                "expert_action": np.append(columns["action"][rows].astype(np.int64), -1),
                "reward_terms": demonstrations.terms(rows=rows),
            },
        )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
