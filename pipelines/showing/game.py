"""Games: an abacus with an expression to compute, the agents that play, and texts about both.

The terminal, films and traces show the `Moment`s of a `Game`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL, SLIDE_OUTCOME, SUBMIT_OUTCOME
from abacus.render.view import AbacusView, base_numeral, decimal_numeral, view_of
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import EXAMPLE, Operation, digit_count, digits_of, parse_expression, value_of
from oracle.exact.certificate import answers_of
from oracle.expert import expert_actions
from pipelines.job.tables import counted
from pipelines.showing.explanation import BASE_WORDS, explanation

if TYPE_CHECKING:
    from pipelines.learning.inference import NumpyPolicy
    from pipelines.learning.policy import AbacusPolicy
    from pipelines.scoring.players import NamedPolicy

DEFAULT_BASE, DEFAULT_FRAMES = 5, 3
#: Fewest columns of an abacus: policies are trained on this width.
USUAL_COLUMNS = 10
#: A step budget that a person cannot exhaust.
_UNLIMITED_STEPS = 2**40
#: Fields of an abacus that count, and change nothing but the end by its budget.
_COUNTERS = ("steps", "budget", "episode_return", "illegal_actions", "reloads")
#: Longer values are abbreviated; Python refuses to convert more than a few thousand digits.
_MAX_DIGITS = 1000
_MAX_OPERAND_DIGITS = 24
#: Numbers of an expression that are shown in both bases.
_MAX_NUMBERS = 4
ILLEGAL_REASONS = {
    Action.LEFT: "the finger is on the first column",
    Action.RIGHT: "the finger is on the last column",
    Action.UP: "the finger is on the top row",
    Action.DOWN: "the finger is on the bottom row",
    Action.SIGNPOST_LEFT: "the signpost is on the first column",
    Action.SIGNPOST_RIGHT: "the signpost is on the last column",
    Action.SLIDE: "the gap is already at the finger",
}
_FAILURES = {
    End.EXPRESSION: "wrong",
    End.BUDGET: "ran out of steps",
    End.CAPACITY: "ran out of columns",
    End.NONE: "stopped before the end",
}


def config_for(
    expression: str,
    base: int = DEFAULT_BASE,
    frames: int = DEFAULT_FRAMES,
    columns: int | None = None,
) -> AbacusConfig:
    """Return the configuration in which an expression is computed, starting from 0.

    Raise ValueError if the expression is malformed or goes below zero. An abacus without given
    `columns` is wide enough.
    """
    operations = parse_expression(expression)
    for number, value in enumerate(_running_values(operations), start=1):
        if value < 0:
            raise ValueError(
                f"the expression goes below zero at number {number}, and an abacus shows no "
                f"negative value: give one that never does, such as {EXAMPLE}"
            )
    if columns is None:
        columns = max(USUAL_COLUMNS, columns_needed(operations, base))
    # A mistake does not end the game: the value in the end is compared with the truth.
    return AbacusConfig(
        columns=columns, base=base, frames=frames, expression=expression, on_error="continue"
    )


def columns_needed(operations: tuple[Operation, ...], base: int) -> int:
    """Return the columns that hold every running value, and every operand with one to spare."""
    operands = [1 + digit_count(operation.operand, base) for operation in operations]
    return max(*operands, *(digit_count(value, base) for value in _running_values(operations)))


def _running_values(operations: tuple[Operation, ...]) -> list[int]:
    return list(accumulate(operation.sign * operation.operand for operation in operations))


class Agent(ABC):
    """Source of action probabilities; the most probable action is taken."""

    name: str
    #: The base and the number of frames of its observations; None: any.
    base: int | None = None
    frames: int | None = None
    #: Whether it takes the same action whenever it sees the same.
    deterministic = True

    @abstractmethod
    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        """Return an array of shape (8,) for a batch of one abacus; illegal actions have 0."""

    def choose(self, probabilities: npt.NDArray[np.floating]) -> Action:
        """Return the action to take."""
        return Action(int(np.argmax(probabilities)))


class ExpertAgent(Agent):
    """Agent that takes the expert's action with probability 1."""

    name = "the teacher"

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        certain: npt.NDArray[np.floating] = np.eye(len(Action))[expert_actions(batch)[0]]
        return certain


class RandomAgent(Agent):
    """Agent that takes legal actions at random."""

    name = "random actions"
    deterministic = False

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        return np.asarray(batch.masks[0] / batch.masks[0].sum())

    def choose(self, probabilities: npt.NDArray[np.floating]) -> Action:
        return Action(int(self._rng.choice(len(Action), p=probabilities)))


