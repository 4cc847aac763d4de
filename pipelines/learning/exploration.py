"""A bonus for rarely tried actions: beta / sqrt(n), n the visits of an action in a situation.

The situation is the newest frame, the symbol and the operation: 151,200 situations and actions in
base 5. Only actions that the reward level judges are paid, those by which a mistake is punished. A
policy soon avoids them where one was wrong, before it has tried them in situations that look alike;
the bonus lets it try again. Paid for all actions, or on whole observations, it would make wandering
worth more than solving.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled
from abacus.observation import frame_codes
from abacus.rules import AbacusConfig, Action

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
