"""Clones that many cells start from: each is made once, and kept beside the store.

What a clone depends on is the run up to PPO. A cell that fine-tunes one takes a copy of that run
and goes on from there, with the same numbers as if it had cloned itself.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from pipelines.learning.runs import CHECKPOINT, RunFolder
from pipelines.learning.settings import Settings
from pipelines.learning.training import TUNING, Training

#: The folders of policies that a run has when it has cloned.
POLICIES = ("clone", "best", "last")
COMMAND = ["python", "-m", "pipelines.study"]


def cloned_run(settings: Settings, clones: Path) -> Path:
    """The folder of the run that clones, which is done first if nobody did."""
    alone = _up_to_ppo(settings)
    path = clones / hashlib.sha256(alone.to_json().encode()).hexdigest()[:16]
    if path.is_dir():
        return path
    clones.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=clones, prefix=".cloning-") as scratch:
        run = RunFolder.create(Path(scratch) / "run", alone, COMMAND)
        Training(run, silent).run()
        try:
            run.path.rename(path)
        except OSError:
            # Another worker was faster; what it made is the same.
            if not path.is_dir():
                raise
    return path


def _up_to_ppo(settings: Settings) -> Settings:
    """The same for all settings that give the same clone, measured in the same way."""
    cloning_alone = Settings(
        demo_operations=settings.demo_operations, operations=settings.operations, n_timesteps=0
    ).settled()
    names = (
        *("demonstrations", "network", "base", "columns", "max_digits", "frames", "start"),
        *("epochs", "cloning_batch_size", "cloning_learning_rate", "patience", "label_smoothing"),
        *("seed", "demo_seed", "threads", "device", "eval_episodes"),
    )
    return replace(cloning_alone, **{name: getattr(settings, name) for name in names})


def branch(settings: Settings, cloned: Path, path: Path) -> RunFolder:
    """A new run that has cloned already, and goes on with PPO."""
    run = RunFolder.create(path, settings, COMMAND)
    for name in POLICIES:
        shutil.copytree(cloned / name, path / name)
    for log in cloned.glob("*.csv"):
        shutil.copy(log, path)
    state = RunFolder(cloned, settings).load_checkpoint()
    if state is None:
        raise ValueError(f"{cloned / CHECKPOINT} is missing: remove that folder")
    run.save_checkpoint({**state, "stage": TUNING})
    return run


def silent(line: str) -> None:
    """Nothing is said while cells are run: many run at once."""
