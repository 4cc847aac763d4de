"""Planning: the best runs of exercises, found from the reward by search in the environment.

The environment is a simulator whose state can be copied. All states that an exercise can reach
without a mistake are enumerated on few columns, and value iteration gives each of them the return
that the best actions still earn, undiscounted, at the reward level. Nothing else is known about
the task: neither the teacher nor the rules of arithmetic are used.

The best actions of a state depend on what the policy does not see: digits out of view, and symbols
that are still to come. For an observation, an action is therefore worth its mean advantage over the
states in which the planned runs met it. Among equally good actions a fixed order decides, so that
like observations get like actions: a network that clones them generalises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from abacus.checks import check_choice
from abacus.compiling import compiled, compiled_inline
from abacus.hash_index import EMPTY, empty_slots
from abacus.kernel import (
    ACTIONS,
    CELL,
    END_BUDGET,
    END_CAPACITY,
    END_EXPRESSION,
    END_LIMIT,
    END_NONE,
    OUTCOME_OF_ACTION,
    RESULT,
    SCALARS,
    World,
    advance,
    legal_actions,
)
from abacus.observation import visibly_illegal_actions
from abacus.reward import modules_of, pay_table
from abacus.rules import AbacusConfig, Action
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import Exercises
from pipelines.learning.settings import PlanningSettings, PlanOrder

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Columns of planned exercises. Where wrong slides do not end an episode, every combination of
#: digits is a state, and there are fewer columns.
WIDTHS, WIDTHS_WITHOUT_SLIDES = (2, 3, 4, 5, 6, 7), (2, 3)
#: The part of the digits of planned exercises that are 0 or the highest.
EXTREME = 0.3
#: States of an exercise at most: one with more is left out.
MOST_STATES = 1 << 18
#: Exercises that are planned before the next sign of progress.
PLANNED_AT_ONCE = 100
#: What a mistake costs beside its reward: the rest of the episode.
FORFEIT = 3.0
#: Advantages of a state that differ by less than this, of the 0.05 that a step costs, are equal;
#: mean advantages of an observation vary more, with the exercises that met it.
TIE, MEAN_TIE = 0.02, 0.05
#: Which of equally good actions is preferred, on digits and on operation symbols. Rows come last,
#: because what is best there could depend on symbols that are not known yet. Two preferences let
#: the policy remember what it has done, of which three frames tell little: a step to the right
#: before the submit tells that a digit is written, and a finger that is at home when an operation
#: begins tells that a signpost out of view has still to be moved. `submit-first` has neither.
_SUBMIT, _SLIDE = (Action.SUBMIT,), (Action.SLIDE,)
_LEFT, _RIGHT = (Action.LEFT,), (Action.RIGHT,)
_ROW = (Action.UP, Action.DOWN)
_SIGNPOST = (Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT)
_FINGER_HOME = _SLIDE + _LEFT + _RIGHT + _SIGNPOST + _SUBMIT + _ROW
_SUBMIT_SIGNPOST = _SUBMIT + _SLIDE + _SIGNPOST + _LEFT + _RIGHT + _ROW
ORDERS: dict[PlanOrder, tuple[tuple[Action, ...], tuple[Action, ...]]] = {
    "right-first": (_SLIDE + _RIGHT + _SUBMIT + _LEFT + _SIGNPOST + _ROW, _FINGER_HOME),
    "finger-first": (_SUBMIT + _SLIDE + _LEFT + _RIGHT + _SIGNPOST + _ROW, _FINGER_HOME),
    "signpost-first": (
        _SUBMIT_SIGNPOST,
        _SLIDE + _SIGNPOST + _LEFT + _RIGHT + _SUBMIT + _ROW,
    ),
    "submit-first": (_SUBMIT_SIGNPOST, _SUBMIT_SIGNPOST),
}
#: In place of a successor: the action is illegal, a mistake, or ends the exercise well.
ILLEGAL, MISTAKE, SOLVED = -1, -2, -3
UNKNOWN = -1e6


class _States(NamedTuple):
    """States of an exercise: what the kernel holds of each, and the graph of their actions."""

    world: World
    results: Any  # (N,) RESULT
    keys: Any  # (N, 2) uint64: what tells states apart
    slots: Any  # hash index of the keys
    successors: Any  # (N, 8) int32: a state, ILLEGAL, MISTAKE or SOLVED
    rewards: Any  # (N, 8) float64
    values: Any  # (N,) float64: the return that the best actions still earn

    @classmethod
    def of(cls, columns: int, frames: int, count: int) -> _States:
        world = World(
            np.zeros(count, SCALARS),
            np.zeros((count, columns), CELL),
            np.zeros((count, frames), np.int32),
        )
        return cls(
            world,
            np.zeros(count, RESULT),
            np.zeros((count, 2), np.uint64),
            empty_slots(count),
            np.zeros((count, ACTIONS), np.int32),
            np.zeros((count, ACTIONS), np.float64),
            np.zeros(count, np.float64),
        )


class PlannedSteps(NamedTuple):
    """Steps of planned runs: the observation, the advantage of every action, and what is legal."""

    codes: npt.NDArray[np.int32]  # (N, frames + 2): frame codes, symbol, operation
    advantages: npt.NDArray[np.float64]  # (N, 8); UNKNOWN for illegal actions
    legal: npt.NDArray[np.bool_]  # (N, 8)

    @classmethod
    def join(cls, parts: Sequence[PlannedSteps]) -> PlannedSteps:
        """Return the steps of several lists."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class Planner:
    """Plans exercises of one world; `steps` counts those of the environment."""

    def __init__(self, world: AbacusConfig, order: PlanOrder = "right-first") -> None:
        check_choice("order", order, get_args(PlanOrder))
        self.world = world
        self.steps = 0
        self._orders = np.array(ORDERS[order], np.int64)
        self._pay = pay_table(world.reward)[:, :, -1].astype(np.float64)
        self._states: dict[int, _States] = {}

    def plan(self, exercises: Exercises) -> PlannedSteps:
        """Return the steps of the best run of each exercise that has not too many states."""
        runs = [self._run(exercises, row) for row in range(len(exercises))]
        codes, advantages, bits = (np.concatenate(arrays) for arrays in zip(*runs, strict=True))
        legal = bits[:, None] >> np.arange(ACTIONS) & 1
        return PlannedSteps(codes, advantages, legal.astype(np.bool_))

    def _run(self, exercises: Exercises, row: int) -> tuple[npt.NDArray[Any], ...]:
        ((_, batch),) = exercises.take(np.array([row])).batches(self.world)
        columns, frames = batch.config.columns, batch.config.frames
        if columns not in self._states:
            self._states[columns] = _States.of(columns, frames, MOST_STATES)
        states = self._states[columns]
        for kept, given in zip(states.world, batch.world, strict=True):
            kept[0] = given[0]
        count, steps = _enumerate(batch.rules, self._pay, batch.program, states)
        self.steps += steps
        if count == 0:
            nothing = np.zeros((0, frames + 2), np.int32), np.zeros((0, ACTIONS))
            return *nothing, np.zeros(0, np.int64)
        _value(states.successors, states.rewards, states.values, count)
        run: tuple[npt.NDArray[Any], ...] = _best_run(
            batch.rules, batch.program, states, count, self._orders
        )
        return run

    def labels(self, planned: PlannedSteps) -> CloningSet:
        """Return the distinct observations of planned runs, each with its best action.

        Where an edge out of view makes an action illegal, the observation is listed with each set
        of legal actions.
        """
        visible = ~visibly_illegal_actions(self.world.base)[planned.codes[:, -3]]
        hidden = (visible & ~planned.legal).any(axis=1, keepdims=True)
        masks = np.where(hidden, planned.legal, visible)
        keys = np.column_stack([planned.codes, masks.astype(np.int32)])
        distinct, index, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        sums = np.zeros((len(distinct), ACTIONS))
        np.add.at(sums, index.ravel(), np.clip(planned.advantages, -1.0 - FORFEIT, 0.0))
        codes, masks = distinct[:, :-ACTIONS], distinct[:, -ACTIONS:].astype(np.bool_)
        means = np.where(masks, sums / counts[:, None], -np.inf)
        good = means >= means.max(axis=1, keepdims=True) - MEAN_TIE
        orders = self._orders[(codes[:, -2] >= self.world.base).astype(np.int64)]
        first = np.take_along_axis(good, orders, axis=1).argmax(axis=1)
        actions = orders[np.arange(len(orders)), first]
        return CloningSet.of_codes(self.world.base, codes.astype(np.int32), actions, masks)


