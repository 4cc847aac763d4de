"""Sets of single operations as arrays: random operands of a given length, and adversarial ones.

`drawn_operations` is the test behind every error rate of the project, in training, in the study
and in `pipelines.evaluate`; docs/fidelity.md defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.checks import check_integer
from abacus.rules import ADD, SUBTRACT, AbacusConfig, Operations

if TYPE_CHECKING:
    from abacus.batch import AbacusBatch

Digits = npt.NDArray[np.uint8]
Kinds = npt.NDArray[np.int32]
#: Starting values, operands (both may have leading zeros) and kinds of operations.
OperationArrays = tuple[Digits, Digits, Kinds]

#: The paper's test with longer operands: digits of the longest, and columns.
PAPER_DIGITS, PAPER_COLUMNS = 16, 20
#: Columns beyond those of the operands: one for the carry, and some that must not change.
SPARE_COLUMNS = 4
#: Limits of a chunk: columns of all its abaci, and operations.
CELLS_AT_ONCE = 400_000
MOST_AT_ONCE = 10_000
#: Step limit of an operation, for each column and each row: ten times what the expert needs.
_STEPS_PER_ROW = 16


@dataclass(frozen=True)
class OperationSet:
    """N operations, each on an abacus of its own; digits least significant first."""

    base: int
    starts: Digits  # (N, digits)
    operands: Digits  # (N, digits)
    lengths: npt.NDArray[np.int32]  # (N,): digits of the operand that are read
    kinds: Kinds  # (N,): ADD or SUBTRACT
    #: The symbol that asks for the reset. Policies trained to subtract have never seen a plus.
    reset_symbol: int = ADD

    def __post_init__(self) -> None:
        if self.starts.shape != self.operands.shape:
            raise ValueError(
                f"starts have shape {self.starts.shape}, operands {self.operands.shape}: give "
                "arrays of the same shape"
            )
        if not len(self.starts) == len(self.lengths) == len(self.kinds):
            raise ValueError(
                f"{len(self.starts)} starts, {len(self.lengths)} lengths, {len(self.kinds)} kinds: "
                "give one of each for an operation"
            )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def digits(self) -> int:
        """Width of the arrays of numerals."""
        return int(self.starts.shape[1])

    def subset(self, rows: npt.NDArray[np.integer] | slice) -> OperationSet:
        """Return some of the operations."""
        return replace(
            self,
            starts=self.starts[rows],
            operands=self.operands[rows],
            lengths=self.lengths[rows],
            kinds=self.kinds[rows],
        )

    def results(self, width: int | None = None) -> Digits:
        """Return the true results, (N, width); digits + 1 columns by default."""
        width = self.digits + 1 if width is None else width
        results = np.zeros((len(self), max(width, self.digits + 1)), np.uint8)
        sign = np.where(self.kinds == ADD, 1, -1).astype(np.int16)
        carry = np.zeros(len(self), np.int16)
        for column in range(self.digits):
            total = self.starts[:, column] + sign * self.operands[:, column] + carry
            carry = np.floor_divide(total, self.base)
            results[:, column] = total - self.base * carry
        if (carry < 0).any():
            raise ValueError("an operation goes below zero: swap its operands")
        results[:, self.digits] = carry
        return results[:, :width]

    def batch(self, frames: int, columns: int | None = None) -> AbacusBatch:
        """Return abaci on the first digit of these operations, which mistakes do not end."""
        from abacus.batch import AbacusBatch

        columns = columns_for(self.digits) if columns is None else columns
        config = AbacusConfig(
            columns=columns,
            base=self.base,
            max_digits=min(self.digits, columns - 1),
            frames=frames,
            on_error="continue",
            max_operations=1,
        )
        batch = AbacusBatch(config, len(self), autoreset=False)
        # The symbol of the reset is that of the operation that follows; without one it is a plus.
        each = 1 if self.reset_symbol == ADD else 2
        starts = np.zeros((len(self), columns), np.uint8)
        operands = np.zeros((each * len(self), config.longest_operand), np.uint8)
        for numerals, room in ((self.starts, starts), (self.operands, operands[::each])):
            width = min(self.digits, room.shape[1])
            room[:, :width] = numerals[:, :width]
        lengths = np.ones(each * len(self), np.int32)
        lengths[::each] = self.lengths
        kinds = np.full(each * len(self), self.reset_symbol, np.int32)
        kinds[::each] = self.kinds
        batch.load(starts, operands, lengths, kinds, np.full(len(self), each, np.int32))
        batch.reset(0)
        return batch


def columns_for(digits: int) -> int:
    """Return the columns of a test with operands of `digits` digits: the paper's 20, or more."""
    return max(PAPER_COLUMNS, digits + SPARE_COLUMNS)


