"""Analysis of failed operations: class, column and consequence of the first error of each.

Failed operations are run again, step by step, beside the expert. docs/fidelity.md defines the
classes; four of them are the paper's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.kernel import ON_OPERATION_SYMBOL, SUBTRACT
from abacus.rules import Action, End, NamedInteger
from abacus.tasks import digits_of, numeral, value_of
from oracle.expert import expert_actions
from pipelines.scoring.operations import Digits, OperationSet, numeral_lengths, step_limit
from pipelines.scoring.paper import ErrorExample
from pipelines.scoring.players import Actions, Player, mistakes_of
from pipelines.scoring.scores import Failures

#: Longest operands shown as examples, and the most examples of an analysis.
LONGEST_EXAMPLE = 64
EXAMPLES = 8

Columns = npt.NDArray[np.int32]


class ErrorClass(NamedInteger):
    """Part of the algorithm in which the first error lies."""

    SIMPLE_OPERATION = 0
    SIGNPOST_RIGHT = 1
    CARRY = 2
    SIGNPOST_LEFT = 3
    OUT_OF_STEPS = 4


class Spread(NamedInteger):
    """Consequence of an error in the result."""

    HEALED = 0  # the result is right
    STAYED = 1  # no column above the error's is wrong
    SPREAD = 2  # some column above it is


@dataclass(frozen=True)
class FirstErrors:
    """The first error of each of N failed operations."""

    classes: npt.NDArray[np.uint8]
    columns: Columns
    spreads: npt.NDArray[np.uint8]
    #: -1 where the operation ran out of steps without a wrong action.
    policy_actions: npt.NDArray[np.int8]
    expert_actions: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.classes)


def first_errors(
    player: Player, operations: OperationSet, outputs: Digits, frames: int, columns: int | None
) -> FirstErrors:
    """Find the first errors of failed operations; `outputs` are the final digits of the abaci.

    A random player takes other actions this time: `outputs` is overwritten with the new ones.
    """
    batch = operations.batch(frames, columns)
    limit = step_limit(batch.config)
    classes = np.full(len(operations), ErrorClass.OUT_OF_STEPS, np.uint8)
    error_columns = np.zeros(len(operations), np.int32)
    policy_actions, right_actions = np.full((2, len(operations)), -1, np.int8)
    running = np.ones(len(operations), np.bool_)
    flawless = running.copy()
    while running.any():
        before = batch.scalars.copy()
        expert, policy = expert_actions(batch), player.actions(batch)
        batch.step(np.where(running, policy, Action.UP))
        wrong = running & flawless & (mistakes_of(batch) != End.NONE)
        classes[wrong] = classes_of(before[wrong], policy[wrong])
        error_columns[wrong] = columns_of(before[wrong], policy[wrong], classes[wrong])
        policy_actions[wrong], right_actions[wrong] = policy[wrong], expert[wrong]
        flawless &= ~wrong
        over = running & ((batch.ends != End.NONE) | (before["steps"] + 1 >= limit))
        lost = over & flawless
        error_columns[lost] = before["finger_column"][lost]
        running &= ~over
        if player.deterministic:
            running &= flawless
    if not player.deterministic:
        outputs[:] = batch.digits
    spreads = spreads_of(outputs, operations.results(outputs.shape[1]), error_columns)
    return FirstErrors(classes, error_columns, spreads, policy_actions, right_actions)


def classes_of(before: npt.NDArray[np.void], actions: Actions) -> npt.NDArray[np.uint8]:
    """Classify wrong actions by the states in which they were taken."""
    j = before["digit_index"]
    moves_signpost = (actions == Action.SIGNPOST_LEFT) | (actions == Action.SIGNPOST_RIGHT)
    lowest_wrong = np.where(
        before["wrong_count"] > 0, before["first_wrong"], np.iinfo(np.int32).max
    )
    nothing_left = before["wrong_count"] == 0
    # The expert moves the signpost first, unless something below it is wrong.
    signpost_due = (before["signpost"] != j) & (lowest_wrong >= j)
    slid_above = (actions == Action.SLIDE) & (before["finger_column"] > j)
    return np.select(
        [
            j == ON_OPERATION_SYMBOL,
            moves_signpost | ((actions == Action.SUBMIT) & signpost_due),
            nothing_left & ~slid_above,
            nothing_left | (lowest_wrong > j),
        ],
        [
            ErrorClass.SIGNPOST_LEFT,
            ErrorClass.SIGNPOST_RIGHT,
            ErrorClass.SIMPLE_OPERATION,
            ErrorClass.CARRY,
        ],
        default=ErrorClass.SIMPLE_OPERATION,
    ).astype(np.uint8)


def columns_of(
    before: npt.NDArray[np.void], actions: Actions, classes: npt.NDArray[np.uint8]
) -> Columns:
    """Return the columns of wrong actions."""
    about_signpost = (classes == ErrorClass.SIGNPOST_LEFT) | (classes == ErrorClass.SIGNPOST_RIGHT)
    return np.select(
        [actions == Action.SLIDE, about_signpost],
        [before["finger_column"], before["signpost"]],
        default=before["first_wrong"],
    ).astype(np.int32)


def spreads_of(outputs: Digits, truths: Digits, columns: Columns) -> npt.NDArray[np.uint8]:
    """Return the consequences of errors in the results."""
    wrong = outputs != truths
    above = (wrong & (np.arange(wrong.shape[1]) > columns[:, None])).any(axis=1)
    return np.select(
        [~wrong.any(axis=1), above], [Spread.HEALED, Spread.SPREAD], default=Spread.STAYED
    ).astype(np.uint8)


@dataclass(frozen=True)
class AnalysedExample(ErrorExample):
    """A failed operation with its first error."""

    error_class: str
    column: int
    spread: str
    policy_action: str | None
    teacher_action: str | None


@dataclass
class ErrorAnalysis:
    """Counts over failed operations."""

    name: str
    #: All failures, of which `analysed` were run again.
    failures: int
    analysed: int = 0
    classes: dict[str, int] = field(default_factory=lambda: {c.words: 0 for c in ErrorClass})
    #: Number of first errors by column.
    columns: dict[int, int] = field(default_factory=dict)
    spreads: dict[str, int] = field(default_factory=lambda: {s.words: 0 for s in Spread})
    #: Number of failures by the digits of |output - truth|; 0 digits where the result is right.
    error_digits: dict[int, int] = field(default_factory=dict)
    #: |output - truth| / truth of each, where the truth is not 0.
    relative_sizes: list[float] = field(default_factory=list)
    examples: list[AnalysedExample] = field(default_factory=list)

    def share(self, error_class: str) -> float:
        """Return the share of a class among the analysed failures."""
        return self.classes[error_class] / self.analysed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; of the sizes, the median and the largest."""
        values = asdict(self)
        sizes = values.pop("relative_sizes")
        values["median_relative_size"] = float(np.median(sizes)) if sizes else None
        values["largest_relative_size"] = max(sizes) if sizes else None
        return values


