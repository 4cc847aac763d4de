"""What a set of demonstrations holds: actions, carries and borrows, returns, what it covers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled
from abacus.kernel import ADD, SUBTRACT
from abacus.reward import LEVELS
from abacus.rules import AbacusConfig, Action, End
from oracle.algorithm import Variant
from oracle.demos.columns import values_of
from oracle.demos.dataset import Demonstrations
from oracle.exact.complete_set import MAX_FRAMES, cache_path, complete_set

if TYPE_CHECKING:
    from pandas import DataFrame

#: Up to three frames in base 5, whose set is made in seconds; base 10 takes minutes.
_QUICK = 5**7


@compiled
def _count_carries(before, operand, operation, base, counts, chains):
    for m in range(len(before)):
        carry, chain = 0, 0
        for column in range(before.shape[1]):
            if column >= operand.shape[1] and carry == 0:
                break
            amount = carry
            if column < operand.shape[1]:
                amount += operand[m, column]
            digit = np.int64(before[m, column])
            carries = digit + amount >= base if operation[m] == ADD else digit < amount
            carry = 1 if carries else 0
            chain = chain + 1 if carries else 0
            counts[m] += carry
            chains[m] = max(chains[m], chain)


@dataclass(frozen=True)
class Carries:
    """For each operation: columns that carry or borrow, and the longest run of such columns."""

    counts: npt.NDArray[np.int32]
    chains: npt.NDArray[np.int32]


def carries_of(demonstrations: Demonstrations) -> Carries:
    """The carries of additions and the borrows of subtractions."""
    columns = demonstrations.operations
    count = len(columns["start"])
    carries = Carries(np.zeros(count, np.int32), np.zeros(count, np.int32))
    _count_carries(
        columns["before"],
        columns["operand"],
        columns["operation"],
        demonstrations.config.base,
        carries.counts,
        carries.chains,
    )
    return carries


@dataclass(frozen=True)
class KindStatistics:
    """Of the additions, or of the subtractions."""

    operations: int
    with_carry: int
    carries: int
    longest_chain: int

    @property
    def share_with_carry(self) -> float:
        return self.with_carry / self.operations if self.operations else 0.0

    @property
    def mean_carries(self) -> float:
        return self.carries / self.operations if self.operations else 0.0


@dataclass(frozen=True)
class Coverage:
    """How much of the complete set of observations there is."""

    seen: int
    complete: int

    @property
    def share(self) -> float:
        return self.seen / self.complete


@dataclass(frozen=True)
class Statistics:
    """What a summary tells."""

    transitions: int
    episodes: int
    operations: int
    validation_episodes: int
    actions: dict[str, int]
    detours: int
    additions: KindStatistics
    subtractions: KindStatistics
    #: Mean return of an episode at each reward level.
    returns: dict[str, float]


def statistics_of(demonstrations: Demonstrations) -> Statistics:
    """Counts everything once."""
    rows, operation = demonstrations.transitions, demonstrations.operations["operation"]
    carries = carries_of(demonstrations)
    histogram = np.bincount(rows["action"], minlength=len(Action)).tolist()
    episodes = demonstrations.counts["episodes"]
    return Statistics(
        **demonstrations.counts,
        validation_episodes=int(demonstrations.episodes["validation"].sum()),
        actions={action.name: histogram[action] for action in Action},
        detours=int(np.count_nonzero(rows["action"] != rows["taken"])),
        additions=_of_kind(carries, operation == ADD),
        subtractions=_of_kind(carries, operation == SUBTRACT),
        returns={
            level: float(demonstrations.rewards(level).sum(dtype=np.float64)) / episodes
            for level in LEVELS
        },
    )


def _of_kind(carries: Carries, which: npt.NDArray[np.bool_]) -> KindStatistics:
    counts, chains = carries.counts[which], carries.chains[which]
    return KindStatistics(
        operations=len(counts),
        with_carry=int(np.count_nonzero(counts)),
        carries=int(counts.sum()),
        longest_chain=int(chains.max(initial=0)),
    )


def coverage_of(demonstrations: Demonstrations, rows_at_once: int = 2**20) -> Coverage | None:
    """The share of the complete observation set; None where that would take minutes to make."""
    config, variant = demonstrations.config, demonstrations.recipe.variant
    if not _is_at_hand(config.base, config.frames, variant):
        return None
    complete = complete_set(config.base, config.frames, variant)
    seen = np.zeros(len(complete), np.bool_)
    columns = demonstrations.transitions
    for start in range(0, len(demonstrations), rows_at_once):
        rows = slice(start, start + rows_at_once)
        places = complete.index(
            demonstrations.histories(rows), columns["symbol"][rows], columns["operation"][rows]
        )
        seen[places[places >= 0]] = True
    return Coverage(int(seen.sum()), len(complete))


def _is_at_hand(base: int, frames: int, variant: Variant) -> bool:
    """Whether the set is kept from an earlier run, or is small enough to be made now."""
    if frames > MAX_FRAMES:
        return False
    return base ** (frames + 4) <= _QUICK or cache_path(base, frames, variant).exists()


_EPISODES = 1000


def random_return(
    config: AbacusConfig, level: str | tuple[str, ...] | None = None, seed: int = 0
) -> float:
    """Mean return of a thousand episodes under random legal actions, at a reward level."""
    rng = np.random.default_rng(seed)
    config = config if level is None else replace(config, reward=level)
    batch = AbacusBatch(config, _EPISODES, autoreset=False)
    batch.reset(seed)
    returns = np.zeros(_EPISODES)
    going = np.ones(_EPISODES, np.bool_)
    while going.any():
        batch.step(_legal_at_random(batch.masks, rng))
        returns[going] += batch.reward[going]
        going &= ~(batch.terminated | batch.truncated)
    return float(returns.mean())


def _legal_at_random(masks: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    chosen: npt.NDArray[np.int64] = np.argmax(rng.random(masks.shape) * masks, axis=1)
    return chosen


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "pandas is not installed: pip install 'virtual-abacus[pandas]'"
        ) from error
    return pd


def episodes_frame(demonstrations: Demonstrations) -> DataFrame:
    """A row for each episode, with its return at every reward level."""
    columns = demonstrations.episodes
    names = ("start", "length", "first_operation", "operations", "seed")
    ends = np.array([end.name.lower() for end in End])
    table = {name: columns[name] for name in names}
    table |= {"end": ends[columns["end"]], "validation": columns["validation"].astype(bool)}
    for level in LEVELS:
        rewards = demonstrations.rewards(level).astype(np.float64)
        table[f"return_{level}"] = np.add.reduceat(rewards, columns["start"])
    frame: DataFrame = _pandas().DataFrame(table)
    return frame


def operations_frame(demonstrations: Demonstrations) -> DataFrame:
    """A row for each operation, with its numbers in decimal."""
    columns, carries = demonstrations.operations, carries_of(demonstrations)
    base = demonstrations.config.base
    table = {name: columns[name] for name in ("episode", "start", "length")}
    table |= {
        "first_operand": values_of(columns["before"], base),
        "sign": np.array(["+", "-"])[columns["operation"]],
        "second_operand": values_of(columns["operand"], base),
        "result": values_of(columns["after"], base),
        "carries": carries.counts,
        "longest_chain": carries.chains,
        "fresh": columns["fresh"].astype(bool),
    }
    frame: DataFrame = _pandas().DataFrame(table)
    return frame
