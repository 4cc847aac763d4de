"""The seeds of episodes, and the random streams that they start.

Episode e of a set has the seed (seed + 1) * 2**32 + e: it depends on nothing else, so that shards
and workers do not change what is drawn, and `AbacusEnv.reset(seed=...)` plays the episode again.
No episode has a seed below 2**32: an evaluation under a small seed meets none of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.rules import AbacusConfig
from oracle.algorithm import Variant, check_variant
from oracle.demos.schema import (
    ATTRIBUTES,
    FORMAT_NAME,
    FORMAT_VERSION,
    SPLIT_EVERY,
    SPLIT_FIRST,
    DemonstrationsError,
)

# The constants of numpy.random.SeedSequence, which NumPy promises never to change.
_POOL = 4
_SHIFT = np.uint32(16)
_INIT_A, _MULTIPLY_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULTIPLY_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)

Words = npt.NDArray[np.uint32]


def episode_seeds(seed: int, first: int, count: int) -> npt.NDArray[np.int64]:
    """The seeds of episodes `first` to `first + count - 1`."""
    return ((seed + 1) << 32) + np.arange(first, first + count, dtype=np.int64)


def stream_starts(seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """(seeds, 2): where the stream of an abacus with this seed starts, and that of its detours.

    These are the words of `SeedSequence(seed).generate_state(2, uint64)`, the first of which
    starts every abacus; for all seeds at once, since one at a time takes longer than the episode.
    """
    wide = seeds.astype(np.uint64)
    words = [
        (wide & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        (wide >> np.uint64(32)).astype(np.uint32),
    ]
    state = _generate(_mix_entropy(words), 4).astype(np.uint64)
    starts: npt.NDArray[np.uint64] = state[:, 0::2] | (state[:, 1::2] << np.uint64(32))
    return starts


class _Hash:
    """SeedSequence's hash: its constant moves on with every value."""

    def __init__(self, constant: int, factor: int) -> None:
        self._constant, self._factor = constant, factor

    def __call__(self, value: Words) -> Words:
        value = value ^ np.uint32(self._constant)
        self._constant = self._constant * self._factor & 0xFFFFFFFF
        value = value * np.uint32(self._constant)
        mixed: Words = value ^ (value >> _SHIFT)
        return mixed


def _mix_entropy(words: list[Words]) -> list[Words]:
    hashed = _Hash(_INIT_A, _MULTIPLY_A)
    zero = np.zeros_like(words[0])
    pool = [hashed(words[k] if k < len(words) else zero) for k in range(_POOL)]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                mixed = _MIX_LEFT * pool[target] - _MIX_RIGHT * hashed(pool[source])
                pool[target] = mixed ^ (mixed >> _SHIFT)
    return pool


def _generate(pool: list[Words], count: int) -> Words:
    hashed = _Hash(_INIT_B, _MULTIPLY_B)
    return np.stack([hashed(pool[k % _POOL]) for k in range(count)], axis=1)


#: Operations in an episode where nothing else is asked for: enough to carry, short enough to read.
OPERATIONS_PER_EPISODE = 10
#: A clone of this many made no error on what it met; smaller sets are its first operations.
DEFAULT_OPERATIONS = 50_000
MAX_SEED = 2**31 - 2


def default_config() -> AbacusConfig:
    """The paper's abacus, in episodes of ten operations."""
    return AbacusConfig(max_operations=OPERATIONS_PER_EPISODE)


