"""The reference algorithm as a finite automaton: every situation it can be in, up to a width.

The abacus of the exploration is lazy: a column has no digit until the window first shows it or a
carry reaches it, and then it takes every digit, one branch each. A submit brings every symbol that
may follow. A column is forgotten once no frame shows it and no carry comes back over it, so that
situations which differ in what nobody can see are one. Beads, finger and signpost are moved by the
kernel itself and the teacher answers as everywhere: no rule is written twice.

Situations are numbered in the order of a breadth-first search from the starts of episodes, each
with the one it came from: the way to a situation is the shortest that there is.

Compiled functions take records, a row's number and few arrays, and none of them grows an array:
numba spends its time on arrays that pass calls and on slices, and compiles anew for each mix of
types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled, compiled_with
from abacus.kernel import ADD, LEFT, ON_OPERATION_SYMBOL, RIGHT, SUBMIT, advance
from abacus.observation import SIGNPOST_PLACES, SIGNPOST_RIGHT, encode_frame
from abacus.rules import ENCODING_PERIOD, AbacusConfig
from oracle.algorithm import Variant, check_variant
from oracle.expert import answer

#: What compiled code alone calls: without a door from Python there is less to compile.
_part = compiled_with(no_cpython_wrapper=True, no_cfunc_wrapper=True)

#: A column that has no digit yet.
UNKNOWN = 255
NOBODY = -1

# The bytes of a situation: these, then a digit and a partial-result digit a column, then two bytes
# a frame, then zeros up to whole words. `digit_index` is kept plus one, so that the operation
# symbol's -1 fits a byte.
FINGER_COLUMN, FINGER_ROW, SIGNPOST, DIGIT_INDEX, SYMBOL, OPERATION, HEADER = range(7)
WORD = 8

#: What a branch of the exploration chooses: the symbol that comes (NOBODY for the one shown), and
#: the open columns that take a digit: those from FIRST up to LAST one that the carry wraps, LAST
#: the DIGIT, unless that is UNKNOWN.
CHOICE = np.dtype([(name, np.int64) for name in ("symbol", "first", "last", "digit")])

FIRST_CAPACITY = 1 << 15
#: A column's number and a digit's index plus one fit a byte.
MAX_WIDTH = 254
#: Situations that are done between two words about progress.
SLICE = 1 << 18


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
    def symbols(self) -> npt.NDArray[np.uint8]:
        """(situations,): the symbol shown."""
        return self.situations[:, SYMBOL]

    @property
    def operations(self) -> npt.NDArray[np.uint8]:
        """(situations,): 0 while adding, 1 while subtracting."""
        return self.situations[:, OPERATION]

    @property
    def histories(self) -> npt.NDArray[np.int32]:
        """(situations, frames): the frame codes seen, oldest first."""
        first = HEADER + 2 * self.width
        pairs = np.ascontiguousarray(self.situations[:, first : first + 2 * self.frames])
        return pairs.view(">u2").astype(np.int32)

    def way_to(self, situation: int) -> npt.NDArray[np.uint8]:
        """(steps + 1, bytes): the situations from a start to this one, on a shortest way."""
        way = []
        while situation != NOBODY:
            way.append(self.situations[situation])
            situation = int(self.parents[situation])
        return np.array(way[::-1])


class _Store(NamedTuple):
    """Situations as they are found, and where each is by its hash."""

    situations: Any  # (capacity, bytes) uint8
    words: Any  # the same memory, (capacity, bytes / 8) uint64: quicker to compare
    parents: Any  # (capacity,) int32
    actions: Any  # (capacity,) uint8
    table: Any  # (slots, a power of two) int32: numbers of situations, or NOBODY


def explore(
    base: int,
    frames: int,
    width: int,
    variant: Variant = "before",
    progress: Callable[[int, int], object] = lambda done, found: None,
) -> Exploration:
    """Explores the algorithm on an abacus of so many columns.

    `progress` is told now and then how many situations are done, of how many found.
    """
    check_variant(variant)
    if width > MAX_WIDTH:
        raise ValueError(f"width={width!r} is not allowed: give at most {MAX_WIDTH}")
    batch = _lazy_abacus(base, frames, width)
    roots = _roots(base, frames, width)
    store = _with_capacity(None, FIRST_CAPACITY, roots)
    choices = np.zeros(2 + base * (1 + base * width), CHOICE)
    known = np.zeros(width, np.bool_)
    done, count = 0, len(roots)
    while done < count:
        done, count = _expand(
            batch.rules,
            batch.world,
            batch.program,
            batch.out.results,
            (choices, known, variant == "printed"),
            store,
            done,
            count,
        )
        if count < 0:
            raise AssertionError("the reference algorithm made a mistake: its exploration is void")
        progress(done, count)
        if count + len(choices) > len(store.parents):
            store = _with_capacity(store, 2 * len(store.parents), store.situations[:count])
    found = slice(len(roots), count)
    return Exploration(
        base,
        frames,
        width,
        store.situations[found],
        np.maximum(store.parents[found] - len(roots), NOBODY),
        store.actions[found],
    )


def _lazy_abacus(base: int, frames: int, width: int) -> AbacusBatch:
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
    return batch


def _roots(base: int, frames: int, width: int) -> npt.NDArray[np.uint8]:
    """What starts come from: a reset about to be submitted, of any operation, over any digit.

    An episode starts like an operation after a reset during which nothing moved. The roots
    themselves are never met: they are not in the table, and are dropped in the end.
    """
    size = HEADER + 2 * width + 2 * frames
    rows = np.zeros((2 * base, -(-size // WORD) * WORD), np.uint8)
    rows[:, HEADER : HEADER + 2 * width] = UNKNOWN
    for number, row in enumerate(rows):
        operation, digit = divmod(number, base)
        row[DIGIT_INDEX] = ON_OPERATION_SYMBOL + 1
        row[SYMBOL] = base + operation
        row[OPERATION] = operation
        row[HEADER] = row[HEADER + width] = digit
        frame = encode_frame(base, base, digit, 0, 0, SIGNPOST_RIGHT)
        row[HEADER + 2 * width : size] = list(divmod(frame, 256)) * frames
    return rows


def _with_capacity(
    store: _Store | None, capacity: int, situations: npt.NDArray[np.uint8]
) -> _Store:
    """A store for so many situations that holds those given, first."""
    count, size = situations.shape
    rows = np.zeros((capacity, size), np.uint8)
    rows[:count] = situations
    parents = np.full(capacity, NOBODY, np.int32)
    actions = np.zeros(capacity, np.uint8)
    # Twice as many slots as situations keep the probes short.
    table = np.full(1 << (2 * capacity - 1).bit_length(), NOBODY, np.int32)
    words = rows.view(np.uint64)
    if store is not None:
        parents[:count] = store.parents[:count]
        actions[:count] = store.actions[:count]
        _enter_all(words, table, count, store.table)
    return _Store(rows, words, parents, actions, table)


@compiled
def _expand(all_rules, world, program, results, scratch, store, done, count):
    """Finds what follows on a slice of the situations, or as far as the store has room.

    Returns how many are done and how many are found, -1 if the teacher made a mistake.
    """
    rules = all_rules[0]
    scalars, cells, history = world
    situations, words, parents, actions, table = store
    choices, known, printed = scratch
    # Not a plain 0, for which numba would compile the whole kernel a second time.
    abacus = np.int64(0)
    s, result = scalars[abacus], results[abacus]
    stop = done + SLICE
    while done < min(count, stop) and count + len(choices) <= len(parents):
        _load(situations, done, s, cells, history, known)
        action = answer(s, cells, abacus, printed)
        actions[done] = action
        for k in range(_choices(rules, s, cells, known, action, choices)):
            if k > 0:
                _load(situations, done, s, cells, history, known)
            _choose(rules, s, cells, known, choices[k])
            advance(rules, s, cells, history, program, abacus, action, result)
            if result.end != 0 or result.illegal:
                return done, -1
            _forget(s, cells, history, known)
            _save(s, cells, history, known, situations, count)
            place = _place(words, table, count)
            if table[place] == NOBODY:
                table[place] = count
                parents[count] = done
                count += 1
        done += 1
    return done, count


@_part
def _load(situations, row, s, cells, history, known):
    """Sets the abacus to a situation; columns without a digit show 0."""
    s.finger_column = situations[row, FINGER_COLUMN]
    s.finger_row = situations[row, FINGER_ROW]
    s.signpost = situations[row, SIGNPOST]
    s.digit_index = np.int32(situations[row, DIGIT_INDEX]) - 1
    s.symbol = situations[row, SYMBOL]
    s.operation = situations[row, OPERATION]
    width = cells.shape[1]
    s.wrong_count = 0
    s.first_wrong = width
    for column in range(width - 1, -1, -1):
        digit = situations[row, HEADER + column]
        target = situations[row, HEADER + width + column]
        known[column] = digit != UNKNOWN
        cells[0, column].digit = digit if known[column] else 0
        cells[0, column].target = target if known[column] else 0
        if digit != target:
            s.wrong_count += 1
            s.first_wrong = column
    start = HEADER + 2 * width
    for k in range(history.shape[1]):
        history[0, k] = np.int32(situations[row, start + 2 * k]) * 256
        history[0, k] += situations[row, start + 2 * k + 1]
    s.steps = 0
    s.budget = 1 << 30
    s.end_after_reset = 0
    s.reload_after_reset = False


@_part
def _save(s, cells, history, known, situations, row):
    """Writes the situation of the abacus to a row."""
    situations[row, FINGER_COLUMN] = s.finger_column
    situations[row, FINGER_ROW] = s.finger_row
    situations[row, SIGNPOST] = s.signpost
    situations[row, DIGIT_INDEX] = s.digit_index + 1
    situations[row, SYMBOL] = s.symbol
    situations[row, OPERATION] = s.operation
    width = cells.shape[1]
    for column in range(width):
        open_column = not known[column]
        situations[row, HEADER + column] = UNKNOWN if open_column else cells[0, column].digit
        situations[row, HEADER + width + column] = (
            UNKNOWN if open_column else cells[0, column].target
        )
    start = HEADER + 2 * width
    for k in range(history.shape[1]):
        situations[row, start + 2 * k] = history[0, k] // 256
        situations[row, start + 2 * k + 1] = history[0, k] % 256


@_part
def _forget(s, cells, history, known):
    """Opens the columns that nobody can see and no carry comes back over."""
    width, frames = cells.shape[1], history.shape[1]
    # The finger moves at most one column a step: the phases of the frames tell where it was.
    column = s.finger_column
    lowest = highest = column
    for k in range(frames - 1, 0, -1):
        phase = history[0, k] // SIGNPOST_PLACES % ENCODING_PERIOD
        before = history[0, k - 1] // SIGNPOST_PLACES % ENCODING_PERIOD
        moved = (before - phase + ENCODING_PERIOD) % ENCODING_PERIOD
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


@_part
def _hash(words, row):
    value = np.uint64(0xCBF29CE484222325)
    for k in range(words.shape[1]):
        value = (value ^ words[row, k]) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
    return value


@_part
def _place(words, table, row):
    """The slot of the row's situation: where it is in the table, or would be."""
    mask = np.uint64(len(table) - 1)
    slot = _hash(words, row) & mask
    while table[slot] != NOBODY:
        other = table[slot]
        k = 0
        while k < words.shape[1] and words[other, k] == words[row, k]:
            k += 1
        if k == words.shape[1]:
            return slot
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def _enter_all(words, table, count, old_table):
    """Enters what the old table holds into one of another size."""
    for number in old_table:
        if number != NOBODY and number < count:
            table[_place(words, table, number)] = number


