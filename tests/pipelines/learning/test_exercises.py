"""Exercises: what is drawn and varied fits, and is loaded as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abacus.rules import AbacusConfig, Operations
from abacus.tasks import Operation, Task
from pipelines.learning import exercises as exercises_module
from pipelines.learning.exercises import (
    HARD_WIDTHS,
    Exercise,
    Exercises,
    exercises_for_ppo,
    hard_exercises,
    join,
)

WORLD = AbacusConfig(reward="no_of", start="random")

operations_of = st.sampled_from(["both", "add", "subtract"])


def check(exercises: Exercises, operations: Operations) -> None:
    """Assert that all exercises are tasks of their abaci."""
    for row in range(len(exercises)):
        exercise = exercises[row]
        config = AbacusConfig(columns=exercise.columns, max_digits=exercise.columns - 1)
        config.check_task(exercise.task)
        signs = {operation.sign for operation in exercise.task.operations}
        assert signs <= {"both": {1, -1}, "add": {1}, "subtract": {-1}}[operations]


@given(
    st.integers(0, 10**20),
    st.lists(st.tuples(st.sampled_from([1, -1]), st.integers(0, 10**20)), min_size=1, max_size=4),
    st.integers(2, 60),
)
def test_an_exercise_is_read_as_it_was_written(
    start: int, operations: list[tuple[int, int]], columns: int
) -> None:
    exercise = Exercise(Task(start, tuple(Operation(*each) for each in operations)), columns)
    assert Exercise.parse(str(exercise)) == exercise


@given(st.integers(0, 2**32), operations_of, st.sampled_from([0.0, 0.6, 1.0]))
def test_random_exercises_and_their_variations_fit(
    seed: int, operations: Operations, extreme: float
) -> None:
    world, rng = replace(WORLD, operations=operations), np.random.default_rng(seed)
    drawn = Exercises.draw(rng, 25, world, HARD_WIDTHS, extreme)
    assert len(drawn) == 25
    check(drawn, operations)
    check(drawn.varied(rng, world).varied(rng, world), operations)


def test_a_variation_changes_one_number() -> None:
    rng = np.random.default_rng(0)
    drawn = Exercises.draw(rng, 2_000, WORLD, (20,))
    varied = drawn.varied(rng, WORLD)
    assert (varied.columns == drawn.columns).all()
    assert (varied.signs == drawn.signs).all()
    changed = (varied.starts != drawn.starts).astype(int) + (
        (varied.operands != drawn.operands).reshape(-1, 3).sum(axis=1)
    )
    # A smaller operand may be all that is left where a result would not fit.
    assert (changed <= 1).mean() > 0.8
    assert (changed == 1).mean() > 0.6


@settings(deadline=None)  # The first call compiles.
@given(st.integers(0, 2**32))
def test_exercises_are_loaded_as_they_are(seed: int) -> None:
    """Also those with another number of operations, and a part of them in another order."""
    rng = np.random.default_rng(seed)
    listed = Exercises.of([Exercise(Task.parse("3 + 4 - 2 + 0 - 1"), 5)])
    mixed = join([listed, Exercises.draw(rng, 12, WORLD, (5, 7), 0.5)])
    chosen = mixed.take(rng.permutation(len(mixed))[:9])
    assert [chosen.copy()[row] for row in range(9)] == [chosen[row] for row in range(9)]
    seen: set[int] = set()
    for rows, batch in chosen.batches(WORLD):
        seen |= set(rows.tolist())
        from_objects = type(batch)(batch.config, len(rows), autoreset=False)
        from_objects.load_tasks([chosen[row].task for row in rows.tolist()])
        for name, loaded in batch.program._asdict().items():
            np.testing.assert_array_equal(loaded, getattr(from_objects.program, name))
    assert seen == set(range(9))


def test_spare_abaci_follow_those_of_the_exercises() -> None:
    drawn = Exercises.draw(np.random.default_rng(0), 5, WORLD, (3, 4))
    for (rows, batch), (same, spared) in zip(
        drawn.batches(WORLD), drawn.batches(WORLD, spare=2), strict=True
    ):
        assert rows.tolist() == same.tolist()
        assert spared.num_envs == batch.num_envs + 2 == len(rows) + 2
        np.testing.assert_array_equal(spared.digits[: len(rows)], batch.digits)
        # A spare one is like the last.
        assert (spared.digits[-2:] == batch.digits[-1]).all()


def test_hard_exercises_have_long_carries_and_every_width() -> None:
    hard = hard_exercises(np.random.default_rng(0), 5_000, WORLD)
    assert set(hard.columns.tolist()) == set(HARD_WIDTHS)
    digits = exercises_module._digits(hard.operands, 5, 6)
    assert np.isin(digits, (0, 4)).mean() > 0.6


def test_digits_of_exercises_can_repeat() -> None:
    def repeats(repeated: float) -> float:
        rng = np.random.default_rng(0)
        drawn = Exercises.draw(rng, 2_000, WORLD, (9,), repeated=repeated)
        digits = exercises_module._digits(drawn.starts, 5, 8)
        # Of numbers without a zero at the end: these have all their digits.
        digits = digits[digits[:, -1] > 0]
        return float((digits[:, 1:] == digits[:, :-1]).mean())

    assert repeats(0.0) == pytest.approx(0.2, abs=0.03)
    # Those that are drawn may equal the one before as well.
    assert repeats(0.7) == pytest.approx(0.7 + 0.3 * 0.2, abs=0.03)


def test_ppo_gets_the_same_exercises_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercises_module, "PPO_EXERCISES", 200)
    tasks = exercises_for_ppo(WORLD, 3)
    assert tasks == exercises_for_ppo(WORLD, 3)
    assert tasks != exercises_for_ppo(WORLD, 4)
    # What the world itself never draws.
    assert any(operation.operand == 0 for task in tasks for operation in task.operations)
