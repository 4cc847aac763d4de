"""Any policy by the word that names it on a command line.

(nothing)          the certified policy that comes with the project
runs/first         the folder of a run, or of a policy
model.zip          a zip of Stable-Baselines3, with --trust
module:function    a Python function from observations to actions, or to scores of the actions
teacher, random    the reference algorithm; a random legal action at every step
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.observation import frame_pixels, observation_lengths
from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.exact.certificate import Observations, digest_of
from oracle.exact.complete_set import complete_set
from pipelines.job.command_line import shown_path
from pipelines.scoring.players import GreedyTable, Player, random_player, teacher_player

TEACHER, RANDOM = "teacher", "random"
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_WHAT_TO_GIVE = (
    "give the folder of a run or of a policy, a zip with --trust, module:function, teacher or "
    "random"
)


@dataclass(frozen=True)
class NamedPolicy:
    """A policy that can be run, and asked about observations."""

    name: str
    kind: str
    base: int
    frames: int
    #: What `oracle.exact.certificate.certify` takes.
    answers: Any
    player: Player

    @property
    def digest(self) -> str | None:
        """Of the weights, where there are any."""
        return digest_of(self.answers)


def find_policy(
    word: str | None,
    *,
    trust: bool = False,
    base: int | None = None,
    frames: int | None = None,
    seed: int = 0,
    variant: Variant = "before",
) -> NamedPolicy:
    """The policy that a word names; base and frames, where given, must be the policy's.

    The seed is that of `random`, the variant that of `teacher`.
    """
    defaults = AbacusConfig()
    layout = (
        defaults.base if base is None else base,
        defaults.frames if frames is None else frames,
    )
    if word == RANDOM:
        return _random(*layout, seed)
    if word == TEACHER:
        return _teacher(*layout, variant)
    if word is not None and _CALLABLE.fullmatch(word) and not Path(word).exists():
        return _function(word, *layout)
    policy = _with_weights(word, trust)
    own_base, own_frames = layout_of_space(policy.observation_space)
    for name, asked, own in (("base", base, own_base), ("frames", frames, own_frames)):
        if asked is not None and asked != own:
            raise ValueError(
                f"{name}={asked} is not allowed: the policy is for base {own_base} and "
                f"{own_frames} frames"
            )
    table = GreedyTable(policy, own_base, own_frames)
    kind = "zip of Stable-Baselines3" if word and word.endswith(".zip") else "published policy"
    return NamedPolicy(_shown(word), kind, own_base, own_frames, policy, table)


def _shown(word: str | None) -> str:
    """The name of a policy with weights: a path as one would type it from here."""
    from pipelines.learning.policy_files import PUBLISHED_POLICY

    return shown_path(Path(word) if word else PUBLISHED_POLICY)


def _random(base: int, frames: int, seed: int) -> NamedPolicy:
    AbacusConfig(base=base, frames=frames)
    scores = _RandomScores(seed)
    return NamedPolicy(RANDOM, "random legal actions", base, frames, scores, random_player(seed))


def _teacher(base: int, frames: int, variant: Variant) -> NamedPolicy:
    AbacusConfig(base=base, frames=frames)
    answers = TeacherAnswers(base, frames, variant)
    return NamedPolicy(
        TEACHER, "reference algorithm", base, frames, answers, teacher_player(variant)
    )


def _function(word: str, base: int, frames: int) -> NamedPolicy:
    AbacusConfig(base=base, frames=frames)
    module_name, _, attribute = word.partition(":")
    # A job is started as `python -m`, with the folder it was started from on the path; a caller
    # of `find_policy` may have another path.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        function: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"policy={word!r} is not there: {error}") from error
    if not callable(function):
        raise ValueError(f"policy={word!r} is no function: give one that takes observations")
    checked = _Checked(word, function)
    table = GreedyTable(checked, base, frames)
    return NamedPolicy(word, "Python function", base, frames, checked, table)


def _with_weights(word: str | None, trust: bool) -> Any:
    # torch takes a second to import, which the teacher does not need.
    from pipelines.learning.policy_files import PUBLISHED_POLICY, load_run

    if word is None and not PUBLISHED_POLICY.exists():
        raise ValueError(f"no policy comes with this copy of the project: {_WHAT_TO_GIVE}")
    path = None if word is None else Path(word)
    if path is not None and not path.exists():
        raise ValueError(f"policy={word!r} is not there: {_WHAT_TO_GIVE}")
    if path is not None and path.suffix in (".json", ".safetensors"):
        path = path.parent
    if path is not None and path.suffix == ".zip" and trust:
        return _zip_policy(path)
    return load_run(path)


def _zip_policy(path: Path) -> Any:
    """The policy of a zip of MaskablePPO, ours or another, of PPO or of A2C."""
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import A2C, PPO

    from pipelines.learning.ppo import AbacusPPO

    problems = []
    for algorithm in (AbacusPPO, MaskablePPO, PPO, A2C):
        try:
            return algorithm.load(path, device="cpu").policy
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            problems.append(f"{algorithm.__name__}: {' '.join(str(error).split())[:80]}")
    raise ValueError(f"{path} is no zip of MaskablePPO, PPO or A2C ({problems[-1]})")


def layout_of_space(space: Any) -> tuple[int, int]:
    """(base, frames) of a policy's observation space; ValueError where it is not an abacus's."""
    shapes = {key: part.shape for key, part in getattr(space, "spaces", {}).items()}
    for base in range(2, 11):
        for frames in range(1, AbacusConfig.MAX_FRAMES + 1):
            lengths = observation_lengths(AbacusConfig(base=base, frames=frames))
            if shapes == {key: (length,) for key, length in lengths.items()}:
                return base, frames
    raise ValueError(f"the policy does not see an abacus: its observations are {shapes or space}")


class _RandomScores:
    """Scores without sense."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, observations: Observations) -> npt.NDArray[np.float64]:
        return self._rng.random((len(observations["symbol"]), len(Action)))


