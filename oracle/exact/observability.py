"""Whether an observation tells what to do, counted over steps that the teacher was seen to take.

Where two states look the same and the teacher answers differently, no memory-less policy can be
right in both: the best it can do is to give the more frequent answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.observation import decode_frame
from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.exact.complete_set import ObservationSet, observation_keys
from oracle.exact.exploration import Exploration
from oracle.exact.witness import Witness, walks
from oracle.expert import expert_actions

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


#: Where the signpost is, by abacus.observation's numbers.
SIGNPOST_NAMES = ("out of sight", "in the left column", "in the finger's column")


@dataclass(frozen=True)
class Kind:
    """What ambiguous observations have in common: the answers, the symbol, the signpost's place."""

    answers: tuple[Action, ...]
    symbol: str
    signpost: str


@dataclass(frozen=True)
class Ambiguity:
    """An observation, and by answer the situations that show it and ask for that, nearest first."""

    base: int
    history: tuple[int, ...]
    symbol: int
    operation: int
    situations: Mapping[Action, npt.NDArray[np.int64]]

    @cached_property
    def kind(self) -> Kind:
        if self.symbol >= self.base:
            symbol = "an operation symbol"
        else:
            symbol = "the digit 0" if self.symbol == 0 else "a digit"
        signpost = SIGNPOST_NAMES[decode_frame(self.base, self.history[-1])[-1]]
        return Kind(tuple(sorted(self.situations)), symbol, signpost)

    @property
    def distance(self) -> int:
        """The number of the farther of the nearest situations: the lower, the easier to follow."""
        return max(int(situations[0]) for situations in self.situations.values())


def find_ambiguities(exploration: Exploration, complete: ObservationSet) -> list[Ambiguity]:
    """All ambiguous observations of an exploration's set, nearest first."""
    rows = np.flatnonzero(complete.ambiguous)
    if len(rows) == 0:
        return []
    keys = observation_keys(exploration.histories, exploration.symbols, exploration.operations)
    ambiguous = complete.keys[rows]  # ascending, as all of the set's
    places = np.minimum(np.searchsorted(ambiguous, keys), len(rows) - 1)
    showing = np.flatnonzero(ambiguous[places] == keys)
    by_place = np.argsort(places[showing], kind="stable")
    begins = np.searchsorted(places[showing][by_place], np.arange(len(rows) + 1))
    found = [
        _ambiguity(exploration, complete, int(row), showing[by_place[begins[k] : begins[k + 1]]])
        for k, row in enumerate(rows)
    ]
    return sorted(found, key=lambda ambiguity: ambiguity.distance)


def _ambiguity(
    exploration: Exploration,
    complete: ObservationSet,
    row: int,
    situations: npt.NDArray[np.int64],
) -> Ambiguity:
    answers = exploration.actions[situations]
    return Ambiguity(
        complete.base,
        tuple(complete.histories[row].tolist()),
        int(complete.symbols[row]),
        int(complete.operations[row]),
        {Action(int(answer)): situations[answers == answer] for answer in np.unique(answers)},
    )


def worked_example(
    exploration: Exploration, ambiguity: Ambiguity, variant: Variant
) -> dict[Action, Witness]:
    """For each answer the nearest operation that meets the observation and asks for that."""
    return {
        answer: _witness(exploration, ambiguity, answer, variant)
        for answer in sorted(ambiguity.situations)
    }


def _witness(
    exploration: Exploration, ambiguity: Ambiguity, answer: Action, variant: Variant
) -> Witness:
    for situation in ambiguity.situations[answer].tolist():
        for witness in walks(exploration, exploration.path_to(situation), variant):
            if witness is not None and _confirms(witness, ambiguity, answer, variant):
                return witness
    raise AssertionError(f"no operation was found that shows {ambiguity} and asks for {answer}")


def _confirms(witness: Witness, ambiguity: Ambiguity, answer: Action, variant: Variant) -> bool:
    batch = abacus_of(witness, len(ambiguity.history), variant)
    return (
        tuple(batch.history[0].tolist()) == ambiguity.history
        and batch.scalars["symbol"][0] == ambiguity.symbol
        and batch.scalars["operation"][0] == ambiguity.operation
        and expert_actions(batch, variant)[0] == answer
    )


def abacus_of(witness: Witness, frames: int, variant: Variant) -> AbacusBatch:
    """The abacus that the witness speaks of, at its step."""
    batch = AbacusBatch(witness.config(frames), 1, autoreset=False)
    batch.reset(0)
    for _ in range(witness.step):
        batch.step(expert_actions(batch, variant))
    return batch
