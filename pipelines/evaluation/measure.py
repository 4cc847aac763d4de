"""Counts the errors of a player over any number of operations, in portions of the same size.

Operations are drawn, run and forgotten portion by portion; what is kept is counts, and a limited
number of failed operations for the analysis of errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from abacus.kernel import SUBTRACT
from pipelines.evaluation.first_errors import wrong_results
from pipelines.evaluation.intervals import ErrorRate
from pipelines.evaluation.operations import Digits, OperationSet, portions, step_limit
from pipelines.evaluation.players import Player

#: From a number of operations and a generator to the operations.
Maker = Callable[[int, np.random.Generator], OperationSet]
Progress = Callable[[int], object]


@dataclass
class Failures:
    """Failed operations with what the abaci showed at the end, as many as are kept."""

    keep: int
    parts: list[tuple[OperationSet, Digits]] = field(default_factory=list)

    def add(self, operations: OperationSet, outputs: Digits, failed: npt.NDArray[np.bool_]) -> None:
        """Keeps those that failed, while there is room."""
        rows = np.flatnonzero(failed)[: self.keep - len(self)]
        if len(rows):
            self.parts.append((operations.chosen(rows), outputs[rows]))

    def __len__(self) -> int:
        return sum(len(operations) for operations, _ in self.parts)


@dataclass
class Score:
    """Errors of a player on one kind of operands; grows portion by portion."""

    name: str
    digits: int
    asked: int
    additions: int = 0
    addition_errors: int = 0
    subtractions: int = 0
    subtraction_errors: int = 0
    #: Of the errors, those where the abacus shows a wrong number at the end.
    wrong_results: int = 0
    illegal_actions: int = 0

    @property
    def operations(self) -> int:
        return self.additions + self.subtractions

    @property
    def errors(self) -> int:
        return self.addition_errors + self.subtraction_errors

    @property
    def complete(self) -> bool:
        """Whether as many were run as were asked for."""
        return self.operations == self.asked

    def rate(self) -> ErrorRate:
        """Of both operations together."""
        return ErrorRate(self.errors, self.operations)


def measure(
    player: Player,
    score: Score,
    make: Maker,
    rng: np.random.Generator,
    frames: int,
    columns: int | None = None,
    failures: Failures | None = None,
    progress: Progress | None = None,
) -> None:
    """Runs the operations that `score` asks for and adds them to it.

    Stopped by Ctrl-C, the score holds the portions that were done.
    """
    for count in portions(score.asked, score.digits):
        operations = make(count, rng)
        batch = operations.batch(frames, columns)
        outcome = player.run(batch, step_limit(batch.config))
        failed = outcome.solved != 1
        subtract = operations.kinds == SUBTRACT
        score.additions += int((~subtract).sum())
        score.subtractions += int(subtract.sum())
        score.addition_errors += int((failed & ~subtract).sum())
        score.subtraction_errors += int((failed & subtract).sum())
        score.wrong_results += int(wrong_results(operations, outcome).sum())
        score.illegal_actions += outcome.illegal_actions
        if failures is not None:
            failures.add(operations, outcome.digits, failed)
        if progress:
            progress(count)
