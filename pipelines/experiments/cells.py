"""Running a cell: train by its arm, score the policies, return the record."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from abacus.rules import AbacusConfig
from oracle.exact.certificate import certify, digest_of
from oracle.exact.own_runs import NOT_EXACT, Verdict, certify_own_runs
from oracle.files import lock
from pipelines.experiments.arms import ARMS
from pipelines.experiments.records import (
    LEFT_OUT,
    Cell,
    CurvePoint,
    PolicyScore,
    Record,
    TeachingRound,
)
from pipelines.learning.learner import Job, Trained
from pipelines.learning.policy import AbacusPolicy, prepare_torch
from pipelines.learning.rollouts import MISTAKES
from pipelines.learning.settings import FLAGS, Settings, resolve
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import (
    STRICT_REWARD,
    Evaluation,
    Evaluator,
    Runs,
    measure_runs,
    observations_of,
    training_score,
)

#: Seed of the scores: other operations than those that select a policy during training.
SCORE_SEED = 2_000_003
SCORE_EPISODES = 2000
#: Columns of the abacus of all scores, as in the paper, whatever a policy was trained on.
SCORE_COLUMNS = 10
SCORE_LONG_OPERATIONS = 10_000
#: Episodes of `PolicyScore.longest_run`, and the operations after which each ends.
RUN_EPISODES = 100
RUN_LIMIT = 2000
#: Everything that scores depend on. It is part of a cell's key: other scores are other records.
SCORING = {
    "version": 3,
    "seed": SCORE_SEED,
    "episodes": SCORE_EPISODES,
    "columns": SCORE_COLUMNS,
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
        prepare_torch(1)
        started, settings = time.perf_counter(), settings_of(cell)
        job = Job(settings, cell.labels, work.run(cell), work.clones)
        # A worker that a cluster lost may still run the cell: wait for it, then resume.
        with lock(work.lock(cell)):
            trained = ARMS[cell.arm].learner.run(job)
        score = _scorer(replace(settings.world, columns=SCORE_COLUMNS))
        return Record(
            cell=cell,
            clone=None if trained.clone is None else score(trained.clone),
            final=score(trained.best, own_runs=True),
            last=score(trained.last),
            curve=_curve(trained),
            longest_training_run=trained.longest_training_run,
            labels=trained.labels,
            demonstrated=trained.demonstrated,
            stage_steps=dict(trained.stage_steps),
            rounds=tuple(TeachingRound(*each) for each in trained.rounds),
            seconds={**trained.seconds, "all": time.perf_counter() - started},
        )


def settings_of(cell: Cell) -> Settings:
    """Return the settings of a cell's run."""
    settings = LEFT_OUT | cell.settings
    return resolve({name: value for name, value in settings.items() if name in FLAGS})


def _curve(trained: Trained) -> tuple[CurvePoint, ...]:
    pairs = zip(trained.evaluations, trained.seconds_at_evaluation, strict=True)
    return tuple(
        CurvePoint(
            step=evaluation.step,
            seconds=round(seconds, 1),
            accuracy=evaluation.judged_accuracy,
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

    def __call__(self, policy: AbacusPolicy, *, own_runs: bool = False) -> PolicyScore:
        """Return the score of a policy; `own_runs`: with the certificate by its own runs."""
        weights = digest_of(policy)
        if weights not in self._known:
            self._known[weights] = self._score(policy)
        score = self._known[weights]
        if own_runs and score.own_runs is None:
            score = replace(score, own_runs=self._own_runs(policy))
            self._known[weights] = score
        # Equal records have equal scores, whatever was scored before.
        return score if own_runs else replace(score, own_runs=None)

    def _score(self, policy: AbacusPolicy) -> PolicyScore:
        evaluation = self.evaluator(policy, 0)
        wrong = _counted_wrong(evaluation)
        runs = Runs(self.world.operations, RUN_LIMIT, RUN_EPISODES)
        measure_runs(self._table(policy), runs, self.world, SCORE_SEED)
        return PolicyScore(
            accuracy=evaluation.accuracy,
            own_accuracy=evaluation.judged_accuracy,
            long_error_rate=evaluation.long_error_rate,
            wrong=wrong,
            longest_run=runs.longest,
            exact=wrong == 0 and certify(policy, observations_of(self.world)).exact,
        )

    def _table(self, policy: AbacusPolicy) -> GreedyTable:
        """Return a table that knows the complete set.

        With an empty table, the policy would be asked again for every few new observations of a
        small batch, which took most of the time of a score.
        """
        table = GreedyTable(policy, self.world.base, self.world.frames)
        table.learn_set(observations_of(self.world))
        return table

    def _own_runs(self, policy: AbacusPolicy) -> Verdict | None:
        """Certify the own runs at the level of the world; None for a single operation.

        The certificate is about both operations. A mistake in an episode of the world is a run that
        goes wrong by the rules of the level, so that the exploration need not be asked. An episode
        that only exceeds its step budget is no such run.
        """
        world = self.world
        if world.operations != "both" or not isinstance(world.reward, str):
            return None
        score = training_score(self._table(policy), world, SCORE_EPISODES, SCORE_SEED)
        if any(score.failures[kind.name.lower()] for kind in MISTAKES):
            return NOT_EXACT
        level, base, frames = world.reward, world.base, world.frames
        return certify_own_runs(policy, base=base, frames=frames, level=level).verdict


@lru_cache(maxsize=8)
def _scorer(world: AbacusConfig) -> Scorer:
    return Scorer(world)
