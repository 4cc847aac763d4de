"""Intervals for an error rate that hold for few errors and for none.

Clopper and Pearson's: the rates for which so many errors, or so few, would not be rarer than 2.5 %
on either side. It is exact, if wide: the true rate is inside in at least 95 of 100 cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SUBTRACT
from abacus.rules import AbacusConfig, End, Operations
from oracle.exact.complete_set import ObservationSet, complete_set
from pipelines.learning.policy import AbacusPolicy
from pipelines.scoring.operations import (
    Digits,
    OperationSet,
    columns_for,
    drawn_numerals,
    less,
    portions,
    step_limit,
)
from pipelines.scoring.players import GreedyTable, Outcome, Player, wrong_results

CONFIDENCE = 0.95
#: Halvings of an interval of length 1: to the last bit of a number near it.
_HALVINGS = 200
_TINY = 1e-300
_TERMS = 10_000
_ENOUGH = 1e-15


@dataclass(frozen=True)
class ErrorRate:
    """Errors among trials, with the interval of the rate."""

    errors: int
    trials: int

    def __post_init__(self) -> None:
        if self.trials < 1 or not 0 <= self.errors <= self.trials:
            raise ValueError(
                f"{self.errors} errors in {self.trials} trials: give 1 trial or more, and no more "
                "errors than trials"
            )

    @property
    def rate(self) -> float:
        return self.errors / self.trials

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        if self.errors == 0:
            return 0.0
        return _beta_quantile((1 - CONFIDENCE) / 2, self.errors, self.trials - self.errors + 1)

    @property
    def high(self) -> float:
        """The upper end of the interval; about 3.7 / trials where there were no errors."""
        if self.errors == self.trials:
            return 1.0
        return _beta_quantile((1 + CONFIDENCE) / 2, self.errors + 1, self.trials - self.errors)


def _beta_quantile(probability: float, a: float, b: float) -> float:
    """Where the beta distribution's sum reaches a probability, by halving."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beta_sum(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return high


