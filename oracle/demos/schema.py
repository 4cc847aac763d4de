"""The format of a demonstrations file: groups of columns, lookup tables, attributes.

Columns are flat, over transitions, episodes and operations. Two of them hold codes into tables that
the file includes: a frame code gives its pixels, and an action with its outcome gives the reward
terms at every level. A transition takes eleven bytes before compression, where its pixels alone
would take 24 in base 5.

Since version 3 the file explains itself: every group and dataset has attributes that say what it
holds, in which unit, or what its codes stand for (`attributes_of`). `datasets/README.md` is the
page for readers. Versions 1 (random operations) and 2 (given tasks) have the same columns without
these attributes, and are still read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.observation import frame_codes, frame_pixels, observation_lengths
from abacus.reward import LEVELS, MODULES, OUTCOMES, TERMS, terms_of
from abacus.rules import AbacusConfig, Action, End

FORMAT_NAME = "virtual-abacus-demonstrations"
FORMAT_VERSION = 3
#: Versions that are still read: without descriptions, of random operations and of given tasks.
OLD_VERSION, OLD_TASKS_VERSION = 1, 2
FORMAT_VERSIONS = (OLD_VERSION, OLD_TASKS_VERSION, FORMAT_VERSION)
KNOWN_VERSIONS = ", ".join(map(str, FORMAT_VERSIONS[:-1])) + f" or {FORMAT_VERSION}"

#: Pixels are multiples of a quarter, rewards and their terms of a twentieth.
PIXEL_SCALE = 0.25
REWARD_SCALE = 0.05
#: The attribute with the scale of a dataset of integers.
SCALE = "scale"
#: The attribute in prose, which may be worded differently in files of the same version.
DESCRIPTION = "description"
#: The path of the table of frames.
FRAMES = "tables/frame"

#: Episodes 1, 11, 21, ... are for validation: any set of two or more episodes has both parts, and
#: the parts of a smaller set are contained in those of a larger one.
SPLIT_EVERY, SPLIT_FIRST = 10, 1

#: Attributes of the root: JSON each, except the seed, which is a number.
_FACTS = (
    "format",
    "config",
    "algorithm",
    "seed",
    "request",
    "counts",
    "split",
    "digest",
    "command",
    "libraries",
)
#: Plain texts of the root, for a reader who has nothing but the file.
TEXTS = {
    "description": (
        "Demonstrations of exact addition and subtraction on a virtual abacus. The demonstrator is "
        "the expert, which is the reference algorithm, or a trained policy: algorithm says which. "
        "Each row of transitions is a step of the demonstrator, which sees two "
        "columns of the abacus and one symbol at a time and chooses among eight actions. Rows of "
        "operations are sums and differences, rows of episodes are sequences of them. Every group "
        "and dataset has a description; a dataset has a unit, or values: the meaning of its codes. "
        "axes names its axes, labels their entries. Integers with a scale are to be multiplied by "
        "it. Texts that start with { or [ are JSON. Of the root, config is the configuration of "
        "the environment, algorithm the variant of the expert and the probability of a detour, or "
        "the digest of the policy's weights and the reward level by whose rules it solved all, "
        "request what was asked for, digest the SHA-256 of the content, command the command line, "
        "generator and libraries the software that recorded the file."
    ),
    "license": "MIT",
    "citation": (
        "Virtual abacus: how much supervision does an agent need to learn an exact algorithm? By "
        "The virtual-abacus authors. The task is that of F. Petruzzellis, L. X. Chen and "
        "A. Testolin, Learning to solve arithmetic problems with a virtual abacus, Proceedings of "
        "the Northern Lights Deep Learning Workshop, 2023, doi:10.7557/18.6805."
    ),
    "schema": (
        f"{FORMAT_NAME} version {FORMAT_VERSION}: datasets/README.md#tree in the source of "
        "virtual-abacus"
    ),
}
#: The name of the attribute with the software that recorded a file, in old versions and now.
OLD_GENERATOR, GENERATOR = "code", "generator"


def root_attributes(version: int) -> tuple[str, ...]:
    """Return the names of the attributes of the root in a version of the format."""
    if version in (OLD_VERSION, OLD_TASKS_VERSION):
        return (*_FACTS, OLD_GENERATOR)
    return (*TEXTS, *_FACTS, GENERATOR)


Array = npt.NDArray[Any]
#: The columns of one group, and of all groups.
Columns = Mapping[str, Array]
Groups = Mapping[str, Columns]
#: Attributes of a group or dataset.
Attributes = Mapping[str, Any]


class DemonstrationsError(ValueError):
    """A file that holds no demonstrations, or that was changed since it was recorded."""


@dataclass(frozen=True)
class Column:
    """A dataset with one row for each transition, episode or operation.

    Values are in [`low`, `stop`). They have a `unit`, or are codes whose meanings `meanings` gives.
    `width` names the setting that gives the length of a row, if rows are arrays. `index_of` names
    the group whose rows the values count, if they are row indices. `table` is the path of the table
    in which they are looked up.
    """

    name: str
    dtype: np.dtype[np.generic]
    low: int
    stop: int
    description: str
    unit: str | None = None
    meanings: Mapping[int, str] | None = None
    width: str | None = None
    index_of: str | None = None
    table: str | None = None
    scale: float | None = None

    def row_shape(self, config: AbacusConfig) -> tuple[int, ...]:
        return () if self.width is None else (getattr(config, self.width),)

    def attributes(self, group: str) -> Attributes:
        """Return the attributes of the dataset, in the group that it belongs to."""
        axes = [group.removesuffix("s")]
        if self.width is not None:
            axes.append("digit, least significant first")
        attributes: dict[str, Any] = {DESCRIPTION: self.description, "axes": axes}
        if self.meanings is not None:
            attributes["values"] = {str(code): text for code, text in self.meanings.items()}
        else:
            attributes["unit"] = self.unit or f"row of {self.index_of or self.table}"
        if self.table is not None:
            attributes["table"] = self.table
        if self.scale is not None:
            attributes[SCALE] = self.scale
        return attributes


@lru_cache(maxsize=64)
def groups(config: AbacusConfig) -> dict[str, tuple[Column, ...]]:
    """Return the columns of each group."""
    codes, many = frame_codes(config.base), 2**62
    byte, signed = np.dtype("u1"), np.dtype("i1")
    code, number, index = np.dtype("<u2"), np.dtype("<i4"), np.dtype("<i8")
    actions = {int(action): action.words for action in Action}
    digits = [str(digit) for digit in range(config.base)]
    symbols = dict(enumerate([*digits, "+", "-"]))
    operations = {0: "addition", 1: "subtraction"}
    no_yes = {0: "no", 1: "yes"}
    ends = {int(end): end.name.lower().replace("_", " ") for end in End if end != End.NONE}

    def frame(name: str, description: str) -> Column:
        return Column(name, code, 0, codes, description, table=FRAMES)

    def coded(name: str, meanings: Mapping[int, str], description: str) -> Column:
        low, stop = min(meanings), max(meanings) + 1
        return Column(name, signed if low < 0 else byte, low, stop, description, meanings=meanings)

    def start(name: str, of: str, description: str) -> Column:
        return Column(name, index, 0, many, description, index_of=of)

    def length(name: str, unit: str, description: str) -> Column:
        return Column(name, number, 1, 2**31, description, unit=unit)

    def number_of_digits(name: str, width: str, description: str) -> Column:
        return Column(name, byte, 0, config.base, description, "digit", width=width)

    return {
        "transitions": (
            frame("frame", "The frame that the demonstrator observes, not stacked."),
            coded("symbol", symbols, "The observed symbol: a digit of the operand or a sign."),
            coded("operation", operations, "The current operation."),
            coded(
                "action", actions, "The demonstrator's action in this state: the label to clone."
            ),
            coded(
                "taken",
                actions,
                "The action taken, which outcome, reward and the next row follow from: the "
                "demonstrator's, or, of the expert, another one as a detour.",
            ),
            Column(
                "mask",
                byte,
                0,
                256,
                "The legal actions: the sum of their values, which are powers of two. An action "
                "is illegal at an edge, and if it would change nothing.",
                meanings={2**action: words for action, words in actions.items()},
            ),
            coded(
                "outcome",
                {-1: "wrong", 0: "neither", 1: "right"},
                "The outcome of the action taken. With the action it gives the reward terms at "
                "every level, in tables/terms.",
            ),
            Column(
                "reward",
                signed,
                -128,
                128,
                "The reward of the action taken, at the level or of the modules in the setting "
                "reward of config.",
                "reward",
                scale=REWARD_SCALE,
            ),
            coded("terminated", no_yes, "Whether the rules ended the episode after this step."),
            coded("truncated", no_yes, "Whether a limit ended the episode after this step."),
        ),
        "episodes": (
            start("start", "transitions", "The first transition of the episode."),
            length("length", "transitions", "The number of transitions of the episode."),
            start("first_operation", "operations", "The first operation of the episode."),
            length("operations", "operations", "The number of operations of the episode."),
            Column(
                "seed",
                index,
                0,
                many,
                "The seed with which the environment draws the same operations, if they are "
                "random.",
                "seed",
            ),
            coded(
                "end",
                ends,
                "Why the episode ended. capacity: the next operation would not fit on the abacus; "
                "expression: the given task is complete; limit: the limit of operations was met. "
                "The others are mistakes or too many steps, which a demonstrator does not make.",
            ),
            coded("validation", no_yes, "Whether the episode is for validation, not training."),
            frame("final_frame", "The frame after the last action."),
            coded("final_symbol", symbols, "The symbol after the last action."),
            coded("final_operation", operations, "The operation after the last action."),
        ),
        "operations": (
            start("start", "transitions", "The first transition of the operation."),
            length(
                "length",
                "transitions",
                "The number of transitions, up to the submit of the reset that closes the "
                "operation.",
            ),
            start("episode", "episodes", "The episode of the operation."),
            coded("operation", operations, "The kind of the operation."),
            coded(
                "fresh",
                no_yes,
                "Whether the stack of frames and the previous action start over: at the first "
                "operation of an episode and after a reload of the abacus.",
            ),
            number_of_digits("operand", "max_digits", "The number that is added or subtracted."),
            number_of_digits("before", "columns", "The number on the abacus before."),
            number_of_digits("after", "columns", "The number on the abacus after: the result."),
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
    description: str
    unit: str
    #: The entries of each axis; empty for the axis of the codes.
    axes: Mapping[str, Sequence[str]]
    modules: Mapping[str, Sequence[str]] | None = None

    def attributes(self) -> Attributes:
        """Return the attributes of the dataset."""
        labels = {axis: list(entries) for axis, entries in self.axes.items() if entries}
        attributes = {
            DESCRIPTION: self.description,
            "axes": list(self.axes),
            "labels": labels,
            "unit": self.unit,
            SCALE: self.scale,
        }
        return attributes if self.modules is None else attributes | {"modules": self.modules}


def tables(config: AbacusConfig) -> dict[str, Table]:
    """Return the tables of a file by their path."""
    pixels = np.rint(frame_pixels(config.base) / PIXEL_SCALE).astype(np.uint8)
    terms = np.stack([_in_twentieths(terms_of(every_outcome(), level)) for level in LEVELS])
    return {
        FRAMES: Table(
            pixels.reshape(-1, *config.frame_shape),
            PIXEL_SCALE,
            "The pixels of every frame. Beads are 1, the gap of a column is 0 and stands in the "
            "row of its digit; a column left of the first one is all 0. The top row of the beads "
            "is 0.25, 0.5 or 0.75 by the column modulo 3. On the other plane the finger's row is "
            "1, and the top row of the signpost's column.",
            "brightness from 0 to 1",
            {
                "frame": (),
                "plane": ("beads", "finger and signpost"),
                "column": ("left of the finger", "the finger's"),
                "row": ("top", *(f"row {row}" for row in range(config.base))),
            },
        ),
        "tables/terms": Table(
            terms,
            REWARD_SCALE,
            "The reward terms of a step, by level, action taken and outcome; their sum is the "
            "reward at that level. The modules of a level decide which terms it pays: step, -0.05 "
            "each step; finger, +0.1 closer to where the algorithm wants the finger and -0.1 away "
            "from it; signpost, slide and submit, +1 for a right one; a module wrong_..., -1 for a "
            "wrong one, which ends the episode.",
            "reward",
            {
                "level": tuple(LEVELS),
                "action": tuple(action.words for action in Action),
                "outcome": ("wrong", "neither", "right"),
                "term": TERMS,
            },
            {
                level: [name for name in MODULES if name in modules]
                for level, modules in LEVELS.items()
            },
        ),
    }


def attributes_of(config: AbacusConfig) -> dict[str, Attributes]:
    """Return the attributes of every group and dataset by path.

    A float is stored as a number, a text as it is, anything else as JSON. All but the descriptions
    must be found in a file as they are here.
    """
    shapes = {key: [length] for key, length in observation_lengths(config).items()}
    shapes["window"] = list(config.window_shape)
    found: dict[str, Attributes] = {
        "transitions": {
            DESCRIPTION: (
                "A row for each step, in order. The observation before the step has four entries "
                "of floating-point numbers, whose shapes the attribute observation gives. window: "
                "the last frames, oldest first, each looked up in tables/frame; where the stack of "
                "frames starts over, at the start of an operation that is fresh, the first frame "
                "of the stack stands for those before it. symbol: one-hot. operation: 0 or 1. "
                "previous_action: one-hot, the action taken in the row before, all 0 where the "
                "stack starts over."
            ),
            "observation": shapes,
        },
        "episodes": {
            DESCRIPTION: (
                "A row for each episode. An episode of T transitions has T + 1 observations: the "
                "last one, after the last action, continues the stack of frames with final_frame "
                "and has final_symbol and final_operation."
            )
        },
        "operations": {
            DESCRIPTION: "A row for each addition or subtraction: before +- operand = after."
        },
        "tables": {DESCRIPTION: "Tables in which codes of the other groups are looked up."},
    }
    for group, column in every_column(config):
        found[f"{group}/{column.name}"] = column.attributes(group)
    for path, table in tables(config).items():
        found[path] = table.attributes()
    return found


def every_outcome() -> npt.NDArray[np.int8]:
    """Return the outcomes of a step for every action and outcome, (8, 3, OUTCOMES).

    The second axis is the outcome plus 1. An action decides which of the outcomes of a step is
    judged; the others are 0.
    """
    from abacus.kernel import OUTCOME_OF_ACTION  # names and limits are read without compiled code

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
