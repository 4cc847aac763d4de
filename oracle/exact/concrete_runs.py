"""Run a policy's failures in the environment, and find the smallest operations that show them.

The exploration forgets hidden columns, so a failure that it finds may be one that no abacus shows.
Here the policy is explored on few columns, and a path to the failure is searched on which every
column keeps its digit. The path gives a starting value and an expression, and these are run in the
environment with the policy's own answers.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SIGNPOST_OUTCOME, SLIDE_OUTCOME, SUBMIT_OUTCOME, SUBTRACT
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Operation as TaskOperation
from abacus.tasks import Task, numeral, value_of
from oracle.exact.endless_runs import endless_parts
from oracle.exact.exploration import NO_PARENT, OPEN
from oracle.exact.policy_exploration import (
    DIGIT_INDEX,
    FINGER_COLUMN,
    HEADER,
    MAX_COLUMNS,
    MOST_SUCCESSORS,
    OPERATION,
    PREVIOUS_ACTION,
    SYMBOL,
    WIDTH,
    WRITTEN_END,
    PolicyExploration,
    explore_policy,
    lazy_abacus,
    row_bytes,
    search_settings,
    start_rows,
    successors,
)

#: A run that returns to the same state without a submit.
NEVER_ENDS = "never ends"
#: Kinds of failures, and the rules that they break.
RULES = {
    "wrong slide": "after a slide, the columns up to the finger's show the partial result, and "
    "during a reset no bead moves",
    "wrong submit": "at a submit, all columns show the partial result and the signpost is on the "
    "digit's column; a reset ends with the signpost on column 0",
    "wrong signpost move": "the signpost moves closer to the digit's column, in a reset to column "
    "0",
    NEVER_ENDS: "every run reaches its next submit",
}
KINDS = {
    int(End.WRONG_SLIDE): "wrong slide",
    int(End.WRONG_SUBMIT): "wrong submit",
    int(End.WRONG_SIGNPOST): "wrong signpost move",
}
#: Columns of the explorations in which small failing operations are searched.
SEARCH_COLUMNS = (5, 7, 10, 14)
#: Situations of such an exploration.
SEARCH_LIMIT = 2_000_000
#: Situations that guided searches expand: a second, longer try where no failure was found.
EFFORTS = (1_000, 30_000)
#: Runs that a guided search tries in the environment.
TRIES = 20
#: Operations at the end of a path that are resumed after others.
MOST_RESUMED = 3
#: Steps after the end of a path in which a run may come back to an earlier state.
MORE_STEPS = 300

#: ADD or SUBTRACT, and the digits of an operand, least significant first.
Operation = tuple[int, list[int]]
#: The policy's order of actions for coded observations; see `explore_policy`.
Ask = Callable[[npt.NDArray[np.int32]], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class FailingRun:
    """A failure that was run in the environment: `expression` from `start`, after `step` steps.

    For a run that never ends, the state after `step` steps comes again and again.
    """

    kind: str
    rule: str
    columns: int
    start: int
    expression: str
    in_base: str
    step: int
    frames: tuple[int, ...]
    symbol: str
    operation: str
    action: str

    @property
    def calculation(self) -> str:
        """The whole calculation in decimal, with its starting value: `1 + 1`."""
        sign = "" if self.expression.startswith(("+", "-")) else "+"
        return str(self.start) + re.sub("([+-])", r" \1 ", sign + self.expression)


class EnvironmentRun:
    """A run of the policy's greedy legal actions in the environment, from a start of an episode."""

    def __init__(self, ask: Ask, config: AbacusConfig) -> None:
        self.ask, self.config = ask, config
        self._judge_signpost = "wrong_signpost" in config.modules
        self.batch = AbacusBatch(config, 1, autoreset=False)
        self.batch.reset(0)
        self.step = 0
        self._states: dict[bytes, int] = {}

    def codes(self) -> npt.NDArray[np.int32]:
        """Return the coded observation, as the policy is asked about it."""
        scalars = self.batch.scalars[0]
        rest = [scalars["symbol"], scalars["operation"], scalars["previous_action"]]
        return np.concatenate([self.batch.history[0], rest]).astype(np.int32)[None]

    def advance(self) -> FailingRun | None:
        """Take a step; return the failure if it is one."""
        codes = self.codes()
        first = self._states.setdefault(self._state(), self.step)
        order = self.ask(codes)[0]
        action = int(order[self.batch.masks[0][order]][0])
        if first < self.step:
            return self._failure(NEVER_ENDS, codes[0], action, first)
        self.batch.step(np.array([action]))
        kind = self._mistake()
        if kind is not None:
            return self._failure(kind, codes[0], action, self.step)
        self.step += 1
        if action in (Action.SLIDE, Action.SUBMIT):
            self._states.clear()
        return None

    @property
    def ended(self) -> bool:
        """Whether the expression is done; a spent step budget is no end here."""
        return int(self.batch.ends[0]) in (End.EXPRESSION, End.CAPACITY)

    def _mistake(self) -> str | None:
        outcomes = self.batch.outcomes[0]
        if outcomes[SLIDE_OUTCOME] < 0:
            return KINDS[End.WRONG_SLIDE]
        if outcomes[SUBMIT_OUTCOME] < 0:
            return KINDS[End.WRONG_SUBMIT]
        if self._judge_signpost and outcomes[SIGNPOST_OUTCOME] < 0:
            return KINDS[End.WRONG_SIGNPOST]
        return None

    def _state(self) -> bytes:
        """Return all that decides the run up to the next slide or submit."""
        scalars = self.batch.scalars[0]
        places = [scalars[name] for name in ("finger_column", "finger_row", "signpost")]
        return np.concatenate([places, self.codes()[0]]).astype(np.int32).tobytes()

    def _failure(
        self, kind: str, codes: npt.NDArray[np.int32], action: int, step: int
    ) -> FailingRun:
        config, symbol = self.config, int(codes[-3])
        program = (
            f"{operation.symbol} {numeral(operation.operand, config.base)}"
            for operation in config.program
        )
        return FailingRun(
            kind=kind,
            rule=RULES[kind],
            columns=config.columns,
            start=int(config.start),
            expression=str(config.expression),
            in_base=" ".join([numeral(int(config.start), config.base), *program]),
            step=step,
            frames=tuple(codes[:-3].tolist()),
            symbol=str(symbol) if symbol < config.base else "+-"[symbol - config.base],
            operation="-" if codes[-2] else "+",
            action=Action(action).name,
        )