class AnswersAgent(Agent):
    """Agent that asks any policy from observations to actions, or to scores.

    Scores are taken as logits; an action gets probability 1.
    """

    def __init__(self, policy: NamedPolicy) -> None:
        from oracle.exact.certificate import answers_of

        self.name = f"the policy {policy.name}"
        self.base, self.frames = policy.base, policy.frames
        self._answers = answers_of(policy.answers)

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        given = np.asarray(self._answers(batch.observation_copy()))
        if given.ndim == 1:
            return np.asarray(np.eye(len(Action))[given[0]])
        scores = np.where(batch.masks[0], given[0].astype(np.float64), -np.inf)
        shares = np.exp(scores - scores.max())
        return np.asarray(shares / shares.sum())


class NetworkAgent(Agent):
    """Agent with the action probabilities of a policy's network."""

    def __init__(self, name: str, policy: NumpyPolicy | AbacusPolicy) -> None:
        self.name = name
        self.policy = policy
        self._logits = answers_of(policy)
        self.base, self.frames = policy.layout.base, policy.layout.frames

    @classmethod
    def load(cls, run: Path | None, base: int = DEFAULT_BASE) -> NetworkAgent:
        """Load the policy of a run, or without a path the published one of a base."""
        from pipelines.learning.policy_files import load_for_inference

        name = "the published policy" if run is None else f"the policy of {run.name or run}"
        return cls(name, load_for_inference(run, base=base))

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        logits = self._logits(dict(batch.observation))[0].astype(np.float64)
        odds = np.where(batch.masks[0], np.exp(logits), 0.0)
        probabilities: npt.NDArray[np.floating] = odds / odds.sum()
        return probabilities


def find_agent(
    name: str | None,
    *,
    trust: bool = False,
    base: int | None = None,
    frames: int | None = None,
    seed: int = 0,
) -> Agent:
    """Return the agent that plays a policy, named as in `pipelines.learning.named_policies`."""
    from pipelines.learning.named_policies import EXPERT, RANDOM, find_policy, is_function
    from pipelines.learning.policy_files import policy_path

    if name == EXPERT:
        return ExpertAgent()
    if name == RANDOM:
        return RandomAgent(seed)
    if name is None:
        return NetworkAgent.load(None, base=DEFAULT_BASE if base is None else base)
    if is_function(name) or name.endswith(".zip"):
        return AnswersAgent(find_policy(name, trust=trust, base=base, frames=frames))
    return NetworkAgent.load(policy_path(name))


@dataclass(frozen=True)
class Moment:
    """The state before a step and the action taken in it, which the last moment does not have.

    `reading` describes what the current symbol belongs to: `+34 (114 in base 5), digit 1 of 3`;
    `explanation` says why the action is taken.
    """

    view: AbacusView
    frames: tuple[int, ...]
    reading: str
    probabilities: tuple[float, ...] | None = None
    action: Action | None = None
    explanation: str = ""

    @property
    def probability(self) -> float | None:
        """The probability of the action taken."""
        if self.action is None or self.probabilities is None:
            return None
        return self.probabilities[self.action]


