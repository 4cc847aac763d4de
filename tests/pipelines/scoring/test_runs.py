"""Runs of operations: to the limit, to the first error, to the abacus's capacity."""

from __future__ import annotations

import numpy as np

from abacus.batch import AbacusBatch
from abacus.rules import Action
from oracle.expert import expert_actions
from pipelines.scoring.players import StepPlayer, teacher_player
from pipelines.scoring.scores import Runs, measure_runs


def test_the_teacher_reaches_the_limit() -> None:
    runs = Runs("both", limit=12, asked=23)
    measure_runs(teacher_player(), runs, base=5, frames=3, seed=0)
    assert runs.complete
    assert runs.lengths == [12] * 23
    assert (runs.mistakes, runs.capacity, runs.limited) == (0, 0, 23)


def test_additions_fill_a_small_abacus() -> None:
    runs = Runs("add", limit=1_000, asked=4)
    measure_runs(teacher_player(), runs, base=5, frames=3, seed=0, columns=4, max_digits=3)
    assert (runs.mistakes, runs.capacity, runs.limited) == (0, 4, 0)
    assert 0 < runs.longest < 1_000
    assert min(runs.lengths) <= runs.median <= runs.longest


def test_a_run_ends_at_the_first_error() -> None:
    def choose(batch: AbacusBatch) -> np.ndarray:
        third = batch.scalars["operations_done"] == 3
        return np.where(third, Action.SUBMIT, expert_actions(batch))

    runs = Runs("both", limit=50, asked=5)
    measure_runs(StepPlayer(choose), runs, base=5, frames=3, seed=0)
    assert runs.lengths == [3] * 5
    assert (runs.mistakes, runs.limited) == (5, 0)
