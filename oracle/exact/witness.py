"""Find a concrete operation that leads to an observation, and check it in the environment.

A path of the exploration leaves hidden columns undetermined: columns without a digit, and columns
that were opened again and came back with another digit. Here the expert follows the path on a real
abacus. Wherever a column differs from the path, its starting digit is corrected by the difference,
and the run starts over. A run that reaches the end of the path is a witness.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SUBTRACT
from abacus.rules import AbacusConfig, Action
from abacus.tasks import numeral, value_of
from oracle.algorithm import Variant
from oracle.exact.complete_set import (
    ObservationSet,
    complete_width,
    is_known,
    nearest_situations,
    observation_keys,
    shortest_paths,
)
from oracle.exact.exploration import (
    DIGIT_INDEX,
    FINGER_ROW,
    HEADER,
    OPEN,
    OPERATION,
    SYMBOL,
    Exploration,
    explore,
)
from oracle.expert import answer_all, expert_actions

#: ADD or SUBTRACT, and the digits of an operand, least significant first.
Operation = tuple[int, list[int]]
Digits = npt.NDArray[np.uint8]
#: A witness with a leading operation has this many more columns than the situations of its path.
COLUMNS_BEYOND_PATH = 4


def witness_width(frames: int) -> int:
    """Return the number of columns on which every witness fits."""
    return complete_width(frames) + COLUMNS_BEYOND_PATH


@dataclass(frozen=True)
class Witness:
    """Calculate `expression` from `start`: the observation appears after `step` expert steps."""

    base: int
    columns: int
    start: int
    expression: str
    step: int

    @property
    def in_base(self) -> str:
        """The whole calculation in the base of the abacus, as its beads show it."""
        operations = (
            f"{operation.symbol} {numeral(operation.operand, self.base)}"
            for operation in self.config(1).program
        )
        return " ".join([numeral(self.start, self.base), *operations])

    def config(self, frames: int) -> AbacusConfig:
        """Return the configuration of an abacus that runs the witness."""
        return AbacusConfig(
            columns=self.columns,
            base=self.base,
            frames=frames,
            max_digits=self.columns - 1,
            start=self.start,
            expression=self.expression,
        )

    def replay(self, frames: int, variant: Variant) -> tuple[AbacusBatch, list[Action]]:
        """Let the expert run to the witness's step; return the abacus and the actions.

        There are fewer actions than steps if the episode ends before.
        """
        batch = AbacusBatch(self.config(frames), 1, autoreset=False)
        batch.reset(0)
        actions: list[Action] = []
        while len(actions) < self.step and not (batch.terminated[0] or batch.truncated[0]):
            chosen = expert_actions(batch, variant)
            actions.append(Action(int(chosen[0])))
            batch.step(chosen)
        return batch, actions


class WitnessFinder:
    """Find witnesses for the rows of a complete set, or of its part for one operation.

    The nearest situation of each row, and the path to it, come from the cache of known sets. All
    situations come from an exploration, which is made when first needed if none is given: in
    seconds, or half a minute for base 10 with three frames.
    """

    def __init__(
        self,
        observations: ObservationSet,
        exploration: Exploration | None = None,
        cache_folder: Path | None = None,
    ) -> None:
        self.observations = observations
        self._exploration = exploration
        self._cache_folder = cache_folder

    @cached_property
    def exploration(self) -> Exploration:
        """All situations."""
        chosen = self.observations
        return self._exploration or explore(
            chosen.base, chosen.frames, complete_width(chosen.frames), chosen.variant
        )

    @cached_property
    def _paths(self) -> Exploration:
        """The nearest situations in the order of `exploration`, or all if those are there."""
        chosen = self.observations
        settings = chosen.base, chosen.frames, chosen.variant
        if self._exploration is None and is_known(*settings):
            return shortest_paths(*settings, self._cache_folder)
        return self.exploration

    @cached_property
    def _nearest(self) -> npt.NDArray[np.int32]:
        """(rows,): the nearest situation, as its number in `_paths`."""
        return nearest_situations(self._paths, self.observations)

    @cached_property
    def _situations_by_row(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """All situations sorted by their row, nearest first, and the bounds of each row."""
        found, known = self.exploration, self.observations.keys
        keys = observation_keys(found.histories, found.symbols, found.operations)
        rows = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        rows[known[rows] != keys] = -1
        order = np.argsort(rows, kind="stable")
        return order, np.searchsorted(rows[order], np.arange(len(known) + 1))

    def situations(self, row: int) -> npt.NDArray[np.int64]:
        """Return all situations with the observation of a row, nearest to a start first."""
        order, bounds = self._situations_by_row
        return order[bounds[row] : bounds[row + 1]]

    def nearest_first(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """Return the rows sorted by their distance from a start."""
        return rows[np.argsort(self._nearest[rows], kind="stable")]

    def find(self, row: int, action: Action | None = None) -> Witness:
        """Return a witness of a row, checked in the environment.

        With an action, the expert takes this action there. Most rows have a witness at the nearest
        situation. For some, the shortest path to it writes, to bring the finger to its row, a
        column that needs another digit later; they have one at a situation further away, which
        takes an exploration if none was given.
        """
        for exploration, situation in self._nearest_of(row):
            if action is None or exploration.actions[situation] == action:
                path = exploration.path_to(int(situation))
                for witness in _candidates(exploration, path):
                    if witness is not None and self.confirms(witness, row, action):
                        return witness
        raise AssertionError(f"no operation leads to observation {row}")

    def _nearest_of(self, row: int) -> Iterator[tuple[Exploration, int]]:
        """Yield the situations of a row, nearest first; explore only if the first is not enough."""
        yield self._paths, int(self._nearest[row])
        for situation in self.situations(row)[1:]:
            yield self.exploration, int(situation)

    def confirms(self, witness: Witness, row: int, action: Action | None = None) -> bool:
        """Return whether the environment shows the row's observation at the witness's step."""
        known = self.observations
        batch, actions = witness.replay(known.frames, known.variant)
        shown = known.index(batch.history, batch.scalars["symbol"], batch.scalars["operation"])
        return bool(
            len(actions) == witness.step
            and not (batch.terminated[0] or batch.truncated[0])
            and shown[0] == row
            and (action is None or expert_actions(batch, known.variant)[0] == action)
        )


def _candidates(exploration: Exploration, path: Digits) -> Iterator[Witness | None]:
    """Follow a path: with all its digits, with the last ones, behind a leading operation."""
    digits = path[:, HEADER : HEADER + exploration.width]
    for required in (digits, _last_known(digits)):
        yield _fit(exploration, required, operations_of(path), None)
    yield _fit_with_leading_operation(exploration, path)


def _fit_with_leading_operation(exploration: Exploration, path: Digits) -> Witness | None:
    """Replace a first operation that only brought the finger to its row.

    It may have written a column that needs another digit later. The leading operation brings the
    finger to the same row and writes a column that the rest of the path never shows.
    """
    reset = np.flatnonzero((path[:-1, DIGIT_INDEX] == 0) & (path[1:, DIGIT_INDEX] == 1))
    if len(reset) == 0:
        return None
    rest = path[reset[0] + 1 :]
    row = int(rest[0, FINGER_ROW])
    operation, digit = (SUBTRACT, 1) if row == 0 else (ADD, row - 1)
    leading = (operation, [0] * (exploration.width + 1) + [1])
    required = _last_known(rest[:, HEADER : HEADER + exploration.width])
    return _fit(exploration, required, [leading, *operations_of(rest)], digit)


def _fit(
    exploration: Exploration,
    required: Digits,
    operations: list[Operation],
    leading_digit: int | None,
) -> Witness | None:
    """Correct starting digits until a run shows the required digits at every step."""
    base = exploration.base
    width = exploration.width + (1 if leading_digit is None else COLUMNS_BEYOND_PATH)
    start = np.zeros(width, np.uint8)
    if leading_digit is not None:
        start[len(operations[0][1]) - 1] = leading_digit
    run = _Run(exploration, start, operations)
    for _ in range(width * base):
        start[-1] = _needs_reserve(start, operations, base)
        run.restart(start)
        steps = 0 if leading_digit is None else run.finish_first_operation()
        mismatch = run.first_mismatch(required)
        if mismatch is None:
            return Witness(
                base,
                width,
                value_of(start, base),
                _expression(operations, base),
                steps + len(required) - 1,
            )
        column, difference = mismatch
        start[column] = (int(start[column]) + difference) % base
    return None


def operations_of(path: Digits) -> list[Operation]:
    """Return the operations that the symbols of a path spell, the last one completed."""
    operations: list[Operation] = [(int(path[0, OPERATION]), [int(path[0, SYMBOL])])]
    for before, here in pairwise(path):
        if here[DIGIT_INDEX] == before[DIGIT_INDEX]:
            continue
        if here[DIGIT_INDEX] == 0:
            operations.append((int(here[OPERATION]), []))
        else:
            operations[-1][1].append(int(here[SYMBOL]))
    digits = operations[-1][1]
    if not digits or (digits[-1] == 0 and len(digits) > 1):
        digits.append(1)
    return operations


def _last_known(digits: Digits) -> Digits:
    """Return the digits of each column since it was last open, and OPEN before."""
    required = np.full_like(digits, OPEN)
    for column, shown in enumerate(digits.T):
        known = np.flatnonzero(shown != OPEN)
        if len(known):
            gaps = np.flatnonzero(shown[: known[-1]] == OPEN)
            first = gaps[-1] + 1 if len(gaps) else 0
            required[first : known[-1] + 1, column] = shown[first : known[-1] + 1]
    return required


class _Run:
    """The expert's run of some operations on a real abacus, again and again from other digits."""

    def __init__(
        self, exploration: Exploration, start: Digits, operations: list[Operation]
    ) -> None:
        width = len(start)
        config = AbacusConfig(
            columns=width,
            base=exploration.base,
            frames=exploration.frames,
            max_digits=width - 1,
            on_error="continue",
        )
        self.batch = AbacusBatch(config, 1, autoreset=False)
        self.batch.seed(0)
        digits = np.zeros((len(operations), width - 1), np.uint8)
        for row, (_, operand) in zip(digits, operations, strict=True):
            row[: len(operand)] = operand
        self.batch.load(
            start[None],
            digits,
            np.array([len(operand) for _, operand in operations], np.int32),
            np.array([operation for operation, _ in operations], np.int32),
            np.array([len(operations)], np.int32),
        )
        self._printed = exploration.variant == "printed"
        self._actions = np.zeros(1, np.int64)

    def restart(self, start: Digits) -> None:
        """Start an episode with other digits."""
        self.batch.program.start_digits[0] = start
        self.batch.reset()

    def step(self) -> None:
        """Take the expert's action."""
        world = self.batch.world
        # Without the check of the state, which only steps have changed.
        answer_all(world.scalars, world.cells, self._printed, self._actions)
        self.batch.step(self._actions)

    def finish_first_operation(self) -> int:
        """Run to the end of the first operation and return the number of steps."""
        steps = 0
        while self.batch.scalars["operations_done"][0] == 0:
            self.step()
            steps += 1
        return steps

    def first_mismatch(self, required: Digits) -> tuple[int, int] | None:
        """Return the first column that differs from a path, and by how much; None if none does."""
        known = required != OPEN
        for number, digits in enumerate(required):
            if number > 0:
                self.step()
            shown = self.batch.digits[0, : len(digits)]
            wrong = known[number] & (digits != shown)
            if wrong.any():
                column = int(wrong.argmax())
                return column, int(digits[column]) - int(shown[column])
        return None


def _needs_reserve(start: Digits, operations: list[Operation], base: int) -> int:
    """Return 1 if the value would go below zero without a 1 in the last, hidden column."""
    value = value_of(start[:-1], base)
    for operation, operand in operations:
        value += value_of(operand, base) * (1 if operation == ADD else -1)
        if value < 0:
            return 1
    return 0


def _expression(operations: list[Operation], base: int) -> str:
    text = "".join(
        f"{'-' if operation == SUBTRACT else '+'}{value_of(operand, base)}"
        for operation, operand in operations
    )
    return text.removeprefix("+")
