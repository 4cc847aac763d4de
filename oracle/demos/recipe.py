"""What decides the content of a set of demonstrations, and what a file stores about it.

A set holds operations that are drawn at random, or given tasks, one an episode. The expert plays
them. Given tasks may be played by a trained policy instead, of which only the digest is stored:
such a set has no answers of the expert, and does not follow from its recipe alone. Episode e of a
set has the seed (seed + 1) * 2**32 + e, which depends on neither shards nor workers, and
`AbacusEnv.reset(seed=...)` plays a random episode again. No episode has a seed below 2**32: an
evaluation under a small seed shares no random episode with any set.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus import __version__
from abacus.checks import check_choice, check_integer, check_number, shorten
from abacus.reward import LEVELS
from abacus.rules import SUBTRACT, AbacusConfig
from abacus.tasks import Operation, Task, values_of
from oracle.algorithm import Variant, check_variant
from oracle.demos.schema import (
    FORMAT_NAME,
    FORMAT_VERSION,
    FORMAT_VERSIONS,
    GENERATOR,
    KNOWN_VERSIONS,
    OLD_GENERATOR,
    OLD_TASKS_VERSION,
    OLD_VERSION,
    SPLIT_EVERY,
    SPLIT_FIRST,
    TEXTS,
    DemonstrationsError,
    Groups,
    root_attributes,
)

#: Default operations of an episode: enough to carry, short enough to read.
OPERATIONS_PER_EPISODE = 10
#: A clone of this many operations made no error in its evaluation.
DEFAULT_OPERATIONS = 50_000
MAX_SEED = 2**31 - 2
#: Operations that are recorded in a third of a second, which is what a kill can lose.
OPERATIONS_PER_SHARD = 2**14
#: Higher levels of deflate gain little and take much longer.
DEFAULT_COMPRESSION = 4

_PACKAGE = "virtual-abacus"
_CHECKOUT = Path(__file__).resolve().parents[2]
#: The libraries that take part in recording.
_LIBRARIES = ("numpy", "numba", "h5py", "gymnasium")
_ALGORITHM = "the paper's Algorithm 1, as mended in oracle/algorithm.py"
_POLICY = "a trained policy, its best action at every step; no answer of the expert"

#: The keys of attributes that `content_attributes` does not give.
_KEYS = {
    "counts": {"transitions", "episodes", "operations"},
    "digest": {"sha256"},
}

# The constants of numpy.random.SeedSequence, which NumPy promises never to change.
_POOL_SIZE = 4
_SHIFT = np.uint32(16)
_INIT_A, _MULTIPLY_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULTIPLY_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)

#: The keys of the attribute `request`, by version.
_REQUEST_KEYS = {
    OLD_VERSION: {"operations", "transitions"},
    OLD_TASKS_VERSION: {"operations", "transitions", "tasks"},
    FORMAT_VERSION: {"operations", "transitions", "tasks"},
}
_Words = npt.NDArray[np.uint32]


def default_config() -> AbacusConfig:
    """Return the paper's abacus, with episodes of ten operations."""
    return AbacusConfig(max_operations=OPERATIONS_PER_EPISODE)


@dataclass(frozen=True)
class TrainedPolicy:
    """A demonstrator that is not the expert: `sha256` is the digest of its weights.

    `level` is the reward level whose rules judged that it solved what it demonstrates.
    """

    sha256: str
    level: str

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256={self.sha256!r} is no digest: give 64 hexadecimal digits")
        check_choice("level", self.level, tuple(LEVELS))

    def __str__(self) -> str:
        """Return the demonstrator in words."""
        return f"a trained policy, judged at {self.level}, weights with SHA-256 {self.sha256}"


