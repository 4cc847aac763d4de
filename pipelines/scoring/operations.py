"""Many single operations as arrays: what the abacus shows, the operand, and the true result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SUBTRACT
from abacus.rules import AbacusConfig
from abacus.tasks import Operation, digits_of

Digits = npt.NDArray[np.uint8]

#: Columns that the paper gives to longer operands.
PAPER_LONG_COLUMNS = 20
#: Columns beyond the operands': one for the result's carry, and some that must stay as they are.
SPARE_COLUMNS = 4
#: Columns of all abaci that run at once: memory stays the same whatever the number of operations.
CELLS_AT_ONCE = 400_000
MOST_AT_ONCE = 10_000
#: Steps for each column after which an operation is given up, for each row of a column: the
#: reference algorithm needs a tenth of them.
_STEPS_PER_ROW = 16


@dataclass(frozen=True)
class OperationSet:
    """N operations, each on an abacus of its own; digits least significant first."""

    base: int
    starts: Digits  # (N, digits)
    operands: Digits  # (N, digits)
    lengths: npt.NDArray[np.int32]  # (N,): digits of the operand that are read
    kinds: npt.NDArray[np.int32]  # (N,): ADD or SUBTRACT

    def __post_init__(self) -> None:
        if self.starts.shape != self.operands.shape:
            raise ValueError(
                f"starts have shape {self.starts.shape}, operands {self.operands.shape}: give one"
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
        """Room for digits in each number."""
        return int(self.starts.shape[1])

    def chosen(self, rows: npt.NDArray[np.integer] | slice) -> OperationSet:
        """Some of the operations."""
        return OperationSet(
            self.base, self.starts[rows], self.operands[rows], self.lengths[rows], self.kinds[rows]
        )

    def results(self) -> Digits:
        """(N, digits + 1): what the abaci have to show at the end."""
        base = self.base
        results = np.zeros((len(self), self.digits + 1), np.uint8)
        sign = np.where(self.kinds == ADD, 1, -1).astype(np.int16)
        carry = np.zeros(len(self), np.int16)
        for column in range(self.digits):
            total = self.starts[:, column] + sign * self.operands[:, column] + carry
            carry = np.floor_divide(total, base)
            results[:, column] = total - base * carry
        if (carry < 0).any():
            raise ValueError("an operation goes below zero: swap its operands")
        results[:, -1] = carry
        return results

    def config(self, frames: int, columns: int | None = None) -> AbacusConfig:
        """The world for these operations: wide enough, and mistakes do not end them."""
        columns = columns or columns_for(self.digits)
        return AbacusConfig(
            columns=columns,
            base=self.base,
            max_digits=min(self.digits, columns - 1),
            frames=frames,
            on_error="continue",
        )

    def batch(self, frames: int, columns: int | None = None) -> AbacusBatch:
        """Abaci that have just read their first digit."""
        config = self.config(frames, columns)
        batch = AbacusBatch(config, len(self), autoreset=False)
        starts = np.zeros((len(self), config.columns), np.uint8)
        starts[:, : self.digits] = self.starts
        operands = np.zeros((len(self), config.longest_operand), np.uint8)
        width = min(self.digits, config.longest_operand)
        operands[:, :width] = self.operands[:, :width]
        batch.load(starts, operands, self.lengths, self.kinds)
        batch.reset(0)
        return batch


def columns_for(digits: int) -> int:
    """Columns wide enough for operands of so many digits; the paper's 20 where they are."""
    return max(PAPER_LONG_COLUMNS, digits + SPARE_COLUMNS)


def check_fit(digits: int, columns: int | None) -> None:
    """Raises ValueError if the sum of two operands of so many digits is too wide."""
    if digits < 1:
        raise ValueError(f"digits={digits} is not allowed: give 1 or more")
    if columns is not None and columns < digits + 1:
        raise ValueError(
            f"operands of {digits:,} digits do not fit on {columns:,} columns: give at least "
            f"{digits + 1:,} columns, or fewer digits"
        )
    if columns_for(digits) > AbacusConfig.MAX_COLUMNS:
        most = AbacusConfig.MAX_COLUMNS - SPARE_COLUMNS
        raise ValueError(f"digits={digits:,} is not allowed: give at most {most:,}")


def step_limit(config: AbacusConfig) -> int:
    """Steps after which an operation is given up: a policy that goes in circles never ends."""
    return _STEPS_PER_ROW * (config.base + 3) * config.columns


