"""Explore a policy's own runs as a finite automaton: every situation, on an abacus of any width.

A *situation* is the state of a lazy abacus, as in `oracle.exact.exploration`: a column is open,
with no digit, until the window first shows it. Here the policy chooses the actions, so the finger
and the signpost may be anywhere, and nothing about them is assumed. The kernel moves and judges: a
wrong slide or submit, or at some levels a wrong signpost move, is a failure and is not continued.

Three ideas keep the number of situations finite, and small (proof in `docs/exactness.md`):

- **Open columns.** A column that no frame shows is opened again, except for those that were written
  for the current digit, over which a policy may walk back (and more of them with `margin` and
  `keep_runs`).
- **A carry needs no look ahead.** A situation holds the lowest wrong column alone. Whether a carry
  goes further is decided by the digit of that column, which is known when it is written.
- **Short runs.** Neighbouring hidden columns that are alike (open, or of one digit), without
  signpost, digit's column and pending carry, are a *run*. Frames show its length modulo three only,
  so triples of columns are removed from a long run; a step that shortens a run which stands for
  longer ones is taken in both.

With `exact_columns`, runs keep their length, apart from the open columns at the right edge: their
number is that of the abacus, which is free. Paths can then be followed on a concrete abacus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.checks import check_integer
from abacus.compiling import compiled, compiled_inline
from abacus.hash_index import EMPTY, empty_slots, find_slot, insert_rows
from abacus.kernel import (
    ACTIONS,
    ADD,
    END_NONE,
    END_WRONG_SIGNPOST,
    END_WRONG_SLIDE,
    END_WRONG_SUBMIT,
    LEFT,
    ON_OPERATION_SYMBOL,
    RIGHT,
    SIGNPOST_OUTCOME,
    SLIDE,
    SLIDE_OUTCOME,
    SUBMIT,
    SUBMIT_OUTCOME,
    TO_LEFT,
    TO_RIGHT,
    advance,
    legal_actions,
    show_digit,
)
from abacus.observation import SIGNPOST_PLACES, SIGNPOST_RIGHT, encode_frame
from abacus.reward import modules_of
from abacus.rules import ENCODING_PERIOD, AbacusConfig
from oracle.exact.exploration import NO_PARENT, OPEN

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

# Bytes of a situation: these fields, then a digit for each column, then two bytes for each frame,
# then zeros up to whole words. Fields that may be -1 are stored plus one.
(
    WIDTH,
    FINGER_COLUMN,
    FINGER_ROW,
    SIGNPOST,
    DIGIT_INDEX,
    SYMBOL,
    OPERATION,
    PREVIOUS_ACTION,
    LOWEST_WRONG,  # column + 1; 0: all columns are right
    WRITTEN_END,  # end of the columns that are kept because they were written; 0: none
    HEADER,
) = range(11)
WORD = 8

#: A run of this many columns or more stands for all longer ones of the same length modulo three.
LONG_RUN = 1
#: At the right edge, which no frame shows, one of this many columns or more stands for all longer
#: ones. The rules look two columns ahead: the last place of an operand is not the last column.
LONG_RUN_AT_EDGE = 3
#: Columns of the widest situation: frames, and runs between finger, signpost, digit and edges.
MAX_COLUMNS = 37
#: No column, as a lowest wrong one.
NONE = -1
#: Ways in which an exploration ends early.
TOO_MANY_SITUATIONS, TOO_WIDE = "too many situations", "situations of too many columns"

FIRST_CAPACITY = 1 << 14
#: Twice the symbols of base 10: an action has at most this many branches, in two lengths of a run.
MOST_SUCCESSORS = 24

Ask = Callable[[npt.NDArray[np.int32]], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class PolicyExploration:
    """All situations of a policy's own runs, by their distance from a start of an episode."""

    base: int
    frames: int
    level: str
    exact_columns: int | None
    situations: npt.NDArray[np.uint8]  # (situations, bytes)
    parents: npt.NDArray[np.int32]  # (situations,), NO_PARENT for starts
    actions: npt.NDArray[np.uint8]  # (situations,): the policy's
    failures: npt.NDArray[np.uint8]  # (situations,): the `End` of a wrong action, 0 for none
    #: (steps, 2): every step from one situation to another.
    steps: npt.NDArray[np.int32]
    #: (observations, frames + 3): frame codes oldest first, symbol, operation, previous action.
    observations: npt.NDArray[np.int32]
    observation_of: npt.NDArray[np.int32]  # (situations,): row of `observations`
    #: Why it is not complete; None if it is.
    incomplete: str | None

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def histories(self) -> npt.NDArray[np.int32]:
        """(situations, frames): frame codes, oldest first."""
        return self.observations[self.observation_of, : self.frames]

    def grants(self) -> npt.NDArray[np.bool_]:
        """Return where the action extends the step budget: right slides and resets."""
        on_symbol = self.situations[:, DIGIT_INDEX] == ON_OPERATION_SYMBOL + 1
        granting: npt.NDArray[np.bool_] = (self.actions == SLIDE) | (
            (self.actions == SUBMIT) & on_symbol
        )
        return granting

    def path_to(self, situation: int) -> npt.NDArray[np.int64]:
        """Return the situations of a shortest path from a start to this one."""
        path = []
        while situation != NO_PARENT:
            path.append(situation)
            situation = int(self.parents[situation])
        return np.array(path[::-1])


