"""Practice: play exercises, try other actions where the policy fails, and say what is to be cloned.

The judge is the environment: from a state, a policy *succeeds* if it makes two right submits, or
ends the exercise. Where it fails, every other action is tried in the same state, by a copy of the
abacus that follows the policy afterwards. An observation from which some state fails is
*contested*: there all actions are tried in many states that meet it, and the one that succeeds most
often replaces the policy's own. The exercises are then played again by the changed table, because
what is best in one observation depends on what is done in others. The best of these tables is
cloned. Where no action does better and few observations are contested, two actions in a row are
tried: some mistakes are avoided by nothing less, such as a step that only serves to remember that a
digit was written.

A policy without memory cannot tell all states apart. What counts for an observation is therefore
the success over all states in which the policy itself meets it, also where an edge out of view
forbids some actions: the policy prefers one order of actions in both cases. From the first state
that fails, a run is followed to its failure, so that everything on the way is tried, and then
resumed from that state with an action that succeeds if there is one, so that it meets what comes
afterwards.
All of this runs in compiled code on the scores of a `GreedyTable`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled, compiled_inline
from abacus.hash_index import EMPTY
from abacus.kernel import ACTIONS, END_NONE, SUBMIT, advance, is_legal, legal_actions
from abacus.observation import visibly_illegal_actions
from abacus.rules import AbacusConfig
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import Exercises
from pipelines.learning.planning import copy_abacus, ended_well
from pipelines.scoring.operations import step_limit
from pipelines.scoring.players import GreedyTable, best_actions, best_legal, find_row

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Right submits after which a trial has succeeded, and steps after which it has failed.
SUBMITS, MOST_STEPS = 2, 100
#: Steps of a run, beyond which nothing is practised, and of its way to a failure.
LONGEST_RUN, LONGEST_FAILURE = 600, 40
#: Abaci of a batch beside those of its exercises: one that keeps the first state from which a run
#: fails, one that follows the policy ahead of a run, and the last one for trials.
SPARE = 3
#: States with success in which the other actions of a contested observation are tried, chosen at
#: random among all; each counts for those that were not chosen. States that fail are all tried.
TRIALS = 16
#: Such states of all contested observations: where few are contested, each is tried more often.
ALL_TRIALS = 100_000
#: With at most this many contested observations, two actions in a row are tried.
FEW_CONTESTED = 600
#: What may follow a tried action: the policy, or one of all actions.
FOLLOWED = 1 + ACTIONS
#: Times that the exercises are played before the table is changed: to meet all observations and to
#: find those that are contested, then to try.
PASSES = 2
#: Times that the exercises are played to improve the table, at most.
IMPROVEMENTS = 30
#: By how much another action must succeed more often to replace the policy's own, the least
#: success of an action that is cloned, and what a step of a trial counts against its success.
BETTER, LEAST, STEP = 0.02, 0.02, 1e-4
#: Observations of all exercises, and new ones of a pass, at most.
MOST_ROWS, MOST_NEW = 1 << 20, 500_000
#: Contexts of an observation: all actions that look legal are, or an edge out of view forbids some.
CONTEXTS = 2
UNKNOWN, FAILS, SUCCEEDS = -1, 0, 1
#: Status of the abacus ahead of a run while it has neither ended nor met an unknown observation.
RUNNING = 2


class _Counts(NamedTuple):
    """What was counted for each row of the table and context."""

    states: Any  # (rows, 2): states that met it
    solved: Any  # (rows, 2): those from which the policy succeeds
    #: (rows, 2): probability that other actions are tried in a state from which the policy
    #: succeeds; 0 where nothing is contested.
    chances: Any
    legal: Any  # (rows,): bits of the actions that were legal in all states of context 1
    followed: Any  # (1,): FOLLOWED where two actions are tried, otherwise 1
    to_failure: Any  # (1,): whether a failing run is followed to its failure
    places: Any  # (rows, 2): where trials are counted, 0 for what was not known to be contested
    tried: Any  # (places, 8, FOLLOWED): weights of the trials
    succeeded: Any  # (places, 8, FOLLOWED): weights of those that succeeded
    steps: Any  # (places, 8, FOLLOWED): their steps, weighted

    @classmethod
    def none(
        cls,
        to_failure: bool,
        contested: Any = None,
        solved: Any = None,
        two_actions: bool = False,
    ) -> _Counts:
        """Return empty counts, with places and chances for what is known to be contested."""
        one = MOST_ROWS, CONTEXTS
        chances, places = np.zeros(one, np.float32), np.zeros(one, np.int32)
        known = 0
        if contested is not None:
            known = int(contested.sum())
            trials = max(TRIALS, ALL_TRIALS // max(known, 1))
            chances[contested] = trials / np.maximum(solved[contested], trials)
            places[contested] = 1 + np.arange(known)
        trial = known + 1, ACTIONS, FOLLOWED
        return cls(
            np.zeros(one, np.int32),
            np.zeros(one, np.int32),
            chances,
            np.full(MOST_ROWS, (1 << ACTIONS) - 1, np.int64),
            np.array([FOLLOWED if two_actions and known <= FEW_CONTESTED else 1]),
            np.array([to_failure]),
            places,
            np.zeros(trial, np.float32),
            np.zeros(trial, np.float32),
            np.zeros(trial, np.float32),
        )

    def restarted(self, two_actions: bool) -> _Counts:
        """Return empty counts, with places and chances for observations that are contested."""
        contested = self.contested.any(axis=1, keepdims=True) & (self.states > 0)
        return self.none(bool(self.to_failure[0]), contested, self.solved, two_actions)

    @property
    def contested(self) -> npt.NDArray[np.bool_]:
        """(rows, 2): whether the policy fails from a state."""
        contested: npt.NDArray[np.bool_] = self.solved < self.states
        return contested


@dataclass(frozen=True)
class Practised:
    """What is to be cloned after practice, and how it went."""

    data: CloningSet
    #: Observations of the data, as rows of frame codes, symbol and operation.
    codes: npt.NDArray[np.int32]
    #: States that the runs met, and those from which the policy fails.
    states: int
    failing: int
    #: Contested observations, and how often the action of one was changed.
    contested: int
    changed: int
    #: States from which the changed table still fails.
    left: int
    #: Environment steps.
    steps: int


class _Judged(NamedTuple):
    """How a table does: for each of its rows and contexts, what it does and what does better."""

    rows: npt.NDArray[np.int64]  # (N,)
    context: npt.NDArray[np.int64]  # (N,)
    codes: npt.NDArray[np.int32]  # (N, frames + 2)
    legal: npt.NDArray[np.bool_]  # (N, 8)
    own: npt.NDArray[np.int64]  # (N,): the table's action
    better: npt.NDArray[np.int64]  # (N,): the action that is to replace it, or the same
    contested: npt.NDArray[np.bool_]  # (N,)
    kept: npt.NDArray[np.bool_]  # (N,): where some action succeeds
    states: int
    failing: int

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """(N,): where another action is to replace the table's."""
        changed: npt.NDArray[np.bool_] = self.better != self.own
        return changed

    @property
    def failure_rate(self) -> float:
        """Failing states in proportion to all: a table that gets further meets more of them."""
        return self.failing / max(self.states, 1)


