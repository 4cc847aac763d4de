"""Sets of operations: their operands, their results, and the abaci that they fit on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from abacus.kernel import ADD, SUBTRACT
from abacus.rules import Operations
from abacus.tasks import value_of
from pipelines.scoring.operations import (
    CELLS_AT_ONCE,
    SETS,
    OperationSet,
    adversarial_operations,
    check_fit,
    chunk_sizes,
    columns_for,
    drawn_operations,
    step_limit,
)
from pipelines.scoring.players import expert_player


def values(operations: OperationSet) -> list[tuple[int, int, int]]:
    """Return (start, signed operand, result) of each operation in Python's integers."""
    results = operations.results()
    return [
        (
            value_of(operations.starts[row], operations.base),
            value_of(operations.operands[row, : operations.lengths[row]], operations.base)
            * (-1 if operations.kinds[row] == SUBTRACT else 1),
            value_of(results[row], operations.base),
        )
        for row in range(len(operations))
    ]


@pytest.mark.parametrize("digits", [1, 2, 16, 64])
def test_operands_lie_in_their_interval_and_results_are_right(digits: int) -> None:
    operations = drawn_operations(200, digits, 5, np.random.default_rng(1))
    for start, operand, result in values(operations):
        assert 5 ** (digits - 1) <= start < 5**digits
        assert 5 ** (digits - 1) <= abs(operand) < 5**digits
        assert result == start + operand >= 0


def test_half_of_the_operations_are_subtractions() -> None:
    operations = drawn_operations(100, 3, 5, np.random.default_rng(0))
    assert (operations.kinds == SUBTRACT).sum() == 50


@pytest.mark.parametrize(("only", "kind"), [("add", ADD), ("subtract", SUBTRACT)])
def test_one_operation_alone_is_drawn_with_its_own_symbol_at_the_reset(
    only: Operations, kind: int
) -> None:
    operations = drawn_operations(100, 3, 5, np.random.default_rng(0), only)
    assert (operations.kinds == kind).all()
    assert all(start + operand == result >= 0 for start, operand, result in values(operations))
    batch, symbols = operations.batch(frames=2), set()
    while not batch.ends.any():
        resetting = batch.scalars["digit_index"] < 0
        symbols |= set(batch.scalars["symbol"][resetting].tolist())
        batch.step(expert_player().actions(batch))
    assert symbols == {5 + kind}
    outcome = expert_player().run(operations.batch(frames=2), 10_000)
    assert (outcome.solved == 1).all()
    assert (outcome.scalars["operations_done"] == 1).all()
    assert (outcome.digits == operations.results(outcome.digits.shape[1])).all()


def test_a_narrow_abacus_takes_short_operations_of_a_wide_set() -> None:
    operations = adversarial_operations("equal-operands", 30, 16, 5, np.random.default_rng(0))
    short = operations.subset(np.flatnonzero(operations.lengths <= 4))
    outcome = expert_player().run(short.batch(2, columns=6), 10_000)
    assert (outcome.solved == 1).all()
    assert (outcome.digits == short.results(6)).all()


def test_the_interval_is_drawn_evenly() -> None:
    operations = drawn_operations(8_000, 1, 5, np.random.default_rng(0))
    additions = operations.starts[operations.kinds == ADD, 0]
    assert np.bincount(additions, minlength=5)[1:].min() > 800


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("base", [2, 5, 10])
def test_adversarial_operations_can_be_solved(name: str, base: int) -> None:
    operations = adversarial_operations(name, 120, 6, base, np.random.default_rng(2))
    for start, operand, result in values(operations):
        assert result == start + operand >= 0
    batch = operations.batch(frames=2)
    outcome = expert_player().run(batch, step_limit(batch.config))
    assert (outcome.solved == 1).all()
    # The limit must not decide: the expert needs a tenth of it.
    assert outcome.scalars["steps"].max() * 10 < step_limit(batch.config)


def carries(operations: OperationSet) -> np.ndarray:
    """Return whether a carry or a borrow leaves each column, (N, digits)."""
    carry = np.zeros(len(operations), np.int64)
    leaving = np.zeros(operations.starts.shape, np.bool_)
    sign = np.where(operations.kinds == ADD, 1, -1)
    for column in range(operations.digits):
        total = operations.starts[:, column] + sign * operations.operands[:, column] + carry
        carry = np.floor_divide(total, operations.base)
        leaving[:, column] = carry != 0
    return leaving


@pytest.mark.parametrize("name", ["full-carries", "full-borrows"])
def test_full_chains_run_from_the_end_of_the_operand_to_the_top(name: str) -> None:
    operations = adversarial_operations(name, 300, 8, 5, np.random.default_rng(0))
    leaving, starts = carries(operations), operations.starts
    top = starts.shape[1] - 1 - np.argmax(starts[:, ::-1] != 0, axis=1)
    last = top + (name == "full-carries")
    for row, length in enumerate(operations.lengths):
        assert leaving[row, length - 1 : last[row]].all()


def test_alternating_carries_alternate() -> None:
    operations = adversarial_operations("alternating-carries", 300, 8, 5, np.random.default_rng(0))
    leaving = carries(operations)
    for row, length in enumerate(operations.lengths):
        assert (leaving[row, 1:length] != leaving[row, : length - 1]).all()


def test_other_sets_match_their_descriptions() -> None:
    rng = np.random.default_rng(0)
    equal = adversarial_operations("equal-operands", 50, 8, 5, rng)
    assert (equal.starts == equal.operands).all()
    repeated = adversarial_operations("repeated-digits", 50, 8, 5, rng)
    rows = zip(repeated.operands, repeated.lengths, strict=True)
    assert all(len({*row[:length]}) == 1 for row, length in rows)
    zeros = adversarial_operations("zeros", 400, 8, 5, rng)
    assert ((zeros.operands == 0).all(axis=1) & (zeros.lengths == 1)).any()
    short = adversarial_operations("leading-zeros", 200, 8, 5, rng)
    assert (short.kinds == SUBTRACT).all()
    assert np.mean([result * 5 <= start for start, _, result in values(short)]) > 0.5


def test_an_unknown_set_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"set 'ones' is not known: give some of full-carries"):
        adversarial_operations("ones", 1, 4, 5, np.random.default_rng(0))


def test_operands_that_do_not_fit_are_refused() -> None:
    check_fit(9, 10)
    with pytest.raises(ValueError, match="16 digits do not fit on 16 columns"):
        check_fit(16, 16)
    with pytest.raises(ValueError, match="digits=0 is not allowed"):
        check_fit(0, None)
    with pytest.raises(ValueError, match="give an integer from 1 to 999996"):
        check_fit(10**6, None)


def test_operations_below_zero_are_refused(
    given_operation: Callable[[int, int], OperationSet],
) -> None:
    with pytest.raises(ValueError, match="below zero"):
        given_operation(3, -4).results()


def test_a_batch_starts_from_the_given_numbers(
    given_operation: Callable[[int, int], OperationSet],
) -> None:
    operations = given_operation(1234, -567)
    assert value_of(operations.batch(3).digits[0], 5) == 1234
    assert value_of(operations.results()[0], 5) == 1234 - 567


@pytest.mark.parametrize(("count", "digits"), [(100_000, 16), (7, 3), (100, 10_000), (1, 999_000)])
def test_chunks_hold_all_operations_within_their_limit(count: int, digits: int) -> None:
    sizes = list(chunk_sizes(count, digits))
    assert sum(sizes) == count
    assert max(sizes) * columns_for(digits) <= max(CELLS_AT_ONCE, 2 * columns_for(digits))
    assert all(size % 2 == 0 for size in sizes[:-1])
