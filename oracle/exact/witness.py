"""A concrete operation that runs into an observation: the shortest way there, on a real abacus.

The exploration's way to a situation leaves open what nobody sees: columns without a digit, and
columns that were forgotten and came back with another digit. Here the way is walked on a real
abacus. Wherever a column shows something else than on the way, its starting digit is changed by
the difference, and the walk begins again. A walk that arrives is a witness, and it is checked once
more in the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SUBTRACT
from abacus.rules import AbacusConfig
from abacus.tasks import numeral, value_of
from oracle.algorithm import Variant
from oracle.exact.complete_set import ObservationSet, complete_width, observation_keys
from oracle.exact.exploration import (
    DIGIT_INDEX,
    FINGER_ROW,
    HEADER,
    NO_PARENT,
    OPEN,
    OPERATION,
    SYMBOL,
    Exploration,
    explore,
)
from oracle.expert import expert_actions

#: Digits of an operand, least significant first, and ADD or SUBTRACT.
GivenOperation = tuple[int, list[int]]


@dataclass(frozen=True)
class Witness:
    """Start from `start`, compute `expression`: after `step` steps of the teacher, it is seen."""

    base: int
    columns: int
    start: int
    expression: str
    step: int

    @property
    def in_base(self) -> str:
        """The same in the abacus's own base, for a reader who follows the beads."""
        operations = (
            f"{operation.symbol} {numeral(operation.operand, self.base)}"
            for operation in self.config(1).program
        )
        return " ".join([numeral(self.start, self.base), *operations])

    def config(self, frames: int) -> AbacusConfig:
        """The world in which to run it."""
        return AbacusConfig(
            columns=self.columns,
            base=self.base,
            frames=frames,
            max_digits=self.columns - 1,
            start=self.start,
            expression=self.expression,
        )


