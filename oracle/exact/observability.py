"""Observability: how often an observation does not determine the expert's action.

Where two states have the same observation and the expert acts differently in them, no memoryless
policy is right in both; the best it can do is take the more frequent action. Ambiguous observations
are found exactly, in the complete set, and counted in a sample of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.observation import decode_frame
from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.exact.complete_set import ObservationSet, observation_keys
from oracle.exact.witness import WitnessFinder
from oracle.expert import expert_actions

#: Abaci stepped together: few enough that each gets far beyond its first operations.
ABACI = 1024
#: Places of the signpost, by the numbers of abacus.observation.
SIGNPOST_NAMES = ("out of sight", "in the left column", "in the finger's column")


@dataclass(frozen=True)
class Kind:
    """Properties shared by ambiguous observations: the actions, the symbol, the signpost."""

    answers: tuple[Action, ...]
    symbol: str
    signpost: str


@dataclass(frozen=True)
class Ambiguity:
    """An observation with several right actions."""

    row: int  # in the complete set
    history: tuple[int, ...]
    symbol: str
    operation: int
    kind: Kind
    #: The nearest situation in which the expert takes each action.
    nearest: Mapping[Action, int]

    @property
    def distance(self) -> int:
        """Number of the farther of the nearest situations: the lower, the easier to follow."""
        return max(self.nearest.values())


def find_ambiguities(finder: WitnessFinder) -> list[Ambiguity]:
    """Return all ambiguous observations of a complete set, nearest first."""
    rows = np.flatnonzero(finder.observations.ambiguous)
    return sorted(
        (_ambiguity(finder, int(row)) for row in rows), key=lambda ambiguity: ambiguity.distance
    )


def _ambiguity(finder: WitnessFinder, row: int) -> Ambiguity:
    known, situations = finder.observations, finder.situations(row)
    actions, first = np.unique(finder.exploration.actions[situations], return_index=True)
    answers = tuple(Action(int(action)) for action in actions)
    history, symbol = tuple(known.histories[row].tolist()), known.symbol_text(row)
    names = {"+": "an operation symbol", "-": "an operation symbol", "0": "the digit 0"}
    signpost = SIGNPOST_NAMES[decode_frame(known.base, history[-1])[-1]]
    return Ambiguity(
        row,
        history,
        symbol,
        int(known.operations[row]),
        Kind(answers, names.get(symbol, "a digit"), signpost),
        dict(zip(answers, situations[first].tolist(), strict=True)),
    )


@dataclass(frozen=True)
class SampledSteps:
    """Observations before each of S steps, and the expert's actions."""

    histories: npt.NDArray[np.int16]  # (S, frames): frame codes, oldest first
    symbols: npt.NDArray[np.uint8]  # (S,)
    operations: npt.NDArray[np.uint8]  # (S,)
    actions: npt.NDArray[np.uint8]  # (S,)

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class SampledCount:
    """Counts of sampled observations and of ambiguous ones among them."""

    steps: int
    observations: int
    ambiguous: int
    #: Steps on which the most frequent action for the observation is not the expert's.
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
    """Sample steps of the expert on random operations; `progress` gets the number of new steps."""
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
    """Count a sample, all of which must be in the complete set, with as many frames as the set has.

    The last k frames of a longer history are the history of an agent with k frames, also at the
    start of an episode, where all frames are equal.
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
