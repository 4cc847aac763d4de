"""What decides the content of a set of demonstrations, and what a file stores about it.

Episode e of a set has the seed (seed + 1) * 2**32 + e, which depends on neither shards nor workers,
and `AbacusEnv.reset(seed=...)` plays the episode again. No episode has a seed below 2**32: an
evaluation under a small seed shares no episode with any set.
"""

from __future__ import annotations

import hashlib
import json
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

from abacus.checks import check_integer, check_number
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

#: Default operations of an episode: enough to carry, short enough to read.
OPERATIONS_PER_EPISODE = 10
#: A clone of this many operations made no error in its evaluation.
DEFAULT_OPERATIONS = 50_000
MAX_SEED = 2**31 - 2

_PACKAGE = "virtual-abacus"
_CHECKOUT = Path(__file__).resolve().parents[2]
#: The libraries that take part in recording.
_LIBRARIES = ("numpy", "numba", "h5py", "gymnasium")
_ALGORITHM = "the paper's Algorithm 1, as mended in oracle/algorithm.py"

#: The keys of attributes that `content_attributes` does not give.
_KEYS = {
    "request": {"operations", "transitions"},
    "counts": {"transitions", "episodes", "operations"},
    "digest": {"sha256"},
}

# The constants of numpy.random.SeedSequence, which NumPy promises never to change.
_POOL_SIZE = 4
_SHIFT = np.uint32(16)
_INIT_A, _MULTIPLY_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULTIPLY_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)

_Words = npt.NDArray[np.uint32]


def default_config() -> AbacusConfig:
    """Return the paper's abacus, with episodes of ten operations."""
    return AbacusConfig(max_operations=OPERATIONS_PER_EPISODE)


