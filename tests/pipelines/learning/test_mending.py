"""Mending: a policy becomes exact by the reward alone, the best one is kept, and rounds resume."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from abacus.observation import visibly_illegal_actions
from abacus.rules import AbacusConfig, Action
from oracle.demos.recipe import Recipe
from oracle.demos.recorder import Recorder
from oracle.exact.concrete_runs import failing_situations, likely_failures, resumed_failures
from oracle.exact.own_runs import NOT_PROVEN, Asked, certify_own_runs
from oracle.exact.policy_exploration import explore_policy
from pipelines.learning import mending as mending_module
from pipelines.learning.cloning import Cloning, copy_weights
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import Exercise, Exercises, hard_exercises
from pipelines.learning.mending import Mending, MendingRound
from pipelines.learning.planning import planned_actions
from pipelines.learning.policy import AbacusPolicy, new_policy, prepare_torch
from pipelines.learning.policy_files import load_run
from pipelines.learning.practice import Practised, practise, solved
from pipelines.learning.settings import CloningSettings, MendingSettings, PlanningSettings
from pipelines.scoring.players import GreedyTable
from tests.pipelines.small_world import FRAMES
from tests.pipelines.small_world import WORLD as SMALL

#: Base 2 and two frames as in the small world, but wide enough that carries repeat.
WORLD = replace(SMALL, columns=8, max_digits=6, reward="no_of")
SETTINGS = MendingSettings(rounds=8, exercises=100, cloning=CloningSettings(200))
#: Demonstrations whose clone solves most random exercises, but not all.
DEMONSTRATIONS = 25


@pytest.fixture(autouse=True, scope="module")
def _few_tried() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mending_module, "TRIED", 300)
        patch.setattr(mending_module, "EXPLORATIONS", ((5, 2), (6, 1)))
        yield


def clone_of(operations: int) -> AbacusPolicy:
    recipe = Recipe(config=WORLD, operations=operations)
    shown = Recorder(recipe).record(0, -(-operations // 10)).first(operations)
    data = CloningSet.from_demonstrations(shown, frames=FRAMES)
    torch.manual_seed(0)
    policy = new_policy("onehot", WORLD.base, FRAMES)
    Cloning(policy, data, CloningSettings(200), 0, Logger(None, [])).run()
    return policy


@pytest.fixture(scope="module")
def clone() -> AbacusPolicy:
    prepare_torch(1)
    return clone_of(DEMONSTRATIONS)


@dataclass
class Mended:
    """A mending that has ended, and what each round began with and practised."""

    mending: Mending
    judged: list[AbacusPolicy]
    #: Exercises that exploration had found until then.
    found: list[list[Exercise]]
    #: Everything that was practised; none in the last round.
    pools: list[Exercises]


@pytest.fixture(scope="module")
def mended(clone: AbacusPolicy) -> Mended:
    mending = Mending(copy.deepcopy(clone), WORLD, SETTINGS, 0)
    result = Mended(mending, [], [], [])

    def after_round(score: MendingRound) -> None:
        result.judged.append(mending.judged)
        result.found.append(list(mending.practised))

    def note_pool(table: GreedyTable, exercises: Exercises, *given: Any) -> Practised:
        result.pools.append(exercises)
        return practise(table, exercises, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mending_module, "practise", note_pool)
        mending.run(after_round)
    return result


def same(one: AbacusPolicy, other: AbacusPolicy) -> bool:
    weights = [copy_weights(policy) for policy in (one, other)]
    return all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def without_times(rounds: list[MendingRound]) -> list[MendingRound]:
    return [replace(each, seconds=0.0) for each in rounds]


def test_a_policy_becomes_exact_by_practice(clone: AbacusPolicy, mended: Mended) -> None:
    mending, (*before, last) = mended.mending, mended.mending.rounds
    assert mending.exact
    assert mending.ended
    assert 0 < len(before) <= SETTINGS.rounds
    assert [each.number for each in mending.rounds] == list(range(len(before) + 1))
    assert same(mended.judged[0], clone)
    assert 0 < before[0].failed < before[0].tried == 300
    assert before[0].changed > 0
    for each in before:
        assert each.verdict == "not exact"
        assert 0 < each.failing < each.states < each.steps
    assert (last.verdict, last.failed, last.found, last.states) == ("exact", 0, 0, 0)
    assert mending.best is mending.policy is mended.judged[-1]
    certificate = certify_own_runs(mending.best, base=2, frames=FRAMES, level="no_of")
    assert certificate.exact
    assert certificate.situations == last.situations > 0


def test_what_is_found_to_fail_is_practised_from_then_on(mended: Mended) -> None:
    before: list[Exercise] = []
    rounds = mended.mending.rounds
    for judged, found, score in zip(mended.judged, mended.found, rounds, strict=True):
        assert found[: len(before)] == before
        assert len(set(found)) == len(found)
        new = found[len(before) :]
        if new:
            # Explored only if random exercises hardly ever fail.
            assert score.failed <= mending_module.FEW_FAILING
            assert score.situations > 0
            right, _ = solved(GreedyTable(judged, 2, FRAMES), Exercises.of(new), WORLD)
            assert not right.any()
        before = found
    assert len(before) > 0
    for found, pool in zip(mended.found, mended.pools, strict=False):
        practised = [str(pool[row]) for row in range(len(pool))]
        assert {str(each) for each in found} <= set(practised)
        # Random ones too, and variations of those that were found.
        assert len(pool) >= SETTINGS.exercises + len(found)
        assert (len(pool) > SETTINGS.exercises + len(found)) == bool(found)
    assert len(mended.pools) == len(rounds) - 1


def test_failures_of_a_certificate_and_of_random_exercises_are_practised_too(
    clone: AbacusPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those at widths, and of kinds, that the exploration of few columns does not find."""
    explore = Mending._explore
    monkeypatch.setattr(Mending, "_explore", lambda *given: ([], explore(*given)[1]))
    monkeypatch.setattr(mending_module, "FEW_FAILING", 300)
    mending = Mending(clone, WORLD, replace(SETTINGS, rounds=0), 0)
    assert not mending.run()
    (score,) = mending.rounds
    assert score.verdict == "not exact"
    assert score.found > 0
    assert score.situations > 0
    tried = hard_exercises(np.random.default_rng([0, 0]), 300, WORLD)
    right, _ = solved(GreedyTable(clone, 2, FRAMES), tried, WORLD)
    random = {tried[row] for row in np.flatnonzero(~right).tolist()}
    assert 0 < len(random) <= score.failed
    assert len(set(mending.practised) - random) == score.found
    assert random < set(mending.practised)
    right, _ = solved(GreedyTable(clone, 2, FRAMES), Exercises.of(mending.practised), WORLD)
    assert not right.any()


