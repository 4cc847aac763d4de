"""Find a policy by its name on the command line.

(no name)          the published policy, which comes with the project
runs/first         the folder of a run, or of a policy
base10             a policy that comes with the project, by the name of its folder
model.zip          a zip of Stable-Baselines3, with --trust
module:function    a Python function from observations to actions, or to scores of the actions
teacher            the reference algorithm
random             random legal actions
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.observation import window_codes
from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.exact.certificate import Observations
from oracle.exact.complete_set import complete_set
from pipelines.job.command_line import relative_path
from pipelines.learning.policy_files import (
    DEFAULT_BASE,
    PUBLISHED,
    load_for_inference,
    load_zip,
    policy_path,
    published_policy,
)
from pipelines.scoring.players import GreedyTable, NamedPolicy, expert_player, random_player

EXPERT, RANDOM = "teacher", "random"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ALLOWED = (
    "give the folder of a run or of a policy, a zip with --trust, module:function, teacher or "
    "random"
)


def find_policy(
    name: str | None,
    *,
    trust: bool = False,
    base: int | None = None,
    frames: int | None = None,
    seed: int = 0,
    variant: Variant = "before",
) -> NamedPolicy:
    """Return the policy of a name; a given base or number of frames must be the policy's.

    `seed` is used by `random`, `variant` by `teacher`.
    """
    default = AbacusConfig()
    layout = (default.base if base is None else base, default.frames if frames is None else frames)
    if name == RANDOM:
        scores = _RandomScores(seed)
        return _named(RANDOM, "random legal actions", layout, scores, random_player(seed))
    if name == EXPERT:
        answers = ExpertAnswers(*layout, variant)
        return _named(EXPERT, "reference algorithm", layout, answers, expert_player(variant))
    if name is not None and is_function(name):
        return _named(name, "Python function", layout, _CheckedFunction(name, _imported(name)))
    return _trained(name, trust, base, frames)


def is_function(name: str) -> bool:
    """Return whether a name is that of a Python function, `module:function`."""
    return _FUNCTION.fullmatch(name) is not None and not Path(name).exists()


def _named(
    name: str, kind: str, layout: tuple[int, int], answers: Any, player: Any = None
) -> NamedPolicy:
    base, frames = layout
    AbacusConfig(base=base, frames=frames)
    if player is None:
        player = GreedyTable(answers, base, frames)
    return NamedPolicy(name, kind, base, frames, answers, player)


def _trained(name: str | None, trust: bool, base: int | None, frames: int | None) -> NamedPolicy:
    default = published_policy(DEFAULT_BASE if base is None else base)
    path = default if name is None else policy_path(name)
    if name is None and not path.exists():
        raise ValueError(f"no policy for base {base} comes with the project: {_ALLOWED}")
    if not path.exists():
        raise ValueError(f"policy={name!r} is not there: {_ALLOWED}")
    policy: Any
    if path.suffix == ".zip":
        kind, policy = "zip of Stable-Baselines3", load_zip(path, trust=trust)
        from pipelines.learning.policy import layout_of

        layout = layout_of(policy.observation_space)
    else:
        folder = path.parent if path.suffix in (".json", ".safetensors") else path
        published = folder.resolve().parent == PUBLISHED
        kind = "published policy" if published else "trained policy"
        policy = load_for_inference(folder)
        layout = policy.layout
    for what, given, own in (("base", base, layout.base), ("frames", frames, layout.frames)):
        if given is not None and given != own:
            raise ValueError(
                f"{what}={given} is not allowed: the policy is for base {layout.base} and "
                f"{layout.frames} frames"
            )
    return _named(relative_path(path), kind, (layout.base, layout.frames), policy)


def _imported(name: str) -> Any:
    """Import `module:function`, from the working directory too."""
    module_name, _, attribute = name.partition(":")
    # `python -m` has the working directory on the path; other callers may not.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        function: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"policy={name!r} is not there: {error}") from error
    if not callable(function):
        raise ValueError(f"policy={name!r} is no function: give one that takes observations")
    return function


class _RandomScores:
    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, observations: Observations) -> npt.NDArray[np.float64]:
        return self._rng.random((len(observations["symbol"]), len(Action)))


class ExpertAnswers:
    """The expert as a function of observations, looked up in the complete set."""

    def __init__(self, base: int, frames: int, variant: Variant = "before") -> None:
        self._base, self._frames, self._variant = base, frames, variant

    def __call__(self, observations: Observations) -> npt.NDArray[np.int64]:
        known = complete_set(self._base, self._frames, self._variant)
        rows = known.index(
            window_codes(self._base, observations["window"]),
            np.argmax(observations["symbol"], axis=1),
            observations["operation"][:, 0].astype(np.int64),
        )
        if (rows < 0).any():
            raise ValueError("the expert never meets one of these observations")
        return known.actions[rows]


class _CheckedFunction:
    """A user's function whose failures and wrong results raise a ValueError of one line."""

    def __init__(self, name: str, function: Any) -> None:
        self._name, self._function = name, function

    def __call__(self, observations: Observations) -> npt.NDArray[Any]:
        try:
            result = np.asarray(self._function(observations))
        except Exception as error:
            raise ValueError(
                f"policy {self._name} fails: {type(error).__name__}: {error}"
            ) from error
        count = len(observations["symbol"])
        if result.shape == (count,) and np.issubdtype(result.dtype, np.integer):
            if result.min() >= 0 and result.max() < len(Action):
                return result
        elif result.shape == (count, len(Action)) and np.issubdtype(result.dtype, np.number):
            return result
        raise ValueError(
            f"policy {self._name} answers {count} observations with {result.dtype} of shape "
            f"{result.shape}: give ({count},) actions from 0 to {len(Action) - 1}, or "
            f"({count}, {len(Action)}) scores"
        )