class _Store(NamedTuple):
    """Situations found so far, and their hash index."""

    situations: Any  # (capacity, bytes) uint8
    words: Any  # the same memory as (capacity, bytes / 8) uint64: faster to hash and compare
    parents: Any  # (capacity,) int32
    actions: Any  # (capacity,) uint8
    failures: Any  # (capacity,) uint8
    rows: Any  # (capacity,) int32: the observation
    slots: Any  # see abacus.hash_index


class _Table(NamedTuple):
    """Observations met so far, with the policy's order of preference for the actions."""

    codes: Any  # (capacity, frames + 3) int32
    orders: Any  # (capacity, 8) uint8
    slots: Any


def explore_policy(
    ask: Ask,
    base: int,
    frames: int,
    level: str = "dense",
    *,
    long_run: int = LONG_RUN,
    margin: int = 0,
    keep_runs: bool = False,
    exact_columns: int | None = None,
    limit: int = 20_000_000,
    stop_at_failures: int | None = None,
    progress: Callable[[int, int], object] = lambda done, found: None,
) -> PolicyExploration:
    """Explore the runs of a policy; `ask` returns its order of actions for new observations.

    `ask` gets (N, frames + 3) frame codes, symbol, operation and previous action (-1 for none) and
    returns (N, 8) actions, the best first; each observation is asked once. Hidden columns up to
    `margin` away from the view keep their digits, the others are forgotten; with `keep_runs`,
    columns with the digit of those that were written and are still held are not. With
    `exact_columns`, the exploration stays on at most that many columns. It ends early at more than
    `limit` situations, or after `stop_at_failures` of them with a mistake.
    """
    check_integer("base", base, 2, 10)
    check_integer("frames", frames, 1, AbacusConfig.MAX_FRAMES)
    widest = MAX_COLUMNS + frames
    if exact_columns is not None:
        check_integer("exact_columns", exact_columns, 2, MAX_COLUMNS)
    starts = start_rows(base, frames, exact_columns or widest)
    abacus = lazy_abacus(base, frames, level)
    settings = search_settings(frames, level, long_run, exact_columns, margin, keep_runs)
    store = _grown(None, FIRST_CAPACITY + len(starts), starts.shape[1])
    store.situations[: len(starts)] = starts
    store.parents[: len(starts)] = NO_PARENT
    count = len(starts)
    insert_rows(store.slots, store.words, 0, count)
    table, known = _grown_table(None, 1 << 12, frames), 0
    steps, step_count = np.empty((1 << 16, 2), np.int32), 0
    done, incomplete, failed = 0, None, 0
    most = MOST_SUCCESSORS
    while done < count and incomplete is None:
        stop = count
        if known + stop - done >= len(table.codes):
            table = _grown_table(table, 2 * (known + stop - done), frames, known)
        met = _look_up(store.situations, store.rows, done, stop, *table[::2], known, widest)
        if met > known:
            table.orders[known:met] = ask(table.codes[known:met])
            known = met
        while done < stop:
            done, count, step_count, failed = _expand(
                abacus,
                settings,
                store,
                table.orders,
                steps,
                (done, stop, count, step_count, failed),
            )
            progress(done, count)
            if count < 0:
                incomplete = TOO_WIDE
                count = -count
                break
            if count > limit:
                incomplete = TOO_MANY_SITUATIONS
                break
            if count + most > len(store.parents):
                store = _grown(store, 2 * len(store.parents), 0, count)
            if step_count + most > len(steps):
                steps = np.concatenate([steps, np.empty_like(steps)])
        if stop_at_failures is not None and failed >= stop_at_failures:
            break
    return PolicyExploration(
        base,
        frames,
        level,
        exact_columns,
        store.situations[:done],
        store.parents[:done],
        store.actions[:done],
        store.failures[:done],
        steps[:step_count][(steps[:step_count] < done).all(axis=1)],
        table.codes[:known],
        store.rows[:done],
        incomplete,
    )


