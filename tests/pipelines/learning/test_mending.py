"""Mending: exercises, corrections, own transitions, and rounds that end exact."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abacus.batch import AbacusBatch
from abacus.observation import decode_frame, window_codes
from abacus.rules import AbacusConfig, Action, Operations
from abacus.tasks import Operation, Task
from oracle.exact.complete_set import complete_set
from oracle.exact.concrete_runs import various_failing_runs
from oracle.exact.own_runs import Asked, certify_own_runs
from pipelines.learning import mending as mending_module
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.mending import Exercise, HardTasks, Mending, Practice, random_task
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.policy_files import load_run
from pipelines.learning.settings import CloningSettings, MendingSettings

WORLD = AbacusConfig(reward="no_of", start="random")


@pytest.fixture(autouse=True)
def _short_cloning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer updates than in a run: the policies here are nearly the teacher's, and regular."""
    short = replace(mending_module.TABLE_CLONING, updates=600)
    monkeypatch.setattr(mending_module, "TABLE_CLONING", short)
    monkeypatch.setattr(mending_module, "HARD_EXERCISES", 20_000)


@pytest.fixture(scope="module")
def exact() -> AbacusPolicy:
    return load_run()


@pytest.fixture(scope="module")
def spoilt(exact: AbacusPolicy) -> AbacusPolicy:
    """The exact policy with noise in its weights: it fails some operations."""
    policy = copy.deepcopy(exact)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.network.actor.parameters():  # type: ignore[union-attr]
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.35 * parameter.std() * noise)
    return policy


def exercises(count: int, seed: int = 0) -> list[Exercise]:
    rng = np.random.default_rng(seed)
    return [Exercise(random_task(rng, WORLD, 10), 10) for _ in range(count)]


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


@given(st.integers(0, 2**32), st.sampled_from(["both", "add", "subtract"]), st.integers(2, 20))
def test_random_tasks_fit(seed: int, operations: Operations, columns: int) -> None:
    world = replace(WORLD, operations=operations)
    task = random_task(np.random.default_rng(seed), world, columns)
    AbacusConfig(columns=columns, max_digits=columns - 1).check_task(task)
    signs = {operation.sign for operation in task.operations}
    assert signs <= {"both": {1, -1}, "add": {1}, "subtract": {-1}}[operations]


@given(st.integers(0, 2**32), st.sampled_from(["both", "add", "subtract"]), st.integers(2, 20))
def test_hard_tasks_fit_and_are_loaded_as_they_are(
    seed: int, operations: Operations, columns: int
) -> None:
    world = replace(WORLD, operations=operations)
    tasks = HardTasks.draw(np.random.default_rng(seed), 5, world, columns)
    config = AbacusConfig(columns=columns, max_digits=columns - 1, max_operations=3)
    arrays, objects = (AbacusBatch(config, 5, autoreset=False) for _ in range(2))
    tasks.load(arrays)
    objects.load_tasks([tasks.task(row) for row in range(5)])
    for name, loaded in arrays.program._asdict().items():
        np.testing.assert_array_equal(loaded, getattr(objects.program, name))


def test_hard_exercises_that_fail_are_found(exact: AbacusPolicy, spoilt: AbacusPolicy) -> None:
    rng = np.random.default_rng(0)
    assert Practice(exact, WORLD).failed_hard_exercises(rng, 2_000) == []
    practice = Practice(spoilt, WORLD)
    failed = practice.failed_hard_exercises(rng, 2_000)
    assert len(failed) > 10
    assert not any(practice.solved(failed))


def test_ppo_gets_the_same_exercises_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending_module, "PPO_EXERCISES", 200)
    tasks = mending_module.exercises_for_ppo(WORLD, 3)
    assert tasks == mending_module.exercises_for_ppo(WORLD, 3)
    assert tasks != mending_module.exercises_for_ppo(WORLD, 4)
    # What the world itself never draws.
    assert any(operation.operand == 0 for task in tasks for operation in task.operations)


