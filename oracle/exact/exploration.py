"""Explore the reference algorithm as a finite automaton: every situation up to a width.

A *situation* is an abstract state: the state of an abacus in which some columns are open, with no
digit. The abacus is lazy: a column is open until the window first shows it or a carry reaches it,
and then one branch is explored for each digit. A submit has one branch for each symbol that may
follow. A column is opened again once no frame shows it and no carry returns over it, so states that
differ only in hidden columns are one situation. The kernel moves beads, finger and signpost, and
the expert chooses the actions: no rule is written twice.

The search is breadth-first from the starts of episodes and keeps the parent of each situation, so
that the path to a situation is a shortest one. Parents and numbers of branches are enough to build
some of the situations again without a search, with their paths: see `Exploration.tree_of`.

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
#: The store grows by this part of its capacity. Large arrays grow in place: only what is used, and
#: a little more, takes memory.
GROWTH = 1 / 4
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
    branches: npt.NDArray[np.uint16]  # (situations,): number of the branch taken from the parent

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
        return self.histories_of(slice(None))

    def histories_of(self, chosen: slice | npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Return the frame codes of some situations, (chosen, frames), oldest first."""
        first = HEADER + 2 * self.width
        pairs = self.situations[chosen, first : first + 2 * self.frames]
        return np.ascontiguousarray(pairs).view(">u2").astype(np.int32)

    def tree_of(self, chosen: npt.NDArray[np.integer]) -> Tree:
        """Return the shortest paths to the chosen situations, for `follow`."""
        needed = np.zeros(len(self.parents), np.bool_)
        while len(chosen):
            needed[chosen] = True
            chosen = self.parents[chosen]
            chosen = np.unique(chosen[(chosen != NO_PARENT) & ~needed[chosen]])
        numbers = np.cumsum(needed, dtype=np.int32) + np.int32(2 * self.base - 1)
        parents = self.parents[needed]
        starts = parents == NO_PARENT
        parents = numbers[parents]
        roots = self.operations[needed][starts].astype(np.int32) * self.base
        parents[starts] = roots + self.digits[needed, 0][starts]
        return Tree(parents, self.branches[needed])

    def path_to(self, situation: int) -> npt.NDArray[np.uint8]:
        """(steps + 1, bytes): the situations of a shortest path from a start to this one."""
        path = []
        while situation != NO_PARENT:
            path.append(self.situations[situation])
            situation = int(self.parents[situation])
        return np.array(path[::-1])


def observation_bytes(width: int, frames: int) -> list[int]:
    """Return the places of those bytes of a situation that its observation shows."""
    first = HEADER + 2 * width
    return [SYMBOL, OPERATION, *range(first, first + 2 * frames)]


class Tree(NamedTuple):
    """Paths from the starts: a parent and a branch for each situation, parents first.

    Parents below 2 * base are the roots, see `_roots`; situations are numbered after them.
    """

    parents: npt.NDArray[np.int32]
    branches: npt.NDArray[np.uint16]


class _Store(NamedTuple):
    """Situations found so far, and their hash index."""

    situations: Any  # (capacity, bytes) uint8
    words: Any  # the same memory as (capacity, bytes / 8) uint64: faster to hash and compare
    parents: Any  # (capacity,) int32
    actions: Any  # (capacity,) uint8
    numbers: Any  # (capacity,) uint16: of branches
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
    explorer = _Explorer(base, frames, width, variant)
    store = _new_store(explorer.roots, FIRST_CAPACITY)
    done, count = 0, explorer.first
    while done < count:
        done, count = explorer.expand(store, done, count, following=False)
        if count < 0:
            raise AssertionError("the reference algorithm made a mistake: its exploration is void")
        progress(done, count)
        if count + explorer.most_branches > len(store.parents):
            store = _grown(store, explorer.first, count)
    return explorer.result(store, count)


def follow(base: int, frames: int, width: int, variant: Variant, tree: Tree) -> Exploration:
    """Return the situations of a tree; raise ValueError if the algorithm has no such paths."""
    explorer = _Explorer(base, frames, width, variant)
    first, total = explorer.first, explorer.first + len(tree.parents)
    capacity = total + explorer.most_branches
    store = _new_store(explorer.roots, capacity, indexed=False)
    store.parents[first:] = NO_PARENT
    store.parents[first:total] = tree.parents
    store.numbers[first:total] = tree.branches
    done, count = 0, first
    while 0 <= done < count:
        done, count = explorer.expand(store, done, count, following=True)
    if count != total:
        raise ValueError(f"the paths of {total - count} situations are not those of the algorithm")
    return explorer.result(store, count)


