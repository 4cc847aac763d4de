"""Scores of policies: error rates with intervals, runs of operations, and training evaluations.

Training, the study and `pipelines.evaluate` score with these functions, by the definitions in
docs/fidelity.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SUBTRACT
from abacus.reward import MODULES
from abacus.rules import AbacusConfig, End, Operations
from oracle.exact.complete_set import ObservationSet, complete_set
from pipelines.job.tables import counted
from pipelines.scoring.operations import (
    PAPER_DIGITS,
    Digits,
    OperationSet,
    chunk_sizes,
    drawn_operations,
    step_limit,
)
from pipelines.scoring.players import GreedyTable, Player

CONFIDENCE = 0.95
#: Operations of all episodes that run at once.
_RUN_OPERATIONS_AT_ONCE = 40_000
#: Runs end at what ends an episode at every level that the paper trained with.
RUN_REWARD = "no_of_sp"
#: Accuracy is measured at the level at which every kind of mistake ends an episode.
STRICT_REWARD = "dense"
#: Operations of an episode where the world sets no limit.
EPISODE_OPERATIONS = 10
#: Beyond these the complete set takes long to enumerate, and is left to `pipelines.certify`.
LARGEST_BASE, MOST_FRAMES = 10, 3
#: Seed of the episodes of evaluations, apart from those of training.
EVALUATION_SEED = 1_000_003

#: From `count` and `rng` to operations.
Sampler = Callable[..., OperationSet]
Progress = Callable[[int], object]


@dataclass(frozen=True)
class ErrorRate:
    """Errors among trials, with the Clopper-Pearson interval of the rate.

    The interval is exact: it contains the true rate in at least 95 of 100 cases, also where there
    were no errors.
    """

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
        tail = (1 - CONFIDENCE) / 2
        return float(betaincinv(self.errors, self.trials - self.errors + 1, tail))

    @property
    def high(self) -> float:
        """The upper end of the interval; about 3.7 / trials without errors."""
        if self.errors == self.trials:
            return 1.0
        tail = (1 + CONFIDENCE) / 2
        return float(betaincinv(self.errors + 1, self.trials - self.errors, tail))


@dataclass
class Failures:
    """Failed operations and the final digits of their abaci, up to `keep` of them."""

    keep: int
    parts: list[tuple[OperationSet, Digits]] = field(default_factory=list)

    def add(self, operations: OperationSet, outputs: Digits, failed: npt.NDArray[np.bool_]) -> None:
        """Keep the operations that failed, while there is room."""
        rows = np.flatnonzero(failed)[: self.keep - len(self)]
        if len(rows):
            self.parts.append((operations.subset(rows), outputs[rows]))

    def __len__(self) -> int:
        return sum(len(operations) for operations, _ in self.parts)


@dataclass
class Score:
    """Errors of a player on one kind of operands; grows chunk by chunk."""

    name: str
    digits: int
    asked: int
    additions: int = 0
    addition_errors: int = 0
    subtractions: int = 0
    subtraction_errors: int = 0
    #: Errors that leave a wrong number on the abacus.
    wrong_results: int = 0
    illegal_actions: int = 0

    @classmethod
    def of_length(cls, digits: int, asked: int) -> Score:
        """Return an empty score for random operands of `digits` digits."""
        return cls(counted(digits, "digit"), digits, asked)

    @property
    def operations(self) -> int:
        return self.additions + self.subtractions

    @property
    def errors(self) -> int:
        return self.addition_errors + self.subtraction_errors

    @property
    def complete(self) -> bool:
        """Whether all operations that were asked for were run."""
        return self.operations == self.asked

    def rate(self) -> ErrorRate:
        """Return the error rate of both operations together."""
        return ErrorRate(self.errors, self.operations)

    def rates(self) -> dict[str, ErrorRate | None]:
        """Return the error rates of addition and subtraction; None where there were none."""
        counts = {
            "addition": (self.addition_errors, self.additions),
            "subtraction": (self.subtraction_errors, self.subtractions),
        }
        return {
            name: ErrorRate(errors, trials) if trials else None
            for name, (errors, trials) in counts.items()
        }


def measure(
    player: Player,
    score: Score,
    sampler: Sampler,
    seed: int,
    frames: int,
    columns: int | None = None,
    failures: Failures | None = None,
    progress: Progress | None = None,
) -> None:
    """Run the operations that `score` asks for and add the results to it.

    An operation that is not solved is an error: a submit was wrong, the result is wrong, or the
    step limit was reached. The random stream depends on the seed and on the name of the score.
    Interrupted by Ctrl-C, the score holds the finished chunks.
    """
    rng = np.random.default_rng([seed, *score.name.encode()])
    for count in chunk_sizes(score.asked, score.digits):
        operations = sampler(count=count, rng=rng)
        batch = operations.batch(frames, columns)
        outcome = player.run(batch, step_limit(batch.config))
        failed = outcome.solved != 1
        subtract = operations.kinds == SUBTRACT
        truths = operations.results(batch.config.columns)
        score.additions += int((~subtract).sum())
        score.subtractions += int(subtract.sum())
        score.addition_errors += int((failed & ~subtract).sum())
        score.subtraction_errors += int((failed & subtract).sum())
        score.wrong_results += int((outcome.digits != truths).any(axis=1).sum())
        score.illegal_actions += outcome.illegal_actions
        if failures is not None:
            failures.add(operations, outcome.digits, failed)
        if progress:
            progress(count)


@dataclass
class Runs:
    """Lengths of runs of operations, and why their episodes ended; grows chunk by chunk."""

    operations: Operations
    limit: int
    asked: int
    lengths: list[int] = field(default_factory=list)
    mistakes: int = 0
    capacity: int = 0
    limited: int = 0

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def complete(self) -> bool:
        """Whether all episodes that were asked for were run."""
        return self.episodes == self.asked

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def median(self) -> float:
        return float(np.median(self.lengths))


def measure_runs(
    player: Player, runs: Runs, world: AbacusConfig, seed: int, progress: Progress | None = None
) -> None:
    """Run the episodes that `runs` asks for and add them to it.

    A run is the number of operations solved in an episode that starts from 0 and ends at the first
    wrong slide or submit, at capacity, or at the limit. Columns, digits, base and frames are those
    of `world`.
    """
    config = replace(
        world,
        operations=runs.operations,
        reward=RUN_REWARD,
        on_error="terminate",
        start=0,
        max_operations=runs.limit,
    )
    at_once = max(1, _RUN_OPERATIONS_AT_ONCE // runs.limit)
    for first in range(0, runs.asked, at_once):
        batch = AbacusBatch(config, min(at_once, runs.asked - first), autoreset=False)
        batch.reset(seed + first)
        outcome = player.run(batch, step_limit(config, runs.limit))
        runs.lengths += outcome.solved.tolist()
        runs.capacity += int((outcome.ends == End.CAPACITY).sum())
        runs.limited += int((outcome.ends == End.LIMIT).sum())
        runs.mistakes = runs.episodes - runs.capacity - runs.limited
        if progress:
            progress(batch.num_envs)


@dataclass(frozen=True)
class TrainingScore:
    """The greedy policy on episodes of its training world."""

    operations: int
    solved: int
    illegal_actions: int
    failures: dict[str, int]

    @property
    def accuracy(self) -> float:
        """The fraction of operations solved, as in the paper."""
        return self.solved / self.operations


def training_score(
    player: Player, world: AbacusConfig, episodes: int = 500, seed: int = 0
) -> TrainingScore:
    """Score episodes of a world: solved operations, and those that a failure broke off."""
    limit = _episode_limit(world)
    config = replace(world, max_operations=limit)
    batch = AbacusBatch(config, episodes, autoreset=False)
    batch.reset(seed)
    outcome = player.run(batch, step_limit(config, limit))
    failures = outcome.failures()
    solved = int(outcome.solved.sum())
    # An operation whose reset is wrong counts as done; the failure that it causes is the same one.
    unsolved = int((outcome.scalars["operations_done"] - outcome.solved).sum())
    return TrainingScore(
        operations=solved + max(unsolved, sum(failures.values())),
        solved=solved,
        illegal_actions=outcome.illegal_actions,
        failures=failures,
    )


def _episode_limit(world: AbacusConfig) -> int:
    return EPISODE_OPERATIONS if world.max_operations is None else world.max_operations


@dataclass(frozen=True)
class Evaluation:
    """Scores of the greedy policy at a training step."""

    step: int
    accuracy: float
    longest_run: int
    illegal_actions: int
    failures: dict[str, int]
    #: Disagreements with the expert on the complete set of observations; None if not counted.
    wrong: int | None
    #: At 16 digits.
    long_error_rate: float
    #: Accuracy by the rules of the reward level; None if they are the strictest.
    own_accuracy: float | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """Key for comparing evaluations: accuracy first, then fewer wrong observations.

        The accuracy is that by the rules of the reward level: where a level lets signpost moves
        pass, a policy must not be chosen for avoiding them. Where wrong observations were not
        counted, an evaluation ranks below any that counted them.
        """
        return (self.judged_accuracy, -math.inf if self.wrong is None else -self.wrong)

    @property
    def rank_without_teacher(self) -> tuple[float, float]:
        """The same for learners from the reward alone: among equals, fewer errors at 16 digits."""
        return (self.judged_accuracy, -self.long_error_rate)

    @property
    def judged_accuracy(self) -> float:
        """Accuracy by the rules of the reward level, which may be the strictest."""
        return self.accuracy if self.own_accuracy is None else self.own_accuracy

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return dict(vars(self))

    def record(self) -> dict[str, float]:
        """Return the values by their names in the logs."""
        values: dict[str, float] = {
            "eval/accuracy": self.accuracy,
            "eval/longest_run": self.longest_run,
            "eval/illegal_actions": self.illegal_actions,
            f"eval/error_rate_{PAPER_DIGITS}_digits": self.long_error_rate,
        }
        values |= {f"eval/{kind}": count for kind, count in self.failures.items()}
        if self.wrong is not None:
            values["eval/wrong_observations"] = self.wrong
        if self.own_accuracy is not None:
            values["eval/own_accuracy"] = self.own_accuracy
        return values


def observations_of(world: AbacusConfig) -> ObservationSet:
    """Return the complete set of observations, or the part of a world's only operation."""
    observations = complete_set(world.base, world.frames)
    if world.operations == "both":
        return observations
    return observations.of_operation(ADD if world.operations == "add" else SUBTRACT)


