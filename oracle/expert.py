"""The expert: the reference algorithm as a compiled function, with an action for every state.

On the algorithm's path it acts as `oracle.algorithm` does. Off the path it returns to it, and never
makes a mistake itself:

- The finger goes straight to the column where the algorithm would have it: to the digit's column j
  while the signpost is elsewhere, to the lowest column that has to change, or to column j + 1 when
  all columns are right.
- The signpost is moved only while the finger is on column j (on an operation symbol: column 0), so
  that the window shows the signpost arrive.
- Wrong columns left of j, after mistakes that did not end the episode, are corrected first, from
  the lowest to the highest, so that the next submit is right again. On an operation symbol no slide
  is right: the expert resets first and corrects afterwards. An operation with a wrong submit, or
  with beads moved during its reset, stays unsolved, but the next one can be solved.

It needs the steps of the algorithm and those of the way back. It also has an action for states with
fewer steps left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
    """Return the expert's action in every abacus of a batch."""
    check_variant(variant)
    check_states(batch)
    actions = np.empty(batch.num_envs, np.int64)
    answer_all(batch.world.scalars, batch.world.cells, variant == "printed", actions)
    return actions


def check_states(batch: AbacusBatch) -> None:
    """Raise ValueError if an abacus is in an unreachable state."""
    impossible = _first_impossible(batch.rules, batch.world.scalars, batch.world.cells)
    if impossible >= 0:
        raise ValueError(
            f"abacus {impossible} is in an unreachable state: reset the batch, and change it by "
            "steps only"
        )


@compiled
def _first_impossible(all_rules, scalars, cells):
    """Return the first abacus in an impossible state, or -1, from at most two columns of each."""
    rules = all_rules[0]
    for i in range(len(scalars)):
        s = scalars[i]
        if not (_has_valid_places(rules, s) and _has_valid_symbol(rules, s, cells, i)):
            return i
        if not _has_valid_counts(rules, s, cells, i):
            return i
    return -1


@compiled_inline
def _has_valid_places(rules, s):
    on_column = 0 <= s.finger_column < rules.columns and 0 <= s.signpost < rules.columns
    return on_column and 0 <= s.finger_row < rules.base


@compiled_inline
def _has_valid_symbol(rules, s, cells, i):
    j = s.digit_index
    if s.operation != ADD and s.operation != SUBTRACT:
        return False
    if j == ON_OPERATION_SYMBOL:
        return s.symbol == rules.base + s.operation
    if not 0 <= j < s.operand_length < rules.columns:
        return False
    return 0 <= s.symbol < rules.base and s.symbol == cells[i, j].operand


@compiled_inline
def _has_valid_counts(rules, s, cells, i):
    if s.wrong_count == 0:
        return s.first_wrong == rules.columns
    if not (0 <= s.first_wrong < rules.columns and s.wrong_count > 0):
        return False
    cell = cells[i, s.first_wrong]
    return cell.digit != cell.target and cell.digit < rules.base and cell.target < rules.base


@compiled
def answer_all(scalars, cells, printed, actions):
    """Write the expert's action in every abacus to `actions`."""
    for i in range(len(actions)):
        actions[i] = answer(scalars[i], cells, i, printed)


@compiled_inline
def answer(s, cells, i, printed):
    """Return the expert's action in abacus i, for the variant `printed` or `before`."""
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
