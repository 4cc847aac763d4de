"""The compiled recorder: the teacher acts, and every step lands in flat columns.

Detours. With probability epsilon a step takes, instead of the teacher's action, another legal
action at random, while the teacher's is kept as the label: a clone sees how to come back. A detour
is one that the operation survives: it is no mistake by the rules (no wrong signpost move, slide or
submit, at any reward level), and the teacher, left alone from there, reaches the next grant of
steps in time. Both are found out by trying it on a second abacus, a copy of the first.

Detours have a random stream of their own: the operations of an episode are the same with and
without them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled_with
from abacus.kernel import (
    ACTIONS,
    END_NONE,
    FINGER_OUTCOME,
    ON_OPERATION_SYMBOL,
    SUBMIT,
    advance,
    is_legal,
    random_below,
    reset,
)
from abacus.rules import End
from oracle.demos.columns import Recording
from oracle.demos.recipe import Recipe, episode_seeds, stream_starts
from oracle.demos.schema import SPLIT_EVERY, SPLIT_FIRST, groups, reward_table
from oracle.expert import answer

#: The abacus that is recorded, the copy on which detours are tried, and the detours' stream.
RECORDED, TRIED, DETOURS = 0, 1, 2
_ABACI = 3
#: Chances are drawn as numbers below this.
_CHANCES = 2**32
#: Ends that a teacher can meet.
_GOOD_ENDS = (End.LIMIT, End.CAPACITY)
#: Room for an operation at first; an episode that needs more is recorded anew in twice the room.
_STEPS_PER_OPERATION = 48

#: What Python calls: without the interpreter's lock, so that threads record side by side.
_entry = compiled_with(nogil=True)
#: What compiled code alone calls: without a door from Python there is less to compile.
_part = compiled_with(no_cpython_wrapper=True, no_cfunc_wrapper=True)


class Transitions(NamedTuple):
    frame: Any
    symbol: Any
    operation: Any
    action: Any
    taken: Any
    mask: Any
    outcome: Any
    reward: Any
    terminated: Any
    truncated: Any


class Episodes(NamedTuple):
    start: Any
    length: Any
    first_operation: Any
    operations: Any
    end: Any
    final_frame: Any
    final_symbol: Any
    final_operation: Any


class Operations(NamedTuple):
    start: Any
    length: Any
    episode: Any
    operation: Any
    fresh: Any
    operand: Any
    before: Any
    after: Any


class Recorder:
    """Records episodes of a recipe. One for each thread."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        # Frames are kept unstacked, and an episode is not played beyond what is asked for.
        config = replace(recipe.config, frames=1, max_operations=recipe.longest_episode)
        self._batch = AbacusBatch(config, _ABACI, autoreset=False)
        self._batch.reset(0)
        self._rewards = reward_table(config.reward)
        self._chance = round(recipe.epsilon * _CHANCES)

    def record(self, first: int, count: int) -> Recording:
        """Episodes `first` to `first + count - 1`."""
        seeds = episode_seeds(self.recipe.seed, first, count)
        starts = stream_starts(seeds)
        operations = count * self.recipe.longest_episode
        rows = Transitions(*self._empty("transitions", operations * _STEPS_PER_OPERATION))
        index = Episodes(*self._empty("episodes", count, Episodes._fields))
        parts = Operations(*self._empty("operations", operations))
        done = np.zeros(3, np.int64)
        while not self._fill(starts, rows, index, parts, done):
            rows = Transitions(*map(_doubled, rows))
        transitions, episodes, operations = done.tolist()
        recording = Recording(
            {name: column[:transitions] for name, column in rows._asdict().items()},
            {
                **{name: column[:episodes] for name, column in index._asdict().items()},
                "seed": seeds,
                "validation": _validation(first, count),
            },
            {name: column[:operations] for name, column in parts._asdict().items()},
        )
        if not np.isin(recording.episodes["end"], _GOOD_ENDS).all():
            raise RuntimeError("the teacher did not reach the end of an episode: this is a bug")
        return recording

    def _empty(
        self, group: str, count: int, names: tuple[str, ...] = ()
    ) -> list[npt.NDArray[np.generic]]:
        config = self.recipe.config
        columns = {column.name: column for column in groups(config)[group]}
        return [
            np.empty((count, *columns[name].row_shape(config)), columns[name].dtype)
            for name in names or columns
        ]

    def _fill(
        self, starts: Any, rows: Transitions, index: Episodes, parts: Operations, done: Any
    ) -> bool:
        batch = self._batch
        return bool(
            _record(
                (batch.rules, batch.pixels, batch.world, batch.program, batch.out),
                (self.recipe.variant == "printed", self._chance, self._rewards),
                starts,
                rows,
                index,
                parts,
                done,
            )
        )


