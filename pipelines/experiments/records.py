"""Cells and records of the study as plain values, and as a table of pandas for grouping.

A cell is one training run, a record its result. Both are JSON on disk and frozen dataclasses here,
so that the analysis never loads a policy. `frame_of` makes a table with a row for each record; all
tables and figures group its rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

import pandas as pd

from abacus.reward import LEVELS
from abacus.rules import Operations
from pipelines.experiments.arms import ARMS
from pipelines.job.tables import OPERATION_WORDS

if TYPE_CHECKING:
    from oracle.exact.own_runs import Verdict

#: The reward of arms that learn from none.
NO_REWARD = "none"
#: Policies of a record.
POLICIES = ("clone", "final", "last")
#: The budget of the first study, whose answer can be compared.
EARLY_STEPS = 100_000
#: Settings that are left out of a cell if they have these values, which change nothing: they were
#: added after records of the study, whose keys must stay the same.
LEFT_OUT: dict[str, object] = {
    "mend_without": "",
    "retry_share": 0.0,
    "gamma_end": 0.0,
    "starts": 1,
    "start_steps": 2_000_000,
}
_OPERATIONS: tuple[Operations, ...] = get_args(Operations)


@dataclass(frozen=True)
class Cell:
    """One training run, with everything that decides its result."""

    #: Cells of one comparison have one budget, and are shown together.
    comparison: str
    #: Name of one of the `ARMS`.
    arm: str
    #: Demonstrated operations that are learned from; 0: none.
    demonstrations: int
    #: Reward level, or `NO_REWARD`.
    reward: str
    operations: Operations
    #: Limit on the teacher's answers, for arms that ask for them; 0 for the others.
    labels: int
    #: Environment steps of reinforcement learning; 0: none.
    steps: int
    seed: int
    #: All settings of the run, with the preset's values filled in, and the settings of the score.
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """Digest of all fields: a changed setting makes another cell."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Name for people."""
        what = f"{self.labels:,} labels" if self.labels else f"{self.demonstrations:,}"
        parts = [self.comparison, self.arm, what, self.reward, self.operations, f"seed {self.seed}"]
        return " ".join(parts)

    @property
    def place(self) -> tuple[object, ...]:
        """What the cell is in its grid: all fields but the settings."""
        values = vars(self)
        return tuple(values[each.name] for each in fields(self) if each.name != "settings")


@dataclass(frozen=True)
class PolicyScore:
    """Results of a greedy policy on operations that were not used to select it."""

    #: Share of operations solved on the training distribution, where any mistake ends an episode.
    accuracy: float
    #: The same by the rules of the cell's own reward level.
    own_accuracy: float
    #: Share of wrong results with operands of 16 digits.
    long_error_rate: float
    #: Observations of the complete set for which it differs from the expert; for a cell with a
    #: single operation, those of that operation.
    wrong: int
    #: Longest run of operations without a mistake, over episodes with a limit.
    longest_run: int
    #: Whether it is certified to agree with the expert at every length, in the cell's operations.
    exact: bool
    #: Verdict of the certificate by own runs, at the cell's own level; None if it was not asked.
    own_runs: Verdict | None = None

    @property
    def proven(self) -> bool:
        """Whether one of the two certificates proves that it makes no mistake at any length."""
        return self.exact or self.own_runs == "exact"


@dataclass(frozen=True)
class CurvePoint:
    """Evaluation of the greedy policy at a step of training."""

    step: int
    #: Processor seconds of reinforcement learning up to this step.
    seconds: float
    #: Share of operations solved, by the rules of the cell's own reward level.
    accuracy: float
    long_error_rate: float
    wrong: int


@dataclass(frozen=True)
class TeachingRound:
    """Demonstrations after a round of teaching, and the wrong observations that are left."""

    operations: int
    labels: int
    wrong: int


