"""Practice: runs of a table, trials, and corrections that lose nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from abacus.kernel import ACTIONS
from abacus.observation import decode_frame
from abacus.rules import AbacusConfig, Action
from oracle.exact.own_runs import certify_own_runs
from pipelines.learning.exercises import Exercise, Exercises, hard_exercises, join
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_run
from pipelines.learning.practice import NO_ROW, Changes, Practice, Visits

WORLD = AbacusConfig(reward="no_of", start="random")


@pytest.fixture(scope="module")
def exact() -> AbacusPolicy:
    return load_run()


def of(*texts: str) -> Exercises:
    return Exercises.of([Exercise.parse(text) for text in texts])


def rows_of(practice: Practice, text: str) -> npt.NDArray[np.int32]:
    """Return the rows of the table that a run meets, in order."""
    runs = practice.play(of(text), depth=100)
    rows: npt.NDArray[np.int32] = runs.trail[0, : runs.lengths[0]]
    return rows


def spoil(practice: Practice, text: str, step: int, action: Action) -> None:
    """Change what the policy does in a step of a run."""
    row = rows_of(practice, text)[step : step + 1]
    practice.table.prefer(row, np.array([action]))


def test_an_exact_policy_solves_everything(exact: AbacusPolicy) -> None:
    practice, rng = Practice(exact, WORLD), np.random.default_rng(0)
    runs = practice.play(join([hard_exercises(rng, 500, WORLD), of("3: 0 + 0 - 0")]))
    assert runs.solved.all()
    assert practice.steps == runs.lengths.sum() > 5_000
    # Every operation is submitted digit by digit, and its reset.
    assert runs.submits[-1] == 4


def test_trails_are_the_last_steps(exact: AbacusPolicy) -> None:
    practice, one = Practice(exact, WORLD), of("10: 1234 + 4321 - 77")
    whole, short = practice.play(one, depth=500), practice.play(one, depth=7)
    length = int(whole.lengths[0])
    last = [(length - 7 + k) % 7 for k in range(7)]
    assert short.trail[0, last].tolist() == whole.trail[0, length - 7 : length].tolist()
    assert short.taken[0, last].tolist() == whole.taken[0, length - 7 : length].tolist()
    assert whole.taken[0, length - 1] == Action.SUBMIT
    assert short.last_rows(np.array([0])).tolist() == [whole.trail[0, length - 1]]


def test_a_trial_is_as_if_the_table_were_changed(exact: AbacusPolicy) -> None:
    practice = Practice(exact, WORLD)
    row = rows_of(practice, "10: 3 + 1")[0]
    tried = hard_exercises(np.random.default_rng(1), 300, WORLD)
    changes = Changes.none(len(tried))
    changes.rows[:, 0], changes.actions[:, 0] = row, Action.SUBMIT
    trials = practice.play(tried, changes)
    assert not trials.solved.all()
    practice.table.prefer(np.array([row]), np.array([Action.SUBMIT]))
    changed = practice.play(tried)
    assert (changed.solved == trials.solved).all()
    assert (changed.submits == trials.submits).all()


def test_a_second_choice_is_taken_where_the_best_action_is_illegal(exact: AbacusPolicy) -> None:
    """On two columns the finger cannot step right from the last one."""
    practice, two, three = Practice(exact, WORLD), of("2: 1 + 1"), of("3: 6 + 5")
    runs = practice.play(three, depth=100)
    rows = runs.trail[0, : runs.lengths[0]]
    step = int(np.flatnonzero(runs.taken[0, : len(rows)] == Action.RIGHT)[-1])
    row = int(rows[step])
    assert row not in rows_of(practice, "2: 1 + 1")
    changes = Changes.none(1)
    changes.rows[0, 0] = row
    changes.actions[0, 0] = Action.SUBMIT + ACTIONS * (Action.RIGHT + 1)
    # Where the best action is legal, nothing changes.
    assert practice.play(three, changes).lengths == runs.lengths
    practice._make(changes.rows[0, :1], changes.actions[0, :1])
    order = np.argsort(-practice.table.scores_at(np.array([row]))[0])
    assert order[:2].tolist() == [Action.RIGHT, Action.SUBMIT]
    assert practice.play(join([two, three])).solved.all()


def test_corrections_solve_failing_exercises_and_lose_no_others(exact: AbacusPolicy) -> None:
    practice, rng = Practice(exact, WORLD), np.random.default_rng(0)
    spoil(practice, "10: 3 + 1", 0, Action.SUBMIT)
    spoil(practice, "10: 30 - 4", 1, Action.UP)
    pool = hard_exercises(rng, 3_000, WORLD)
    before = practice.play(pool)
    assert 0 < (~before.solved).sum() < 1_500
    failing, made = practice.correct(pool, rng, 100)
    assert made >= 1
    assert not before.solved[failing].any()
    for _ in range(4):
        failing, made = practice.correct(pool, rng, 100)
        if not made:
            break
    assert practice.play(pool).solved.all()
    assert made == len(failing) == 0


def test_several_actions_are_corrected_at_once(exact: AbacusPolicy) -> None:
    """Where no single one leads further: three observations in a row are wrong."""
    practice, rng = Practice(exact, WORLD), np.random.default_rng(0)
    for step, action in ((2, Action.UP), (1, Action.SUBMIT), (0, Action.RIGHT)):
        spoil(practice, "10: 3 + 1", step, action)
    pool = of("10: 3 + 1")
    runs = practice.play(pool, depth=120)
    assert not runs.solved[0]
    found, changes = practice._random_changes(pool, runs, np.array([0]), rng)
    assert len(found) > 0
    assert practice.play(pool.take(found), changes).submits.min() > runs.submits[0]


def test_changes_are_made_in_other_columns_too(exact: AbacusPolicy) -> None:
    """In those where the policy acts as in the failing run, and not at the left edge."""
    practice = Practice(exact, WORLD)
    practice.play(hard_exercises(np.random.default_rng(0), 5_000, WORLD))
    rows = rows_of(practice, "10: 31 + 30 + 155")
    left = decode_frame(5, practice.table.codes_of(rows)[:, :3])[0]
    edge = (left == 5).any(axis=1)
    changes = Changes.none(len(rows))
    changes.rows[:, 0], changes.actions[:, 0] = rows, Action.SUBMIT
    wider = practice._in_other_columns(changes)
    assert (wider.rows[edge, 1:] == NO_ROW).all()
    everywhere = np.flatnonzero((wider.rows[:, :3] != NO_ROW).all(axis=1))
    assert len(everywhere) > 0
    assert not edge[everywhere].any()
    for row in everywhere:
        phases = decode_frame(5, practice.table.codes_of(wider.rows[row, :3])[:, 2])[3]
        assert sorted(phases.tolist()) == [0, 1, 2]
        assert (wider.actions[row, :3] == Action.SUBMIT).all()


def test_visits_count_observations(exact: AbacusPolicy) -> None:
    practice, one = Practice(exact, WORLD), of("10: 3 + 1", "10: 3 + 1")
    rows = rows_of(practice, "10: 3 + 1")
    visits = Visits.none(practice.table.capacity)
    practice.play(one, visits=visits)
    counted = np.bincount(rows, minlength=len(visits.counts))
    np.testing.assert_array_equal(visits.counts, 2 * counted)
    assert set(visits.exercises[rows].tolist()) == {1}
    assert visits.grown(10_000).counts.sum() == visits.counts.sum()


def test_a_corrected_policy_is_certified_as_a_table(exact: AbacusPolicy) -> None:
    practice = Practice(exact, WORLD)
    assert certify_own_runs(practice.asked(), level="no_of").exact
    spoil(practice, "10: 3 + 1", 0, Action.SUBMIT)
    certificate = certify_own_runs(practice.asked(), level="no_of")
    assert certificate.verdict == "not exact"
    assert "wrong submit" in {failure.kind for failure in certificate.failures}


def test_a_changed_table_is_restored(exact: AbacusPolicy) -> None:
    practice, again = Practice(exact, WORLD), Practice(exact, WORLD)
    spoil(practice, "10: 3 + 1", 0, Action.SUBMIT)
    pairs = {(int(row), 3) for row in rows_of(practice, "10: 3 + 1")}
    again.play(of("12: 99 - 7"))
    again.table.restore(*practice.table.changed())
    assert again.play(of("10: 3 + 1")).lengths.tolist() == [1]
    moved = again.table.pairs_of_codes(practice.table.codes_of_pairs(pairs))
    assert len(moved) == len(pairs)
    assert moved == {(int(row), 3) for row in rows_of(again, "10: 3 + 1")}
