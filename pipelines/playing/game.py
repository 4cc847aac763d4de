"""One expression on one abacus, moment by moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL, SLIDE_OUTCOME, SUBMIT_OUTCOME
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Operation, value_of
from abacus.view import AbacusView, view_of
from oracle.expert import expert_actions
from pipelines.playing.players import Player
from pipelines.playing.task import true_value

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
