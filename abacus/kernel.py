"""The compiled dynamics: the only implementation of the rules of the abacus.

`step` advances N abaci and writes observations, action masks, outcomes and reward terms; `reset`
starts episodes. `World` holds the state, `Program` the given operations, `Output` the results.
Functions work on one abacus, index i; the entry points loop over all of them and inline the rest.

Two numbers make it cheap to judge a slide or a submit at any width: `wrong_count`, the number of
columns that differ from the partial result, and `first_wrong`, the lowest of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from abacus.compiling import compiled_inline, compiled_with
from abacus.observation import SIGNPOST_LEFT, SIGNPOST_PLACES, SIGNPOST_RIGHT, SIGNPOST_UNSEEN
from abacus.reward import OUTCOMES, TERMS
from abacus.rules import ADD as ADD
from abacus.rules import ENCODING_PERIOD, Action, End
from abacus.rules import SUBTRACT as SUBTRACT

LEFT, RIGHT, UP, DOWN = (int(a) for a in (Action.LEFT, Action.RIGHT, Action.UP, Action.DOWN))
TO_LEFT, TO_RIGHT = int(Action.SIGNPOST_LEFT), int(Action.SIGNPOST_RIGHT)
SLIDE, SUBMIT = int(Action.SLIDE), int(Action.SUBMIT)
ACTIONS = len(Action)

END_NONE, END_BUDGET, END_LIMIT = int(End.NONE), int(End.BUDGET), int(End.LIMIT)
END_WRONG_SIGNPOST, END_WRONG_SLIDE = int(End.WRONG_SIGNPOST), int(End.WRONG_SLIDE)
END_WRONG_SUBMIT = int(End.WRONG_SUBMIT)
END_CAPACITY, END_EXPRESSION = int(End.CAPACITY), int(End.EXPRESSION)

DRAW_BOTH, DRAW_ADD, DRAW_SUBTRACT = 0, 1, 2
FINGER_OUTCOME, SIGNPOST_OUTCOME, SLIDE_OUTCOME, SUBMIT_OUTCOME = 0, 1, 2, 3
#: Value of `digit_index` while an operation symbol is shown.
ON_OPERATION_SYMBOL = -1
#: Row of a finger goal that does not depend on the row.
ANY_ROW = -1
#: Value of `previous_action` at the start of an episode.
NO_ACTION = -1
#: Probabilities of tasks are integers below this.
CHANCES = 2**32

#: The outcome that judges each action.
OUTCOME_OF_ACTION = np.array(
    [FINGER_OUTCOME] * 4 + [SIGNPOST_OUTCOME] * 2 + [SLIDE_OUTCOME, SUBMIT_OUTCOME], np.uint8
)

#: Entry points, called from Python. No array is allocated here; reference counting would take a
#: fifth of the time of a step.
_entry = compiled_with(_nrt=False)

#: The configuration, the same for all abaci of a batch.
RULES = np.dtype(
    [
        ("base", np.int32),
        ("columns", np.int32),
        ("max_digits", np.int32),
        ("step_budget", np.int64),
        ("draw", np.int32),
        ("start_random", np.bool_),
        ("max_operations", np.int32),
        ("draw_tasks", np.bool_),
        ("task_share", np.int64),
        ("end_on_wrong_signpost", np.bool_),
        ("end_on_wrong_slide", np.bool_),
        ("end_on_wrong_submit", np.bool_),
    ],
    align=True,
)

#: One column: its digit, its digit in the partial result, and the operand's digit at its place.
CELL = np.dtype([("digit", np.uint8), ("target", np.uint8), ("operand", np.uint8)])

#: One abacus except for its columns. Fields that every step touches come first, in one cache line.
SCALARS = np.dtype(
    [
        ("steps", np.int64),
        ("budget", np.int64),
        ("episode_return", np.float64),
        ("finger_column", np.int32),
        ("signpost", np.int32),
        ("digit_index", np.int32),
        ("first_wrong", np.int32),
        ("wrong_count", np.int32),
        ("illegal_actions", np.int32),
        ("reloads", np.int32),
        ("finger_row", np.int8),
        ("symbol", np.int8),
        ("operation", np.int8),
        ("previous_action", np.int8),
        ("operations_done", np.int32),
        ("operations_solved", np.int32),
        ("operand_length", np.int32),
        ("start_row", np.int32),
        ("program_first", np.int32),
        ("program_count", np.int32),
        ("program_next", np.int32),
        ("end_after_reset", np.int8),
        ("reload_after_reset", np.bool_),
        ("solving", np.bool_),
        ("rng", np.uint64),
    ],
    align=True,
)


#: The results of a step of one abacus, beside the observation.
RESULT = np.dtype(
    [
        ("terms", np.float32, (len(TERMS),)),
        ("reward", np.float32),
        ("mask", np.int8, (len(Action),)),  # numba supports no array of bool in a record
        ("outcomes", np.int8, (len(OUTCOMES),)),
        ("end", np.uint8),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("illegal", np.bool_),
    ],
    align=True,
)


class World(NamedTuple):
    """The state of N abaci."""

    scalars: Any  # (N,) SCALARS
    cells: Any  # (N, columns) CELL
    history: Any  # (N, frames) int32: frame codes, oldest first


class Program(NamedTuple):
    """Starting values, and operations that are given instead of drawn."""

    start_digits: Any  # (starts, columns) uint8; of task k: row k + 1
    digits: Any  # (operations, longest operand) uint8
    headers: Any  # (operations, 2) int32: length, and ADD or SUBTRACT
    tasks: Any  # (tasks, 2) int32: first operation, number of operations
    chances: Any  # (tasks,) int64: the chances, of CHANCES, of this task and those before it


class Output(NamedTuple):
    """The results of a step."""

    rows: Any  # (N, row length) float32: observations; see abacus.observation.observation_rows
    results: Any  # (N,) RESULT
    ended: Any  # (N,) int32: the abaci that ended; this and the two below from row 0 on
    final_rows: Any  # (N, row length) float32: their last observations
    final_scalars: Any  # (N,) SCALARS: their last records


@compiled_inline
def random_below(s, n):
    """Return a random number below n from the abacus's own stream."""
    s.rng += np.uint64(0x9E3779B97F4A7C15)
    z = s.rng
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@compiled_inline
def _draw_operand(rules, s, cells, i):
    s.operand_length = 1 + random_below(s, rules.max_digits)
    for position in range(s.operand_length - 1):
        cells[i, position].operand = random_below(s, rules.base)
    cells[i, s.operand_length - 1].operand = 1 + random_below(s, rules.base - 1)


