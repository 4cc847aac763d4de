"""Classes of first errors, by players that go wrong in one known way each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from abacus.rules import Action
from oracle.expert import expert_actions
from pipelines.scoring import paper
from pipelines.scoring.errors import ErrorAnalysis, ErrorClass, Spread, analyse
from pipelines.scoring.operations import OperationSet
from pipelines.scoring.players import Actions, StepPlayer, random_player
from pipelines.scoring.scores import Failures, Score, measure

Scalars = npt.NDArray[np.void]
Change = Callable[[Scalars, Actions], Actions]
Given = Callable[[int, int], OperationSet]


def expert_but(change: Change) -> StepPlayer:
    """Return the expert with some actions changed, by the state and its own action."""
    return StepPlayer(lambda batch: change(batch.scalars, expert_actions(batch)))


def analysed(player: StepPlayer, operations: OperationSet) -> ErrorAnalysis:
    failures = Failures(10)
    score = Score("given", operations.digits, len(operations))
    measure(player, score, lambda count, rng: operations, 0, 3, failures=failures)
    assert score.errors == len(failures) == 1
    return analyse("given", player, failures, score.errors, 3, None)


def only_class(analysis: ErrorAnalysis) -> ErrorClass:
    met = [error for error in ErrorClass if analysis.classes[error.words]]
    assert len(met) == 1
    return met[0]


def test_a_wrong_digit_is_a_simple_operation(given_operation: Given) -> None:
    """12 + 1 in base 5: writes one row too high in column 0."""

    def change(s: Scalars, expert: Actions) -> Actions:
        too_soon = (s["digit_index"] == 0) & (expert == Action.DOWN) & (s["finger_row"] == 1)
        return np.where(too_soon, Action.SLIDE, expert)

    analysis = analysed(expert_but(change), given_operation(7, 1))
    assert only_class(analysis) == ErrorClass.SIMPLE_OPERATION
    assert analysis.columns == {0: 1}
    example = analysis.examples[0]
    assert (example.policy_action, example.teacher_action) == ("slide", "down")


def test_a_digit_that_is_not_written_is_a_simple_operation(given_operation: Given) -> None:
    def change(s: Scalars, expert: Actions) -> Actions:
        return np.where(s["digit_index"] == 0, Action.SUBMIT, expert)

    analysis = analysed(expert_but(change), given_operation(7, 26))
    # The signpost is on column 0 already, so writing is what is due.
    assert only_class(analysis) == ErrorClass.SIMPLE_OPERATION
    assert analysis.columns == {0: 1}


def test_a_carry_that_is_left_out(given_operation: Given) -> None:
    """44 + 1 in base 5: submits when the carry is due."""

    def change(s: Scalars, expert: Actions) -> Actions:
        due = (s["digit_index"] == 0) & (s["wrong_count"] > 0) & (s["first_wrong"] > 0)
        return np.where(due, Action.SUBMIT, expert)

    analysis = analysed(expert_but(change), given_operation(24, 1))
    assert only_class(analysis) == ErrorClass.CARRY
    assert analysis.columns == {1: 1}
    assert analysis.spreads["spread"] == 1
    example = analysis.examples[0]
    assert (example.state, example.input, example.truth) == ("44", "+1", "100")
    assert example.output == "040"
    assert example.wrong_places == (0, 1)
    assert analysis.error_digits == {2: 1}  # 25 - 20 is 10 in base 5
    assert analysis.relative_sizes == [pytest.approx(5 / 25)]


def test_a_carry_that_is_not_due(given_operation: Given) -> None:
    """11 + 1: the finger slides in column 1, where nothing is to be changed."""

    def change(s: Scalars, expert: Actions) -> Actions:
        there = (s["digit_index"] == 0) & (s["finger_column"] == 1)
        return np.where(
            there & (s["wrong_count"] == 0), Action.SLIDE, np.where(there, Action.SUBMIT, expert)
        )

    analysis = analysed(expert_but(change), given_operation(6, 1))
    assert only_class(analysis) == ErrorClass.CARRY
    assert analysis.columns == {1: 1}
    # The result is off in column 1, and nowhere above it.
    assert analysis.spreads["stayed"] == 1


def test_a_signpost_that_is_left_behind(given_operation: Given) -> None:
    def change(s: Scalars, expert: Actions) -> Actions:
        return np.where(expert == Action.SIGNPOST_RIGHT, Action.SUBMIT, expert)

    analysis = analysed(expert_but(change), given_operation(6, 6))
    assert only_class(analysis) == ErrorClass.SIGNPOST_RIGHT
    assert analysis.columns == {0: 1}


def test_a_signpost_move_that_is_taken_back_is_no_error(given_operation: Given) -> None:
    def change(s: Scalars, expert: Actions) -> Actions:
        too_far = (s["digit_index"] == 0) & (s["steps"] == 0)
        return np.where(too_far, Action.SIGNPOST_RIGHT, expert)

    analysis = analysed_or_solved(expert_but(change), given_operation(6, 6))
    # The expert brings it back: the operation is solved, so there is no error.
    assert analysis is None


def analysed_or_solved(player: StepPlayer, operations: OperationSet) -> ErrorAnalysis | None:
    batch = operations.batch(3)
    solved = player.run(batch, 1_000).solved[0] == 1
    return None if solved else analysed(player, operations)


def test_a_reset_that_is_left_out(given_operation: Given) -> None:
    def change(s: Scalars, expert: Actions) -> Actions:
        return np.where(s["digit_index"] < 0, Action.SUBMIT, expert)

    analysis = analysed(expert_but(change), given_operation(6, 6))
    assert only_class(analysis) == ErrorClass.SIGNPOST_LEFT
    assert analysis.columns == {1: 1}
    # The result is right, the reset is not.
    assert analysis.spreads["healed"] == 1
    assert analysis.error_digits == {0: 1}


def test_an_operation_without_an_answer_is_out_of_steps(given_operation: Given) -> None:
    def change(s: Scalars, expert: Actions) -> Actions:
        return np.where(s["finger_row"] == 0, Action.DOWN, Action.UP)

    analysis = analysed(expert_but(change), given_operation(6, 6))
    assert only_class(analysis) == ErrorClass.OUT_OF_STEPS
    assert analysis.examples[0].policy_action is None


def test_a_random_player_is_analysed_by_its_second_run(given_operation: Given) -> None:
    operations = given_operation(1234, 567)
    analysis = analysed(random_player(1), operations)
    example = analysis.examples[0]
    pairs = zip(example.output, example.truth, strict=True)
    marked = {place for place, (shown, true) in enumerate(pairs) if shown != true}
    assert marked == set(example.wrong_places)
    assert sum(analysis.spreads.values()) == 1
    assert set(analysis.spreads) == {spread.name.lower() for spread in Spread}


def test_the_examples_of_the_paper_are_copied_right() -> None:
    for example in paper.EXAMPLES:
        state, operand = int(example.state, 5), int(example.input, 5)
        assert state + operand == int(example.truth, 5)
        wrong = {
            place
            for place, (shown, true) in enumerate(zip(example.output, example.truth, strict=True))
            if shown != true
        }
        assert wrong <= set(example.wrong_places)
    assert sum(paper.ERROR_CLASSES.values()) == pytest.approx(100)
