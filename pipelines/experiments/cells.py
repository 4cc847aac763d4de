"""Clones that many cells start from: each is made once, and kept beside the store.

What a clone depends on is the run up to PPO. A cell that fine-tunes one takes a copy of that run
and goes on from there, with the same numbers as if it had cloned itself.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

import torch

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig
from oracle.exact.certificate import certify
from oracle.files import lock
from pipelines.experiments.records import Arm, Cell, CurvePoint, Record, Score
from pipelines.learning.cloning_data import open_demonstrations
from pipelines.learning.dagger import run_dagger
from pipelines.learning.dqn import run_dqn
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_policy
from pipelines.learning.run import TUNING, Training
from pipelines.learning.run_folder import CHECKPOINT, RunFolder, seconds_at
from pipelines.learning.settings import Settings
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import (
    STRICT_REWARD,
    Evaluation,
    Evaluator,
    episode_step_limit,
    observations_of,
)

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


#: Episodes that no training is watched with.
SCORE_SEED = 2_000_003
SCORE_EPISODES = 2000
SCORE_LONG_OPERATIONS = 10_000
#: The longest run is that of so many episodes, each cut after so many operations.
RUN_EPISODES = 100
RUN_LIMIT = 2000
PROCESSOR_CLOCK = "time/ppo_processor_seconds"

#: What scores depend on, for the keys of cells: other scores are other records.
SCORING = {
    "seed": SCORE_SEED,
    "episodes": SCORE_EPISODES,
    "long_operations": SCORE_LONG_OPERATIONS,
    "run_episodes": RUN_EPISODES,
    "run_limit": RUN_LIMIT,
    "reward": STRICT_REWARD,
}

#: torch has one generator a process: cells that share a process take turns.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class WorkFolder:
    """Where clones are kept, and runs until they are done."""

    path: Path

    @property
    def clones(self) -> Path:
        return self.path / "clones"

    def run(self, cell: Cell) -> Path:
        """The run of a cell: one that was broken off goes on from its checkpoint."""
        return self.path / "cells" / cell.key

    def lock(self, cell: Cell) -> Path:
        """Held by whoever is at the run of a cell."""
        return self.run(cell).with_suffix(".lock")

    def forget(self, cell: Cell) -> None:
        """Removes the run of a cell whose record is kept."""
        shutil.rmtree(self.run(cell), ignore_errors=True)
        self.lock(cell).unlink(missing_ok=True)


def run_cell(cell: Cell, work: WorkFolder) -> Record:
    """Trains and measures."""
    with _ONE_AT_A_TIME:
        torch.set_num_threads(1)
        started, settings = time.perf_counter(), settings_of(cell)
        trained = _ARMS[cell.arm](cell, settings, work)
        score = _scorer(settings.world())
        return Record(
            cell=cell,
            clone=None if trained.clone is None else score(trained.clone),
            final=score(trained.final),
            last=score(trained.last),
            curve=tuple(trained.curve),
            longest_training_run=trained.longest_training_run,
            labels=trained.labels,
            seconds=trained.seconds | {"all": time.perf_counter() - started},
        )


def settings_of(cell: Cell) -> Settings:
    """The settings of a cell's run."""
    names = {field.name for field in fields(Settings)}
    values = {name: value for name, value in cell.settings.items() if name in names}
    return Settings.from_json(json.dumps(values))


@dataclass(frozen=True)
class Trained:
    """What an arm hands over to be measured."""

    clone: AbacusPolicy | None
    final: AbacusPolicy
    last: AbacusPolicy
    curve: list[CurvePoint]
    longest_training_run: int
    labels: int
    seconds: dict[str, float]


def _cloning(cell: Cell, settings: Settings, work: WorkFolder) -> Trained:
    path = cloned_run(settings, work.clones)
    # It is done: this reads what came of it.
    outcome = Training(RunFolder(path, settings), silent).run()
    clone = load_policy(path / "clone")
    curve = [_point(outcome.evaluations[0], 0.0)]
    return Trained(clone, clone, clone, curve, 0, _labels(settings), outcome.seconds)


def _ppo(cell: Cell, settings: Settings, work: WorkFolder) -> Trained:
    # A worker that a cluster took for dead may still be at it: then this one waits, and goes on.
    with lock(work.lock(cell)):
        return _ppo_in(work.run(cell), cell, settings, work)