def best_of(evaluations: Sequence[Evaluation], alone: bool) -> Evaluation:
    """Return the first of the best; with `alone`, the teacher's answers are not compared."""
    return max(evaluations, key=lambda e: e.rank_without_teacher if alone else e.rank)


class Evaluator:
    """Callable that evaluates policies of one world in training, always on the same operations.

    For the accuracy a mistake of any kind ends an episode, whatever the reward of the world: at a
    level without the signpost module wrong moves would pass, and levels could not be compared. The
    accuracy by the rules of the level itself is given beside it.
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
        mistakes = {name for name in MODULES if name.startswith("wrong_")}
        #: The world with the rules of its level; None if every mistake ends an episode there too.
        self.own_world = None if mistakes <= world.modules else world
        self.seed = seed
        self.episodes = episodes
        self.long_operations = long_operations
        small = world.base <= LARGEST_BASE and world.frames <= MOST_FRAMES
        self.observations = observations_of(world) if with_set and small else None

    def __call__(self, policy: Any, step: int) -> Evaluation:
        """Evaluate a policy: any SB3 policy, or a callable as `certify` takes it."""
        world, seed = self.world, self.seed
        table = GreedyTable(policy, world.base, world.frames)
        wrong = None if self.observations is None else self._wrong(table, self.observations)
        score = training_score(table, world, self.episodes, seed)
        runs = Runs(world.operations, _episode_limit(world), self.episodes)
        measure_runs(table, runs, world, seed)
        long = Score.of_length(PAPER_DIGITS, self.long_operations)
        sampler = partial(
            drawn_operations, digits=PAPER_DIGITS, base=world.base, operations=world.operations
        )
        measure(table, long, sampler, seed, world.frames)
        return Evaluation(
            step=step,
            accuracy=score.accuracy,
            longest_run=runs.longest,
            illegal_actions=score.illegal_actions,
            failures=score.failures,
            wrong=wrong,
            long_error_rate=long.rate().rate,
            own_accuracy=None
            if self.own_world is None
            else training_score(table, self.own_world, self.episodes, seed).accuracy,
        )

    def _wrong(self, table: GreedyTable, observations: ObservationSet) -> int:
        scores = table.learn_set(observations)
        legal_scores = np.where(observations.visibly_illegal, -np.inf, scores)
        return int((legal_scores.argmax(axis=1) != observations.actions).sum())
