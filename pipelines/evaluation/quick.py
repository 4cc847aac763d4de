"""The two figures of a summary: accuracy where a policy was trained, error rate at 16 digits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SUBTRACT
from abacus.rules import AbacusConfig, Operations
from pipelines.evaluation.greedy import GreedyTable, Outcome
from pipelines.evaluation.operations import columns_for, drawn_numerals, less

#: Operations of an episode, where the world has no limit of its own: a perfect policy goes on.
EPISODE_OPERATIONS = 10
#: A policy that slides to and fro earns steps for ever: so many budgets for each digit are enough.
BUDGETS_PER_DIGIT = 4


@dataclass(frozen=True)
class TrainingScore:
    """The greedy policy on the training distribution."""

    operations: int
    solved: int
    longest_run: int
    illegal_actions: int
    failures: dict[str, int]

    @property
    def accuracy(self) -> float:
        """The fraction of operations solved, as the paper measures it."""
        return self.solved / self.operations


def training_score(
    table: GreedyTable, config: AbacusConfig, episodes: int = 500, seed: int = 0
) -> TrainingScore:
    """Episodes of the training world with the greedy policy.

    An episode counts the operations that it solved, and one more if a mistake or the budget ended
    it.
    """
    limited = replace(config, max_operations=config.max_operations or EPISODE_OPERATIONS)
    batch = AbacusBatch(limited, episodes, autoreset=False)
    batch.reset(seed)
    outcome = table.run(batch, step_limit(limited, limited.max_operations or 1))
    failures = outcome.failures()
    solved = int(outcome.solved.sum())
    unsolved = int((outcome.scalars["operations_done"] - outcome.solved).sum())
    return TrainingScore(
        operations=solved + unsolved + _failed_unfinished(outcome),
        solved=solved,
        longest_run=int(outcome.solved.max()),
        illegal_actions=outcome.illegal_actions,
        failures=failures,
    )


def _failed_unfinished(outcome: Outcome) -> int:
    """Operations that a failure broke off; a wrong reset is counted as done already."""
    failed = sum(outcome.failures().values())
    on_reset = (outcome.scalars["operations_done"] - outcome.solved).sum()
    return failed - int(min(on_reset, failed))


@dataclass(frozen=True)
class LongScore:
    """The greedy policy on single operations whose operands have a given number of digits."""

    digits: int
    operations: int
    errors: int

    @property
    def error_rate(self) -> float:
        return self.errors / self.operations


def long_score(
    table: GreedyTable,
    digits: int = 16,
    operations: int = 10_000,
    seed: int = 0,
    kind: Operations = "both",
) -> LongScore:
    """Single operations of two operands with so many digits, as the paper's test has them."""
    config = AbacusConfig(
        columns=columns_for(digits),
        base=table.base,
        max_digits=digits,
        frames=table.frames,
        max_operations=1,
        on_error="continue",
    )
    batch = AbacusBatch(config, operations, autoreset=False)
    load_operations(batch, digits, np.random.default_rng(seed), kind)
    batch.reset(seed)
    outcome = table.run(batch, step_limit(config, 1))
    return LongScore(digits, operations, int((outcome.solved != 1).sum()))


def load_operations(
    batch: AbacusBatch, digits: int, rng: np.random.Generator, kind: Operations = "both"
) -> None:
    """One operation for each abacus.

    Of both kinds, a subtraction that would go below zero becomes an addition; where there are
    subtractions alone, its operands are swapped, and another subtraction follows, whose symbol
    asks for the reset: after the last operation that is an addition's, which a policy that was
    taught to subtract has never seen.
    """
    config, count = batch.config, batch.num_envs
    starts = np.zeros((count, config.columns), np.uint8)
    starts[:, :digits] = drawn_numerals(count, digits, config.base, rng)
    operands = np.zeros((count, config.longest_operand), np.uint8)
    operands[:, :digits] = drawn_numerals(count, digits, config.base, rng)
    kinds = rng.integers(0, 2, count).astype(np.int32)
    below_zero = less(starts[:, :digits], operands[:, :digits])
    if kind == "subtract":
        kinds[:] = SUBTRACT
        swapped = starts[below_zero, :digits].copy()
        starts[below_zero, :digits] = operands[below_zero, :digits]
        operands[below_zero, :digits] = swapped
        _load_with_a_subtraction_behind(batch, starts, operands, digits)
        return
    if kind == "add":
        kinds[:] = ADD
    else:
        kinds[(kinds == SUBTRACT) & below_zero] = ADD
    batch.load(starts, operands, np.full(count, digits, np.int32), kinds)


def _load_with_a_subtraction_behind(
    batch: AbacusBatch,
    starts: npt.NDArray[np.uint8],
    operands: npt.NDArray[np.uint8],
    digits: int,
) -> None:
    count = batch.num_envs
    both = np.zeros((2 * count, operands.shape[1]), np.uint8)
    both[::2] = operands
    lengths = np.tile(np.array([digits, 1], np.int32), count)
    kinds = np.full(2 * count, SUBTRACT, np.int32)
    batch.load(starts, both, lengths, kinds, np.full(count, 2, np.int32))


def step_limit(config: AbacusConfig, operations: int) -> int:
    """Steps after which an episode of so many operations is given up."""
    return BUDGETS_PER_DIGIT * config.step_budget * (config.longest_operand + 1) * operations
