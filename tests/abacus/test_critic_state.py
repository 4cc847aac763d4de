"""What the critic sees of the state is what the digits and the targets say."""

from __future__ import annotations

import numpy as np
import pytest

from abacus.batch import AbacusBatch
from abacus.critic_state import FARTHEST, MOST_WRONG, state_length, write_critic_state
from abacus.rules import AbacusConfig

COLUMNS = 9


def batch_after(steps: int, base: int) -> AbacusBatch:
    """Return abaci after random legal actions, with mistakes, that do not end episodes."""
    config = AbacusConfig(
        base=base, columns=COLUMNS, max_digits=4, on_error="continue", start="random"
    )
    batch = AbacusBatch(config, 200)
    batch.reset(3)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chances = rng.random(batch.masks.shape) * batch.masks
        batch.step(chances.argmax(axis=1))
    return batch


def distance(column: int, finger: int) -> int:
    return int(np.clip(column - finger, -FARTHEST, FARTHEST)) + FARTHEST


def expected_state(batch: AbacusBatch, i: int, wanted_digit: bool) -> list[float]:
    """The state written from the digits, without the kernel's counts of wrong columns."""
    scalars, base = batch.scalars[i], batch.config.base
    distances, finger = 2 * FARTHEST + 1, int(scalars["finger_column"])
    wrong = np.flatnonzero(batch.digits[i] != batch.target[i])
    digit = int(scalars["digit_index"])
    parts = [
        np.eye(distances + 1)[distance(wrong[0], finger) if len(wrong) else distances],
        np.eye(MOST_WRONG + 1)[min(len(wrong), MOST_WRONG)],
        np.eye(base)[batch.target[i, wrong[0]]] if len(wrong) and wanted_digit else np.zeros(base),
        np.eye(distances + 1)[distances if digit < 0 else distance(digit, finger)],
        np.eye(FARTHEST + 1)[min(finger, FARTHEST)],
        np.eye(distances)[distance(int(scalars["signpost"]), finger)],
        [float(digit >= 0 and digit + 1 == scalars["operand_length"])],
    ]
    return [float(value) for part in parts for value in part]


@pytest.mark.parametrize("base", [2, 5, 10])
@pytest.mark.parametrize("wanted_digit", [True, False])
def test_the_state_is_that_of_the_digits(base: int, wanted_digit: bool) -> None:
    batch = batch_after(60, base)
    which = np.arange(3, 200, 2, dtype=np.int32)
    found = np.full((len(which), state_length(base)), np.nan, np.float32)
    write_critic_state(batch, which, found, wanted_digit=wanted_digit)
    expected = [expected_state(batch, i, wanted_digit) for i in which.tolist()]
    assert found.tolist() == expected


def test_another_shape_is_refused() -> None:
    batch = batch_after(0, 5)
    with pytest.raises(ValueError, match=r"out has shape \(2, 3\)"):
        write_critic_state(batch, np.arange(2, dtype=np.int32), np.zeros((2, 3), np.float32))
