"""Players for tests: a correct one and a random one."""

from __future__ import annotations

import random

import numpy as np

from abacus.batch import AbacusBatch
from abacus.env import AbacusEnv
from abacus.rules import Action


def right_action(batch: AbacusBatch, i: int) -> int:
    """Return a correct action: signpost first, then the lowest wrong column."""
    scalars = batch.scalars[i]
    column, row, signpost, j = (
        int(scalars[name]) for name in ("finger_column", "finger_row", "signpost", "digit_index")
    )
    home = max(j, 0)
    if signpost != home:
        return Action.SIGNPOST_RIGHT if signpost < home else Action.SIGNPOST_LEFT
    wrong = int(scalars["first_wrong"])
    if j < 0 or wrong == batch.config.columns:
        return Action.SUBMIT
    if column != wrong:
        return Action.RIGHT if column < wrong else Action.LEFT
    wanted = int(batch.target[i, wrong])
    if row != wanted:
        return Action.DOWN if row < wanted else Action.UP
    return Action.SLIDE


def random_action(env: AbacusEnv, rng: random.Random) -> int:
    """Return a random legal action."""
    return int(rng.choice(np.flatnonzero(env.action_masks()).tolist()))
