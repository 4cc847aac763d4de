"""Export to a Minari dataset, which `minari.load_dataset` finds by its id."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium as gym
import numpy as np

from oracle.demos import Demonstrations
from oracle.demos.scores import random_return

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
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".unfinished-") as folder:
        with _minari_in(Path(folder)):
            _create(demonstrations, dataset_id)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder) / dataset_id, target)
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