def portions(count: int, digits: int) -> Iterator[int]:
    """Sizes of portions that are worked on at once."""
    size = max(2, min(MOST_AT_ONCE, CELLS_AT_ONCE // columns_for(digits)))
    size -= size % 2  # as many additions as subtractions
    for start in range(0, count, size):
        yield min(size, count - start)


def drawn_operations(count: int, digits: int, base: int, rng: np.random.Generator) -> OperationSet:
    """Operands uniform in [base^(digits-1), base^digits), as the paper's test has them.

    Every other operation is a subtraction. Where its operand is the greater one the two are
    swapped, so that half of the operations stay subtractions.
    """
    starts, operands = (drawn_numerals(count, digits, base, rng) for _ in range(2))
    kinds = (np.arange(count) % 2).astype(np.int32)
    return ordered(OperationSet(base, starts, operands, np.full(count, digits, np.int32), kinds))


def drawn_numerals(count: int, digits: int, base: int, rng: np.random.Generator) -> Digits:
    """Values of exactly so many digits, uniform."""
    numerals = rng.integers(0, base, (count, digits), dtype=np.uint8)
    numerals[:, -1] = rng.integers(1, base, count, dtype=np.uint8)
    return numerals


def ordered(operations: OperationSet) -> OperationSet:
    """Swaps the operands of subtractions that would go below zero."""
    swap = (operations.kinds == SUBTRACT) & less(operations.starts, operations.operands)
    starts, operands = operations.starts.copy(), operations.operands.copy()
    starts[swap], operands[swap] = operations.operands[swap], operations.starts[swap]
    lengths = np.where(swap, numeral_lengths(operands), operations.lengths).astype(np.int32)
    return OperationSet(operations.base, starts, operands, lengths, operations.kinds)


def less(a: Digits, b: Digits) -> npt.NDArray[np.bool_]:
    """Whether numerals a are smaller than b."""
    differs = a != b
    highest = a.shape[1] - 1 - np.argmax(differs[:, ::-1], axis=1)
    rows = np.arange(len(a))
    smaller: npt.NDArray[np.bool_] = a[rows, highest] < b[rows, highest]
    smaller &= differs.any(axis=1)
    return smaller


def numeral_lengths(numerals: Digits) -> npt.NDArray[np.int32]:
    """Digits without leading zeros; 0 has one."""
    nonzero = numerals != 0
    highest = numerals.shape[1] - np.argmax(nonzero[:, ::-1], axis=1)
    return np.where(nonzero.any(axis=1), highest, 1).astype(np.int32)


def given_operation(start: int, operation: Operation, base: int) -> OperationSet:
    """One operation in numbers."""
    first, second = digits_of(start, base), digits_of(operation.operand, base)
    digits = max(len(first), len(second))
    numerals = np.zeros((2, 1, digits), np.uint8)
    numerals[0, 0, : len(first)] = first
    numerals[1, 0, : len(second)] = second
    kind = ADD if operation.sign > 0 else SUBTRACT
    return OperationSet(
        base,
        numerals[0],
        numerals[1],
        np.array([len(second)], np.int32),
        np.array([kind], np.int32),
    )


Kinds = npt.NDArray[np.int32]
#: From count, length, base and a generator to starting values and operands of that length (the
#: arrays may be longer), and the operations.
Maker = Callable[[int, int, int, np.random.Generator], tuple[Digits, Digits, Kinds]]


def _half_each(count: int) -> Kinds:
    return (np.arange(count) % 2).astype(np.int32)


def _all(kind: int, count: int) -> Kinds:
    return np.full(count, kind, np.int32)


def _full_carries(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits, Kinds]:
    """4…4xx + 1xx: from a random column on, a carry runs to the end."""
    starts, operands = _chain_below(count, length, base, rng)
    first = rng.integers(0, length, count)
    above = np.arange(length) >= first[:, None]
    starts[above] = base - 1
    return starts, _operand_from(operands, first, base, rng), _all(ADD, count)


def _full_borrows(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits, Kinds]:
    """10…0xx - 1xx: from a random column on, a borrow runs to the leading 1."""
    starts, operands = _chain_below(count, length, base, rng)
    first = rng.integers(0, length, count)
    above = np.arange(length) >= first[:, None]
    starts[above] = 0
    starts = np.hstack([starts, np.ones((count, 1), np.uint8)])
    operands = _operand_from(operands, first, base, rng)
    return starts, np.hstack([operands, np.zeros((count, 1), np.uint8)]), _all(SUBTRACT, count)


def _chain_below(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits]:
    """Digits of which those below the chain stay."""
    shape = (count, length)
    return rng.integers(0, base, shape, dtype=np.uint8), rng.integers(
        0, base, shape, dtype=np.uint8
    )


def _operand_from(
    operands: Digits, first: npt.NDArray[np.int64], base: int, rng: np.random.Generator
) -> Digits:
    """The operand's leading digit, not 0, stands where the chain begins."""
    operands[np.arange(operands.shape[1]) > first[:, None]] = 0
    operands[np.arange(len(operands)), first] = rng.integers(1, base, len(operands))
    return operands


def _zeros(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits, Kinds]:
    """Nine digits of ten are 0, in either number or in both; 0 + 0 and x - 0 among them."""
    numerals = [rng.integers(0, base, (count, length), dtype=np.uint8) for _ in range(2)]
    for numeral in numerals:
        sparse = rng.random(count) < 0.75
        numeral[sparse[:, None] & (rng.random((count, length)) < 0.9)] = 0
    numerals[1][rng.random(count) < 0.1] = 0
    return numerals[0], numerals[1], _half_each(count)


def _repeated(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits, Kinds]:
    """aaaa + bbbb."""
    a, b = (
        np.repeat(rng.integers(1, base, (count, 1), dtype=np.uint8), length, axis=1)
        for _ in range(2)
    )
    return a, b, _half_each(count)


def _equal(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits, Kinds]:
    """x + x and x - x."""
    numerals = drawn_numerals(count, length, base, rng)
    return numerals, numerals.copy(), _half_each(count)


def _alternating(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits, Kinds]:
    """A carry, or a borrow, out of every other column and out of no other."""
    kinds = _half_each(count)
    subtract = kinds[:, None] == SUBTRACT
    phase = rng.integers(0, 2, (count, 1))
    # The last column has nothing to borrow from.
    phase = np.where(subtract, length % 2, phase)
    carrying = (np.arange(length) + phase) % 2 == 0
    operands = rng.integers(1, base, (count, length), dtype=np.int64)
    operands = np.where(carrying, operands, np.minimum(operands, base - 2))
    # Sums of base and more carry; sums of base - 2 and less do not, even with a carry from below.
    # A borrow mirrors this: from the sum's digit the operand is taken away again.
    chance = rng.random((count, length))
    room = np.where(carrying, operands, base - 1 - operands)
    starts = np.where(carrying, base - operands, subtract) + (chance * room).astype(np.int64)
    starts = np.where(subtract, (starts + operands) % base, starts)
    return starts.astype(np.uint8), operands.astype(np.uint8), kinds


def _leading_zeros(
    count: int, length: int, base: int, rng: np.random.Generator
) -> tuple[Digits, Digits, Kinds]:
    """Subtractions of numbers that begin alike: the result is much shorter."""
    starts = drawn_numerals(count, length, base, rng)
    operands = rng.integers(0, base, (count, length), dtype=np.uint8)
    alike = np.arange(length) >= rng.integers(0, length, count)[:, None]
    operands[alike] = starts[alike]
    return starts, operands, _all(SUBTRACT, count)


SETS: dict[str, Maker] = {
    "full-carries": _full_carries,
    "full-borrows": _full_borrows,
    "zeros": _zeros,
    "repeated-digits": _repeated,
    "equal-operands": _equal,
    "alternating-carries": _alternating,
    "leading-zeros": _leading_zeros,
}
MEANINGS = {
    "full-carries": "a carry from a random column to the end: 4…4xx + 1xx",
    "full-borrows": "a borrow from a random column to the end: 10…0xx - 1xx",
    "zeros": "nearly all digits 0, the operand 0 among them",
    "repeated-digits": "aaaa + bbbb, aaaa - bbbb",
    "equal-operands": "x + x, x - x",
    "alternating-carries": "a carry or borrow out of every other column",
    "leading-zeros": "subtractions of numbers that begin alike",
}


def check_sets(names: tuple[str, ...]) -> None:
    """Raises ValueError for a name that no set has."""
    for name in names:
        if name not in SETS:
            raise ValueError(f"set {name!r} is not known: give some of {', '.join(SETS)}")


def adversarial_operations(
    name: str, count: int, digits: int, base: int, rng: np.random.Generator
) -> OperationSet:
    """Operations of a set, with operands of 1 to `digits` digits."""
    check_sets((name,))
    lengths = np.bincount(rng.integers(0, digits, count), minlength=digits)
    parts = [
        _padded(SETS[name](int(n), length, base, rng), digits + 1)
        for length, n in enumerate(lengths, start=1)
        if n
    ]
    starts, operands, kinds = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return ordered(OperationSet(base, starts, operands, numeral_lengths(operands), kinds))


def _padded(made: tuple[Digits, Digits, Kinds], width: int) -> tuple[Digits, Digits, Kinds]:
    starts, operands, kinds = made
    room = ((0, 0), (0, width - starts.shape[1]))
    return np.pad(starts, room), np.pad(operands, room), kinds
