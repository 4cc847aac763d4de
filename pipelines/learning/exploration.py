"""What makes PPO try again where it failed: a bonus for rarely tried actions, and retries.

The bonus is beta / sqrt(n), n the visits of an action in a situation: the newest frame, the symbol
and the operation, 151,200 situations and actions in base 5. Only actions that the reward level
judges are paid, those by which a mistake is punished. A policy soon avoids them where one was
wrong, before it has tried them in situations that look alike; the bonus lets it try again. Paid for
all actions, or on whole observations, it would make wandering worth more than solving.

Retries resume an episode that a mistake ended from one of its last states. Where everything that a
policy tries ends in a mistake, such as its first borrows, ending the episode at once is its best
choice, so its rollouts contain few such states, and it gives them up before it has found the right
slide. With retries the policy stays at the frontier of what it can do.
"""

from __future__ import annotations

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
