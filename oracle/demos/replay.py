"""Replays demonstrations through the environment and the teacher, and names what differs.

Nothing of the recorder is used: the actions taken are given to `AbacusBatch`, and everything that
it shows, judges and pays is compared with what was recorded, and the teacher's answer with the
label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.rules import AbacusConfig, End
from oracle.demos.frames import values_of
from oracle.demos.read import Demonstrations, Observation
from oracle.demos.schema import OUTCOME_OF_ACTION
from oracle.expert import expert_actions

_AT_ONCE = 4096

Numbers = npt.NDArray[np.int64]
#: What is compared, in which abaci, as it was recorded and as it is.
Comparison = tuple[str, Numbers, npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True)
class Difference:
    """Where a replay first parts from what was recorded."""

    episode: int
    step: int
    what: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return (
            f"episode {self.episode}, step {self.step}: {self.what} is recorded as "
            f"{self.recorded}, and is {self.replayed} in the replay"
        )


def first_difference(
    demonstrations: Demonstrations, progress: Callable[[int], object] = lambda transitions: None
) -> Difference | None:
    """Replays every episode; None if everything is as it was recorded."""
    recorded = _Recorded(demonstrations)
    for config, episodes in _groups(demonstrations):
        for start in range(0, len(episodes), _AT_ONCE):
            block = _Block(recorded, config, episodes[start : start + _AT_ONCE])
            difference = block.first_difference()
            if difference is not None:
                return difference
            progress(block.transitions)
    return recorded.wrong_result()


def _groups(demonstrations: Demonstrations) -> Iterator[tuple[AbacusConfig, Numbers]]:
    """Episodes by their limit of operations: the last one may have been cut short."""
    episodes, config = demonstrations.episodes, demonstrations.config
    most = demonstrations.recipe.longest_episode
    limits = np.where(episodes["end"] == End.LIMIT, episodes["operations"], most)
    for limit in np.unique(limits).tolist():
        which = np.flatnonzero(limits == limit)
        # Of like length, so that few wait for the last one of their block.
        by_length = which[np.argsort(episodes["length"][which], kind="stable")]
        yield replace(config, max_operations=limit), by_length


class _Recorded:
    """What was recorded, in the shapes that it is compared in."""

    def __init__(self, demonstrations: Demonstrations) -> None:
        self.demonstrations = demonstrations
        self.transitions = demonstrations.transitions
        self.episodes = demonstrations.episodes
        self.operations = demonstrations.operations
        self.operation_ends = self.operations["start"] + self.operations["length"] - 1

    @cached_property
    def rewards(self) -> npt.NDArray[np.float32]:
        return self.demonstrations.rewards()

    @cached_property
    def finals(self) -> Observation:
        return self.demonstrations.final_observations()

    def wrong_result(self) -> Difference | None:
        """The first operation whose numbers do not add up."""
        columns, base = self.operations, self.demonstrations.config.base
        first, second, result = (
            values_of(columns[name], base) for name in ("before", "operand", "after")
        )
        sign = np.where(columns["operation"] == SUBTRACT, -1, 1)
        expected = first + sign * second
        wrong = np.flatnonzero(expected != result)
        if not len(wrong):
            return None
        m = int(wrong[0])
        episode, step = int(columns["episode"][m]), int(columns["start"][m])
        step -= int(self.episodes["start"][episode])
        return Difference(episode, step, "the result", int(result[m]), int(expected[m]))


class _Block:
    """Some episodes that are replayed side by side."""

    def __init__(self, recorded: _Recorded, config: AbacusConfig, episodes: Numbers) -> None:
        self._recorded, self._episodes = recorded, episodes
        self._start = recorded.episodes["start"][episodes]
        self._length = recorded.episodes["length"][episodes]
        self._batch = AbacusBatch(config, len(episodes), autoreset=False)

    @property
    def transitions(self) -> int:
        return int(self._length.sum())

    def first_difference(self) -> Difference | None:
        """Replays step by step."""
        self._batch.reset(self._recorded.episodes["seed"][self._episodes].tolist())
        actions = np.zeros(len(self._episodes), np.int64)
        for step in range(int(self._length.max())):
            which = np.flatnonzero(self._length > step)
            rows = self._start[which] + step
            # What those do that ended already is not looked at.
            actions[which] = self._recorded.transitions["taken"][rows]
            for compared in self._step(which, rows, actions):
                difference = self._difference(step, *compared)
                if difference is not None:
                    return difference
        return None

    def _step(self, which: Numbers, rows: Numbers, actions: Numbers) -> Iterator[Comparison]:
        yield from self._before(which, rows)
        yield from self._at_operations(which, rows)
        self._batch.step(actions)
        yield from self._after(which, rows, actions)
        yield from self._at_ends(which, rows)

    def _difference(
        self, step: int, what: str, which: Numbers, recorded: Any, replayed: Any
    ) -> Difference | None:
        unequal = recorded != replayed
        if not unequal.any():
            return None
        k = int(np.argmax(unequal.reshape(len(which), -1).any(axis=1)))
        episode = int(self._episodes[which[k]])
        return Difference(episode, step, what, recorded[k].tolist(), replayed[k].tolist())

    def _before(self, which: Numbers, rows: Numbers) -> Iterator[Comparison]:
        """What is seen, what is legal, what the teacher says."""
        demonstrations, batch = self._recorded.demonstrations, self._batch
        for key, seen in demonstrations.observations(rows).items():
            yield key, which, seen, batch.observation[key][which]
        yield "mask", which, demonstrations.masks(rows), batch.masks[which]
        answers = expert_actions(batch, demonstrations.recipe.variant)
        yield "action", which, self._recorded.transitions["action"][rows], answers[which]

    def _at_operations(self, which: Numbers, rows: Numbers) -> Iterator[Comparison]:
        """The numbers of operations that start or end with these rows."""
        columns, batch = self._recorded.operations, self._batch
        scalars: Any = batch.scalars
        for name, places in (
            ("before", columns["start"]),
            ("after", self._recorded.operation_ends),
        ):
            numbers = np.minimum(np.searchsorted(places, rows), len(places) - 1)
            there = places[numbers] == rows
            yield name, which[there], columns[name][numbers[there]], batch.digits[which[there]]
            if name == "before":
                kind = columns["operation"][numbers[there]]
                yield "operation", which[there], kind, scalars["operation"][which[there]]

    def _after(self, which: Numbers, rows: Numbers, actions: Numbers) -> Iterator[Comparison]:
        """How the step was judged and paid, and whether it ended the episode."""
        columns, batch = self._recorded.transitions, self._batch
        judged = np.array(OUTCOME_OF_ACTION)[actions[which]]
        outcomes = np.zeros((len(which), batch.outcomes.shape[1]), np.int8)
        outcomes[np.arange(len(which)), judged] = columns["outcome"][rows]
        yield "outcomes", which, outcomes, batch.outcomes[which]
        yield "reward", which, self._recorded.rewards[rows], batch.reward[which]
        for name, now in (("terminated", batch.terminated), ("truncated", batch.truncated)):
            yield name, which, columns[name][rows].astype(np.bool_), now[which]

    def _at_ends(self, which: Numbers, rows: Numbers) -> Iterator[Comparison]:
        """Why episodes ended, and what was seen last."""
        ended = which[rows + 1 == (self._start + self._length)[which]]
        episodes = self._episodes[ended]
        yield "end", ended, self._recorded.episodes["end"][episodes], self._batch.ends[ended]
        for key, seen in self._recorded.finals.items():
            yield f"final {key}", ended, seen[episodes], self._batch.observation[key][ended]