def test_an_exact_policy_solves_everything(exact: AbacusPolicy) -> None:
    practice = Practice(exact, WORLD)
    assert all(practice.solved([*exercises(50), Exercise(Task.parse("0 + 0 - 0"), 3)]))
    assert practice.steps > 50


def test_own_transitions_are_those_of_solved_operations(
    exact: AbacusPolicy, spoilt: AbacusPolicy
) -> None:
    known = complete_set(5, 3)
    histories, symbols, operations, actions, masks = Practice(exact, WORLD).transitions(
        exercises(30)
    )
    rows = known.index(histories, symbols, operations)
    assert (rows >= 0).all()
    np.testing.assert_array_equal(actions, known.actions[rows])
    assert ((masks >> actions.astype(np.uint8)) & 1 == 1).all()
    # Every operation ends with the submit of a reset.
    assert ((actions == Action.SUBMIT) & (symbols >= 5)).sum() == 90
    solved = Practice(spoilt, WORLD).transitions(exercises(30))
    assert ((solved[3] == Action.SUBMIT) & (solved[1] >= 5)).sum() < 90


def test_corrections_solve_failing_exercises_and_lose_no_others(exact: AbacusPolicy) -> None:
    practice = Practice(exact, WORLD)
    histories, symbols, operations, actions, _ = practice.transitions(exercises(5))
    slide = int(np.flatnonzero(actions == Action.SLIDE)[0])
    codes = np.concatenate([histories[slide], [symbols[slide], operations[slide]]]).astype(np.int32)
    practice.table.prefer(codes[None], np.array([Action.SUBMIT]))
    tried = exercises(300)
    failing = [each for each, right in zip(tried, practice.solved(tried), strict=True) if not right]
    assert failing
    others = [each for each in tried if each not in failing]
    assert practice.correct(failing, others) >= 1
    assert all(practice.solved(tried))


def test_prefer_is_taken_back(exact: AbacusPolicy) -> None:
    practice = Practice(exact, WORLD)
    exercise = Exercise(Task.parse("3 + 1"), 10)
    codes, taken, _ = practice._failing_run(exercise).steps[0]
    before = practice.table.prefer(codes[None], np.array([Action.SUBMIT]))
    assert practice.solved([exercise]) == [False]
    practice.table.restore(codes[None], before)
    assert practice.solved([exercise]) == [True]
    assert practice._failing_run(exercise).steps[0][1] == taken


def test_answers_to_observations_are_those_of_the_corrected_policy(exact: AbacusPolicy) -> None:
    known = complete_set(5, 3)
    codes = np.column_stack(
        [known.histories, known.symbols, known.operations, np.zeros(len(known))]
    ).astype(np.int32)
    practice = Practice(exact, WORLD)
    practice.table.prefer(codes[:1, :-1], np.array([Action.SUBMIT]))
    histories, symbols, operations, actions, masks = practice.answers(codes)
    rows = known.index(histories, symbols, operations)
    assert sorted(rows.tolist()) == list(range(len(known)))
    changed = rows == 0
    np.testing.assert_array_equal(actions[~changed], known.actions[rows[~changed]])
    assert actions[changed].tolist() == [Action.SUBMIT]
    assert ((masks >> actions.astype(np.uint8)) & 1 == 1).all()


def test_a_corrected_policy_is_certified_as_a_table(exact: AbacusPolicy) -> None:
    practice = Practice(exact, WORLD)
    assert certify_own_runs(practice.asked(), level="no_of").exact
    codes = practice._failing_run(Exercise(Task.parse("3 + 1"), 10)).steps[0][0]
    practice.table.prefer(codes[None], np.array([Action.SUBMIT]))
    certificate = certify_own_runs(practice.asked(), level="no_of")
    assert certificate.verdict == "not exact"
    assert "wrong submit" in {failure.kind for failure in certificate.failures}


