"""The format of a demonstrations file: groups of columns, lookup tables, attributes.

Columns are flat, over transitions, episodes and operations; `datasets/README.md` explains each.
Two of them hold codes into tables that the file includes: a frame code gives its pixels, and an
action with its outcome gives the reward terms at every level. A transition takes eleven bytes
before compression, where its pixels alone would take 24 in base 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.kernel import OUTCOME_OF_ACTION
from abacus.observation import frame_codes, frame_pixels
from abacus.reward import LEVELS, OUTCOMES, terms_of
from abacus.rules import AbacusConfig, Action, End

FORMAT_NAME = "virtual-abacus-demonstrations"
FORMAT_VERSION = 1
#: The version of a file of given tasks: `request` has one more key, and the tasks are the episodes.
TASKS_FORMAT_VERSION = 2
FORMAT_VERSIONS = (FORMAT_VERSION, TASKS_FORMAT_VERSION)
KNOWN_VERSIONS = " or ".join(map(str, FORMAT_VERSIONS))

#: Pixels are multiples of a quarter, rewards and their terms of a twentieth.
PIXEL_SCALE = 0.25
REWARD_SCALE = 0.05
#: The attribute with the scale of a dataset of integers.
SCALE = "scale"

#: Episodes 1, 11, 21, ... are for validation: any set of two or more episodes has both parts, and
#: the parts of a smaller set are contained in those of a larger one.
SPLIT_EVERY, SPLIT_FIRST = 10, 1

#: The attributes of the root: JSON each, except the seed, which is a number.
ATTRIBUTES = (
    "format",
    "config",
    "algorithm",
    "seed",
    "request",
    "counts",
    "split",
    "digest",
    "command",
    "code",
    "libraries",
)

Array = npt.NDArray[Any]
#: The columns of one group, and of all groups.
Columns = Mapping[str, Array]
Groups = Mapping[str, Columns]


class DemonstrationsError(ValueError):
    """A file that holds no demonstrations, or that was changed since it was recorded."""


@dataclass(frozen=True)
class Column:
    """A dataset with one row for each transition, episode or operation.

    Values are in [`low`, `stop`). `width` names the setting that gives the length of a row, if rows
    are arrays. `index_of` names the group whose rows the values count, if they are row indices.
    """

    name: str
    dtype: np.dtype[np.generic]
    low: int
    stop: int
    width: str | None = None
    index_of: str | None = None

    def row_shape(self, config: AbacusConfig) -> tuple[int, ...]:
        return () if self.width is None else (getattr(config, self.width),)


@lru_cache(maxsize=64)
def groups(config: AbacusConfig) -> dict[str, tuple[Column, ...]]:
    """Return the columns of each group."""
    symbols, codes, many = config.symbols, frame_codes(config.base), 2**62
    byte, signed = np.dtype("u1"), np.dtype("i1")
    code, number, index = np.dtype("<u2"), np.dtype("<i4"), np.dtype("<i8")
    return {
        "transitions": (
            Column("frame", code, 0, codes),
            Column("symbol", byte, 0, symbols),
            Column("operation", byte, 0, 2),
            Column("action", byte, 0, len(Action)),
            Column("taken", byte, 0, len(Action)),
            Column("mask", byte, 0, 256),
            Column("outcome", signed, -1, 2),
            Column("reward", signed, -128, 128),
            Column("terminated", byte, 0, 2),
            Column("truncated", byte, 0, 2),
        ),
        "episodes": (
            Column("start", index, 0, many, index_of="transitions"),
            Column("length", number, 1, 2**31),
            Column("first_operation", index, 0, many, index_of="operations"),
            Column("operations", number, 1, 2**31),
            Column("seed", index, 0, many),
            Column("end", byte, 1, len(End)),
            Column("validation", byte, 0, 2),
            Column("final_frame", code, 0, codes),
            Column("final_symbol", byte, 0, symbols),
            Column("final_operation", byte, 0, 2),
        ),
        "operations": (
            Column("start", index, 0, many, index_of="transitions"),
            Column("length", number, 1, 2**31),
            Column("episode", index, 0, many, index_of="episodes"),
            Column("operation", byte, 0, 2),
            Column("fresh", byte, 0, 2),
            Column("operand", byte, 0, config.base, "max_digits"),
            Column("before", byte, 0, config.base, "columns"),
            Column("after", byte, 0, config.base, "columns"),
        ),
    }


def every_column(config: AbacusConfig) -> Iterator[tuple[str, Column]]:
    """Yield every column with the name of its group."""
    for group, columns in groups(config).items():
        for column in columns:
            yield group, column


@dataclass(frozen=True)
class Table:
    """A small dataset of integers in which codes are looked up."""

    values: Array
    scale: float


def tables(config: AbacusConfig) -> dict[str, Table]:
    """Return the tables of a file by their path."""
    pixels = np.rint(frame_pixels(config.base) / PIXEL_SCALE).astype(np.uint8)
    terms = np.stack([_in_twentieths(terms_of(every_outcome(), level)) for level in LEVELS])
    return {
        "tables/frame": Table(pixels.reshape(-1, *config.frame_shape), PIXEL_SCALE),
        "tables/terms": Table(terms, REWARD_SCALE),
    }


def every_outcome() -> npt.NDArray[np.int8]:
    """Return the outcomes of a step for every action and outcome, (8, 3, OUTCOMES).

    The second axis is the outcome plus 1. An action decides which of the outcomes of a step is
    judged; the others are 0.
    """
    outcomes = np.zeros((len(Action), 3, len(OUTCOMES)), np.int8)
    for action, judged in enumerate(OUTCOME_OF_ACTION.tolist()):
        outcomes[action, :, judged] = (-1, 0, 1)
    return outcomes


def reward_table(reward: str | tuple[str, ...]) -> npt.NDArray[np.int8]:
    """Return the scalar reward in twentieths, (actions, outcome + 1), of a level or of modules."""
    return _in_twentieths(terms_of(every_outcome(), reward).sum(axis=-1))


def outcome_index(taken: Array, outcome: Array) -> npt.NDArray[np.uint8]:
    """Return the flat index of actions and outcomes in a table of (actions, outcome + 1)."""
    index: npt.NDArray[np.uint8] = taken * np.uint8(3) + (outcome + np.int8(1)).view(np.uint8)
    return index


def _in_twentieths(rewards: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    rounded: npt.NDArray[np.int8] = np.rint(rewards / REWARD_SCALE).astype(np.int8)
    return rounded