def lazy_abacus(base: int, frames: int, level: str) -> tuple[Any, ...]:
    """Return the arrays on which `successors` loads situations."""
    width = MAX_COLUMNS + frames
    config = AbacusConfig(
        base=base,
        columns=width,
        max_digits=width - 1,
        frames=frames,
        reward=level,
        on_error="continue",
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
    scratch = np.zeros(width, np.bool_), np.zeros(base + 2, np.int64), np.zeros(1, np.int64)
    return (batch.rules, batch.world, batch.program, batch.out.results, *scratch)


def search_settings(
    frames: int,
    level: str,
    long_run: int,
    exact_columns: int | None,
    margin: int | None = None,
    keep_runs: bool = False,
) -> tuple[Any, ...]:
    """Return the settings of `successors`.

    Columns that are not more than `margin` columns away from the view keep their digits, and with
    `keep_runs` those that continue a run of columns that is held. Without a margin no column is
    opened again: paths that return to a column find its digit.
    """
    widest = MAX_COLUMNS + frames
    return (
        np.int64(widest if exact_columns else long_run),
        np.int64(exact_columns or widest),
        judges_signpost(level),
        np.int64(-1 if margin is None else margin),
        keep_runs,
    )


def judges_signpost(level: str) -> bool:
    """Return whether a wrong signpost move is a failure at this level."""
    return "wrong_signpost" in modules_of(level)


def start_rows(base: int, frames: int, most_columns: int) -> npt.NDArray[np.uint8]:
    """Return the starts of episodes: every width, first digit, operation and first symbol."""
    rows = []
    first = HEADER + MAX_COLUMNS + frames
    widths = range(2, min(most_columns, 1 + LONG_RUN_AT_EDGE) + 1)
    for width, operation, symbol, digit in product(widths, range(2), range(base), range(base)):
        row = np.zeros(row_bytes(frames), np.uint8)
        row[WIDTH] = width
        row[DIGIT_INDEX] = 1
        row[SYMBOL] = symbol
        row[OPERATION] = operation
        row[LOWEST_WRONG] = 1 if symbol > 0 else 0
        row[HEADER:first] = OPEN
        row[HEADER] = digit
        frame = encode_frame(base, base, digit, 0, 0, SIGNPOST_RIGHT)
        row[first : first + 2 * frames] = list(divmod(frame, 256)) * frames
        rows.append(row)
    return np.array(rows)


def row_bytes(frames: int) -> int:
    """Return the bytes of a situation."""
    size = HEADER + MAX_COLUMNS + frames + 2 * frames
    return -(-size // WORD) * WORD


def _grown(store: _Store | None, capacity: int, size: int, count: int = 0) -> _Store:
    """Return a store with room for `capacity` situations, with the first `count` of the given."""
    if store is not None:
        size = store.situations.shape[1]
    situations = np.zeros((capacity, size), np.uint8)
    words = situations.view(np.uint64)
    arrays = [np.zeros(capacity, kind) for kind in (np.int32, np.uint8, np.uint8, np.int32)]
    if store is not None:
        situations[:count] = store.situations[:count]
        for new, old in zip(arrays, store[2:6], strict=True):
            new[:count] = old[:count]
    slots = empty_slots(capacity)
    insert_rows(slots, words, 0, count)
    parents, actions, failures, rows = arrays
    return _Store(situations, words, parents, actions, failures, rows, slots)


def _grown_table(table: _Table | None, capacity: int, frames: int, count: int = 0) -> _Table:
    codes = np.zeros((capacity, frames + 3), np.int32)
    orders = np.zeros((capacity, ACTIONS), np.uint8)
    if table is not None:
        codes[:count], orders[:count] = table.codes[:count], table.orders[:count]
    slots = empty_slots(capacity)
    insert_rows(slots, codes, 0, count)
    return _Table(codes, orders, slots)


@compiled
def _look_up(situations, rows, start, stop, codes, slots, known, widest):
    """Write the observation of each situation, append new ones, and return how many there are."""
    frames = codes.shape[1] - 3
    first = HEADER + widest
    for row in range(start, stop):
        for k in range(frames):
            codes[known, k] = (
                np.int32(situations[row, first + 2 * k]) * 256 + situations[row, first + 2 * k + 1]
            )
        codes[known, frames] = situations[row, SYMBOL]
        codes[known, frames + 1] = situations[row, OPERATION]
        codes[known, frames + 2] = np.int32(situations[row, PREVIOUS_ACTION]) - 1
        slot = find_slot(slots, codes, known)
        if slots[slot] == EMPTY:
            slots[slot] = known
            known += 1
        rows[row] = slots[slot]
    return known


@compiled
def _expand(abacus, settings, store, orders, steps, counters):
    """Find the successors of the situations from `done` up to `stop`, as far as there is room.

    Return the numbers of situations expanded and found, of steps, and of failures; the number found
    is negative if a situation has too many columns.
    """
    situations, words, parents, actions, failures, observation_of, slots = store
    done, stop, count, step_count, failed = counters
    most = MOST_SUCCESSORS
    while done < stop and count + most <= len(parents) and step_count + most <= len(steps):
        # The same types as from Python: numba would compile the kernel for others again.
        row = np.int64(observation_of[done])
        action, failure, number = successors(abacus, settings, situations, done, orders, row, count)
        if number < 0:
            return done, -count, step_count, failed
        actions[done] = action
        failures[done] = failure
        failed += failure != END_NONE
        for found in range(count, count + number):
            for k in range(words.shape[1]):
                words[count, k] = words[found, k]
            slot = find_slot(slots, words, count)
            if slots[slot] == EMPTY:
                slots[slot] = count
                parents[count] = done
                count += 1
            steps[step_count, 0] = done
            steps[step_count, 1] = slots[slot]
            step_count += 1
        done += 1
    return done, count, step_count, failed


@compiled
def successors(abacus, settings, situations, source, orders, row, free):
    """Write the successors of a situation to the rows from `free` on.

    Return the policy's action, the end that it brings if it is wrong, and the number of successors;
    -1 successors if one has too many columns.
    """
    all_rules, (scalars, cells, history), program, results, known, branches, held = abacus
    long_run, most_columns, judge_signpost, margin, keep_runs = settings
    # For a plain 0, numba would compile the whole kernel a second time.
    only = np.int64(0)
    rules, s, result = all_rules[only], scalars[only], results[only]
    action = touched = columns = np.int64(-1)
    written = number = branch = longer = 0
    lengthen = False
    # One loop over all branches in both lengths, so that each function is compiled once.
    while True:
        lowest_wrong = _load(situations, source, rules, s, cells, history, known, held)
        if action < 0:
            columns = np.int64(rules.columns)
            action = _best_legal(rules, s, cells, orders, row)
            touched = _touched(s, action)
            longer = _longer_by(rules, s, cells, history, known, lowest_wrong, touched, long_run)
        if lengthen:
            lowest_wrong = _lengthen(rules, s, cells, known, held, lowest_wrong, touched, longer)
        if branch == 0:
            number = _branches(rules, s, known, action, branches)
        _apply(rules, s, cells, known, action, branches[branch])
        advance(rules, s, cells, history, program, only, action, result)
        failure = _judge(result, judge_signpost)
        if failure != END_NONE:
            return action, failure, 0
        if action in (SLIDE, SUBMIT):
            lowest_wrong = s.first_wrong if s.wrong_count > 0 else NONE
        if branch < number and _is_possible(rules, s, cells, known, lowest_wrong):
            if margin >= 0:
                kept = margin, keep_runs
                _forget(rules, s, cells, history, known, held, lowest_wrong, action, kept)
            lowest_wrong = _shorten(rules, s, cells, history, known, held, lowest_wrong, long_run)
            if rules.columns <= most_columns:
                place = free + written
                _save(rules, s, cells, history, known, held, lowest_wrong, situations, place)
                written += 1
        branch += 1
        if branch >= number:
            if lengthen or longer == 0:
                return action, END_NONE, written
            if columns + longer > cells.shape[1]:
                return action, END_NONE, -1
            lengthen = True
            branch = 0


@compiled_inline
def _load(situations, row, rules, s, cells, history, known, held):
    """Set the abacus to a situation; return its lowest wrong column, or NONE.

    Open columns get a digit over which no carry propagates: with it, the kernel judges every action
    as with any other digit.
    """
    width = np.int32(situations[row, WIDTH])
    rules.columns = width
    s.finger_column = situations[row, FINGER_COLUMN]
    s.finger_row = situations[row, FINGER_ROW]
    s.signpost = situations[row, SIGNPOST]
    s.operation = situations[row, OPERATION]
    s.previous_action = np.int8(situations[row, PREVIOUS_ACTION]) - 1
    held[0] = situations[row, WRITTEN_END]
    s.wrong_count = 0
    s.first_wrong = width
    stops_carry = 0 if s.operation == ADD else rules.base - 1
    for column in range(width):
        digit = situations[row, HEADER + column]
        known[column] = digit != OPEN
        cells[0, column].digit = digit if known[column] else stops_carry
        cells[0, column].target = cells[0, column].digit
    index = np.int32(situations[row, DIGIT_INDEX]) - 1
    lowest_wrong = np.int64(situations[row, LOWEST_WRONG]) - 1
    if lowest_wrong != NONE:
        # What is left of adding the digit: the digit itself on its column, a carry of 1 further on.
        at_digit = lowest_wrong == index
        cells[0, lowest_wrong].operand = situations[row, SYMBOL] if at_digit else 1
        show_digit(rules, s, cells, np.int64(0), lowest_wrong)
    s.digit_index = index
    s.symbol = situations[row, SYMBOL]
    start = HEADER + cells.shape[1]
    for k in range(history.shape[1]):
        history[0, k] = np.int32(situations[row, start + 2 * k]) * 256
        history[0, k] += situations[row, start + 2 * k + 1]
    s.steps = 0
    s.budget = 1 << 30
    s.end_after_reset = 0
    s.reload_after_reset = False
    return lowest_wrong


@compiled_inline
def _save(rules, s, cells, history, known, held, lowest_wrong, situations, row):
    """Write the situation of the abacus to a row."""
    width = rules.columns
    situations[row, WIDTH] = width
    situations[row, FINGER_COLUMN] = s.finger_column
    situations[row, FINGER_ROW] = s.finger_row
    situations[row, SIGNPOST] = s.signpost
    situations[row, DIGIT_INDEX] = s.digit_index + 1
    situations[row, SYMBOL] = s.symbol
    situations[row, OPERATION] = s.operation
    situations[row, PREVIOUS_ACTION] = s.previous_action + 1
    situations[row, LOWEST_WRONG] = lowest_wrong + 1
    situations[row, WRITTEN_END] = held[0]
    widest = cells.shape[1]
    for column in range(widest):
        shown = column < width and known[column]
        situations[row, HEADER + column] = cells[0, column].digit if shown else OPEN
    start = HEADER + widest
    for k in range(history.shape[1]):
        situations[row, start + 2 * k] = history[0, k] // 256
        situations[row, start + 2 * k + 1] = history[0, k] % 256


@compiled_inline
def _best_legal(rules, s, cells, orders, row):
    legal = legal_actions(rules, s, cells[0, s.finger_column].digit)
    for k in range(ACTIONS):
        action = np.int64(orders[row, k])
        if (legal >> action) & 1:
            return action
    return np.int64(SUBMIT)


@compiled_inline
def _judge(result, judge_signpost):
    """Return the end that a wrong action brings, whether or not the level ends the episode."""
    if result.outcomes[SLIDE_OUTCOME] < 0:
        return END_WRONG_SLIDE
    if result.outcomes[SUBMIT_OUTCOME] < 0:
        return END_WRONG_SUBMIT
    if judge_signpost and result.outcomes[SIGNPOST_OUTCOME] < 0:
        return END_WRONG_SIGNPOST
    return END_NONE


@compiled_inline
def _touched(s, action):
    """Return the column that an action shows, or to which it moves the signpost or the digit."""
    if action == LEFT:
        return np.int64(s.finger_column - 2)
    if action == RIGHT:
        return np.int64(s.finger_column + 1)
    if action == TO_LEFT:
        return np.int64(s.signpost - 1)
    if action == TO_RIGHT:
        return np.int64(s.signpost + 1)
    if action == SLIDE:
        return np.int64(s.finger_column + 1)
    if action == SUBMIT:
        return np.int64(s.digit_index + 1)
    return np.int64(-1)


@compiled_inline
def _seen(s, history):
    """Return the lowest and the highest column that a frame shows.

    The finger moves at most one column per step, so the phases of the frames give its path.
    """
    column = np.int64(s.finger_column)
    lowest = highest = column
    for k in range(history.shape[1] - 1, 0, -1):
        phase = history[0, k] // SIGNPOST_PLACES % ENCODING_PERIOD
        before = history[0, k - 1] // SIGNPOST_PLACES % ENCODING_PERIOD
        moved = (before - phase + ENCODING_PERIOD) % ENCODING_PERIOD
        column += -1 if moved == ENCODING_PERIOD - 1 else moved
        lowest, highest = min(lowest, column), max(highest, column)
    return max(lowest - 1, 0), highest


@compiled_inline
def _in_run(s, lowest_wrong, lowest, highest, column):
    """Return whether a column is hidden and without signpost, digit or pending carry."""
    return (
        (column < lowest or column > highest)
        and column != s.signpost
        and column != s.digit_index
        and column != lowest_wrong
    )


@compiled_inline
def _alike(cells, known, one, other):
    if known[one] != known[other]:
        return False
    return not known[one] or cells[0, one].digit == cells[0, other].digit


@compiled_inline
def _run_end(rules, s, cells, known, lowest_wrong, lowest, highest, start):
    """Return the end of the run that starts at a column."""
    end = start + 1
    while (
        end < rules.columns
        and _in_run(s, lowest_wrong, lowest, highest, end)
        and _alike(cells, known, start, end)
    ):
        end += 1
    return end


@compiled_inline
def _longer_by(rules, s, cells, history, known, lowest_wrong, column, long_run):
    """Return by how many columns the next longer run differs that the one of a column stands for.

    Return 0 if the run does not stand for longer ones, or does so even with a column less.
    """
    if column < 0 or column >= rules.columns:
        return 0
    lowest, highest = _seen(s, history)
    if not _in_run(s, lowest_wrong, lowest, highest, column):
        return 0
    start = column
    while (
        start > 0
        and _in_run(s, lowest_wrong, lowest, highest, start - 1)
        and _alike(cells, known, start - 1, column)
    ):
        start -= 1
    end = _run_end(rules, s, cells, known, lowest_wrong, lowest, highest, start)
    if end == rules.columns and not known[column]:
        return 1 if end - start == LONG_RUN_AT_EDGE else 0
    return ENCODING_PERIOD if end - start == long_run else 0


@compiled_inline
def _moved(place, column, by):
    return place + by if place > column else place


@compiled_inline
def _lengthen(rules, s, cells, known, held, lowest_wrong, column, by):
    """Insert columns like the given one behind it; return the lowest wrong column."""
    for k in range(rules.columns - 1, column, -1):
        cells[0, k + by].digit = cells[0, k].digit
        cells[0, k + by].target = cells[0, k].target
        known[k + by] = known[k]
    for k in range(column + 1, column + 1 + by):
        cells[0, k].digit = cells[0, column].digit
        cells[0, k].target = cells[0, column].target
        known[k] = known[column]
    rules.columns += by
    s.finger_column = _moved(s.finger_column, column, by)
    s.signpost = _moved(s.signpost, column, by)
    s.digit_index = _moved(s.digit_index, column, by)
    s.first_wrong = _moved(s.first_wrong, column, by)
    held[0] = _moved(held[0], column, by)
    return _moved(lowest_wrong, column, by)


@compiled_inline
def _branches(rules, s, known, action, branches):
    """Write the branches of an action and return their number.

    A branch is the digit of the column that comes into view, or the symbol that follows a submit;
    OPEN for an action that has one result.
    """
    if action == SUBMIT:
        return _submit_branches(rules, s, branches)
    branches[0] = OPEN
    revealed = -1
    if action == RIGHT:
        revealed = s.finger_column + 1
    elif action == LEFT:
        revealed = s.finger_column - 2
    if revealed < 0 or known[revealed]:
        return 1
    for digit in range(rules.base):
        branches[digit] = digit
    return rules.base


@compiled_inline
def _submit_branches(rules, s, branches):
    """Branch into every digit and, after a possible last digit of an operand, every operation."""
    j = s.digit_index
    count = 0
    if j != ON_OPERATION_SYMBOL and (s.symbol > 0 or j == 0):
        for operation in range(2):
            branches[count] = rules.base + operation
            count += 1
    place = j + 1
    if place + 1 >= rules.columns:
        return count
    # On the last place of an operand a digit is not 0, unless the operand is the number 0.
    lowest = 1 if place > 0 and place + 2 >= rules.columns else 0
    for symbol in range(lowest, rules.base):
        branches[count] = symbol
        count += 1
    return count


@compiled_inline
def _apply(rules, s, cells, known, action, branch):
    """Set the digit of the column that comes into view, or the symbol that follows a submit."""
    if branch == OPEN:
        return
    if action == SUBMIT:
        place = s.digit_index + 1
        if branch >= rules.base:
            s.operand_length = place
            s.program_first = branch - rules.base
            s.program_next = 0
            s.program_count = 1
        else:
            s.operand_length = place + 1
            cells[0, place].operand = branch
        return
    column = s.finger_column + 1 if action == RIGHT else s.finger_column - 2
    cells[0, column].digit = branch
    cells[0, column].target = branch
    known[column] = True


@compiled_inline
def _is_possible(rules, s, cells, known, lowest_wrong):
    """Return whether the carry can end on the abacus: the result of an operation fits."""
    if lowest_wrong == NONE:
        return True
    amount = np.int64(s.symbol) if lowest_wrong == s.digit_index else 1
    for column in range(lowest_wrong, rules.columns):
        if not known[column]:
            return True
        digit = np.int64(cells[0, column].digit)
        overflows = digit + amount >= rules.base if s.operation == ADD else digit < amount
        if not overflows:
            return True
        amount = 1
    return False


@compiled_inline
def _forget(rules, s, cells, history, known, held, lowest_wrong, action, kept):
    """Open the hidden columns, except for those that a policy may walk back over.

    Kept are columns up to a margin away from the view, and those that were written for the current
    digit: all of them while a carry is pending, up to the view when it is done. After the submit
    they are held as long as they adjoin the view on its left, and so are, if runs are kept, columns
    that leave the view and have the same digit.
    """
    margin, keep_runs = kept
    lowest, highest = _seen(s, history)
    if action == SLIDE:
        held[0] = s.finger_column + 1
    j = s.digit_index
    written = j != ON_OPERATION_SYMBOL and s.symbol > 0 and lowest_wrong != j
    first = np.int64(0)
    if written:
        first = j
        if lowest_wrong == NONE:
            held[0] = min(held[0], highest + 1)
    else:
        held[0] = min(held[0], lowest)
        while keep_runs and 0 < held[0] < lowest and _continues(cells, known, held[0]):
            held[0] += 1
        if held[0] < lowest:
            held[0] = 0
        first = held[0]
        while first > 0 and known[first - 1]:
            first -= 1
    for column in range(rules.columns):
        far = column < lowest - margin or column > highest + margin
        if far and (column < first or column >= held[0]):
            known[column] = False
    if held[0] > 0 and (held[0] <= first or not known[held[0] - 1]):
        held[0] = 0


@compiled_inline
def _continues(cells, known, column):
    """Return whether a column is known to have the same digit as the one before."""
    same = cells[0, column].digit == cells[0, column - 1].digit
    return known[column] and known[column - 1] and same


@compiled_inline
def _shorten(rules, s, cells, history, known, held, lowest_wrong, long_run):
    """Remove triples of columns from long runs; return the lowest wrong column."""
    lowest, highest = _seen(s, history)
    column = np.int64(0)
    place = np.int64(0)
    finger, signpost, index = s.finger_column, s.signpost, s.digit_index
    wrong, end = lowest_wrong, held[0]
    while column < rules.columns:
        if _in_run(s, lowest_wrong, lowest, highest, column):
            stop = _run_end(rules, s, cells, known, lowest_wrong, lowest, highest, column)
            if stop == rules.columns and not known[column]:
                column = max(column, stop - LONG_RUN_AT_EDGE)
            else:
                excess = (stop - column - long_run) // ENCODING_PERIOD
                column += max(excess, 0) * ENCODING_PERIOD
        else:
            stop = column + 1
        while column < stop:
            if column != place:
                cells[0, place].digit = cells[0, column].digit
                known[place] = known[column]
                finger = place if column == s.finger_column else finger
                signpost = place if column == s.signpost else signpost
                index = place if column == s.digit_index else index
                wrong = place if column == lowest_wrong else wrong
                end = place + 1 if column + 1 == held[0] else end
            column += 1
            place += 1
    s.finger_column, s.signpost, s.digit_index = finger, signpost, index
    held[0] = end
    rules.columns = place
    return wrong