@dataclass(frozen=True)
class Recipe:
    """The settings of a set of demonstrations. Equal recipes give equal content.

    Give `operations`, or `transitions` instead: whole operations are then recorded until there are
    at least that many transitions. `config.max_operations` is the number of operations of an
    episode. A step is a detour with probability `epsilon`; see `oracle.demos.recorder`.
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
            raise ValueError("config has an expression: every episode would be the same")
        if self.config.on_error != "terminate":
            raise ValueError("config has on_error='continue': the expert makes no errors")
        check_number("epsilon", self.epsilon, 0.0, 1.0)
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0, MAX_SEED))
        if (self.operations is None) == (self.transitions is None):
            raise ValueError(
                f"operations={self.operations} and transitions={self.transitions}: give one of them"
            )
        name = "operations" if self.transitions is None else "transitions"
        object.__setattr__(self, name, check_integer(name, getattr(self, name), 1, 2**40))

    @property
    def longest_episode(self) -> int:
        """The operations of an episode, or of the whole set if that has fewer."""
        assert self.config.max_operations is not None
        # An operation takes at least one transition.
        wanted = self.transitions if self.operations is None else self.operations
        assert wanted is not None
        return min(self.config.max_operations, wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
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
        """Return the recipe of a mapping as `to_dict` gives it."""
        return cls(**{**values, "config": AbacusConfig.from_dict(values["config"])})

    @property
    def fingerprint(self) -> str:
        """A short hash that tells recipes apart, for the names of shards."""
        text = json.dumps([FORMAT_VERSION, self.to_dict()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file_name(self) -> str:
        """A file name with the main settings, and the others where they are not the default."""
        config, default = self.config, Recipe()
        reward = config.reward if isinstance(config.reward, str) else "+".join(config.reward)
        parts = [
            f"abacus-{config.operations}-c{config.columns}-b{config.base}-d{config.max_digits}",
            f"n{self.operations}" if self.operations else f"t{self.transitions}",
            f"s{self.seed}",
        ]
        optional = (
            (config.max_operations != default.config.max_operations, f"k{config.max_operations}"),
            (config.start != default.config.start, f"start{config.start}"),
            (self.variant != default.variant, self.variant),
            (self.epsilon != default.epsilon, f"e{self.epsilon:g}"),
            (config.reward != default.config.reward, reward or "nothing"),
            (config.frames != default.config.frames, f"f{config.frames}"),
        )
        return "-".join(parts + [text for differs, text in optional if differs]) + ".h5"


def episode_seeds(seed: int, first: int, count: int) -> npt.NDArray[np.int64]:
    """Return the seeds of episodes `first` to `first + count - 1`."""
    return ((seed + 1) << 32) + np.arange(first, first + count, dtype=np.int64)


def stream_starts(seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the initial states of the random streams of episodes and of their detours, (seeds, 2).

    These are the words of `SeedSequence(seed).generate_state(2, uint64)`, the first of which starts
    every abacus. They are computed for all seeds at once: a SeedSequence takes longer to make than
    an episode takes to record.
    """
    wide = seeds.astype(np.uint64)
    words = [
        (wide & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        (wide >> np.uint64(32)).astype(np.uint32),
    ]
    hashed = _Hash(_INIT_B, _MULTIPLY_B)
    state = np.stack([hashed(word) for word in _entropy_pool(words)], axis=1).astype(np.uint64)
    starts: npt.NDArray[np.uint64] = state[:, 0::2] | (state[:, 1::2] << np.uint64(32))
    return starts


class _Hash:
    """The hash of SeedSequence, whose constant changes with every value."""

    def __init__(self, constant: int, factor: int) -> None:
        self._constant, self._factor = constant, factor

    def __call__(self, value: _Words) -> _Words:
        value = value ^ np.uint32(self._constant)
        self._constant = self._constant * self._factor & 0xFFFFFFFF
        value = value * np.uint32(self._constant)
        mixed: _Words = value ^ (value >> _SHIFT)
        return mixed


def _entropy_pool(words: list[_Words]) -> list[_Words]:
    hashed = _Hash(_INIT_A, _MULTIPLY_A)
    zero = np.zeros_like(words[0])
    pool = [hashed(words[k] if k < len(words) else zero) for k in range(_POOL_SIZE)]
    for source in range(_POOL_SIZE):
        for target in range(_POOL_SIZE):
            if source != target:
                mixed = _MIX_LEFT * pool[target] - _MIX_RIGHT * hashed(pool[source])
                pool[target] = mixed ^ (mixed >> _SHIFT)
    return pool


@dataclass(frozen=True)
class Metadata:
    """The attributes of a file, checked, and the recipe that they describe."""

    recipe: Recipe
    counts: Mapping[str, int]
    digest: str
    attributes: Mapping[str, Any]

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Metadata:
        """Check the attributes of a file; raise DemonstrationsError if they are invalid."""
        missing = [name for name in ATTRIBUTES if name not in attributes]
        if missing:
            raise DemonstrationsError(f"attributes are missing: {', '.join(missing)}")
        if attributes["format"] != {"name": FORMAT_NAME, "version": FORMAT_VERSION}:
            raise DemonstrationsError(
                f"format={attributes['format']!r} is not known: this program reads {FORMAT_NAME} "
                f"version {FORMAT_VERSION}"
            )
        try:
            for name, keys in _KEYS.items():
                if set(attributes[name]) != keys:
                    raise ValueError(f"{name!r} must have {', '.join(sorted(keys))}")
            algorithm, request = attributes["algorithm"], attributes["request"]
            recipe = Recipe(
                config=AbacusConfig.from_dict(attributes["config"]),
                variant=algorithm["variant"],
                epsilon=algorithm["epsilon"],
                seed=attributes["seed"],
                operations=request["operations"],
                transitions=request["transitions"],
            )
            counts = {str(name): int(count) for name, count in attributes["counts"].items()}
            digest = str(attributes["digest"]["sha256"])
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DemonstrationsError(f"invalid attributes: {error}") from error
        for name, value in content_attributes(recipe).items():
            if attributes[name] != value:
                raise DemonstrationsError(f"attribute {name!r} does not follow this format")
        return cls(recipe, counts, digest, dict(attributes))


def content_attributes(recipe: Recipe) -> dict[str, Any]:
    """Return the attributes that belong to the content, and to its digest."""
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


def initial_attributes(recipe: Recipe, command: Sequence[str]) -> dict[str, Any]:
    """Return the attributes that are known before recording: all but `counts` and `digest`."""
    return {
        "format": {"name": FORMAT_NAME, "version": FORMAT_VERSION},
        **content_attributes(recipe),
        "request": {"operations": recipe.operations, "transitions": recipe.transitions},
        "command": [_without_folder(word) for word in command],
        **_software(),
    }


def _without_folder(word: str) -> str:
    """Keep only the name of a path: folders are private to a machine."""
    flag, equals, value = word.rpartition("=")
    return flag + equals + (Path(value).name if "/" in value or "\\" in value else value)


@cache
def _software() -> dict[str, Any]:
    """Return the attributes that name this code and the libraries that it uses."""
    project = _CHECKOUT / "pyproject.toml"
    if project.is_file():
        version = tomllib.loads(project.read_text())["project"]["version"]
    else:
        version = _version(_PACKAGE)
    return {
        "code": {"package": _PACKAGE, "version": version, "commit": _commit()},
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of a checkout of this code, None if there is none."""
    if not (_CHECKOUT / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