def test_a_policy_that_solves_nothing_ends_at_once() -> None:
    mending = Mending(new_policy("onehot", 5, 3), WORLD, MendingSettings(rounds=5, tried=50), 0)
    assert not mending.run()
    assert [(each.failed, each.corrections) for each in mending.rounds] == [(50, 0)]


def test_the_actions_of_a_table_are_all_cloned(exact: AbacusPolicy) -> None:
    """Also one that is unlike all others."""
    practice = Practice(exact, WORLD)
    codes = practice._failing_run(Exercise(Task.parse("3 + 1"), 10)).steps[0][0]
    practice.table.prefer(codes[None], np.array([Action.DOWN]))
    mending = Mending(exact, WORLD, MendingSettings(), 0)
    mending._clone_table(practice, exercises(100))
    assert mending.policy.network_name == "wide"
    own = practice.transitions(exercises(100))
    assert mending._given(CloningSet.from_transitions(5, *own)).all()
    cloned = Practice(mending.policy, WORLD).table.scores_of(codes[None])
    assert cloned.argmax() == Action.DOWN


def test_changes_are_made_in_other_columns_too(exact: AbacusPolicy) -> None:
    """In those where the policy acts as in the failing run, and not at the left edge."""
    practice = Practice(exact, WORLD)
    steps = practice._failing_run(Exercise(Task.parse("6 + 25"), 10)).steps
    frames = np.array([codes for codes, _, _ in steps])
    left = decode_frame(5, frames[:, :3])[0]
    inside = int(np.flatnonzero((left < 5).all(axis=1))[0])
    edge = int(np.flatnonzero((left == 5).any(axis=1))[0])
    submit = np.array([Action.SUBMIT])
    codes, actions = practice._shifted((frames[inside : inside + 1], submit))
    assert sorted(decode_frame(5, codes[:, 2])[3]) == [0, 1, 2]
    assert (actions == Action.SUBMIT).all()
    assert len(practice._shifted((frames[edge : edge + 1], submit))[0]) == 1
    practice.table.prefer(codes[:1], submit)
    other = frames[inside : inside + 1]
    expected = 2 if not (codes[0] == other).all() else 1
    assert len(practice._shifted((other, np.array([Action.UP])))[0]) == expected


def test_failing_runs_differ_in_their_observations(spoilt: AbacusPolicy) -> None:
    runs = various_failing_runs(Asked(spoilt, 5, 3), 5, 3, "no_of", 5)
    assert len({(run.frames, run.symbol, run.operation) for run in runs}) == len(runs) == 5
    practice = Practice(spoilt, WORLD)
    shown = [Exercise(Task.parse(run.calculation), run.columns) for run in runs]
    assert practice.solved(shown) == [False] * 5


def test_rounds_of_mending_end_exact_and_resume(spoilt: AbacusPolicy) -> None:
    settings = MendingSettings(
        rounds=6, tried=2_000, exercises=60, cloning=CloningSettings(updates=1_000)
    )
    first = Mending(copy.deepcopy(spoilt), WORLD, settings, 0)
    first.rounds.append(first._round(last=False))
    assert first.rounds[0].verdict == "not exact"
    assert first.rounds[0].failed > 0
    assert first.rounds[0].corrections > 0
    second = Mending(copy.deepcopy(spoilt), WORLD, settings, 0)
    second.load_state(first.state())
    assert second.run()
    assert second.rounds[-1].verdict == "exact"
    assert second.rounds[: len(first.rounds)] == first.rounds


def test_mending_needs_a_level(exact: AbacusPolicy) -> None:
    world = replace(WORLD, reward=("submit", "wrong_submit"))
    with pytest.raises(ValueError, match="reward level"):
        Mending(exact, world, MendingSettings(rounds=1), 0).run()


def test_window_codes_of_own_transitions(exact: AbacusPolicy) -> None:
    """The coded observations are those that the policy is asked about."""
    practice = Practice(exact, WORLD)
    ((_, batch),) = practice._batches(exercises(3))
    np.testing.assert_array_equal(
        window_codes(5, batch.observation["window"]), np.asarray(batch.history)
    )