@dataclass(frozen=True)
class Recipe:
    """A set of demonstrations before it is recorded. Checks itself.

    Give `operations`, or `transitions` instead: then whole operations are recorded until there
    are at least so many transitions. `config.max_operations` is the operations of an episode.
    With probability `epsilon` a step is a detour; see `oracle.demos.recorder`.
    """

    config: AbacusConfig = field(default_factory=default_config)
    variant: Variant = "before"
    epsilon: float = 0.0
    seed: int = 0
    operations: int | None = DEFAULT_OPERATIONS
    transitions: int | None = None

    def __post_init__(self) -> None:
        check_variant(self.variant)
        if self.config.max_operations is None:
            raise ValueError("config has no max_operations: give the operations of an episode")
        if self.config.expression is not None:
            raise ValueError("config has an expression: every episode would be the same one")
        if self.config.on_error != "terminate":
            raise ValueError("config has on_error='continue': a teacher makes no errors")
        _check_number("epsilon", self.epsilon, 0.0, 1.0)
        _check_whole("seed", self.seed, 0, MAX_SEED)
        self._check_amount()

    def _check_amount(self) -> None:
        if (self.operations is None) == (self.transitions is None):
            raise ValueError(
                f"operations={self.operations} and transitions={self.transitions}: give one of them"
            )
        for name in ("operations", "transitions"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), 1, 2**40)

    @property
    def longest_episode(self) -> int:
        """Operations of an episode, or all that are asked for if those are fewer."""
        assert self.config.max_operations is not None
        # No operation takes fewer than one transition.
        return min(self.config.max_operations, self.operations or self.transitions or 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "config": self.config.to_dict(),
            "variant": self.variant,
            "epsilon": self.epsilon,
            "seed": self.seed,
            "operations": self.operations,
            "transitions": self.transitions,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe from a mapping such as `to_dict` gives."""
        return cls(**{**values, "config": AbacusConfig.from_dict(values["config"])})

    @property
    def fingerprint(self) -> str:
        """Tells recipes apart in the names of shards."""
        text = json.dumps([FORMAT_VERSION, self.to_dict()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file_name(self) -> str:
        """A name that holds the main settings, and the others where they are not the default."""
        config, plain = self.config, Recipe()
        amount = f"n{self.operations}" if self.operations else f"t{self.transitions}"
        parts = [
            f"abacus-{config.operations}-c{config.columns}-b{config.base}-d{config.max_digits}",
            amount,
            f"s{self.seed}",
        ]
        if config.max_operations != plain.config.max_operations:
            parts.append(f"k{config.max_operations}")
        if config.start != plain.config.start:
            parts.append(f"start{config.start}")
        if self.variant != plain.variant:
            parts.append(self.variant)
        if self.epsilon != plain.epsilon:
            parts.append(f"e{self.epsilon:g}")
        if config.reward != plain.config.reward:
            parts.append(_reward_name(config.reward))
        if config.frames != plain.config.frames:
            parts.append(f"f{config.frames}")
        return "-".join(parts) + ".h5"


def _reward_name(reward: str | tuple[str, ...]) -> str:
    return reward if isinstance(reward, str) else "+".join(reward) or "nothing"


def _check_whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name}={value!r} is not allowed: give an integer from {low} to {high}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or math.isnan(value)
        or not low <= value <= high
    ):
        raise ValueError(f"{name}={value!r} is not allowed: give a number from {low:g} to {high:g}")


_PACKAGE = "virtual-abacus"
_CHECKOUT = Path(__file__).resolve().parents[2]
#: The libraries that have a part in what is recorded.
_LIBRARIES = ("numpy", "numba", "h5py", "gymnasium")
_ALGORITHM = "the paper's Algorithm 1, as mended in oracle/algorithm.py"


@dataclass(frozen=True)
class About:
    """The attributes of a file, checked and with the recipe made out of them."""

    recipe: Recipe
    counts: Mapping[str, int]
    digest: str
    attributes: Mapping[str, Any]

    @property
    def config(self) -> AbacusConfig:
        return self.recipe.config

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> About:
        """Checks what a file says about itself."""
        missing = [name for name in ATTRIBUTES if name not in attributes]
        if missing:
            raise DemonstrationsError(f"attributes are missing: {', '.join(missing)}")
        told = attributes["format"]
        if told != {"name": FORMAT_NAME, "version": FORMAT_VERSION}:
            raise DemonstrationsError(
                f"format={told!r} is not known: this program reads {FORMAT_NAME} "
                f"version {FORMAT_VERSION}"
            )
        try:
            algorithm, request = attributes["algorithm"], attributes["request"]
            recipe = Recipe.from_dict(
                {
                    "config": attributes["config"],
                    "variant": algorithm["variant"],
                    "epsilon": algorithm["epsilon"],
                    "seed": attributes["seed"],
                    "operations": request["operations"],
                    "transitions": request["transitions"],
                }
            )
            counts = {str(name): int(count) for name, count in attributes["counts"].items()}
            digest = str(attributes["digest"]["sha256"])
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DemonstrationsError(f"attributes make no sense: {error}") from error
        for name, fact in facts(recipe).items():
            if attributes[name] != fact:
                raise DemonstrationsError(f"attribute {name!r} is not one of this format")
        return cls(recipe, counts, digest, dict(attributes))


def facts(recipe: Recipe) -> dict[str, Any]:
    """The attributes that belong to the content, and to its digest."""
    return {
        "config": recipe.config.to_dict(),
        "algorithm": {
            "name": _ALGORITHM,
            "variant": recipe.variant,
            "epsilon": recipe.epsilon,
        },
        "seed": recipe.seed,
        "split": {"validation": f"episode % {SPLIT_EVERY} == {SPLIT_FIRST}"},
    }


def origin(recipe: Recipe, command: Sequence[str]) -> dict[str, Any]:
    """All attributes but those that are known only once everything is recorded."""
    return {
        "format": {"name": FORMAT_NAME, "version": FORMAT_VERSION},
        **facts(recipe),
        "request": {"operations": recipe.operations, "transitions": recipe.transitions},
        "command": [_without_folder(word) for word in command],
        "code": {"package": _PACKAGE, "version": _own_version(), "commit": _commit()},
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def _without_folder(word: str) -> str:
    """Folders are a machine's own affair: of a path, the name alone is told."""
    flag, equals, value = word.rpartition("=")
    return flag + equals + (Path(value).name if "/" in value or "\\" in value else value)


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _own_version() -> str | None:
    """As installed, or as a checkout says of itself."""
    project = _CHECKOUT / "pyproject.toml"
    if not project.is_file():
        return _version(_PACKAGE)
    return str(tomllib.loads(project.read_text())["project"]["version"])


@cache
def _commit() -> str | None:
    """The commit of a checkout of this code; None anywhere else."""
    if not (_CHECKOUT / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