def failing_runs(
    ask: Ask,
    base: int,
    frames: int,
    level: str,
    kinds: set[str],
    limit: int = SEARCH_LIMIT,
    *,
    quick: bool = False,
) -> tuple[FailingRun, ...]:
    """Return a smallest operation that shows each kind of failure, as run in the environment.

    Kinds that no operation on a few columns shows are left out. The search ends when all given
    kinds are found, and returns others that it meets as well. A quick search is one on the
    fewest columns, which finds most failures that are real.
    """
    found: dict[str, FailingRun] = {}
    for most_expanded in EFFORTS[:1] if quick else EFFORTS:
        for columns in SEARCH_COLUMNS[:2] if quick else SEARCH_COLUMNS:
            exploration = explore_policy(
                ask, base, frames, level, exact_columns=columns, limit=min(limit, SEARCH_LIMIT)
            )
            for kind, goals in _goals(exploration):
                if kind not in found and len(goals):
                    search = GuidedSearch(ask, exploration, goals)
                    for run in search.runs(most_expanded):
                        found.setdefault(run.kind, run)
                        if kind in found:
                            break
            if kinds <= set(found) or exploration.incomplete:
                break
        if found:
            break
    return tuple(found[kind] for kind in RULES if kind in found)


def _goals(exploration: PolicyExploration) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield the situations of each kind of failure."""
    for end, kind in KINDS.items():
        yield kind, np.flatnonzero(exploration.failures == end)
    yield NEVER_ENDS, np.concatenate([np.empty(0, np.int64), *endless_parts(exploration)])


class GuidedSearch:
    """A search for runs on a concrete abacus, guided by the distances in an exploration.

    The states are situations that forget no column: all paths to them exist. The distance of their
    forgetful counterparts from a goal is a lower bound of the way that is left (A*).
    """

    def __init__(
        self, ask: Ask, exploration: PolicyExploration, goals: npt.NDArray[np.int64]
    ) -> None:
        self._ask, self._exploration = ask, exploration
        base, frames, level = exploration.base, exploration.frames, exploration.level
        self._abacus = lazy_abacus(base, frames, level)
        self._settings = search_settings(frames, level, 0, exploration.exact_columns)
        self._compiled: Any = None
        self._buffer = np.zeros((1 + MOST_SUCCESSORS, row_bytes(frames)), np.uint8)
        distances = distances_to(len(exploration), exploration.steps, goals)
        near = np.flatnonzero(distances >= 0)
        order = near[np.argsort(-distances[near], kind="stable")]
        keys = self._keys(exploration.situations[order])
        # Of equal keys, the last one counts: that with the smallest distance.
        self._distances = dict(zip(keys.tolist(), distances[order].tolist(), strict=True))

    def _keys(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
        """Return hashes of what a situation has apart from its columns."""
        first = HEADER + MAX_COLUMNS + self._exploration.frames
        last = first + 2 * self._exploration.frames
        fields = np.concatenate([rows[:, FINGER_COLUMN:WRITTEN_END], rows[:, first:last]], axis=1)
        keys = np.zeros(len(rows), np.uint64)
        for column in fields.T:
            keys = (keys + column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            keys ^= keys >> np.uint64(32)
        return keys

    def runs(self, most_expanded: int) -> Iterator[FailingRun]:
        """Yield failures as run in the environment, from short to long ways."""
        exploration = self._exploration
        columns = exploration.exact_columns or MAX_COLUMNS
        rows: list[npt.NDArray[np.uint8]] = []
        parents: list[int] = []
        actions: list[int] = []
        met: set[bytes] = set()
        heap: list[tuple[float, int, int]] = []

        def push(found: npt.NDArray[np.uint8], parent: int, steps: int) -> None:
            for row, key in zip(found, self._keys(found).tolist(), strict=True):
                distance = self._distances.get(key)
                content = row.tobytes()
                if distance is not None and content not in met:
                    met.add(content)
                    heapq.heappush(heap, (steps + distance, -steps, len(rows)))
                    rows.append(row.copy())
                    parents.append(parent)
                    actions.append(-1)

        push(start_rows(exploration.base, exploration.frames, columns), NO_PARENT, 0)
        expanded = tried = 0
        while heap and expanded < most_expanded and tried < TRIES:
            estimate, steps, node = heapq.heappop(heap)
            expanded += 1
            actions[node], failure, found = self._successors(rows[node])
            if failure or estimate == -steps:
                tried += 1
                path = _path(parents, node)
                run = self._confirmed([rows[k] for k in path], [actions[k] for k in path])
                if run is not None:
                    yield run
            push(found, node, 1 - steps)

    def _successors(self, row: npt.NDArray[np.uint8]) -> tuple[int, int, npt.NDArray[np.uint8]]:
        frames = self._exploration.frames
        first = HEADER + MAX_COLUMNS + frames
        history = row[first : first + 2 * frames].view(">u2")
        rest = [row[SYMBOL], row[OPERATION], int(row[PREVIOUS_ACTION]) - 1]
        codes = np.concatenate([history, rest]).astype(np.int32)[None]
        self._buffer[0] = row
        arguments = (self._abacus, self._settings, self._buffer, 0, self._ask(codes), 0, 1)
        if self._compiled is None:
            # numba looks at the types of all arguments at every call, which takes far longer.
            signature = tuple(map(numba.typeof, arguments))
            successors.compile(signature)
            self._compiled = successors.get_overload(signature)
        action, failure, number = self._compiled(*arguments)
        return action, failure, self._buffer[1 : 1 + max(number, 0)]

    def _confirmed(
        self, path: list[npt.NDArray[np.uint8]], actions: list[int]
    ) -> FailingRun | None:
        """Run the operations of a path in the environment; return the failure that they meet."""
        exploration = self._exploration
        for columns, start, operations in _calculations(exploration, np.array(path), actions):
            try:
                config = AbacusConfig(
                    columns=columns,
                    base=exploration.base,
                    frames=exploration.frames,
                    max_digits=columns - 1,
                    reward=exploration.level,
                    on_error="continue",
                    start=start,
                    expression=_expression(operations, exploration.base),
                )
            except ValueError:
                # The result does not fit: other digits in the columns that are never seen.
                continue
            failure = run_policy(self._ask, config, len(path) + MORE_STEPS)
            if failure is not None:
                return failure
        return None


def _calculations(
    exploration: PolicyExploration,
    rows: npt.NDArray[np.uint8],
    actions: Sequence[int],
    spare_columns: Sequence[int] = (0, 1, 3),
) -> Iterator[tuple[int, int, list[Operation]]]:
    """Yield columns, starting values and operations that a path of situations may be a run of.

    Columns that the path never shows get each digit in turn. A path that forgets columns may be the
    run of none.
    """
    base, operations = exploration.base, _operations(rows, actions)
    digits = rows[:, HEADER : HEADER + MAX_COLUMNS + exploration.frames]
    known = digits != OPEN
    first = digits[np.argmax(known, axis=0), np.arange(digits.shape[1])]
    widest = int(rows[:, WIDTH].max())
    for columns in (widest + spare for spare in spare_columns):
        for fill in range(base):
            start = np.where(known.any(axis=0), first, fill)[:columns]
            yield columns, value_of(start, base), operations


def failing_situations(exploration: PolicyExploration, most: int) -> npt.NDArray[np.int64]:
    """Return situations with a failure, the nearest for each observation, up to `most` a kind."""
    found = [np.empty(0, np.int64)]
    for _, goals in _goals(exploration):
        _, nearest = np.unique(exploration.observation_of[goals], return_index=True)
        found.append(goals[np.sort(nearest)][:most])
    return np.concatenate(found)


def likely_failures(
    exploration: PolicyExploration, situations: npt.NDArray[np.int64]
) -> Iterator[tuple[int, Task]]:
    """Yield columns and tasks that may show the failures of some situations.

    They are read off the shortest paths and have not been run: unlike `failing_runs`, this takes no
    search, and most failures that are real are among them.
    """
    base = exploration.base
    for situation in situations.tolist():
        path = exploration.path_to(situation)
        rows, actions = exploration.situations[path], exploration.actions[path].tolist()
        operations = _task_operations(rows, actions, base)
        for columns, start, _ in _calculations(exploration, rows, actions, (1,)):
            task = Task(start, operations)
            if _fits(task, columns, base):
                yield columns, task


def resumed_failures(
    exploration: PolicyExploration,
    situations: npt.NDArray[np.int64],
    rng: np.random.Generator,
    tries: int,
) -> Iterator[tuple[int, Task]]:
    """Yield columns and tasks that may show failures after other operations than on their paths.

    A shortest path that is of no abacus mostly forgets a digit between two operations. Its last
    operations, one to three of them, are resumed after a random one, which leaves the finger in
    another row, say; columns that these do not show get random digits.
    """
    base = exploration.base
    for situation in situations.tolist():
        path = exploration.path_to(situation)
        rows, actions = exploration.situations[path], exploration.actions[path]
        operations = _task_operations(rows, actions.tolist(), base)
        on_reset = rows[:, DIGIT_INDEX] == 0
        resets = np.flatnonzero(on_reset[:-1] & (actions[:-1] == Action.SUBMIT))
        # The operation that follows a reset is listed before its first digit is shown.
        announced = int(on_reset[-1])
        digits = rows[:, HEADER : HEADER + MAX_COLUMNS + exploration.frames]
        for count in range(1, min(len(resets), MOST_RESUMED) + 1):
            shown = digits[resets[-count] + 1 :]
            known = (shown != OPEN).any(axis=0)
            first = shown[np.argmax(shown != OPEN, axis=0), np.arange(shown.shape[1])]
            for _ in range(tries):
                columns = int(rows[:, WIDTH].max() + rng.integers(1, 4))
                value = np.where(known, first, rng.integers(0, base, len(known)))[:columns]
                length = int(rng.integers(1, columns))
                operand = rng.integers(0, base, length)
                if rng.random() < 0.5:
                    operand[:-1] = 0
                before = TaskOperation(int(rng.choice([-1, 1])), value_of(operand, base))
                start = value_of(value, base) - before.sign * before.operand
                if start >= 0:
                    task = Task(start, (before, *operations[-count - announced :]))
                    if _fits(task, columns, base):
                        yield columns, task


def _fits(task: Task, columns: int, base: int) -> bool:
    """Return whether the numbers of a task fit on an abacus."""
    try:
        AbacusConfig(base=base, columns=columns, max_digits=columns - 1).check_task(task)
    except ValueError:
        return False
    return True


def _task_operations(
    rows: npt.NDArray[np.uint8], actions: Sequence[int], base: int
) -> tuple[TaskOperation, ...]:
    """Return the operations of a path."""
    return tuple(
        TaskOperation(-1 if kind == SUBTRACT else 1, value_of(digits, base))
        for kind, digits in _operations(rows, actions)
    )


def run_policy(ask: Ask, config: AbacusConfig, steps: int) -> FailingRun | None:
    """Run an expression in the environment; return the first failure within `steps` steps."""
    run = EnvironmentRun(ask, config)
    for _ in range(steps):
        failure = run.advance()
        if failure is not None or run.ended:
            return failure
    return None


def distances_to(
    count: int, steps: npt.NDArray[np.int32], goals: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Return the number of steps from each situation to the nearest goal; -1 if there is no way."""
    order = np.argsort(steps[:, 1], kind="stable")
    sources = steps[order, 0]
    bounds = np.searchsorted(steps[order, 1], np.arange(count + 1))
    distances = np.full(count, -1, np.int32)
    distances[goals] = 0
    frontier, distance = np.unique(goals), 0
    while len(frontier):
        distance += 1
        first, lengths = bounds[frontier], bounds[frontier + 1] - bounds[frontier]
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        before = np.unique(sources[np.repeat(first, lengths) + offsets])
        frontier = before[distances[before] < 0]
        distances[frontier] = distance
    return distances


def _path(parents: list[int], node: int) -> list[int]:
    path = []
    while node != NO_PARENT:
        path.append(node)
        node = parents[node]
    return path[::-1]


def _operations(rows: npt.NDArray[np.uint8], actions: Sequence[int]) -> list[Operation]:
    """Return the operations that the symbols of a path spell, the last one completed."""
    operations: list[Operation] = [(int(rows[0, OPERATION]), [int(rows[0, SYMBOL])])]
    for action, row in zip(actions[:-1], rows[1:], strict=True):
        if action != Action.SUBMIT:
            continue
        if row[DIGIT_INDEX] == 0:
            operations.append((int(row[OPERATION]), []))
        else:
            operations[-1][1].append(int(row[SYMBOL]))
    digits = operations[-1][1]
    if not digits:
        digits.append(0)
    elif digits[-1] == 0 and len(digits) > 1:
        digits.append(1)
    return operations


def _expression(operations: list[Operation], base: int) -> str:
    signs = {ADD: "+", SUBTRACT: "-"}
    text = "".join(f"{signs[kind]}{value_of(digits, base)}" for kind, digits in operations)
    return text.removeprefix("+")
