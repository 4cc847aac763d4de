"""Tables of episodes and operations for pandas, an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from abacus.reward import LEVELS
from abacus.rules import End
from abacus.tasks import value_of
from oracle.demos.schema import Array
from oracle.demos.statistics import carries_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from oracle.demos.read import Demonstrations


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


def values_of(digits: Array, base: int) -> Array:
    """Rows of digits, least significant first, as numbers; Python's own where they are long."""
    if base ** digits.shape[1] < 2**63:
        return digits.astype(np.int64) @ base ** np.arange(digits.shape[1], dtype=np.int64)
    values = np.empty(len(digits), object)
    values[:] = [value_of(row, base) for row in digits]
    return values