@compiled_inline
def _fits(rules, s, cells, i):
    """Return whether the result of the operation fits: not below zero, not too large."""
    carry = 0
    for column in range(rules.columns):
        if column >= s.operand_length and carry == 0:
            return True
        amount = carry
        if column < s.operand_length:
            amount += cells[i, column].operand
        if s.operation == ADD:
            carry = 1 if cells[i, column].digit + amount >= rules.base else 0
        else:
            carry = 1 if cells[i, column].digit < amount else 0
    return carry == 0


@compiled_inline
def _note_column(rules, s, cells, i, column, was_wrong):
    """Update `wrong_count` and `first_wrong` after a change of a column's digit or target."""
    is_wrong = cells[i, column].digit != cells[i, column].target
    if is_wrong == was_wrong:
        return
    if is_wrong:
        s.wrong_count += 1
        s.first_wrong = min(s.first_wrong, column)
        return
    s.wrong_count -= 1
    if s.wrong_count == 0:
        s.first_wrong = rules.columns
    elif column == s.first_wrong:
        while cells[i, column].digit == cells[i, column].target:
            column += 1
        s.first_wrong = column


@compiled_inline
def show_digit(rules, s, cells, i, index):
    """Show digit `index` of the operand and add it to the partial result."""
    s.digit_index = index
    s.symbol = cells[i, index].operand
    amount = s.symbol
    column = np.intp(index)
    while amount > 0 and column < rules.columns:
        was_wrong = cells[i, column].digit != cells[i, column].target
        digit = np.int32(cells[i, column].target)
        if s.operation == ADD:
            digit += amount
            amount = 1 if digit >= rules.base else 0
            digit -= rules.base * amount
        else:
            digit -= amount
            amount = 1 if digit < 0 else 0
            digit += rules.base * amount
        cells[i, column].target = digit
        _note_column(rules, s, cells, i, column, was_wrong)
        column += 1


