"""The modular reward: what each module pays, and the named levels of supervision.

A step has four outcomes, each -1, 0 or 1 and independent of the level: did the finger move away
from or closer to where it belongs, was a signpost move, a slide, a submit wrong or right. A level
is a set of modules that turns outcomes into reward terms. Datasets keep the outcomes, so that the
reward of any level can be computed from them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

STEP_PENALTY = -0.05
FINGER_REWARD = 0.10
RIGHT_REWARD = 1.0
WRONG_PENALTY = -1.0

#: What a step is judged on; the columns of every `outcomes` array.
OUTCOMES = ("finger", "signpost", "slide", "submit")
#: What the reward is the sum of; the columns of every `terms` array.
TERMS = ("step", "finger", "signpost", "slide", "submit", "wrong")

#: A `wrong_` module makes that mistake cost -1 and, with on_error="terminate", end the episode.
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

#: From full supervision to the answer alone; each level drops modules of the one before.
LEVELS: dict[str, frozenset[str]] = {
    "dense": frozenset(MODULES),
    "no_of": frozenset(MODULES) - {"finger"},
    "no_of_sp": frozenset(MODULES) - {"finger", "signpost", "wrong_signpost"},
    "no_of_sp_ms": frozenset(MODULES) - {"finger", "signpost", "wrong_signpost", "slide"},
    "answer_only": frozenset({"step", "submit", "wrong_submit"}),
}


def modules_of(reward: str | Iterable[str]) -> frozenset[str]:
    """The modules of a level, or of an explicit choice: names, or names joined by commas."""
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


def term_weights(modules: frozenset[str]) -> npt.NDArray[np.float32]:
    """The table (2, 4) the kernel multiplies outcomes with: row 0 pays right, row 1 wrong ones.

    Columns are OUTCOMES. The finger pays both ways in its own term; the others pay a right
    outcome in their own term and a wrong one in the term `wrong`.
    """
    weights = np.zeros((2, len(OUTCOMES)), dtype=np.float32)
    for column, name in enumerate(OUTCOMES):
        if name == "finger":
            weights[:, column] = (FINGER_REWARD, -FINGER_REWARD) if name in modules else 0.0
        else:
            weights[0, column] = RIGHT_REWARD if name in modules else 0.0
            weights[1, column] = WRONG_PENALTY if f"wrong_{name}" in modules else 0.0
    return weights


def terms_of(
    outcomes: npt.NDArray[np.int8], reward: str | Iterable[str]
) -> npt.NDArray[np.float32]:
    """The reward terms (…, 6) of recorded outcomes (…, 4) at any level; their sum is the reward."""
    modules = modules_of(reward)
    weights = term_weights(modules)
    right, wrong = outcomes == 1, outcomes == -1
    terms = np.zeros((*outcomes.shape[:-1], len(TERMS)), dtype=np.float32)
    terms[..., 0] = STEP_PENALTY if "step" in modules else 0.0
    terms[..., 1:5] = right * weights[0]
    terms[..., 1] += wrong[..., 0] * weights[1, 0]
    terms[..., 5] = (wrong[..., 1:] * weights[1, 1:]).sum(axis=-1)
    return terms
