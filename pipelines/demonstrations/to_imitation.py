"""Export to what `imitation.data.serialize.load` reads: a folder of Hugging Face's `datasets`."""

from __future__ import annotations

import shutil
from pathlib import Path

from imitation.data import serialize
from imitation.data.types import TrajectoryWithRew

from oracle.demos import Demonstrations
from pipelines.demonstrations.flat import flat_rows


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
    unfinished = path.with_name(path.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        serialize.save(unfinished, flat_trajectories(demonstrations))
        unfinished.rename(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