class _Explorer:
    """An abacus of one column width, and the arrays that `_expand` needs beside a store."""

    def __init__(self, base: int, frames: int, width: int, variant: Variant) -> None:
        check_variant(variant)
        check_integer("width", width, 2, MAX_WIDTH)
        self.settings = base, frames, width, variant
        self.batch = _lazy_abacus(base, frames, width)
        self.roots = _roots(base, frames, width)
        self.first = len(self.roots)
        self.most_branches = 2 + base * (1 + base * width)
        self.branches = np.zeros(self.most_branches, BRANCH)
        self.known = np.zeros(width, np.bool_)

    def expand(self, store: _Store, done: int, count: int, following: bool) -> tuple[int, int]:
        """Expand a slice of the situations from `done` on; see `_expand`."""
        batch, printed = self.batch, self.settings[3] == "printed"
        done, count = _expand(
            batch.rules,
            batch.world,
            batch.program,
            batch.out.results,
            (self.branches, self.known, printed, following),
            store,
            done,
            count,
        )
        return done, count

    def result(self, store: _Store, count: int) -> Exploration:
        """Return the situations of a store without the roots."""
        first = self.first
        arrays = (store.situations, store.parents, store.actions, store.numbers)
        situations, parents, actions, numbers = (_resized(array, count) for array in arrays)
        parents -= np.int32(first)
        np.maximum(parents, NO_PARENT, out=parents)
        found = (array[first:] for array in (situations, parents, actions, numbers))
        return Exploration(*self.settings, *found)


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


def _new_store(roots: npt.NDArray[np.uint8], capacity: int, indexed: bool = True) -> _Store:
    """Return a store with the roots, which are not in its index."""
    situations = np.zeros((capacity, roots.shape[1]), np.uint8)
    situations[: len(roots)] = roots
    parents = np.zeros(capacity, np.int32)
    parents[: len(roots)] = NO_PARENT
    actions, numbers = np.zeros(capacity, np.uint8), np.zeros(capacity, np.uint16)
    slots = empty_slots(capacity if indexed else 1)
    return _Store(situations, situations.view(np.uint64), parents, actions, numbers, slots)


def _grown(store: _Store, first: int, count: int) -> _Store:
    """Return a store with more room and the same situations, in the memory of the given one."""
    capacity = int(len(store.parents) * (1 + GROWTH))
    arrays = (store.situations, store.parents, store.actions, store.numbers)
    situations, parents, actions, numbers = (_resized(array, capacity) for array in arrays)
    words, slots = situations.view(np.uint64), store.slots
    if 2 * capacity > len(slots):
        slots.resize(0, refcheck=False)
        slots = empty_slots(capacity)
        insert_rows(slots, words, first, count)
    return _Store(situations, words, parents, actions, numbers, slots)


def _resized(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Change the number of rows in place: the arrays that share its memory are void."""
    array.resize((rows, *array.shape[1:]), refcheck=False)
    return array


@compiled
def _expand(all_rules, world, program, results, scratch, store, done, count):
    """Find the successors of a slice of the situations, as far as the store has room.

    When following a tree, take only the branches that lead to the next situation of the store.
    Return the numbers of situations expanded and found; -1 found if the expert made a mistake.
    """
    rules = all_rules[0]
    scalars, cells, history = world
    situations, words, parents, actions, numbers, slots = store
    branches, known, printed, following = scratch
    # For a plain 0, numba would compile the whole kernel a second time.
    abacus = np.int64(0)
    s, result = scalars[abacus], results[abacus]
    stop = done + SLICE
    while done < min(count, stop) and count + len(branches) <= len(parents):
        _load(situations, done, s, cells, history, known)
        action = answer(s, cells, abacus, printed)
        actions[done] = action
        fresh = True
        for k in range(_branches(rules, s, cells, known, action, branches)):
            if following and (parents[count] != done or numbers[count] != k):
                continue
            if not fresh:
                _load(situations, done, s, cells, history, known)
            fresh = False
            _apply(rules, s, cells, known, branches[k])
            advance(rules, s, cells, history, program, abacus, action, result)
            if result.end != 0 or result.illegal:
                return done, -1
            _forget(s, cells, history, known)
            _save(s, cells, history, known, situations, count)
            if not following:
                slot = find_slot(slots, words, count)
                if slots[slot] != EMPTY:
                    continue
                slots[slot] = count
                parents[count] = done
                numbers[count] = k
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
