"""Practice: what succeeds more often is cloned, everything else stays, and all steps count."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.hash_index import EMPTY
from abacus.kernel import ACTIONS
from abacus.observation import observation_arrays, visibly_illegal_actions, window_codes
from abacus.rules import AbacusConfig, Action, End
from benchmarks.evaluation import direct_player
from oracle.exact.certificate import Observations, answers_of
from pipelines.learning import practice
from pipelines.learning.exercises import Exercise, Exercises
from pipelines.learning.planning import Planner
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_run
from pipelines.learning.practice import (
    BETTER,
    LEAST,
    MOST_STEPS,
    PASSES,
    STEP,
    SUBMITS,
    Practised,
    practise,
    solved,
)
from pipelines.scoring.operations import step_limit
from pipelines.scoring.players import GreedyTable
from tests.abacus.slow_reference import SlowAbacus
from tests.pipelines.small_world import WORLD as SMALL
from tests.pipelines.small_world import slow_abacus

WORLD = AbacusConfig(reward="no_of", start="random")
Answers = Callable[[Observations], npt.NDArray[np.float32]]


@pytest.fixture(scope="module")
def exact() -> AbacusPolicy:
    return load_run()


@pytest.fixture(scope="module")
def known(exact: AbacusPolicy) -> npt.NDArray[np.int32]:
    """Observations of the exact policy in many runs; a trial does not reach far beyond them."""
    table = table_of(exact)
    solved(table, Exercises.draw(np.random.default_rng(9), 5_000, WORLD, (2, 3, 5, 10)), WORLD)
    return table.codes_of(np.arange(len(table)))


def of(*texts: str) -> Exercises:
    return Exercises.of([Exercise.parse(text) for text in texts])


def table_of(policy: Any, known: npt.NDArray[np.int32] | None = None) -> GreedyTable:
    table = GreedyTable(policy, WORLD.base, WORLD.frames)
    if known is not None:
        table.learn(known)
    return table


@dataclass
class Walk:
    """A run of the greedy policy: what it saw, what was legal, and what it did."""

    codes: npt.NDArray[np.int32]
    legal: npt.NDArray[np.bool_]
    actions: list[int]

    @classmethod
    def of(cls, policy: Any, exercise: Exercise | str) -> Walk:
        ((_, batch),) = of(str(exercise)).batches(WORLD)
        table = policy if isinstance(policy, GreedyTable) else table_of(policy)
        codes, legal = [], []
        actions: list[int] = []
        while not actions or batch.ends[0] == End.NONE:
            codes.append(codes_of(batch))
            legal.append(batch.masks[0].copy())
            actions.append(int(table.actions(batch)[0]))
            batch.step(np.array(actions[-1:]))
        return cls(np.array(codes, np.int32), np.array(legal), actions)


def codes_of(batch: AbacusBatch) -> list[int]:
    """Return the observation of the first abacus as frame codes, symbol and operation."""
    return [*batch.history[0], batch.scalars["symbol"][0], batch.scalars["operation"][0]]


def spoil(policy: Any, codes: npt.NDArray[np.int32], action: Action) -> Answers:
    """Return the answers of a policy that takes another action in one observation."""
    answers = answers_of(policy)
    wanted = shown_by(observation_arrays(WORLD.base, codes[None, :-2], codes[-2:-1], codes[-1:]))

    def spoilt(observations: Observations) -> npt.NDArray[np.float32]:
        scores = np.array(answers(observations), np.float32)
        here = (shown_by(observations) == wanted).all(axis=1)
        scores[here, action] = scores.max() + 1
        return scores

    return spoilt


def shown_by(observations: Observations) -> npt.NDArray[np.float32]:
    """Return observations as rows, without previous actions, which policies do not see."""
    return np.hstack([observations[key] for key in ("window", "symbol", "operation")])


def actions_by_code(practised: Practised) -> dict[tuple[int, ...], set[int]]:
    found: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for codes, action in zip(
        practised.codes.tolist(), practised.data.actions.tolist(), strict=True
    ):
        found[tuple(codes)].add(action)
    return found


def test_solved_exercises_are_found_in_their_places(exact: AbacusPolicy) -> None:
    """Widths are played one after the other; the answer is in the order of the exercises."""
    pool = of("10: 3 + 1", "4: 30 - 4", "10: 44 + 1", "2: 1 + 1 - 2", "4: 3 + 1")
    right, steps = solved(table_of(exact), pool, WORLD)
    assert right.tolist() == [True] * 5
    assert steps == sum(len(Walk.of(exact, pool[row]).actions) for row in range(5))
    start = Walk.of(exact, "10: 3 + 1").codes[0]
    spoilt = spoil(exact, start, Action.SUBMIT)
    right, fewer = solved(table_of(spoilt), pool, WORLD)
    # The first symbol is 1 here and in two others, of which one starts with another digit.
    assert right.tolist() == [False, True, True, True, False]
    assert fewer < steps


def test_solved_counts_as_a_network_call_at_every_step(exact: AbacusPolicy) -> None:
    pool = Exercises.draw(np.random.default_rng(0), 60, WORLD, (2, 3, 5))
    spoilt = spoil(exact, Walk.of(exact, pool[0]).codes[0], Action.SUBMIT)
    right, steps = solved(table_of(spoilt), pool, WORLD)
    slowly, counted = np.zeros(len(pool), np.bool_), 0
    for rows, batch in pool.batches(WORLD):
        outcome = direct_player(spoilt).run(batch, step_limit(batch.config, 3))
        slowly[rows] = outcome.solved == 3
        counted += int(outcome.scalars["steps"].sum())
    assert (right == slowly).all()
    assert 0 < (~right).sum() < len(pool)
    assert steps == counted


def test_an_exact_policy_clones_itself(exact: AbacusPolicy) -> None:
    pool = Exercises.draw(np.random.default_rng(0), 300, WORLD, (2, 3, 5, 10))
    table = table_of(exact)
    _, steps = solved(table, pool, WORLD)
    practised = practise(table, pool, WORLD)
    assert (practised.contested, practised.changed, practised.failing) == (0, 0, 0)
    # A state for each step of the runs.
    assert practised.states == steps
    data = practised.data
    with torch.no_grad():
        own = exact.log_probs(data.rows, data.masks).argmax(dim=1)
    assert torch.equal(own, data.actions)
    assert len(data) == len(practised.codes) > 1_000


def test_every_step_of_runs_and_trials_counts(exact: AbacusPolicy) -> None:
    texts = ("10: 13 + 4 - 11", "3: 6 + 5", "2: 0 + 0")
    table = table_of(exact)
    solved(table, of(*texts), WORLD)
    # A step of the run, and one of the abacus ahead of it, which tells how all trials of the policy
    # end. Nothing fails: the table is not changed and played again.
    expected = sum(2 * len(Walk.of(exact, text).actions) for text in texts)
    assert practise(table, of(*texts), WORLD).steps == PASSES * expected


@pytest.mark.parametrize(
    ("text", "step", "action"),
    [
        ("10: 3 + 1", 0, Action.SUBMIT),
        ("10: 3 + 1", 1, Action.SIGNPOST_RIGHT),
        ("10: 34 + 12", 7, Action.SUBMIT),
        ("10: 30 - 4", 4, Action.LEFT),
        ("3: 6 + 5", 0, Action.SIGNPOST_RIGHT),
    ],
)
def test_a_spoilt_observation_is_contested_and_corrected(
    exact: AbacusPolicy, known: npt.NDArray[np.int32], text: str, step: int, action: Action
) -> None:
    walk = Walk.of(exact, text)
    codes = walk.codes[step]
    assert walk.legal[step][action]
    assert walk.actions[step] != action
    spoilt = spoil(exact, codes, action)
    others = ("10: 13 + 4 - 11", "5: 33 - 12 + 7")
    assert solved(table_of(spoilt), of(text, *others), WORLD)[0].tolist() == [False, True, True]
    practised = practise(table_of(spoilt, known), of(text, *others), WORLD)
    assert practised.contested > 0
    assert practised.failing > 0
    assert practised.changed > 0
    actions = actions_by_code(practised)
    assert actions[tuple(codes.tolist())] == {walk.actions[step]}
    for other in others:
        kept = Walk.of(exact, other)
        for row, taken in zip(kept.codes.tolist(), kept.actions, strict=True):
            assert actions[tuple(row)] == {taken}


def test_what_follows_a_failure_is_practised(
    exact: AbacusPolicy, known: npt.NDArray[np.int32]
) -> None:
    """The run continues with the action that succeeds, to the end of the exercise."""
    walk = Walk.of(exact, "10: 3 + 1 - 2")
    spoilt = spoil(exact, walk.codes[0], Action.SUBMIT)
    assert len(Walk.of(spoilt, "10: 3 + 1 - 2").actions) == 1
    practised = practise(table_of(spoilt, known), of("10: 3 + 1 - 2"), WORLD)
    assert practised.states == len(walk.actions)
    assert (practised.contested, practised.changed, practised.failing) == (1, 1, 1)
    actions = actions_by_code(practised)
    for row, taken in zip(walk.codes.tolist(), walk.actions, strict=True):
        assert actions[tuple(row)] == {taken}


def test_two_mistakes_in_a_row_are_corrected_by_two_actions(
    exact: AbacusPolicy, known: npt.NDArray[np.int32], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One right action leads to the next mistake: alone it never succeeds."""
    text = "10: 3 + 1"
    walk = Walk.of(exact, text)
    spoilt = spoil(spoil(exact, walk.codes[0], Action.SUBMIT), walk.codes[1], Action.SUBMIT)
    practised = practise(table_of(spoilt, known), of(text), WORLD)
    assert practised.failing == practised.contested == 1
    # The second one is met only after the first is corrected.
    assert (practised.changed, practised.left) == (2, 0)
    actions = actions_by_code(practised)
    assert actions[tuple(walk.codes[0].tolist())] == {walk.actions[0]}
    assert actions[tuple(walk.codes[1].tolist())] == {walk.actions[1]}
    alone = practise(table_of(spoilt, known), of(text), WORLD, {"two-actions"})
    monkeypatch.setattr(practice, "FEW_CONTESTED", 0)
    practised = practise(table_of(spoilt, known), of(text), WORLD)
    for found in (alone, practised):
        assert (found.changed, found.left, len(found.data)) == (0, 1, 0)