@_part
def _choices(rules, s, cells, known, action, choices):
    """Writes the branches that an action has, and returns how many they are."""
    if action == SUBMIT:
        return _choices_of_submit(rules, s, cells, known, choices)
    revealed = NOBODY
    if action == RIGHT:
        revealed = s.finger_column + 1
    elif action == LEFT:
        revealed = s.finger_column - 2
    if revealed < 0 or known[revealed]:
        _write_choice(choices[0], NOBODY, 0, 0, UNKNOWN)
        return 1
    for digit in range(rules.base):
        _write_choice(choices[digit], NOBODY, revealed, revealed, digit)
    return rules.base


@_part
def _choices_of_submit(rules, s, cells, known, choices):
    """Any digit comes and, after a digit that can be an operand's last, any operation."""
    j = s.digit_index
    count = np.int64(0)
    if j != ON_OPERATION_SYMBOL and (s.symbol > 0 or j == 0):
        for operation in range(2):
            _write_choice(choices[count], rules.base + operation, 0, 0, UNKNOWN)
            count += 1
    place = j + 1
    if place + 1 >= rules.columns:
        return count
    for symbol in range(rules.base):
        if _overflows(rules, s, cells, place, symbol):
            count = _choices_of_carry(rules, s, cells, known, symbol, place + 1, choices, count)
        else:
            _write_choice(choices[count], symbol, 0, 0, UNKNOWN)
            count += 1
    return count


