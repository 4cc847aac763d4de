"""Where an operation first goes wrong: the paper's four classes, from the state and the teacher.

The classes are defined in docs/fidelity.md. Only operations that failed are looked at, step by step
up to their first wrong action.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL
from abacus.rules import Action, End
from oracle.expert import expert_actions
from pipelines.evaluation.greedy import Outcome
from pipelines.evaluation.operations import Digits, OperationSet, step_limit
from pipelines.evaluation.players import Player, mistakes_of

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


def wrong_results(operations: OperationSet, outcome: Outcome) -> npt.NDArray[np.bool_]:
    """Whether the abaci show something else than the true result."""
    truths = widened(operations.results(), outcome.digits.shape[1])
    wrong: npt.NDArray[np.bool_] = (outcome.digits != truths).any(axis=1)
    return wrong


def widened(numerals: Digits, width: int) -> Digits:
    """As wide as the abacus; what is cut off is 0 where operands fit."""
    if numerals.shape[1] >= width:
        return numerals[:, :width]
    return np.pad(numerals, ((0, 0), (0, width - numerals.shape[1])))
