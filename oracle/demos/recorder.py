"""The compiled recorder: the expert plays episodes, and every step is written to flat columns.

A trained policy is recorded in two passes (`record_policy`): it plays tasks on the abaci of a
batch, and the compiled recorder repeats the actions of those that it solved.

Detours. With probability epsilon a step takes, instead of the expert's action, another legal action
at random, while the expert's action is kept as the label: a clone sees how to recover. A detour is
an action that the operation survives: it is no mistake by the rules (no wrong signpost move, slide
or submit, at any reward level), and the expert, continuing from there, reaches the next extension
of the step budget in time. Both are found by trying the action on a copy of the abacus.

Detours have a random stream of their own: the operations of an episode are the same with and
without them.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch, task_program
from abacus.compiling import compiled_with
from abacus.kernel import (
    ACTIONS,
    END_NONE,
    FINGER_OUTCOME,
    ON_OPERATION_SYMBOL,
    SUBMIT,
    advance,
    legal_actions,
    random_below,
    reset,
    set_task,
)
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Task
from oracle.algorithm import Variant
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import (
    Recipe,
    TrainedPolicy,
    episode_seeds,
    stream_starts,
    task_config,
)
from oracle.demos.schema import SPLIT_EVERY, SPLIT_FIRST, Columns, groups, reward_table
from oracle.expert import answer

#: The abacus that is recorded, the copy on which detours are tried, and the detours' stream.
RECORDED, TRIED, DETOURS = 0, 1, 2
_ABACI = 3
#: Probabilities are compared as integers below this.
_CHANCES = 2**32
#: The ends that a demonstrator can reach.
_GOOD_ENDS = (End.LIMIT, End.CAPACITY, End.EXPRESSION)
#: Initial capacity for an operation; it is doubled if an episode needs more.
_STEPS_PER_OPERATION = 48

#: Actions of a policy, one for each abacus of a batch.
Choose = Callable[[AbacusBatch], npt.NDArray[np.integer[Any]]]
Script = npt.NDArray[np.uint8]
#: Without actions of a policy the expert answers.
_NO_SCRIPT = np.zeros(0, np.uint8)

#: Called from Python: without the interpreter's lock, so that threads record in parallel.
_entry = compiled_with(nogil=True)
#: Called from compiled code only: skipping the Python wrappers shortens compilation.
_part = compiled_with(no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _column_tuple(name: str, group: str) -> Any:
    """Return a namedtuple type of the columns of a group, for compiled code."""
    return namedtuple(name, [column.name for column in groups(AbacusConfig())[group]])


Transitions = _column_tuple("Transitions", "transitions")
Episodes = _column_tuple("Episodes", "episodes")
Operations = _column_tuple("Operations", "operations")


class Recorder:
    """Records episodes of a recipe. Each thread needs its own."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        # Frames are stored unstacked, and no episode is played beyond the size of the set.
        limit = recipe.longest_episode if recipe.tasks is None else None
        config = replace(recipe.config, frames=1, max_operations=limit)
        self._batch = AbacusBatch(config, _ABACI, autoreset=False)
        self._batch.reset(0)
        self._rewards = reward_table(config.reward)
        self._chance = round(recipe.epsilon * _CHANCES)

    def record(self, first: int, count: int, script: Script | None = None) -> Demonstrations:
        """Record episodes `first` to `first + count - 1`; fewer if there are no more tasks.

        `script` holds the actions of a policy in these episodes, if the recipe names one. Raise
        ValueError if they do not bring every task to its end.
        """
        recipe = self.recipe.part(first, count)
        if (script is None) != (recipe.policy is None):
            raise ValueError("a policy's demonstrations are recorded from its actions alone")
        if recipe.tasks is not None:
            self._batch.program = task_program(self._batch.config, recipe.tasks)
            count = len(recipe.tasks)
        operations = count * recipe.longest_episode
        rows = Transitions(**self._empty("transitions", operations * _STEPS_PER_OPERATION))
        index = Episodes(**self._empty("episodes", count))
        parts = Operations(**self._empty("operations", operations))
        index.seed[:] = episode_seeds(self.recipe.seed, first, count)
        index.validation[:] = np.arange(first, first + count) % SPLIT_EVERY == SPLIT_FIRST
        starts, done = stream_starts(index.seed), np.zeros(3, np.int64)
        batch = self._batch
        world = (batch.rules, batch.pixels, batch.world, batch.program, batch.out)
        actions = _NO_SCRIPT if script is None else script
        expert = (self.recipe.variant == "printed", self._chance, self._rewards, actions)
        while not _record(world, expert, starts, rows, index, parts, done):
            rows = Transitions(*(np.concatenate([row, np.empty_like(row)]) for row in rows))
        columns = {
            group: {name: column[:length] for name, column in columns._asdict().items()}
            for group, columns, length in zip(
                ("transitions", "episodes", "operations"),
                (rows, index, parts),
                done.tolist(),
                strict=True,
            )
        }
        if not np.isin(index.end, _GOOD_ENDS).all():
            if script is not None:
                raise ValueError("the actions of the policy do not solve every task")
            raise RuntimeError("the expert did not reach the end of an episode: this is a bug")
        return Demonstrations(columns, recipe)

    def _empty(self, group: str, count: int) -> Columns:
        config = self.recipe.config
        return {
            column.name: np.empty((count, *column.row_shape(config)), column.dtype)
            for column in groups(config)[group]
        }


