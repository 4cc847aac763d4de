"""What a study asks and what it is answered: cells and their records, as plain values.

A cell is one training run, a record is what came of it. Both are JSON on disk and frozen
dataclasses here, so that the analysis never touches a policy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from abacus.reward import LEVELS
from abacus.rules import Operations
from pipelines.scoring.tables import OPERATION_WORDS

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


_ARM_WORDS: dict[Arm, str] = {
    "cloning": "cloning alone",
    "ppo": "PPO",
    "dagger": "DAgger",
    "dqn": "DQN, masked",
    "dqn_unmasked": "DQN, unmasked",
}
_OPERATIONS: tuple[Operations, ...] = get_args(Operations)
Key = TypeVar("Key")


@dataclass(frozen=True)
class Kind:
    """A kind of supervision, whatever its amount: a column of a table, a curve of a figure."""

    arm: Arm
    reward: str
    operations: Operations

    @property
    def level(self) -> str:
        """The reward, where there is one."""
        return self.reward if self.arm in REWARDED else arm_words(self.arm)

    @property
    def name(self) -> str:
        """For a heading in which the arm need not be said."""
        alone = f", {OPERATION_WORDS[self.operations]}" if self.operations != "both" else ""
        return self.level + alone

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Both operations first, cloning before rewards, more reward before less."""
        levels = list(LEVELS)
        place = levels.index(self.reward) if self.reward in levels else len(levels)
        return _OPERATIONS.index(self.operations), ARMS.index(self.arm), place, self.reward


def arm_words(arm: Arm) -> str:
    """An arm as it is shown."""
    return _ARM_WORDS[arm]


def kind_of(record: Record) -> Kind:
    """A record's kind of supervision."""
    cell = record.cell
    return Kind(cell.arm, cell.reward, cell.operations)


def checked(records: Sequence[Record]) -> list[Record]:
    """Each cell once, in order; ValueError where the seeds of a setting were run differently.

    The order is not that in which they were run, so that the same records say the same. Budgets
    and settings are no columns here: cells of two grids in one store would be averaged as if they
    were seeds of one.
    """
    once = sorted({record.cell.key: record for record in records}.values(), key=_place)
    seen: dict[tuple[object, ...], dict[str, Any]] = {}
    for record in once:
        cell = record.cell
        setting = (cell.comparison, kind_of(record), cell.demonstrations, cell.labels)
        ran = {"steps": cell.steps, **cell.settings, "seed": None, "demo_seed": None}
        before = seen.setdefault(setting, ran)
        differing = [name for name in {**before, **ran} if before.get(name) != ran.get(name)]
        if differing:
            raise ValueError(
                f"{cell.name!r} was run with another {', '.join(differing)} than other seeds of "
                "it: give the records of one grid"
            )
    return once


def _place(record: Record) -> tuple[object, ...]:
    cell = record.cell
    return (cell.comparison, kind_of(record).order, cell.demonstrations, cell.labels, cell.seed)


def comparisons(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by comparison."""
    return split(records, lambda record: record.cell.comparison)


def split(records: Sequence[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    """Records by a key, in the order in which they are met."""
    parts: dict[Key, list[Record]] = {}
    for record in records:
        parts.setdefault(key(record), []).append(record)
    return parts


@dataclass(frozen=True)
class Grid:
    """Numbers of demonstrations by kinds of supervision in one comparison; the parts are seeds."""

    comparison: str
    kinds: tuple[Kind, ...]
    demonstrations: tuple[int, ...]
    parts: dict[tuple[Kind, int], list[Record]]

    @property
    def records(self) -> list[Record]:
        """All of them."""
        return [record for seeds in self.parts.values() for record in seeds]

    def seeds(self, kind: Kind, demonstrations: int) -> list[Record]:
        """The seeds that are there; none where the cell was not run."""
        return self.parts.get((kind, demonstrations), [])


def grid_of(comparison: str, records: Sequence[Record]) -> Grid:
    """What was cloned, and what was rewarded, as a grid."""
    parts = split(records, lambda record: (kind_of(record), record.cell.demonstrations))
    kinds = sorted({kind for kind, _ in parts}, key=lambda kind: kind.order)
    return Grid(comparison, tuple(kinds), tuple(sorted({n for _, n in parts})), parts)


def grids_of(records: Sequence[Record], *arms: Arm) -> list[Grid]:
    """The grids of the comparisons that have records of these arms, of these arms alone."""
    chosen = [record for record in records if record.cell.arm in arms]
    return [grid_of(name, part) for name, part in comparisons(chosen).items()]


def main_grid(records: Sequence[Record]) -> Grid | None:
    """The comparison with most numbers of demonstrations, which is what the study is about."""
    grids = grids_of(records, "cloning", "ppo")
    return max(grids, key=lambda grid: (len(grid.demonstrations), len(grid.parts)), default=None)


def budget(records: Sequence[Record]) -> int:
    """The steps of reinforcement learning that the cells were given."""
    return max((record.cell.steps for record in records), default=0)


def seeds_said(counts: Sequence[int]) -> str:
    """`5 seeds`, or `3 to 5 seeds`."""
    if not counts:
        return "no seeds"
    low, high = min(counts), max(counts)
    if low != high:
        return f"{low} to {high} seeds"
    return "1 seed" if high == 1 else f"{high} seeds"
