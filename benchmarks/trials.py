"""Run an expert on random and adversarial operations, and compare it with Python's integers.

Random operations rarely have long carries or reach the edges of the abacus; the adversarial ones
all do. A trial is one abacus with a starting value and two operations: the drawn one, then its
inverse, which leads back to the starting value over a reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.batch import AbacusBatch
from abacus.compiling import compiled
from abacus.kernel import ADD, ON_OPERATION_SYMBOL, SUBTRACT
from abacus.reward import FINGER_REWARD, RIGHT_REWARD, STEP_PENALTY, TERMS
from abacus.rules import AbacusConfig, Action, End
from oracle.algorithm import Variant, check_variant
from oracle.expert import answer_all, check_states

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

Digits = npt.NDArray[np.uint8]
Expert = Callable[[AbacusBatch], npt.NDArray[np.int64]]

#: Operations of a trial: the drawn one and its inverse.
OPERATIONS_PER_TRIAL = 2


@dataclass(frozen=True)
class Trials:
    """N starting values and operands, digits least significant first; 0 adds, 1 subtracts."""

    base: int
    starts: Digits  # (N, columns)
    operands: Digits  # (N, columns - 1), zeros beyond the length
    operations: npt.NDArray[np.int32]  # (N,)

    def __post_init__(self) -> None:
        n, columns = self.starts.shape
        if self.operands.shape != (n, columns - 1) or self.operations.shape != (n,):
            raise ValueError(
                f"{n} starts on {columns} columns with operands {self.operands.shape} and "
                f"operations {self.operations.shape}: give ({n}, {columns - 1}) and ({n},)"
            )

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def columns(self) -> int:
        return int(self.starts.shape[1])

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """(N,): numbers of digits of the operands; 1 for zero."""
        leading = (self.operands[:, ::-1] != 0).argmax(axis=1)
        lengths = np.where(self.operands.any(axis=1), self.columns - 1 - leading, 1)
        return lengths.astype(np.int32)

    def __getitem__(self, rows: slice | npt.NDArray[np.integer]) -> Trials:
        return Trials(self.base, self.starts[rows], self.operands[rows], self.operations[rows])

    def __add__(self, other: Trials) -> Trials:
        if (self.base, self.columns) != (other.base, other.columns):
            raise ValueError(
                f"trials in base {self.base} on {self.columns} columns and in base {other.base} on "
                f"{other.columns}: give trials of one size"
            )
        return Trials(
            self.base,
            np.concatenate([self.starts, other.starts]),
            np.concatenate([self.operands, other.operands]),
            np.concatenate([self.operations, other.operations]),
        )

    @property
    def config(self) -> AbacusConfig:
        """Configuration of the trials, in which the first mistake ends an episode."""
        return AbacusConfig(base=self.base, columns=self.columns, max_digits=self.columns - 1)

    def batch(self, config: AbacusConfig | None = None) -> AbacusBatch:
        """Return the abaci after a reset, with another configuration of the same size if given."""
        config = config or self.config
        batch = AbacusBatch(config, len(self), autoreset=False)
        batch.load(
            self.starts,
            np.repeat(self.operands, OPERATIONS_PER_TRIAL, axis=0),
            np.repeat(self.lengths, OPERATIONS_PER_TRIAL),
            np.stack([self.operations, 1 - self.operations], axis=1).ravel(),
            np.full(len(self), OPERATIONS_PER_TRIAL, np.int32),
        )
        batch.reset(0)
        return batch


@dataclass(frozen=True)
class Tally:
    """Counts of a run of trials; all but the first two are errors."""

    operations: int = 0
    steps: int = 0
    wrong_results: int = 0
    wrong_actions: int = 0
    wrong_terms: int = 0
    wrong_ends: int = 0

    @property
    def errors(self) -> int:
        return self.wrong_results + self.wrong_actions + self.wrong_terms + self.wrong_ends

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def value(digits: Digits, base: int) -> int:
    """Return the value of digits, parsed by Python."""
    return int((digits[::-1] + ord("0")).tobytes(), base)


def random_trials(rng: np.random.Generator, base: int, columns: int, count: int) -> Trials:
    """Draw starting values and operands of any length, and operations."""
    starts = _random_numerals(rng, base, columns, count, columns)
    operands = _random_numerals(rng, base, columns, count, columns - 1)
    return _with_room(base, starts, operands, rng.integers(0, 2, count, dtype=np.int32))


def _random_numerals(
    rng: np.random.Generator, base: int, columns: int, count: int, longest: int
) -> Digits:
    numerals = rng.integers(0, base, (count, columns), dtype=np.uint8)
    lengths = rng.integers(1, longest + 1, count)
    numerals[np.arange(columns) >= lengths[:, None]] = 0
    numerals[np.arange(count), lengths - 1] = rng.integers(1, base, count)
    return numerals


def adversarial_trials(rng: np.random.Generator, base: int, columns: int) -> Trials:
    """Return pairs of numerals with long carries, borrows or at the edges, in both operations."""
    numerals = np.unique(np.array(list(_hard_numerals(rng, base, columns))), axis=0)
    short = numerals[numerals[:, -1] == 0]
    pairs = [np.repeat(numerals, len(short), axis=0), np.tile(short, (len(numerals), 1))]
    both = [np.tile(numerals_of_pairs, (2, 1)) for numerals_of_pairs in pairs]
    operations = np.repeat(np.array([ADD, SUBTRACT], np.int32), len(pairs[0]))
    return _with_room(base, both[0], both[1], operations)


def _hard_numerals(rng: np.random.Generator, base: int, columns: int) -> Iterator[Digits]:
    """Yield 0, one digit, 44444, 10000, 40004, 10101, and 44444 with one other digit.

    They have the greatest length, one less, and a few smaller ones. Their pairs include carries and
    borrows over all columns, equal operands, and zeros inside.
    """
    lengths = {1, 2, int(rng.integers(1, columns + 1)), columns - 1, columns}
    for length in sorted(length for length in lengths if 1 <= length <= columns):
        last = length - 1
        inside = int(rng.integers(0, length))
        for low, middle, high in (
            (0, 0, 0),
            (1, 0, 0),
            (base - 1, 0, 0),
            (0, 0, 1),
            (1, 0, 1),
            (base - 1, 0, base - 1),
            (base - 1, base - 1, base - 1),
        ):
            numeral = np.zeros(columns, np.uint8)
            numeral[:length] = middle
            numeral[last] = high
            numeral[0] = max(low, high) if length == 1 else low
            yield numeral
        alternating = np.zeros(columns, np.uint8)
        alternating[last::-2] = 1
        yield alternating
        interrupted = np.zeros(columns, np.uint8)
        interrupted[:length] = base - 1
        interrupted[inside] = rng.integers(0, base)
        yield interrupted


def _with_room(
    base: int, starts: Digits, operands: Digits, operations: npt.NDArray[np.int32]
) -> Trials:
    """Replace an addition that is too large, or a subtraction below zero, by its inverse.

    One of the two always fits, because an operand has one digit less than the abacus.
    """
    columns = starts.shape[1]
    capacity = base**columns
    chosen = operations.copy()
    for row, (start, operand) in enumerate(zip(starts, operands, strict=True)):
        result = value(start, base) + (1 - 2 * int(operations[row])) * value(operand, base)
        if not 0 <= result < capacity:
            chosen[row] = 1 - operations[row]
    return Trials(base, starts, np.ascontiguousarray(operands[:, : columns - 1]), chosen)


def run_trials(trials: Trials, expert: Expert) -> Tally:
    """Run the expert until every trial has ended, and count its errors."""
    batch = trials.batch()
    expected_terms = _terms_of_right_actions()
    running = np.ones(len(trials), np.bool_)
    counts = np.zeros((len(trials), len(Action)), np.int64)
    tally = Tally()
    while running.any():
        on_operation_symbol = batch.scalars["digit_index"] == ON_OPERATION_SYMBOL
        actions = expert(batch)
        batch.step(actions)
        counts[running, actions[running]] += 1
        wrong = batch.illegal | (batch.outcomes < 0).any(axis=1)
        terms = (batch.terms != expected_terms[actions]).any(axis=1)
        closed = running & on_operation_symbol & (actions == Action.SUBMIT)
        ended = running & (batch.ends != End.NONE)
        tally += Tally(
            operations=int(closed.sum()),
            steps=int(running.sum()),
            wrong_results=_wrong_results(trials, batch, np.flatnonzero(closed)),
            wrong_actions=int((wrong & running).sum()),
            wrong_terms=int((terms & running).sum()),
            wrong_ends=int((batch.ends[ended] != End.EXPRESSION).sum()),
        )
        running &= ~ended
    return tally + Tally(wrong_actions=_wrong_counts(trials, counts))


def _terms_of_right_actions() -> npt.NDArray[np.float32]:
    """Return the reward terms of each action if it is right, (actions, terms).

    Every finger move brings the finger closer to its goal.
    """
    paid = {
        "finger": (FINGER_REWARD, (Action.LEFT, Action.RIGHT, Action.UP, Action.DOWN)),
        "signpost": (RIGHT_REWARD, (Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT)),
        "slide": (RIGHT_REWARD, (Action.SLIDE,)),
        "submit": (RIGHT_REWARD, (Action.SUBMIT,)),
    }
    terms = np.zeros((len(Action), len(TERMS)), np.float32)
    terms[:, TERMS.index("step")] = STEP_PENALTY
    for term, (reward, actions) in paid.items():
        terms[list(actions), TERMS.index(term)] = reward
    return terms


def _wrong_results(trials: Trials, batch: AbacusBatch, closed: npt.NDArray[np.intp]) -> int:
    """Count the operations just finished whose result differs from Python's."""
    wrong = 0
    for row in closed.tolist():
        expected = value(trials.starts[row], trials.base)
        if batch.scalars["operations_done"][row] % OPERATIONS_PER_TRIAL:
            sign = 1 if trials.operations[row] == ADD else -1
            expected += sign * value(trials.operands[row], trials.base)
        wrong += value(batch.digits[row], trials.base) != expected
    return wrong


