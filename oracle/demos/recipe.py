"""What decides the content of a set of demonstrations: the world, the teacher, the seed, how many.

Two recordings of one recipe hold the same content, whatever the number of workers, the shards or
the compression.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from abacus.rules import AbacusConfig
from oracle.algorithm import Variant, check_variant
from oracle.demos.schema import FORMAT_VERSION

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
