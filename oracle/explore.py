"""The reference algorithm as a finite automaton: every situation it can be in, up to a width.

The abacus of the exploration is lazy: a column has no digit until the window first shows it or a
carry reaches it, and then it takes every digit, one branch each. A submit brings every symbol that
may follow. A column is forgotten once no frame shows it and no carry comes back over it, so that
situations which differ in what nobody can see are one. Beads, finger and signpost are moved by the
kernel itself and the teacher answers as everywhere: no rule is written twice.

Situations are numbered in the order of a breadth-first search from the starts of episodes, each
with the one it came from: the way to a situation is the shortest that there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import (
    ADD,
    LEFT,
    ON_OPERATION_SYMBOL,
    RIGHT,
    SUBMIT,
    advance,
    compiled,
    fill_history,
    show_digit,
)
from abacus.observation import SIGNPOST_PLACES
from abacus.rules import ENCODING_PERIOD, AbacusConfig
from oracle.algorithm import Variant
from oracle.expert import answer

#: A column that has no digit yet.
UNKNOWN = 255
NOBODY = -1

# The bytes of a situation: these, then a digit and a partial-result digit a column, then two bytes
# a frame. `digit_index` is kept plus one, so that the operation symbol's -1 fits a byte.
FINGER_COLUMN, FINGER_ROW, SIGNPOST, DIGIT_INDEX, SYMBOL, OPERATION, HEADER = range(7)


@dataclass(frozen=True)
class Exploration:
    """All situations on an abacus of `width` columns, in the order of their distance."""

    base: int
    frames: int
    width: int
    situations: npt.NDArray[np.uint8]  # (situations, bytes)
    parents: npt.NDArray[np.int32]  # (situations,), NOBODY for starts
    actions: npt.NDArray[np.uint8]  # (situations,): the teacher's

    @property
    def digits(self) -> npt.NDArray[np.uint8]:
        """(situations, width): what columns show, UNKNOWN where that is open."""
        return self.situations[:, HEADER : HEADER + self.width]

    @property
    def histories(self) -> npt.NDArray[np.int32]:
        """(situations, frames): the frame codes seen, oldest first."""
        pairs = self.situations[:, HEADER + 2 * self.width :].astype(np.int32)
        return pairs[:, 0::2] * 256 + pairs[:, 1::2]


def explore(base: int, frames: int, width: int, variant: Variant = "before") -> Exploration:
    """Explores the algorithm on an abacus of so many columns."""
    config = AbacusConfig(
        base=base, columns=width, max_digits=width - 1, frames=frames, on_error="terminate"
    )
    batch = AbacusBatch(config, 1, autoreset=False)
    # Operation 0 of the program adds and 1 subtracts a zero: what a submit draws the symbol from.
    batch.load(
        np.zeros((1, width), np.uint8),
        np.zeros((2, width - 1), np.uint8),
        np.ones(2, np.int32),
        np.arange(2, dtype=np.int32),
        np.array([2], np.int32),
    )
    size = HEADER + 2 * width + 2 * frames
    store = (
        np.zeros((1 << 12, size), np.uint8),
        np.full(1 << 12, NOBODY, np.int32),
        np.zeros(1 << 12, np.uint8),
        np.full(1 << 14, NOBODY, np.int32),
    )
    situations, parents, actions, count = _explore(
        batch.rules, batch.world, batch.program, batch.out.results, variant == "printed", store
    )
    if count < 0:
        raise AssertionError("the reference algorithm made a mistake: its exploration is void")
    return Exploration(
        base, frames, width, situations[:count], parents[:count], actions[:count]
    )


@compiled
def _load(row, s, cells, history):
    """Sets the abacus to a situation; columns without a digit show 0."""
    s.finger_column = row[FINGER_COLUMN]
    s.finger_row = row[FINGER_ROW]
    s.signpost = row[SIGNPOST]
    s.digit_index = np.int32(row[DIGIT_INDEX]) - 1
    s.symbol = row[SYMBOL]
    s.operation = row[OPERATION]
    width, frames = cells.shape[1], history.shape[1]
    s.wrong_count = 0
    s.first_wrong = width
    for column in range(width):
        digit, target = row[HEADER + column], row[HEADER + width + column]
        cells[0, column].digit = 0 if digit == UNKNOWN else digit
        cells[0, column].target = 0 if digit == UNKNOWN else target
        if digit != UNKNOWN and digit != target:
            s.wrong_count += 1
            s.first_wrong = min(s.first_wrong, column)
    start = HEADER + 2 * width
    for k in range(frames):
        history[0, k] = np.int32(row[start + 2 * k]) * 256 + row[start + 2 * k + 1]
    s.steps = 0
    s.budget = 1 << 30
    s.end_after_reset = 0
    s.reload_after_reset = False


@compiled
def _save(s, cells, history, known, row):
    """The situation of the abacus; forgets the columns that nobody can see or come back over."""
    width, frames = cells.shape[1], history.shape[1]
    _forget(s, cells, history, known)
    row[FINGER_COLUMN] = s.finger_column
    row[FINGER_ROW] = s.finger_row
    row[SIGNPOST] = s.signpost
    row[DIGIT_INDEX] = s.digit_index + 1
    row[SYMBOL] = s.symbol
    row[OPERATION] = s.operation
    for column in range(width):
        row[HEADER + column] = cells[0, column].digit if known[column] else UNKNOWN
        row[HEADER + width + column] = cells[0, column].target if known[column] else UNKNOWN
    start = HEADER + 2 * width
    for k in range(frames):
        row[start + 2 * k] = history[0, k] // 256
        row[start + 2 * k + 1] = history[0, k] % 256


@compiled
def _forget(s, cells, history, known):
    width, frames = cells.shape[1], history.shape[1]
    # The finger moves at most one column a step: the phases of the frames tell where it was.
    lowest = highest = column = s.finger_column
    for k in range(frames - 1, 0, -1):
        phase = history[0, k] // SIGNPOST_PLACES % ENCODING_PERIOD
        before = history[0, k - 1] // SIGNPOST_PLACES % ENCODING_PERIOD
        moved = (before - phase) % ENCODING_PERIOD
        column += -1 if moved == ENCODING_PERIOD - 1 else moved
        lowest, highest = min(lowest, column), max(highest, column)
    lowest -= 1
    if s.digit_index != ON_OPERATION_SYMBOL:
        lowest = min(lowest, s.digit_index)
        for column in range(highest + 1, width):
            if known[column] and cells[0, column].digit != cells[0, column].target:
                highest = column
    for column in range(width):
        if column < lowest or column > highest:
            known[column] = False


@compiled
def _hash(row):
    value = np.uint64(0xCBF29CE484222325)
    for byte in row:
        value = (value ^ np.uint64(byte)) * np.uint64(0x100000001B3)
    return value ^ (value >> np.uint64(29))


@compiled
def _place(row, situations, table):
    """Where the row is, or would be, in the table."""
    mask = np.uint64(len(table) - 1)
    place = _hash(row) & mask
    while table[place] != NOBODY:
        other = situations[table[place]]
        same = True
        for k in range(len(row)):
            if other[k] != row[k]:
                same = False
                break
        if same:
            return place
        place = (place + np.uint64(1)) & mask
    return place


@compiled
def _grown(store, count):
    """The store, twice as large if it is half full."""
    situations, parents, actions, table = store
    if count + 4096 < len(situations):
        return store
    size = 2 * len(situations) + 4096
    new_situations = np.zeros((size, situations.shape[1]), np.uint8)
    new_parents = np.full(size, NOBODY, np.int32)
    new_actions = np.zeros(size, np.uint8)
    new_situations[:count] = situations[:count]
    new_parents[:count] = parents[:count]
    new_actions[:count] = actions[:count]
    slots = len(table)
    while slots < 2 * size:
        slots *= 2
    new_table = np.full(slots, NOBODY, np.int32)
    for index in range(count):
        new_table[_place(new_situations[index], new_situations, new_table)] = index
    return new_situations, new_parents, new_actions, new_table


@compiled
def _add(store, count, row, parent):
    situations, parents, _, table = store
    place = _place(row, situations, table)
    if table[place] != NOBODY:
        return count
    situations[count] = row
    parents[count] = parent
    table[place] = count
    return count + 1


@compiled
def _know(row, known, width):
    for column in range(width):
        known[column] = row[HEADER + column] != UNKNOWN


@compiled
def _set_column(cells, known, column, digit):
    cells[0, column].digit = digit
    cells[0, column].target = digit
    known[column] = True


@compiled
def _chain_branches(base, s, cells, known, column, amount, subtract, choices):
    """The ways in which a digit that arrives at a column can carry on.

    Writes (length, digit) to `choices` and returns how many: a carry runs over `length` columns,
    each of which it wraps, to one of which the digit is given or, if UNKNOWN, known already.
    """
    digit = np.int32(cells[0, column].digit)
    overflows = digit < amount if subtract else digit + amount >= base
    if not overflows:
        choices[0, 0] = NOBODY
        return 1
    wrapping = 0 if subtract else base - 1
    count = 0
    for length in range(cells.shape[1] - column - 1):
        place = column + 1 + length
        if known[place]:
            if cells[0, place].digit != wrapping:
                choices[count, 0], choices[count, 1] = length, UNKNOWN
                return count + 1
            continue
        for terminal in range(base):
            if terminal != wrapping:
                choices[count, 0], choices[count, 1] = length, terminal
                count += 1
    return count


@compiled
def _take_chain(base, cells, known, column, subtract, length, terminal):
    """Gives open columns the digits of a chosen carry."""
    if length == NOBODY:
        return
    wrapping = 0 if subtract else base - 1
    for place in range(column + 1, column + 1 + length):
        _set_column(cells, known, place, wrapping)
    if terminal != UNKNOWN:
        _set_column(cells, known, column + 1 + length, terminal)


@compiled
def _explore(all_rules, world, program, results, printed, store):
    rules = all_rules[0]
    scalars, cells, history = world
    s, result = scalars[0], results[0]
    width = cells.shape[1]
    known = np.zeros(width, np.bool_)
    row = np.zeros(store[0].shape[1], np.uint8)
    choices = np.zeros((width * rules.base + 1, 2), np.int64)
    count = _starts(rules, s, cells, history, known, row, choices, store)
    index = 0
    while index < count:
        store = _grown(store, count)
        here = store[0][index].copy()
        _load(here, s, cells, history)
        _know(here, known, width)
        action = answer(s, cells, 0, printed)
        store[2][index] = action
        if action == SUBMIT:
            count = _submit(
                rules, s, cells, history, program, result, here, known, row, choices, store, count,
                index,
            )
        else:
            count = _move(
                rules, s, cells, history, program, result, here, known, row, store, count, index,
                action,
            )
        if count < 0:
            return store[0], store[1], store[2], count
        index += 1
    return store[0], store[1], store[2], count


@compiled
def _starts(rules, s, cells, history, known, row, choices, store):
    """An episode starts on any digit, on any first column, with any digit to add or subtract."""
    count = 0
    for operation in range(2):
        for digit in range(rules.base):
            for symbol in range(rules.base):
                row[:] = 0
                row[HEADER : HEADER + 2 * cells.shape[1]] = UNKNOWN
                branches = 1
                branch = 0
                while branch < branches:
                    _load(row, s, cells, history)
                    known[:] = False
                    _set_column(cells, known, 0, digit)
                    subtract = operation != ADD
                    branches = _chain_branches(
                        rules.base, s, cells, known, 0, symbol, subtract, choices
                    )
                    length, terminal = choices[branch]
                    _take_chain(rules.base, cells, known, 0, subtract, length, terminal)
                    s.operation = operation
                    cells[0, 0].operand = symbol
                    fill_history(rules, s, cells, 0, history)
                    show_digit(rules, s, cells, 0, 0)
                    start = row.copy()
                    _save(s, cells, history, known, start)
                    count = _add(store, count, start, NOBODY)
                    branch += 1
    return count


@compiled
def _move(
    rules, s, cells, history, program, result, here, known, row, store, count, index, action
):
    """Every action but submit; a column that comes into view takes any digit."""
    revealed = NOBODY
    if action == RIGHT:
        revealed = s.finger_column + 1
    elif action == LEFT:
        revealed = s.finger_column - 2
    if revealed >= 0 and known[revealed]:
        revealed = NOBODY
    for digit in range(rules.base if revealed >= 0 else 1):
        _load(here, s, cells, history)
        _know(here, known, cells.shape[1])
        if revealed >= 0:
            _set_column(cells, known, revealed, digit)
        count = _follow(
            rules, s, cells, history, program, result, known, row, store, count, index, action
        )
        if count < 0:
            return count
    return count


@compiled
def _follow(rules, s, cells, history, program, result, known, row, store, count, index, action):
    """Carries the action out and keeps the situation it leads to; -1 if it was wrong."""
    advance(rules, s, cells, history, program, 0, action, result)
    if result.end != 0 or result.illegal:
        return -1
    _save(s, cells, history, known, row)
    return _add(store, count, row, index)


@compiled
def _submit(
    rules, s, cells, history, program, result, here, known, row, choices, store, count, index
):
    """A submit brings any digit and, after a digit that can be an operand's last, any operation."""
    j = s.digit_index
    on_digit = j != ON_OPERATION_SYMBOL
    if on_digit and (s.symbol > 0 or j == 0):
        for operation in range(2):
            _load(here, s, cells, history)
            _know(here, known, cells.shape[1])
            s.operand_length = j + 1
            s.program_first, s.program_next, s.program_count = operation, 0, 1
            count = _follow(
                rules, s, cells, history, program, result, known, row, store, count, index, SUBMIT
            )
            if count < 0:
                return count
    place = j + 1 if on_digit else 0
    if place + 1 >= cells.shape[1]:
        return count
    for symbol in range(rules.base):
        branches = 1
        branch = 0
        while branch < branches:
            _load(here, s, cells, history)
            _know(here, known, cells.shape[1])
            subtract = s.operation != ADD
            branches = _chain_branches(
                rules.base, s, cells, known, place, symbol, subtract, choices
            )
            if branches == 0:
                break
            length, terminal = choices[branch]
            _take_chain(rules.base, cells, known, place, subtract, length, terminal)
            s.operand_length = place + 1
            cells[0, place].operand = symbol
            count = _follow(
                rules, s, cells, history, program, result, known, row, store, count, index, SUBMIT
            )
            if count < 0:
                return count
            branch += 1
    return count