def analyse(
    name: str, player: Player, failures: Failures, total: int, frames: int, columns: int | None
) -> ErrorAnalysis:
    """Analyse the failed operations that were kept."""
    analysis = ErrorAnalysis(name, total)
    error_columns, error_digits = Counter[int](), Counter[int]()
    for operations, outputs in failures.parts:
        errors = first_errors(player, operations, outputs, frames, columns)
        analysis.analysed += len(errors)
        for error_class in ErrorClass:
            analysis.classes[error_class.words] += int((errors.classes == error_class).sum())
        for spread in Spread:
            analysis.spreads[spread.words] += int((errors.spreads == spread).sum())
        error_columns.update(errors.columns.tolist())
        for output, result in zip(outputs, operations.results(), strict=True):
            truth = value_of(result, operations.base)
            difference = abs(value_of(output, operations.base) - truth)
            error_digits[len(digits_of(difference, operations.base)) if difference else 0] += 1
            if truth:
                analysis.relative_sizes.append(difference / truth)
        if operations.digits <= LONGEST_EXAMPLE:
            rows = _alternate_classes(errors)[: EXAMPLES - len(analysis.examples)]
            analysis.examples += [_example(operations, outputs, errors, row) for row in rows]
    analysis.columns = dict(sorted(error_columns.items()))
    analysis.error_digits = dict(sorted(error_digits.items()))
    return analysis


def _alternate_classes(errors: FirstErrors) -> list[int]:
    """Return the rows in an order that alternates between the classes."""
    turn = np.zeros(len(errors), np.int64)
    for error_class in ErrorClass:
        rows = np.flatnonzero(errors.classes == error_class)
        turn[rows] = np.arange(len(rows))
    return [int(row) for row in np.lexsort((errors.classes, turn))]


def _example(
    operations: OperationSet, outputs: Digits, errors: FirstErrors, row: int
) -> AnalysedExample:
    base = operations.base
    one = operations.subset(np.array([row]))
    numerals = np.concatenate([outputs[[row]], one.results(outputs.shape[1])])
    length = int(numeral_lengths(numerals).max())
    output, truth = numerals[:, :length][:, ::-1]
    sign = "-" if one.kinds[0] == SUBTRACT else "+"
    return AnalysedExample(
        state=numeral(value_of(one.starts[0], base), base),
        input=sign + numeral(value_of(one.operands[0], base), base),
        # Of the same length, so that they can be compared digit by digit.
        output="".join(map(str, output)),
        truth="".join(map(str, truth)),
        wrong_places=tuple(np.flatnonzero(output != truth).tolist()),
        error_class=ErrorClass(int(errors.classes[row])).words,
        column=int(errors.columns[row]),
        spread=Spread(int(errors.spreads[row])).words,
        policy_action=_action_words(errors.policy_actions[row]),
        teacher_action=_action_words(errors.expert_actions[row]),
    )


def _action_words(action: np.int8) -> str | None:
    return Action(int(action)).words if action >= 0 else None
