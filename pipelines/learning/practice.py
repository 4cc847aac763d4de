"""Practice: a greedy policy as a table, played on many exercises, and corrected where it fails.

The judge is the environment. For runs that fail, other actions are tried: each trial is the whole
exercise again, with another action wherever a certain observation is met, as if the table had been
changed. A trial that leads further, to another right submit, is a *correction*. Corrections are
then tried on other exercises that meet the same observation, and those that lose the fewest are
made. All trials of a search run in compiled code, without the network: tens of thousands a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled, compiled_inline
from abacus.hash_index import EMPTY
from abacus.kernel import (
    ACTIONS,
    END_BUDGET,
    END_NONE,
    END_WRONG_SUBMIT,
    SUBMIT,
    advance,
    is_legal,
)
from abacus.observation import decode_frame, encode_frame, visibly_illegal_actions
from abacus.rules import ENCODING_PERIOD, AbacusConfig
from oracle.exact.own_runs import Asked
from pipelines.learning.exercises import Exercises
from pipelines.scoring.operations import step_limit
from pipelines.scoring.players import GreedyTable, best_actions, best_legal, find_row

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Steps before a failure at which other actions are tried: the nearest first, then all.
NEAR, FAR = 24, 120
#: Failing runs with the same last observation that a search looks at.
ALIKE = 2
#: Random trials of the failing runs that no single action corrects: of all, and of one run at
#: least and at most. Trials differ in the part of the observations where another action is taken:
#: this, or up to four times as much.
TRIALS, FEWEST_TRIALS, MOST_TRIALS = 100_000, 256, 16_384
RANDOM = 0.06
#: Corrections of a failing run that are tried on other exercises.
MOST_CHECKED = 12
#: If all corrections lose other exercises, one of this many with the fewest losses is made.
FEW_LOSSES = 6
#: Other exercises on which a correction is tried, for each observation that it changes.
OTHERS = 24
#: Exercises among which these are found.
SEARCHED = 60_000
#: Observations that a correction changes at most.
CHANGED = 6
NO_ROW = -1


@dataclass(frozen=True)
class Changes:
    """Trials: for each of them, rows of the table and the actions that are taken there instead.

    An edge out of view may make the best action of an observation illegal. What is tried there is
    the second choice: `action + ACTIONS * (best + 1)` is `action` where `best` is illegal.
    """

    rows: npt.NDArray[np.int32]  # (N, CHANGED), NO_ROW where there are fewer
    actions: npt.NDArray[np.int8]  # (N, CHANGED)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: npt.NDArray[Any]) -> Changes:
        """Return some of the trials."""
        return Changes(self.rows[which], self.actions[which])

    def pairs(self, trial: int) -> set[tuple[int, int]]:
        """Return the rows and actions of a trial."""
        pairs = zip(self.rows[trial].tolist(), self.actions[trial].tolist(), strict=True)
        return {(row, action) for row, action in pairs if row != NO_ROW}

    def sorted(self) -> Changes:
        """Return the trials with their rows in descending order, so that equal ones look alike."""
        order = np.argsort(-self.rows, axis=1, kind="stable")
        rows = np.take_along_axis(self.rows, order, axis=1)
        actions = np.take_along_axis(self.actions, order, axis=1)
        return Changes(rows, np.where(rows == NO_ROW, np.int8(0), actions))

    @classmethod
    def none(cls, count: int) -> Changes:
        """Return trials that change nothing."""
        return cls(np.full((count, CHANGED), NO_ROW, np.int32), np.zeros((count, CHANGED), np.int8))

    @classmethod
    def join(cls, parts: Sequence[Changes]) -> Changes:
        """Return the trials of several lists."""
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.actions for part in parts]),
        )


@dataclass(frozen=True)
class Runs:
    """Runs of exercises: whether each was solved, its right submits and its last steps.

    Step t of a run is at `t % depth` of `trail`, a row of the table, and of `taken`, an action.
    """

    solved: npt.NDArray[np.bool_]  # (N,)
    submits: npt.NDArray[np.int32]  # (N,)
    lengths: npt.NDArray[np.int32]  # (N,)
    trail: npt.NDArray[np.int32]  # (N, depth)
    taken: npt.NDArray[np.int8]  # (N, depth)

    def last_rows(self, which: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Return the row of the last observation of some runs."""
        depth = self.trail.shape[1]
        last: npt.NDArray[np.int32] = self.trail[which, (self.lengths[which] - 1) % depth]
        return last


