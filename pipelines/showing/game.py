"""The abacus for an expression: as wide as it takes, and bad expressions refused in a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL, SLIDE_OUTCOME, SUBMIT_OUTCOME
from abacus.render.text import base_numeral, decimal_numeral
from abacus.render.view import AbacusView, view_of
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import EXAMPLE, Operation, digits_of, parse_expression, value_of
from oracle.expert import expert_actions

#: The width that agents are trained on; a narrower abacus would only look strange.
USUAL_COLUMNS = 10


def config_for(
    expression: str, base: int = 5, frames: int = 3, columns: int | None = None
) -> AbacusConfig:
    """The world in which an expression is computed from 0; raises ValueError for a bad one."""
    operations = parse_expression(expression)
    _check_never_negative(operations)
    return AbacusConfig(
        columns=columns or max(USUAL_COLUMNS, columns_needed(operations, base)),
        base=base,
        frames=frames,
        expression=expression,
        # A mistake must not end the show: what comes out is compared with the truth.
        on_error="continue",
    )


def columns_needed(operations: tuple[Operation, ...], base: int) -> int:
    """Columns on which every operand leaves one free, and every running value fits."""
    value, longest = 0, 1
    for operation in operations:
        value += operation.sign * operation.operand
        longest = max(
            longest, 1 + len(digits_of(operation.operand, base)), len(digits_of(value, base))
        )
    return max(2, longest)


def true_value(operations: tuple[Operation, ...]) -> int:
    """What the expression comes to."""
    return sum(operation.sign * operation.operand for operation in operations)


def _check_never_negative(operations: tuple[Operation, ...]) -> None:
    value = 0
    for number, operation in enumerate(operations, start=1):
        value += operation.sign * operation.operand
        if value < 0:
            raise ValueError(
                f"the expression goes below zero at number {number}, and an abacus shows no "
                f"negative value: give one that never does, such as {EXAMPLE}"
            )


if TYPE_CHECKING:
    from pipelines.learning.policy import AbacusPolicy


class Player(Protocol):
    """Anyone who can say how likely each action is; the likeliest is taken."""

    @property
    def name(self) -> str: ...

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        """(8,): of the actions in the batch's only abacus; 0 for illegal ones."""
        ...


class TeacherPlayer:
    """The teacher is always sure."""

    name = "the teacher"

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        certain: npt.NDArray[np.floating] = np.eye(len(Action))[expert_actions(batch)[0]]
        return certain


class NetworkPlayer:
    """A policy's network, without its randomness."""

    def __init__(self, name: str, policy: AbacusPolicy) -> None:
        self.name = name
        self.policy = policy

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        import torch  # here: the teacher and a person play without it

        rows = torch.from_numpy(batch.out.seen)
        with torch.no_grad():
            log_probs = self.policy.log_probs(rows, batch.masks.copy())
        probabilities: npt.NDArray[np.floating] = log_probs[0].double().exp().numpy()
        return probabilities


def network_player(run: Path | None, trust: bool = False) -> NetworkPlayer:
    """The policy of a run, or the published one."""
    from pipelines.learning.policy_files import load_run

    name = "the published policy" if run is None else f"the policy of {run.name or run}"
    return NetworkPlayer(name, load_run(run, trust=trust))


#: More steps than anyone takes: a person who plays may think as long as he likes.
_NO_BUDGET = 2**40


@dataclass(frozen=True)
class Reading:
    """Where in the expression the symbol shown stands.

    `digit` counts from 0 and is None on an operation's symbol; `operation` is None once the
    symbol after the last one is shown.
    """

    operation: Operation | None
    digit: int | None
    digits: int


@dataclass(frozen=True)
class Moment:
    """What is seen before a step, and what is done then: nothing in the last moment."""

    view: AbacusView
    frames: tuple[int, ...]
    reading: Reading
    probabilities: tuple[float, ...] | None = None
    action: Action | None = None

    @property
    def probability(self) -> float | None:
        """Of the action taken."""
        if self.action is None or self.probabilities is None:
            return None
        return self.probabilities[self.action]


