"""Operations that are hard for a reason, which chance would hardly ever draw.

Each set makes operations of all lengths up to `digits`, the lengths with the same chance. Starting
values and operands are numerals, least significant digit first, padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from abacus.kernel import ADD, SUBTRACT
from pipelines.evaluation.operations import (
    Digits,
    OperationSet,
    drawn_numerals,
    numeral_lengths,
    ordered,
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
