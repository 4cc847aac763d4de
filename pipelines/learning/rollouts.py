"""What the abaci did since the last update: rows of observations, actions, rewards, advantages.

Values are not needed to act, so the critic runs once over the whole rollout when it is full, and
truncated episodes are bootstrapped from what they showed last in one call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abacus.batch import AbacusBatch
from abacus.rules import Action, End
from pipelines.learning.networks import Network

#: Rows given to the critic at once.
CHUNK = 8192
FAILURES = (End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT, End.BUDGET)


def parts(count: int, size: int) -> Iterator[slice]:
    """So many rows in parts of one size; the last may be smaller."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


@dataclass
class RolloutCounts:
    """What came of the operations of a rollout."""

    solved: int = 0
    longest_run: int = 0
    illegal: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The fraction of operations solved, of those that were solved or failed."""
        attempted = self.solved + sum(self.failures.values())
        return self.solved / attempted if attempted else 0.0


class Rollouts:
    """`steps` steps of `abaci` abaci, written one step at a time."""

    def __init__(self, steps: int, abaci: int, row_length: int) -> None:
        self.steps, self.abaci = steps, abaci
        self.rows = torch.zeros(steps, abaci, row_length)
        self.masks = torch.zeros(steps, abaci, len(Action), dtype=torch.bool)
        self.actions = torch.zeros(steps, abaci, dtype=torch.int64)
        self.log_probs = torch.zeros(steps, abaci)
        self.rewards = np.zeros((steps, abaci), np.float32)
        self.dones = np.zeros((steps, abaci), np.bool_)
        self.values = np.zeros((steps, abaci), np.float32)
        self.advantages = np.zeros((steps, abaci), np.float32)
        self.counts = RolloutCounts()
        self._truncated: list[tuple[int, npt.NDArray[np.int32], torch.Tensor]] = []

    def reset(self) -> None:
        """Empties it; the arrays are written over."""
        self.counts = RolloutCounts()
        self._truncated = []

    def note(self, step: int, batch: AbacusBatch) -> None:
        """Keeps what came of a step."""
        self.rewards[step] = batch.reward
        np.logical_or(batch.terminated, batch.truncated, out=self.dones[step])
        self.counts.illegal += int(batch.illegal.sum())
        if len(batch.ended):
            self._note_ends(step, batch)

    def _note_ends(self, step: int, batch: AbacusBatch) -> None:
        ended = batch.ended
        finals = batch.final_scalars[: len(ended)]
        ends = batch.ends[ended]
        counts = self.counts
        for kind in FAILURES:
            counts.failures[kind.name.lower()] += int((ends == kind).sum())
        counts.solved += int(finals["operations_solved"].sum())
        counts.longest_run = max(counts.longest_run, int(finals["operations_solved"].max()))
        counts.returns += finals["episode_return"].tolist()
        counts.lengths += finals["steps"].tolist()
        truncated = batch.truncated[ended]
        if truncated.any():
            last_seen = torch.from_numpy(batch.out.final_seen[: len(ended)][truncated])
            self._truncated.append((step, ended[truncated].copy(), last_seen))

    def finish(self, network: Network, batch: AbacusBatch, gamma: float, gae_lambda: float) -> None:
        """Values, and advantages by generalised advantage estimation."""
        if not bool(self.masks.any(dim=2).all()):
            raise AssertionError("a mask without a legal action")
        flat = self.rows.flatten(0, 1)
        values = torch.cat([network.values(flat[part]) for part in parts(len(flat), CHUNK)])
        self.values[:] = values.numpy().reshape(self.steps, self.abaci)
        after = network.values(torch.from_numpy(batch.out.seen)).numpy()
        for step, abaci, rows in self._truncated:
            self.rewards[step, abaci] += gamma * network.values(rows).numpy()
        advantage = np.zeros(self.abaci, np.float32)
        for step in range(self.steps - 1, -1, -1):
            goes_on = ~self.dones[step]
            delta = self.rewards[step] + gamma * after * goes_on - self.values[step]
            advantage = delta + gamma * gae_lambda * goes_on * advantage
            self.advantages[step] = advantage
            after = self.values[step]

    @property
    def returns(self) -> npt.NDArray[np.float32]:
        """What the critic should have expected."""
        returns: npt.NDArray[np.float32] = self.advantages + self.values
        return returns

    def flat(self) -> Samples:
        """All samples, one row each."""
        return Samples(
            self.rows.flatten(0, 1),
            self.masks.flatten(0, 1),
            self.actions.flatten(),
            self.log_probs.flatten(),
            torch.from_numpy(self.advantages).flatten(),
            torch.from_numpy(self.returns).flatten(),
        )

    def explained_variance(self) -> float:
        """How much of the returns' variance the critic foresaw: 1 all, 0 none."""
        variance = float(self.returns.var())
        return float("nan") if variance == 0 else 1 - float(self.advantages.var()) / variance


@dataclass(frozen=True)
class Samples:
    """Rows of a rollout, or of a part of it."""

    rows: torch.Tensor
    masks: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor

    def __len__(self) -> int:
        return len(self.actions)

    def pick(self, which: torch.Tensor) -> Samples:
        """Some of the rows."""
        return Samples(*(part[which] for part in self._parts()))

    def _parts(self) -> tuple[Any, ...]:
        return (
            self.rows,
            self.masks,
            self.actions,
            self.log_probs,
            self.advantages,
            self.returns,
        )
