"""The arms of the study: its learners, and what a block of a grid gives to each.

To add an arm, write a module with a `pipelines.learning.learner.Learner` and add a line to `ARMS`.
Grids, cells, records and tables take everything else from there. A learner is imported when a grid
has its arm: tables of records need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.learning.learner import Learner


@dataclass(frozen=True)
class Arm:
    """A learner with a name, and what it learns from."""

    #: Name in grids and records.
    name: str
    #: Name in tables and figures.
    title: str
    #: Module, in the package `pipelines`, and name of its `Learner`.
    entry: str
    #: Fewest demonstrated operations; None: it learns from none.
    demonstrations: int | None = None
    #: Whether it asks the teacher for answers, up to the number of `labels`.
    labels: bool = False
    #: Whether it learns from the reward of the environment.
    reward: bool = False
    #: Whether it takes the environment steps of its comparison.
    steps: bool = False
    #: Whether it plans and mends, as its preset says.
    plans: bool = False
    #: Preset of its settings; None: `alone` for steps without demonstrations, `default` otherwise.
    preset: str | None = None

    @property
    def takes_steps(self) -> bool:
        """Whether it learns from steps of the environment, given by the grid or its own."""
        return self.steps or self.plans

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of the lists that a block of a grid must have for this arm."""
        given = {
            "demonstrations": self.demonstrations is not None,
            "labels": self.labels,
            "reward": self.reward,
        }
        return tuple(name for name, needed in given.items() if needed)

    @property
    def learner(self) -> Learner:
        """The learner, whose module is imported now."""
        module, _, name = self.entry.partition(":")
        learner: Learner = getattr(import_module(f"pipelines.{module}"), name)
        return learner


_ARMS = (
    Arm("cloning", "cloning alone", "experiments.clones:CLONING", demonstrations=1),
    Arm("ppo", "PPO", "experiments.clones:PPO", demonstrations=0, reward=True, steps=True),
    Arm(
        "planning",
        "planning and mending",
        "experiments.clones:PPO",
        reward=True,
        plans=True,
        preset="alone",
    ),
    Arm("teaching", "teaching", "experiments.clones:TEACHING", demonstrations=0, preset="exact"),
    Arm("dagger", "DAgger", "learning.dagger:DAGGER", labels=True),
    Arm("gail", "GAIL", "learning.adversarial:GAIL", demonstrations=1, steps=True),
    Arm("dqn", "DQN, masked", "learning.dqn:MASKED", reward=True, steps=True),
    Arm("dqn_unmasked", "DQN, unmasked", "learning.dqn:UNMASKED", reward=True, steps=True),
)
#: By name, in the order of tables.
ARMS = {arm.name: arm for arm in _ARMS}