def solved(
    table: GreedyTable, exercises: Exercises, world: AbacusConfig
) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which exercises the greedy policy solves, and the environment steps of all runs."""
    found, steps = np.zeros(len(exercises), np.bool_), 0
    for which, batch in exercises.batches(world):
        limit = step_limit(batch.config, batch.config.max_operations or 1)
        outcome = table.run(batch, limit)
        found[which] = outcome.solved == outcome.scalars["program_count"]
        steps += int(outcome.scalars["steps"].sum())
    return found, steps


def practise(
    table: GreedyTable,
    exercises: Exercises,
    world: AbacusConfig,
    without: Collection[str] = (),
) -> Practised:
    """Play exercises, try other actions where the policy of the table fails; return what to clone.

    Observations that the policy meets for the first time are added to the table, and changed
    actions are written into it. Parts `without` are left out: "following", "two-actions" (see
    `MendingSettings`).
    """
    steps, random = np.zeros(1, np.int64), np.ones(1, np.uint64)
    tally, two_actions = (steps, random), False

    def play_and_judge(two_actions: bool) -> _Judged:
        counts = _Counts.none("following" not in without)
        return _judge(table, _play(table, exercises, world, tally, counts, two_actions), world)

    first = best = judged = play_and_judge(False)
    before = scores = table.scores_at(np.arange(len(table)))
    for _ in range(1, IMPROVEMENTS):
        if not best.failing or (two_actions and not judged.changed.any()):
            break
        _change(table, judged)
        # If no single action does better, the first of two is tried; the second is found later.
        two_actions = not judged.changed.any()
        if two_actions and "two-actions" in without:
            break
        judged = play_and_judge(two_actions)
        if judged.failure_rate < best.failure_rate:
            best = judged
            scores = table.scores_at(np.arange(len(table)))
    table.restore(scores)
    if best is first:
        # No change made the table better: the first changes are tried in the network.
        actions, changed = first.better, int(first.changed.sum())
    else:
        actions = best.own
        changed = int((best_actions(scores[: len(before)]) != best_actions(before)).sum())
    kept = best.kept
    return Practised(
        CloningSet.of_codes(world.base, best.codes[kept], actions[kept], best.legal[kept]),
        best.codes[kept],
        first.states,
        first.failing,
        int(first.contested.sum()),
        changed,
        best.failing,
        int(steps[0]),
    )


def _play(
    table: GreedyTable,
    exercises: Exercises,
    world: AbacusConfig,
    tally: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]],
    counts: _Counts,
    two_actions: bool,
) -> _Counts:
    """Play exercises in several passes; return the counts of the last one.

    `tally` has the environment steps so far, and the state of the random numbers; `counts` are
    empty.
    """
    for number in range(PASSES):
        if number:
            counts = counts.restarted(two_actions)
        new = np.zeros((MOST_NEW, world.frames + 2), np.int32), np.zeros(1, np.int64)
        for _, batch in exercises.batches(world, SPARE):
            _practise_batch(table, batch, (counts, new, *tally))
        codes = np.unique(new[0][: new[1][0]], axis=0)
        table.learn(codes[table.known_rows(codes) == EMPTY])
        if len(table) > MOST_ROWS:
            raise ValueError(f"more than {MOST_ROWS:,} observations: give fewer exercises")
    return counts


def _practise_batch(table: GreedyTable, batch: AbacusBatch, practice: Any) -> None:
    """Practise the exercises of a batch, whose last abaci are spare ones."""
    illegal = visibly_illegal_actions(table.base)
    waiting = np.arange(batch.num_envs - SPARE, dtype=np.int32)
    table.run_waiting(_practise, batch, waiting, LONGEST_RUN, illegal, practice)


def _judge(table: GreedyTable, counts: _Counts, world: AbacusConfig) -> _Judged:
    """Return how the table does in the last pass, and which actions do better."""
    rows, context = np.nonzero(counts.states[: len(table)])
    codes = table.codes_of(rows)
    legal = ~visibly_illegal_actions(world.base)[codes[:, -3]]
    bits = counts.legal[rows, None] >> np.arange(ACTIONS) & 1
    legal &= (context == 0)[:, None] | (bits == 1)
    own = best_actions(np.where(legal, table.scores_at(rows), -np.inf))
    places = counts.places[rows, context]
    # Few rows are contested and have a place of their own: the rest is computed once.
    success = counts.succeeded - STEP * counts.steps
    success = np.where(counts.tried > 0, success / np.maximum(counts.tried, 1), -1.0).max(axis=2)
    success = np.where(legal, np.maximum(success[places], 0.0), 0.0)
    # Without trials, nothing better than the table's action is known.
    untried = places == 0
    success[untried] = np.eye(ACTIONS)[own[untried]]
    contested, every = counts.contested[rows, context], np.arange(len(rows))
    better = _jointly_better(
        rows, counts.states[rows, context], (context == 1, legal, own, contested, success)
    )
    states = int(counts.states.sum())
    return _Judged(
        rows,
        context,
        codes,
        legal,
        own,
        better,
        contested,
        # An observation in which nothing succeeds has no right action.
        ~contested | (success[every, better] > LEAST),
        states,
        states - int(counts.solved.sum()),
    )


def _jointly_better(
    rows: npt.NDArray[np.int64], states: npt.NDArray[np.int32], entries: tuple[Any, ...]
) -> npt.NDArray[np.int64]:
    """Return the action of each row and context that succeeds most often, or the table's own.

    Both contexts of a row share the order of actions: the one that is preferred is taken in both,
    unless an edge forbids it in the second.
    """
    at_edge, legal, own, contested, success = entries
    every = np.arange(len(rows))
    distinct, index = np.unique(rows, return_inverse=True)
    # Where the preferred action is forbidden, the best of the others is taken.
    otherwise = success.max(axis=1, keepdims=True)
    with_both = np.bincount(index)[index] > 1
    taken = np.where(legal, success, np.where((at_edge & with_both)[:, None], otherwise, -np.inf))
    values = np.zeros((len(distinct), ACTIONS))
    np.add.at(values, index, states[:, None] * taken)
    present = np.bincount(index, states * success[every, own])
    enough = BETTER * np.bincount(index, states * contested)
    best = values.argmax(axis=1)
    replaced = (values.max(axis=1) > present + enough) & (np.bincount(index, contested) > 0)
    preferred = best[index]
    preferred = np.where(legal[every, preferred], preferred, success.argmax(axis=1))
    better: npt.NDArray[np.int64] = np.where(replaced[index], preferred, own)
    return better


def _change(table: GreedyTable, judged: _Judged) -> None:
    """Let the table prefer the better actions.

    What is preferred last is first in the order: where an edge forbids it, the other one is taken.
    """
    chosen = np.isin(judged.rows, judged.rows[judged.changed])
    for context in (1, 0):
        entries = chosen & (judged.context == context)
        table.prefer(judged.rows[entries], judged.better[entries])


@compiled
def _try(rules, world, program, results, source, table, row, action, second, steps):
    """Take an action wherever a row is met, otherwise follow the table, in a copy of an abacus.

    After the action comes a second one, unless that is negative. Return whether it succeeds, and
    the number of steps. The copy is the last abacus.
    """
    slots, codes, scores = table
    scalars, cells, history = world
    copy = np.int64(len(scalars) - 1)
    copy_abacus(world, source, copy)
    s, result = scalars[copy], results[copy]
    submits, here, wanted = 0, np.int64(row), action
    for step in range(MOST_STEPS):
        digit = cells[copy, s.finger_column].digit
        chosen = wanted
        if wanted < 0 or not is_legal(rules, s, digit, wanted):
            if here == EMPTY:
                return UNKNOWN, step
            chosen = np.int64(best_legal(rules, s, digit, scores, here))
        s.steps, s.budget = 0, 1 << 30
        advance(rules, s, cells, history, program, copy, chosen, result)
        steps[0] += 1
        if result.end != END_NONE:
            return SUCCEEDS if ended_well(result.end) else FAILS, step + 1
        submits += chosen == SUBMIT
        if submits == SUBMITS:
            return SUCCEEDS, step + 1
        first = here == row and wanted == action
        here = np.int64(find_row(slots, codes, s, history, copy))
        wanted = second if first else np.int64(-1)
        if here == row and wanted < 0:
            wanted = action
    return FAILS, MOST_STEPS


@compiled_inline
def _note_new(world, new, abacus):
    """Note the observation of an abacus, which is not in the table."""
    scalars, _, history = world
    codes, count = new
    frames = history.shape[1]
    if count[0] < len(codes):
        for k in range(frames):
            codes[count[0], k] = history[abacus, k]
        codes[count[0], frames] = scalars[abacus].symbol
        codes[count[0], frames + 1] = scalars[abacus].operation
        count[0] += 1


@compiled_inline
def _forbids_better(scores, row, own, legal, seen_illegal):
    """Return whether an edge out of view forbids what the policy prefers to its own action."""
    for k in range(ACTIONS):
        if not (seen_illegal[k] or legal >> k & 1) and scores[row, k] >= scores[row, own]:
            return True
    return False


@compiled_inline
def _is_chosen(random, chance):
    """Return whether a random number (SplitMix64) is below a probability."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = (random[0] ^ random[0] >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.float64((mixed ^ mixed >> np.uint64(31)) >> np.uint64(11)) < chance * 2.0**53