def record_in_memory(recipe: Recipe) -> Demonstrations:
    """Record a set of a number of operations, or of given tasks, without a file."""
    if recipe.operations is None:
        raise ValueError("the recipe has transitions: give operations or tasks")
    recorder = Recorder(recipe)
    if recipe.tasks is not None:
        return recorder.record(0, len(recipe.tasks))
    episodes = -(-recipe.operations // recipe.longest_episode)
    recorded = recorder.record(0, episodes)
    # Episodes that end on the capacity are shorter.
    while recorded.counts["operations"] < recipe.operations:
        episodes *= 2
        recorded = recorder.record(0, episodes)
    return recorded.first(recipe.operations)


def record_tasks(
    config: AbacusConfig, tasks: Sequence[Task], variant: Variant = "before"
) -> Demonstrations:
    """Record given tasks without a file, one an episode; a thousand take milliseconds.

    Of the configuration, `start`, `operations`, `max_operations`, `expression` and `on_error` are
    ignored: the tasks decide.
    """
    return record_in_memory(Recipe(task_config(config), variant, tasks=tuple(tasks)))


def record_policy(
    config: AbacusConfig, tasks: Sequence[Task], choose: Choose, sha256: str
) -> Demonstrations | None:
    """Record those of the given tasks that a policy solves, without a file; None if it solves none.

    A task is solved if all of its operations are, by the rules of the reward level of the
    configuration, of which the same settings are ignored as in `record_tasks`. Labels are the
    policy's own actions.

    Args:
        config: the abacus, with the number of frames that the policy needs, and the reward level.
        tasks: the tasks to play.
        choose: returns the policy's action in each abacus of a batch.
        sha256: the digest of the policy's weights.
    """
    if not isinstance(config.reward, str):
        raise ValueError(f"reward={config.reward} are modules: give the level that judges")
    policy = TrainedPolicy(sha256, config.reward)
    recipe = Recipe(task_config(config), tasks=tuple(tasks), policy=policy)
    solved, script = _play_tasks(recipe.config, tasks, choose)
    if not solved.any():
        return None
    recipe = replace(recipe, tasks=tuple(compress(tasks, solved)))
    return Recorder(recipe).record(0, int(solved.sum()), script)


def _play_tasks(
    config: AbacusConfig, tasks: Sequence[Task], choose: Choose
) -> tuple[npt.NDArray[np.bool_], Script]:
    """Return which tasks a policy solves, and its actions in these, one task after the other."""
    batch = AbacusBatch(config, len(tasks), autoreset=False)
    batch.load_tasks(tasks)
    batch.reset(0)
    solved, running = np.zeros(len(tasks), np.bool_), np.ones(len(tasks), np.bool_)
    steps: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.integer[Any]]]] = []
    # At lenient levels a policy may do and undo a right slide for ever, without an end.
    longest = max(len(task.operations) for task in tasks)
    for _ in range(longest * config.columns * config.step_budget):
        actions = np.where(running, choose(batch), Action.UP)
        steps.append((np.flatnonzero(running), actions[running]))
        batch.step(actions)
        ended = running & (batch.ends != End.NONE)
        scalars = batch.scalars[ended]
        solved[ended] = (scalars["operations_solved"] == scalars["program_count"]) & (
            scalars["illegal_actions"] == 0
        )
        running &= ~ended
        if not running.any():
            break
    rows, taken = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.argsort(rows, kind="stable")
    order = order[solved[rows[order]]]
    return solved, taken[order].astype(np.uint8)


