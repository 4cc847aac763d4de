"""What is measured of the greedy policy before, during and after training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abacus.kernel import ADD, SUBTRACT
from abacus.rules import AbacusConfig
from oracle.observations import ObservationSet, complete_set
from pipelines.evaluation.greedy import GreedyTable
from pipelines.evaluation.quick import TrainingScore, long_score, training_score
from pipelines.learning.policy import AbacusPolicy

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
