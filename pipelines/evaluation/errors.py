"""The analysis of errors: how often each class, in which column, what became of them, examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from abacus.kernel import SUBTRACT
from abacus.rules import Action
from abacus.tasks import digits_of, numeral, value_of
from pipelines.evaluation.first_errors import ErrorClass, FirstErrors, Spread, first_errors, widened
from pipelines.evaluation.measure import Failures
from pipelines.evaluation.operations import Digits, OperationSet, numeral_lengths
from pipelines.evaluation.players import Player

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