def test_the_best_of_the_tables_is_cloned(
    exact: AbacusPolicy, known: npt.NDArray[np.int32], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that makes things worse is neither cloned nor kept in the table."""
    walk = Walk.of(exact, "10: 3 + 1 - 2")
    table = table_of(spoil(exact, walk.codes[0], Action.SUBMIT), known)
    prefer, calls = GreedyTable.prefer, 0

    def then_spoil(self: GreedyTable, rows: Any, actions: Any) -> None:
        nonlocal calls
        calls += 1
        prefer(self, rows, actions)
        # A change is made in two calls, one for each context.
        if calls > 2:
            prefer(self, self.known_rows(walk.codes[:1]), np.array([Action.DOWN]))

    judge = practice._judge
    judged: list[Any] = []

    def never_done(*given: Any) -> Any:
        judged.append(judge(*given)._replace(failing=[5, 1, 9, 9][min(len(judged), 3)]))
        return judged[-1]

    monkeypatch.setattr(GreedyTable, "prefer", then_spoil)
    monkeypatch.setattr(practice, "_judge", never_done)
    monkeypatch.setattr(practice, "IMPROVEMENTS", 4)
    practised = practise(table, of("10: 3 + 1 - 2"), WORLD)
    assert (practised.failing, practised.left) == (5, 1)
    actions = actions_by_code(practised)
    for row, taken in zip(walk.codes.tolist(), walk.actions, strict=True):
        assert actions[tuple(row)] == {taken}
    right, _ = solved(table, of("10: 3 + 1 - 2"), WORLD)
    assert right.all()


def test_changes_that_never_help_are_undone_at_the_end(
    exact: AbacusPolicy, known: npt.NDArray[np.int32], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"10: {start} + {operand}" for start in (0, 1, 2) for operand in (1, 2)]
    policy: Any = exact
    for text in texts:
        policy = spoil(policy, Walk.of(exact, text).codes[0], Action.SUBMIT)
    table = table_of(policy, known)
    before = table.scores_at(np.arange(len(table)))
    judge, prefer = practice._judge, GreedyTable.prefer
    changes: list[int] = []
    judged: list[Any] = []

    def not_better(*given: Any) -> Any:
        judged.append(judge(*given))
        return judged[0]

    def note_change(self: GreedyTable, rows: Any, actions: Any) -> None:
        changes.append(len(rows))
        prefer(self, rows, actions)

    monkeypatch.setattr(practice, "_judge", not_better)
    monkeypatch.setattr(practice, "IMPROVEMENTS", 9)
    monkeypatch.setattr(GreedyTable, "prefer", note_change)
    practise(table, of(*texts), WORLD)
    # Eight changes, each in two calls, one for each context.
    assert len(changes) == 16
    assert sum(changes[:2]) > 2
    np.testing.assert_array_equal(table.scores_at(np.arange(len(before))), before)


@pytest.mark.parametrize("step", [12, 27, 29, 35])
def test_a_run_continues_in_the_shortest_way_that_succeeds(
    exact: AbacusPolicy, known: npt.NDArray[np.int32], step: int
) -> None:
    """A detour succeeds too: the frames before are others, so that the spoilt one is not met."""
    text = "5: 33 - 12 + 7"
    walk = Walk.of(exact, text)
    spoilt = spoil(exact, walk.codes[step], Action.SUBMIT)
    practised = practise(table_of(spoilt, known), of(text), WORLD)
    assert practised.failing > 0
    assert practised.states == len(walk.actions)


def test_an_edge_out_of_view_is_a_context_of_its_own(exact: AbacusPolicy) -> None:
    """An observation is listed with what looks legal, and with what is legal at all such edges."""
    pool = Exercises.draw(np.random.default_rng(1), 90, WORLD, (2, 3, 4), 0.6)
    table = table_of(exact)
    practised = practise(table, pool, WORLD)
    illegal = visibly_illegal_actions(WORLD.base)
    expected: dict[tuple[tuple[int, ...], bool], npt.NDArray[np.bool_]] = {}
    for row in range(len(pool)):
        walk = Walk.of(table, pool[row])
        for codes, legal in zip(walk.codes.tolist(), walk.legal, strict=True):
            looks = ~illegal[codes[-3]]
            edge = bool((looks & ~legal).any())
            key = tuple(codes), edge
            expected[key] = expected.get(key, looks) & (legal if edge else looks)
    found = {}
    masks, actions = practised.data.masks.numpy(), practised.data.actions.tolist()
    for codes, mask, action in zip(practised.codes.tolist(), masks, actions, strict=True):
        assert mask[action]
        found[tuple(codes), bool((~illegal[codes[-3]] & ~mask).any())] = mask
    assert len(found) == len(practised.codes)
    assert found.keys() == expected.keys()
    for key, mask in expected.items():
        np.testing.assert_array_equal(found[key], mask)
    # One of them is met in both contexts.
    assert len({codes for codes, _ in found}) < len(found)


def test_observations_that_are_new_are_added_to_the_table(exact: AbacusPolicy) -> None:
    """Those of runs, and those that only trials meet."""
    walk = Walk.of(exact, "10: 3 + 1")
    table = table_of(spoil(exact, walk.codes[0], Action.SUBMIT))
    practised = practise(table, of("10: 3 + 1", "5: 33 - 12 + 7"), WORLD)
    assert (table.known_rows(practised.codes) != EMPTY).all()
    ((_, start),) = of("10: 3 + 1").batches(WORLD)
    tried = 0
    for action in np.flatnonzero(walk.legal[0]):
        batch = copy.deepcopy(start)
        batch.step(np.array([action]))
        if batch.ends[0] == End.NONE:
            after = np.array([codes_of(batch)], np.int32)
            assert table.known_rows(after)[0] != EMPTY
            tried += 1
    assert tried > 1


Key = tuple[tuple[int, ...], bool]


@dataclass
class Tally:
    """What slow practice counts for an observation in a context."""

    legal: npt.NDArray[np.bool_]
    scores: npt.NDArray[np.float32]
    states: int = 0
    solved: int = 0
    tried: Counter[Action] = field(default_factory=Counter)
    succeeded: Counter[Action] = field(default_factory=Counter)
    steps: Counter[Action] = field(default_factory=Counter)
    #: Other actions that succeeded where the policy's own failed.
    rescues: set[Action] = field(default_factory=set)

    @property
    def own(self) -> Action:
        return Action(int(np.where(self.legal, self.scores, -np.inf).argmax()))

    def success(self, action: Action) -> float:
        if not self.legal[action] or not self.tried[action]:
            return -1.0
        return (self.succeeded[action] - STEP * self.steps[action]) / self.tried[action]

    def value(self, action: Action) -> float:
        """Return the success of an action, 0 if it was not tried."""
        return max(self.success(action), 0.0) if self.tried else float(action == self.own)

    def taken(self, preferred: Action) -> Action:
        """Return the action that is taken if one is preferred: the best one if that is illegal."""
        return preferred if self.legal[preferred] else max(Action, key=self.value)


def to_clone(tallies: dict[Key, Tally], contested: set[Key]) -> tuple[dict[Key, Action], set[Key]]:
    """Return the actions that are to be cloned, and where they are not those of the policy.

    Both contexts of an observation share the order of actions.
    """
    actions, changed = {}, set()
    for codes in {codes for codes, _ in tallies}:
        keys = [key for key in ((codes, False), (codes, True)) if key in tallies]
        open_keys = [key for key in keys if key in contested]
        legal = tallies[keys[0]].legal

        def total(action: Action, keys: list[Key] = keys) -> float:
            parts = (tallies[key] for key in keys)
            return sum(each.states * each.value(each.taken(action)) for each in parts)

        best = max((action for action in Action if legal[action]), key=total)
        own = sum(tallies[key].states * tallies[key].value(tallies[key].own) for key in keys)
        enough = BETTER * sum(tallies[key].states for key in open_keys)
        replaced = bool(open_keys) and total(best) > own + enough
        for key in keys:
            tally = tallies[key]
            action = tally.taken(best) if replaced else tally.own
            if action != tally.own:
                changed.add(key)
            if key not in contested or tally.value(action) > LEAST:
                actions[key] = action
    return actions, changed


class SlowPractice:
    """Practice as its module describes it, on the slow reference implementation of the abacus.

    It knows the scores of every observation in advance, so that a pass finds what is contested and
    another one counts.
    """

    def __init__(
        self, answers: Answers, world: AbacusConfig, longest: int, following: bool
    ) -> None:
        self.answers, self.world, self.longest = answers, world, longest
        self.following = following
        self.contested: set[Key] = set()
        self.tallies: dict[Key, Tally] = {}
        #: Of every observation that a run or a trial met.
        self.scores: dict[tuple[int, ...], npt.NDArray[np.float32]] = {}

    def play(self, exercises: Sequence[Exercise]) -> None:
        for _ in range(2):
            self.tallies = {}
            for exercise in sorted(exercises, key=lambda each: each.columns):
                self.run(exercise)

    def run(self, exercise: Exercise) -> None:
        abacus = slow_abacus(exercise, self.world)
        first_failing, way_out, failing = abacus, Action.LEFT, 0
        while abacus.end == End.NONE and abacus.steps < self.longest:
            own, succeeded, rescue = self.practise(abacus)
            if not self.following:
                abacus.step(own if succeeded else rescue)
                continue
            if not succeeded and not failing and rescue != own:
                first_failing, way_out = copy.deepcopy(abacus), rescue
                failing = 1
            elif failing:
                failing = 0 if succeeded else failing + 1
            abacus.step(own)
            if failing and (abacus.end != End.NONE or failing == practice.LONGEST_FAILURE):
                abacus, failing = first_failing, 0
                abacus.step(way_out)

    def practise(self, abacus: SlowAbacus) -> tuple[Action, bool, Action]:
        """Try actions in a state; return the policy's, whether it succeeds, and one that does."""
        codes, legal = slow_codes(abacus), np.array(abacus.mask)
        looks = ~visibly_illegal_actions(self.world.base)[codes[-3]]
        key = codes, bool((looks & ~legal).any())
        tally = self.tallies.setdefault(key, Tally(looks, self.scores_of(codes)))
        if key[1]:
            tally.legal = tally.legal & legal
        own = self.own(abacus)
        succeeded, length = self.trial(abacus, own)
        tally.states += 1
        tally.solved += succeeded
        if not succeeded:
            self.contested.add(key)
        if succeeded and not {(codes, False), (codes, True)} & self.contested:
            return own, True, own
        results = {own: (succeeded, length)}
        results |= {
            action: self.trial(abacus, action)
            for action in Action
            if legal[action] and action != own
        }
        for action, (right, steps) in results.items():
            tally.tried[action] += 1
            tally.succeeded[action] += right
            tally.steps[action] += steps
        if succeeded:
            return own, True, own
        rescues = [action for action, (right, _) in results.items() if right]
        tally.rescues |= set(rescues)
        shortest = min(rescues, key=lambda action: (results[action][1], action), default=own)
        return own, False, shortest

    def trial(self, abacus: SlowAbacus, action: Action) -> tuple[bool, int]:
        """Take an action wherever this observation is met; return the success and the steps."""
        here, submits = slow_codes(abacus), 0
        copied = copy.deepcopy(abacus)
        copied.steps, copied.budget = 0, 10**9
        met: set[Any] = set()
        for step in range(MOST_STEPS):
            state = (*copied.digits, copied.finger_column, copied.signpost, slow_codes(copied))
            if (state, submits) in met:
                # It moves in a circle.
                break
            met.add((state, submits))
            given = slow_codes(copied) == here and copied.mask[action]
            chosen = action if given else self.own(copied)
            copied.step(chosen)
            if copied.end != End.NONE:
                return copied.end in (End.LIMIT, End.CAPACITY, End.EXPRESSION), step + 1
            submits += chosen == Action.SUBMIT
            if submits == SUBMITS:
                return True, step + 1
        return False, MOST_STEPS

    def own(self, abacus: SlowAbacus) -> Action:
        scores = self.scores_of(slow_codes(abacus))
        return Action(int(np.where(abacus.mask, scores, -np.inf).argmax()))

    def scores_of(self, codes: tuple[int, ...]) -> npt.NDArray[np.float32]:
        if codes not in self.scores:
            row = np.array([codes], np.int32)
            seen = observation_arrays(self.world.base, row[:, :-2], row[:, -2], row[:, -1])
            self.scores[codes] = self.answers(seen)[0]
        return self.scores[codes]


def slow_codes(abacus: SlowAbacus) -> tuple[int, ...]:
    window = np.concatenate(abacus.frames, axis=None)[np.newaxis]
    codes = window_codes(abacus.base, window)[0].tolist()
    return *codes, abacus.symbol, abacus.operation


def planned_policy(world: AbacusConfig, wrong: float) -> Answers:
    """Return a policy that does as planned, but for a part of the observations."""
    planner, rng = Planner(world), np.random.default_rng(1)
    labels = planner.labels(planner.plan(Exercises.draw(rng, 60, world, (2, 3))))
    rows = labels.rows.numpy()
    known = {row.tobytes(): int(a) for row, a in zip(rows, labels.actions, strict=True)}
    weights = rng.normal(size=(rows.shape[1], ACTIONS + 1))

    def answers(observations: Observations) -> npt.NDArray[np.float32]:
        rows = np.hstack(list(observations.values()))
        arbitrary = rows @ weights % 1.0
        scores = arbitrary[:, :ACTIONS].astype(np.float32)
        for row, score, luck in zip(rows, scores, arbitrary[:, ACTIONS], strict=True):
            if luck > wrong and row.tobytes() in known:
                score[known[row.tobytes()]] += 1
        return scores

    return answers


@pytest.mark.parametrize("following", [True, False])
@pytest.mark.parametrize(
    ("level", "frames", "wrong"),
    [("no_of", 2, 0.05), ("dense", 1, 0.0), ("no_of_sp_ms", 1, 0.0), ("answer_only", 1, 0.1)],
)
def test_practice_is_as_its_description_says(
    level: str, frames: int, wrong: float, following: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the success over all states that meet an observation, here tallied slowly."""
    longest = 40
    monkeypatch.setattr(practice, "LONGEST_RUN", longest)
    # All states are tried, not a random part of them, and the table is changed once.
    monkeypatch.setattr(practice, "TRIALS", 10**6)
    monkeypatch.setattr(practice, "IMPROVEMENTS", 1)
    world = replace(SMALL, reward=level, frames=frames)
    policy = planned_policy(world, wrong)
    pool = Exercises.draw(np.random.default_rng(2), 24, world, (2, 3))
    slow = SlowPractice(policy, world, longest, following)
    slow.play([pool[row] for row in range(len(pool))])
    tallies, contested = slow.tallies, slow.contested
    table = GreedyTable(policy, world.base, world.frames)
    table.learn(np.array(list(slow.scores), np.int32))
    practised = practise(table, pool, world, () if following else {"following"})
    assert practised.states == sum(each.states for each in tallies.values())
    assert practised.failing == sum(each.states - each.solved for each in tallies.values())
    assert practised.contested == len(contested) > 0
    expected, changed = to_clone(tallies, contested)
    assert practised.changed == len(changed) > 0
    found = {}
    masks, actions = practised.data.masks.numpy(), practised.data.actions.tolist()
    for codes, mask, action in zip(practised.codes.tolist(), masks, actions, strict=True):
        edge = bool((~visibly_illegal_actions(world.base)[codes[-3]] & ~mask).any())
        found[tuple(codes), edge] = action
    assert found == expected
    if frames == 1 and not wrong:
        # A policy of one frame takes the wrong action in some states only: another one replaces it
        # in some observations, or does not though it succeeds in some states.
        replaced = any(tallies[key].succeeded[tallies[key].own] for key in changed)
        assert replaced or any(tallies[key].rescues for key in contested - changed)


def test_a_few_states_that_succeed_stand_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that fail are all tried, and would outweigh the others if each counted as much."""
    world = replace(SMALL, reward="no_of", frames=1)
    policy = planned_policy(world, 0.0)
    pool = Exercises.draw(np.random.default_rng(2), 1_500, world, (2, 3, 4))
    monkeypatch.setattr(practice, "IMPROVEMENTS", 1)
    monkeypatch.setattr(practice, "ALL_TRIALS", 0)
    few = practise(GreedyTable(policy, world.base, world.frames), pool, world)
    monkeypatch.setattr(practice, "TRIALS", 10**6)
    every = practise(GreedyTable(policy, world.base, world.frames), pool, world)
    assert few.data.digest == every.data.digest
    assert (few.contested, few.changed) == (every.contested, every.changed)
    assert few.steps < every.steps


def test_both_contexts_of_an_observation_share_the_order_of_actions(exact: AbacusPolicy) -> None:
    """What succeeds in most states is preferred, and where an edge forbids it, the next best."""
    rows, at_edge = np.array([0, 0]), np.array([False, True])
    left, submit, signpost = int(Action.LEFT), int(Action.SUBMIT), int(Action.SIGNPOST_LEFT)
    legal = np.ones((2, ACTIONS), np.bool_)
    legal[1, signpost] = False
    own = np.array([submit, submit])
    contested = np.array([False, True])
    success = np.zeros((2, ACTIONS))
    success[0, submit] = success[1, left] = 1.0

    def better(states: list[int]) -> list[int]:
        entries = at_edge, legal, own, contested, success
        found = practice._jointly_better(rows, np.array(states, np.int32), entries)
        return [int(action) for action in found]

    assert better([57, 2]) == [submit, submit]
    assert better([2, 57]) == [left, left]
    # An action that the edge forbids leaves the other context free.
    success[0, signpost] = 1.0
    assert better([57, 2]) == [signpost, left]

    walk = Walk.of(exact, "10: 3 + 1")
    table = table_of(exact, walk.codes[:1])
    judged = practice._Judged(
        *(table.known_rows(walk.codes[[0, 0]]), np.array([0, 1]), walk.codes[[0, 0]], legal, own),
        *(np.array([signpost, left]), contested, contested, 59, 2),
    )
    practice._change(table, judged)
    scores = table.scores_at(judged.rows)
    assert np.where(legal, scores, -np.inf).argmax(axis=1).tolist() == [signpost, left]


def test_an_edge_may_forbid_what_the_policy_prefers() -> None:
    """There its own action is another one, of which the run ahead does not tell the trial."""
    # The compiled function has no wrapper for Python.
    forbids_better = practice._forbids_better.py_func
    scores = np.zeros((2, ACTIONS), np.float32)
    scores[1, Action.SIGNPOST_LEFT], scores[1, Action.SUBMIT] = 3.0, 2.0
    nothing, every = np.zeros(ACTIONS, np.bool_), (1 << ACTIONS) - 1
    own = np.int64(Action.SUBMIT)
    at_edge = np.int64(every & ~(1 << Action.SIGNPOST_LEFT))
    assert forbids_better(scores, 1, own, at_edge, nothing)
    # The edge is in view: the observation is never met where the action is legal.
    in_view = np.eye(ACTIONS, dtype=np.bool_)[Action.SIGNPOST_LEFT]
    assert not forbids_better(scores, 1, own, at_edge, in_view)
    assert not forbids_better(scores, 1, own, np.int64(every), nothing)
    scores[1, Action.SIGNPOST_LEFT] = 1.0
    assert not forbids_better(scores, 1, own, at_edge, nothing)