@dataclass(frozen=True)
class Recipe:
    """The settings of a set of demonstrations. Equal recipes give equal content.

    Give `operations`, or `transitions` instead: whole operations are then recorded until there are
    at least that many transitions. `config.max_operations` is the number of operations of an
    episode. A step is a detour with probability `epsilon`; see `oracle.demos.recorder`.

    Or give `tasks`, with a `config` as `task_config` makes it: episode e plays task e and ends with
    its last operation; `operations` is then the number of operations of all tasks. With a `policy`
    it plays them in place of the expert; see `oracle.demos.recorder.record_policy`.
    """

    config: AbacusConfig = field(default_factory=default_config)
    variant: Variant = "before"
    epsilon: float = 0.0
    seed: int = 0
    operations: int | None = DEFAULT_OPERATIONS
    transitions: int | None = None
    tasks: tuple[Task, ...] | None = None
    policy: TrainedPolicy | None = None

    def __post_init__(self) -> None:
        check_variant(self.variant)
        if self.config.expression is not None:
            raise ValueError("config has an expression: every episode would be the same")
        if self.config.on_error != "terminate":
            raise ValueError("config has on_error='continue': the expert makes no errors")
        check_number("epsilon", self.epsilon, 0.0, 1.0)
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0, MAX_SEED))
        if self.policy is not None and (
            self.tasks is None or self.epsilon or self.variant != "before"
        ):
            raise ValueError("a policy plays given tasks, without variant or epsilon: give tasks")
        if self.tasks is None:
            self._check_amount()
        else:
            self._set_tasks(tuple(self.tasks))

    def _check_amount(self) -> None:
        if self.config.max_operations is None:
            raise ValueError("config has no max_operations: give the operations of an episode")
        if (self.operations is None) == (self.transitions is None):
            raise ValueError(
                f"operations={self.operations} and transitions={self.transitions}: give one of them"
            )
        name = "operations" if self.transitions is None else "transitions"
        object.__setattr__(self, name, check_integer(name, getattr(self, name), 1, 2**40))

    def _set_tasks(self, tasks: tuple[Task, ...]) -> None:
        if not tasks:
            raise ValueError("tasks are empty: give at least one")
        if self.transitions is not None:
            raise ValueError(f"transitions={self.transitions} and tasks: give one of them")
        if self.config != task_config(self.config):
            raise ValueError(
                "config has start, operations or max_operations, which tasks decide: give "
                "task_config(config)"
            )
        for number, task in enumerate(tasks):
            try:
                check_task(task, self.config)
            except ValueError as error:
                raise ValueError(f"task {number}: {error}") from error
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "operations", sum(len(task.operations) for task in tasks))

    @property
    def content_version(self) -> int:
        """The version that the content digest covers: other descriptions do not change it."""
        return OLD_VERSION if self.tasks is None else OLD_TASKS_VERSION

    def part(self, first: int, count: int) -> Recipe:
        """Return the recipe of `count` episodes from `first` on: with their tasks, if given."""
        if self.tasks is None:
            return self
        return replace(self, tasks=self.tasks[first : first + count])

    @property
    def longest_episode(self) -> int:
        """The operations of an episode, or of the whole set if that has fewer."""
        if self.tasks is not None:
            return max(len(task.operations) for task in self.tasks)
        assert self.config.max_operations is not None
        # An operation takes at least one transition.
        wanted = self.transitions if self.operations is None else self.operations
        assert wanted is not None
        return min(self.config.max_operations, wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        values: dict[str, Any] = {
            "config": self.config.to_dict(),
            "variant": self.variant,
            "epsilon": self.epsilon,
            "seed": self.seed,
            "operations": self.operations,
            "transitions": self.transitions,
        }
        if self.tasks is not None:
            values["tasks"] = list(map(str, self.tasks))
        if self.policy is not None:
            values["policy"] = asdict(self.policy)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """Return the recipe of a mapping as `to_dict` gives it."""
        changes: dict[str, Any] = {"config": AbacusConfig.from_dict(values["config"])}
        if values.get("tasks") is not None:
            changes["tasks"] = tuple(map(Task.parse, values["tasks"]))
        if values.get("policy") is not None:
            changes["policy"] = TrainedPolicy(**values["policy"])
        return cls(**{**values, **changes})

    @property
    def fingerprint(self) -> str:
        """A short hash that tells recipes apart, for the names of shards."""
        text = json.dumps([self.content_version, self.to_dict()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file_name(self) -> str:
        """A file name with the main settings, and the others where they are not the default."""
        config, default = self.config, Recipe()
        reward = config.reward if isinstance(config.reward, str) else "+".join(config.reward)
        kind = config.operations if self.tasks is None else f"tasks-{self.fingerprint[:8]}"
        parts = [
            f"abacus-{kind}-c{config.columns}-b{config.base}-d{config.max_digits}",
            f"n{self.operations}" if self.operations else f"t{self.transitions}",
            f"s{self.seed}",
        ]
        optional = (
            (
                config.max_operations not in (None, default.config.max_operations),
                f"k{config.max_operations}",
            ),
            (config.start != default.config.start, f"start{config.start}"),
            (self.variant != default.variant, self.variant),
            (self.epsilon != default.epsilon, f"e{self.epsilon:g}"),
            (config.reward != default.config.reward, reward or "nothing"),
            (config.frames != default.config.frames, f"f{config.frames}"),
            (self.policy is not None, "policy"),
        )
        return "-".join(parts + [text for differs, text in optional if differs]) + ".h5"


def task_config(config: AbacusConfig) -> AbacusConfig:
    """Return a configuration for tasks: without what decides random episodes, and their limit."""
    return replace(
        config,
        start=0,
        operations="both",
        expression=None,
        max_operations=None,
        on_error="terminate",
    )


def check_task(task: Task, config: AbacusConfig) -> None:
    """Raise ValueError for a task that cannot be recorded with this configuration."""
    config.check_task(task)
    longest = max(operation.operand for operation in task.operations)
    if longest >= config.base**config.max_digits:
        raise ValueError(
            f"operand {shorten(longest)} has more than max_digits={config.max_digits} digits in "
            f"base {config.base}: give a larger max_digits"
        )


def read_tasks(path: Path, config: AbacusConfig) -> tuple[Task, ...]:
    """Read a text file with a task a line, such as `12 + 34 - 5`: a value, then its operations.

    Numbers are decimal. Empty lines and lines that start with # are skipped.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file: give a text file of tasks")
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text: give a file with a task a line") from None
    tasks = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                tasks.append(Task.parse(line))
                check_task(tasks[-1], config)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    if not tasks:
        raise ValueError(f"{path} has no tasks: give lines such as '12 + 34 - 5'")
    return tuple(tasks)


def tasks_of(columns: Groups, base: int) -> tuple[Task, ...]:
    """Return what was calculated: a task for each stretch of operations without a reload."""
    operations = columns["operations"]
    firsts = np.flatnonzero(operations["fresh"])
    starts = values_of(operations["before"][firsts], base).tolist()
    signs = np.where(operations["operation"] == SUBTRACT, -1, 1).tolist()
    operands = values_of(operations["operand"], base).tolist()
    calculated = [Operation(*pair) for pair in zip(signs, operands, strict=True)]
    stops = [*firsts[1:].tolist(), len(calculated)]
    return tuple(
        Task(start, tuple(calculated[first:stop]))
        for start, first, stop in zip(starts, firsts.tolist(), stops, strict=True)
    )


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
    """The attributes of a file, checked."""

    config: AbacusConfig
    counts: Mapping[str, int]
    digest: str
    attributes: Mapping[str, Any]

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Metadata:
        """Check the attributes of a file; raise DemonstrationsError if they are invalid."""
        for version in FORMAT_VERSIONS:
            if attributes.get("format") == format_attribute(version):
                break
        else:
            raise DemonstrationsError(
                f"format={attributes.get('format')!r} is not known: this program reads "
                f"{FORMAT_NAME} version {KNOWN_VERSIONS}"
            )
        missing = [name for name in root_attributes(version) if name not in attributes]
        if missing:
            raise DemonstrationsError(f"attributes are missing: {', '.join(missing)}")
        with _invalid_attributes():
            for name, keys in {**_KEYS, "request": _REQUEST_KEYS[version]}.items():
                if set(attributes[name]) != keys:
                    raise ValueError(f"{name!r} must have {', '.join(sorted(keys))}")
            metadata = cls(
                config=AbacusConfig.from_dict(attributes["config"]),
                counts={str(name): int(count) for name, count in attributes["counts"].items()},
                digest=str(attributes["digest"]["sha256"]),
                attributes=dict(attributes),
            )
        if not metadata.has_tasks:
            metadata.recipe()
        return metadata

    @property
    def has_tasks(self) -> bool:
        """Whether the episodes are given tasks."""
        return self.attributes["request"].get("tasks") is not None

    @property
    def generator(self) -> Mapping[str, Any]:
        """The package, version and commit of the software that recorded the file."""
        name = OLD_GENERATOR if OLD_GENERATOR in self.attributes else GENERATOR
        generator: Mapping[str, Any] = self.attributes[name]
        return generator

    @property
    def provenance(self) -> dict[str, Any]:
        """The attributes that tell how the file was recorded, for a file with the same content."""
        names = ("command", "libraries")
        return {GENERATOR: self.generator} | {name: self.attributes[name] for name in names}

    def recipe(self, tasks: tuple[Task, ...] | None = None) -> Recipe:
        """Return the recipe, with the tasks that the columns tell (`tasks_of`) if it has tasks."""
        attributes = self.attributes
        with _invalid_attributes():
            request = attributes["request"]
            recipe = Recipe(
                config=self.config,
                **_demonstrator(attributes["algorithm"]),
                seed=attributes["seed"],
                operations=request["operations"],
                transitions=request["transitions"],
                tasks=tasks,
            )
        if recipe.policy is not None and recipe.policy.level != self.config.reward:
            raise DemonstrationsError("attribute 'algorithm' has another level than 'config'")
        expected = content_attributes(recipe)
        if tasks is not None:
            expected["request"] = request_attribute(recipe)
        for name, value in expected.items():
            if attributes[name] != value:
                raise DemonstrationsError(f"attribute {name!r} does not follow this format")
        return recipe


def _demonstrator(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe that the attribute `algorithm` gives."""
    if algorithm["name"] == _POLICY:
        return {"policy": TrainedPolicy(algorithm["sha256"], algorithm["level"])}
    return {"variant": algorithm["variant"], "epsilon": algorithm["epsilon"]}


@contextmanager
def _invalid_attributes() -> Iterator[None]:
    """Turn the errors of impossible attributes into a DemonstrationsError of one line."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DemonstrationsError(f"invalid attributes: {error}") from error


def format_attribute(version: int) -> dict[str, Any]:
    """Return the attribute `format`."""
    return {"name": FORMAT_NAME, "version": version}


def request_attribute(recipe: Recipe) -> dict[str, int | None]:
    """Return the attribute `request`."""
    return {
        "operations": recipe.operations,
        "transitions": recipe.transitions,
        "tasks": None if recipe.tasks is None else len(recipe.tasks),
    }


def content_attributes(recipe: Recipe) -> dict[str, Any]:
    """Return the attributes that belong to the content, and to its digest."""
    if recipe.policy is None:
        demonstrator = {"name": _ALGORITHM, "variant": recipe.variant, "epsilon": recipe.epsilon}
    else:
        demonstrator = {"name": _POLICY, **asdict(recipe.policy)}
    return {
        "config": recipe.config.to_dict(),
        "algorithm": demonstrator,
        "seed": recipe.seed,
        "split": {"validation": f"episode % {SPLIT_EVERY} == {SPLIT_FIRST}"},
    }


def initial_attributes(recipe: Recipe, command: Sequence[str]) -> dict[str, Any]:
    """Return the attributes that are known before recording: all but `counts` and `digest`."""
    return {
        **TEXTS,
        "format": format_attribute(FORMAT_VERSION),
        **content_attributes(recipe),
        "request": request_attribute(recipe),
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
    return {
        GENERATOR: {"package": _PACKAGE, "version": __version__, "commit": _commit()},
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