def planned_actions(
    world: AbacusConfig,
    settings: PlanningSettings,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda planned, steps: None,
) -> tuple[CloningSet, int]:
    """Plan random exercises; return what is to be cloned, and the steps of the environment."""
    rng = np.random.default_rng([seed, 1])
    judged = "wrong_slide" in modules_of(world.reward)
    widths = WIDTHS if judged else WIDTHS_WITHOUT_SLIDES
    exercises = Exercises.draw(rng, settings.exercises, world, widths, EXTREME)
    planner, parts = Planner(world, settings.order), []
    for first in range(0, len(exercises), PLANNED_AT_ONCE):
        rows = np.arange(first, min(first + PLANNED_AT_ONCE, len(exercises)))
        parts.append(planner.plan(exercises.take(rows)))
        on_progress(int(rows[-1]) + 1, planner.steps)
    return planner.labels(PlannedSteps.join(parts)), planner.steps


@compiled_inline
def copy_abacus(world, source, target):
    """Copy the state of an abacus to another place of the same arrays."""
    scalars, cells, history = world
    scalars[target] = scalars[source]
    for k in range(cells.shape[1]):
        cells[target, k] = cells[source, k]
    for k in range(history.shape[1]):
        history[target, k] = history[source, k]


@compiled_inline
def ended_well(end):
    """Return whether an episode ended because its task is done, or by a limit."""
    return end in (END_LIMIT, END_CAPACITY, END_EXPRESSION)


