"""Planning: runs that no other run beats, and labels that hold for what a policy sees."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from abacus.batch import AbacusBatch
from abacus.kernel import ACTIONS
from abacus.observation import encode_frame, visibly_illegal_actions
from abacus.reward import LEVELS
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Operation, Task
from pipelines.learning import planning
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import Exercise, Exercises
from pipelines.learning.planning import (
    FORFEIT,
    MEAN_TIE,
    ORDERS,
    TIE,
    UNKNOWN,
    PlannedSteps,
    Planner,
    planned_actions,
)
from pipelines.learning.settings import PlanningSettings, PlanOrder
from tests.abacus.slow_reference import SlowAbacus
from tests.pipelines.small_world import WORLD, abacus_for, slow_abacus

levels = st.sampled_from(sorted(LEVELS))
orders: st.SearchStrategy[PlanOrder] = st.sampled_from(get_args(PlanOrder))


def world_of(base: int, frames: int, level: str) -> AbacusConfig:
    return replace(WORLD, base=base, frames=frames, reward=level)


def of(*texts: str) -> Exercises:
    return Exercises.of([Exercise.parse(text) for text in texts])


def best_actions(planned: PlannedSteps, order: PlanOrder, base: int) -> list[Action]:
    """Return the first of the best actions of each step."""
    actions = []
    for codes, advantages in zip(planned.codes, planned.advantages, strict=True):
        preferred = ORDERS[order][int(codes[-2] >= base)]
        actions.append(next(action for action in preferred if advantages[action] >= -TIE))
    return actions


def replay(
    exercise: Exercise, world: AbacusConfig, planned: PlannedSteps, order: PlanOrder
) -> float:
    """Take the planned actions one by one; return the return of the run, which must be solved."""
    batch = AbacusBatch(abacus_for(exercise, world), 1, autoreset=False)
    batch.load_tasks([exercise.task])
    batch.reset(0)
    earned = 0.0
    actions = best_actions(planned, order, world.base)
    for step, action in enumerate(actions):
        assert batch.ends[0] == End.NONE
        seen = [*batch.history[0], batch.scalars["symbol"][0], batch.scalars["operation"][0]]
        assert planned.codes[step].tolist() == seen
        assert planned.legal[step].tolist() == batch.masks[0].tolist()
        batch.step(np.array([action]))
        assert not batch.out.results["illegal"][0]
        earned += float(batch.out.results["reward"][0])
    assert batch.ends[0] in (End.EXPRESSION, End.LIMIT)
    operations = len(exercise.task.operations)
    assert batch.scalars["operations_done"][0] == operations
    if world.reward != "answer_only":
        # Where slides are not judged, a run may begin the next operation before the reset is
        # submitted: all submits are right, but the result is not counted.
        assert batch.scalars["operations_solved"][0] == operations
    return earned


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 3]), st.integers(1, 3), levels, orders, st.integers(0, 2**32))
def test_planned_runs_solve_their_exercises(
    base: int, frames: int, level: str, order: PlanOrder, seed: int
) -> None:
    """At every level, in any order, without a mistake; the return is the value of the start."""
    world = world_of(base, frames, level)
    planner, rng = Planner(world, order), np.random.default_rng(seed)
    exercises = Exercises.draw(rng, 4, world, (2, 3), 0.3)
    alone = [planner.plan(exercises.take(np.array([row]))) for row in range(4)]
    for row, planned in enumerate(alone):
        earned = replay(exercises[row], world, planned, order)
        planner.plan(exercises.take(np.array([row])))
        value = planner._states[exercises[row].columns].values[0]
        assert value == pytest.approx(earned, abs=1e-4)
    together = planner.plan(exercises)
    for joined, parts in zip(together, PlannedSteps.join(alone), strict=True):
        np.testing.assert_array_equal(joined, parts)


@dataclass
class Searched:
    """All runs of an exercise that make no mistake, by the slow reference implementation."""

    #: The best return of a solved run.
    best: float
    #: Steps of the shortest solved run.
    shortest: int
    #: Actions that were tried, one in each state and legal action.
    tried: int


def search(exercise: Exercise, world: AbacusConfig) -> Searched:
    """Try all actions in all states, breadth first, and follow returns until none gets better."""
    first = slow_abacus(exercise, world)
    first.budget = 10**6
    distance, found = {state_of(first): 0}, [first]
    edges: list[tuple[Any, float, Any]] = []
    shortest = tried = 0
    for abacus in found:
        here = state_of(abacus)
        for action in Action:
            if not abacus.mask[action]:
                continue
            tried += 1
            after = copy.deepcopy(abacus)
            after.step(action)
            if after.end in (End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT):
                continue
            there = state_of(after) if after.end == End.NONE else None
            edges.append((here, after.reward, there))
            if there is None:
                shortest = shortest or distance[here] + 1
            elif there not in distance:
                distance[there] = distance[here] + 1
                found.append(after)
    earned: dict[Any, float] = {state_of(first): 0.0}
    better = True
    while better:
        better = False
        for here, reward, there in edges:
            if here in earned and earned[here] + reward > earned.get(there, -np.inf) + 1e-6:
                earned[there] = earned[here] + reward
                better = True
    return Searched(earned[None], shortest, tried)


def state_of(abacus: SlowAbacus) -> tuple[Any, ...]:
    return (
        *abacus.digits,
        abacus.finger_column,
        abacus.finger_row,
        abacus.signpost,
        abacus.digit_index,
        abacus.operations_done,
    )


@st.composite
def tiny_exercises(draw: st.DrawFn, base: int = 2) -> Exercise:
    """One operation on two or three columns, or two on two columns."""
    columns = draw(st.integers(2, 3))
    capacity, largest = base**columns, base ** (columns - 1) - 1
    start = value = draw(st.integers(0, largest))
    operations = []
    for _ in range(draw(st.integers(1, 4 - columns))):
        operation = Operation(draw(st.sampled_from([1, -1])), draw(st.integers(0, largest)))
        value += operation.sign * operation.operand
        assume(0 <= value < capacity)
        operations.append(operation)
    return Exercise(Task(start, tuple(operations)), columns)


@settings(max_examples=12, deadline=None)
@given(tiny_exercises(), levels, orders)
def test_no_other_run_is_better(exercise: Exercise, level: str, order: PlanOrder) -> None:
    """A search that shares no code with the kernel finds no higher return, and as many steps."""
    world = world_of(2, 2, level)
    planner = Planner(world, order)
    planned = planner.plan(Exercises.of([exercise]))
    found = search(exercise, world)
    assert replay(exercise, world, planned, order) == pytest.approx(found.best, abs=1e-4)
    assert planner.steps == found.tried
    assert len(planned.codes) >= found.shortest
    if level in ("no_of_sp_ms", "answer_only"):
        # Only submits are paid, and all solved runs make the same: the shortest earns most.
        assert len(planned.codes) == found.shortest


def test_exercises_with_too_many_states_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = "2: 1 + 1", "4: 1 + 1 - 1"
    alone = Planner(WORLD)
    steps = alone.plan(of(small))
    assert len(Planner(WORLD).plan(of(small, large)).codes) > len(steps.codes)
    monkeypatch.setattr(planning, "MOST_STATES", 60)
    limited = Planner(WORLD)
    for whole, left in zip(steps, limited.plan(of(large, small, large)), strict=True):
        np.testing.assert_array_equal(whole, left)
    # The steps that found too many states were made all the same.
    assert limited.steps > alone.steps + 2 * 60
    nothing = limited.plan(of(large))
    assert len(nothing.codes) == len(limited.labels(nothing)) == 0


#: An observation in which every action looks legal: base 3, row 1, digit 0, signpost left of view.
CODE = int(encode_frame(3, 1, 0, 1, 2, 0))
WORLD_3 = world_of(3, 1, "no_of")


def planned_of(*steps: dict[Action, float], illegal: tuple[set[Action], ...] = ()) -> PlannedSteps:
    """Return steps that meet one observation, by the advantages of actions; others cost much."""
    codes = np.tile(np.array([[CODE, 2, 0]], np.int32), (len(steps), 1))
    advantages, legal = np.full((len(steps), ACTIONS), -2.0), np.ones((len(steps), ACTIONS), bool)
    for row, step in enumerate(steps):
        for action, advantage in step.items():
            advantages[row, action] = advantage
        for action in illegal[row] if illegal else ():
            advantages[row, action], legal[row, action] = UNKNOWN, False
    return PlannedSteps(codes, advantages, legal)


@given(
    st.sets(st.sampled_from(list(Action)), min_size=1),
    orders,
    st.floats(0, 0.9 * MEAN_TIE, allow_subnormal=False),
    st.integers(1, 5),
    st.booleans(),
)
def test_the_order_decides_among_equally_good_actions(
    good: set[Action], order: PlanOrder, rounding: float, states: int, on_operation: bool
) -> None:
    """Also if one of them is a little better, in however many states; on digits and operations."""
    preferred = ORDERS[order][on_operation]
    worst = max(good, key=preferred.index)
    step = {action: -rounding * (action != worst) for action in good}
    planned = planned_of(*[step] * states)
    planned.codes[:, -2] = WORLD_3.base + 1 if on_operation else 2
    labels = Planner(WORLD_3, order).labels(planned)
    assert labels.actions.tolist() == [min(good, key=preferred.index)]
    assert bool(labels.masks.all())


def test_every_order_has_every_action_once() -> None:
    assert set(ORDERS) == set(get_args(PlanOrder))
    for both in ORDERS.values():
        assert [sorted(order) for order in both] == [list(Action)] * 2
    assert len(set(ORDERS.values())) == len(ORDERS)


@given(
    st.lists(
        st.lists(
            st.floats(-1 - FORFEIT, 0, allow_subnormal=False), min_size=ACTIONS, max_size=ACTIONS
        ),
        min_size=1,
        max_size=5,
    ),
    orders,
)
def test_the_best_mean_advantage_is_what_is_cloned(
    advantages: list[list[float]], order: PlanOrder
) -> None:
    steps = [dict(zip(Action, row, strict=True)) for row in advantages]
    (action,) = Planner(WORLD_3, order).labels(planned_of(*steps)).actions.tolist()
    means = np.mean(advantages, axis=0)
    assert means[action] >= means.max() - MEAN_TIE - 1e-9


def test_states_that_look_alike_share_the_action_that_is_best_on_average() -> None:
    left, right = Action.LEFT, Action.RIGHT
    # Best in most states, but a mistake in the other one.
    risky, safe = {left: 0.0, right: -0.1}, {left: -4.0, right: 0.0}
    labels = Planner(WORLD_3).labels(planned_of(risky, risky, safe))
    assert labels.actions.tolist() == [right]
    # However bad a mistake is, it costs no more than the rest of the episode.
    fatal, slow = {left: -1e3, right: 0.0}, {left: 0.0, right: -1.0}
    assert Planner(WORLD_3).labels(planned_of(fatal, *[slow] * 5)).actions.tolist() == [left]


def test_an_edge_out_of_view_makes_an_observation_of_its_own() -> None:
    """The finger cannot step right from the last column, which looks like any other."""
    to_right, submit = {Action.RIGHT: 0.0, Action.SUBMIT: -4.0}, {Action.SUBMIT: 0.0}
    planned = planned_of(to_right, to_right, submit, illegal=(set(), set(), {Action.RIGHT}))
    labels = Planner(WORLD_3).labels(planned)
    assert bool((labels.rows == labels.rows[0]).all())
    edge = ~labels.masks[:, Action.RIGHT]
    assert labels.actions[edge].tolist() == [Action.SUBMIT]
    assert labels.actions[~edge].tolist() == [Action.RIGHT]
    assert bool(labels.masks[~edge].all())


def planned_on_few_columns(level: str, order: PlanOrder) -> tuple[Planner, PlannedSteps]:
    world = world_of(2, 2, level)
    planner = Planner(world, order)
    exercises = Exercises.draw(np.random.default_rng(0), 60, world, (2, 3, 4))
    return planner, planner.plan(exercises)


@pytest.mark.parametrize("level", LEVELS)
def test_labels_are_legal_and_distinct(level: str) -> None:
    planner, planned = planned_on_few_columns(level, "signpost-first")
    labels = planner.labels(planned)
    assert bool(labels.masks[torch.arange(len(labels)), labels.actions].all())
    keys = torch.cat([labels.rows, labels.masks.float()], dim=1)
    assert len(torch.unique(keys, dim=0)) == len(labels) > 100
    assert len(torch.unique(labels.rows, dim=0)) < len(labels)
    assert set(labels.counts.tolist()) == {1.0}


def test_masks_forbid_what_looks_illegal() -> None:
    planner = Planner(WORLD_3)
    planned = planner.plan(Exercises.draw(np.random.default_rng(0), 20, WORLD_3, (2, 3)))
    labels = planner.labels(planned)
    illegal = visibly_illegal_actions(3)[planned.codes[:, 0]]
    assert not (planned.legal & illegal).any()
    rows = CloningSet.of_codes(3, planned.codes, np.zeros(len(illegal), np.int64), illegal)
    known = {row.numpy().tobytes(): mask for row, mask in zip(rows.rows, illegal, strict=True)}
    for row, mask in zip(labels.rows, labels.masks.numpy(), strict=True):
        assert not (mask & known[row.numpy().tobytes()]).any()


def test_another_order_gives_other_labels() -> None:
    """Of the same steps too: where it makes no difference, the signpost waits for the finger."""
    planner, planned = planned_on_few_columns("no_of", "signpost-first")
    other, _ = planned_on_few_columns("no_of", "finger-first")
    first, last = planner.labels(planned), other.labels(planned)
    assert torch.equal(first.rows, last.rows)
    changed = first.actions != last.actions
    assert int(changed.sum()) > 5
    signpost = torch.tensor([Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT])
    finger = torch.tensor([Action.LEFT, Action.RIGHT])
    assert bool(torch.isin(first.actions[changed], signpost).all())
    assert bool(torch.isin(last.actions[changed], finger).all())


def test_an_unknown_order_is_refused() -> None:
    order: Any = "rows-first"
    with pytest.raises(ValueError, match="order='rows-first' is not allowed"):
        Planner(WORLD, order)


def test_random_exercises_are_planned_by_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WIDTHS", (2, 3))
    monkeypatch.setattr(planning, "PLANNED_AT_ONCE", 8)
    shown: list[tuple[int, int]] = []

    def on_progress(planned: int, steps: int) -> None:
        shown.append((planned, steps))

    data, steps = planned_actions(WORLD, PlanningSettings(exercises=20), 3, on_progress)
    assert [planned for planned, _ in shown] == [8, 16, 20]
    assert shown[-1][1] == steps > shown[0][1] > 1_000
    changes: tuple[tuple[int, PlanOrder], ...] = (
        (3, "right-first"),
        (4, "right-first"),
        (3, "finger-first"),
    )
    digests = [
        planned_actions(WORLD, PlanningSettings(20, order), seed)[0].digest
        for seed, order in changes
    ]
    assert digests[0] == data.digest
    assert len(set(digests)) == 3


@pytest.mark.parametrize("level", LEVELS)
def test_there_are_fewer_columns_where_slides_are_not_judged(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: set[int] = set()

    def note_widths(self: Planner, exercises: Exercises) -> PlannedSteps:
        widths.update(exercises.columns.tolist())
        return plan(self, exercises.take(np.array([0])))

    plan = Planner.plan
    monkeypatch.setattr(Planner, "plan", note_widths)
    planned_actions(world_of(2, 2, level), PlanningSettings(exercises=30), 0)
    narrow = level == "answer_only"
    assert widths == set(planning.WIDTHS_WITHOUT_SLIDES if narrow else planning.WIDTHS)
