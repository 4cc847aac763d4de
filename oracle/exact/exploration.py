"""Explore the reference algorithm as a finite automaton: every situation up to a width.

A *situation* is an abstract state: the state of an abacus in which some columns are open, with no
digit. The abacus is lazy: a column is open until the window first shows it or a carry reaches it,
and then one branch is explored for each digit. A submit has one branch for each symbol that may
follow. A column is opened again once no frame shows it and no carry returns over it, so states that
differ only in hidden columns are one situation. The kernel moves beads, finger and signpost, and
the expert chooses the actions: no rule is written twice.

The search is breadth-first from the starts of episodes and keeps the parent of each situation, so
that the path to a situation is a shortest one.

Compiled functions take records, a row number and few arrays, and none of them grows an array: most
of numba's compile time goes into arrays passed between functions and into slices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.checks import check_integer
from abacus.compiling import compiled, compiled_inline
from abacus.hash_index import EMPTY, empty_slots, find_slot, insert_rows
from abacus.kernel import ADD, LEFT, ON_OPERATION_SYMBOL, RIGHT, SUBMIT, advance
from abacus.observation import SIGNPOST_PLACES, SIGNPOST_RIGHT, encode_frame
from abacus.rules import ENCODING_PERIOD, AbacusConfig
from oracle.algorithm import Variant, check_variant
from oracle.expert import answer

#: The digit of an open column.
OPEN = 255
#: The parent of a start.
NO_PARENT = -1
#: The symbol of a branch that keeps the current one.
NO_SYMBOL = -1

# Bytes of a situation: these fields, then a digit and a partial-result digit for each column, then
# two bytes for each frame, then zeros up to whole words. `digit_index` is stored plus one, so that
# the -1 of an operation symbol fits a byte.
FINGER_COLUMN, FINGER_ROW, SIGNPOST, DIGIT_INDEX, SYMBOL, OPERATION, HEADER = range(7)
WORD = 8

#: A branch: the next symbol, and the digits of open columns. Those from `first` up to `last` take
#: the digit that a carry wraps; `last` takes `digit`, unless that is OPEN.
BRANCH = np.dtype([(name, np.int64) for name in ("symbol", "first", "last", "digit")])

FIRST_CAPACITY = 1 << 15
#: Column numbers and digit indices plus one fit a byte.
MAX_WIDTH = 254
#: Situations expanded between two calls of `progress`.
SLICE = 1 << 18


@dataclass(frozen=True)
class Exploration:
    """All situations on an abacus of `width` columns, by their distance from a start."""

    base: int
    frames: int
    width: int
    variant: Variant
    situations: npt.NDArray[np.uint8]  # (situations, bytes)
    parents: npt.NDArray[np.int32]  # (situations,), NO_PARENT for starts
    actions: npt.NDArray[np.uint8]  # (situations,): the expert's

    @property
    def digits(self) -> npt.NDArray[np.uint8]:
        """(situations, width): digits of the columns, OPEN for open columns."""
        return self.situations[:, HEADER : HEADER + self.width]

    @property
    def symbols(self) -> npt.NDArray[np.uint8]:
        """(situations,): current symbol."""
        return self.situations[:, SYMBOL]

    @property
    def operations(self) -> npt.NDArray[np.uint8]:
        """(situations,): 0 while adding, 1 while subtracting."""
        return self.situations[:, OPERATION]

    @property
    def histories(self) -> npt.NDArray[np.int32]:
        """(situations, frames): frame codes, oldest first."""
        first = HEADER + 2 * self.width
        pairs = np.ascontiguousarray(self.situations[:, first : first + 2 * self.frames])
        return pairs.view(">u2").astype(np.int32)

    def path_to(self, situation: int) -> npt.NDArray[np.uint8]:
        """(steps + 1, bytes): the situations of a shortest path from a start to this one."""
        path = []
        while situation != NO_PARENT:
            path.append(self.situations[situation])
            situation = int(self.parents[situation])
        return np.array(path[::-1])


class _Store(NamedTuple):
    """Situations found so far, and their hash index."""

    situations: Any  # (capacity, bytes) uint8
    words: Any  # the same memory as (capacity, bytes / 8) uint64: faster to hash and compare
    parents: Any  # (capacity,) int32
    actions: Any  # (capacity,) uint8
    slots: Any  # see abacus.hash_index


def explore(
    base: int,
    frames: int,
    width: int,
    variant: Variant = "before",
    progress: Callable[[int, int], object] = lambda done, found: None,
) -> Exploration:
    """Explore the algorithm on an abacus of `width` columns.

    `progress` is called from time to time with the number of situations expanded and found.
    """
    check_variant(variant)
    check_integer("width", width, 2, MAX_WIDTH)
    batch = _lazy_abacus(base, frames, width)
    roots = _roots(base, frames, width)
    done, first, count = 0, len(roots), len(roots)
    parents, actions = np.full(first, NO_PARENT, np.int32), np.zeros(first, np.uint8)
    store = _store(FIRST_CAPACITY, first, roots, parents, actions)
    branches = np.zeros(2 + base * (1 + base * width), BRANCH)
    known = np.zeros(width, np.bool_)
    while done < count:
        done, count = _expand(
            batch.rules,
            batch.world,
            batch.program,
            batch.out.results,
            (branches, known, variant == "printed"),
            store,
            done,
            count,
        )
        if count < 0:
            raise AssertionError("the reference algorithm made a mistake: its exploration is void")
        progress(done, count)
        if count + len(branches) > len(store.parents):
            found = (store.situations[:count], store.parents[:count], store.actions[:count])
            store = _store(2 * len(store.parents), first, *found)
    return Exploration(
        base,
        frames,
        width,
        variant,
        store.situations[first:count],
        np.maximum(store.parents[first:count] - first, NO_PARENT),
        store.actions[first:count],
    )


def _lazy_abacus(base: int, frames: int, width: int) -> AbacusBatch:
    config = AbacusConfig(
        base=base, columns=width, max_digits=width - 1, frames=frames, on_error="terminate"
    )
    batch = AbacusBatch(config, 1, autoreset=False)
    # Operation 0 of the program adds zero and operation 1 subtracts zero: a submit draws from them.
    batch.load(
        np.zeros((1, width), np.uint8),
        np.zeros((2, width - 1), np.uint8),
        np.ones(2, np.int32),
        np.arange(2, dtype=np.int32),
        np.array([2], np.int32),
    )
    return batch


def _roots(base: int, frames: int, width: int) -> npt.NDArray[np.uint8]:
    """Return the parents of the starts: the submit of a reset, for each operation and first digit.

    An episode starts like an operation after a reset during which nothing moved. The roots
    themselves are unreachable: they are not in the index, and are dropped from the result.
    """
    size = HEADER + 2 * width + 2 * frames
    rows = np.zeros((2 * base, -(-size // WORD) * WORD), np.uint8)
    rows[:, HEADER : HEADER + 2 * width] = OPEN
    for number, row in enumerate(rows):
        operation, digit = divmod(number, base)
        row[DIGIT_INDEX] = ON_OPERATION_SYMBOL + 1
        row[SYMBOL] = base + operation
        row[OPERATION] = operation
        row[HEADER] = row[HEADER + width] = digit
        frame = encode_frame(base, base, digit, 0, 0, SIGNPOST_RIGHT)
        row[HEADER + 2 * width : size] = list(divmod(frame, 256)) * frames
    return rows


def _store(
    capacity: int,
    first: int,
    situations: npt.NDArray[np.uint8],
    parents: npt.NDArray[np.int32],
    actions: npt.NDArray[np.uint8],
) -> _Store:
    """Return a store with room for `capacity` situations; index the given ones from `first` on."""
    count = len(situations)
    padding = (0, capacity - count)
    situations = np.pad(situations, (padding, (0, 0)))
    words = situations.view(np.uint64)
    slots = empty_slots(capacity)
    insert_rows(slots, words, first, count)
    return _Store(situations, words, np.pad(parents, padding), np.pad(actions, padding), slots)


@compiled
def _expand(all_rules, world, program, results, scratch, store, done, count):
    """Find the successors of a slice of the situations, as far as the store has room.

    Return the numbers of situations expanded and found; -1 found if the expert made a mistake.
    """
    rules = all_rules[0]
    scalars, cells, history = world
    situations, words, parents, actions, slots = store
    branches, known, printed = scratch
    # For a plain 0, numba would compile the whole kernel a second time.
    abacus = np.int64(0)
    s, result = scalars[abacus], results[abacus]
    stop = done + SLICE
    while done < min(count, stop) and count + len(branches) <= len(parents):
        _load(situations, done, s, cells, history, known)
        action = answer(s, cells, abacus, printed)
        actions[done] = action
        for k in range(_branches(rules, s, cells, known, action, branches)):
            if k > 0:
                _load(situations, done, s, cells, history, known)
            _apply(rules, s, cells, known, branches[k])
            advance(rules, s, cells, history, program, abacus, action, result)
            if result.end != 0 or result.illegal:
                return done, -1
            _forget(s, cells, history, known)
            _save(s, cells, history, known, situations, count)
            slot = find_slot(slots, words, count)
            if slots[slot] == EMPTY:
                slots[slot] = count
                parents[count] = done
                count += 1
        done += 1
    return done, count


@compiled_inline
def _load(situations, row, s, cells, history, known):
    """Set the abacus to a situation; open columns get the digit 0."""
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
        known[column] = digit != OPEN
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


@compiled_inline
def _save(s, cells, history, known, situations, row):
    """Write the situation of the abacus to a row."""
    situations[row, FINGER_COLUMN] = s.finger_column
    situations[row, FINGER_ROW] = s.finger_row
    situations[row, SIGNPOST] = s.signpost
    situations[row, DIGIT_INDEX] = s.digit_index + 1
    situations[row, SYMBOL] = s.symbol
    situations[row, OPERATION] = s.operation
    width = cells.shape[1]
    for column in range(width):
        digit, target = cells[0, column].digit, cells[0, column].target
        situations[row, HEADER + column] = digit if known[column] else OPEN
        situations[row, HEADER + width + column] = target if known[column] else OPEN
    start = HEADER + 2 * width
    for k in range(history.shape[1]):
        situations[row, start + 2 * k] = history[0, k] // 256
        situations[row, start + 2 * k + 1] = history[0, k] % 256


@compiled_inline
def _forget(s, cells, history, known):
    """Open the columns that no frame shows and no carry returns over."""
    width, frames = cells.shape[1], history.shape[1]
    # The finger moves at most one column per step, so the phases of the frames give its path.
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


@compiled_inline
def _branches(rules, s, cells, known, action, branches):
    """Write the branches of an action and return their number."""
    if action == SUBMIT:
        return _submit_branches(rules, s, cells, known, branches)
    revealed = -1
    if action == RIGHT:
        revealed = s.finger_column + 1
    elif action == LEFT:
        revealed = s.finger_column - 2
    if revealed < 0 or known[revealed]:
        _write_branch(branches[0], NO_SYMBOL, 0, 0, OPEN)
        return 1
    for digit in range(rules.base):
        _write_branch(branches[digit], NO_SYMBOL, revealed, revealed, digit)
    return rules.base


@compiled_inline
def _submit_branches(rules, s, cells, known, branches):
    """Branch into every digit and, after a possible last digit of an operand, every operation."""
    j = s.digit_index
    count = np.int64(0)
    if j != ON_OPERATION_SYMBOL and (s.symbol > 0 or j == 0):
        for operation in range(2):
            _write_branch(branches[count], rules.base + operation, 0, 0, OPEN)
            count += 1
    place = j + 1
    if place + 1 >= rules.columns:
        return count
    for symbol in range(rules.base):
        if _overflows(rules, s, cells, place, symbol):
            count = _carry_branches(rules, s, cells, known, symbol, place + 1, branches, count)
        else:
            _write_branch(branches[count], symbol, 0, 0, OPEN)
            count += 1
    return count


@compiled_inline
def _carry_branches(rules, s, cells, known, symbol, first, branches, count):
    """Branch into every length of the carry, and every digit on which it may end."""
    wrapping = _wrapping(rules, s)
    for last in range(first, rules.columns):
        if known[last]:
            if cells[0, last].digit == wrapping:
                continue
            _write_branch(branches[count], symbol, first, last, OPEN)
            return count + 1
        for digit in range(rules.base):
            if digit != wrapping:
                _write_branch(branches[count], symbol, first, last, digit)
                count += 1
    return count


@compiled_inline
def _write_branch(branch, symbol, first, last, digit):
    branch.symbol = symbol
    branch.first = first
    branch.last = last
    branch.digit = digit


@compiled_inline
def _overflows(rules, s, cells, column, symbol):
    digit = np.int64(cells[0, column].digit)
    return digit + symbol >= rules.base if s.operation == ADD else digit < symbol


@compiled_inline
def _wrapping(rules, s):
    """Return the digit over which a carry or a borrow propagates."""
    return rules.base - 1 if s.operation == ADD else 0


@compiled_inline
def _apply(rules, s, cells, known, branch):
    """Set the digits of open columns, and the symbol that follows a submit."""
    wrapping = _wrapping(rules, s)
    for column in range(branch.first, branch.last):
        _set_column(cells, known, column, wrapping)
    if branch.digit != OPEN:
        _set_column(cells, known, branch.last, branch.digit)
    place = s.digit_index + 1
    if branch.symbol >= rules.base:
        s.operand_length = place
        s.program_first = branch.symbol - rules.base
        s.program_next = 0
        s.program_count = 1
    elif branch.symbol != NO_SYMBOL:
        s.operand_length = place + 1
        cells[0, place].operand = branch.symbol


@compiled_inline
def _set_column(cells, known, column, digit):
    cells[0, column].digit = digit
    cells[0, column].target = digit
    known[column] = True
