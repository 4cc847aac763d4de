"""Statistics of a set of demonstrations: actions, carries, returns, coverage; tables for pandas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled
from abacus.kernel import ADD, SUBTRACT
from abacus.reward import LEVELS, TERMS
from abacus.rules import AbacusConfig, Action, End
from oracle.demos.dataset import Demonstrations, Reward
from oracle.demos.schema import groups
from oracle.exact import MAX_FRAMES
from oracle.exact.complete_set import cache_path, complete_set, is_known

if TYPE_CHECKING:
    from pandas import DataFrame

#: Up to three frames in base 5 the complete set takes seconds to make; in base 10, minutes.
_MAX_QUICK_SET = 5**7
_ROWS_AT_ONCE = 2**20
_RANDOM_EPISODES = 1000

#: The columns that carry or borrow in each operation, and the longest run of them.
Carries = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]


@dataclass(frozen=True)
class ArithmeticStatistics:
    """Statistics of the additions, or of the subtractions, of which borrows are the carries."""

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
class Statistics:
    """Counts and mean returns of a set."""

    transitions: int
    episodes: int
    operations: int
    validation_episodes: int
    actions: dict[str, int]
    detours: int
    additions: ArithmeticStatistics
    subtractions: ArithmeticStatistics
    #: Mean return of an episode at each reward level.
    returns: dict[str, float]


def statistics_of(demonstrations: Demonstrations) -> Statistics:
    """Return the statistics of a set."""
    rows, kinds = demonstrations.transitions, demonstrations.operations["operation"]
    carries = count_carries(demonstrations)
    histogram = np.bincount(rows["action"], minlength=len(Action)).tolist()
    episodes = demonstrations.counts["episodes"]
    return Statistics(
        **demonstrations.counts,
        validation_episodes=int(demonstrations.episodes["validation"].sum()),
        actions={action.name: histogram[action] for action in Action},
        detours=int(np.count_nonzero(rows["action"] != rows["taken"])),
        additions=_arithmetic(carries, kinds == ADD),
        subtractions=_arithmetic(carries, kinds == SUBTRACT),
        returns={
            level: float(demonstrations.rewards(level).sum(dtype=np.float64)) / episodes
            for level in LEVELS
        },
    )


def _arithmetic(carries: Carries, which: npt.NDArray[np.bool_]) -> ArithmeticStatistics:
    counts, chains = (column[which] for column in carries)
    return ArithmeticStatistics(
        operations=len(counts),
        with_carry=int(np.count_nonzero(counts)),
        carries=int(counts.sum()),
        longest_chain=int(chains.max(initial=0)),
    )


def count_carries(demonstrations: Demonstrations) -> Carries:
    """Return the columns that carry or borrow in each operation, and the longest run of them."""
    columns = demonstrations.operations
    counts, chains = np.zeros((2, len(columns["start"])), np.int32)
    _count_carries(
        columns["before"],
        columns["operand"],
        columns["operation"],
        demonstrations.config.base,
        counts,
        chains,
    )
    return counts, chains


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
class Coverage:
    """The part of the complete set of observations that occurs in a set of demonstrations."""

    seen: int
    complete: int

    @property
    def share(self) -> float:
        return self.seen / self.complete


def coverage_of(demonstrations: Demonstrations) -> Coverage | None:
    """Return the coverage, None if the complete set would take minutes to make."""
    config, variant = demonstrations.config, demonstrations.recipe.variant
    base, frames = config.base, config.frames
    if frames > MAX_FRAMES or not (
        base ** (frames + 4) <= _MAX_QUICK_SET
        or (is_known(base, frames, variant) and cache_path(base, frames, variant).exists())
    ):
        return None
    complete = complete_set(base, frames, variant)
    seen = np.zeros(len(complete), np.bool_)
    columns = demonstrations.transitions
    for start in range(0, len(demonstrations), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        index = complete.index(
            demonstrations.histories(rows), columns["symbol"][rows], columns["operation"][rows]
        )
        seen[index[index >= 0]] = True
    return Coverage(int(seen.sum()), len(complete))


def random_return(config: AbacusConfig, level: Reward = None, seed: int = 0) -> float:
    """Return the mean return of 1,000 episodes of random legal actions, at a reward level."""
    rng = np.random.default_rng(seed)
    config = config if level is None else replace(config, reward=level)
    batch = AbacusBatch(config, _RANDOM_EPISODES, autoreset=False)
    batch.reset(seed)
    returns = np.zeros(_RANDOM_EPISODES)
    running = np.ones(_RANDOM_EPISODES, np.bool_)
    while running.any():
        batch.step(np.argmax(rng.random(batch.masks.shape) * batch.masks, axis=1))
        returns[running] += batch.reward[running]
        running &= ~(batch.terminated | batch.truncated)
    return float(returns.mean())


def transition_table(demonstrations: Demonstrations) -> DataFrame:
    """Return a DataFrame of the transitions: names instead of codes, a column for each reward term.

    `action` is the action taken, `operation_row` the row of `operation_table`, `frame` the code of
    the observed frame, and `legal_...` the action mask.
    """
    import pandas as pd

    columns, lengths = demonstrations.transitions, demonstrations.episodes["length"]
    schema = {column.name: column for column in groups(demonstrations.config)["transitions"]}

    def words(name: str) -> pd.Categorical[str]:
        meanings = schema[name].meanings
        assert meanings is not None
        codes = columns[name].astype(np.int64) - schema[name].low
        return pd.Categorical.from_codes(codes, pd.Index(list(meanings.values())))

    steps = np.arange(len(demonstrations)) - np.repeat(demonstrations.episodes["start"], lengths)
    operations = np.arange(demonstrations.counts["operations"])
    table = {
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "step": steps,
        "operation_row": np.repeat(operations, demonstrations.operations["length"]),
        "frame": columns["frame"],
        "symbol": words("symbol"),
        "operation": words("operation"),
        "action": words("taken"),
        "expert_action": words("action"),
        "outcome": words("outcome"),
        "reward": demonstrations.rewards(),
        "terminated": columns["terminated"].astype(bool),
        "truncated": columns["truncated"].astype(bool),
    }
    terms, masks = demonstrations.terms(), demonstrations.masks()
    table |= {f"term_{name}": terms[:, k] for k, name in enumerate(TERMS)}
    table |= {f"legal_{action.name.lower()}": masks[:, action] for action in Action}
    return pd.DataFrame(table)


def episode_table(demonstrations: Demonstrations) -> DataFrame:
    """Return a DataFrame of the episodes, with their returns at every reward level."""
    import pandas as pd

    columns = demonstrations.episodes
    names = ("start", "length", "first_operation", "operations", "seed")
    ends = np.array([end.name.lower() for end in End])
    table = {name: columns[name] for name in names}
    table |= {"end": ends[columns["end"]], "validation": columns["validation"].astype(bool)}
    for level in LEVELS:
        rewards = demonstrations.rewards(level).astype(np.float64)
        table[f"return_{level}"] = np.add.reduceat(rewards, columns["start"])
    return pd.DataFrame(table)


def operation_table(demonstrations: Demonstrations) -> DataFrame:
    """Return a DataFrame of the operations, with their numbers in decimal."""
    import pandas as pd

    columns = demonstrations.operations
    carries, chains = count_carries(demonstrations)
    table = {name: columns[name] for name in ("episode", "start", "length")}
    table |= {
        "first_operand": demonstrations.numbers("before"),
        "sign": np.array(["+", "-"])[columns["operation"]],
        "second_operand": demonstrations.numbers("operand"),
        "result": demonstrations.numbers("after"),
        "carries": carries,
        "longest_chain": chains,
        "fresh": columns["fresh"].astype(bool),
    }
    return pd.DataFrame(table)
