"""The rollout buffer of PPO: inputs, actions, rewards and advantages, and counts for the log.

Acting needs no values, so the critic runs once over the full rollout. Truncated episodes are
bootstrapped from their final observations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from abacus.batch import AbacusBatch
from abacus.rules import Action, End
from pipelines.learning.networks import CHUNK

#: Ends of an episode by a mistake that the level judges.
MISTAKES = (End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT)
FAILURES = (*MISTAKES, End.BUDGET)
#: A rollout has collapsed if its accuracy is below this, and one of the next three is beyond its
#: limit: the share of episodes that ran out of steps, the share of the most frequent action, the
#: mean entropy of the actions in nats.
COLLAPSED_ACCURACY = 0.5
MOST_IDLE = 0.9
MOST_OF_ONE_ACTION = 0.9
LEAST_ENTROPY = 0.01


@dataclass
class RolloutCounts:
    """Operations and episodes of a rollout; of resumed episodes, the longest run alone."""

    solved: int = 0
    longest_run: int = 0
    illegal: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The fraction of finished operations that were solved."""
        attempted = self.solved + sum(self.failures.values())
        return self.solved / attempted if attempted else 0.0

    def collapse(self, actions: torch.Tensor, entropy: float) -> str | None:
        """Return how the policy collapsed, None if it did not.

        `actions` are those of the rollout, `entropy` is its mean entropy.
        """
        if self.accuracy >= COLLAPSED_ACCURACY:
            return None
        idle = self.failures[End.BUDGET.name.lower()] / max(len(self.lengths), 1)
        if idle > MOST_IDLE:
            return f"idling: {idle:.0%} of the episodes ran out of steps"
        shares = torch.bincount(actions.flatten(), minlength=len(Action)) / actions.numel()
        if float(shares.max()) > MOST_OF_ONE_ACTION:
            action = Action(int(shares.argmax()))
            return f"one action: {float(shares.max()):.0%} of the actions are {action.words}"
        if entropy < LEAST_ENTROPY:
            return f"no exploration is left: the entropy of the actions is {entropy:.2g}"
        return None


@dataclass(frozen=True)
class Samples:
    """Samples of a rollout, one per row."""

    inputs: torch.Tensor
    masks: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor

    def __len__(self) -> int:
        return len(self.actions)

    def select(self, indices: torch.Tensor) -> Samples:
        """Return some of the samples."""
        return Samples(*(values[indices] for values in vars(self).values()))


class Rollouts:
    """Rollout buffer for `steps` steps of `abaci` environments."""

    def __init__(self, steps: int, abaci: int, input_length: int) -> None:
        self.steps, self.abaci = steps, abaci
        #: What actor and critic read.
        self.inputs = torch.zeros(steps, abaci, input_length)
        self.masks = torch.zeros(steps, abaci, len(Action), dtype=torch.bool)
        self.actions = torch.zeros(steps, abaci, dtype=torch.int64)
        self.log_probs = torch.zeros(steps, abaci)
        self.rewards = np.zeros((steps, abaci), np.float32)
        self.dones = np.zeros((steps, abaci), np.bool_)
        self.values = np.zeros((steps, abaci), np.float32)
        self.advantages = np.zeros((steps, abaci), np.float32)
        self.reset()

    def reset(self) -> None:
        """Start a new rollout; the arrays are overwritten."""
        self.counts = RolloutCounts()
        self._truncated: list[tuple[int, npt.NDArray[np.int32], torch.Tensor]] = []

    def add(
        self,
        step: int,
        batch: AbacusBatch,
        bonus: npt.NDArray[np.float32] | None = None,
        resumed: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Store the results of a step of the environments, with a bonus added to the rewards.

        `resumed` tells which episodes were resumed after a mistake.
        """
        self.rewards[step] = batch.reward
        if bonus is not None:
            self.rewards[step] += bonus
        np.logical_or(batch.terminated, batch.truncated, out=self.dones[step])
        self.counts.illegal += int(batch.illegal.sum())
        if len(batch.ended):
            self._count_ended(batch, resumed)

    def _count_ended(self, batch: AbacusBatch, resumed: npt.NDArray[np.bool_] | None) -> None:
        ended, counts = batch.ended, self.counts
        finals = batch.final_scalars[: len(ended)]
        counts.longest_run = max(counts.longest_run, int(finals["operations_solved"].max()))
        if resumed is not None:
            finals, ended = finals[~resumed[ended]], ended[~resumed[ended]]
        for kind in FAILURES:
            counts.failures[kind.name.lower()] += int((batch.ends[ended] == kind).sum())
        counts.solved += int(finals["operations_solved"].sum())
        counts.returns += finals["episode_return"].tolist()
        counts.lengths += finals["steps"].tolist()

    def add_truncated(self, step: int, abaci: npt.NDArray[np.int32], inputs: torch.Tensor) -> None:
        """Store the last states of episodes that a step truncated."""
        self._truncated.append((step, abaci, inputs))

    def finish(
        self,
        values: Callable[[torch.Tensor], torch.Tensor],
        next_inputs: torch.Tensor,
        gamma: float,
        gae_lambda: float,
    ) -> None:
        """Compute values, and advantages by generalised advantage estimation (GAE).

        `values` is the critic, `next_inputs` what it reads after the last step.
        """
        if not bool(self.masks.any(dim=2).all()):
            raise AssertionError("a mask without a legal action")
        chunks = torch.split(self.inputs.flatten(0, 1), CHUNK)
        found = torch.cat([values(chunk) for chunk in chunks])
        self.values[:] = found.numpy().reshape(self.steps, self.abaci)
        next_values = values(next_inputs).numpy()
        for step, abaci, inputs in self._truncated:
            self.rewards[step, abaci] += gamma * values(inputs).numpy()
        advantage = np.zeros(self.abaci, np.float32)
        for step in range(self.steps - 1, -1, -1):
            running = ~self.dones[step]
            delta = self.rewards[step] + gamma * next_values * running - self.values[step]
            advantage = delta + gamma * gae_lambda * running * advantage
            self.advantages[step] = advantage
            next_values = self.values[step]

    @property
    def returns(self) -> npt.NDArray[np.float32]:
        """Targets of the critic."""
        returns: npt.NDArray[np.float32] = self.advantages + self.values
        return returns

    def samples(self) -> Samples:
        """Return all samples."""
        return Samples(
            self.inputs.flatten(0, 1),
            self.masks.flatten(0, 1),
            self.actions.flatten(),
            self.log_probs.flatten(),
            torch.from_numpy(self.advantages).flatten(),
            torch.from_numpy(self.returns).flatten(),
        )

    def explained_variance(self) -> float:
        """Return the fraction of the variance of the returns that the critic predicted."""
        variance = float(self.returns.var())
        return float("nan") if variance == 0 else 1 - float(self.advantages.var()) / variance
