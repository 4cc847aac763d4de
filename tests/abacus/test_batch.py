"""Loading starting values and operations into a batch, and the checks of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abacus import AbacusBatch, AbacusConfig

#: Two abaci: 3 with +4, and 12 with -2, +11 (base 5, least significant digit first).
LOADED: dict[str, Any] = {
    "starts": np.array([[3, 0, 0], [2, 2, 0]], np.uint8),
    "digits": np.array([[4, 0], [2, 0], [1, 2]], np.uint8),
    "lengths": np.array([1, 1, 2], np.int32),
    "operations": np.array([0, 1, 0], np.int32),
    "counts": np.array([1, 2], np.int32),
}


def small_batch() -> AbacusBatch:
    return AbacusBatch(AbacusConfig(columns=3, max_digits=2, start="random"), 2)


def test_load_takes_effect_at_the_next_reset() -> None:
    batch = small_batch()
    batch.load(**LOADED)
    batch.reset(0)
    assert batch.digits.tolist() == LOADED["starts"].tolist()
    assert batch.scalars["symbol"].tolist() == [4, 2]
    assert batch.scalars["operation"].tolist() == [0, 1]
    assert batch.scalars["program_count"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("starts", np.zeros((2, 4), np.uint8), "starts have shape .* give"),
        ("starts", np.full((2, 3), 5, np.uint8), "starts range from 5 to 5: give 0 to 4"),
        ("digits", np.zeros((3, 3), np.uint8), "digits .* give"),
        ("digits", np.full((3, 2), 6, np.uint8), "digits range from 6 to 6: give 0 to 4"),
        ("digits", np.array([[4, 0], [2, 0], [1, 0]], np.uint8), r"digits\[2\] has a leading 0"),
        ("lengths", np.array([0, 1, 2], np.int32), "lengths range from 0 to 2: give 1 to 2"),
        ("lengths", np.array([1, 1, 3], np.int32), "lengths range from 1 to 3: give 1 to 2"),
        ("operations", np.array([0, 1, 2], np.int32), "operations range from 0 to 2: give 0 to 1"),
        ("operations", np.array([0, 1], np.int32), "2 operations with 3 lengths"),
        ("counts", np.array([1, 1], np.int32), "counts sum to 2"),
        ("counts", np.array([0, 3], np.int32), "give at least 1 each"),
        ("counts", np.array([1, 1, 1], np.int32), "and 3 counts"),
    ],
)
def test_impossible_loads_raise(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_batch().load(**LOADED | {name: value})


@pytest.mark.parametrize("which", [np.array([2]), np.array([-1]), np.array([[0]])])
def test_reset_of_unknown_abaci_raises(which: Any) -> None:
    with pytest.raises(ValueError, match=r"which=.* is not allowed: give numbers of abaci, 0 to 1"):
        small_batch().reset(0, which)