def test_an_exact_policy_is_left_as_it_is(mended: Mended) -> None:
    exact = mended.mending.best
    mending = Mending(exact, WORLD, SETTINGS, 1)
    assert mending.run()
    (score,) = mending.rounds
    assert (score.verdict, score.failed, score.changed) == ("exact", 0, 0)
    assert mending.best is mending.policy is mending.judged is exact
    assert mending.practised == []
    assert score.describe() == "0 of 300 random exercises fail; own runs exact"


def test_an_interrupted_mending_equals_a_whole_one(clone: AbacusPolicy, mended: Mended) -> None:
    """Every round in a process of its own, which has the weights of none of them."""
    whole = mended.mending
    assert len(whole.rounds) > 1
    weights = copy_weights(clone)
    state: dict[str, Any] = {}
    for number in range(len(whole.rounds)):
        torch.manual_seed(number)
        policy = new_policy("onehot", WORLD.base, FRAMES)
        if not state:
            policy.load_state_dict(weights)
        resumed = Mending(policy, WORLD, SETTINGS, 0)
        if state:
            resumed.load_state(state)
        assert not resumed.ended
        with pytest.raises(KeyboardInterrupt):
            resumed.run(interrupt)
        # As a checkpoint holds it.
        written = io.BytesIO()
        torch.save(resumed.state(), written)
        written.seek(0)
        state = torch.load(written, weights_only=True)
    assert resumed.ended
    assert resumed.exact
    assert without_times(resumed.rounds) == without_times(whole.rounds)
    assert resumed.practised == whole.practised
    assert same(resumed.best, whole.best)
    assert same(resumed.policy, whole.policy)