class Game:
    """One abacus with an expression to compute; `unlimited` removes the step budget."""

    def __init__(self, config: AbacusConfig, *, unlimited: bool = False) -> None:
        self.config = config
        self.batch = AbacusBatch(config, num_envs=1, autoreset=False)
        if unlimited:
            self.batch.rules["step_budget"] = _UNLIMITED_STEPS
        self.batch.reset(seed=0)
        #: Whether the game was stopped because it would repeat itself for ever.
        self.repeats = False

    @property
    def end(self) -> End:
        return End(int(self.batch.ends[0]))

    @property
    def over(self) -> bool:
        return self.end != End.NONE or self.repeats

    @property
    def steps(self) -> int:
        return int(self.batch.scalars[0]["steps"])

    @property
    def value(self) -> int:
        """The value that the abacus shows."""
        return value_of(self.batch.digits[0], self.config.base)

    @property
    def truth(self) -> int:
        """The value of the expression."""
        return _running_values(self.config.program)[-1]

    @property
    def solved(self) -> bool:
        """Whether the expression is finished and the abacus shows its value."""
        return self.end == End.EXPRESSION and self.value == self.truth

    @property
    def masks(self) -> npt.NDArray[np.bool_]:
        masks: npt.NDArray[np.bool_] = self.batch.masks[0]
        return masks

    @property
    def last_step_wrong(self) -> bool:
        """Whether the last step was a wrong slide or submit."""
        outcomes = self.batch.outcomes[0]
        return bool(outcomes[SLIDE_OUTCOME] < 0 or outcomes[SUBMIT_OUTCOME] < 0)

    def state_digest(self) -> bytes:
        """Return a digest of all that the next steps depend on, save the steps that are left."""
        scalars = self.batch.world.scalars[0].copy()
        for name in _COUNTERS:
            scalars[name] = 0
        parts = (scalars, self.batch.world.cells[0], self.batch.world.history[0])
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).digest()

    def expert_action(self) -> Action:
        return Action(int(expert_actions(self.batch)[0]))

    def step(self, action: Action) -> None:
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
            explanation="" if action is None else explanation(self.batch, action),
        )

    def _reading(self) -> str:
        scalars = self.batch.scalars[0]
        digit = int(scalars["digit_index"])
        resetting = digit == ON_OPERATION_SYMBOL
        if resetting and int(scalars["end_after_reset"]) == End.EXPRESSION:
            return "reset, then the end"
        operation = self.config.program[int(scalars["program_next"]) - 1]
        text = _operation_text(operation, self.config.base)
        if resetting:
            return f"reset, then {text}"
        return f"{text}, digit {digit + 1} of {int(scalars['operand_length'])}"


def moments_of(game: Game, agent: Agent) -> Iterator[Moment]:
    """Yield the moments of a game; the agent takes its step when the next moment is asked for.

    Right slides extend the step budget, so that an agent can undo and redo one for ever: the game
    is stopped at the first state that returns.
    """
    seen: set[bytes] = set()
    while not game.over:
        seen.add(game.state_digest())
        probabilities = agent.probabilities(game.batch)
        action = agent.choose(probabilities)
        yield game.moment(probabilities, action)
        game.step(action)
        returned = agent.deterministic and game.state_digest() in seen
        game.repeats = returned and not game.over
    yield game.moment()


def probability_text(probability: float) -> str:
    """Format a probability as `99.98 %`; only certainty is `100.00 %`."""
    shown = min(100 * probability, 99.99) if probability < 1 else 100.0
    return f"{shown:.2f} %"


def value_text(value: int, base: int) -> str:
    """Format a value in decimal and, if that is another, in a base; abbreviate a very long one."""
    digits = digits_of(value, base)
    decimal = (
        f"{value:,}"
        if value < 10**_MAX_DIGITS
        else (f"about {decimal_numeral(digits, base, _MAX_DIGITS).text}")
    )
    own = base_numeral(digits, _MAX_DIGITS).text
    return decimal if base == 10 else f"{decimal} ({own} in base {base})"


@lru_cache
def _operation_text(operation: Operation, base: int) -> str:
    decimal, own = _operand_texts(operation, base)
    return f"{operation.symbol}{decimal}" + ("" if base == 10 else f" ({own} in base {base})")


def _operand_texts(operation: Operation, base: int) -> tuple[str, str]:
    """Return an operand in decimal and in a base, abbreviated if it is long."""
    digits = digits_of(operation.operand, base)
    decimal = decimal_numeral(digits, base, _MAX_OPERAND_DIGITS).text.replace(",", "")
    return decimal, base_numeral(digits, _MAX_OPERAND_DIGITS).text


def bases_text(config: AbacusConfig) -> str:
    """Return the numbers of the expression in both bases: `34 is 114 in base 5: the abacus ...`."""
    base, counts = config.base, f"the abacus counts in {BASE_WORDS[config.base]}"
    if base == 10:
        return f"{counts}, as we write numbers"
    pairs = [_operand_texts(each, base) for each in config.program[:_MAX_NUMBERS]]
    shown = [f"{decimal} is {own}" for decimal, own in pairs]
    shown[0] += f" in base {base}"
    more = ", …" if len(config.program) > _MAX_NUMBERS else ""
    return f"{', '.join(shown)}{more}: {counts}"


def verdict(game: Game) -> str:
    """Describe the result in one line: a few words, a colon, and the values."""
    base = game.config.base
    steps, shown = counted(game.steps, "step"), value_text(game.value, base)
    if game.solved:
        return f"correct in {steps}: the abacus shows {shown}"
    failure = "repeats itself for ever" if game.repeats else _FAILURES[game.end]
    return (
        f"{failure} after {steps}: the abacus shows {shown}, "
        f"the correct result is {value_text(game.truth, base)}"
    )
