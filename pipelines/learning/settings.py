"""The configuration of a run: one frozen dataclass is the command line, and is saved with the run.

A field that the preset decides is None until `settled` fills it in.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from abacus.rules import AbacusConfig, Operations
from oracle.demos.recipe import OPERATIONS_PER_EPISODE, Recipe
from pipelines.job.command_line import option
from pipelines.learning.networks import NetworkName

ScheduleKind = Literal["constant", "linear", "sinusoid"]
SCHEDULE_KINDS: tuple[ScheduleKind, ...] = get_args(ScheduleKind)
#: Waves of a whole run: the paper's figures show about so many, the authors' code has 13.9.
WAVES = 14


@dataclass(frozen=True)
class Schedule:
    """From `start` to `end`.

    `sinusoid` is a wave of height 2 under a line that falls from 1 to 0: its mean is that of
    `linear`, it starts and ends at `end`, and its first peak is nearly twice `start`. The paper
    says "linearly-decaying sinusoidal"; this form is that of the authors' code.
    """

    kind: ScheduleKind
    start: float
    end: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULE_KINDS:
            raise ValueError(
                f"schedule={self.kind!r} is not allowed: give one of {', '.join(SCHEDULE_KINDS)}"
            )
        for name in ("start", "end"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name}={value!r} is not allowed: give a number of 0 or more")

    def __call__(self, progress_remaining: float) -> float:
        """The value when so much of the run is left."""
        if self.kind == "constant":
            return self.start
        left = min(max(progress_remaining, 0.0), 1.0)
        if self.kind == "sinusoid":
            left *= 1.0 - math.cos(2.0 * math.pi * WAVES * left)
        return self.end + (self.start - self.end) * left


#: Updates that an epoch has at least, as far as samples allow: small sets take small batches.
UPDATES_PER_EPOCH = 20

SMALLEST_BATCH = 32


@dataclass(frozen=True)
class CloningSettings:
    """How to clone."""

    epochs: int = 60
    batch_size: int = 512
    learning_rate: float = 3e-3
    patience: int = 15
    label_smoothing: float = 0.05

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 1 or more")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate} is not allowed: give more than 0")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_smoothing={self.label_smoothing} is not allowed: give 0 to below 1"
            )

    def batch_size_for(self, samples: int) -> int:
        """The batch size asked for, or less where there are few samples."""
        return min(self.batch_size, max(SMALLEST_BATCH, samples // UPDATES_PER_EPOCH))


@dataclass(frozen=True)
class PpoSettings:
    """How to fine-tune, or to learn from nothing."""

    n_envs: int = 256
    n_steps: int = 64
    batch_size: int = 1024
    n_epochs: int = 3
    gamma: float = 0.99
    gae_lambda: float = 0.9
    clip_range: float = 0.2
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = 0.2
    learning_rate: Schedule = field(default_factory=lambda: Schedule("linear", 3e-4))
    entropy: Schedule = field(default_factory=lambda: Schedule("constant", 0.0))
    #: Steps in which the critic alone learns.
    critic_warmup: int = 0
    #: Weight of the divergence from the frozen clone.
    kl_weight: float = 0.0
    #: Weight of the cloning loss on demonstrations.
    cloning_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in ("n_envs", "n_steps", "batch_size", "n_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 1 or more")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 0 to 1")
        for name in ("critic_warmup", "kl_weight", "cloning_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 0 or more")

    @property
    def rollout(self) -> int:
        """Steps between two updates."""
        return self.n_envs * self.n_steps


@dataclass(frozen=True)
class DqnSettings:
    """How to learn by DQN; all steps are those of single abaci."""

    n_envs: int = 64
    buffer_size: int = 200_000
    batch_size: int = 128
    gamma: float = 0.95
    learning_rate: Schedule = field(default_factory=lambda: Schedule("linear", 1e-3))
    #: Steps before the first update, with random actions alone.
    learning_starts: int = 5_000
    #: Steps between updates: a multiple of `n_envs`, which step together.
    train_freq: int = 64
    #: Updates each time.
    gradient_steps: int = 4
    target_update_interval: int = 2_000
    #: The part of the run in which random actions become rare.
    exploration_fraction: float = 0.2
    exploration_final_eps: float = 0.05
    max_grad_norm: float = 10.0

    def __post_init__(self) -> None:
        for name in (
            "n_envs",
            "batch_size",
            "train_freq",
            "gradient_steps",
            "target_update_interval",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 1 or more")
        for name in ("gamma", "exploration_fraction", "exploration_final_eps"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 0 to 1")
        if self.learning_starts < 0:
            raise ValueError(
                f"learning_starts={self.learning_starts} is not allowed: give 0 or more"
            )
        if self.buffer_size < self.n_envs:
            raise ValueError(
                f"buffer_size={self.buffer_size} is not allowed: give n_envs={self.n_envs} or more"
            )
        if self.train_freq % self.n_envs:
            raise ValueError(
                f"train_freq={self.train_freq} is not allowed: give a multiple of "
                f"n_envs={self.n_envs}"
            )


Preset = Literal["default", "exact", "alone"]
#: Operations of the file that is recorded where none is given; smaller sets are its first ones.
RECORDED_OPERATIONS = 50_000

#: What each preset decides. `default`: a clone of few demonstrations, so that PPO has something to
#: do. `exact`: as many demonstrations as it takes, on an abacus wide enough for every phase of the
#: encoding, and no PPO. `alone`: PPO from nothing. Idling for ever is worth -0.05 / (1 - discount),
#: at 0.95 as much as a mistake: -1. With a higher discount a policy that does not know what to do
#: would rather end the episode by a mistake than try, with a much lower one it idles. The entropy
#: bonus keeps it trying.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "demo_operations": 500,
        "columns": 10,
        "max_digits": 6,
        "epochs": 60,
        "n_timesteps": 600_000,
        "critic_warmup": 50_000,
        "kl_weight": 0.05,
        "cloning_weight": 1.0,
        "entropy_start": 0.0,
        "learning_rate": 1e-3,
        "n_epochs": 6,
        "batch_size": 256,
        "gamma": 0.95,
        "gae_lambda": 0.9,
    },
    "exact": {
        "demo_operations": 450_000,
        "columns": 12,
        "max_digits": 11,
        "epochs": 40,
        "n_timesteps": 0,
        "critic_warmup": 0,
        "kl_weight": 0.0,
        "cloning_weight": 0.0,
        "entropy_start": 0.0,
        "learning_rate": 5e-4,
        "n_epochs": 3,
        "batch_size": 1024,
        "gamma": 0.99,
        "gae_lambda": 0.9,
    },
    "alone": {
        "demo_operations": 0,
        "columns": 10,
        "max_digits": 6,
        "epochs": 60,
        "n_timesteps": 20_000_000,
        "critic_warmup": 0,
        "kl_weight": 0.0,
        "cloning_weight": 0.0,
        "entropy_start": 0.1,
        "learning_rate": 1e-3,
        "n_epochs": 6,
        "batch_size": 256,
        "gamma": 0.95,
        "gae_lambda": 0.8,
    },
}


def _by_preset(name: str, text: str) -> Any:
    shown = ", ".join(f"{preset} {values[name]}" for preset, values in PRESETS.items())
    return option(None, f"{text} (by preset: {shown})")


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run."""

    preset: Preset = option("default", "few demonstrations and PPO, exact cloning, or PPO alone")
    demonstrations: Path | None = option(
        None, "file of demonstrations; recorded into datasets/ where none is given"
    )
    demo_operations: int | None = _by_preset(
        "demo_operations", "first operations of the file to clone; 0: no cloning"
    )
    demo_seed: int = option(0, "seed of the demonstrations that are recorded")
    start_from: Path | None = option(
        None, "start from this policy (a run, a policy's folder, a trusted zip)"
    )
    trust: bool = option(False, "allow a zip, whose loading runs code of its maker")
    network: NetworkName = option("compact", "network of actor and critic")

    base: int = option(5, "positions of a column")
    columns: int | None = _by_preset("columns", "columns of the abacus")
    max_digits: int | None = _by_preset("max_digits", "digits of the longest operand")
    frames: int = option(3, "frames that the agent sees at once")
    operations: Operations = option("both", "operations to learn")
    reward: str = option("no_of", "reward level, or modules joined by commas")
    start: str = option("random", "value that episodes start from, or 'random'")

    epochs: int | None = _by_preset("epochs", "passes over the demonstrations, at most")
    cloning_batch_size: int = option(512, "samples of an update when cloning")
    cloning_learning_rate: float = option(3e-3, "highest learning rate when cloning")
    patience: int = option(15, "epochs without a lower held-out loss before cloning stops")
    label_smoothing: float = option(0.05, "part of the cloning target spread over legal actions")

    n_timesteps: int | None = _by_preset("n_timesteps", "steps of PPO; 0: cloning alone")
    critic_warmup: int | None = _by_preset("critic_warmup", "first steps, with the actor frozen")
    kl_weight: float | None = _by_preset("kl_weight", "weight of the KL to the frozen clone")
    cloning_weight: float | None = _by_preset(
        "cloning_weight", "weight of a cloning loss on demonstrations during PPO"
    )
    entropy_start: float | None = _by_preset("entropy_start", "entropy bonus at first")
    entropy_end: float = option(0.0, "entropy bonus at the end")
    entropy_schedule: ScheduleKind = option("linear", "how the entropy bonus falls")
    learning_rate: float | None = _by_preset("learning_rate", "learning rate of PPO at first")
    learning_rate_schedule: ScheduleKind = option("linear", "how it falls; sinusoid is the paper's")
    target_kl: float = option(0.2, "KL at which an update stops; 0: never")
    n_envs: int = option(256, "abaci that act at once")
    n_steps: int = option(64, "steps of each between updates")
    batch_size: int | None = _by_preset("batch_size", "samples of an update")
    n_epochs: int | None = _by_preset("n_epochs", "passes over a rollout")
    gamma: float | None = _by_preset("gamma", "discount")
    gae_lambda: float | None = _by_preset("gae_lambda", "lambda of the advantage estimation")
    clip_range: float = option(0.2, "PPO's clip range")
    vf_coef: float = option(0.5, "weight of the critic's loss")

    seed: int = option(0, "seed of everything random")
    threads: int = option(1, "threads of torch; more help the paper network alone")
    device: str = option("cpu", "device of torch")
    eval_freq: int = option(100_000, "steps between evaluations")
    eval_episodes: int = option(500, "episodes of an evaluation")

    def __post_init__(self) -> None:
        for name in ("seed", "demo_seed", "demo_operations", "n_timesteps"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name}={value} is not allowed: give 0 or more")
        for name in ("threads", "eval_freq", "eval_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 1 or more")

    def settled(self) -> Settings:
        """With the preset's values where nothing else was asked for; impossible ones raise."""
        preset = PRESETS[self.preset]
        open_fields = {name: value for name, value in preset.items() if getattr(self, name) is None}
        chosen = replace(self, **open_fields)
        chosen.world()
        chosen.cloning()
        chosen.ppo()
        if chosen.demo_operations and chosen.start_from is not None:
            raise ValueError("demo_operations and start_from: give one of them, the other as 0")
        if not chosen.demo_operations and not chosen.n_timesteps:
            raise ValueError("demo_operations=0 and n_timesteps=0: there is nothing to do")
        if not chosen.demo_operations and chosen.cloning_weight:
            raise ValueError("cloning_weight needs demonstrations: give demo_operations")
        return chosen

    def world(self) -> AbacusConfig:
        """The abacus on which PPO trains and the policy is evaluated."""
        start = self.start if self.start == "random" else int(self.start)
        return AbacusConfig(
            columns=self.columns or 10,
            base=self.base,
            max_digits=self.max_digits or 6,
            frames=self.frames,
            operations=self.operations,
            reward=self.reward,
            start=start,  # type: ignore[arg-type]
        )

    def recipe(self) -> Recipe:
        """The demonstrations that are recorded where no file is given."""
        config = replace(
            self.world(), max_operations=OPERATIONS_PER_EPISODE, reward="dense", frames=3
        )
        operations = max(self.demo_operations or 0, RECORDED_OPERATIONS)
        return Recipe(config=config, seed=self.demo_seed, operations=operations)

    def cloning(self) -> CloningSettings:
        """How to clone."""
        return CloningSettings(
            epochs=self.epochs or 1,
            batch_size=self.cloning_batch_size,
            learning_rate=self.cloning_learning_rate,
            patience=self.patience,
            label_smoothing=self.label_smoothing,
        )

    def ppo(self) -> PpoSettings:
        """How to fine-tune."""
        return PpoSettings(
            n_envs=self.n_envs,
            n_steps=self.n_steps,
            batch_size=self.batch_size or 1024,
            n_epochs=self.n_epochs or 1,
            gamma=0.99 if self.gamma is None else self.gamma,
            gae_lambda=0.9 if self.gae_lambda is None else self.gae_lambda,
            clip_range=self.clip_range,
            vf_coef=self.vf_coef,
            target_kl=self.target_kl or None,
            learning_rate=Schedule(self.learning_rate_schedule, self.learning_rate or 0.0),
            entropy=Schedule(self.entropy_schedule, self.entropy_start or 0.0, self.entropy_end),
            critic_warmup=self.critic_warmup or 0,
            kl_weight=self.kl_weight or 0.0,
            cloning_weight=self.cloning_weight or 0.0,
        )

    def to_json(self) -> str:
        """The settings as JSON text."""
        values = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }
        return json.dumps(values, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Settings from JSON text; unknown names raise."""
        values = json.loads(text)
        known = {field.name for field in fields(Settings)}
        if not isinstance(values, dict) or not set(values) <= known:
            raise ValueError("these are not the settings of a run of this version")
        for name in ("demonstrations", "start_from"):
            if values.get(name) is not None:
                values[name] = Path(values[name])
        return Settings(**values)