@_part
def _choices_of_carry(rules, s, cells, known, symbol, first, choices, count):
    """How far the carry of a digit runs, and the digit it ends on: any that open columns allow."""
    wrapping = _wrapping(rules, s)
    for last in range(first, rules.columns):
        if known[last]:
            if cells[0, last].digit == wrapping:
                continue
            _write_choice(choices[count], symbol, first, last, UNKNOWN)
            return count + 1
        for digit in range(rules.base):
            if digit != wrapping:
                _write_choice(choices[count], symbol, first, last, digit)
                count += 1
    return count


@_part
def _write_choice(choice, symbol, first, last, digit):
    choice.symbol = symbol
    choice.first = first
    choice.last = last
    choice.digit = digit


@_part
def _overflows(rules, s, cells, column, symbol):
    digit = np.int64(cells[0, column].digit)
    return digit + symbol >= rules.base if s.operation == ADD else digit < symbol


@_part
def _wrapping(rules, s):
    """The digit that a carry or a borrow changes and runs on over."""
    return rules.base - 1 if s.operation == ADD else 0


@_part
def _choose(rules, s, cells, known, choice):
    """Gives open columns their digits and lays ready the symbol that a submit brings."""
    wrapping = _wrapping(rules, s)
    for column in range(choice.first, choice.last):
        _set_column(cells, known, column, wrapping)
    if choice.digit != UNKNOWN:
        _set_column(cells, known, choice.last, choice.digit)
    place = s.digit_index + 1
    if choice.symbol >= rules.base:
        s.operand_length = place
        s.program_first = choice.symbol - rules.base
        s.program_next = 0
        s.program_count = 1
    elif choice.symbol != NOBODY:
        s.operand_length = place + 1
        cells[0, place].operand = choice.symbol


@_part
def _set_column(cells, known, column, digit):
    cells[0, column].digit = digit
    cells[0, column].target = digit
    known[column] = True
