"""Who moves the beads: a player runs abaci to their ends, or says what it does in each of them.

`GreedyTable` is the player of a policy over observations. `StepPlayer` asks at every step: for
those who look at the state, as the teacher does, or draw, as the random one does, and for timings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import SIGNPOST_OUTCOME, SLIDE_OUTCOME, SUBMIT_OUTCOME
from abacus.rules import Action, End
from oracle.algorithm import Variant
from oracle.certificate import answers_of
from oracle.expert import expert_actions
from pipelines.evaluation.greedy import Outcome, best_action

Actions = npt.NDArray[np.int64]
_JUDGED = (SIGNPOST_OUTCOME, SLIDE_OUTCOME, SUBMIT_OUTCOME)


class Player(Protocol):
    """Runs abaci, each of which was reset and does not start anew."""

    #: Whether it does the same again in the same state.
    repeatable: bool

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """Lets every abacus run to its end; `max_steps` ends it as the budget would."""
        ...

    def actions(self, batch: AbacusBatch) -> Actions:
        """What it does in every abacus as it stands."""
        ...


class StepPlayer:
    """Asks for actions at every step."""

    def __init__(self, choose: Callable[[AbacusBatch], Actions], repeatable: bool = True) -> None:
        self._choose = choose
        self.repeatable = repeatable

    def actions(self, batch: AbacusBatch) -> Actions:
        return self._choose(batch)

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """See Player."""
        if batch.autoreset:
            raise ValueError("batch has autoreset=True: give one that stays as it ended")
        outcome = Outcome(
            batch.scalars.copy(),
            np.zeros(batch.num_envs, np.uint8),
            np.zeros(batch.num_envs, np.uint8),
            batch.digits.copy(),
        )
        running = np.ones(batch.num_envs, np.bool_)
        while running.any():
            # Abaci that ended are stepped along: this moves a finger that nobody looks at again.
            batch.step(np.where(running, self._choose(batch), Action.UP))
            mistakes = mistakes_of(batch)
            first = running & (outcome.first_mistakes == End.NONE)
            outcome.first_mistakes[first] = mistakes[first]
            ends = batch.ends.copy()
            ends[(ends == End.NONE) & (batch.scalars["steps"] >= max_steps)] = End.BUDGET
            ended = running & (ends != End.NONE)
            outcome.scalars[ended] = batch.scalars[ended]
            outcome.ends[ended] = ends[ended]
            outcome.digits[ended] = batch.digits[ended]
            running &= ~ended
        return outcome


def mistakes_of(batch: AbacusBatch) -> npt.NDArray[np.uint8]:
    """What was wrong in the last step of each abacus, by the end that it would be; or NONE."""
    wrong = batch.outcomes[:, _JUDGED] < 0
    kinds = np.array([End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT], np.uint8)
    return np.where(wrong.any(axis=1), kinds[np.argmax(wrong, axis=1)], np.uint8(End.NONE))


def teacher_player(variant: Variant = "before") -> StepPlayer:
    """The teacher, who knows the state."""
    return StepPlayer(lambda batch: expert_actions(batch, variant))


def random_player(seed: int = 0) -> StepPlayer:
    """Every legal action with the same chance, drawn anew at every step."""
    rng = np.random.default_rng(seed)

    def choose(batch: AbacusBatch) -> Actions:
        draws = np.where(batch.masks, rng.random(batch.masks.shape), -1.0)
        return best_action(draws)

    return StepPlayer(choose, repeatable=False)


def asking_player(policy: Any) -> StepPlayer:
    """The greedy policy without a memory: its network answers at every step."""
    answers = answers_of(policy)

    def choose(batch: AbacusBatch) -> Actions:
        given = np.asarray(answers(batch.observation))
        if given.ndim == 1:
            return given.astype(np.int64)
        return best_action(np.where(batch.masks, given, -np.inf))

    return StepPlayer(choose)
