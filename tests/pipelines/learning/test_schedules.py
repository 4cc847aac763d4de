"""Schedules: their ends, their shape, and that they can be saved."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pipelines.learning.settings import WAVES, Schedule


def test_constant_and_linear() -> None:
    assert Schedule("constant", 0.3)(0.1) == 0.3
    falling = Schedule("linear", 1.0, 0.2)
    assert [falling(left) for left in (1.0, 0.5, 0.0)] == pytest.approx([1.0, 0.6, 0.2])


def test_sinusoid_is_a_wave_under_a_falling_line() -> None:
    schedule = Schedule("sinusoid", 1.0)
    left = np.linspace(1, 0, 20_001)
    values = np.array([schedule(part) for part in left])
    assert (values >= 0).all()
    assert (values <= 2 * left + 1e-12).all()
    peaks = (values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])
    assert peaks.sum() == WAVES
    heights = values[1:-1][peaks]
    assert (np.diff(heights) < 0).all()
    # As much learning in all as under the straight line.
    assert values.mean() == pytest.approx(0.5, rel=0.01)
    # Linear decay: peaks lie on the line from 2 to 0.
    assert heights == pytest.approx(2 * left[1:-1][peaks], abs=0.01)


def test_schedules_survive_saving() -> None:
    schedule = Schedule("sinusoid", 3e-4)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


@pytest.mark.parametrize(("kind", "start"), [("cosine", 1.0), ("linear", -1.0), ("linear", np.nan)])
def test_impossible_schedules_are_refused(kind: str, start: float) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        Schedule(kind, start)  # type: ignore[arg-type]