@compiled_inline
def _find(states, base, state):
    """Write the key of a state; return its slot."""
    scalars, cells, _ = states.world
    s = scalars[state]
    digits = np.uint64(0)
    for k in range(cells.shape[1]):
        digits = digits * np.uint64(base) + np.uint64(cells[state, k].digit)
    place = np.uint64(s.finger_column) << np.uint64(8) | np.uint64(s.finger_row)
    place = place << np.uint64(8) | np.uint64(s.signpost)
    place = place << np.uint64(8) | np.uint64(s.digit_index + 1)
    place = place << np.uint64(16) | np.uint64(s.operations_done)
    states.keys[state, 0] = digits
    states.keys[state, 1] = place
    mixed = digits * np.uint64(0x9E3779B97F4A7C15) ^ place * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0x94D049BB133111EB)
    mask = np.uint64(len(states.slots) - 1)
    slot = mixed >> np.uint64(20) & mask
    while states.slots[slot] != EMPTY:
        other = states.slots[slot]
        if states.keys[other, 0] == digits and states.keys[other, 1] == place:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def _enumerate(all_rules, pay, program, states):
    """Find all states that follow state 0 without a mistake; return their number and the steps.

    The number is 0 if there is no room for them. The step budget does not count.
    """
    rules = all_rules[0]
    scalars, cells, history = states.world
    states.slots[:] = EMPTY
    states.slots[_find(states, rules.base, 0)] = 0
    count, state, steps = 1, 0, 0
    while state < count:
        s = scalars[state]
        legal = legal_actions(rules, s, cells[state, s.finger_column].digit)
        for a in range(ACTIONS):
            action = np.int64(a)
            if not legal >> action & 1:
                states.successors[state, action] = ILLEGAL
                continue
            if count >= len(scalars):
                return 0, steps
            copy_abacus(states.world, state, count)
            after, result = scalars[count], states.results[count]
            after.steps, after.budget = 0, 1 << 30
            advance(rules, after, cells, history, program, count, action, result)
            steps += 1
            judged = OUTCOME_OF_ACTION[action]
            states.rewards[state, action] = pay[judged, 1 + result.outcomes[judged]]
            if result.end != END_NONE:
                states.successors[state, action] = SOLVED if ended_well(result.end) else MISTAKE
                continue
            slot = _find(states, rules.base, count)
            if states.slots[slot] == EMPTY:
                states.slots[slot] = count
                count += 1
            states.successors[state, action] = states.slots[slot]
        state += 1
    return count, steps


@compiled_inline
def _action_value(successors, rewards, values, state, action):
    after = successors[state, action]
    if after == ILLEGAL:
        return UNKNOWN
    if after == MISTAKE:
        return rewards[state, action] - FORFEIT
    if after == SOLVED:
        return rewards[state, action]
    return rewards[state, action] + values[after]


@compiled
def _value(successors, rewards, values, count):
    """Write the return of the best actions from each state on, by value iteration."""
    values[:count] = UNKNOWN
    changed = True
    while changed:
        changed = False
        # Later states are mostly nearer to the end.
        for state in range(count - 1, -1, -1):
            best = UNKNOWN
            for action in range(ACTIONS):
                best = max(best, _action_value(successors, rewards, values, state, action))
            # Rewards are sums of twentieths: smaller differences are rounding.
            if best > values[state] + 1e-6:
                values[state] = best
                changed = True


@compiled
def _best_run(all_rules, program, states, count, orders):
    """Follow the first of the best actions from state 0; return the steps as `PlannedSteps`."""
    rules = all_rules[0]
    scalars, cells, history = states.world
    frames = history.shape[1]
    codes = np.zeros((count, frames + 2), np.int32)
    advantages = np.zeros((count, ACTIONS), np.float64)
    legal = np.zeros(count, np.int64)
    # No state is met twice, and the run takes the last place, whose state is not needed.
    run = np.int64(len(scalars) - 1)
    copy_abacus(states.world, 0, run)
    s, result = scalars[run], states.results[run]
    for step in range(count):
        state = states.slots[_find(states, rules.base, run)]
        for k in range(frames):
            codes[step, k] = history[run, k]
        codes[step, frames] = s.symbol
        codes[step, frames + 1] = s.operation
        legal[step] = legal_actions(rules, s, cells[run, s.finger_column].digit)
        chosen = np.int64(-1)
        for k in range(ACTIONS):
            action = orders[np.int64(s.symbol >= rules.base), k]
            value = _action_value(states.successors, states.rewards, states.values, state, action)
            advantages[step, action] = max(value - states.values[state], UNKNOWN)
            if chosen < 0 and value >= states.values[state] - TIE:
                chosen = action
        s.steps, s.budget = 0, 1 << 30
        advance(rules, s, cells, history, program, run, chosen, result)
        if result.end not in (END_NONE, END_BUDGET):
            return codes[: step + 1], advantages[: step + 1], legal[: step + 1]
    return codes, advantages, legal
