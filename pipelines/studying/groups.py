"""Which records belong together: seeds of a setting, kinds of supervision, comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from abacus.reward import LEVELS
from abacus.rules import Operations
from pipelines.evaluation.tables import OPERATION_WORDS
from pipelines.studying.records import ARMS, REWARDED, Arm, Record

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
