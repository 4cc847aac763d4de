"""What a critic may see in training beside the observation: the state of the abacus, one-hot.

Three frames do not tell everything that decides the return: whether the digit was already written,
or how far the signpost is. A critic that sees it gives better advantages. A policy never reads it.

| part | length | content |
|---|---|---|
| wrong column | 12 | column of the lowest wrong digit, relative to the finger; or none is wrong |
| wrong columns | 4 | how many digits are wrong: 0, 1, 2, more |
| wanted digit | base | digit that the lowest wrong column has to show; zeros if none is wrong |
| digit's column | 12 | column of the shown digit, relative to the finger; or no digit is shown |
| finger's column | 6 | its distance from column 0 |
| signpost | 11 | its column, relative to the finger |
| last digit | 1 | whether the last digit of the operand is shown |

Distances beyond 5 columns count as 5.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled, compiled_inline
from abacus.kernel import ON_OPERATION_SYMBOL

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Largest distance from the finger that is told apart.
FARTHEST = 5
_DISTANCES = 2 * FARTHEST + 1
#: Largest number of wrong columns that is told apart.
MOST_WRONG = 3


def state_length(base: int) -> int:
    """Return the length of what the critic sees of the state."""
    return 3 * _DISTANCES + 2 + (FARTHEST + 1) + (MOST_WRONG + 1) + base + 1


@compiled_inline
def _distance(column, finger):
    return min(max(column - finger, -FARTHEST), FARTHEST) + FARTHEST


@compiled
def _write(scalars, cells, which, base, with_digit, out):
    for k in range(len(which)):
        i = which[k]
        s = scalars[i]
        finger = s.finger_column
        for place in range(out.shape[1]):
            out[k, place] = 0.0
        first = 0
        if s.wrong_count > 0:
            out[k, first + _distance(s.first_wrong, finger)] = 1.0
        else:
            out[k, first + _DISTANCES] = 1.0
        first += _DISTANCES + 1
        out[k, first + min(s.wrong_count, MOST_WRONG)] = 1.0
        first += MOST_WRONG + 1
        if with_digit and s.wrong_count > 0:
            out[k, first + cells[i, s.first_wrong].target] = 1.0
        first += base
        if s.digit_index == ON_OPERATION_SYMBOL:
            out[k, first + _DISTANCES] = 1.0
        else:
            out[k, first + _distance(s.digit_index, finger)] = 1.0
        first += _DISTANCES + 1
        out[k, first + min(finger, FARTHEST)] = 1.0
        first += FARTHEST + 1
        out[k, first + _distance(s.signpost, finger)] = 1.0
        first += _DISTANCES
        last = s.digit_index != ON_OPERATION_SYMBOL and s.digit_index + 1 == s.operand_length
        out[k, first] = 1.0 if last else 0.0


def write_critic_state(
    batch: AbacusBatch,
    which: npt.NDArray[np.int32],
    out: npt.NDArray[np.float32],
    *,
    wanted_digit: bool = True,
) -> None:
    """Write the state of the abaci in `which` to the rows of `out`, (len(which), state_length).

    Without `wanted_digit` that part is zeros.
    """
    base = batch.config.base
    if out.shape != (len(which), state_length(base)):
        raise ValueError(f"out has shape {out.shape}: give ({len(which)}, {state_length(base)})")
    _write(batch.world.scalars, batch.world.cells, which, base, wanted_digit, out)