@compiled_inline
def _reset_target(rules, s, cells, i):
    """Make the partial result what the abacus shows."""
    for column in range(rules.columns):
        cells[i, column].target = cells[i, column].digit
    s.wrong_count = 0
    s.first_wrong = rules.columns


@compiled_inline
def _next_of_program(rules, s, cells, i, program):
    if s.program_next == s.program_count:
        s.operation = ADD
        s.end_after_reset = END_EXPRESSION
        return
    row = s.program_first + s.program_next
    s.program_next += 1
    s.operand_length = program.headers[row, 0]
    s.operation = program.headers[row, 1]
    for position in range(s.operand_length):
        cells[i, position].operand = program.digits[row, position]
    if not _fits(rules, s, cells, i):
        s.end_after_reset = END_CAPACITY


@compiled_inline
def _next_at_random(rules, s, cells, i, first):
    _draw_operand(rules, s, cells, i)
    if rules.draw == DRAW_BOTH:
        s.operation = random_below(s, 2)
    else:
        s.operation = ADD if rules.draw == DRAW_ADD else SUBTRACT
    if _fits(rules, s, cells, i):
        return
    if s.operation == SUBTRACT:
        if rules.draw == DRAW_BOTH:
            s.operation = ADD
        else:
            s.reload_after_reset = True
    elif first:
        s.operation = SUBTRACT
    else:
        s.end_after_reset = END_CAPACITY


@compiled_inline
def _next_operation(rules, s, cells, i, program, first):
    """Choose the next operation; its first operand is what the abacus shows now."""
    s.end_after_reset = END_NONE
    s.reload_after_reset = False
    if s.program_count > 0:
        _next_of_program(rules, s, cells, i, program)
    else:
        _next_at_random(rules, s, cells, i, first)
    _reset_target(rules, s, cells, i)


@compiled_inline
def _reload(rules, s, cells, i):
    """Set all columns to random digits, for a subtraction that would go below zero."""
    for column in range(rules.columns - 1):
        cells[i, column].digit = random_below(s, rules.base)
    cells[i, rules.columns - 1].digit = 1 + random_below(s, rules.base - 1)
    s.reload_after_reset = False
    _reset_target(rules, s, cells, i)


@compiled_inline
def _go_to_start(s):
    s.finger_column = 0
    s.finger_row = 0
    s.signpost = 0


@compiled_inline
def set_task(s, program, task):
    """Make a task the program of the next episode."""
    s.start_row = task + 1
    s.program_first = program.tasks[task, 0]
    s.program_count = program.tasks[task, 1]


@compiled_inline
def _draw_task(rules, s, program):
    """Draw whether the next episode is a task, and which."""
    if rules.task_share == 0 or random_below(s, CHANCES) >= rules.task_share:
        s.start_row = 0
        s.program_count = 0
        return
    number = random_below(s, CHANCES)
    low, high = 0, len(program.chances) - 1
    while low < high:
        middle = (low + high) // 2
        if number < program.chances[middle]:
            high = middle
        else:
            low = middle + 1
    set_task(s, program, low)


@compiled_inline
def _start_episode(rules, s, cells, i, program):
    for column in range(rules.columns):
        cells[i, column].digit = program.start_digits[s.start_row, column]
    if rules.start_random and s.program_count == 0:
        _draw_operand(rules, s, cells, i)
        for column in range(s.operand_length):
            cells[i, column].digit = cells[i, column].operand
    _go_to_start(s)
    s.program_next = 0
    s.steps = 0
    s.budget = rules.step_budget
    s.episode_return = 0.0
    s.operations_done = 0
    s.operations_solved = 0
    s.illegal_actions = 0
    s.reloads = 0
    s.previous_action = NO_ACTION
    s.solving = True
    _next_operation(rules, s, cells, i, program, True)
    if s.reload_after_reset:
        s.reloads += 1
        _reload(rules, s, cells, i)
    show_digit(rules, s, cells, i, 0)


