"""Running a cell: train by its arm, score the policies, return the record.

Many cells start from the same clone. A clone is trained once, in a run of its own that is kept in
the work folder; a cell that fine-tunes it takes a copy of that run and continues with PPO, with
the same numbers as if it had cloned itself.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from abacus.rules import AbacusConfig
from oracle.exact.certificate import certify, digest_of
from oracle.files import lock, move_into_place
from pipelines.experiments.records import (
    SCORING_VERSION,
    Arm,
    Cell,
    CurvePoint,
    PolicyScore,
    Record,
)
from pipelines.learning.cloning_data import open_demonstrations
from pipelines.learning.dagger import run_dagger
from pipelines.learning.dqn import DqnResult, run_dqn
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_policy
from pipelines.learning.run import TUNING, Training, TrainingResult
from pipelines.learning.run_folder import CHECKPOINT, RunFolder, remove_temporary
from pipelines.learning.settings import FLAGS, PpoSettings, Settings, resolve
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import (
    STRICT_REWARD,
    Evaluation,
    Evaluator,
    Runs,
    measure_runs,
    observations_of,
)

COMMAND = ["python", "-m", "pipelines.study"]
#: Seed of the scores: other operations than those that select a policy during training.
SCORE_SEED = 2_000_003
SCORE_EPISODES = 2000
SCORE_LONG_OPERATIONS = 10_000
#: Episodes of `PolicyScore.longest_run`, and the operations after which each ends.
RUN_EPISODES = 100
RUN_LIMIT = 2000
#: Everything that scores depend on. It is part of a cell's key: other scores are other records.
SCORING = {
    "version": SCORING_VERSION,
    "seed": SCORE_SEED,
    "episodes": SCORE_EPISODES,
    "long_operations": SCORE_LONG_OPERATIONS,
    "run_episodes": RUN_EPISODES,
    "run_limit": RUN_LIMIT,
    "reward": STRICT_REWARD,
}
#: torch has one generator for each process: cells in one process take turns.
_TURN = threading.Lock()


@dataclass(frozen=True)
class WorkFolder:
    """Folder of clones, and of runs that are not finished."""

    path: Path

    @property
    def clones(self) -> Path:
        return self.path / "clones"

    def run(self, cell: Cell) -> Path:
        """Return the run folder of a cell, from whose checkpoint it resumes."""
        return self.path / "cells" / cell.key

    def lock(self, cell: Cell) -> Path:
        """Return the lock file of a cell's run folder."""
        return self.run(cell).with_suffix(".lock")

    def remove(self, cell: Cell) -> None:
        """Remove the run folder of a cell whose record is stored."""
        shutil.rmtree(self.run(cell), ignore_errors=True)
        self.lock(cell).unlink(missing_ok=True)

    def remove_stored(self, cells: Iterable[Cell]) -> None:
        """Remove what was left by a kill between storing a record and removing its run folder.

        A run folder that another process works in is left alone.
        """
        folder = self.path / "cells"
        left = {entry.stem for entry in folder.iterdir()} if folder.is_dir() else set()
        for cell in cells if left else ():
            if cell.key in left:
                with suppress(TimeoutError), lock(self.lock(cell), timeout=0):
                    self.remove(cell)


def run_cell(cell: Cell, work: WorkFolder) -> Record:
    """Train and score a cell; resume if it was interrupted."""
    with _TURN:
        torch.set_num_threads(1)
        started, settings = time.perf_counter(), settings_of(cell)
        record = _ARMS[cell.arm](cell, settings, work, _scorer(settings.world))
        whole = {"all": time.perf_counter() - started}
        return replace(record, seconds=record.seconds | whole)


def settings_of(cell: Cell) -> Settings:
    """Return the settings of a cell's run."""
    return resolve({name: value for name, value in cell.settings.items() if name in FLAGS})


def cloned_run(settings: Settings, clones: Path) -> Path:
    """Return the folder of the run that clones; train it if there is none."""
    alone = _cloning_alone(settings)
    path = clones / hashlib.sha256(alone.to_json().encode()).hexdigest()[:16]
    if path.is_dir():
        return path
    # Of several workers that need the clone, the first trains it and the others wait.
    with lock(path.with_name(f".{path.name}.lock")):
        if not path.is_dir():
            unfinished = path.with_name(f".cloning-{path.name}")
            training = Training(_open_or_create(unfinished, alone), _silent)
            training.run()
            # Cells that read a finished run write nothing into it.
            training.finish()
            move_into_place(unfinished, path)
    return path


def _open_or_create(path: Path, settings: Settings) -> RunFolder:
    """Return the run folder at a path, a new one if there is no checkpoint to resume from."""
    if (path / CHECKPOINT).is_file():
        remove_temporary(path)
        return RunFolder(path, settings)
    shutil.rmtree(path, ignore_errors=True)
    return RunFolder.create(path, settings, COMMAND)


def _cloning_alone(settings: Settings) -> Settings:
    """Return settings that are equal for all runs with the same clone."""
    default = Settings()
    return replace(
        settings,
        preset=default.preset,
        n_timesteps=0,
        ppo=PpoSettings(),
        world=replace(settings.world, reward=default.world.reward),
        eval_freq=default.eval_freq,
    )


