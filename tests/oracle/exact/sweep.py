"""An exhaustive sweep over a small abacus: a check that shares no code with the exploration.

The expert calculates with every value, every operand that fits and both operations on a real
abacus. The state between two operations is the value, the finger's row and the frames; the sweep
ends when no operation ends in a new state. Its cost grows with the square of the number of values:
use base 5 on three columns, or base 2 on six.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig
from oracle.algorithm import Variant
from oracle.expert import expert_actions

#: Operations in one batch.
CHUNK = 1 << 15


def sweep(base: int, frames: int, width: int, variant: Variant = "before") -> npt.NDArray[np.int32]:
    """Return distinct rows: frame codes oldest first, symbol, operation, expert's action."""
    met = np.empty((0, frames + 3), np.int32)
    states = done = _episode_starts(base, frames, width)
    while len(states):
        found = [
            _run(base, frames, width, variant, states[rows])
            for rows in _chunks(states, base, width)
        ]
        met = np.unique(np.concatenate([met, *(rows for rows, _ in found)]), axis=0)
        ends = np.unique(np.concatenate([ends for _, ends in found]), axis=0)
        everything, where = np.unique(np.concatenate([done, ends]), axis=0, return_index=True)
        states = everything[where >= len(done)]
        done = everything
    return met


def _episode_starts(base: int, frames: int, width: int) -> npt.NDArray[np.int32]:
    """Return (digits, row, frames) at the start of an episode, for every value."""
    values = np.array(list(itertools.product(range(base), repeat=width)), np.uint8)
    config = AbacusConfig(columns=width, base=base, max_digits=width - 1, frames=frames)
    batch = AbacusBatch(config, len(values))
    ones = np.ones(len(values), np.int32)
    batch.load(values, np.zeros((len(values), width - 1), np.uint8), ones, 0 * ones)
    batch.reset(0)
    return np.column_stack([values, np.zeros(len(values)), batch.history]).astype(np.int32)


def _chunks(states: npt.NDArray[np.int32], base: int, width: int) -> list[slice]:
    size = max(1, CHUNK // (4 * base ** (width - 1)))
    return [slice(start, start + size) for start in range(0, len(states), size)]


def _run(
    base: int, frames: int, width: int, variant: Variant, states: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the observations of every operation from each state, and the states after them."""
    batch = _begin(base, frames, width, states)
    met, ends = [], []
    running = np.ones(batch.num_envs, np.bool_)
    while running.any():
        actions = expert_actions(batch, variant)
        s = batch.scalars
        seen = np.column_stack([batch.history, s["symbol"], s["operation"], actions])
        met.append(np.unique(seen[running], axis=0))
        batch.step(actions)
        over = running & (s["operations_done"] == 1)
        ends.append(
            np.column_stack([batch.digits[over], s["finger_row"][over], batch.history[over]])
        )
        running &= ~over
        if (batch.outcomes[running] < 0).any():
            raise AssertionError("the reference algorithm made a mistake: the sweep is void")
    return (
        np.concatenate(met).astype(np.int32),
        np.unique(np.concatenate(ends), axis=0).astype(np.int32),
    )


def _begin(base: int, frames: int, width: int, states: npt.NDArray[np.int32]) -> AbacusBatch:
    """Return an abacus for each state, each operation that fits, and each that may follow."""
    operands = _operands(base, width - 1)
    lengths = np.maximum(1, width - 1 - np.argmax(operands[:, ::-1] > 0, axis=1)).astype(np.int32)
    lengths[0] = 1
    which, operand, operation, following = _fitting(
        states[:, :width] @ base ** np.arange(width), len(operands), base**width
    )
    count = len(which)
    digits = np.zeros((count, 2, width - 1), np.uint8)
    digits[:, 0] = operands[operand]
    config = AbacusConfig(columns=width, base=base, max_digits=width - 1, frames=frames)
    batch = AbacusBatch(config, count, autoreset=False)
    batch.load(
        states[which, :width].astype(np.uint8),
        digits.reshape(2 * count, -1),
        np.stack([lengths[operand], np.ones(count, np.int32)], axis=1).ravel(),
        np.stack([operation, following], axis=1).astype(np.int32).ravel(),
        np.full(count, 2, np.int32),
    )
    batch.reset(0)
    batch.world.scalars["finger_row"] = states[which, width]
    batch.world.history[:] = states[which, width + 1 :]
    return batch


def _operands(base: int, length: int) -> npt.NDArray[np.uint8]:
    """Return the digits of every value of at most `length` digits, least significant first."""
    values = np.arange(base**length)
    return (values[:, None] // base ** np.arange(length) % base).astype(np.uint8)


def _fitting(
    values: npt.NDArray[np.int64], operands: int, capacity: int
) -> list[npt.NDArray[np.int64]]:
    """Return (state, operand, operation, next operation) of every operation that fits."""
    choices = np.meshgrid(
        np.arange(len(values)), np.arange(operands), [0, 1], [0, 1], indexing="ij"
    )
    which, operand, operation, _ = (axis.ravel() for axis in choices)
    result = values[which] + np.where(operation == 0, operand, -operand)
    fits = (result >= 0) & (result < capacity)
    return [axis.ravel()[fits] for axis in choices]