def interrupt(score: MendingRound) -> None:
    raise KeyboardInterrupt


def test_the_best_policy_is_kept(clone: AbacusPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloning may lose more than practice corrects; here it forgets everything."""

    def forget(self: Mending, *_: Any, **__: Any) -> None:
        torch.manual_seed(len(self.rounds))
        self.policy = new_policy("onehot", WORLD.base, FRAMES)

    monkeypatch.setattr(Mending, "_clone", forget)
    mending = Mending(clone, WORLD, replace(SETTINGS, rounds=2), 0)
    assert not mending.run()
    assert [each.failed > 250 for each in mending.rounds] == [False, True, True]
    assert mending.best is clone
    assert mending.policy is mending.judged
    assert not same(mending.policy, clone)
    resumed = Mending(mending.policy, WORLD, replace(SETTINGS, rounds=2), 0)
    resumed.load_state(mending.state())
    assert same(resumed.best, clone)
    assert resumed.ended


@pytest.mark.parametrize(
    ("left", "without"), [(0, ""), (1, ""), (0, "whole-table"), (1, "new-weights")]
)
def test_a_table_without_failures_is_learned_whole_with_the_same_weights(
    mended: Mended, left: int, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what was practised is cloned into new weights, which generalise it."""
    exact = mended.mending.best
    starts: list[tuple[bool, float, float]] = []
    cloned: list[CloningSet] = []
    tables: list[GreedyTable] = []
    practised: list[Practised] = []

    def note_start(
        policy: AbacusPolicy, data: CloningSet, settings: CloningSettings, *more: Any
    ) -> Cloning:
        starts.append((same(policy, exact), settings.learning_rate, settings.weight_decay))
        cloned.append(data)
        return Cloning(policy, data, settings, *more)

    def note_practice(table: GreedyTable, *given: Any) -> Practised:
        tables.append(table)
        practised.append(practise(table, *given))
        assert practised[-1].changed > 0
        assert practised[-1].left == 0
        return replace(practised[-1], left=left)

    def with_a_mistake(self: Mending) -> GreedyTable:
        """Submit where the policy slides."""
        table = GreedyTable(exact, WORLD.base, FRAMES)
        met = explore_policy(table.orders_of, WORLD.base, FRAMES, "no_of", exact_columns=4)
        slides = met.observations[met.observation_of[met.actions == Action.SLIDE]][:1, :-1]
        table.prefer(table.known_rows(slides), np.array([Action.SUBMIT]))
        return table

    monkeypatch.setattr(Mending, "_table", with_a_mistake)
    monkeypatch.setattr(mending_module, "Cloning", note_start)
    monkeypatch.setattr(mending_module, "practise", note_practice)
    before = copy_weights(exact)
    mending = Mending(exact, WORLD, replace(SETTINGS, rounds=1, without=without), 0)
    mending.run()
    (data,), first = cloned, mending.rounds[0]
    rate, decay = SETTINGS.cloning.learning_rate, SETTINGS.cloning.weight_decay
    # The policy that was judged stays as it is.
    assert all(torch.equal(before[name], kept) for name, kept in copy_weights(exact).items())
    assert not same(mending.policy, exact)
    if left or without:
        assert starts == [(without == "new-weights", rate, decay)]
        assert first.corrections == 0
        assert torch.equal(data.rows, practised[0].data.rows)
        return
    assert starts == [(True, mending_module.KEPT_RATE * rate, 0.0)]
    assert first.corrections == len(practised)
    # Nothing that exploration suggests fails in the corrected table, and all of it is cloned.
    found, explored = mending._explore(tables[-1])
    assert found == []
    assert explored.exact_columns == mending_module.EXPLORATIONS[-1][0]
    failing = set(explored.observation_of[explored.failures > 0].tolist())
    kept = [row for row in range(len(explored.observations)) if row not in failing]
    actions = tables[-1].orders_of(explored.observations)[:, 0]
    labels = {
        (row.numpy().tobytes(), int(mask.sum())): int(action)
        for row, mask, action in zip(data.rows, data.masks, data.actions, strict=True)
    }
    codes = explored.observations[kept, :-1]
    visible = ~visibly_illegal_actions(WORLD.base)[codes[:, -3]]
    expected = CloningSet.of_codes(WORLD.base, codes, actions[kept], visible)
    for row, mask, action in zip(expected.rows, expected.masks, expected.actions, strict=True):
        assert labels[row.numpy().tobytes(), int(mask.sum())] == int(action)
    assert len(data) > len(practised[0].data)


def test_mending_ends_with_a_policy_without_a_failure_and_without_a_proof(
    mended: Mended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would only learn its own table again, and new weights would clone the same algorithm."""

    def unproven(self: Mending, score: MendingRound) -> tuple[MendingRound, list[Exercise]]:
        return replace(score, verdict=NOT_PROVEN, situations=1), []

    monkeypatch.setattr(Mending, "_certified", unproven)
    exact = mended.mending.best
    mending = Mending(exact, WORLD, replace(SETTINGS, rounds=3), 0)
    assert not mending.run()
    (only,) = mending.rounds
    assert (only.verdict, only.failed, only.found, only.states) == (NOT_PROVEN, 0, 0, 0)
    assert mending.ended
    assert mending.best is exact


def test_exercises_that_failed_before_are_tried_again_before_a_certificate(
    mended: Mended, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = mended.mending.best
    mending = Mending(exact, WORLD, replace(SETTINGS, rounds=0), 0)
    before = Exercise.parse("10: 3 + 4")
    mending.practised = [before]
    asked: list[list[Exercise]] = []
    monkeypatch.setattr(Mending, "_explore", lambda self, table: ([], []))

    def failing_of(self: Mending, table: Any, tasks: Any) -> list[Exercise]:
        asked.append([Exercise(task, columns) for columns, task in tasks])
        return asked[-1]

    def certified(self: Mending, score: MendingRound) -> Any:
        raise AssertionError("a policy that fails was certified")

    monkeypatch.setattr(Mending, "_failing_of", failing_of)
    monkeypatch.setattr(Mending, "_certified", certified)
    mending.run()
    assert asked == [[before]]
    assert (mending.rounds[0].failed, mending.rounds[0].found) == (0, 1)


def test_a_planned_policy_without_a_failure_and_without_a_proof_begins_again_with_another_plan(
    mended: Mended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New weights would clone the same algorithm, which the certificate could not follow."""
    planning, seeds = PlanningSettings(exercises=20), []
    cloned: list[CloningSet] = []

    def note_plan(world: AbacusConfig, settings: PlanningSettings, seed: int, *more: Any) -> Any:
        assert (world, settings) == (WORLD, planning)
        seeds.append(seed)
        return planned_actions(world, settings, seed, *more)

    def note_data(policy: AbacusPolicy, data: CloningSet, *more: Any) -> Cloning:
        cloned.append(data)
        return Cloning(policy, data, *more)

    def unproven(self: Mending, score: MendingRound) -> tuple[MendingRound, list[Exercise]]:
        return replace(score, verdict=NOT_PROVEN, situations=1), []

    monkeypatch.setattr(mending_module, "planned_actions", note_plan)
    monkeypatch.setattr(mending_module, "Cloning", note_data)
    monkeypatch.setattr(Mending, "_certified", unproven)
    exact = mended.mending.best
    mending = Mending(exact, WORLD, replace(SETTINGS, rounds=1), 0, planning)
    mending.run()
    first = mending.rounds[0]
    assert (first.failed, first.found, first.planned_again) == (0, 0, True)
    assert "another plan" in first.describe()
    plan, steps = planned_actions(WORLD, planning, seeds[0])
    assert seeds != [0]
    assert torch.equal(cloned[0].actions, plan.actions)
    assert torch.equal(cloned[0].rows, plan.rows)
    assert first.steps > steps
    assert not same(mending.policy, exact)
    assert mending.best is exact

    left_out = replace(SETTINGS, rounds=1, without="another-plan")
    mending = Mending(exact, WORLD, left_out, 0, planning)
    mending.run()
    assert [done.planned_again for done in mending.rounds] == [False]
    assert len(seeds) == 1


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"verdict": "exact"}, {"failed": 0, "found": 0}),
        ({"failed": 1, "found": 9}, {"failed": 2}),
        ({"failed": 1, "found": 1}, {"failed": 1, "found": 2}),
    ],
)
def test_rounds_are_ranked(better: dict[str, Any], worse: dict[str, Any]) -> None:
    base = MendingRound(0, "not exact", failed=5, tried=9, found=5)
    assert replace(base, **better).rank > replace(base, **worse).rank