def beta_sum(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function: the part of a beta(a, b) variable below x."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    # The fraction converges fast below the mean; above it, the other tail is taken.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_sum(1 - x, b, a)
    scale = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return scale * _continued_fraction(x, a, b) / a


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the fraction in Abramowitz and Stegun 26.5.8."""
    numerator, denominator = 1.0, _away_from_zero(1 - (a + b) * x / (a + 1))
    denominator = 1 / denominator
    value = denominator
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1 / _away_from_zero(1 + term * denominator)
            numerator = _away_from_zero(1 + term / numerator)
            change = numerator * denominator
            value *= change
        if abs(change - 1) < _ENOUGH:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


#: From a number of operations and a generator to the operations.
Maker = Callable[[int, np.random.Generator], OperationSet]
Progress = Callable[[int], object]


@dataclass
class Failures:
    """Failed operations with what the abaci showed at the end, as many as are kept."""

    keep: int
    parts: list[tuple[OperationSet, Digits]] = field(default_factory=list)

    def add(self, operations: OperationSet, outputs: Digits, failed: npt.NDArray[np.bool_]) -> None:
        """Keeps those that failed, while there is room."""
        rows = np.flatnonzero(failed)[: self.keep - len(self)]
        if len(rows):
            self.parts.append((operations.chosen(rows), outputs[rows]))

    def __len__(self) -> int:
        return sum(len(operations) for operations, _ in self.parts)


@dataclass
class Score:
    """Errors of a player on one kind of operands; grows portion by portion."""

    name: str
    digits: int
    asked: int
    additions: int = 0
    addition_errors: int = 0
    subtractions: int = 0
    subtraction_errors: int = 0
    #: Of the errors, those where the abacus shows a wrong number at the end.
    wrong_results: int = 0
    illegal_actions: int = 0

    @property
    def operations(self) -> int:
        return self.additions + self.subtractions

    @property
    def errors(self) -> int:
        return self.addition_errors + self.subtraction_errors

    @property
    def complete(self) -> bool:
        """Whether as many were run as were asked for."""
        return self.operations == self.asked

    def rate(self) -> ErrorRate:
        """Of both operations together."""
        return ErrorRate(self.errors, self.operations)


def measure(
    player: Player,
    score: Score,
    make: Maker,
    rng: np.random.Generator,
    frames: int,
    columns: int | None = None,
    failures: Failures | None = None,
    progress: Progress | None = None,
) -> None:
    """Runs the operations that `score` asks for and adds them to it.

    Stopped by Ctrl-C, the score holds the portions that were done.
    """
    for count in portions(score.asked, score.digits):
        operations = make(count, rng)
        batch = operations.batch(frames, columns)
        outcome = player.run(batch, step_limit(batch.config))
        failed = outcome.solved != 1
        subtract = operations.kinds == SUBTRACT
        score.additions += int((~subtract).sum())
        score.subtractions += int(subtract.sum())
        score.addition_errors += int((failed & ~subtract).sum())
        score.subtraction_errors += int((failed & subtract).sum())
        score.wrong_results += int(wrong_results(operations, outcome).sum())
        score.illegal_actions += outcome.illegal_actions
        if failures is not None:
            failures.add(operations, outcome.digits, failed)
        if progress:
            progress(count)


#: Steps for each operation after which an episode is given up; the paper's longest takes 120.
_STEPS_PER_OPERATION = 2_000
_EPISODES_AT_ONCE = 20


@dataclass
class Runs:
    """Episodes of one kind of operations."""

    operations: Operations
    limit: int
    asked: int
    lengths: list[int] = field(default_factory=list)
    #: Why they ended.
    mistakes: int = 0
    capacity: int = 0
    limited: int = 0

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def complete(self) -> bool:
        return self.episodes == self.asked

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def median(self) -> float:
        return float(np.median(self.lengths))


def measure_runs(
    player: Player,
    runs: Runs,
    base: int,
    frames: int,
    seed: int,
    columns: int = 10,
    max_digits: int = 6,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Runs the episodes that `runs` asks for, one portion after the other."""
    config = AbacusConfig(
        columns=columns,
        base=base,
        max_digits=max_digits,
        frames=frames,
        operations=runs.operations,
        # What ends an episode at every level that the paper trained with.
        reward="no_of_sp",
        max_operations=runs.limit,
    )
    for first in range(0, runs.asked, _EPISODES_AT_ONCE):
        count = min(_EPISODES_AT_ONCE, runs.asked - first)
        batch = AbacusBatch(config, count, autoreset=False)
        batch.reset(seed + first)
        outcome = player.run(batch, _STEPS_PER_OPERATION * runs.limit)
        runs.lengths += outcome.solved.tolist()
        runs.capacity += int((outcome.ends == End.CAPACITY).sum())
        runs.limited += int((outcome.ends == End.LIMIT).sum())
        runs.mistakes = runs.episodes - runs.capacity - runs.limited
        if progress:
            progress(batch.num_envs)


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
    outcome = table.run(batch, episode_step_limit(limited, limited.max_operations or 1))
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
    outcome = table.run(batch, episode_step_limit(config, 1))
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


def episode_step_limit(config: AbacusConfig, operations: int) -> int:
    """Steps after which an episode of so many operations is given up."""
    return BUDGETS_PER_DIGIT * config.step_budget * (config.longest_operand + 1) * operations


#: Beyond these the complete set takes long to make, and is left to `pipelines.certify`.
LARGEST_BASE, MOST_FRAMES = 5, 3
LONG_DIGITS = 16
#: Episodes are drawn from seeds of their own, not those of training.
EVALUATION_SEED = 1_000_003
#: The level at which every kind of mistake ends an episode.
STRICT_REWARD = "dense"


@dataclass(frozen=True)
class Evaluation:
    """The greedy policy at a step of the training."""

    step: int
    accuracy: float
    longest_run: int
    illegal_actions: int
    failures: dict[str, int]
    #: Observations of the complete set on which it does not do as the teacher; None: not asked.
    wrong: int | None
    long_error_rate: float

    @property
    def rank(self) -> tuple[float, int]:
        """Greater is better: accuracy first, then fewer wrong observations."""
        return (self.accuracy, -(self.wrong or 0))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dict(vars(self))

    def record(self) -> dict[str, float]:
        """By the names of a log."""
        values: dict[str, float] = {
            "eval/accuracy": self.accuracy,
            "eval/longest_run": self.longest_run,
            "eval/illegal_actions": self.illegal_actions,
            f"eval/error_rate_{LONG_DIGITS}_digits": self.long_error_rate,
        }
        values |= {f"eval/{kind}": count for kind, count in self.failures.items()}
        if self.wrong is not None:
            values["eval/wrong_observations"] = self.wrong
        return values


def observations_of(world: AbacusConfig) -> ObservationSet:
    """The complete set, or where the world has one operation alone, what is seen during it."""
    observations = complete_set(world.base, world.frames)
    if world.operations == "both":
        return observations
    return observations.of_operation(ADD if world.operations == "add" else SUBTRACT)


class Evaluator:
    """Evaluates policies of one network in one world, always on the same operations.

    A mistake of any kind ends an episode, whatever the reward says: a level without the signpost's
    modules would else let wrong moves pass, and no two levels would be measured alike. At 16
    digits the result alone counts.
    """

    def __init__(
        self,
        world: AbacusConfig,
        episodes: int,
        *,
        with_set: bool = True,
        long_operations: int = 2000,
        seed: int = EVALUATION_SEED,
    ) -> None:
        self.world = replace(world, reward=STRICT_REWARD)
        self.seed = seed
        self.episodes = episodes
        self.long_operations = long_operations
        small = world.base <= LARGEST_BASE and world.frames <= MOST_FRAMES
        self.observations: ObservationSet | None = (
            observations_of(world) if with_set and small else None
        )

    def __call__(self, policy: AbacusPolicy, step: int) -> Evaluation:
        """Evaluates; the policy's weights stay as they are."""
        table = GreedyTable(policy, self.world.base, self.world.frames)
        wrong = None if self.observations is None else self._wrong(table, self.observations)
        score: TrainingScore = training_score(table, self.world, self.episodes, self.seed)
        digits = LONG_DIGITS
        errors = long_score(table, digits, self.long_operations, self.seed, self.world.operations)
        return Evaluation(
            step=step,
            accuracy=score.accuracy,
            longest_run=score.longest_run,
            illegal_actions=score.illegal_actions,
            failures=score.failures,
            wrong=wrong,
            long_error_rate=errors.error_rate,
        )

    def _wrong(self, table: GreedyTable, observations: ObservationSet) -> int:
        scores = table.learn_set(observations)
        legal_scores = np.where(observations.visibly_illegal, -np.inf, scores)
        return int((legal_scores.argmax(axis=1) != observations.actions).sum())