@compiled_inline
def _frame(rules, s, cells, i):
    """Return the code of the current frame; see abacus.observation.encode_frame."""
    column = s.finger_column
    left = rules.base
    if column > 0:
        left = np.int32(cells[i, column - 1].digit)
    code = (left * rules.base + cells[i, column].digit) * rules.base + s.finger_row
    signpost = SIGNPOST_UNSEEN
    if s.signpost == column:
        signpost = SIGNPOST_RIGHT
    elif s.signpost == column - 1:
        signpost = SIGNPOST_LEFT
    return (code * ENCODING_PERIOD + column % ENCODING_PERIOD) * SIGNPOST_PLACES + signpost


@compiled_inline
def finger_goal(s, cells, i):
    """Return where the finger belongs: (column, row), with ANY_ROW if the row does not matter.

    On digit j: the lowest wrong column and its row, if the signpost is on column j or the wrong
    column is not beyond j; otherwise column j until the signpost is there, then column j + 1. On
    an operation symbol: column 0.
    """
    j = s.digit_index
    if j == ON_OPERATION_SYMBOL:
        return 0, ANY_ROW
    if s.wrong_count > 0 and (s.first_wrong <= j or s.signpost == j):
        return s.first_wrong, np.int32(cells[i, s.first_wrong].target)
    if s.signpost != j:
        return j, ANY_ROW
    return j + 1, ANY_ROW


@compiled_inline
def _distance(s, column, row):
    rows = 0 if row == ANY_ROW else abs(s.finger_row - row)
    return abs(s.finger_column - column) + rows


@compiled_inline
def legal_actions(rules, s, digit):
    """Return the actions that change something, bit a for action a.

    `digit` is the digit of the finger's column.
    """
    return (
        (s.finger_column > 0) << LEFT
        | (s.finger_column < rules.columns - 1) << RIGHT
        | (s.finger_row > 0) << UP
        | (s.finger_row < rules.base - 1) << DOWN
        | (s.signpost > 0) << TO_LEFT
        | (s.signpost < rules.columns - 1) << TO_RIGHT
        | (digit != s.finger_row) << SLIDE
        | 1 << SUBMIT
    )


@compiled_inline
def is_legal(rules, s, digit, action):
    """Return whether the action changes something; `digit` as in `legal_actions`."""
    return (legal_actions(rules, s, digit) >> action) & 1 == 1


@compiled_inline
def _move_finger(s, cells, i, action):
    column, row = finger_goal(s, cells, i)
    before = _distance(s, column, row)
    if action == LEFT:
        s.finger_column -= 1
    elif action == RIGHT:
        s.finger_column += 1
    elif action == UP:
        s.finger_row -= 1
    else:
        s.finger_row += 1
    after = _distance(s, column, row)
    if after == before:
        return 0
    return 1 if after < before else -1


@compiled_inline
def _move_signpost(s, action):
    home = max(s.digit_index, 0)
    before = abs(s.signpost - home)
    s.signpost += 1 if action == TO_RIGHT else -1
    return 1 if abs(s.signpost - home) < before else -1


@compiled_inline
def _slide(rules, s, cells, i):
    column = np.intp(s.finger_column)
    was_wrong = cells[i, column].digit != cells[i, column].target
    cells[i, column].digit = s.finger_row
    _note_column(rules, s, cells, i, column, was_wrong)
    if s.digit_index == ON_OPERATION_SYMBOL or s.first_wrong <= column:
        return -1
    s.budget += rules.step_budget
    return 1


@compiled_inline
def _judge_submit(rules, s):
    """Return whether the submit is right, 1 or -1; a right reset extends the budget."""
    if s.digit_index == ON_OPERATION_SYMBOL:
        if s.signpost != 0:
            return -1
        s.budget += rules.step_budget
        return 1
    return 1 if s.wrong_count == 0 and s.signpost == s.digit_index else -1