class Visits(NamedTuple):
    """How often each row of the table was met, and the last exercise that met it."""

    counts: npt.NDArray[np.int64]
    exercises: npt.NDArray[np.int64]

    @classmethod
    def none(cls, capacity: int = 0) -> Visits:
        """Return counts for rows below `capacity`."""
        return cls(np.zeros(capacity, np.int64), np.full(capacity, NO_ROW, np.int64))

    def grown(self, capacity: int) -> Visits:
        """Return the counts for more rows, without the exercises."""
        grown = Visits.none(capacity)
        grown.counts[: len(self.counts)] = self.counts
        return grown


class _Meetings(NamedTuple):
    """A sample of the exercises that meet each of some rows of the table."""

    #: The place of each row of the table among those that are wanted, or NO_ROW; may be empty.
    wanted: npt.NDArray[np.int32]
    #: Numbers of exercises, (wanted, OTHERS), NO_ROW where there are fewer.
    met: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    #: The state of a random generator.
    random: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, rows: npt.NDArray[np.int32], capacity: int) -> _Meetings:
        wanted = np.full(capacity, NO_ROW, np.int32)
        wanted[rows] = np.arange(len(rows), dtype=np.int32)
        return cls(wanted, np.full((len(rows), OTHERS), NO_ROW), *cls._counters(len(rows)))

    @classmethod
    def none(cls) -> _Meetings:
        return cls(np.empty(0, np.int32), np.empty((0, OTHERS), np.int64), *cls._counters(0))

    @staticmethod
    def _counters(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        return np.zeros(count, np.int64), np.ones(1, np.uint64)


class TableAsked(Asked):
    """The scores of a table, asked as a policy by a certificate."""

    def __init__(self, table: GreedyTable) -> None:
        super().__init__(table.answers, table.base, table.frames)
        self._table = table

    def _ask(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        illegal = visibly_illegal_actions(self._base)[codes[:, -4]]
        scores = np.where(illegal, -np.inf, self._table.scores_of(codes[:, :-1]))
        return np.argsort(-scores, axis=1, kind="stable").astype(np.uint8)


class Practice:
    """A greedy policy with corrections; `steps` counts those of the environments."""

    def __init__(self, policy: Any, world: AbacusConfig) -> None:
        self.world = world
        self.table = GreedyTable(policy, world.base, world.frames)
        self.steps = 0
        #: Rows and actions of changes that were made although other exercises were lost.
        self.lossy: set[tuple[int, int]] = set()
        self._illegal = visibly_illegal_actions(world.base)

    def asked(self) -> Asked:
        """Return the corrected policy as it is now, to be asked by a certificate."""
        return TableAsked(self.table)

    def play(
        self,
        exercises: Exercises,
        changes: Changes | None = None,
        *,
        depth: int = 0,
        visits: Visits | None = None,
        random: tuple[npt.NDArray[np.uint64], npt.NDArray[np.integer]] | None = None,
    ) -> Runs:
        """Play exercises with the table, each with its own changes; keep `depth` last steps.

        `visits` are added to.

        With `random`, seeds and first steps, actions are random now and then from a step on, and
        `changes` are what these were.
        """
        count = len(exercises)
        runs = _no_runs(count, depth)
        changes = Changes.none(count) if changes is None else changes
        seeds, firsts = np.zeros(count, np.uint64), np.zeros(count, np.int32)
        if random is not None:
            seeds, firsts = random[0], random[1].astype(np.int32)
        for which, batch in exercises.batches(self.world):
            part, some = _no_runs(len(which), depth), changes.take(which)
            self._run(
                *(batch, some, part, _Meetings.none(), which),
                *(seeds[which], firsts[which], visits or Visits.none()),
            )
            if random is not None:
                changes.rows[which], changes.actions[which] = some.rows, some.actions
            for name, values in vars(part).items():
                getattr(runs, name)[which] = values
        return runs

    def _run(
        self,
        batch: AbacusBatch,
        changes: Changes,
        runs: Runs,
        meetings: _Meetings,
        numbers: npt.NDArray[np.int64],
        seeds: npt.NDArray[np.uint64],
        firsts: npt.NDArray[np.int32],
        visits: Visits,
    ) -> None:
        limit = step_limit(batch.config, batch.config.max_operations or 1)
        outcome = self.table.run_by(
            _play,
            batch,
            limit,
            *(changes.rows, changes.actions),
            *(runs.submits, runs.lengths, runs.trail, runs.taken),
            self._illegal,
            *meetings,
            *(numbers, seeds, firsts),
            *visits,
        )
        runs.solved[:] = outcome.solved == outcome.scalars["program_count"]
        self.steps += int(outcome.scalars["steps"].sum())

    def _meetings(
        self,
        exercises: Exercises,
        numbers: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.int64]:
        """Return numbers of exercises that meet each of some rows, (rows, OTHERS).

        NO_ROW stands where there are fewer. All were played before: no observation is new.
        """
        meetings = _Meetings.of(rows, self.table.capacity)
        for which, batch in exercises.batches(self.world):
            part, nothing = _no_runs(len(which), 0), Changes.none(len(which))
            zeros = np.zeros(len(which), np.uint64), np.zeros(len(which), np.int32)
            self._run(batch, nothing, part, meetings, numbers[which], *zeros, Visits.none())
        return meetings.met

    def correct(
        self,
        exercises: Exercises,
        rng: np.random.Generator,
        most: int,
        visits: Visits | None = None,
        known: int = 0,
    ) -> tuple[npt.NDArray[np.int64], int]:
        """Correct up to `most` failing runs; return failing exercises, and the corrections made.

        The exercises that are returned differ in the observation in which they fail. The first
        `known` ones are always among those that a correction is tried on.
        """
        runs = self.play(exercises, depth=FAR, visits=visits)
        failing = np.flatnonzero(~runs.solved)
        chosen = self._kinds(runs, failing, most)
        if not len(chosen):
            return chosen, 0
        of, changes = self._single_changes(exercises, runs, chosen, 0, NEAR)
        for trial in (
            lambda left: self._single_changes(exercises, runs, left, NEAR, FAR),
            lambda left: self._random_changes(exercises, runs, left, rng),
        ):
            more, others = trial(np.setdiff1d(chosen, of))
            of, changes = np.concatenate([of, more]), Changes.join([changes, others])
        made = self._make_best(exercises, runs, of, changes, rng, known) if len(of) else 0
        return chosen, made

    @staticmethod
    def _kinds(runs: Runs, failing: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
        """Return a few failing runs for each last observation, the most frequent ones first."""
        last = runs.last_rows(failing)
        _, kind, counts = np.unique(last, return_inverse=True, return_counts=True)
        order = np.lexsort((kind, -counts[kind]))
        seen = np.zeros(len(counts), np.int64)
        chosen = []
        for place in order:
            seen[kind[place]] += 1
            if seen[kind[place]] <= ALIKE:
                chosen.append(failing[place])
            if len(chosen) == most:
                break
        return np.array(chosen, np.int64)

    def _steps_of(
        self, runs: Runs, run: int, first: int, last: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Return distinct rows of steps of a run, counted back from its end, and its actions."""
        depth, length = runs.trail.shape[1], int(runs.lengths[run])
        places = np.arange(length - 1 - first, max(length - 1 - last, length - depth, 0) - 1, -1)
        rows, where = np.unique(runs.trail[run, places % depth], return_index=True)
        return rows, runs.taken[run, places[where] % depth]

    def _alternatives(
        self, rows: npt.NDArray[np.int32], taken: npt.NDArray[np.int8]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Return each row with each other action that the observation shows to be legal."""
        illegal = self._illegal[self.table.codes_of(rows)[:, -3]]
        best = best_actions(np.where(illegal, -np.inf, self.table.scores_at(rows)))
        illegal[np.arange(len(rows)), taken] = True
        second = best != taken
        illegal[second, best[second]] = True
        where, actions = np.nonzero(~illegal)
        actions += np.where(second, ACTIONS * (best + 1), 0)[where]
        return rows[where], actions.astype(np.int8)

    def _single_changes(
        self,
        exercises: Exercises,
        runs: Runs,
        which: npt.NDArray[np.int64],
        first: int,
        last: int,
    ) -> tuple[npt.NDArray[np.int64], Changes]:
        """Return single changes that lead failing runs further, each with its run."""
        of, rows, actions = [], [], []
        for run in which.tolist():
            row, action = self._alternatives(*self._steps_of(runs, run, first, last))
            of.append(np.full(len(row), run))
            rows.append(row)
            actions.append(action)
        if not of:
            return np.empty(0, np.int64), Changes.none(0)
        changes = Changes.none(sum(map(len, rows)))
        changes.rows[:, 0], changes.actions[:, 0] = np.concatenate(rows), np.concatenate(actions)
        return self._kept(exercises, runs, np.concatenate(of), changes)

    def _random_changes(
        self,
        exercises: Exercises,
        runs: Runs,
        which: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> tuple[npt.NDArray[np.int64], Changes]:
        """Return changes of several observations that lead failing runs further.

        They are found by playing at random now and then near the end, and reduced to what is
        needed.
        """
        if not len(which):
            return np.empty(0, np.int64), Changes.none(0)
        each = min(max(TRIALS // len(which), FEWEST_TRIALS), MOST_TRIALS)
        of = np.repeat(which, each)
        changes = Changes.none(len(of))
        seeds = rng.integers(1, 2**63, len(of), dtype=np.uint64)
        firsts = np.maximum(runs.lengths[of] - NEAR, 0)
        self.play(exercises.take(of), changes, random=(seeds, firsts))
        of, changes = self._kept(exercises, runs, of, changes)
        # The fewest changes first, and no more than are checked later.
        order = np.lexsort(((changes.rows != NO_ROW).sum(axis=1), of))
        place = np.arange(len(of)) - np.searchsorted(of[order], of[order])
        order = order[place < MOST_CHECKED]
        of, changes = of[order], changes.take(order)
        for k in range(CHANGED):
            fewer = Changes(changes.rows.copy(), changes.actions)
            fewer.rows[:, k] = NO_ROW
            tried = self.play(exercises.take(of), fewer)
            enough = tried.solved | (tried.submits > runs.submits[of])
            changes = Changes(np.where(enough[:, None], fewer.rows, changes.rows), changes.actions)
        return of, changes.sorted()

    def _kept(
        self, exercises: Exercises, runs: Runs, of: npt.NDArray[np.int64], changes: Changes
    ) -> tuple[npt.NDArray[np.int64], Changes]:
        """Return the changes with which a run has more right submits."""
        tried = self.play(exercises.take(of), changes)
        further = tried.solved | (tried.submits > runs.submits[of])
        return of[further], changes.take(further)

    def _make_best(
        self,
        exercises: Exercises,
        runs: Runs,
        of: npt.NDArray[np.int64],
        changes: Changes,
        rng: np.random.Generator,
        known: int,
    ) -> int:
        """Make the best correction of each failing run that loses no other exercise.

        If there is none for any run, make one that loses some: these are corrected in their turn.
        Return the number of corrections.
        """
        content = np.concatenate([changes.rows, changes.actions], axis=1)
        distinct, index = np.unique(content, axis=0, return_inverse=True)
        index = index.ravel()
        helped = np.bincount(index)
        # Of many corrections of a run, those that help most runs, then those near its end.
        order = np.lexsort((np.arange(len(of)), -helped[index], of))
        place = np.arange(len(of)) - np.searchsorted(of[order], of[order])
        index = np.unique(index[order[place < MOST_CHECKED]])
        single = Changes(
            distinct[index, :CHANGED].astype(np.int32), distinct[index, CHANGED:].astype(np.int8)
        )
        every = Changes.join([self._in_other_columns(single), single])
        scores = self._scores(exercises, runs, every, rng, known)
        keys = {row.tobytes(): k for k, row in enumerate(distinct[index].astype(np.int64))}
        wanted = content.astype(np.int64)
        options = {
            run: self._options(of == run, wanted, keys, len(single))
            for run in np.unique(of).tolist()
        }
        best = [max(changes, key=scores.__getitem__) for changes in options.values()]
        good = [change for change in best if scores[change] > 0]
        if not good:
            good = self._lossy(options[int(rng.choice(list(options)))], every, scores, rng)
        made, used = 0, set[int]()
        for change in dict.fromkeys(good):
            rows = every.rows[change]
            if used.isdisjoint(rows[rows != NO_ROW].tolist()):
                used.update(rows[rows != NO_ROW].tolist())
                self._make(rows[rows != NO_ROW], every.actions[change][rows != NO_ROW])
                made += 1
        return made

    def _lossy(
        self,
        options: Sequence[int],
        every: Changes,
        scores: npt.NDArray[np.float64],
        rng: np.random.Generator,
    ) -> list[int]:
        """Return one of the changes of a run that lose the fewest exercises, if any is left.

        A change is made in this way once, so that two exercises do not take turns.
        """
        left = [change for change in options if every.pairs(change).isdisjoint(self.lossy)]
        left = sorted(left, key=scores.__getitem__)[-FEW_LOSSES:]
        if not left:
            return []
        chosen = int(rng.choice(left))
        self.lossy |= every.pairs(chosen)
        return [chosen]

    @staticmethod
    def _options(
        of_run: npt.NDArray[np.bool_],
        wanted: npt.NDArray[np.int64],
        keys: Mapping[bytes, int],
        count: int,
    ) -> list[int]:
        """Return the changes of a run that were checked, in other columns too and alone."""
        found = (keys.get(wanted[k].tobytes()) for k in np.flatnonzero(of_run))
        checked = [change for change in found if change is not None]
        return checked + [change + count for change in checked]

    def _make(self, rows: npt.NDArray[np.int32], codes: npt.NDArray[np.int8]) -> None:
        """Change the table as one of `Changes` says."""
        first = codes < ACTIONS
        self.table.prefer(rows[first], codes[first])
        best, actions = np.divmod(codes[~first], ACTIONS)
        self.table.prefer_second(rows[~first], best - 1, actions)

    def _in_other_columns(self, changes: Changes) -> Changes:
        """Return single changes that are also made one and two columns further.

        They are made there only where the policy acts as it does here. Observations of the left
        edge, with padding, are nowhere else. Changes of two observations are returned unchanged.
        """
        base, frames = self.world.base, self.world.frames
        rows = changes.rows.copy()
        actions = changes.actions.copy()
        codes = self.table.codes_of(rows[:, 0])
        left, right, row, phase, signpost = decode_frame(base, codes[:, :frames])
        movable = (left < base).all(axis=1) & (rows[:, 1] == NO_ROW)
        # A second choice is that of these columns alone.
        movable &= actions[:, 0] < ACTIONS
        taken = self.table.scores_at(rows[:, 0]).argmax(axis=1)
        for shift in range(1, ENCODING_PERIOD):
            moved = codes.copy()
            shifted = (phase + shift) % ENCODING_PERIOD
            moved[:, :frames] = encode_frame(base, left, right, row, shifted, signpost)
            found = self.table.known_rows(moved)
            same = movable & (found != NO_ROW)
            same[same] = self.table.scores_at(found[same]).argmax(axis=1) == taken[same]
            rows[same, shift] = found[same]
            actions[same, shift] = actions[same, 0]
        return Changes(rows, actions)

    def _scores(
        self,
        exercises: Exercises,
        runs: Runs,
        changes: Changes,
        rng: np.random.Generator,
        known: int,
    ) -> npt.NDArray[np.float64]:
        """Return a score of each change: positive if it loses no exercise that was solved before.

        It is the larger, the more it solves, or the fewer it loses.
        """
        rows = np.unique(changes.rows[changes.rows != NO_ROW])
        searched = np.arange(len(exercises))
        if len(exercises) > SEARCHED:
            failing = np.flatnonzero(~runs.solved)
            others = rng.choice(len(exercises), SEARCHED - min(len(failing), SEARCHED // 2))
            searched = np.union1d(others, failing[: SEARCHED // 2])
        parts = [
            self._meetings(exercises.take(part), part, rows)
            for part in (searched, np.arange(known))
        ]
        met = np.concatenate(parts, axis=1)
        places = np.where(changes.rows == NO_ROW, NO_ROW, np.searchsorted(rows, changes.rows))
        others = np.where((places == NO_ROW)[:, :, None], NO_ROW, met[places])
        others = others.reshape(len(changes), -1)
        change, place = np.nonzero(others != NO_ROW)
        tried = others[change, place]
        after = self.play(exercises.take(tried), changes.take(change))
        before = runs.solved[tried]
        better = after.submits > runs.submits[tried]
        gains = np.bincount(change, (after.solved & ~before) + 0.1 * (better & ~after.solved))
        losses = np.bincount(change, before & ~after.solved, minlength=len(changes))
        gains = np.pad(gains, (0, len(changes) - len(gains)))
        # A change that loses nothing is good: it leads at least one failing run further.
        score: npt.NDArray[np.float64] = np.where(losses == 0, 1 + gains, -losses)
        return score

    def illegal_actions(self, frames: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return the actions that the newest frames show to be illegal, (N, 8)."""
        return self._illegal[frames]


def _no_runs(count: int, depth: int) -> Runs:
    return Runs(
        np.zeros(count, np.bool_),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.full((count, depth), NO_ROW, np.int32),
        np.zeros((count, depth), np.int8),
    )


@compiled_inline
def _best_visibly(illegal, codes, scores, row):
    """Return the best action of a row that its newest frame does not show to be illegal."""
    newest, best = codes[row, codes.shape[1] - 3], -1
    for action in range(ACTIONS):
        if not illegal[newest, action] and (best < 0 or scores[row, action] > scores[row, best]):
            best = action
    return best


@compiled_inline
def _change_at_random(changed, actions, i, row, seed, code):
    """Note a random action for a row now and then, as first or second choice (`code`).

    Chance is a function of seed and row: a trial treats an observation always in the same way.
    """
    mixed = (seed ^ np.uint64(row + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    share = RANDOM * np.float64(seed % np.uint64(4) + np.uint64(1))
    if np.float64(mixed >> np.uint64(11)) >= share * 2.0**53:
        return
    for k in range(changed.shape[1]):
        if changed[i, k] == row:
            return
        if changed[i, k] == NO_ROW:
            changed[i, k] = row
            actions[i, k] = np.int8(np.int64(mixed % np.uint64(ACTIONS)) + code)
            return


@compiled
def _play(
    all_rules,
    world,
    program,
    results,
    waiting,
    slots,
    codes,
    scores,
    max_steps,
    changed,
    actions,
    submits,
    lengths,
    trail,
    taken,
    illegal,
    wanted,
    met,
    counts,
    random,
    numbers,
    seeds,
    firsts,
    visits,
    visitors,
):
    """Run waiting abaci until they end or meet a new observation; return how many are left."""
    rules = all_rules[0]
    scalars, cells, history = world
    depth, left = trail.shape[1], 0
    for place in range(len(waiting)):
        i = waiting[place]
        s, result = scalars[i], results[i]
        while True:
            row = find_row(slots, codes, s, history, i)
            if row == EMPTY:
                waiting[left] = i
                left += 1
                break
            digit = cells[i, s.finger_column].digit
            action = best_legal(rules, s, digit, scores, row)
            if seeds[i] != 0 and lengths[i] >= firsts[i]:
                best = _best_visibly(illegal, codes, scores, row)
                code = 0 if best == action else ACTIONS * (best + 1)
                _change_at_random(changed, actions, i, row, seeds[i], code)
            for k in range(changed.shape[1]):
                if changed[i, k] == row:
                    other, first = actions[i, k] % ACTIONS, actions[i, k] // ACTIONS - 1
                    blocked = first < 0 or not is_legal(rules, s, digit, first)
                    if blocked and is_legal(rules, s, digit, other):
                        action = np.int64(other)
            if depth > 0:
                trail[i, lengths[i] % depth] = row
                taken[i, lengths[i] % depth] = action
            if len(wanted) > 0 and wanted[row] >= 0:
                index = wanted[row]
                counts[index] += 1
                # Reservoir sampling: every exercise is kept with the same probability.
                random[0] = random[0] * np.uint64(6364136223846793005) + np.uint64(1)
                chosen = counts[index] - 1
                if chosen >= met.shape[1]:
                    chosen = np.int64((random[0] >> np.uint64(33)) % np.uint64(counts[index]))
                if chosen < met.shape[1]:
                    met[index, chosen] = numbers[i]
            if row < len(visits):
                visits[row] += 1
                visitors[row] = numbers[i]
            lengths[i] += 1
            advance(rules, s, cells, history, program, i, action, result)
            if action == SUBMIT and result.end != END_WRONG_SUBMIT:
                submits[i] += 1
            if result.end == END_NONE and s.steps >= max_steps:
                result.end = END_BUDGET
            if result.end != END_NONE:
                break
    return left
