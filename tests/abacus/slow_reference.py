"""A second implementation of the rules: slow, obvious, and written only from the specification.

The package implements every rule once, in the compiled kernel. This module shares no code with it,
so that a misreading would have to be made twice before a comparison of the two could miss it.
Numbers are Python integers, everything is recomputed at every step, and only the configuration and
the names of actions and ends come from the package.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from abacus.rules import AbacusConfig, Action, End

FINGER_MOVES = {
    Action.LEFT: (-1, 0),
    Action.RIGHT: (1, 0),
    Action.UP: (0, -1),
    Action.DOWN: (0, 1),
}
SIGNPOST_MOVES = {Action.SIGNPOST_LEFT: -1, Action.SIGNPOST_RIGHT: 1}
ENDS_BY_RANK = (
    End.WRONG_SIGNPOST,
    End.WRONG_SLIDE,
    End.WRONG_SUBMIT,
    End.EXPRESSION,
    End.CAPACITY,
    End.LIMIT,
    End.BUDGET,
)
TRUNCATIONS = (End.LIMIT, End.BUDGET)
WRONG_ENDS = {
    "signpost": End.WRONG_SIGNPOST,
    "slide": End.WRONG_SLIDE,
    "submit": End.WRONG_SUBMIT,
}
OUTCOMES = ("finger", "signpost", "slide", "submit")
TERMS = ("step", "finger", "signpost", "slide", "submit", "wrong")
EVERY_MODULE = {
    *("step", "finger", "signpost", "slide", "submit"),
    *("wrong_signpost", "wrong_slide", "wrong_submit"),
}
LEVELS = {
    "dense": EVERY_MODULE,
    "no_of": EVERY_MODULE - {"finger"},
    "no_of_sp": {"step", "slide", "submit", "wrong_slide", "wrong_submit"},
    "no_of_sp_ms": {"step", "submit", "wrong_slide", "wrong_submit"},
    "answer_only": {"step", "submit", "wrong_submit"},
}
ADD, SUBTRACT = 0, 1


def modules_on(reward: str | tuple[str, ...]) -> set[str]:
    """Return the reward modules of a level, a tuple or a comma-joined text."""
    if not isinstance(reward, str):
        return set(reward)
    return set(LEVELS[reward]) if reward in LEVELS else set(reward.split(","))


def read_expression(text: str) -> list[tuple[int, int]]:
    """Return `"3+4-2"` as (operation, operand) pairs."""
    terms = text.replace(" ", "").replace("-", " -").replace("+", " +").split()
    return [(SUBTRACT if term[0] == "-" else ADD, abs(int(term))) for term in terms]


class SplitMix64:
    """The random stream of one abacus."""

    def __init__(self, seed: int | None) -> None:
        self.state = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        mixed = self.state
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        return mixed ^ (mixed >> 31)

    def below(self, n: int) -> int:
        return ((self.next() >> 32) * n) >> 32


class SlowAbacus:
    """One abacus that follows the specification literally, with its state in plain attributes."""

    def __init__(self, config: AbacusConfig) -> None:
        self.config = config
        self.base = config.base
        self.columns = config.columns
        #: The value of each column; the last entry is the first value that does not fit.
        self.worth: list[int] = [config.base**column for column in range(config.columns + 1)]
        self.modules = modules_on(config.reward)
        self.program = None if config.expression is None else read_expression(config.expression)
        self.start = config.start
        self.step_budget = config.step_budget
        self.tasks: list[tuple[int, str]] = []
        self.stream = SplitMix64(None)

    def give_tasks(self, tasks: list[tuple[int, str]], weights: list[int], share: float) -> None:
        """Draw new episodes from (starting value, expression) pairs; replaces earlier ones."""
        self.tasks, self.weights, self.share = tasks, weights, share
        operands = [operand for _, text in tasks for _, operand in read_expression(text)]
        if any(operand >= self.worth[self.config.max_digits] for operand in operands):
            self.step_budget = replace(
                self.config, max_digits=self.columns - 1, start=0
            ).step_budget

    def choose_task(self) -> None:
        """Draw whether the episode is a task, and which."""
        #: The number of the task, None in a random episode.
        self.task: int | None = None
        self.start = self.config.start
        if self.config.expression is not None:
            return
        self.program = None
        if not self.tasks or self.share == 0 or self.stream.below(2**32) >= self.share * 2**32:
            return
        number = self.stream.below(2**32)
        for k in range(len(self.tasks)):
            if number * sum(self.weights) < sum(self.weights[: k + 1]) * 2**32:
                self.task = k
                self.start, text = self.tasks[k]
                self.program = read_expression(text)
                return

    def reset(self, seed: int | None = None) -> None:
        if seed is not None:
            self.stream = SplitMix64(seed)
        self.choose_task()
        self.steps = 0
        self.budget = self.step_budget
        self.operations_done = 0
        self.operations_solved = 0
        self.illegal_actions = 0
        self.reloads = 0
        self.previous_action: Action | None = None
        self.operations_begun = 0
        self.frames: list[npt.NDArray[np.float32]] = []
        self.digits = self.starting_digits()
        self.finger_column = self.finger_row = self.signpost = 0
        self.announce_operation()
        self.begin_operation()
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.terms = dict.fromkeys(TERMS, 0.0)
        self.reward = 0.0
        self.illegal = False
        self.ends_met: set[End] = set()
        self.conclude()
        self.look()

    def step(self, action: int) -> None:
        action = Action(action)
        self.illegal = not self.mask[action]
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.ends_met = set()
        self.steps += 1
        self.previous_action = action
        if self.illegal:
            self.illegal_actions += 1
        elif action in FINGER_MOVES:
            self.move_finger(*FINGER_MOVES[action])
        elif action in SIGNPOST_MOVES:
            self.move_signpost(SIGNPOST_MOVES[action])
        elif action == Action.SLIDE:
            self.slide()
        else:
            self.submit()
        if self.steps >= self.budget:
            self.ends_met.add(End.BUDGET)
        self.pay()
        self.conclude()
        self.look()

    def digit_of(self, value: int, column: int) -> int:
        return value // self.worth[column] % self.base

    def value_of(self, digits: list[int]) -> int:
        return sum(digit * self.worth[column] for column, digit in enumerate(digits))

    def digits_of(self, value: int, length: int) -> list[int]:
        return [self.digit_of(value, column) for column in range(length)]

    def shortest_digits_of(self, value: int) -> list[int]:
        length = 1
        while value >= self.worth[length]:
            length += 1
        return self.digits_of(value, length)

    def shown(self) -> int:
        return self.value_of(self.digits)

    def shows(self, value: int, last_column: int) -> bool:
        """Return whether columns 0 to `last_column` show the value."""
        target = self.digits_of(value, last_column + 1)
        return self.digits[: last_column + 1] == target

    def whole_abacus_shows(self, value: int) -> bool:
        return self.shows(value, self.columns - 1)

    @property
    def on_operation_symbol(self) -> bool:
        return self.digit_index == -1

    @property
    def symbol(self) -> int:
        if self.on_operation_symbol:
            return self.base + self.operation
        return self.operand[self.digit_index]

    def result_after(self, digit_count: int) -> int:
        """Return the first operand plus or minus the first digits of the operand."""
        partial_operand = self.value_of(self.operand[:digit_count])
        if self.operation == ADD:
            return self.first_operand + partial_operand
        return self.first_operand - partial_operand

    def partial_result(self) -> int:
        return self.result_after(self.digit_index + 1)

    def starting_digits(self) -> list[int]:
        if self.start == "random":
            return self.digits_of(self.value_of(self.drawn_number()), self.columns)
        return self.digits_of(int(self.start), self.columns)

    def drawn_number(self) -> list[int]:
        length = 1 + self.stream.below(self.config.max_digits)
        return self.drawn_digits(length)

    def drawn_digits(self, length: int) -> list[int]:
        lower = [self.stream.below(self.base) for _ in range(length - 1)]
        return [*lower, 1 + self.stream.below(self.base - 1)]

    def announce_operation(self) -> None:
        """Show the symbol of the next operation, which fixes its first operand."""
        self.digit_index = -1
        self.first_operand = self.shown()
        if self.program is None:
            self.draw_operation()
        elif self.program_is_over():
            self.operation, self.operand = ADD, []
        else:
            self.operation, operand = self.program[self.operations_begun]
            self.operand = self.shortest_digits_of(operand)

    def draw_operation(self) -> None:
        self.operand = self.drawn_number()
        if self.config.operations == "add":
            self.operation = ADD
        elif self.config.operations == "subtract":
            self.operation = SUBTRACT
        else:
            self.operation = SUBTRACT if self.stream.below(2) == 1 else ADD
            if self.operation == SUBTRACT and self.goes_below_zero():
                self.operation = ADD
            elif self.operation == ADD and self.operations_begun == 0 and self.overflows():
                self.operation = SUBTRACT

    def goes_below_zero(self) -> bool:
        return self.value_of(self.operand) > self.first_operand

    def overflows(self) -> bool:
        return self.first_operand + self.value_of(self.operand) >= self.worth[self.columns]

    def program_is_over(self) -> bool:
        return self.program is not None and self.operations_begun == len(self.program)

    def leaves_the_abacus(self) -> bool:
        if self.operation == ADD:
            return self.overflows()
        return self.program is not None and self.goes_below_zero()

    def begin_operation(self) -> None:
        """Show the first digit of the announced operation."""
        if self.program is None and self.operation == SUBTRACT and self.goes_below_zero():
            self.reload()
        self.operations_begun += 1
        self.digit_index = 0
        self.every_submit_was_right = True

    def reload(self) -> None:
        self.digits = self.drawn_digits(self.columns)
        self.first_operand = self.shown()
        self.finger_column = self.finger_row = self.signpost = 0
        self.frames = []
        self.previous_action = None
        self.reloads += 1

    @property
    def mask(self) -> list[bool]:
        return [
            self.finger_column > 0,
            self.finger_column < self.columns - 1,
            self.finger_row > 0,
            self.finger_row < self.base - 1,
            self.signpost > 0,
            self.signpost < self.columns - 1,
            self.digits[self.finger_column] != self.finger_row,
            True,
        ]

    def move_finger(self, columns: int, rows: int) -> None:
        goal_column, goal_row = self.where_the_finger_belongs()
        before = self.finger_distance(goal_column, goal_row)
        self.finger_column += columns
        self.finger_row += rows
        after = self.finger_distance(goal_column, goal_row)
        if after < before:
            self.outcomes["finger"] = 1
        elif after > before:
            self.outcomes["finger"] = -1

    def where_the_finger_belongs(self) -> tuple[int, int | None]:
        """Return a column, and a row or None for any row."""
        if self.on_operation_symbol:
            return 0, None
        j = self.digit_index
        result = self.digits_of(self.partial_result(), self.columns)
        wrong_columns = [k for k in range(self.columns) if self.digits[k] != result[k]]
        if wrong_columns:
            lowest = wrong_columns[0]
            if lowest <= j or self.signpost == j:
                return lowest, result[lowest]
        if self.signpost != j:
            return j, None
        return j + 1, None

    def finger_distance(self, column: int, row: int | None) -> int:
        rows = 0 if row is None else abs(self.finger_row - row)
        return abs(self.finger_column - column) + rows

    def where_the_signpost_belongs(self) -> int:
        return 0 if self.on_operation_symbol else self.digit_index

    def move_signpost(self, columns: int) -> None:
        goal = self.where_the_signpost_belongs()
        before = abs(self.signpost - goal)
        self.signpost += columns
        self.judge("signpost", abs(self.signpost - goal) < before)

    def slide(self) -> None:
        self.digits[self.finger_column] = self.finger_row
        right = not self.on_operation_symbol and self.shows(
            self.partial_result(), self.finger_column
        )
        self.judge("slide", right)
        if right:
            self.budget += self.step_budget

    def submit(self) -> None:
        right = self.signpost == self.where_the_signpost_belongs()
        if not self.on_operation_symbol:
            right = right and self.whole_abacus_shows(self.partial_result())
        self.judge("submit", right)
        self.every_submit_was_right = self.every_submit_was_right and right
        if self.on_operation_symbol:
            self.finish_operation(right)
        elif not self.ends_met:
            self.leave_digit()

    def leave_digit(self) -> None:
        if self.digit_index + 1 < len(self.operand):
            self.digit_index += 1
        else:
            self.result_to_reach = self.partial_result()
            self.announce_operation()

    def finish_operation(self, reset_was_right: bool) -> None:
        self.operations_done += 1
        if self.every_submit_was_right and self.whole_abacus_shows(self.result_to_reach):
            self.operations_solved += 1
        if reset_was_right:
            self.budget += self.step_budget
        if self.program_is_over():
            self.ends_met.add(End.EXPRESSION)
        if self.leaves_the_abacus():
            self.ends_met.add(End.CAPACITY)
        if self.operations_done == self.config.max_operations:
            self.ends_met.add(End.LIMIT)
        if not self.ends_met:
            self.begin_operation()

    def judge(self, what: str, right: bool) -> None:
        self.outcomes[what] = 1 if right else -1
        costs = f"wrong_{what}" in self.modules
        if not right and costs and self.config.on_error == "terminate":
            self.ends_met.add(WRONG_ENDS[what])

    def pay(self) -> None:
        right = {name: float(outcome == 1) for name, outcome in self.outcomes.items()}
        wrong = {name: float(outcome == -1) for name, outcome in self.outcomes.items()}
        on = {name: float(name in self.modules) for name in EVERY_MODULE}
        self.terms = {
            "step": -0.05 * on["step"],
            "finger": 0.10 * on["finger"] * self.outcomes["finger"],
            "signpost": on["signpost"] * right["signpost"],
            "slide": on["slide"] * right["slide"],
            "submit": on["submit"] * right["submit"],
            "wrong": -on["wrong_signpost"] * wrong["signpost"]
            - on["wrong_slide"] * wrong["slide"]
            - on["wrong_submit"] * wrong["submit"],
        }
        self.reward = sum(self.terms.values())

    def conclude(self) -> None:
        ends = [end for end in ENDS_BY_RANK if end in self.ends_met]
        self.end = ends[0] if ends else End.NONE
        self.truncated = self.end in TRUNCATIONS
        self.terminated = self.end != End.NONE and not self.truncated

    def look(self) -> None:
        """Add the current frame; fill all frames with it if there are none."""
        frame = self.frame()
        wanted = self.config.frames
        self.frames = [*self.frames, frame][-wanted:] if self.frames else [frame] * wanted
        self.observation = {
            "window": np.concatenate(self.frames, axis=None),
            "symbol": self.one_hot(self.symbol, self.base + 2),
            "operation": np.array([self.operation], dtype=np.float32),
            "previous_action": self.one_hot(self.previous_action, len(Action)),
        }

    def frame(self) -> npt.NDArray[np.float32]:
        """Return the frame (plane, column, row) at the finger."""
        frame = np.zeros((2, 2, self.base + 1), dtype=np.float32)
        for side, column in enumerate((self.finger_column - 1, self.finger_column)):
            if column == -1:
                continue
            frame[0, side, 0] = (0.25, 0.5, 0.75)[column % 3]
            frame[0, side, 1:] = 1
            frame[0, side, 1 + self.digits[column]] = 0
            if column == self.signpost:
                frame[1, side, 0] = 1
        frame[1, 1, 1 + self.finger_row] = 1
        return frame

    def one_hot(self, index: int | None, length: int) -> npt.NDArray[np.float32]:
        vector = np.zeros(length, dtype=np.float32)
        if index is not None:
            vector[index] = 1
        return vector
