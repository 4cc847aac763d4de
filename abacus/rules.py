"""Actions, ends, and the configuration of an abacus; `abacus.kernel` implements the rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, get_args

from abacus.checks import as_integer, check_choice, check_integer, not_allowed, shorten
from abacus.reward import LEVELS, MODULES, modules_of
from abacus.tasks import Operation, Task, digit_count, parse_expression

#: Columns of the window: the finger's and the one left of it.
WINDOW_COLUMNS = 2
#: Planes of a frame: the beads; the finger and the signpost.
WINDOW_PLANES = 2
#: Period of the positional encoding 0.25, 0.5, 0.75.
ENCODING_PERIOD = 3
#: The paper's step budget, at the start and for each right slide, on its ten columns.
PAPER_STEP_BUDGET = 32
PAPER_COLUMNS = 10
#: Codes of the operations.
ADD, SUBTRACT = 0, 1


class NamedInteger(IntEnum):
    """Integer constants with names for readers."""

    @property
    def words(self) -> str:
        """The name in words: `signpost left`."""
        return self.name.lower().replace("_", " ")


class Action(NamedInteger):
    """The actions of the agent."""

    LEFT = 0
    RIGHT = 1
    UP = 2
    DOWN = 3
    SIGNPOST_LEFT = 4
    SIGNPOST_RIGHT = 5
    SLIDE = 6
    SUBMIT = 7


class End(IntEnum):
    """The reasons why an episode ends."""

    NONE = 0
    WRONG_SIGNPOST = 1
    WRONG_SLIDE = 2
    WRONG_SUBMIT = 3
    BUDGET = 4
    CAPACITY = 5
    EXPRESSION = 6
    LIMIT = 7


#: Ends that are truncations; the others are terminations.
TRUNCATING_ENDS = (End.BUDGET, End.LIMIT)

Operations = Literal["both", "add", "subtract"]
OnError = Literal["terminate", "continue"]
START_RANDOM = "random"


@dataclass(frozen=True)
class AbacusConfig:
    """The configuration of an abacus; see `abacus.env.AbacusEnv`. Impossible values raise."""

    columns: int = 10
    base: int = 5
    max_digits: int = 6
    frames: int = 3
    operations: Operations = "both"
    reward: str | tuple[str, ...] = "dense"
    on_error: OnError = "terminate"
    start: int | Literal["random"] = 0
    expression: str | None = None
    max_operations: int | None = None

    MAX_COLUMNS = 1_000_000
    MAX_FRAMES = 16

    def __post_init__(self) -> None:
        self._set_integer("columns", 2, self.MAX_COLUMNS)
        self._set_integer("base", 2, 10)
        if self.expression is None:
            self._set_integer("max_digits", 1, self.columns - 1, f"below columns={self.columns}")
        else:
            self._set_integer("max_digits", 1, self.MAX_COLUMNS)
        self._set_integer("frames", 1, self.MAX_FRAMES)
        if self.max_operations is not None:
            self._set_integer("max_operations", 1, 2**31 - 1)
        check_choice("operations", self.operations, get_args(Operations))
        check_choice("on_error", self.on_error, get_args(OnError))
        self._set_reward()
        self._set_start()
        self._check_expression()

    def _set_integer(self, name: str, low: int, high: int, reason: str = "") -> None:
        number = check_integer(name, getattr(self, name), low, high, reason=reason)
        object.__setattr__(self, name, number)

    def _set_reward(self) -> None:
        """Keep the name of a level; turn a choice of modules into an ordered tuple."""
        modules = modules_of(self.reward)
        if not isinstance(self.reward, str) or self.reward not in LEVELS:
            object.__setattr__(self, "reward", tuple(name for name in MODULES if name in modules))

    def _set_start(self) -> None:
        if isinstance(self.start, str) and self.start == START_RANDOM:
            if self.expression is not None:
                raise ValueError(
                    "start='random' is not allowed with an expression: give its starting value"
                )
            return
        number = as_integer(self.start)
        if number is None or number < 0:
            raise not_allowed("start", self.start, "an integer of 0 or more, or 'random'")
        object.__setattr__(self, "start", number)
        self._check_room(number)

    def _check_room(self, start: int) -> None:
        if start >= self.capacity:
            raise ValueError(
                f"start={shorten(start)} does not fit on {self.columns} columns in base "
                f"{self.base}: give a value below {self.base}**{self.columns}"
            )
        if (
            self.expression is None
            and self.operations == "add"
            and start + self.base**self.max_digits > self.capacity
        ):
            raise ValueError(
                f"start={shorten(start)} leaves no room for an addition of {self.max_digits} "
                f"digits: give at most {self.base}**{self.columns} - {self.base}**{self.max_digits}"
            )

    def _check_expression(self) -> None:
        if self.expression is None:
            return
        if not isinstance(self.expression, str):
            raise not_allowed("expression", self.expression, "text such as '3+4-2'")
        self._check_operations(int(self.start), self.program, "expression", self.expression)

    def check_task(self, task: Task) -> None:
        """Raise ValueError for a task that leaves the abacus or has operands that are too long."""
        if task.start >= self.capacity:
            raise ValueError(
                f"task value {shorten(task.start)} does not fit: give a value below "
                f"{self.base}**{self.columns}"
            )
        self._check_operations(task.start, task.operations, "task", task)

    def _check_operations(
        self, start: int, operations: tuple[Operation, ...], name: str, text: object
    ) -> None:
        """Raise ValueError unless the running value of operations stays on the abacus."""
        value = start
        too_long = self.capacity // self.base
        for operation in operations:
            if operation.operand >= too_long:
                raise ValueError(
                    f"{name} operand {shorten(operation.operand)} has too many digits: give "
                    f"operands of at most {self.columns - 1} digits in base {self.base} "
                    f"(below columns={self.columns})"
                )
            value += operation.sign * operation.operand
            if value < 0:
                raise ValueError(
                    f"{name} {shorten(str(text))} goes below zero at "
                    f"{operation.symbol}{shorten(operation.operand)}: give one whose running "
                    f"value, from start={shorten(start)}, stays at 0 or more"
                )
            if value >= self.capacity:
                raise ValueError(
                    f"{name} {shorten(str(text))} reaches {shorten(value)}, which does "
                    f"not fit: give one whose running value stays below {self.base}**{self.columns}"
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AbacusConfig:
        """Return the configuration of a mapping such as `to_dict` returns."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(f"{name!r} is not a setting: give some of {', '.join(known)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON."""
        values = asdict(self)
        if isinstance(self.reward, tuple):
            values["reward"] = list(self.reward)
        return values

    @cached_property
    def capacity(self) -> int:
        """The smallest value that the abacus cannot show."""
        capacity: int = self.base**self.columns
        return capacity

    @cached_property
    def program(self) -> tuple[Operation, ...]:
        """The operations of the expression; empty if operations are drawn."""
        return () if self.expression is None else parse_expression(self.expression)

    @property
    def modules(self) -> frozenset[str]:
        """The active reward modules."""
        return modules_of(self.reward)

    @property
    def symbols(self) -> int:
        """Length of the one-hot symbol: the digits, plus and minus."""
        return self.base + 2

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Shape (planes, columns, rows) of a frame; row 0 holds the encoding and the signpost."""
        return (WINDOW_PLANES, WINDOW_COLUMNS, self.base + 1)

    @property
    def window_shape(self) -> tuple[int, int, int, int]:
        """Shape (frames, planes, columns, rows) of `window`, which is flat in the observation."""
        return (self.frames, *self.frame_shape)

    @property
    def longest_operand(self) -> int:
        """Number of digits of the longest possible operand."""
        if not self.program:
            return self.max_digits
        return max(digit_count(operation.operand, self.base) for operation in self.program)

    @property
    def step_budget(self) -> int:
        """Steps granted at the start, for each right slide and for each right reset.

        The paper's 32 on ten columns, in proportion on wider ones, and never less than the
        longest path of the reference algorithm between two of these grants: after a carry to the
        last column, back to the second, over zeros to the leading digit, and up or down.
        """
        return self.step_budget_for(self.longest_operand)

    def step_budget_for(self, longest_operand: int) -> int:
        """Return the step budget if the longest operand has this number of digits."""
        proportional = math.ceil(PAPER_STEP_BUDGET * self.columns / PAPER_COLUMNS)
        to_leading_digit = 3 * longest_operand + self.base - 3
        after_carry = to_leading_digit + self.columns - 3
        to_reset = self.columns + longest_operand
        return max(PAPER_STEP_BUDGET, proportional, to_leading_digit, after_carry, to_reset)
