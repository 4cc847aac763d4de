"""Operations recorded step by step, small enough to be played in a page.

A step says what changed; the page applies the changes and knows no rule of the abacus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.render_scene import PICTURE_COLUMNS
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import numeral, parse_expression, value_of
from abacus.view import view_of, visible_columns
from oracle.expert import expert_actions
from pipelines.evaluation.operations import OperationSet, columns_for, step_limit
from pipelines.evaluation.players import Player, mistakes_of

MOST_REPLAYS = 10
#: Longer replays are cut: nobody watches more.
MOST_STEPS = 1_500


@dataclass(frozen=True)
class Step:
    """What there is to see after an action; the first step of a replay has none."""

    action: int  # -1 at the start
    finger_column: int
    finger_row: int
    signpost: int
    symbol: int
    operation: int
    #: The column whose digit changed, or -1, and what it shows now.
    changed: int
    digit: int
    #: The first column of the picture.
    first_shown: int
    wrong: bool
    #: What the teacher would have done, where the action was wrong; else -1.
    teacher: int

    def compact(self) -> list[int]:
        """As plain numbers, in the order of the fields."""
        return [int(value) for value in vars(self).values()]


@dataclass(frozen=True)
class Replay:
    """One operation, or one expression, as a policy worked on it."""

    title: str
    base: int
    start: tuple[int, ...]
    steps: tuple[Step, ...]
    right: bool
    output: str
    truth: str
    cut: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the page and the JSON."""
        return {
            "title": self.title,
            "base": self.base,
            "columns": len(self.start),
            "shown": min(len(self.start), PICTURE_COLUMNS),
            "start": list(self.start),
            "right": self.right,
            "output": self.output,
            "truth": self.truth,
            "cut": self.cut,
            "steps": [step.compact() for step in self.steps],
        }


def operation_replay(player: Player, operations: OperationSet, row: int, frames: int) -> Replay:
    """One operation of a set."""
    one = operations.chosen(np.array([row]))
    base = one.base
    start, operand = value_of(one.starts[0], base), value_of(one.operands[0], base)
    subtract = one.kinds[0] == SUBTRACT
    truth = start - operand if subtract else start + operand
    title = f"{numeral(start, base)} {'-' if subtract else '+'} {numeral(operand, base)}"
    width = max(len(numeral(value, base)) for value in (start, operand, truth))
    return _recorded(player, one.batch(frames, max(width + 2, 6)), title, truth, 1)


def expression_replay(player: Player, expression: str, base: int, frames: int) -> Replay:
    """An expression in decimal, from an abacus that shows 0."""
    operations = parse_expression(expression)
    value, largest = 0, 0
    for operation in operations:
        value += operation.sign * operation.operand
        largest = max(largest, value, operation.operand)
    width = len(numeral(largest, base)) + 2
    config = AbacusConfig(
        columns=min(columns_for(width), max(width, 6)),
        base=base,
        frames=frames,
        on_error="continue",
        expression=expression,
    )
    batch = AbacusBatch(config, 1, autoreset=False)
    batch.reset(0)
    return _recorded(player, batch, f"{expression} (decimal)", value, len(operations))


def _recorded(
    player: Player, batch: AbacusBatch, title: str, truth: int, operations: int
) -> Replay:
    base = batch.config.base
    start = tuple(batch.digits[0].tolist())
    limit = min(MOST_STEPS, step_limit(batch.config) * operations)
    steps = [_step(batch, np.array(start), -1, -1)]
    while batch.ends[0] == End.NONE and len(steps) <= limit:
        before = batch.digits[0].copy()
        teacher, action = int(expert_actions(batch)[0]), int(player.actions(batch)[0])
        batch.step(np.array([action]))
        wrong = mistakes_of(batch)[0] != End.NONE
        steps.append(_step(batch, before, action, teacher if wrong else -1))
    output = value_of(batch.digits[0], base)
    return Replay(
        title=title,
        base=base,
        start=start,
        steps=tuple(steps),
        right=int(batch.scalars["operations_solved"][0]) == operations and output == truth,
        output=numeral(output, base),
        truth=numeral(truth, base),
        cut=bool(batch.ends[0] == End.NONE),
    )


def _step(batch: AbacusBatch, before: Any, action: int, teacher: int) -> Step:
    view = view_of(batch, 0)
    changed = np.flatnonzero(batch.digits[0] != before)
    column = int(changed[0]) if len(changed) else -1
    return Step(
        action=action,
        finger_column=view.finger_column,
        finger_row=view.finger_row,
        signpost=view.signpost,
        symbol=view.symbol,
        operation=view.operation,
        changed=column,
        digit=view.digits[column] if column >= 0 else 0,
        first_shown=visible_columns(view, PICTURE_COLUMNS).first,
        wrong=teacher >= 0,
        teacher=teacher,
    )


#: What the page calls the actions.
ACTION_WORDS = tuple(action.name.lower().replace("_", " ") for action in Action)
