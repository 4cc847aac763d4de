"""Counting: which operations failed, in which portion, and what is kept of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.rules import Action
from oracle.expert import expert_actions
from pipelines.scoring import operations
from pipelines.scoring.operations import OperationSet, drawn_operations
from pipelines.scoring.players import StepPlayer
from pipelines.scoring.scores import Failures, Score, measure


def only_subtracts(batch: AbacusBatch) -> npt.NDArray[np.int64]:
    """The teacher for subtractions; submits whatever is shown in additions."""
    subtracts = batch.program.headers[:, 1] == SUBTRACT
    return np.where(subtracts, expert_actions(batch), Action.SUBMIT)


def make(count: int, rng: np.random.Generator) -> OperationSet:
    return drawn_operations(count, 4, 5, rng)


def test_errors_are_counted_where_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_AT_ONCE", 20)
    score, failures = Score("4 digits", 4, 50), Failures(15)
    portions: list[int] = []
    measure(
        StepPlayer(only_subtracts),
        score,
        make,
        np.random.default_rng(0),
        3,
        None,
        failures,
        portions.append,
    )
    assert portions == [20, 20, 10]
    assert (score.additions, score.addition_errors) == (25, 25)
    assert (score.subtractions, score.subtraction_errors) == (25, 0)
    assert (score.errors, score.wrong_results, score.complete) == (25, 25, True)
    assert (score.rate().errors, score.rate().trials) == (25, 50)
    assert len(failures) == 15
    assert all((part.kinds != SUBTRACT).all() for part, _ in failures.parts)
    assert score.illegal_actions == 0


def test_a_right_result_after_a_wrong_submit_is_an_error_all_the_same() -> None:
    def no_reset(batch: AbacusBatch) -> npt.NDArray[np.int64]:
        resetting = batch.scalars["digit_index"] < 0
        return np.where(resetting, Action.SUBMIT, expert_actions(batch))

    score = Score("4 digits", 4, 10)
    measure(StepPlayer(no_reset), score, make, np.random.default_rng(0), 3)
    assert (score.errors, score.wrong_results) == (10, 0)