@pytest.mark.parametrize(
    ("round_of", "expected"),
    [
        ({}, "none"),
        ({"states": 7}, "what was practised"),
        ({"states": 7, "corrections": 2}, "the whole table"),
        ({"planned_again": True}, "another plan"),
    ],
)
def test_a_round_says_what_the_next_policy_is_made_of(
    round_of: dict[str, Any], expected: str
) -> None:
    made = MendingRound(0, "not exact", failed=5, tried=9, **round_of)
    assert made.next_policy == expected


def test_an_untrained_policy_uses_all_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending_module, "FEW_FAILING", 60)
    torch.manual_seed(0)
    policy = new_policy("onehot", WORLD.base, FRAMES)
    mending = Mending(policy, WORLD, replace(SETTINGS, rounds=2), 0)
    assert not mending.run()
    assert mending.ended
    assert len(mending.rounds) == 3
    assert all(each.failed > 250 for each in mending.rounds)
    assert [each.states > 0 for each in mending.rounds] == [True, True, False]
    assert {each.situations for each in mending.rounds} == {0}
    assert MendingRound(**asdict(mending.rounds[0])) == mending.rounds[0]


def test_one_operation_alone_is_practised_until_no_exercise_fails(
    clone: AbacusPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its policy fails in the other operation, of which nothing is asked."""

    def explored(*given: Any, **named: Any) -> Any:
        raise AssertionError("own runs are of both operations")

    monkeypatch.setattr(mending_module, "explore_policy", explored)
    monkeypatch.setattr(mending_module, "certify_own_runs", explored)
    mending = Mending(copy.deepcopy(clone), replace(WORLD, operations="add"), SETTINGS, 0)
    assert not mending.run()
    *before, last = mending.rounds
    assert 0 < len(before) < SETTINGS.rounds
    assert all(each.failed and each.verdict == "not exact" for each in before)
    assert (last.failed, last.verdict, last.states) == (0, "not proven", 0)
    assert mending.best is mending.policy


def test_a_round_without_anything_to_clone_leaves_the_policy(
    clone: AbacusPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    practise: Any = vars(mending_module)["practise"]

    def nothing_succeeds(*given: Any) -> Any:
        practised = practise(*given)
        none = practised.data.rows_at(torch.zeros(0, dtype=torch.int64))
        return replace(practised, data=none, codes=practised.codes[:0])

    monkeypatch.setattr(mending_module, "practise", nothing_succeeds)
    monkeypatch.setattr(mending_module, "FEW_FAILING", -1)
    mending = Mending(clone, WORLD, replace(SETTINGS, rounds=2), 0)
    assert not mending.run()
    assert len(mending.rounds) == 3
    assert same(mending.policy, clone)


def test_without_exploration_random_exercises_alone_tell_what_fails(
    clone: AbacusPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is asked where none of them fails, and what it finds is not practised."""

    def explored(*given: Any, **named: Any) -> Any:
        raise AssertionError("exploration is left out")

    monkeypatch.setattr(mending_module, "explore_policy", explored)
    settings = replace(SETTINGS, without="exploration")
    mending = Mending(copy.deepcopy(clone), WORLD, settings, 0)
    mending.run()
    random = {
        tried[row]
        for number in range(len(mending.rounds))
        for tried in [hard_exercises(np.random.default_rng([0, number]), 300, WORLD)]
        for row in range(len(tried))
    }
    assert mending.practised
    assert set(mending.practised) <= random
    for each in mending.rounds:
        assert (each.corrections, each.found) == (0, 0)
        assert (each.situations > 0) == (each.failed == 0)
    assert any(each.failed == 0 for each in mending.rounds)


def test_the_parts_that_are_left_out_reach_practice(
    clone: AbacusPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def note(*arguments: Any) -> Practised:
        given.append(arguments[3])
        return practise(*arguments)

    monkeypatch.setattr(mending_module, "practise", note)
    settings = replace(SETTINGS, rounds=1, without="following,two-actions")
    Mending(copy.deepcopy(clone), WORLD, settings, 0).run()
    assert given[0] == {"following", "two-actions"}


def test_mending_needs_a_level(clone: AbacusPolicy) -> None:
    world = replace(WORLD, reward=("submit", "wrong_submit"))
    with pytest.raises(ValueError, match="reward level"):
        Mending(clone, world, MendingSettings(rounds=1), 0)


def test_likely_failures_are_found_without_a_search() -> None:
    """In base 5, of the exact policy with noise in its weights."""
    policy = copy.deepcopy(load_run())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.network.actor.parameters():  # type: ignore[union-attr]
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.35 * parameter.std() * noise)
    explored = explore_policy(Asked(policy, 5, 3), 5, 3, "no_of", stop_at_failures=2_000)
    failing = failing_situations(explored, 20)
    assert 0 < len(failing) <= 80
    assert len(set(explored.observation_of[failing].tolist())) >= 20
    likely = [Exercise(task, columns) for columns, task in likely_failures(explored, failing)]
    world = AbacusConfig(reward="no_of", start="random")
    right, _ = solved(GreedyTable(policy, 5, 3), Exercises.of(likely), world)
    assert (~right).sum() > 10


def test_explorations_follow_one_another_until_one_finds_a_failure(
    clone: AbacusPolicy, mended: Mended, monkeypatch: pytest.MonkeyPatch
) -> None:
    explored: list[tuple[int, int]] = []

    def note(*given: Any, margin: int, exact_columns: int, **more: Any) -> Any:
        explored.append((exact_columns, margin))
        return explore_policy(*given, margin=margin, exact_columns=exact_columns, **more)

    monkeypatch.setattr(mending_module, "explore_policy", note)
    mending = Mending(clone, WORLD, SETTINGS, 0)
    found, last = mending._explore(GreedyTable(clone, 2, FRAMES))
    assert (explored, last.exact_columns) == ([(5, 2)], 5)
    right, _ = solved(GreedyTable(clone, 2, FRAMES), Exercises.of(found), WORLD)
    assert len(right) > 1
    assert not right.any()
    explored.clear()
    found, last = mending._explore(GreedyTable(mended.mending.best, 2, FRAMES))
    assert (found, explored, last.exact_columns) == ([], [(5, 2), (6, 1)], 6)


def test_failures_are_found_after_other_operations_than_on_the_shortest_path(
    clone: AbacusPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a path is of no abacus, its last operations are resumed after random ones."""
    monkeypatch.setattr(mending_module, "likely_failures", lambda *_: iter(()))
    mending = Mending(clone, WORLD, SETTINGS, 0)
    table = GreedyTable(clone, 2, FRAMES)
    found, explored = mending._explore(table)
    assert len(found) > 1
    assert len(set(found)) == len(found)
    assert all(2 <= len(each.task.operations) <= 4 for each in found)
    right, _ = solved(table, Exercises.of(found), WORLD)
    assert not right.any()
    # The others that are suggested fit on their abacus too, and are solved.
    failing = failing_situations(explored, 5)
    suggested = list(resumed_failures(explored, failing, np.random.default_rng(0), 20))
    assert len(suggested) > 10
    assert len({task.operations[-1] for _, task in suggested}) <= len(failing)
    for columns, task in suggested:
        replace(WORLD, columns=columns, max_digits=columns - 1).check_task(task)