class TeacherAnswers:
    """The teacher as a function of observations: a look into the complete set."""

    def __init__(self, base: int, frames: int, variant: Variant = "before") -> None:
        self._base, self._frames, self._variant = base, frames, variant

    def __call__(self, observations: Observations) -> npt.NDArray[np.int64]:
        known = complete_set(self._base, self._frames, self._variant)
        rows = known.index(
            self._codes(observations["window"]),
            np.argmax(observations["symbol"], axis=1),
            observations["operation"][:, 0].astype(np.int64),
        )
        if (rows < 0).any():
            raise ValueError("the teacher is asked about an observation that it never meets")
        return known.actions[rows]

    def _codes(self, windows: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """The frame codes of windows, by the pixels of each frame."""
        pixels = frame_pixels(self._base)
        code_of = {row.tobytes(): code for code, row in enumerate(pixels)}
        frames = np.ascontiguousarray(windows.reshape(-1, pixels.shape[1]))
        codes = [code_of[frame.tobytes()] for frame in frames]
        return np.array(codes, np.int32).reshape(-1, self._frames)


class _Checked:
    """Somebody's function, whose mistakes end in one line."""

    def __init__(self, name: str, function: Any) -> None:
        self._name, self._function = name, function

    def __call__(self, observations: Observations) -> npt.NDArray[Any]:
        try:
            given = np.asarray(self._function(observations))
        except Exception as error:
            raise ValueError(
                f"policy {self._name} fails: {type(error).__name__}: {error}"
            ) from error
        count = len(observations["symbol"])
        if given.shape == (count,) and np.issubdtype(given.dtype, np.integer):
            if given.min() >= 0 and given.max() < len(Action):
                return given
        elif given.shape == (count, len(Action)) and np.issubdtype(given.dtype, np.number):
            return given
        raise ValueError(
            f"policy {self._name} answers {count} observations with {given.dtype} of shape "
            f"{given.shape}: give ({count},) actions from 0 to {len(Action) - 1}, or "
            f"({count}, {len(Action)}) scores"
        )
