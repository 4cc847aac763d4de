"""The settings of a run and of its learners: defaults, checks, presets, flags and JSON.

Every hyperparameter is a field of the dataclass that its learner takes; its default and its range
are declared there. A preset is a complete `Settings`, in which flags of the command line replace
single values.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from abacus.checks import check_choice, check_integer, check_number, not_allowed
from abacus.rules import AbacusConfig
from oracle.demos.recipe import MAX_SEED, OPERATIONS_PER_EPISODE, Recipe

ScheduleKind = Literal["constant", "linear", "sinusoid"]
Preset = Literal["default", "exact", "alone", "ppo"]
NetworkName = Literal["onehot", "wide", "compact", "paper"]
OptimizerName = Literal["muon", "adamw"]
#: Which counterexamples to teach: `spread`: one of each kind; any; those nearest to a start;
#: operations that meet many of them; `longer`: one of each kind, met by the longest operations;
#: `margin`: the observations of which the policy is least sure, whether right or wrong.
Choice = Literal["spread", "random", "nearest", "cover", "longer", "margin"]
StartWeights = Literal["new", "kept"]
#: Which of equally good actions planning prefers; see `pipelines.learning.planning.ORDERS`.
PlanOrder = Literal["right-first", "finger-first", "signpost-first", "submit-first"]
CriticSees = Literal["observation", "progress", "state"]
#: Parts of mending that can be left out; see `MendingSettings.without`.
MendingPart = Literal[
    "exploration",
    "following",
    "two-actions",
    "new-weights",
    "whole-table",
    "another-plan",
]
T = TypeVar("T")

#: Periods of a sinusoid schedule: about as many as in the paper's figures; the authors' code has
#: 13.9.
WAVES = 14
#: Size of a recorded file of demonstrations; smaller sets are its first operations.
RECORDED_OPERATIONS = 50_000


@dataclass(frozen=True)
class _Range:
    """The numbers that a field may hold."""

    low: float = 0
    high: float | None = None
    low_open: bool = False
    high_open: bool = False


_AT_LEAST_0 = _Range()
_AT_LEAST_1 = _Range(1)
_POSITIVE = _Range(0, low_open=True)
_PROBABILITY = _Range(0, 1)
#: NumPy's global generator, which Stable-Baselines3 seeds, takes 32 bits.
_SEED = _Range(0, 2**32 - 1)
#: Larger integers overflow in NumPy and torch.
_LARGEST = 2**53


def _number(default: float, allowed: _Range) -> Any:
    """Declare a numeric field with its default and its range."""
    return field(default=default, metadata={"range": allowed})


@cache
def _hints(record: type[Any]) -> dict[str, Any]:
    return get_type_hints(record)


class _Checked:
    """Base of frozen dataclasses that check every field: its type, and the range of a number."""

    def __post_init__(self) -> None:
        record: Any = type(self)
        for each in fields(record):
            hint, value = _hints(record)[each.name], getattr(self, each.name)
            allowed = each.metadata.get("range", _AT_LEAST_0)
            object.__setattr__(self, each.name, _checked(each.name, value, hint, allowed))


def _checked(name: str, value: Any, hint: Any, allowed: _Range) -> Any:
    if hint is int:
        high = None if allowed.high is None else int(allowed.high)
        number = check_integer(name, value, int(allowed.low), high)
        return number if number <= _LARGEST else check_integer(name, value, 0, _LARGEST)
    if hint is float:
        return check_number(name, value, **vars(allowed))
    if get_origin(hint) is Literal:
        return check_choice(name, value, get_args(hint))
    kinds = get_args(hint) if get_args(hint) else (hint,)
    if not isinstance(value, kinds):
        raise not_allowed(name, value, " or ".join(kind.__name__ for kind in kinds))
    return value


@dataclass(frozen=True)
class Schedule(_Checked):
    """A value that changes from `start` to `end` in the course of the training.

    `sinusoid` is a wave of height 2 under a line that falls from 1 to 0: it has the mean of
    `linear`, starts and ends at `end`, and its first peak is nearly twice `start`. The paper says
    "linearly-decaying sinusoidal"; this form is that of the authors' code.
    """

    kind: ScheduleKind
    start: float
    end: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "constant" and self.end not in (0.0, self.start):
            raise not_allowed("end", self.end, f"none with a constant schedule of {self.start}")

    def __call__(self, progress_remaining: float) -> float:
        """Return the value for the remaining progress, from 1 (beginning) to 0 (end)."""
        if self.kind == "constant":
            return self.start
        remaining = min(max(progress_remaining, 0.0), 1.0)
        if self.kind == "sinusoid":
            remaining *= 1.0 - math.cos(2.0 * math.pi * WAVES * remaining)
        return self.end + (self.start - self.end) * remaining


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    # Importing torch takes seconds, which --help and the default device do not need.
    import torch

    try:
        with warnings.catch_warnings(action="ignore"):
            torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        raise not_allowed("device", device, "a device of this machine, such as cpu") from None


def _check_learning_rate(schedule: Schedule) -> None:
    check_number("learning_rate.start", schedule.start, 0, low_open=True)


@dataclass(frozen=True)
class CloningSettings(_Checked):
    """Hyperparameters of behavioural cloning."""

    #: Long after every demonstrated action is learned, the others still improve: of six clones of
    #: 500 operations, none is exact after 1,000 updates and five are after 4,000.
    updates: int = _number(4_000, _AT_LEAST_1)
    batch_size: int = _number(256, _AT_LEAST_1)
    optimizer: OptimizerName = "muon"
    #: The peak of the schedule; AdamW wants less than Muon, such as 0.003.
    learning_rate: float = _number(0.2, _POSITIVE)
    #: With this learning rate far above what is usual: it makes a clone right on observations that
    #: it has not seen.
    weight_decay: float = _number(0.1, _AT_LEAST_0)
    label_smoothing: float = _number(0.2, _Range(0, 1, high_open=True))


@dataclass(frozen=True)
class TeachingSettings(_Checked):
    """How counterexamples are chosen and taught, and the limits."""

    #: Most rounds; 0: no teaching.
    rounds: int = _number(40, _AT_LEAST_0)
    #: Counterexamples of a round.
    counterexamples: int = _number(40, _AT_LEAST_1)
    choice: Choice = "spread"
    #: Whether each round starts from new weights or from those of the round before.
    weights: StartWeights = "kept"
    #: Peak learning rate of a round that keeps the weights; 0: that of cloning. A low one changes
    #: little of what is right already.
    learning_rate: float = _number(0.0, _AT_LEAST_0)
    #: Limits of the demonstrations in all, those to start from included.
    operations: int = _number(5_000, _AT_LEAST_1)
    answers: int = _number(200_000, _AT_LEAST_1)


@dataclass(frozen=True)
class PlanningSettings(_Checked):
    """How the best runs of exercises are searched for, with the reward as the only guide."""

    #: Exercises that are planned and cloned; 0: no planning.
    exercises: int = _number(0, _AT_LEAST_0)
    order: PlanOrder = "right-first"


@dataclass(frozen=True)
class MendingSettings(_Checked):
    """How a policy practises what it gets wrong, with the reward as the only judge."""

    #: Most rounds; 0: no mending.
    rounds: int = _number(0, _AT_LEAST_0)
    #: Random exercises that are practised in a round, of three operations each.
    exercises: int = _number(12_000, _AT_LEAST_1)
    #: Parts to leave out, joined by commas. `exploration`: random exercises alone tell what fails,
    #: and no table is learned whole. `following`: a failing run is not followed to its failure.
    #: `two-actions`: single ones alone are tried. `new-weights`: every clone but that of another
    #: plan starts from the weights that the policy has. `whole-table`: what was practised is
    #: cloned, also if practice leaves no failure. `another-plan`: a planned policy without a
    #: failure and without a proof ends mending, instead of being planned again.
    without: str = ""
    #: How what was practised is cloned into new weights. With label smoothing, a few actions that
    #: differ from those of all like observations would not be learned.
    cloning: CloningSettings = field(
        default_factory=lambda: CloningSettings(batch_size=512, label_smoothing=0.0)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = self.without.split(",") if self.without else []
        for part in parts:
            check_choice("without", part, get_args(MendingPart))
        # Equal settings have equal texts.
        object.__setattr__(self, "without", ",".join(sorted(set(parts))))

    @property
    def left_out(self) -> frozenset[str]:
        """The parts to leave out."""
        return frozenset(self.without.split(",")) if self.without else frozenset()


@dataclass(frozen=True)
class PpoSettings(_Checked):
    """Hyperparameters of PPO, fine-tuning a clone by default."""

    n_envs: int = _number(256, _AT_LEAST_1)
    n_steps: int = _number(64, _AT_LEAST_1)
    batch_size: int = _number(1024, _AT_LEAST_1)
    n_epochs: int = _number(4, _AT_LEAST_1)
    #: Discount factor.
    gamma: float = _number(0.95, _PROBABILITY)
    #: Discount factor at the end of the training; 0: `gamma` throughout.
    gamma_end: float = _number(0.0, _Range(0, 1, high_open=True))
    gae_lambda: float = _number(0.8, _PROBABILITY)
    clip_range: float = _number(0.2, _POSITIVE)
    vf_coef: float = _number(0.5, _AT_LEAST_0)
    max_grad_norm: float = _number(0.5, _POSITIVE)
    #: KL divergence at which an update stops early; 0: never.
    target_kl: float = _number(0.2, _AT_LEAST_0)
    #: AdamW wants less than Muon, such as 0.001.
    learning_rate: Schedule = field(default_factory=lambda: Schedule("linear", 0.015))
    #: Weight of the entropy bonus.
    entropy: Schedule = field(default_factory=lambda: Schedule("linear", 0.0))
    optimizer: OptimizerName = "muon"
    weight_decay: float = _number(0.0, _AT_LEAST_0)
    #: Part of the episodes that are random exercises, as in mending: the random operands of the
    #: world are long as often as short, are never 0, and follow each other until a mistake.
    exercise_share: float = _number(0.0, _PROBABILITY)
    #: Beta of the bonus for rarely tried actions, beta / sqrt(visits); 0: none.
    count_bonus: float = _number(0.0, _AT_LEAST_0)
    #: Part of the episodes ended by a mistake that are resumed from one of the abacus's last eight
    #: states; 0: none.
    retry_share: float = _number(0.0, _Range(0, 1, high_open=True))
    #: Trainings that are started; the one that solves most after `start_steps` steps is continued.
    #: The schedules are those of that training: of all steps but those of the others.
    starts: int = _number(1, _AT_LEAST_1)
    start_steps: int = _number(2_000_000, _AT_LEAST_1)
    #: What the critic sees in training: the observation; `progress`: also which columns are wrong,
    #: and where the digit's column and the signpost are; `state`: also the digit that is wanted.
    critic_sees: CriticSees = "observation"
    #: First steps, in which the critic alone learns.
    critic_warmup: int = _number(0, _AT_LEAST_0)
    #: Weight of the KL divergence from the frozen clone.
    kl_weight: float = _number(0.0, _AT_LEAST_0)
    #: Weight of the cloning loss on demonstrations.
    cloning_weight: float = _number(1.0, _AT_LEAST_0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_learning_rate(self.learning_rate)
        if self.gamma_end and self.gamma == 1:
            raise not_allowed(
                "gamma", self.gamma, f"a number below 1 with gamma_end={self.gamma_end}"
            )

    def discount(self, progress_remaining: float) -> float:
        """Return the discount factor for the remaining progress, from 1 (beginning) to 0 (end).

        From `gamma` to `gamma_end`, the horizon 1 / (1 - discount) changes geometrically.
        """
        if not self.gamma_end:
            return self.gamma
        remaining = min(max(progress_remaining, 0.0), 1.0)
        start = math.pow(1.0 - self.gamma, remaining)
        return 1.0 - start * math.pow(1.0 - self.gamma_end, 1.0 - remaining)

    @property
    def rollout(self) -> int:
        """Steps of a rollout, over all environments."""
        return self.n_envs * self.n_steps


@dataclass(frozen=True)
class DqnSettings(_Checked):
    """Hyperparameters of DQN; steps are counted over all environments."""

    n_envs: int = _number(64, _AT_LEAST_1)
    buffer_size: int = _number(200_000, _AT_LEAST_1)
    batch_size: int = _number(128, _AT_LEAST_1)
    gamma: float = _number(0.95, _PROBABILITY)
    learning_rate: Schedule = field(default_factory=lambda: Schedule("linear", 1e-3))
    #: Steps with random actions before the first update.
    learning_starts: int = _number(5_000, _AT_LEAST_0)
    #: Steps between updates: a multiple of `n_envs`.
    train_freq: int = _number(64, _AT_LEAST_1)
    gradient_steps: int = _number(4, _AT_LEAST_1)
    target_update_interval: int = _number(2_000, _AT_LEAST_1)
    #: Fraction of the training in which the exploration rate falls from 1 to its final value.
    exploration_fraction: float = _number(0.2, _PROBABILITY)
    exploration_final_eps: float = _number(0.05, _PROBABILITY)
    max_grad_norm: float = _number(10.0, _POSITIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_learning_rate(self.learning_rate)
        if self.buffer_size < self.n_envs:
            raise not_allowed("buffer_size", self.buffer_size, f"n_envs={self.n_envs} or more")
        if self.train_freq % self.n_envs:
            raise not_allowed("train_freq", self.train_freq, f"a multiple of n_envs={self.n_envs}")


@dataclass(frozen=True)
class Settings(_Checked):
    """Everything that decides the result of a run; the defaults are the preset `default`."""

    preset: Preset = "default"
    #: File of demonstrations; None: recorded into datasets/.
    demonstrations: Path | None = None
    demo_operations: int = _number(100, _AT_LEAST_0)
    demo_seed: int = _number(0, _Range(0, MAX_SEED))
    start_from: Path | None = None
    network: NetworkName = "onehot"
    world: AbacusConfig = field(
        default_factory=lambda: AbacusConfig(reward="no_of", start="random")
    )
    cloning: CloningSettings = field(default_factory=CloningSettings)
    planning: PlanningSettings = field(default_factory=PlanningSettings)
    n_timesteps: int = _number(600_000, _AT_LEAST_0)
    ppo: PpoSettings = field(default_factory=PpoSettings)
    mending: MendingSettings = field(default_factory=MendingSettings)
    teaching: TeachingSettings = field(default_factory=TeachingSettings)
    seed: int = _number(0, _SEED)
    threads: int = _number(1, _AT_LEAST_1)
    device: str = "cpu"
    eval_freq: int = _number(100_000, _AT_LEAST_1)
    eval_episodes: int = _number(500, _AT_LEAST_1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_device(self.device)
        if self.demo_operations and self.start_from is not None:
            raise ValueError("demo_operations and start_from: give one of them, the other as 0")
        planned = self.planning.exercises
        if planned and (self.demo_operations or self.start_from is not None):
            raise ValueError(
                "plan_exercises and demo_operations or start_from: give one of them, the others "
                "as 0"
            )
        rounds = self.mending.rounds or self.teaching.rounds
        if not (self.demo_operations or planned or self.n_timesteps or rounds):
            raise ValueError(
                "demo_operations=0, n_timesteps=0, mend_rounds=0 and teach_rounds=0: there is "
                "nothing to do"
            )
        if self.mending.rounds and not isinstance(self.world.reward, str):
            raise ValueError(
                "mending needs a reward level: give one, not modules, or --mend-rounds 0"
            )
        if self.ppo.starts > 1 and (planned or self.demo_operations or self.start_from):
            raise ValueError(
                "starts: give 1 with demo_operations, plan_exercises or start_from, by which every "
                "start would begin with the same policy"
            )
        least = self.ppo.starts * self.ppo.start_steps
        if self.ppo.starts > 1 and 0 < self.n_timesteps <= least:
            raise ValueError(
                f"starts={self.ppo.starts} with start_steps={self.ppo.start_steps:,} take "
                f"{least:,} steps: give a larger n_timesteps than {self.n_timesteps:,}"
            )
        if not self.demo_operations and self.ppo.cloning_weight:
            raise ValueError("cloning_weight needs demonstrations: give demo_operations")

    def recipe(self) -> Recipe:
        """Return the recipe of the demonstrations that are recorded when no file is given."""
        config = replace(
            self.world, max_operations=OPERATIONS_PER_EPISODE, reward="dense", frames=3
        )
        operations = max(self.demo_operations, RECORDED_OPERATIONS)
        return Recipe(config=config, seed=self.demo_seed, operations=operations)

    def flags(self) -> dict[str, Any]:
        """Return the values of all flags as plain values."""
        values = {name: _value_at(self, flag.place) for name, flag in FLAGS.items()}
        reward = self.world.reward
        values["reward"] = reward if isinstance(reward, str) else ",".join(reward)
        values["start"] = str(self.world.start)
        return {k: str(v) if isinstance(v, Path) else v for k, v in values.items()}

    def with_flags(self, given: Mapping[str, Any]) -> Settings:
        """Return these settings with the values of some flags replaced."""
        for name in given:
            check_choice("flag", name, FLAGS)
        changes = {FLAGS[name].place: value for name, value in given.items()}
        start = changes.get("world.start")
        if isinstance(start, str) and start.isdecimal():
            changes["world.start"] = int(start)
        for name in ("demonstrations", "start_from"):
            if isinstance(changes.get(name), str):
                changes[name] = Path(changes[name])
        return replace_at(self, changes)

    def to_json(self) -> str:
        """Return the settings as JSON text."""
        return json.dumps(asdict(self), indent=2, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Read settings from JSON text; raise ValueError for anything else."""
        return cls.from_values(parse_json(text))

    @classmethod
    def from_values(cls, values: Any) -> Settings:
        """Read settings from the values of their JSON; raise ValueError for anything else."""
        settings: Settings = _read(cls, values, "the settings")
        return settings