@compiled_inline
def _close_operation(rules, s, cells, i):
    """Close an operation when its reset is submitted; return the end that this may bring."""
    if s.solving and s.wrong_count == 0:
        s.operations_solved += 1
    s.solving = True
    if s.end_after_reset != END_NONE:
        return s.end_after_reset
    if rules.max_operations > 0 and s.operations_done >= rules.max_operations:
        return END_LIMIT
    if s.reload_after_reset:
        s.reloads += 1
        _reload(rules, s, cells, i)
        _go_to_start(s)
    show_digit(rules, s, cells, i, 0)
    return END_NONE


@compiled_inline
def _next_symbol(rules, s, cells, i, program):
    """Show the next symbol; return the end that this may bring."""
    if s.digit_index == ON_OPERATION_SYMBOL:
        return _close_operation(rules, s, cells, i)
    if s.digit_index + 1 < s.operand_length:
        show_digit(rules, s, cells, i, s.digit_index + 1)
        return END_NONE
    if s.wrong_count > 0:
        s.solving = False
    _next_operation(rules, s, cells, i, program, False)
    s.digit_index = ON_OPERATION_SYMBOL
    s.symbol = rules.base + s.operation
    return END_NONE


@compiled_inline
def _submit(rules, s, cells, i, program):
    outcome = _judge_submit(rules, s)
    if s.digit_index == ON_OPERATION_SYMBOL:
        s.operations_done += 1
    if outcome < 0:
        s.solving = False
        if rules.end_on_wrong_submit:
            return outcome, END_WRONG_SUBMIT
    return outcome, _next_symbol(rules, s, cells, i, program)


@compiled_inline
def _act(rules, s, cells, i, program, action):
    """Carry out a legal action; return its outcome and the end that it brings."""
    if action <= DOWN:
        return _move_finger(s, cells, i, action), END_NONE
    if action <= TO_RIGHT:
        outcome = _move_signpost(s, action)
        ends = outcome < 0 and rules.end_on_wrong_signpost
        return outcome, END_WRONG_SIGNPOST if ends else END_NONE
    if action == SLIDE:
        outcome = _slide(rules, s, cells, i)
        ends = outcome < 0 and rules.end_on_wrong_slide
        return outcome, END_WRONG_SLIDE if ends else END_NONE
    return _submit(rules, s, cells, i, program)


@compiled_inline
def _pay(weights, action, result):
    """Write the reward and its terms."""
    judged = OUTCOME_OF_ACTION[action]
    outcome = 1 + result.outcomes[judged]
    for k in range(len(result.terms)):
        result.terms[k] = weights[judged, outcome, k]
    result.reward = weights[judged, outcome, len(result.terms)]


@compiled_inline
def fill_history(rules, s, cells, i, history):
    """Set all frames to the current one."""
    frame = _frame(rules, s, cells, i)
    for k in range(history.shape[1]):
        history[i, k] = frame


@compiled_inline
def _push_frame(rules, s, cells, i, history):
    newest = history.shape[1] - 1
    for k in range(newest):
        history[i, k] = history[i, k + 1]
    history[i, newest] = _frame(rules, s, cells, i)


@compiled_inline
def _write_row(rules, s, history, i, pixels, rows, row):
    """Write the observation: the frames' pixels, then symbol, operation and previous action."""
    place = 0
    for frame in range(history.shape[1]):
        code = history[i, frame]
        for k in range(pixels.shape[1]):
            rows[row, place + k] = pixels[code, k]
        place += pixels.shape[1]
    for k in range(place, rows.shape[1]):
        rows[row, k] = 0.0
    rows[row, place + s.symbol] = 1.0
    place += rules.base + 2
    rows[row, place] = s.operation
    if s.previous_action != NO_ACTION:
        rows[row, place + 1 + s.previous_action] = 1.0


@compiled_inline
def _write_mask(rules, s, cells, i, result):
    legal = legal_actions(rules, s, cells[i, s.finger_column].digit)
    for action in range(ACTIONS):
        result.mask[action] = (legal >> action) & 1


