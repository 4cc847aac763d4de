"""What a study asks and what it is answered: cells and their records, as plain values.

A cell is one training run, a record is what came of it. Both are JSON on disk and frozen
dataclasses here, so that the analysis never touches a policy.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from abacus.rules import Operations

Arm = Literal["cloning", "ppo", "dagger", "dqn", "dqn_unmasked"]
ARMS: tuple[Arm, ...] = get_args(Arm)
#: Arms that learn from a reward.
REWARDED: tuple[Arm, ...] = ("ppo", "dqn", "dqn_unmasked")
#: The reward of the others.
NO_REWARD = "none"


@dataclass(frozen=True)
class Cell:
    """One training run, and all that decides it."""

    #: Cells of one comparison have one budget, and are shown together.
    comparison: str
    arm: Arm
    #: Demonstrated operations that are cloned first; 0: none.
    demonstrations: int
    #: Reward level, or `NO_REWARD`.
    reward: str
    operations: Operations
    #: Answers that DAgger may ask the teacher for; 0 for the other arms.
    labels: int
    #: Environment steps of reinforcement learning; 0: none.
    steps: int
    seed: int
    #: Everything that decides the run, down to the presets' values.
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """The same for the same question: a changed setting is another cell."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """For people."""
        what = f"{self.labels:,} labels" if self.arm == "dagger" else f"{self.demonstrations:,}"
        parts = [self.comparison, self.arm, what, self.reward, self.operations, f"seed {self.seed}"]
        return " ".join(parts)


@dataclass(frozen=True)
class Score:
    """The greedy policy on operations that no choice was made by."""

    #: The fraction of operations solved on the training distribution.
    accuracy: float
    #: The fraction of wrong results with operands of 16 digits.
    long_error_rate: float
    #: Observations of the complete set on which it does not do as the teacher; of a cell with one
    #: operation alone, those of that operation.
    wrong: int
    #: The longest run of operations without a mistake, of several that were cut at a limit.
    longest_run: int
    #: Whether a certificate says that it is right at every length, in the cell's operations.
    exact: bool


@dataclass(frozen=True)
class CurvePoint:
    """The greedy policy at a step of the training."""

    step: int
    #: Of reinforcement learning until then, by the processor's clock.
    seconds: float
    accuracy: float
    long_error_rate: float
    wrong: int


@dataclass(frozen=True)
class Record:
    """What came of a cell."""

    cell: Cell
    #: Before reinforcement learning; None where nothing was cloned.
    clone: Score | None
    #: The policy that the run kept, which is its best by the episodes it was watched with.
    final: Score
    #: The policy that the training ended with.
    last: Score
    curve: tuple[CurvePoint, ...]
    #: The longest run of operations that the sampling policy solved while it was trained.
    longest_training_run: int
    #: Answers of the teacher that were learned from.
    labels: int
    #: Of cloning and of reinforcement learning, over all attempts; `all` is what the attempt that
    #: finished took, with the measuring.
    seconds: dict[str, float]

    def reached(self, accuracy: float) -> CurvePoint | None:
        """The first evaluation at which the greedy policy was so good."""
        return next((point for point in self.curve if point.accuracy >= accuracy), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """From plain values; ValueError where they are not those of a record."""
        try:
            if set(values) != {field.name for field in fields(cls)}:
                raise TypeError("other names than a record's")
            return cls(
                cell=Cell(**values["cell"]),
                clone=None if values["clone"] is None else Score(**values["clone"]),
                final=Score(**values["final"]),
                last=Score(**values["last"]),
                curve=tuple(CurvePoint(**point) for point in values["curve"]),
                longest_training_run=int(values["longest_training_run"]),
                labels=int(values["labels"]),
                seconds=dict(values["seconds"]),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a record of a study: {error}") from None