@_entry
def _record(places, expert, starts, rows, index, parts, done):
    """Record episodes from `done[1]` on; return False if `rows` are too few.

    `done` counts the transitions, episodes and operations of complete episodes.
    """
    all_rules, pixels, world, program, out = places
    which = np.array([RECORDED], np.int32)
    while done[1] < len(starts):
        world.scalars[RECORDED].rng = starts[done[1], 0]
        world.scalars[DETOURS].rng = starts[done[1], 1]
        if len(program.tasks) > 0:
            set_task(world.scalars[RECORDED], program, done[1])
        reset(all_rules, pixels, world, program, out, which)
        if not _record_episode(
            all_rules[0], world, program, out.results, expert, rows, index, parts, done
        ):
            return False
    return True


@_part
def _record_episode(rules, world, program, results, expert, rows, index, parts, done):
    scalars, cells, history = world
    printed, chance, rewards, script = expert
    s, result = scalars[RECORDED], results[RECORDED]
    n, m = done[0], done[2]
    opens, fresh = True, True
    while result.end == END_NONE:
        if n == len(rows.action):
            return False
        if opens:
            _open_operation(rules, s, cells, parts, m, n, done[1], fresh)
        legal = legal_actions(rules, s, cells[RECORDED, s.finger_column].digit)
        # A script that ends too early is no policy's; the expert keeps the memory safe.
        label = np.int64(script[n]) if n < len(script) else answer(s, cells, RECORDED, printed)
        taken = label
        if chance > 0 and random_below(scalars[DETOURS], _CHANCES) < chance:
            taken = _detour(rules, scalars, cells, history, program, results, printed, label, legal)
        rows.frame[n] = history[RECORDED, 0]
        rows.symbol[n] = s.symbol
        rows.operation[n] = s.operation
        rows.action[n] = label
        rows.taken[n] = taken
        rows.mask[n] = legal
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
def _outcome(result):
    """Return the outcome of the action: at most one outcome of a step is not 0."""
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
def _detour(rules, scalars, cells, history, program, results, printed, label, legal):
    """Return one of the actions that the operation survives, uniformly; else the label."""
    left = legal & ~(1 << label)
    while left > 0:
        action = _pick(left, scalars[DETOURS])
        if _survives(rules, scalars, cells, history, program, results, printed, action):
            return action
        left &= ~(1 << action)
    return label


@_part
def _pick(actions, stream):
    """Return one of the actions whose bits are set, at random."""
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
    """Try an action on the copy; return whether it is no mistake and leaves enough steps.

    Enough: the next extension of the budget comes with as many steps to spare as there are columns,
    which is more than the longest way back from where a detour can leave finger and signpost then.
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
    """Return whether a signpost move, slide or submit was wrong; a finger may go anywhere."""
    worst = 0
    for k in range(FINGER_OUTCOME + 1, len(result.outcomes)):
        worst = min(worst, result.outcomes[k])
    return worst < 0