@compiled_inline
def _clear(result):
    """Write the results of an episode without a step."""
    for k in range(len(result.terms)):
        result.terms[k] = 0.0
    for k in range(len(result.outcomes)):
        result.outcomes[k] = 0
    result.reward = 0.0
    result.end = END_NONE
    result.terminated = False
    result.truncated = False
    result.illegal = False


@compiled_inline
def advance(rules, s, cells, history, program, i, action, result):
    """Carry out an action in abacus i, add the new frame, and write outcomes and end."""
    reloads = s.reloads
    outcome, end = 0, END_NONE
    legal = is_legal(rules, s, cells[i, s.finger_column].digit, action)
    if legal:
        outcome, end = _act(rules, s, cells, i, program, action)
    else:
        s.illegal_actions += 1
    s.previous_action = action
    s.steps += 1
    if end == END_NONE and s.steps >= s.budget:
        end = END_BUDGET
    if s.reloads != reloads:
        s.previous_action = NO_ACTION
        fill_history(rules, s, cells, i, history)
    else:
        _push_frame(rules, s, cells, i, history)
    for k in range(len(result.outcomes)):
        result.outcomes[k] = 0
    result.outcomes[OUTCOME_OF_ACTION[action]] = outcome
    result.illegal = not legal
    result.end = end
    result.truncated = end in (END_BUDGET, END_LIMIT)
    result.terminated = end != END_NONE and not result.truncated


def _step_function(draw_tasks):
    """Return `step`, or a function that also draws tasks when it starts episodes.

    As a branch of one function, drawing would cost a step without tasks 4 % of its time.
    """

    def step(all_rules, weights, pixels, world, program, out, actions, autoreset):
        """Advance all abaci; return the number of ends, or -1 if an action is out of range."""
        for action in actions:
            if action < 0 or action >= ACTIONS:
                return -1
        rules = all_rules[0]
        scalars, cells, history = world
        ended = 0
        for i in range(len(actions)):
            s, result = scalars[i], out.results[i]
            advance(rules, s, cells, history, program, i, actions[i], result)
            _pay(weights, actions[i], result)
            s.episode_return += result.reward
            if result.end != END_NONE:
                out.ended[ended] = i
                out.final_scalars[ended] = s
                _write_row(rules, s, history, i, pixels, out.final_rows, ended)
                ended += 1
                if autoreset:
                    if draw_tasks:
                        _draw_task(rules, s, program)
                    _start_episode(rules, s, cells, i, program)
                    fill_history(rules, s, cells, i, history)
            _write_row(rules, s, history, i, pixels, out.rows, i)
            _write_mask(rules, s, cells, i, result)
        return ended

    return step


step = _entry(_step_function(False))
step_drawing_tasks = _entry(_step_function(True))


@_entry
def reset(all_rules, pixels, world, program, out, which):
    """Start an episode in each of the abaci in `which`."""
    rules = all_rules[0]
    scalars, cells, history = world
    for k in range(len(which)):
        i = np.intp(which[k])
        s, result = scalars[i], out.results[i]
        if rules.draw_tasks:
            _draw_task(rules, s, program)
        _start_episode(rules, s, cells, i, program)
        fill_history(rules, s, cells, i, history)
        _clear(result)
        _write_row(rules, s, history, i, pixels, out.rows, i)
        _write_mask(rules, s, cells, i, result)


@_entry
def write_final_masks(all_rules, out, masks):
    """Write the action masks of the last states of the abaci that ended.

    Computed on request from what is kept of them: doing it in `step` would cost 6 % of its time.
    """
    rules = all_rules[0]
    rows = rules.base + 1
    window = out.final_rows.shape[1] - (rules.base + 2) - 1 - ACTIONS
    for k in range(len(masks)):
        # The last column of the newest frame's bead plane is the finger's; its gap is the digit.
        place = window - 3 * rows + 1
        digit = 0
        while out.final_rows[k, place + digit] > 0:
            digit += 1
        legal = legal_actions(rules, out.final_scalars[k], digit)
        for action in range(ACTIONS):
            masks[k, action] = (legal >> action) & 1