class WitnessFinder:
    """Finds witnesses for the rows of a complete set, or of one operation's part of it."""

    def __init__(self, observations: ObservationSet) -> None:
        self.observations = observations

    @cached_property
    def exploration(self) -> Exploration:
        """The exploration behind the set; it takes seconds, so it is made when first asked for."""
        chosen = self.observations
        return explore(chosen.base, chosen.frames, complete_width(chosen.frames), chosen.variant)

    @cached_property
    def _situations_by_row(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Situations by the observation that they show; where each row's begin, where they end."""
        found = self.exploration
        keys = observation_keys(
            found.histories, found.situations[:, SYMBOL], found.situations[:, OPERATION]
        )
        order = np.argsort(keys, kind="stable")
        shown, begins, counts = np.unique(keys[order], return_index=True, return_counts=True)
        places = np.minimum(np.searchsorted(shown, self.observations.keys), len(shown) - 1)
        if not np.array_equal(shown[places], self.observations.keys):
            raise ValueError("the set is not that of its exploration: make it anew")
        return order, begins[places], begins[places] + counts[places]

    def situations(self, row: int) -> npt.NDArray[np.int64]:
        """All situations in which a row is seen, nearest to a start first."""
        order, begins, ends = self._situations_by_row
        return order[begins[row] : ends[row]]

    def nearest_first(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """The rows in the order of their distance from a start."""
        order, begins, _ = self._situations_by_row
        return rows[np.argsort(order[begins[rows]], kind="stable")]

    def find(self, row: int) -> Witness:
        """The witness of a row, checked in the environment.

        The nearest situation serves for most rows. Some need one further off: the shortest way to
        it writes, to bring the finger to its row, a column that has to show something else later.
        """
        for situation in self.situations(row):
            way = self._way_to(situation)
            for witness in walks(self.exploration, way, self.observations.variant):
                if witness is not None and self.confirms(witness, row):
                    return witness
        raise AssertionError(f"no operation was found that meets observation {row}")

    def confirms(self, witness: Witness, row: int) -> bool:
        """Whether the environment shows this very observation at the witness's step."""
        batch = AbacusBatch(witness.config(self.observations.frames), 1, autoreset=False)
        batch.reset(0)
        for _ in range(witness.step):
            batch.step(expert_actions(batch, self.observations.variant))
            if batch.terminated[0] or batch.truncated[0]:
                return False
        seen = self.observations.index(
            batch.history, batch.scalars["symbol"], batch.scalars["operation"]
        )
        return bool(seen[0] == row)

    def _way_to(self, situation: np.integer | int) -> npt.NDArray[np.uint8]:
        way = []
        while situation != NO_PARENT:
            way.append(self.exploration.situations[situation])
            situation = int(self.exploration.parents[situation])
        return np.array(way[::-1])


def walks(
    exploration: Exploration, way: npt.NDArray[np.uint8], variant: Variant
) -> Iterator[Witness | None]:
    """Walks the way on a real abacus: to the letter, but for what was forgotten, with a lead."""
    shown = way[:, HEADER : HEADER + exploration.width]
    for binding in (shown, _last_known(shown)):
        yield _fit(exploration, binding, operations_of(way), None, variant)
    yield _walk_with_lead(exploration, way, variant)


def _walk_with_lead(
    exploration: Exploration, way: npt.NDArray[np.uint8], variant: Variant
) -> Witness | None:
    """The way where its first operation only brought the finger to its row.

    It may have written a column that shows something else later. Another operation brings the
    finger to the same row and writes a column that the rest of the way never sees.
    """
    reset = np.flatnonzero((way[:-1, DIGIT_INDEX] == 0) & (way[1:, DIGIT_INDEX] == 1))
    if len(reset) == 0:
        return None
    rest = way[reset[0] + 1 :]
    row = int(rest[0, FINGER_ROW])
    operation, digit = (SUBTRACT, 1) if row == 0 else (ADD, row - 1)
    lead = (operation, [0] * (exploration.width + 1) + [1])
    binding = _last_known(rest[:, HEADER : HEADER + exploration.width])
    return _fit(exploration, binding, [lead, *operations_of(rest)], digit, variant)


def _fit(
    exploration: Exploration,
    binding: npt.NDArray[np.uint8],
    operations: list[GivenOperation],
    lead_digit: int | None,
    variant: Variant,
) -> Witness | None:
    """Changes starting digits until the walk shows, step by step, the digits that bind it."""
    base = exploration.base
    width = exploration.width + (1 if lead_digit is None else 4)
    start = np.zeros(width, np.uint8)
    if lead_digit is not None:
        start[len(operations[0][1]) - 1] = lead_digit
    for _ in range(width * base):
        start[-1] = _needs_reserve(start, operations, base)
        batch = _abacus(exploration, start, operations)
        steps = 0 if lead_digit is None else _finish_first_operation(batch, variant)
        mismatch = _first_mismatch(batch, binding, variant)
        if mismatch is None:
            return Witness(
                base,
                width,
                value_of(start, base),
                _expression(operations, base),
                steps + len(binding) - 1,
            )
        column, difference = mismatch
        start[column] = (int(start[column]) + difference) % base
    return None


def operations_of(way: npt.NDArray[np.uint8]) -> list[GivenOperation]:
    """The operations that the symbols on a way spell, the last one completed."""
    operations: list[GivenOperation] = [(int(way[0, OPERATION]), [int(way[0, SYMBOL])])]
    for before, here in pairwise(way):
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


def _finish_first_operation(batch: AbacusBatch, variant: Variant) -> int:
    steps = 0
    while batch.scalars["operations_done"][0] == 0:
        batch.step(expert_actions(batch, variant))
        steps += 1
    return steps


def _first_mismatch(
    batch: AbacusBatch, binding: npt.NDArray[np.uint8], variant: Variant
) -> tuple[int, int] | None:
    """(column, what its starting digit lacks) where the walk first shows something else."""
    for step, digits in enumerate(binding):
        if step > 0:
            batch.step(expert_actions(batch, variant))
        shown = batch.digits[0, : len(digits)]
        wrong = np.flatnonzero((digits != OPEN) & (digits != shown))
        if len(wrong):
            column = int(wrong[0])
            return column, int(digits[column]) - int(shown[column])
    return None


def _last_known(digits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """What columns showed from when they last came into sight; what was forgotten does not bind."""
    binding = np.full_like(digits, OPEN)
    for column, shown in enumerate(digits.T):
        known = np.flatnonzero(shown != OPEN)
        if len(known):
            gaps = np.flatnonzero(shown[: known[-1]] == OPEN)
            first = gaps[-1] + 1 if len(gaps) else 0
            binding[first : known[-1] + 1, column] = shown[first : known[-1] + 1]
    return binding


def _abacus(
    exploration: Exploration, start: npt.NDArray[np.uint8], operations: list[GivenOperation]
) -> AbacusBatch:
    width = len(start)
    config = AbacusConfig(
        columns=width,
        base=exploration.base,
        frames=exploration.frames,
        max_digits=width - 1,
        on_error="continue",
    )
    batch = AbacusBatch(config, 1, autoreset=False)
    digits = np.zeros((len(operations), width - 1), np.uint8)
    for row, (_, operand) in zip(digits, operations, strict=True):
        row[: len(operand)] = operand
    batch.load(
        start[None],
        digits,
        np.array([len(operand) for _, operand in operations], np.int32),
        np.array([operation for operation, _ in operations], np.int32),
        np.array([len(operations)], np.int32),
    )
    batch.reset(0)
    return batch


def _needs_reserve(
    start: npt.NDArray[np.uint8], operations: list[GivenOperation], base: int
) -> int:
    """1 if the value would go below zero without a bead in the last column, which nobody sees."""
    value = value_of(start[:-1], base)
    for operation, operand in operations:
        value += value_of(operand, base) * (1 if operation == ADD else -1)
        if value < 0:
            return 1
    return 0


def _expression(operations: list[GivenOperation], base: int) -> str:
    text = "".join(
        f"{'-' if operation == SUBTRACT else '+'}{value_of(operand, base)}"
        for operation, operand in operations
    )
    return text.removeprefix("+")