@compiled_inline
def _count_trial(counts, place, action, second, outcome, length, weight):
    counts.tried[place, action, 1 + second] += weight
    counts.succeeded[place, action, 1 + second] += weight * outcome
    counts.steps[place, action, 1 + second] += weight * length


@compiled
def _practise(
    all_rules, world, program, results, waiting, slots, codes, scores, max_steps, illegal, practice
):
    """Run waiting abaci until they end or meet a new observation; return how many are left."""
    counts, new, steps, random = practice
    rules = all_rules[0]
    scalars, cells, history = world
    table = slots, codes, scores
    newest, left = history.shape[1] - 1, 0
    first_failing = np.int64(len(scalars) - SPARE)
    ahead, last = first_failing + 1, first_failing + 2
    state_ahead = scalars[ahead]
    # Steps from where the abacus ahead set out to its last submits.
    submitted = np.zeros(SUBMITS, np.int64)
    for place in range(len(waiting)):
        i = np.int64(waiting[place])
        s, result = scalars[i], results[i]
        # Of the way to a failure: its steps, and the action that succeeds where it begins.
        failing, rescue = 0, np.int64(-1)
        # Steps and submits of the run and of the abacus ahead of it.
        status, steps_made, steps_ahead, submits_made, submits_ahead = FAILS, 0, 0, 0, 0
        sets_out = True
        while True:
            row = np.int64(find_row(slots, codes, s, history, i))
            if row == EMPTY or row >= len(counts.states):
                waiting[left] = i
                left += 1
                break
            digit = cells[i, s.finger_column].digit
            own = np.int64(best_legal(rules, s, digit, scores, row))
            legal = legal_actions(rules, s, digit)
            context = 0
            for k in range(ACTIONS):
                if not illegal[history[i, newest], k] and not legal >> k & 1:
                    context = 1
            if context == 1:
                counts.legal[row] &= legal
            alone = np.int64(-1)
            # A policy that is not interfered with does what it would do in a trial. So one abacus
            # ahead of the run tells how the trials of its own actions end.
            if sets_out:
                copy_abacus(world, i, ahead)
                status, steps_made, steps_ahead, submits_made, submits_ahead = RUNNING, 0, 0, 0, 0
                sets_out = False
            forbidden = _forbids_better(scores, row, own, legal, illegal[history[i, newest]])
            while (
                not forbidden
                and status == RUNNING
                and submits_ahead < submits_made + SUBMITS
                and steps_ahead < steps_made + MOST_STEPS
            ):
                there = np.int64(find_row(slots, codes, state_ahead, history, ahead))
                if there == EMPTY:
                    status = UNKNOWN
                    _note_new(world, new, ahead)
                    break
                digit_ahead = cells[ahead, state_ahead.finger_column].digit
                action = np.int64(best_legal(rules, state_ahead, digit_ahead, scores, there))
                state_ahead.steps, state_ahead.budget = 0, 1 << 30
                advance(rules, state_ahead, cells, history, program, ahead, action, results[ahead])
                steps[0] += 1
                steps_ahead += 1
                if results[ahead].end != END_NONE:
                    status = SUCCEEDS if ended_well(results[ahead].end) else FAILS
                elif action == SUBMIT:
                    submitted[submits_ahead % SUBMITS] = steps_ahead
                    submits_ahead += 1
            if forbidden:
                outcome, length = _try(
                    rules, world, program, results, i, table, row, own, alone, steps
                )
                if outcome == UNKNOWN:
                    _note_new(world, new, last)
            elif submits_ahead >= submits_made + SUBMITS:
                outcome = SUCCEEDS
                length = submitted[(submits_made + SUBMITS - 1) % SUBMITS] - steps_made
            elif status == RUNNING:
                outcome, length = FAILS, MOST_STEPS
            else:
                outcome, length = status, steps_ahead - steps_made
            weight = 1.0
            counts.states[row, context] += outcome != UNKNOWN
            counts.solved[row, context] += outcome == SUCCEEDS
            if outcome == SUCCEEDS and counts.chances[row, context] > 0:
                chance = np.float64(counts.chances[row, context])
                weight = 1.0 / chance if _is_chosen(random, chance) else 0.0
            elif outcome == SUCCEEDS:
                weight = 0.0
            chosen, shortest = own, MOST_STEPS + 1
            if outcome != UNKNOWN and weight > 0.0:
                at = counts.places[row, context]
                _count_trial(counts, at, own, alone, outcome, length, weight)
                for k in range(ACTIONS * counts.followed[0]):
                    action, second = np.int64(k % ACTIONS), np.int64(k // ACTIONS - 1)
                    if action == own or not legal >> action & 1:
                        continue
                    other, length = _try(
                        rules, world, program, results, i, table, row, action, second, steps
                    )
                    if other == UNKNOWN:
                        _note_new(world, new, last)
                        continue
                    _count_trial(counts, at, action, second, other, length, weight)
                    if other == SUCCEEDS and outcome == FAILS and length < shortest:
                        chosen, shortest = action, length
            if outcome != FAILS:
                failing = 0
            elif failing:
                failing, chosen = failing + 1, own
            elif chosen != own and counts.to_failure[0]:
                copy_abacus(world, i, first_failing)
                failing, rescue, chosen = 1, chosen, own
            advance(rules, s, cells, history, program, i, chosen, result)
            steps[0] += 1
            steps_made += 1
            submits_made += chosen == SUBMIT
            sets_out = chosen != own
            if failing and (result.end != END_NONE or failing == LONGEST_FAILURE):
                copy_abacus(world, first_failing, i)
                failing, sets_out = 0, True
                advance(rules, s, cells, history, program, i, rescue, result)
                steps[0] += 1
            if result.end != END_NONE or s.steps >= max_steps:
                break
    return left