@dataclass(frozen=True)
class Record:
    """Result of a cell."""

    cell: Cell
    #: Policy before reinforcement learning; None if nothing was cloned.
    clone: PolicyScore | None
    #: Policy kept by the run: the best on its evaluation episodes.
    final: PolicyScore
    #: Policy at the end of PPO, or the clone of the plan, before mending.
    last: PolicyScore
    curve: tuple[CurvePoint, ...]
    #: Longest run of operations solved by the sampling policy during training.
    longest_training_run: int
    #: Answers of the teacher that were learned from, and the demonstrated operations that have
    #: them; 0 operations for labels without a demonstration.
    labels: int
    demonstrated: int
    #: Environment steps by stage, such as `planning`, `ppo` and `mending`.
    stage_steps: dict[str, int]
    #: Rounds of teaching, the first one before it.
    rounds: tuple[TeachingRound, ...]
    #: Time of each stage over all attempts; `all` is the time of the attempt that finished,
    #: scoring included.
    seconds: dict[str, float]

    @property
    def all_steps(self) -> int:
        """Environment steps of all stages."""
        return sum(self.stage_steps.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """Make a record from plain values; raise ValueError if they are not a record's."""
        try:
            scores = {name: values[name] and PolicyScore(**values[name]) for name in POLICIES}
            lists = {
                "curve": tuple(CurvePoint(**point) for point in values["curve"]),
                "rounds": tuple(TeachingRound(**each) for each in values["rounds"]),
            }
            return cls(**values | scores | lists | {"cell": Cell(**values["cell"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a record of a study: {error}") from None


@dataclass(frozen=True)
class Kind:
    """Kind of supervision, without its amount: a column of a table, a curve of a figure."""

    arm: str
    reward: str
    operations: Operations

    @property
    def name(self) -> str:
        """Heading: the reward level, or the arm if it has no reward, and a single operation."""
        arm = ARMS[self.arm]
        return self.level if arm.reward else self.level.replace(NO_REWARD, arm.title, 1)

    @property
    def level(self) -> str:
        """The reward level, or `none`, and a single operation."""
        single = "" if self.operations == "both" else f", {OPERATION_WORDS[self.operations]}"
        return self.reward + single

    def __lt__(self, other: Kind) -> bool:
        """Sort both operations first, cloning before rewards, more reward before less."""
        return self._order() < other._order()

    def _order(self) -> tuple[int, int, int, str]:
        levels = list(LEVELS)
        place = levels.index(self.reward) if self.reward in levels else len(levels)
        return _OPERATIONS.index(self.operations), list(ARMS).index(self.arm), place, self.reward


#: Columns whose rows differ in the seed alone, within a comparison.
SETTING = ["kind", "demonstrations", "allowed_labels"]
_SCORES = (*(field.name for field in fields(PolicyScore)), "proven")
_COLUMNS = [
    *(
        "comparison",
        "approach",
        "kind",
        "arm",
        "reward",
        "operations",
        "demonstrations",
        "allowed_labels",
    ),
    *("steps", "all_steps", "seed", "evaluations", "labels", "demonstrated"),
    *("longest_training_run", "record"),
    *(f"{policy}_{name}" for policy in POLICIES for name in _SCORES),
]


def frame_of(records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with a row for each record, sorted, each cell once.

    Columns are those of the cell, `kind`, the scores as `clone_accuracy`, `final_accuracy`, ...,
    and the `record` itself. Raise ValueError if seeds of one setting were run with different
    budgets or settings: these are not columns, and two grids in one store would be averaged.
    """
    once = sorted({record.cell.key: record for record in records}.values(), key=_place)
    _check_settings([record.cell for record in once])
    return pd.DataFrame([_row(record) for record in once], columns=_COLUMNS)


def approach_of(cell: Cell) -> str:
    """Return in words how a cell's policy is learned: the arm, or the stages of a run with PPO."""
    if cell.arm != "ppo":
        return ARMS[cell.arm].title
    return "clone, then PPO" if cell.demonstrations else "PPO from nothing"


def kind_of(cell: Cell) -> Kind:
    """Return a cell's kind of supervision."""
    return Kind(cell.arm, cell.reward, cell.operations)


def _place(record: Record) -> tuple[object, ...]:
    cell = record.cell
    return cell.comparison, kind_of(cell), cell.demonstrations, cell.labels, cell.seed


def _check_settings(cells: Sequence[Cell]) -> None:
    seen: dict[tuple[object, ...], dict[str, Any]] = {}
    for cell in cells:
        setting = (cell.comparison, kind_of(cell), cell.demonstrations, cell.labels)
        ran = {"steps": cell.steps, **LEFT_OUT, **cell.settings}
        ran |= {"seed": None, "demo_seed": None}
        before = seen.setdefault(setting, ran)
        # A flag that did not exist yet is no difference.
        differing = [name for name in before if name in ran and before[name] != ran[name]]
        if differing:
            raise ValueError(
                f"{cell.name!r} was run with another {', '.join(differing)} than other seeds of "
                "it: give the records of one grid"
            )


def _row(record: Record) -> dict[str, Any]:
    scores = {
        f"{policy}_{name}": getattr(getattr(record, policy), name)
        for policy in POLICIES
        if getattr(record, policy) is not None
        for name in _SCORES
    }
    more = {
        "kind": kind_of(record.cell),
        "approach": approach_of(record.cell),
        "record": record,
        "evaluations": len(record.curve),
        # A cell has the labels that were allowed, its record those that were used.
        "allowed_labels": record.cell.labels,
        "labels": record.labels,
        "all_steps": record.all_steps,
    }
    return vars(record) | vars(record.cell) | scores | more


def groups(rows: pd.DataFrame, columns: str | list[str]) -> list[tuple[Any, pd.DataFrame]]:
    """Return the groups of rows with equal values in one or several columns, sorted."""
    return list(rows.groupby(columns))


def comparisons(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each comparison."""
    return [part for _, part in groups(rows, "comparison")]


def comparison_of(rows: pd.DataFrame) -> str:
    """Return the name of the comparison of the rows."""
    return str(rows["comparison"].iloc[0])


def by_setting(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the seeds of each setting of one comparison."""
    return [seeds for _, seeds in groups(rows, SETTING)]


def with_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of arms that take environment steps, by which they can be compared."""
    return rows[rows["arm"].map(lambda arm: ARMS[arm].takes_steps).astype(bool)]


def without_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of arms that learn from the teacher's answers alone."""
    return rows[~rows["arm"].map(lambda arm: ARMS[arm].takes_steps).astype(bool)]


def fine_tuning(rows: pd.DataFrame) -> pd.DataFrame:
    """Return PPO with both operations, in the comparison with most numbers of demonstrations."""
    tuned = rows[(rows["arm"] == "ppo") & (rows["operations"] == "both")]
    most = max(
        comparisons(tuned), key=lambda part: part["demonstrations"].nunique(), default=rows[:0]
    )
    return most if most["demonstrations"].any() else rows[:0]


def reward_alone(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return PPO without demonstrations, and planning, for each comparison that has them."""
    return comparisons(rows[rows["arm"].isin(("ppo", "planning")) & (rows["demonstrations"] == 0)])


def budget(rows: pd.DataFrame) -> int:
    """Return the environment steps of reinforcement learning that the cells were given."""
    return int(rows["steps"].max()) if len(rows) else 0


def early_step(rows: pd.DataFrame) -> int:
    """Return the step at which short trainings are shown: 100,000, or a tenth of the budget."""
    return min(EARLY_STEPS, budget(rows) // 10)
