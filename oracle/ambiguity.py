"""Observations with more than one right answer, and for each an operation that asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.observation import decode_frame
from abacus.rules import Action
from oracle.algorithm import Variant
from oracle.expert import expert_actions
from oracle.explore import Exploration
from oracle.observations import ObservationSet, observation_keys
from oracle.witness import Witness, walks

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
        for witness in walks(exploration, exploration.way_to(situation), variant):
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