def parse_json(text: str | bytes) -> Any:
    """Return the values of JSON text; raise ValueError for anything else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {' '.join(str(error).split())[:100]}") from None


def replace_at(record: T, changes: Mapping[str, Any]) -> T:
    """Return nested dataclasses with values replaced, by dotted names such as `ppo.gamma`.

    The message of a refused value starts with its dotted name.
    """
    own: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for place, value in changes.items():
        name, _, rest = place.partition(".")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    for name, inner in nested.items():
        try:
            own[name] = replace_at(getattr(record, name), inner)
        except ValueError as error:
            raise ValueError(f"{name}.{error}") from None
    return replace(record, **own)  # type: ignore[type-var]


def _value_at(record: Any, place: str) -> Any:
    for name in place.split("."):
        record = getattr(record, name)
    return record


def _read(record: Any, values: Any, what: str) -> Any:
    """Build a dataclass from the values of its fields, all of which must be there."""
    hints = _hints(record)
    names = [each.name for each in fields(record)]
    if not isinstance(values, dict) or set(values) != set(names):
        found = set(values) if isinstance(values, dict) else set()
        wrong = {"missing": set(names) - found, "unknown": found - set(names)}
        listed = "; ".join(f"{k}: {', '.join(sorted(v)[:5])}" for k, v in wrong.items() if v)
        raise ValueError(f"{what} are not those of a run of this version: {listed}")
    arguments = {}
    for name, value in values.items():
        if is_dataclass(hints[name]):
            value = _read(hints[name], value, f"{what}, {name},")
        elif Path in get_args(hints[name]) and isinstance(value, str):
            value = Path(value)
        arguments[name] = value
    return record(**arguments)


#: `default` clones demonstrations, lets PPO improve the clone, and teaches what is still wrong.
#: `exact` clones fewer and teaches, without PPO; random and taught demonstrations are of one width,
#: so that they fit into one file. `alone` learns from the reward: planning, then mending. `ppo`
#: learns from the reward by PPO, without demonstrations; see docs/reward_alone.md for both. Without
#: demonstrations gamma=0.95 matters at first: idling for ever is worth -0.05 / (1 - gamma), as much
#: as a mistake, -1; with a higher gamma an untrained policy prefers to end the episode by a
#: mistake, with a much lower one it idles. Later, a higher one makes it care for what follows the
#: next reward. The settings of PPO in `alone`, which has none of its own, are the base of the
#: study's cells.
PRESETS: dict[str, Settings] = {
    "default": Settings(),
    "exact": replace_at(
        Settings(),
        {
            "preset": "exact",
            "world.columns": 12,
            "n_timesteps": 0,
            "teaching.weights": "new",
            "ppo.cloning_weight": 0.0,
        },
    ),
    "alone": replace_at(
        Settings(),
        {
            "preset": "alone",
            "demo_operations": 0,
            "planning.exercises": 6_000,
            "n_timesteps": 0,
            "mending.rounds": 40,
            "teaching.rounds": 0,
            "ppo.entropy.start": 0.02,
            "ppo.count_bonus": 0.5,
            "ppo.critic_sees": "state",
            "ppo.critic_warmup": 30_000,
            "ppo.cloning_weight": 0.0,
        },
    ),
    "ppo": replace_at(
        Settings(),
        {
            "preset": "ppo",
            "demo_operations": 0,
            "n_timesteps": 3_000_000,
            "teaching.rounds": 0,
            "ppo.gamma_end": 0.99,
            "ppo.learning_rate.start": 0.0075,
            "ppo.entropy.start": 0.05,
            "ppo.count_bonus": 0.5,
            "ppo.retry_share": 0.9,
            "ppo.critic_sees": "state",
            "ppo.cloning_weight": 0.0,
        },
    ),
}


@dataclass(frozen=True)
class Flag:
    """A flag of the command line: the value that it sets, by its dotted name, and its help."""

    place: str
    help: str


FLAGS = {
    "preset": Flag(
        "preset",
        "few demonstrations and PPO; exact cloning; the reward alone, by planning and practice; "
        "the reward alone, by PPO",
    ),
    "demonstrations": Flag(
        "demonstrations", "file of demonstrations; without it, one is recorded into datasets/"
    ),
    "demo_operations": Flag(
        "demo_operations", "operations to clone, the first of the file; 0: no cloning"
    ),
    "demo_seed": Flag("demo_seed", "random seed of recorded demonstrations"),
    "start_from": Flag(
        "start_from", "initial policy (folder of a run or of a policy, trusted zip)"
    ),
    "network": Flag("network", "network of actor and critic"),
    "base": Flag("world.base", "base of the numbers: positions of a column"),
    "columns": Flag("world.columns", "columns of the abacus"),
    "max_digits": Flag("world.max_digits", "digits of the longest operand"),
    "frames": Flag("world.frames", "stacked frames of an observation"),
    "operations": Flag("world.operations", "operations to learn"),
    "reward": Flag("world.reward", "reward level, or modules joined by commas"),
    "start": Flag("world.start", "value at the start of an episode, or 'random'"),
    "cloning_updates": Flag("cloning.updates", "updates of cloning, each on a minibatch"),
    "cloning_optimizer": Flag("cloning.optimizer", "optimizer of cloning"),
    "cloning_batch_size": Flag("cloning.batch_size", "minibatch size of cloning"),
    "cloning_learning_rate": Flag("cloning.learning_rate", "peak learning rate of cloning"),
    "weight_decay": Flag("cloning.weight_decay", "weight decay of cloning, as in AdamW"),
    "label_smoothing": Flag(
        "cloning.label_smoothing", "part of the cloning target spread over legal actions"
    ),
    "plan_exercises": Flag(
        "planning.exercises",
        "exercises whose best runs are searched for and cloned before PPO; 0: no planning",
    ),
    "plan_order": Flag("planning.order", "which of equally good actions planning prefers"),
    "n_timesteps": Flag("n_timesteps", "environment steps of PPO; 0: no PPO"),
    "critic_warmup": Flag("ppo.critic_warmup", "first steps, in which the actor is frozen"),
    "kl_weight": Flag("ppo.kl_weight", "weight of the KL divergence from the frozen clone"),
    "cloning_weight": Flag(
        "ppo.cloning_weight", "weight of the cloning loss on demonstrations during PPO"
    ),
    "entropy_start": Flag("ppo.entropy.start", "initial weight of the entropy bonus"),
    "entropy_end": Flag("ppo.entropy.end", "final weight of the entropy bonus"),
    "entropy_schedule": Flag("ppo.entropy.kind", "schedule of the entropy bonus"),
    "learning_rate": Flag("ppo.learning_rate.start", "initial learning rate of PPO"),
    "learning_rate_schedule": Flag(
        "ppo.learning_rate.kind", "schedule of PPO's learning rate; sinusoid: the paper's"
    ),
    "ppo_optimizer": Flag("ppo.optimizer", "optimizer of PPO"),
    "ppo_weight_decay": Flag("ppo.weight_decay", "weight decay of PPO, as in AdamW"),
    "exercise_share": Flag(
        "ppo.exercise_share",
        "part of PPO's episodes that are exercises: short numbers, zeros, several operations",
    ),
    "count_bonus": Flag(
        "ppo.count_bonus", "bonus for rarely tried actions: this number / sqrt(visits); 0: none"
    ),
    "retry_share": Flag(
        "ppo.retry_share",
        "part of PPO's episodes ended by a mistake that are resumed from one of the last eight "
        "states; 0: none",
    ),
    "starts": Flag(
        "ppo.starts",
        "trainings that are started, of which the one that solves most is continued; their steps "
        "are part of --n-timesteps",
    ),
    "start_steps": Flag("ppo.start_steps", "steps of each of several starts"),
    "critic_sees": Flag(
        "ppo.critic_sees",
        "what the critic sees in training: the observation; progress: also positions and wrong "
        "columns; state: also the wanted digit",
    ),
    "target_kl": Flag("ppo.target_kl", "KL divergence at which an update stops early; 0: never"),
    "n_envs": Flag("ppo.n_envs", "parallel environments"),
    "n_steps": Flag("ppo.n_steps", "steps of each environment in a rollout"),
    "batch_size": Flag("ppo.batch_size", "minibatch size of PPO"),
    "n_epochs": Flag("ppo.n_epochs", "epochs over a rollout"),
    "gamma": Flag("ppo.gamma", "discount factor"),
    "gamma_end": Flag(
        "ppo.gamma_end", "discount factor at the end of the training; 0: --gamma throughout"
    ),
    "gae_lambda": Flag("ppo.gae_lambda", "lambda of generalised advantage estimation"),
    "clip_range": Flag("ppo.clip_range", "clip range of PPO"),
    "vf_coef": Flag("ppo.vf_coef", "weight of the value loss"),
    "mend_rounds": Flag(
        "mending.rounds", "most rounds of practising what goes wrong, by the reward alone; 0: none"
    ),
    "mend_exercises": Flag("mending.exercises", "random exercises practised in a round of mending"),
    "mend_without": Flag(
        "mending.without",
        "parts of mending to leave out, joined by commas: " + ", ".join(get_args(MendingPart)),
    ),
    "teach_rounds": Flag("teaching.rounds", "most rounds of teaching counterexamples; 0: none"),
    "teach_counterexamples": Flag("teaching.counterexamples", "counterexamples of a round"),
    "teach_choice": Flag(
        "teaching.choice",
        "counterexamples to teach: one of each kind, any, those nearest to a start, operations "
        "that meet many, longer operations; margin: what the policy is least sure of",
    ),
    "teach_weights": Flag("teaching.weights", "weights at the start of a round of teaching"),
    "teach_learning_rate": Flag(
        "teaching.learning_rate",
        "peak learning rate of rounds that keep the weights; 0: that of cloning",
    ),
    "teach_operations": Flag(
        "teaching.operations", "limit of demonstrated operations, those cloned first included"
    ),
    "teach_answers": Flag(
        "teaching.answers", "limit of the teacher's answers, those cloned first included"
    ),
    "seed": Flag("seed", "random seed"),
    "threads": Flag("threads", "threads of torch; only the paper network gains from more"),
    "device": Flag("device", "device of torch"),
    "eval_freq": Flag("eval_freq", "steps of PPO between evaluations"),
    "eval_episodes": Flag("eval_episodes", "episodes of an evaluation"),
}


def resolve(given: Mapping[str, Any]) -> Settings:
    """Return the settings of the preset among the given flags, with the other flags applied."""
    preset = check_choice("preset", given.get("preset", "default"), PRESETS)
    return PRESETS[preset].with_flags(given)


def flag_options() -> dict[str, tuple[Any, str]]:
    """Return the type and the help of each flag, with its defaults, for the command line."""
    return {
        name: (_type_at(Settings, flag.place), f"{flag.help}{_defaults(flag.place)}")
        for name, flag in FLAGS.items()
    }


def _type_at(record: Any, place: str) -> Any:
    for name in place.split("."):
        record = _hints(record)[name]
    return record


def _defaults(place: str) -> str:
    values = {preset: _value_at(settings, place) for preset, settings in PRESETS.items()}
    if place == "preset" or len(set(values.values())) == 1:
        default = values["default"]
        nothing = default is None or default is False or default == ""
        return "" if nothing else f" (default: {default})"
    by_preset = ", ".join(f"{preset} {value}" for preset, value in values.items())
    return f" (by preset: {by_preset})"