def _ppo_in(path: Path, cell: Cell, settings: Settings, work: WorkFolder) -> Trained:
    if (path / CHECKPOINT).is_file():
        run = RunFolder(path, settings)
    else:
        shutil.rmtree(path, ignore_errors=True)
        if cell.demonstrations:
            run = branch(settings, cloned_run(settings, work.clones), path)
        else:
            run = RunFolder.create(path, settings, COMMAND)
    outcome = Training(run, silent).run()
    return Trained(
        clone=load_policy(path / "clone") if cell.demonstrations else None,
        final=load_policy(path / "best"),
        last=load_policy(path / "last"),
        curve=[
            _point(evaluation, _processor_seconds(path, evaluation.step))
            for evaluation in outcome.evaluations
        ],
        longest_training_run=outcome.longest_training_run,
        labels=_labels(settings) if cell.demonstrations else 0,
        seconds=outcome.seconds,
    )


def _processor_seconds(path: Path, step: int) -> float:
    seconds = seconds_at(path, step, PROCESSOR_CLOCK)
    if seconds is None:
        raise ValueError(f"{path.name} has no time of step {step}: remove the run")
    return seconds


def _dagger(cell: Cell, settings: Settings, work: WorkFolder) -> Trained:
    outcome = run_dagger(settings, cell.labels)
    policy, seconds = outcome.policy, {"cloning": outcome.seconds}
    return Trained(None, policy, policy, [], 0, outcome.labels, seconds)


def _dqn(cell: Cell, settings: Settings, work: WorkFolder) -> Trained:
    evaluator = Evaluator(settings.world(), settings.eval_episodes)
    outcome = run_dqn(settings, cell.arm == "dqn", evaluator)
    return Trained(
        clone=None,
        final=outcome.best,
        last=outcome.last,
        curve=[
            _point(evaluation, seconds)
            for evaluation, seconds in zip(
                outcome.evaluations, outcome.seconds_at_evaluation, strict=True
            )
        ],
        longest_training_run=outcome.longest_training_run,
        labels=0,
        seconds={"ppo": outcome.seconds_at_evaluation[-1]},
    )


_ARMS: dict[Arm, Callable[[Cell, Settings, WorkFolder], Trained]] = {
    "cloning": _cloning,
    "ppo": _ppo,
    "dagger": _dagger,
    "dqn": _dqn,
    "dqn_unmasked": _dqn,
}


def _labels(settings: Settings) -> int:
    """Transitions of the demonstrations that were cloned."""
    return len(open_demonstrations(settings, silent))


def _point(evaluation: Evaluation, seconds: float) -> CurvePoint:
    return CurvePoint(
        step=evaluation.step,
        seconds=round(seconds, 1),
        accuracy=evaluation.accuracy,
        long_error_rate=evaluation.long_error_rate,
        wrong=evaluation.wrong or 0,
    )


class Scorer:
    """Scores policies of one world."""

    def __init__(self, world: AbacusConfig) -> None:
        self.world = world
        self.evaluator = Evaluator(
            world, SCORE_EPISODES, long_operations=SCORE_LONG_OPERATIONS, seed=SCORE_SEED
        )
        #: A clone is scored for every cell that starts from it, and may stay the best.
        self._known: dict[str, Score] = {}

    def __call__(self, policy: AbacusPolicy) -> Score:
        """The score of a policy."""
        weights = _digest(policy)
        if weights not in self._known:
            self._known[weights] = self._score(policy)
        return self._known[weights]

    def _score(self, policy: AbacusPolicy) -> Score:
        evaluation = self.evaluator(policy, 0)
        wrong = evaluation.wrong or 0
        return Score(
            accuracy=evaluation.accuracy,
            long_error_rate=evaluation.long_error_rate,
            wrong=wrong,
            longest_run=self._longest_run(policy),
            exact=wrong == 0 and self._certified(policy),
        )

    def _longest_run(self, policy: AbacusPolicy) -> int:
        world = replace(self.evaluator.world, max_operations=RUN_LIMIT)
        batch = AbacusBatch(world, RUN_EPISODES, autoreset=False)
        batch.reset(SCORE_SEED)
        table = GreedyTable(policy, world.base, world.frames)
        outcome = table.run(batch, episode_step_limit(world, RUN_LIMIT))
        return int(outcome.solved.max())

    def _certified(self, policy: AbacusPolicy) -> bool:
        return certify(policy, observations_of(self.world)).exact


def _digest(policy: AbacusPolicy) -> str:
    digest = hashlib.sha256()
    for tensor in policy.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=4)
def _scorer(world: AbacusConfig) -> Scorer:
    return Scorer(world)
