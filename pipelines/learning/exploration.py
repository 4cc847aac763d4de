"""What makes PPO try again: a bonus for rarely tried actions, retries, and several starts.

The bonus is beta / sqrt(n), n the visits of an action in a situation: the newest frame, the symbol
and the operation, 151,200 situations and actions in base 5. Only actions that the reward level
judges are paid, those by which a mistake is punished. A policy soon avoids them where one was
wrong, before it has tried them in situations that look alike; the bonus lets it try again. Paid for
all actions, or on whole observations, it would make wandering worth more than solving.

Retries resume an episode that a mistake ended from one of its last states. Where everything that a
policy tries ends in a mistake, such as its first borrows, ending the episode at once is its best
choice, so its rollouts contain few such states, and it gives them up before it has found the right
slide. With retries the policy stays at the frontier of what it can do.

Several starts are for habits that a policy does not lose any more, such as taking the signpost
along: trainings are started with other weights, and the best of them is continued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abacus.batch import AbacusBatch
from abacus.compiling import compiled
from abacus.observation import frame_codes
from abacus.rules import AbacusConfig, Action
from pipelines.learning.rollouts import MISTAKES

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: The module of the reward that judges each action; finger moves are never judged.
_JUDGES = {
    Action.SIGNPOST_LEFT: "wrong_signpost",
    Action.SIGNPOST_RIGHT: "wrong_signpost",
    Action.SLIDE: "wrong_slide",
    Action.SUBMIT: "wrong_submit",
}
_OPERATIONS = 2
#: States of an abacus that are remembered.
RETRY_STEPS = 8
#: Share of each new rollout in the accuracy by which starts are compared.
NEWEST = 0.1


class CountBonus:
    """Visits of situations and actions so far, and the bonus that they give."""

    def __init__(self, config: AbacusConfig, beta: float) -> None:
        self.beta = beta
        symbols = config.base + 2
        shape = (frame_codes(config.base), symbols, _OPERATIONS, len(Action))
        self.visits: npt.NDArray[np.int64] = np.zeros(shape, np.int64)
        #: Whether each action is paid.
        self.paid = np.array([_JUDGES.get(action) in config.modules for action in Action])

    def pay(self, batch: AbacusBatch, actions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Count actions that are about to be taken, and return their bonuses, (N,)."""
        bonuses = np.zeros(len(actions), np.float32)
        world = batch.world
        _pay(world.scalars, world.history, actions, self.paid, self.beta, self.visits, bonuses)
        return bonuses


@compiled
def _pay(
    scalars: Any, history: Any, actions: Any, paid: Any, beta: Any, visits: Any, bonuses: Any
) -> None:
    newest = history.shape[1] - 1
    for i in range(len(actions)):
        action = actions[i]
        if not paid[action]:
            continue
        s = scalars[i]
        frame = history[i, newest]
        visits[frame, s.symbol, s.operation, action] += 1
        bonuses[i] = beta / np.sqrt(visits[frame, s.symbol, s.operation, action])


class Retries:
    """Resumes a share of the episodes that a mistake ended, from one of the abacus's last states.

    These are states of the same episode, those of earlier tries included. States are forgotten
    between rollouts, and the random numbers are torch's: of a batch without `autoreset` and without
    new tasks, a checkpoint needs `resumed` alone.
    """

    def __init__(self, batch: AbacusBatch, share: float) -> None:
        self.share = share
        #: Whether the running episode of each abacus was resumed.
        self.resumed = np.zeros(batch.num_envs, np.bool_)
        #: The last states of all abaci, by the step modulo `RETRY_STEPS`.
        self._states = {
            name: np.zeros((RETRY_STEPS, *array.shape), array.dtype)
            for name, array in batch.state_arrays().items()
        }
        self._step = 0
        #: Remembered steps of each abacus since its last reset, those of all its tries.
        self._ages = np.zeros(batch.num_envs, np.int64)

    def forget(self) -> None:
        """Forget all states."""
        self._ages[:] = 0

    def remember(self, batch: AbacusBatch) -> None:
        """Remember the present states; called before each step."""
        self._step += 1
        self._ages += 1
        for name, array in batch.state_arrays().items():
            self._states[name][self._step % RETRY_STEPS] = array

    def resume(self, batch: AbacusBatch, ended: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Resume some of the abaci whose episodes ended; return those that are to be reset.

        A resumed episode counts its solved operations from 0.
        """
        failed = np.isin(batch.ends[ended], MISTAKES)
        chosen = failed & (torch.rand(len(ended)).numpy() < self.share)
        again, others = ended[chosen], ended[~chosen]
        most = np.minimum(self._ages[again], RETRY_STEPS)
        back = (torch.rand(len(again)).numpy() * most).astype(np.int64)
        places = (self._step - back) % RETRY_STEPS
        for name, array in batch.state_arrays().items():
            array[again] = self._states[name][places, again]
        batch.world.scalars["operations_solved"][again] = 0
        self._ages[others] = 0
        self.resumed[again], self.resumed[others] = True, False
        return others


@dataclass
class Starts:
    """Trainings that are started one after another, of which the best is continued."""

    count: int
    #: Steps of each start.
    steps: int
    #: Steps of all trainings before the running one, or but the one that is continued.
    discarded: int = 0
    #: Accuracy of the running training, of its rollouts with the newest counting most.
    accuracy: float = 0.0
    #: Accuracies, steps and states of the starts that have ended; after the choice no states.
    accuracies: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)

    def add(self, accuracy: float) -> None:
        """Take the accuracy of a rollout into account."""
        self.accuracy += NEWEST * (accuracy - self.accuracy)

    def has_ended(self, num_timesteps: int) -> bool:
        """Whether the running start has made its steps, at this step of all."""
        running = len(self.accuracies) < self.count
        return running and num_timesteps - self.discarded >= self.steps

    def end(self, num_timesteps: int, state: dict[str, Any]) -> dict[str, Any] | None:
        """End the running start in a state; return the state to continue, None for a new start."""
        self.accuracies.append(self.accuracy)
        self.lengths.append(num_timesteps - self.discarded)
        self.states.append(state)
        self.accuracy, self.discarded = 0.0, num_timesteps
        if len(self.accuracies) < self.count:
            return None
        chosen, self.states = self.states[self.best], []
        self.discarded -= self.lengths[self.best]
        return chosen

    @property
    def best(self) -> int:
        """The start with the highest accuracy so far."""
        return self.accuracies.index(max(self.accuracies))

    def describe(self) -> str:
        """Return in words how the last start ended."""
        number = len(self.accuracies)
        line = f"start {number} of {self.count}: {self.accuracies[-1]:.1%} solved by sampling"
        return line + (f"; start {self.best + 1} is continued" if number == self.count else "")
