"""Classes of first errors: players that go wrong in one known way each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from abacus.batch import AbacusBatch
from abacus.rules import Action
from abacus.tasks import Operation, value_of
from oracle.expert import expert_actions
from pipelines.scoring import paper as published
from pipelines.scoring.errors import CLASS_NAMES, ErrorAnalysis, ErrorClass, Spread, analyse
from pipelines.scoring.operations import OperationSet, given_operation
from pipelines.scoring.players import StepPlayer, random_player
from pipelines.scoring.scores import Failures, Score, measure

Scalars = npt.NDArray[np.void]
Change = Callable[[Scalars, npt.NDArray[np.int64]], npt.NDArray[np.int64]]


def teacher_but(change: Change) -> StepPlayer:
    """The teacher, with some of its actions changed by the state and its answer."""
    return StepPlayer(lambda batch: change(batch.scalars, expert_actions(batch)))


def analysed(player: StepPlayer, operations: OperationSet) -> ErrorAnalysis:
    failures = Failures(10)
    score = Score("given", operations.digits, len(operations))
    measure(
        player, score, lambda count, rng: operations, np.random.default_rng(0), 3, None, failures
    )
    assert score.errors == len(failures) == 1
    return analyse("given", player, failures, score.errors, 3, None)


def only_class(analysis: ErrorAnalysis) -> ErrorClass:
    met = [error for error in ErrorClass if analysis.classes[CLASS_NAMES[error]]]
    assert len(met) == 1
    return met[0]


def test_a_wrong_digit_is_a_simple_operation() -> None:
    """12 + 1 in base 5: writes one row too high in column 0."""

    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        too_soon = (s["digit_index"] == 0) & (teacher == Action.DOWN) & (s["finger_row"] == 1)
        return np.where(too_soon, Action.SLIDE, teacher)

    analysis = analysed(teacher_but(change), given_operation(7, Operation(1, 1), 5))
    assert only_class(analysis) == ErrorClass.SIMPLE_OPERATION
    assert analysis.columns == {0: 1}
    example = analysis.examples[0]
    assert (example.policy_action, example.teacher_action) == ("slide", "down")


def test_a_digit_that_is_not_written_is_a_simple_operation() -> None:
    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(s["digit_index"] == 0, Action.SUBMIT, teacher)

    analysis = analysed(teacher_but(change), given_operation(7, Operation(1, 26), 5))
    # The signpost is on column 0 already, so writing is what is due.
    assert only_class(analysis) == ErrorClass.SIMPLE_OPERATION
    assert analysis.columns == {0: 1}


def test_a_carry_that_is_left_out() -> None:
    """44 + 1 in base 5: submits when the carry is due."""

    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        due = (s["digit_index"] == 0) & (s["wrong_count"] > 0) & (s["first_wrong"] > 0)
        return np.where(due, Action.SUBMIT, teacher)

    analysis = analysed(teacher_but(change), given_operation(24, Operation(1, 1), 5))
    assert only_class(analysis) == ErrorClass.CARRY
    assert analysis.columns == {1: 1}
    assert analysis.spreads["spread"] == 1
    example = analysis.examples[0]
    assert (example.state, example.input, example.truth) == ("44", "+1", "100")
    assert example.output == "040"
    assert example.wrong_places == (0, 1)
    assert analysis.error_digits == {2: 1}  # 25 - 20 is 10 in base 5
    assert analysis.relative_sizes == [pytest.approx(5 / 25)]


def test_a_carry_that_is_not_due() -> None:
    """11 + 1: the finger slides in column 1, where nothing is to be changed."""

    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        there = (s["digit_index"] == 0) & (s["finger_column"] == 1)
        return np.where(
            there & (s["wrong_count"] == 0), Action.SLIDE, np.where(there, Action.SUBMIT, teacher)
        )

    analysis = analysed(teacher_but(change), given_operation(6, Operation(1, 1), 5))
    assert only_class(analysis) == ErrorClass.CARRY
    assert analysis.columns == {1: 1}
    # The result is off in column 1, and nowhere above it.
    assert analysis.spreads["stayed"] == 1


def test_a_signpost_that_is_left_behind() -> None:
    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(teacher == Action.SIGNPOST_RIGHT, Action.SUBMIT, teacher)

    analysis = analysed(teacher_but(change), given_operation(6, Operation(1, 6), 5))
    assert only_class(analysis) == ErrorClass.SIGNPOST_RIGHT
    assert analysis.columns == {0: 1}


def test_a_signpost_that_goes_too_far() -> None:
    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        too_far = (s["digit_index"] == 0) & (s["steps"] == 0)
        return np.where(too_far, Action.SIGNPOST_RIGHT, teacher)

    analysis = analysed_or_solved(teacher_but(change), given_operation(6, Operation(1, 6), 5))
    # The teacher brings it back: the operation is solved, so there is no error to class.
    assert analysis is None


def analysed_or_solved(player: StepPlayer, operations: OperationSet) -> ErrorAnalysis | None:
    batch = operations.batch(3)
    solved = player.run(batch, 1_000).solved[0] == 1
    return None if solved else analysed(player, operations)


def test_a_reset_that_is_left_out() -> None:
    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(s["digit_index"] < 0, Action.SUBMIT, teacher)

    analysis = analysed(teacher_but(change), given_operation(6, Operation(1, 6), 5))
    assert only_class(analysis) == ErrorClass.SIGNPOST_LEFT
    assert analysis.columns == {1: 1}
    # The result is right, the reset is not.
    assert analysis.spreads["healed"] == 1
    assert analysis.error_digits == {0: 1}


def test_no_answer_at_all() -> None:
    def change(s: Scalars, teacher: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(s["finger_row"] == 0, Action.DOWN, Action.UP)

    analysis = analysed(teacher_but(change), given_operation(6, Operation(1, 6), 5))
    assert only_class(analysis) == ErrorClass.OUT_OF_STEPS
    assert analysis.examples[0].policy_action is None


def test_a_player_who_draws_is_analysed_on_the_way_it_takes() -> None:
    operations = given_operation(1234, Operation(1, 567), 5)
    analysis = analysed(random_player(1), operations)
    example = analysis.examples[0]
    pairs = zip(example.output, example.truth, strict=True)
    marked = {place for place, (shown, true) in enumerate(pairs) if shown != true}
    assert marked == set(example.wrong_places)
    assert sum(analysis.spreads.values()) == 1
    assert set(analysis.spreads) == {spread.name.lower() for spread in Spread}


def test_the_printed_examples_are_copied_right() -> None:
    for example in published.EXAMPLES:
        state, operand = int(example.state, 5), int(example.input, 5)
        assert state + operand == int(example.truth, 5)
        wrong = {
            place
            for place, (shown, true) in enumerate(zip(example.output, example.truth, strict=True))
            if shown != true
        }
        assert wrong <= set(example.wrong_places)
    assert sum(published.ERROR_CLASSES.values()) == pytest.approx(100)


def test_a_batch_is_what_the_numbers_say() -> None:
    operations = given_operation(1234, Operation(-1, 567), 5)
    batch: AbacusBatch = operations.batch(3)
    assert value_of(batch.digits[0], 5) == 1234
    assert value_of(operations.results()[0], 5) == 1234 - 567