def check_fit(digits: int, columns: int | None) -> None:
    """Raise ValueError if the sum of two operands of `digits` digits does not fit."""
    check_integer("digits", digits, 1, AbacusConfig.MAX_COLUMNS - SPARE_COLUMNS)
    if columns is not None and columns < digits + 1:
        raise ValueError(
            f"operands of {digits:,} digits do not fit on {columns:,} columns: give at least "
            f"{digits + 1:,} columns, or fewer digits"
        )


def step_limit(config: AbacusConfig, operations: int = 1) -> int:
    """Return the steps after which operations are aborted: a policy may move in circles forever."""
    return _STEPS_PER_ROW * (config.base + 3) * config.columns * operations


def chunk_sizes(count: int, digits: int) -> Iterator[int]:
    """Split operations into chunks of bounded memory, with as many additions as subtractions."""
    size = max(2, min(MOST_AT_ONCE, CELLS_AT_ONCE // columns_for(digits)))
    size -= size % 2
    for start in range(0, count, size):
        yield min(size, count - start)


def drawn_operations(
    count: int, digits: int, base: int, rng: np.random.Generator, operations: Operations = "both"
) -> OperationSet:
    """Draw operations with both operands uniform in [base^(digits-1), base^digits).

    Every other operation is a subtraction, unless one operation alone is asked for. Where a
    subtraction would go below zero its operands are swapped.
    """
    starts, operands = (drawn_numerals(count, digits, base, rng) for _ in range(2))
    reset_symbol = SUBTRACT if operations == "subtract" else ADD
    both = operations == "both"
    kinds = _alternating_kinds(count) if both else np.full(count, reset_symbol, np.int32)
    lengths = np.full(count, digits, np.int32)
    drawn = OperationSet(base, starts, operands, lengths, kinds, reset_symbol)
    return _without_negative_results(drawn)


def drawn_numerals(count: int, digits: int, base: int, rng: np.random.Generator) -> Digits:
    """Draw uniform values of exactly `digits` digits."""
    numerals = rng.integers(0, base, (count, digits), dtype=np.uint8)
    numerals[:, -1] = rng.integers(1, base, count, dtype=np.uint8)
    return numerals


def numeral_lengths(numerals: Digits) -> npt.NDArray[np.int32]:
    """Count digits without leading zeros; 0 has one."""
    nonzero = numerals != 0
    highest = numerals.shape[1] - np.argmax(nonzero[:, ::-1], axis=1)
    return np.where(nonzero.any(axis=1), highest, 1).astype(np.int32)


def _without_negative_results(operations: OperationSet) -> OperationSet:
    """Swap the operands of subtractions that would go below zero."""
    swap = (operations.kinds == SUBTRACT) & _less(operations.starts, operations.operands)
    starts, operands = operations.starts.copy(), operations.operands.copy()
    starts[swap], operands[swap] = operations.operands[swap], operations.starts[swap]
    lengths = np.where(swap, numeral_lengths(operands), operations.lengths).astype(np.int32)
    return replace(operations, starts=starts, operands=operands, lengths=lengths)


def _less(a: Digits, b: Digits) -> npt.NDArray[np.bool_]:
    differs = a != b
    highest = a.shape[1] - 1 - np.argmax(differs[:, ::-1], axis=1)
    rows = np.arange(len(a))
    smaller: npt.NDArray[np.bool_] = a[rows, highest] < b[rows, highest]
    smaller &= differs.any(axis=1)
    return smaller


def _alternating_kinds(count: int) -> Kinds:
    return (np.arange(count) % 2).astype(np.int32)


def _full_chains(
    kind: int, count: int, length: int, base: int, rng: np.random.Generator
) -> OperationArrays:
    """Make 4…4xx + 1xx or 10…0xx - 1xx: the operand ends in the column where the chain starts."""
    starts, operands = (rng.integers(0, base, (count, length), dtype=np.uint8) for _ in range(2))
    first = rng.integers(0, length, count)
    columns = np.arange(length)
    starts[columns >= first[:, None]] = base - 1 if kind == ADD else 0
    operands[columns > first[:, None]] = 0
    operands[np.arange(count), first] = rng.integers(1, base, count)
    if kind == SUBTRACT:
        room = ((0, 0), (0, 1))
        starts, operands = np.pad(starts, room, constant_values=1), np.pad(operands, room)
    return starts, operands, np.full(count, kind, np.int32)


def _zeros(count: int, length: int, base: int, rng: np.random.Generator) -> OperationArrays:
    """Set nine digits of ten to 0, in either number or in both; include 0 + 0 and x - 0."""
    numerals = [rng.integers(0, base, (count, length), dtype=np.uint8) for _ in range(2)]
    for numeral in numerals:
        sparse = rng.random(count) < 0.75
        numeral[sparse[:, None] & (rng.random((count, length)) < 0.9)] = 0
    numerals[1][rng.random(count) < 0.1] = 0
    return numerals[0], numerals[1], _alternating_kinds(count)


def _repeated(count: int, length: int, base: int, rng: np.random.Generator) -> OperationArrays:
    a, b = (
        np.repeat(rng.integers(1, base, (count, 1), dtype=np.uint8), length, axis=1)
        for _ in range(2)
    )
    return a, b, _alternating_kinds(count)


def _equal(count: int, length: int, base: int, rng: np.random.Generator) -> OperationArrays:
    numerals = drawn_numerals(count, length, base, rng)
    return numerals, numerals.copy(), _alternating_kinds(count)


def _alternating(count: int, length: int, base: int, rng: np.random.Generator) -> OperationArrays:
    """Carry, or borrow, out of every other column and out of no other."""
    kinds = _alternating_kinds(count)
    subtract = kinds[:, None] == SUBTRACT
    phase = rng.integers(0, 2, (count, 1))
    # The last column has nothing to borrow from.
    phase = np.where(subtract, length % 2, phase)
    carrying = (np.arange(length) + phase) % 2 == 0
    operands = rng.integers(1, base, (count, length), dtype=np.int64)
    operands = np.where(carrying, operands, np.minimum(operands, base - 2))
    # Sums of base and more carry; sums of base - 2 and less do not, even with a carry from below.
    # A borrow mirrors this: the operand is subtracted from the digit of the sum.
    chance = rng.random((count, length))
    room = np.where(carrying, operands, base - 1 - operands)
    starts = np.where(carrying, base - operands, subtract) + (chance * room).astype(np.int64)
    starts = np.where(subtract, (starts + operands) % base, starts)
    return starts.astype(np.uint8), operands.astype(np.uint8), kinds


def _leading_zeros(count: int, length: int, base: int, rng: np.random.Generator) -> OperationArrays:
    """Subtract numbers with the same leading digits: the result is much shorter."""
    starts = drawn_numerals(count, length, base, rng)
    operands = rng.integers(0, base, (count, length), dtype=np.uint8)
    same = np.arange(length) >= rng.integers(0, length, count)[:, None]
    operands[same] = starts[same]
    return starts, operands, np.full(count, SUBTRACT, np.int32)


class AdversarialSet(NamedTuple):
    """A kind of operations that are hard, and its description for readers."""

    #: From count, length of the operands, base and generator.
    make: Callable[[int, int, int, np.random.Generator], OperationArrays]
    description: str


SETS = {
    "full-carries": AdversarialSet(
        partial(_full_chains, ADD), "a carry from a random column to the end: 4…4xx + 1xx"
    ),
    "full-borrows": AdversarialSet(
        partial(_full_chains, SUBTRACT), "a borrow from a random column to the end: 10…0xx - 1xx"
    ),
    "zeros": AdversarialSet(_zeros, "nearly all digits 0, the operand 0 among them"),
    "repeated-digits": AdversarialSet(_repeated, "aaaa + bbbb, aaaa - bbbb"),
    "equal-operands": AdversarialSet(_equal, "x + x, x - x"),
    "alternating-carries": AdversarialSet(
        _alternating, "a carry or borrow out of every other column"
    ),
    "leading-zeros": AdversarialSet(
        _leading_zeros, "subtractions of numbers with the same leading digits"
    ),
}


def check_sets(names: tuple[str, ...]) -> None:
    """Raise ValueError for an unknown name."""
    for name in names:
        if name not in SETS:
            raise ValueError(f"set {name!r} is not known: give some of {', '.join(SETS)}")


def adversarial_operations(
    name: str, count: int, digits: int, base: int, rng: np.random.Generator
) -> OperationSet:
    """Draw operations of an adversarial set, with operands of 1 to `digits` digits."""
    check_sets((name,))
    counts = np.bincount(rng.integers(0, digits, count), minlength=digits)
    parts = []
    for length, part in enumerate(counts, start=1):
        if part:
            starts, operands, kinds = SETS[name].make(int(part), length, base, rng)
            room = ((0, 0), (0, digits + 1 - starts.shape[1]))
            parts.append((np.pad(starts, room), np.pad(operands, room), kinds))
    starts, operands, kinds = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    made = OperationSet(base, starts, operands, numeral_lengths(operands), kinds)
    return _without_negative_results(made)