class Game:
    """An abacus with an expression to compute."""

    def __init__(self, config: AbacusConfig, *, patient: bool = False) -> None:
        self.config = config
        self.batch = AbacusBatch(config, num_envs=1, autoreset=False)
        if patient:
            self.batch.rules["step_budget"] = _NO_BUDGET
        self.batch.reset(seed=0)

    @property
    def end(self) -> End:
        return End(int(self.batch.ends[0]))

    @property
    def over(self) -> bool:
        return self.end != End.NONE

    @property
    def steps(self) -> int:
        return int(self.batch.scalars[0]["steps"])

    @property
    def value(self) -> int:
        """What the abacus shows."""
        return value_of(self.batch.digits[0], self.config.base)

    @property
    def truth(self) -> int:
        """What it has to show in the end."""
        return true_value(self.config.program)

    @property
    def solved(self) -> bool:
        """Whether it is over, by itself, and shows the truth."""
        return self.end == End.EXPRESSION and self.value == self.truth

    @property
    def masks(self) -> npt.NDArray[np.bool_]:
        masks: npt.NDArray[np.bool_] = self.batch.masks[0]
        return masks

    @property
    def went_wrong(self) -> bool:
        """Whether the last step was a wrong slide or submit."""
        outcomes = self.batch.outcomes[0]
        return bool(outcomes[SLIDE_OUTCOME] < 0 or outcomes[SUBMIT_OUTCOME] < 0)

    def hint(self) -> Action:
        """What the teacher would do."""
        return Action(int(expert_actions(self.batch)[0]))

    def do(self, action: Action) -> None:
        self.batch.step(np.array([int(action)]))

    def moment(
        self, probabilities: npt.NDArray[np.floating] | None = None, action: Action | None = None
    ) -> Moment:
        return Moment(
            view=view_of(self.batch, 0),
            frames=tuple(self.batch.history[0].tolist()),
            reading=self._reading(),
            probabilities=None if probabilities is None else tuple(probabilities.tolist()),
            action=action,
        )

    def _reading(self) -> Reading:
        scalars = self.batch.scalars[0]
        digit, following = int(scalars["digit_index"]), int(scalars["program_next"])
        program = self.config.program
        if digit == ON_OPERATION_SYMBOL and int(scalars["end_after_reset"]) == End.EXPRESSION:
            return Reading(None, None, 0)
        shown = None if digit == ON_OPERATION_SYMBOL else digit
        return Reading(program[following - 1], shown, int(scalars["operand_length"]))


def watch(game: Game, player: Player) -> Iterator[Moment]:
    """The moments of a game; the player takes the step when the next one is asked for."""
    while not game.over:
        probabilities = player.probabilities(game.batch)
        action = Action(int(np.argmax(probabilities)))
        yield game.moment(probabilities, action)
        game.do(action)
    yield game.moment()


#: Digits of a value that are written out; Python itself refuses a few thousand.
_WRITTEN_OUT = 1000
_OPERAND_LIMIT = 24

_ENDS = {
    End.EXPRESSION: "wrong",
    End.BUDGET: "ran out of steps",
    End.CAPACITY: "stopped: after a mistake, the next number does not fit",
    End.NONE: "stopped before the end",
}


def action_words(action: Action) -> str:
    return action.name.lower().replace("_", " ")


def percent(probability: float) -> str:
    """`99.98 %`; never 100 for what is not certain."""
    shown = min(100 * probability, 99.99) if probability < 1 else 100.0
    return f"{shown:.2f} %"


def decimal_text(value: int) -> str:
    """The value with separators, or about as much where it is very long."""
    if value < 10**_WRITTEN_OUT:
        return f"{value:,}"
    return f"about {decimal_numeral(digits_of(value, 10), 10, _WRITTEN_OUT).text}"


def base_text(value: int, base: int, limit: int = _WRITTEN_OUT) -> str:
    return base_numeral(digits_of(value, base), limit).text


def operation_text(operation: Operation, limit: int = _OPERAND_LIMIT) -> str:
    """`+567`, in decimal."""
    operand = decimal_numeral(digits_of(operation.operand, 5), 5, limit).text
    return f"{operation.symbol}{operand.replace(',', '')}"


def reading_text(reading: Reading) -> str:
    """What the symbol shown is a part of."""
    if reading.operation is None:
        return "reset, then the end"
    if reading.digit is None:
        return f"reset, then {operation_text(reading.operation)}"
    return f"{operation_text(reading.operation)}, its digit {reading.digit + 1} of {reading.digits}"


def verdict(game: Game) -> str:
    """How it came out, in a line."""
    base, steps = game.config.base, f"{game.steps:,} step{'s' if game.steps != 1 else ''}"
    shown = f"{decimal_text(game.value)} ({base_text(game.value, base)} in base {base})"
    truth = f"{decimal_text(game.truth)} ({base_text(game.truth, base)} in base {base})"
    if game.solved:
        return f"right in {steps}: the abacus shows {shown}, and that is the truth"
    how = _ENDS[game.end]
    return f"{how} after {steps}: the abacus shows {shown}, but the truth is {truth}"
