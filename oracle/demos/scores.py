"""Reference scores: what an episode returns to one who acts at random among the legal actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig

_EPISODES = 1000


def random_return(
    config: AbacusConfig, level: str | tuple[str, ...] | None = None, seed: int = 0
) -> float:
    """Mean return of a thousand episodes under random legal actions, at a reward level."""
    rng = np.random.default_rng(seed)
    config = config if level is None else replace(config, reward=level)
    batch = AbacusBatch(config, _EPISODES, autoreset=False)
    batch.reset(seed)
    returns = np.zeros(_EPISODES)
    going = np.ones(_EPISODES, np.bool_)
    while going.any():
        batch.step(_legal_at_random(batch.masks, rng))
        returns[going] += batch.reward[going]
        going &= ~(batch.terminated | batch.truncated)
    return float(returns.mean())


def _legal_at_random(masks: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    chosen: npt.NDArray[np.int64] = np.argmax(rng.random(masks.shape) * masks, axis=1)
    return chosen
