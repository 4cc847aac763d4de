"""Whether an observation tells what to do, counted over steps that the teacher was seen to take.

Where two states look the same and the teacher answers differently, no memory-less policy can be
right in both: the best it can do is to give the more frequent answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.expert import expert_actions
from oracle.observations import ObservationSet, observation_keys

#: Abaci that are stepped together: few enough that each gets far beyond its first operations.
ABACI = 1024


@dataclass(frozen=True)
class SampledSteps:
    """What was seen before each of S steps, and the teacher's answer."""

    histories: npt.NDArray[np.int16]  # (S, frames): frame codes, oldest first
    symbols: npt.NDArray[np.uint8]  # (S,)
    operations: npt.NDArray[np.uint8]  # (S,)
    actions: npt.NDArray[np.uint8]  # (S,)

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class SampledCount:
    """How ambiguous sampled observations are, with so many frames in each."""

    steps: int
    observations: int
    ambiguous: int
    #: Steps at which the most frequent answer to the observation is not the right one.
    unlearnable_steps: int

    @property
    def unlearnable_share(self) -> float:
        return self.unlearnable_steps / self.steps


def sample_steps(
    config: AbacusConfig,
    variant: Variant,
    steps: int,
    seed: int,
    progress: Callable[[int], object] = lambda steps: None,
) -> SampledSteps:
    """So many steps of the teacher on random operations; fewer abaci if the steps are few."""
    abaci = min(ABACI, steps)
    rounds = -(-steps // abaci)
    batch = AbacusBatch(config, abaci)
    batch.reset(seed)
    histories = np.empty((rounds, abaci, config.frames), np.int16)
    symbols, operations, actions = (np.empty((rounds, abaci), np.uint8) for _ in range(3))
    for number in range(rounds):
        answers = expert_actions(batch, variant)
        histories[number] = batch.history
        symbols[number] = batch.scalars["symbol"]
        operations[number] = batch.scalars["operation"]
        actions[number] = answers
        batch.step(answers)
        progress(abaci)
    return SampledSteps(
        histories.reshape(-1, config.frames)[:steps],
        symbols.ravel()[:steps],
        operations.ravel()[:steps],
        actions.ravel()[:steps],
    )


def count_sampled(sample: SampledSteps, complete: ObservationSet) -> SampledCount:
    """Counts a sample with as many of its frames as the complete set has; all must be in the set.

    The last k frames of a longer history are the history of an agent with k frames, at the start
    of an episode too: there all frames show the first one.
    """
    histories = sample.histories[:, -complete.frames :]
    keys = observation_keys(histories, sample.symbols, sample.operations)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    rows = complete.index(histories[first], sample.symbols[first], sample.operations[first])
    if (rows < 0).any():
        raise AssertionError(
            f"{(rows < 0).sum()} sampled observations are not in the complete set of "
            f"{len(complete)}: the exploration misses some"
        )
    counts = np.bincount(number * len(Action) + sample.actions, minlength=len(Action) * len(first))
    counts = counts.reshape(len(first), len(Action))
    return SampledCount(
        steps=len(sample),
        observations=len(first),
        ambiguous=int(((counts > 0).sum(axis=1) > 1).sum()),
        unlearnable_steps=int(len(sample) - counts.max(axis=1).sum()),
    )