def branch(settings: Settings, cloned: Path, path: Path) -> RunFolder:
    """Make a run that has cloned already, and continues with PPO."""
    run = RunFolder.create(path, settings, COMMAND)
    source = RunFolder(cloned, settings)
    state = source.load_checkpoint()
    if state is None:
        raise ValueError(f"{cloned / CHECKPOINT} is missing: remove that folder")
    run.rows = source.rows
    run.save_checkpoint({**state, "stage": TUNING})
    return run


def _silent(line: str) -> None:
    """Discard the output of a run: many run at once."""


def _run_cloning(cell: Cell, settings: Settings, work: WorkFolder, score: Scorer) -> Record:
    path = cloned_run(settings, work.clones)
    # The run is finished: this reads its results.
    result = Training(RunFolder(path, settings), _silent).run()
    clone = score(load_policy(path / "clone"))
    labels = _labels(settings)
    return Record(cell, clone, clone, clone, _curve(result), 0, labels, result.seconds)


def _run_ppo(cell: Cell, settings: Settings, work: WorkFolder, score: Scorer) -> Record:
    path = work.run(cell)
    # A worker that a cluster lost may still run the cell: wait for it, then resume.
    with lock(work.lock(cell)):
        if cell.demonstrations and not (path / CHECKPOINT).is_file():
            shutil.rmtree(path, ignore_errors=True)
            run = branch(settings, cloned_run(settings, work.clones), path)
        else:
            run = _open_or_create(path, settings)
        result = Training(run, _silent).run()
        return Record(
            cell=cell,
            clone=score(load_policy(path / "clone")) if cell.demonstrations else None,
            final=score(load_policy(path / "best")),
            last=score(load_policy(path / "last")),
            curve=_curve(result),
            longest_training_run=result.longest_training_run,
            labels=_labels(settings) if cell.demonstrations else 0,
            seconds=result.seconds,
        )


def _run_dagger(cell: Cell, settings: Settings, work: WorkFolder, score: Scorer) -> Record:
    result = run_dagger(settings, cell.labels)
    final = score(result.policy)
    return Record(cell, None, final, final, (), 0, result.labels, {"cloning": result.seconds})


def _run_dqn(cell: Cell, settings: Settings, work: WorkFolder, score: Scorer) -> Record:
    evaluator = Evaluator(settings.world, settings.eval_episodes)
    result = run_dqn(settings, cell.arm == "dqn", evaluator)
    return Record(
        cell=cell,
        clone=None,
        final=score(result.best),
        last=score(result.last),
        curve=_curve(result),
        longest_training_run=result.longest_training_run,
        labels=0,
        seconds={"dqn": result.seconds_at_evaluation[-1]},
    )


def _labels(settings: Settings) -> int:
    """Return the number of transitions of the demonstrations that were cloned."""
    return len(open_demonstrations(settings, _silent))


def _curve(result: TrainingResult | DqnResult) -> tuple[CurvePoint, ...]:
    pairs = zip(result.evaluations, result.seconds_at_evaluation, strict=True)
    return tuple(
        CurvePoint(
            step=evaluation.step,
            seconds=round(seconds, 1),
            accuracy=evaluation.accuracy,
            long_error_rate=evaluation.long_error_rate,
            wrong=_counted_wrong(evaluation),
        )
        for evaluation, seconds in pairs
    )


def _counted_wrong(evaluation: Evaluation) -> int:
    """Return the wrong observations; a grid has no world in which they are not counted."""
    if evaluation.wrong is None:
        raise ValueError("wrong observations were not counted: give a smaller base or fewer frames")
    return evaluation.wrong


class Scorer:
    """Callable that scores policies of one world, the same weights once."""

    def __init__(self, world: AbacusConfig) -> None:
        self.world = world
        self.evaluator = Evaluator(
            world, SCORE_EPISODES, long_operations=SCORE_LONG_OPERATIONS, seed=SCORE_SEED
        )
        #: By the digest of the weights: many cells score the same clone.
        self._known: dict[str | None, PolicyScore] = {}

    def __call__(self, policy: AbacusPolicy) -> PolicyScore:
        """Return the score of a policy."""
        weights = digest_of(policy)
        if weights not in self._known:
            self._known[weights] = self._score(policy)
        return self._known[weights]

    def _score(self, policy: AbacusPolicy) -> PolicyScore:
        evaluation = self.evaluator(policy, 0)
        wrong = _counted_wrong(evaluation)
        runs = Runs(self.world.operations, RUN_LIMIT, RUN_EPISODES)
        table = GreedyTable(policy, self.world.base, self.world.frames)
        measure_runs(table, runs, self.world, SCORE_SEED)
        return PolicyScore(
            accuracy=evaluation.accuracy,
            long_error_rate=evaluation.long_error_rate,
            wrong=wrong,
            longest_run=runs.longest,
            exact=wrong == 0 and certify(policy, observations_of(self.world)).exact,
        )


@lru_cache(maxsize=4)
def _scorer(world: AbacusConfig) -> Scorer:
    return Scorer(world)


_ARMS: dict[Arm, Callable[[Cell, Settings, WorkFolder, Scorer], Record]] = {
    "cloning": _run_cloning,
    "ppo": _run_ppo,
    "dagger": _run_dagger,
    "dqn": _run_dqn,
    "dqn_unmasked": _run_dqn,
}