def _wrong_counts(trials: Trials, counts: npt.NDArray[np.int64]) -> int:
    """Count the trials with a wrong number of signpost moves, slides or submits.

    Right are: a submit for each digit and each reset; the signpost to the last digit and back; a
    slide for each digit but 0 and for each carry. The number of carries in A + B, and of borrows in
    its inverse, is the digit sum of A plus that of B minus that of A + B, divided by base - 1
    (Legendre).
    """
    lengths = trials.lengths.astype(np.int64)
    slides = np.zeros(len(trials), np.int64)
    for row, (start, operand) in enumerate(zip(trials.starts, trials.operands, strict=True)):
        slides[row] = np.count_nonzero(operand) + _carries(
            start, operand, trials.base, int(trials.operations[row])
        )
    wrong = (
        (counts[:, Action.SUBMIT] != OPERATIONS_PER_TRIAL * (lengths + 1))
        | (counts[:, Action.SIGNPOST_RIGHT] != OPERATIONS_PER_TRIAL * (lengths - 1))
        | (counts[:, Action.SIGNPOST_LEFT] != OPERATIONS_PER_TRIAL * (lengths - 1))
        | (counts[:, Action.SLIDE] != OPERATIONS_PER_TRIAL * slides)
    )
    return int(wrong.sum())


