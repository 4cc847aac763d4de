"""Where an operation first goes wrong: the paper's four classes, from the state and the teacher.

The classes are defined in docs/fidelity.md. Only operations that failed are looked at, step by step
up to their first wrong action.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL, SUBTRACT
from abacus.rules import Action, End
from abacus.tasks import digits_of, numeral, value_of
from oracle.expert import expert_actions
from pipelines.scoring.operations import Digits, OperationSet, numeral_lengths, step_limit
from pipelines.scoring.players import Player, mistakes_of, widened
from pipelines.scoring.scores import Failures

Columns = npt.NDArray[np.int32]


class ErrorClass(IntEnum):
    """What the first error is about."""

    SIMPLE_OPERATION = 0
    SIGNPOST_RIGHT = 1
    CARRY = 2
    SIGNPOST_LEFT = 3
    OUT_OF_STEPS = 4


class Spread(IntEnum):
    """What became of it in the result."""

    HEALED = 0  # the result is right all the same
    STAYED = 1  # no column above that of the error is wrong
    SPREAD = 2  # some column above it is


@dataclass(frozen=True)
class FirstErrors:
    """The first error of each of N failed operations."""

    classes: npt.NDArray[np.uint8]
    columns: Columns
    spreads: npt.NDArray[np.uint8]
    #: -1 where the operation ran out of steps without a wrong action.
    policy_actions: npt.NDArray[np.int8]
    teacher_actions: npt.NDArray[np.int8]
    #: The step at which it happened.
    steps: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.classes)


def first_errors(
    player: Player, operations: OperationSet, outputs: Digits, frames: int, columns: int | None
) -> FirstErrors:
    """The first errors of operations that failed; `outputs` is what the abaci showed at the end.

    A player who draws goes another way this time: there, outputs are those of this way, written
    over the others.
    """
    trace = _Trace(operations.batch(frames, columns))
    trace.run(player)
    if not player.repeatable:
        outputs[:] = trace.batch.digits
    truths = widened(operations.results(), outputs.shape[1])
    return FirstErrors(
        trace.classes,
        trace.columns,
        spreads_of(outputs, truths, trace.columns),
        trace.policy_actions,
        trace.teacher_actions,
        trace.steps,
    )


class _Trace:
    """Steps through abaci until each has made its first mistake."""

    def __init__(self, batch: AbacusBatch) -> None:
        count = batch.num_envs
        self.batch = batch
        self.classes = np.full(count, ErrorClass.OUT_OF_STEPS, np.uint8)
        self.columns = np.zeros(count, np.int32)
        self.policy_actions = np.full(count, -1, np.int8)
        self.teacher_actions = np.full(count, -1, np.int8)
        self.steps = np.zeros(count, np.int64)

    def run(self, player: Player) -> None:
        batch = self.batch
        limit = step_limit(batch.config)
        running = np.ones(batch.num_envs, np.bool_)
        flawless = running.copy()
        while running.any():
            before = batch.scalars.copy()
            teacher, policy = expert_actions(batch), player.actions(batch)
            batch.step(np.where(running, policy, Action.UP))
            wrong = running & flawless & (mistakes_of(batch) != End.NONE)
            self._note(wrong, before[wrong], policy[wrong], teacher[wrong])
            flawless &= ~wrong
            over = running & ((batch.ends != End.NONE) | (before["steps"] + 1 >= limit))
            self._note_lost(over & flawless, before)
            running &= ~over
            if player.repeatable:
                running &= flawless

    def _note_lost(self, which: npt.NDArray[np.bool_], before: npt.NDArray[np.void]) -> None:
        self.columns[which] = before["finger_column"][which]
        self.steps[which] = before["steps"][which]

    def _note(
        self,
        which: npt.NDArray[np.bool_],
        before: npt.NDArray[np.void],
        policy: npt.NDArray[np.int64],
        teacher: npt.NDArray[np.int64],
    ) -> None:
        if not which.any():
            return
        classes = classes_of(before, policy)
        self.classes[which] = classes
        self.columns[which] = columns_of(before, policy, classes)
        self.policy_actions[which] = policy
        self.teacher_actions[which] = teacher
        self.steps[which] = before["steps"]


def classes_of(
    before: npt.NDArray[np.void], actions: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """The classes of wrong actions, by the states in which they were taken."""
    j = before["digit_index"]
    moves_signpost = (actions == Action.SIGNPOST_LEFT) | (actions == Action.SIGNPOST_RIGHT)
    lowest_wrong = np.where(
        before["wrong_count"] > 0, before["first_wrong"], np.iinfo(np.int32).max
    )
    nothing_left = before["wrong_count"] == 0
    # What the teacher does next: the signpost first, unless something below it is wrong.
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
    before: npt.NDArray[np.void],
    actions: npt.NDArray[np.int64],
    classes: npt.NDArray[np.uint8],
) -> Columns:
    """The columns in which wrong actions happened."""
    about_signpost = (classes == ErrorClass.SIGNPOST_LEFT) | (classes == ErrorClass.SIGNPOST_RIGHT)
    return np.select(
        [actions == Action.SLIDE, about_signpost],
        [before["finger_column"], before["signpost"]],
        default=before["first_wrong"],
    ).astype(np.int32)


def spreads_of(outputs: Digits, truths: Digits, columns: Columns) -> npt.NDArray[np.uint8]:
    """What became of errors in the results."""
    wrong = outputs != truths
    above = (wrong & (np.arange(wrong.shape[1]) > columns[:, None])).any(axis=1)
    return np.select(
        [~wrong.any(axis=1), above], [Spread.HEALED, Spread.SPREAD], default=Spread.STAYED
    ).astype(np.uint8)


CLASS_NAMES = {
    ErrorClass.SIMPLE_OPERATION: "simple operation",
    ErrorClass.SIGNPOST_RIGHT: "signpost right",
    ErrorClass.CARRY: "carry",
    ErrorClass.SIGNPOST_LEFT: "signpost left",
    ErrorClass.OUT_OF_STEPS: "out of steps",
}
#: Longer numbers are no example that anybody reads.
LONGEST_EXAMPLE = 64
EXAMPLES = 8


@dataclass(frozen=True)
class Example:
    """A failed operation, in numerals of the base: state, input, output and truth."""

    state: str
    input: str
    output: str
    truth: str
    #: Places of wrong digits in the output, counted from its left end.
    wrong_places: tuple[int, ...]
    error_class: str
    column: int
    spread: str
    policy_action: str | None
    teacher_action: str | None


@dataclass
class ErrorAnalysis:
    """Counts over the failed operations that were looked at."""

    name: str
    #: All failures, of which `analysed` were looked at.
    failures: int
    analysed: int = 0
    classes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLASS_NAMES.values(), 0))
    #: Columns of first errors, counted.
    columns: dict[int, int] = field(default_factory=dict)
    spreads: dict[str, int] = field(
        default_factory=lambda: {spread.name.lower(): 0 for spread in Spread}
    )
    #: Digits of |output - truth|, counted; 0 where the result is right.
    error_digits: dict[int, int] = field(default_factory=dict)
    #: |output - truth| / truth of each, where the truth is not 0.
    relative_sizes: list[float] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)

    def share(self, error_class: str) -> float:
        """Of the analysed failures, those of a class."""
        return self.classes[error_class] / self.analysed

    def to_dict(self) -> dict[str, Any]:
        """Plain values; of the sizes, the middle and the largest."""
        values = asdict(self)
        sizes = values.pop("relative_sizes")
        values["median_relative_size"] = float(np.median(sizes)) if sizes else None
        values["largest_relative_size"] = max(sizes) if sizes else None
        return values


def analyse(
    name: str, player: Player, failures: Failures, total: int, frames: int, columns: int | None
) -> ErrorAnalysis:
    """Looks at the failed operations that were kept."""
    analysis = ErrorAnalysis(name, total)
    for operations, outputs in failures.parts:
        errors = first_errors(player, operations, outputs, frames, columns)
        _count(analysis, operations, outputs, errors)
    analysis.columns = dict(sorted(analysis.columns.items()))
    analysis.error_digits = dict(sorted(analysis.error_digits.items()))
    return analysis


def _count(
    analysis: ErrorAnalysis, operations: OperationSet, outputs: Digits, errors: FirstErrors
) -> None:
    analysis.analysed += len(errors)
    differences = _differences(operations, outputs)
    analysis.columns = dict(Counter(analysis.columns) + Counter(errors.columns.tolist()))
    analysis.error_digits = dict(
        Counter(analysis.error_digits)
        + Counter(_digits(difference, operations.base) for difference, _ in differences)
    )
    for error_class in ErrorClass:
        analysis.classes[CLASS_NAMES[error_class]] += int((errors.classes == error_class).sum())
    for spread in Spread:
        analysis.spreads[spread.name.lower()] += int((errors.spreads == spread).sum())
    analysis.relative_sizes += [difference / truth for difference, truth in differences if truth]
    if operations.digits <= LONGEST_EXAMPLE:
        room = EXAMPLES - len(analysis.examples)
        rows = _varied(errors)[:room]
        analysis.examples += [_example(operations, outputs, errors, row) for row in rows]


def _varied(errors: FirstErrors) -> list[int]:
    """Rows in an order in which each class has its turn."""
    turn = np.zeros(len(errors), np.int64)
    for error_class in ErrorClass:
        rows = np.flatnonzero(errors.classes == error_class)
        turn[rows] = np.arange(len(rows))
    return [int(row) for row in np.lexsort((errors.classes, turn))]


def _differences(operations: OperationSet, outputs: Digits) -> list[tuple[int, int]]:
    """(|output - truth|, truth) of each operation."""
    base = operations.base
    truths = operations.results()
    return [
        (abs(value_of(output, base) - (true := value_of(truth, base))), true)
        for output, truth in zip(outputs, truths, strict=True)
    ]


def _digits(value: int, base: int) -> int:
    """How many digits a value has; 0 has none."""
    return len(digits_of(value, base)) if value else 0


def _example(operations: OperationSet, outputs: Digits, errors: FirstErrors, row: int) -> Example:
    base = operations.base
    truths = widened(operations.results(), outputs.shape[1])
    length = int(max(numeral_lengths(outputs[[row]])[0], numeral_lengths(truths[[row]])[0]))
    output, truth = outputs[row, :length], truths[row, :length]
    wrong = np.flatnonzero(output != truth)
    sign = "-" if operations.kinds[row] == SUBTRACT else "+"
    return Example(
        state=numeral(value_of(operations.starts[row], base), base),
        input=sign + numeral(value_of(operations.operands[row], base), base),
        output=_written(output),
        truth=_written(truth),
        wrong_places=tuple(sorted(length - 1 - int(column) for column in wrong)),
        error_class=CLASS_NAMES[ErrorClass(int(errors.classes[row]))],
        column=int(errors.columns[row]),
        spread=Spread(int(errors.spreads[row])).name.lower(),
        policy_action=_action(int(errors.policy_actions[row])),
        teacher_action=_action(int(errors.teacher_actions[row])),
    )


def _written(digits: Digits) -> str:
    """Most significant first, as long as given, so that outputs and truths stand in line."""
    return "".join(str(digit) for digit in digits[::-1])


def _action(number: int) -> str | None:
    return Action(number).name.lower().replace("_", " ") if number >= 0 else None
