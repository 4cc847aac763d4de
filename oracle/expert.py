"""The teacher's answer in every state: the reference algorithm as a compiled function.

On the algorithm's path it answers as `oracle.algorithm` does. Off it, it leads back, and never
makes a wrong move itself:

- A lost finger walks straight to the column where the algorithm would have it: to the digit's
  column j while the signpost is not there, to the lowest column that still has to change, or to
  column j + 1 when all is written.
- A lost signpost is brought to column j from column j, or on an operation symbol to column 0 from
  column 0, which is where the window shows it arrive.
- Columns that are already wrong (after mistakes that did not end the episode) can still be put
  right, since the truth is known: before anything else it writes the lowest wrong column left of
  j, then the next, so that the next submit is right again, whatever was submitted before. While an
  operation symbol is shown no slide is right; there it does the reset and repairs afterwards. What
  was judged stays judged: an operation with a wrong submit, or with beads slid during its reset,
  is not solved any more, but the one after it can be.

It asks for steps as the algorithm does, and for those of the way back. A state from which these do
not fit into the steps left is answered all the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.batch import AbacusBatch
from abacus.compiling import compiled, compiled_inline
from abacus.kernel import (
    ADD,
    ANY_ROW,
    DOWN,
    LEFT,
    ON_OPERATION_SYMBOL,
    RIGHT,
    SLIDE,
    SUBMIT,
    SUBTRACT,
    TO_LEFT,
    TO_RIGHT,
    UP,
    finger_goal,
)
from oracle.algorithm import Variant, check_variant


def expert_actions(batch: AbacusBatch, variant: Variant = "before") -> npt.NDArray[np.int64]:
    """The teacher's action in every abacus of the batch."""
    check_variant(variant)
    check_states(batch)
    actions = np.empty(batch.num_envs, np.int64)
    _answer_all(batch.world.scalars, batch.world.cells, variant == "printed", actions)
    return actions


def check_states(batch: AbacusBatch) -> None:
    """Raises ValueError if an abacus is in a state that no actions lead to."""
    impossible = _first_impossible(batch.rules, batch.world.scalars, batch.world.cells)
    if impossible >= 0:
        raise ValueError(
            f"abacus {impossible} is in a state that the environment cannot be in: reset the "
            "batch, and let nothing but its steps change it"
        )


@compiled
def _first_impossible(all_rules, scalars, cells):
    """The first abacus in an impossible state, or -1; looks at no more than a column or two."""
    rules = all_rules[0]
    for i in range(len(scalars)):
        s = scalars[i]
        if not (_is_placed(rules, s) and _shows_its_symbol(rules, s, cells, i)):
            return i
        if not _knows_its_wrong_columns(rules, s, cells, i):
            return i
    return -1


@compiled_inline
def _is_placed(rules, s):
    on_column = 0 <= s.finger_column < rules.columns and 0 <= s.signpost < rules.columns
    return on_column and 0 <= s.finger_row < rules.base


@compiled_inline
def _shows_its_symbol(rules, s, cells, i):
    j = s.digit_index
    if s.operation != ADD and s.operation != SUBTRACT:
        return False
    if j == ON_OPERATION_SYMBOL:
        return s.symbol == rules.base + s.operation
    if not 0 <= j < s.operand_length < rules.columns:
        return False
    return 0 <= s.symbol < rules.base and s.symbol == cells[i, j].operand


@compiled_inline
def _knows_its_wrong_columns(rules, s, cells, i):
    if s.wrong_count == 0:
        return s.first_wrong == rules.columns
    if not (0 <= s.first_wrong < rules.columns and s.wrong_count > 0):
        return False
    cell = cells[i, s.first_wrong]
    return cell.digit != cell.target and cell.digit < rules.base and cell.target < rules.base


@compiled
def _answer_all(scalars, cells, printed, actions):
    for i in range(len(actions)):
        actions[i] = answer(scalars[i], cells, i, printed)


@compiled_inline
def answer(s, cells, i, printed):
    """The teacher's action in abacus i; `printed` chooses that variant."""
    j = s.digit_index
    if j == ON_OPERATION_SYMBOL:
        if s.finger_column > 0:
            return LEFT
        return TO_LEFT if s.signpost > 0 else SUBMIT
    column, row = finger_goal(s, cells, i)
    if s.finger_column != column:
        return LEFT if s.finger_column > column else RIGHT
    if s.signpost != j and column == j and (row == ANY_ROW or not printed):
        return TO_LEFT if s.signpost > j else TO_RIGHT
    if row == ANY_ROW:
        return SUBMIT
    if s.finger_row != row:
        return UP if s.finger_row > row else DOWN
    return SLIDE


@compiled
def _run(all_rules, weights, pixels, world, program, out, actions, printed, steps):
    for _ in range(steps):
        _answer_all(world.scalars, world.cells, printed, actions)
        kernel.step(all_rules, weights, pixels, world, program, out, actions, True)


def follow(batch: AbacusBatch, steps: int, variant: Variant = "before") -> None:
    """Lets the teacher act for so many steps in every abacus, without leaving compiled code."""
    check_variant(variant)
    if not batch.autoreset:
        raise ValueError("batch has autoreset=False: give one that starts anew by itself")
    check_states(batch)
    actions = np.empty(batch.num_envs, np.int64)
    _run(
        batch.rules,
        batch.weights,
        batch.pixels,
        batch.world,
        batch.program,
        batch.out,
        actions,
        variant == "printed",
        steps,
    )