def _carries(start: Digits, operand: Digits, base: int, operation: int) -> int:
    change = value(operand, base) * (1 if operation == ADD else -1)
    before, after = int(start.sum()), _digit_sum(value(start, base) + change, base)
    smaller, larger = (before, after) if operation == ADD else (after, before)
    return (smaller + int(operand.sum()) - larger) // (base - 1)


def _digit_sum(number: int, base: int) -> int:
    total = 0
    while number:
        number, digit = divmod(number, base)
        total += digit
    return total


def follow(batch: AbacusBatch, steps: int, variant: Variant = "before") -> None:
    """Let the expert take `steps` steps in every abacus, all in compiled code."""
    check_variant(variant)
    if not batch.autoreset:
        raise ValueError("batch has autoreset=False: give one with autoreset=True")
    check_states(batch)
    actions = np.empty(batch.num_envs, np.int64)
    _follow(
        batch.rules,
        batch.weights,
        batch.pixels,
        batch.world,
        batch.program,
        batch.out,
        actions,
        variant == "printed",
        steps,
    )


@compiled
def _follow(all_rules, weights, pixels, world, program, out, actions, printed, steps):
    for _ in range(steps):
        answer_all(world.scalars, world.cells, printed, actions)
        kernel.step(all_rules, weights, pixels, world, program, out, actions, True)
