"""Replays demonstrations through the environment and the teacher, and names what differs.

Nothing of the recorder is used. The actions taken are given to the environment's own `step`, and
everything that it shows, judges and pays is compared with what a learner would be given, and the
teacher's answer with the label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.batch import AbacusBatch, stream_start
from abacus.compiling import compiled
from abacus.kernel import ACTIONS, OUTCOME_OF_ACTION, SUBTRACT
from abacus.observation import observation_lengths
from abacus.rules import End
from oracle.demos.columns import values_of
from oracle.demos.dataset import Demonstrations, Observation
from oracle.expert import answer

#: Transitions that are replayed before they are compared.
_AT_ONCE = 2**15

Numbers = npt.NDArray[np.int64]
#: What is compared, in which rows of the file, as it was recorded and as it is.
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
    replay = _Replay(demonstrations)
    for first in range(0, len(demonstrations), _AT_ONCE):
        stop = min(first + _AT_ONCE, len(demonstrations))
        for what, rows, recorded, replayed in replay.comparisons(first, stop):
            unequal = recorded != replayed
            if unequal.any():
                k = int(np.argmax(unequal.reshape(len(rows), -1).any(axis=1)))
                return replay.difference(int(rows[k]), what, recorded[k], replayed[k])
        progress(stop - first)
    return None


class _Episodes(NamedTuple):
    """What the compiled replay knows of episodes."""

    start: Any
    length: Any
    stream: Any
    limit: Any


class _Played(NamedTuple):
    """What the compiled replay writes: a row for each transition, and the marked and last ones."""

    seen: Any  # (rows, observation)
    masks: Any  # (rows, 8)
    answers: Any  # (rows,)
    results: Any  # (rows,) kernel.RESULT
    digits: Any  # (marked, columns)
    finals: Any  # (ended, observation)


@compiled
def _play(places, printed, episodes, e, first, taken, marked, played):
    """Plays transitions from row `first` on, which lies in episode e; returns the next episode."""
    all_rules, weights, pixels, world, program, out = places
    which, actions = np.zeros(1, np.int32), np.zeros(1, np.int64)
    digits, ended = 0, 0
    for k in range(len(taken)):
        if episodes.start[e] == first + k:
            all_rules[0].max_operations = episodes.limit[e]
            world.scalars[0].rng = episodes.stream[e]
            kernel.reset(all_rules, pixels, world, program, out, which)
        for place in range(out.seen.shape[1]):
            played.seen[k, place] = out.seen[0, place]
        for action in range(ACTIONS):
            played.masks[k, action] = out.results[0].mask[action]
        played.answers[k] = answer(world.scalars[0], world.cells, 0, printed)
        if marked[k]:
            for column in range(played.digits.shape[1]):
                played.digits[digits, column] = world.cells[0, column].digit
            digits += 1
        actions[0] = taken[k]
        kernel.step(all_rules, weights, pixels, world, program, out, actions, False)
        played.results[k] = out.results[0]
        if episodes.start[e] + episodes.length[e] == first + k + 1:
            played.finals[ended] = out.seen[0]
            ended += 1
            e += 1
    return e


class _Block:
    """Rows `first` to `stop - 1`, with the operations and episodes that start or end in them."""

    def __init__(
        self, starts: Numbers, stops: Numbers, ends: Numbers, first: int, stop: int
    ) -> None:
        """`starts` and `stops` are the first and last rows of operations, `ends` of episodes."""
        self.first, self.rows = first, np.arange(first, stop)
        self.opening = _within(starts, first, stop)
        self.closing = _within(stops, first, stop)
        self.ending = _within(ends, first, stop)
        self.marked = np.zeros(stop - first, np.bool_)
        for _, rows in (self.opening, self.closing):
            self.marked[rows - first] = True

    def __len__(self) -> int:
        return len(self.rows)


def _within(places: Numbers, first: int, stop: int) -> tuple[slice, Numbers]:
    """Those of ascending places that lie in the rows, and the rows that they are."""
    found = slice(*np.searchsorted(places, (first, stop)).tolist())
    return found, places[found]


class _Replay:
    """An abacus that does what was recorded, from the first transition to the last."""

    def __init__(self, demonstrations: Demonstrations) -> None:
        self._demonstrations = demonstrations
        self._columns = demonstrations.transitions
        self._batch = AbacusBatch(demonstrations.config, 1, autoreset=False)
        self._episode = 0
        self._last_rows = [
            index["start"] + index["length"] - 1
            for index in (demonstrations.operations, demonstrations.episodes)
        ]

    @cached_property
    def _known(self) -> _Episodes:
        """The last episode may have been cut short: its limit is what was recorded."""
        episodes = self._demonstrations.episodes
        limited = episodes["end"] == End.LIMIT
        return _Episodes(
            episodes["start"],
            episodes["length"],
            np.array([stream_start(seed) for seed in episodes["seed"].tolist()], np.uint64),
            np.where(limited, episodes["operations"], self._demonstrations.recipe.longest_episode),
        )

    @cached_property
    def _finals(self) -> Observation:
        return self._demonstrations.final_observations()

    def comparisons(self, first: int, stop: int) -> Iterator[Comparison]:
        """Plays the next rows, and gives what is to be compared."""
        stops, ends = self._last_rows
        block = _Block(self._demonstrations.operations["start"], stops, ends, first, stop)
        played = self._play(block)
        yield from self._steps(block, played)
        yield from self._operations(block, played)
        yield from self._ends(block, played)

    def _play(self, block: _Block) -> _Played:
        batch, config = self._batch, self._demonstrations.config
        length = sum(observation_lengths(config).values())
        played = _Played(
            seen=np.empty((len(block), length), np.float32),
            masks=np.empty((len(block), ACTIONS), np.int8),
            answers=np.empty(len(block), np.uint8),
            results=np.empty(len(block), kernel.RESULT),
            digits=np.empty((np.count_nonzero(block.marked), config.columns), np.uint8),
            finals=np.empty((len(block.ending[1]), length), np.float32),
        )
        printed = self._demonstrations.recipe.variant == "printed"
        self._episode = _play(
            (batch.rules, batch.weights, batch.pixels, batch.world, batch.program, batch.out),
            printed,
            self._known,
            self._episode,
            block.first,
            self._columns["taken"][block.rows],
            block.marked,
            played,
        )
        return played

    def _steps(self, block: _Block, played: _Played) -> Iterator[Comparison]:
        """What was seen, what was legal, what the teacher says, and how it went."""
        demonstrations, columns, results = self._demonstrations, self._columns, played.results
        rows = block.rows
        for key, seen, now in self._entries(demonstrations.observations(rows), played.seen):
            yield key, rows, seen, now
        yield "mask", rows, demonstrations.masks(rows), played.masks
        yield "action", rows, columns["action"][rows], played.answers
        outcomes = np.zeros((len(rows), results["outcomes"].shape[1]), np.int8)
        judged = OUTCOME_OF_ACTION[columns["taken"][rows]]
        outcomes[np.arange(len(rows)), judged] = columns["outcome"][rows]
        yield "outcomes", rows, outcomes, results["outcomes"]
        yield "reward", rows, demonstrations.rewards(rows=rows), results["reward"]
        for name in ("terminated", "truncated"):
            yield name, rows, columns[name][rows], results[name].astype(np.uint8)

    def _entries(
        self, recorded: Observation, rows: npt.NDArray[np.float32]
    ) -> Iterator[tuple[str, Any, Any]]:
        """The entries of an observation, each with its part of the environment's rows."""
        stop = 0
        for key, length in observation_lengths(self._demonstrations.config).items():
            start, stop = stop, stop + length
            yield key, recorded[key], rows[:, start:stop]

    def _operations(self, block: _Block, played: _Played) -> Iterator[Comparison]:
        """What the abacus shows as operations start and end, and whether it adds up."""
        columns, base = self._demonstrations.operations, self._demonstrations.config.base
        place = np.cumsum(block.marked) - 1
        for name, (which, rows) in (("before", block.opening), ("after", block.closing)):
            yield name, rows, columns[name][which], played.digits[place[rows - block.first]]
        which, rows = block.opening
        kind = columns["operation"][which]
        yield "operation", rows, kind, self._columns["operation"][rows]
        first, second, result = (
            values_of(columns[name][which], base) for name in ("before", "operand", "after")
        )
        yield "result", rows, result, first + np.where(kind == SUBTRACT, -1, 1) * second

    def _ends(self, block: _Block, played: _Played) -> Iterator[Comparison]:
        """Why episodes ended, and what was seen last."""
        which, rows = block.ending
        ends = played.results["end"][rows - block.first]
        yield "end", rows, self._demonstrations.episodes["end"][which], ends
        for key, seen, now in self._entries(self._finals, played.finals):
            yield f"final {key}", rows, seen[which], now

    def difference(self, row: int, what: str, recorded: Any, replayed: Any) -> Difference:
        """The difference in a row of the file, named by its episode and step."""
        starts = self._demonstrations.episodes["start"]
        episode = int(np.searchsorted(starts, row, side="right")) - 1
        step = row - int(starts[episode])
        return Difference(episode, step, what, _plain(recorded), _plain(replayed))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
