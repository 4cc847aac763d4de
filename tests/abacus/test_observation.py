"""Coded observations equal the environment's; legality by frame code; final action masks."""

from __future__ import annotations

import numpy as np
import pytest

from abacus import AbacusBatch, AbacusConfig
from abacus.observation import (
    frame_codes,
    frame_pixels,
    observation_arrays,
    observation_lengths,
    observation_rows,
    visibly_illegal_actions,
    window_codes,
)
from abacus.rules import Action

CONFIGS = [
    AbacusConfig(columns=4, max_digits=2, start="random"),
    AbacusConfig(columns=3, base=10, max_digits=2, frames=1, on_error="continue"),
    AbacusConfig(columns=5, base=2, max_digits=4, frames=5, operations="subtract"),
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("in_place", [False, True])
def test_coded_observations_equal_the_environments(config: AbacusConfig, in_place: bool) -> None:
    batch = AbacusBatch(config, 64)
    batch.reset(seed=0)
    rng = np.random.default_rng(0)
    lengths = observation_lengths(config)
    out = None
    if in_place:
        out = {key: np.full((64, length), 9, np.float32) for key, length in lengths.items()}
    for _ in range(60):
        scalars = batch.scalars
        codes = batch.history, scalars["symbol"], scalars["operation"], scalars["previous_action"]
        arrays = observation_arrays(config.base, *codes, out=out)
        assert list(arrays) == list(lengths)
        for key, array in arrays.items():
            assert array.dtype == np.float32
            np.testing.assert_array_equal(array, batch.observation[key])
        np.testing.assert_array_equal(observation_rows(config.base, *codes), batch.out.rows)
        windows = batch.observation["window"]
        np.testing.assert_array_equal(window_codes(config.base, windows), batch.history)
        visibly_illegal = visibly_illegal_actions(config.base)[batch.history[:, -1]]
        assert not (visibly_illegal & batch.masks).any()
        batch.step(rng.integers(len(Action), size=64))


def test_missing_previous_actions_are_zeros() -> None:
    zeros = np.zeros(2, np.int64)
    for given in (None, np.array([-1, len(Action)])):
        arrays = observation_arrays(5, zeros.reshape(2, 1), zeros, zeros, given)
        assert not arrays["previous_action"].any()


def test_codes_out_of_range_raise() -> None:
    zeros = np.zeros(1, np.int64)
    with pytest.raises(IndexError):
        observation_arrays(5, np.array([[frame_codes(5)]]), zeros, zeros)
    with pytest.raises(ValueError, match="no abacus shows"):
        window_codes(5, np.full((1, frame_pixels(5).shape[1]), 0.3, np.float32))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("autoreset", [False, True])
def test_final_masks_are_those_of_the_last_state(config: AbacusConfig, autoreset: bool) -> None:
    batch = AbacusBatch(config, 64, autoreset=autoreset)
    batch.reset(seed=1)
    rng = np.random.default_rng(1)
    ended = 0
    for _ in range(100):
        batch.step(rng.integers(len(Action), size=64))
        count = len(batch.ended)
        ended += count
        final, masks = batch.final_scalars[:count], batch.final_masks[:count]
        columns, rows = final["finger_column"], final["finger_row"]
        newest = batch.final_observation["window"][:count].reshape(count, *config.window_shape)
        expected = np.ones((count, len(Action)), np.bool_)
        expected[:, Action.LEFT] = columns > 0
        expected[:, Action.RIGHT] = columns < config.columns - 1
        expected[:, Action.UP] = rows > 0
        expected[:, Action.DOWN] = rows < config.base - 1
        expected[:, Action.SIGNPOST_LEFT] = final["signpost"] > 0
        expected[:, Action.SIGNPOST_RIGHT] = final["signpost"] < config.columns - 1
        expected[:, Action.SLIDE] = newest[np.arange(count), -1, 0, 1, 1 + rows] > 0
        np.testing.assert_array_equal(masks, expected)
        if not autoreset:
            np.testing.assert_array_equal(masks, batch.masks[batch.ended])
            batch.reset(which=batch.ended.copy())
    assert ended > 20