def _doubled(column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return np.concatenate([column, np.empty_like(column)])


def _validation(first: int, count: int) -> npt.NDArray[np.uint8]:
    return np.equal(np.arange(first, first + count) % SPLIT_EVERY, SPLIT_FIRST).astype(np.uint8)


@_entry
def _record(places, teacher, starts, rows, index, parts, done):
    """Records episodes from `done[1]` on; False if the room for transitions is too small.

    `done` counts the transitions, episodes and operations of the episodes that are complete.
    """
    all_rules, pixels, world, program, out = places
    which = np.array([RECORDED], np.int32)
    while done[1] < len(starts):
        world.scalars[RECORDED].rng = starts[done[1], 0]
        world.scalars[DETOURS].rng = starts[done[1], 1]
        reset(all_rules, pixels, world, program, out, which)
        if not _record_episode(
            all_rules[0], world, program, out.results, teacher, rows, index, parts, done
        ):
            return False
    return True


@_part
def _record_episode(rules, world, program, results, teacher, rows, index, parts, done):
    scalars, cells, history = world
    printed, chance, rewards = teacher
    s, result = scalars[RECORDED], results[RECORDED]
    n, m = done[0], done[2]
    opens, fresh = True, True
    while result.end == END_NONE:
        if n == len(rows.action):
            return False
        if opens:
            _open_operation(rules, s, cells, parts, m, n, done[1], fresh)
        label = answer(s, cells, RECORDED, printed)
        taken = label
        if chance > 0 and random_below(scalars[DETOURS], _CHANCES) < chance:
            taken = _detour(rules, scalars, cells, history, program, results, printed, label)
        rows.frame[n] = history[RECORDED, 0]
        rows.symbol[n] = s.symbol
        rows.operation[n] = s.operation
        rows.action[n] = label
        rows.taken[n] = taken
        rows.mask[n] = _mask(rules, s, cells[RECORDED, s.finger_column].digit)
        closes = s.digit_index == ON_OPERATION_SYMBOL and taken == SUBMIT
        if closes:
            _copy_digits(rules, cells, parts.after, m)
        reloads = s.reloads
        advance(rules, s, cells, history, program, RECORDED, taken, result)
        outcome = _outcome(result)
        rows.outcome[n] = outcome
        rows.reward[n] = rewards[taken, outcome + 1]
        rows.terminated[n] = result.terminated
        rows.truncated[n] = result.truncated
        n += 1
        if closes:
            parts.length[m] = n - parts.start[m]
            m += 1
        opens, fresh = closes, s.reloads != reloads
    _close_episode(s, history[RECORDED, 0], result.end, index, done, n, m)
    return True


@_part
def _mask(rules, s, digit):
    """The legal actions in one byte: bit a for action a."""
    mask = 0
    for action in range(ACTIONS):
        if is_legal(rules, s, digit, action):
            mask |= 1 << action
    return mask


@_part
def _outcome(result):
    """The outcome of the action: a step has at most one that is not 0."""
    total = 0
    for k in range(len(result.outcomes)):
        total += result.outcomes[k]
    return total


@_part
def _copy_digits(rules, cells, target, row):
    for column in range(rules.columns):
        target[row, column] = cells[RECORDED, column].digit


@_part
def _open_operation(rules, s, cells, parts, m, n, episode, fresh):
    parts.start[m] = n
    parts.episode[m] = episode
    parts.operation[m] = s.operation
    parts.fresh[m] = fresh
    for position in range(rules.max_digits):
        inside = position < s.operand_length
        parts.operand[m, position] = cells[RECORDED, position].operand if inside else 0
    _copy_digits(rules, cells, parts.before, m)


@_part
def _close_episode(s, frame, end, index, done, n, m):
    e = done[1]
    index.start[e] = done[0]
    index.length[e] = n - done[0]
    index.first_operation[e] = done[2]
    index.operations[e] = m - done[2]
    index.end[e] = end
    index.final_frame[e] = frame
    index.final_symbol[e] = s.symbol
    index.final_operation[e] = s.operation
    done[0], done[1], done[2] = n, e + 1, m


@_part
def _detour(rules, scalars, cells, history, program, results, printed, label):
    """An action that the operation survives, all with the same chance; else the label."""
    s = scalars[RECORDED]
    left = _mask(rules, s, cells[RECORDED, s.finger_column].digit) & ~(1 << label)
    while left > 0:
        action = _pick(left, scalars[DETOURS])
        if _survives(rules, scalars, cells, history, program, results, printed, action):
            return action
        left &= ~(1 << action)
    return label


@_part
def _pick(actions, stream):
    """One of the actions whose bits are set."""
    count = 0
    for action in range(ACTIONS):
        count += (actions >> action) & 1
    skip = random_below(stream, count)
    for action in range(ACTIONS):
        if (actions >> action) & 1:
            if skip == 0:
                return action
            skip -= 1
    return -1


@_part
def _survives(rules, scalars, cells, history, program, results, printed, action):
    """Whether the action is no mistake and leaves the teacher steps enough, tried on the copy.

    Steps enough: the next grant comes with as many to spare as there are columns, which is more
    than the longest way back from where a detour can leave finger and signpost at a grant.
    """
    scalars[TRIED] = scalars[RECORDED]
    for column in range(rules.columns):
        cells[TRIED, column] = cells[RECORDED, column]
    s, result = scalars[TRIED], results[TRIED]
    result.end = END_NONE
    budget = s.budget
    while result.end == END_NONE and s.budget == budget:
        advance(rules, s, cells, history, program, TRIED, action, result)
        if _is_mistake(result):
            return False
        action = answer(s, cells, TRIED, printed)
    return s.budget > budget and budget - s.steps >= rules.columns


@_part
def _is_mistake(result):
    """A wrong signpost move, slide or submit; a finger may go anywhere."""
    worst = 0
    for k in range(FINGER_OUTCOME + 1, len(result.outcomes)):
        worst = min(worst, result.outcomes[k])
    return worst < 0
