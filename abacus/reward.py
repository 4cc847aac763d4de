"""The modular reward: outcomes, modules, and the named levels of supervision.

A step has four outcomes, each -1 (wrong), 0 or 1 (right) at every level: whether the finger moved
away from or closer to where it belongs, and whether a signpost move, a slide or a submit was wrong
or right. A level is a set of modules that turns outcomes into reward terms. Datasets store the
outcomes, from which the reward of any level can be computed later.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

STEP_PENALTY = -0.05
FINGER_REWARD = 0.10
RIGHT_REWARD = 1.0
WRONG_PENALTY = -1.0

#: Columns of every `outcomes` array.
OUTCOMES = ("finger", "signpost", "slide", "submit")
#: Columns of every `terms` array; their sum is the reward.
TERMS = ("step", "finger", "signpost", "slide", "submit", "wrong")

#: With a `wrong_` module, that mistake costs 1 and, with on_error="terminate", ends the episode.
MODULES = (
    "step",
    "finger",
    "signpost",
    "slide",
    "submit",
    "wrong_signpost",
    "wrong_slide",
    "wrong_submit",
)

#: From full supervision to the answer only; each level drops modules of the previous one.
LEVELS: dict[str, frozenset[str]] = {
    "dense": frozenset(MODULES),
    "no_of": frozenset(MODULES) - {"finger"},
    "no_of_sp": frozenset(MODULES) - {"finger", "signpost", "wrong_signpost"},
    "no_of_sp_ms": frozenset(MODULES) - {"finger", "signpost", "wrong_signpost", "slide"},
    "answer_only": frozenset({"step", "submit", "wrong_submit"}),
}


def modules_of(reward: str | Iterable[str]) -> frozenset[str]:
    """Return the modules of a level, or of names given as an iterable or joined by commas."""
    if isinstance(reward, str) and reward in LEVELS:
        return LEVELS[reward]
    names = [name.strip() for name in reward.split(",")] if isinstance(reward, str) else reward
    try:
        chosen = frozenset(names)
    except TypeError:
        chosen = None
    if chosen is None or not chosen <= LEVELS["dense"]:
        raise ValueError(
            f"reward={reward!r} is not allowed: give a level ({', '.join(LEVELS)}) or modules "
            f"({', '.join(MODULES)})"
        )
    return chosen


def terms_of(
    outcomes: npt.NDArray[np.int8], reward: str | Iterable[str]
) -> npt.NDArray[np.float32]:
    """Return the reward terms (…, 6) of outcomes (…, 4) at any level; their sum is the reward."""
    modules = modules_of(reward)
    right, wrong = outcomes == 1, outcomes == -1
    terms = np.zeros((*outcomes.shape[:-1], len(TERMS)), dtype=np.float32)
    if "step" in modules:
        terms[..., 0] = STEP_PENALTY
    if "finger" in modules:
        terms[..., 1] = FINGER_REWARD * right[..., 0] - FINGER_REWARD * wrong[..., 0]
    for place, name in enumerate(OUTCOMES[1:], start=1):
        if name in modules:
            terms[..., 1 + place] = RIGHT_REWARD * right[..., place]
        if f"wrong_{name}" in modules:
            terms[..., 5] += WRONG_PENALTY * wrong[..., place]
    return terms


def pay_table(reward: str | Iterable[str]) -> npt.NDArray[np.float32]:
    """Return the rewards of steps, (4, 3, 7), by the outcome that judges them and its value + 1.

    The last axis holds the six terms and their sum. At most one outcome of a step is not 0.
    """
    values = np.array([-1, 0, 1], np.int8)
    outcomes = np.eye(len(OUTCOMES), dtype=np.int8)[:, np.newaxis] * values[:, np.newaxis]
    terms = terms_of(outcomes, reward)
    return np.concatenate([terms, terms.sum(axis=-1, keepdims=True)], axis=-1)
