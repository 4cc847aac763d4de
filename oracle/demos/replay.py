"""Verify demonstrations: replay them through the environment and the expert; record them again.

The replay uses nothing of the recorder. The environment's own `step` gets the actions that were
taken, and its observations, masks, outcomes and rewards are compared with those that a learner
reads, as are the answers of the expert with the labels. Recording again shows whether the recipe
gives the file: its seeds, its split, its detours and its size.

Of a trained policy the file has the actions alone: they are replayed, and recorded again, but
neither compared with the expert nor asked from the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.batch import AbacusBatch, stream_start, task_program
from abacus.compiling import compiled
from abacus.kernel import ACTIONS, OUTCOME_OF_ACTION, SUBTRACT
from abacus.observation import observation_lengths
from abacus.rules import End
from oracle.demos.dataset import Demonstrations, Observation
from oracle.demos.recorder import Recorder
from oracle.demos.schema import every_column
from oracle.expert import answer

#: Transitions that are replayed before they are compared.
_BLOCK = 2**15
#: About as many as an operation of six digits takes.
_STEPS_PER_OPERATION = 32

Numbers = npt.NDArray[np.int64]
#: A name, rows of transitions, and the recorded and the replayed values in these rows.
Comparison = tuple[str, Numbers, npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True)
class Difference:
    """The first difference between the recorded and the replayed values."""

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
    """Replay every episode; return None if everything is as it was recorded."""
    replay = _Replay(demonstrations)
    for first in range(0, len(demonstrations), _BLOCK):
        stop = min(first + _BLOCK, len(demonstrations))
        for what, rows, recorded, replayed in replay.comparisons(first, stop):
            unequal = recorded != replayed
            if unequal.any():
                k = int(np.argmax(unequal.reshape(len(rows), -1).any(axis=1)))
                starts = demonstrations.episodes["start"]
                episode = int(np.searchsorted(starts, rows[k], side="right")) - 1
                step = int(rows[k] - starts[episode])
                values = (np.asarray(one[k]).tolist() for one in (recorded, replayed))
                return Difference(episode, step, what, *values)
        progress(stop - first)
    return None


def recipe_difference(demonstrations: Demonstrations) -> str | None:
    """Record a whole file again; return in words what does not follow from its recipe.

    Return None if the request is fulfilled and every value is the same. A policy's file is recorded
    from the actions that it holds.
    """
    recipe, counts = demonstrations.recipe, demonstrations.counts
    if recipe.operations is not None:
        fulfilled = counts["operations"] == recipe.operations
        request = f"{recipe.operations:,} operations"
    else:
        assert recipe.transitions is not None
        last = int(demonstrations.operations["start"][-1])
        fulfilled = last < recipe.transitions <= counts["transitions"]
        request = f"whole operations up to {recipe.transitions:,} transitions"
    if not fulfilled:
        return (
            f"{request} were requested, and there are {counts['operations']:,} operations of "
            f"{counts['transitions']:,} transitions"
        )
    recorder = Recorder(recipe)
    at_once = max(1, _BLOCK // (_STEPS_PER_OPERATION * recipe.longest_episode))
    written = dict.fromkeys(counts, 0)
    while written["episodes"] < counts["episodes"]:
        script = None
        if recipe.policy is not None:
            script = demonstrations.transitions["taken"][written["transitions"] :]
        try:
            again = recorder.record(written["episodes"], at_once, script)
        except ValueError as error:
            return str(error)
        # The request may end within an episode.
        left = counts["operations"] - written["operations"]
        again = again.first(min(left, again.counts["operations"]))
        for group, column in every_column(recipe.config):
            wanted = again.columns[group][column.name]
            if column.index_of is not None:
                wanted = wanted + written[column.index_of]
            first = written[group]
            found = demonstrations.columns[group][column.name][first : first + len(wanted)]
            unequal = (found != wanted[: len(found)]).reshape(len(found), -1).any(axis=1)
            if unequal.any() or len(found) < len(wanted):
                row = int(np.argmax(unequal)) if unequal.any() else len(found)
                recorded = found[row].tolist() if row < len(found) else "missing"
                return (
                    f"{group}/{column.name}, row {first + row}, is recorded as {recorded}, and is "
                    f"{wanted[row].tolist()} by the recipe"
                )
        for group in written:
            written[group] += again.counts[group]
    return None


class _Episodes(NamedTuple):
    """The episodes for the compiled replay: rows, initial random states, operation limits, tasks.

    `tasks` is False if operations are drawn.
    """

    start: Any
    length: Any
    stream: Any
    limit: Any
    tasks: Any


class _Replayed(NamedTuple):
    """What the compiled replay writes, for each transition unless noted."""

    observations: Any  # (rows, length)
    masks: Any  # (rows, 8)
    answers: Any  # (rows,)
    results: Any  # (rows,) kernel.RESULT
    digits: Any  # (marked rows, columns)
    finals: Any  # (ended episodes, length)


@compiled
def _play(places, printed, episodes, e, first, taken, marked, replayed):
    """Play transitions from row `first` on, which is in episode e; return the next episode."""
    all_rules, weights, pixels, world, program, out = places
    which, actions = np.zeros(1, np.int32), np.zeros(1, np.int64)
    digits, ended = 0, 0
    for k in range(len(taken)):
        if episodes.start[e] == first + k:
            all_rules[0].max_operations = episodes.limit[e]
            world.scalars[0].rng = episodes.stream[e]
            if episodes.tasks:
                kernel.set_task(world.scalars[0], program, e)
            kernel.reset(all_rules, pixels, world, program, out, which)
        for i in range(out.rows.shape[1]):
            replayed.observations[k, i] = out.rows[0, i]
        for action in range(ACTIONS):
            replayed.masks[k, action] = out.results[0].mask[action]
        replayed.answers[k] = answer(world.scalars[0], world.cells, 0, printed)
        if marked[k]:
            for column in range(replayed.digits.shape[1]):
                replayed.digits[digits, column] = world.cells[0, column].digit
            digits += 1
        actions[0] = taken[k]
        kernel.step(all_rules, weights, pixels, world, program, out, actions, False)
        replayed.results[k] = out.results[0]
        if episodes.start[e] + episodes.length[e] == first + k + 1:
            replayed.finals[ended] = out.rows[0]
            ended += 1
            e += 1
    return e


class _Replay:
    """An abacus that repeats what was recorded, from the first transition to the last."""

    def __init__(self, demonstrations: Demonstrations) -> None:
        self._demonstrations = demonstrations
        self._batch = AbacusBatch(demonstrations.config, 1, autoreset=False)
        self._finals = demonstrations.final_observations()
        episodes, recipe = demonstrations.episodes, demonstrations.recipe
        if recipe.tasks is not None:
            self._batch.program = task_program(recipe.config, demonstrations.tasks())
        # The last episode may have been cut: its limit is the number of recorded operations.
        limited = episodes["end"] == End.LIMIT
        self._episodes = _Episodes(
            episodes["start"],
            episodes["length"],
            np.array([stream_start(seed) for seed in episodes["seed"].tolist()], np.uint64),
            np.where(limited, episodes["operations"], recipe.longest_episode),
            recipe.tasks is not None,
        )
        self._next_episode = 0

    def comparisons(self, first: int, stop: int) -> Iterator[Comparison]:
        """Replay rows `first` to `stop - 1`, which are the next ones; yield what to compare."""
        operations, episodes = self._demonstrations.operations, self._demonstrations.episodes
        rows = np.arange(first, stop)
        opening = _within(operations["start"], first, stop)
        closing = _within(operations["start"] + operations["length"] - 1, first, stop)
        ending = _within(episodes["start"] + episodes["length"] - 1, first, stop)
        marked = np.zeros(stop - first, np.bool_)
        for _, marks in (opening, closing):
            marked[marks - first] = True
        replayed = self._play(rows, marked, len(ending[1]))
        yield from self._compare_steps(rows, replayed)

        index = np.cumsum(marked) - 1
        for name, (which, at) in (("before", opening), ("after", closing)):
            yield name, at, operations[name][which], replayed.digits[index[at - first]]
        yield from self._compare_arithmetic(*opening)

        which, at = ending
        yield "end", at, episodes["end"][which], replayed.results["end"][at - first]
        for key, recorded, now in self._entries(self._finals, replayed.finals):
            yield f"final {key}", at, recorded[which], now

    def _play(self, rows: Numbers, marked: npt.NDArray[np.bool_], ended: int) -> _Replayed:
        batch, config = self._batch, self._demonstrations.config
        length = sum(observation_lengths(config).values())
        replayed = _Replayed(
            observations=np.empty((len(rows), length), np.float32),
            masks=np.empty((len(rows), ACTIONS), np.int8),
            answers=np.empty(len(rows), np.uint8),
            results=np.empty(len(rows), kernel.RESULT),
            digits=np.empty((np.count_nonzero(marked), config.columns), np.uint8),
            finals=np.empty((ended, length), np.float32),
        )
        self._next_episode = _play(
            (batch.rules, batch.weights, batch.pixels, batch.world, batch.program, batch.out),
            self._demonstrations.recipe.variant == "printed",
            self._episodes,
            self._next_episode,
            rows[0],
            self._demonstrations.transitions["taken"][rows],
            marked,
            replayed,
        )
        return replayed

    def _compare_steps(self, rows: Numbers, replayed: _Replayed) -> Iterator[Comparison]:
        demonstrations, results = self._demonstrations, replayed.results
        columns = demonstrations.transitions
        observations = demonstrations.observations(rows)
        for key, recorded, now in self._entries(observations, replayed.observations):
            yield key, rows, recorded, now
        yield "mask", rows, demonstrations.masks(rows), replayed.masks
        is_expert = demonstrations.recipe.policy is None
        answers = replayed.answers if is_expert else columns["taken"][rows]
        yield "action", rows, columns["action"][rows], answers
        outcomes = np.zeros((len(rows), results["outcomes"].shape[1]), np.int8)
        judged = OUTCOME_OF_ACTION[columns["taken"][rows]]
        outcomes[np.arange(len(rows)), judged] = columns["outcome"][rows]
        yield "outcomes", rows, outcomes, results["outcomes"]
        yield "reward", rows, demonstrations.rewards(rows=rows), results["reward"]
        for name in ("terminated", "truncated"):
            yield name, rows, columns[name][rows], results[name].astype(np.uint8)

    def _compare_arithmetic(self, which: slice, rows: Numbers) -> Iterator[Comparison]:
        """Compare the kinds of operations with those of their transitions, and add them up."""
        demonstrations = self._demonstrations
        kind = demonstrations.operations["operation"][which]
        yield "operation", rows, kind, demonstrations.transitions["operation"][rows]
        before, operand, after = (
            demonstrations.numbers(name, which) for name in ("before", "operand", "after")
        )
        yield "result", rows, after, before + np.where(kind == SUBTRACT, -1, 1) * operand

    def _entries(
        self, recorded: Observation, rows: npt.NDArray[np.float32]
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield the entries of recorded observations with their part of the replayed rows."""
        stop = 0
        for key, length in observation_lengths(self._demonstrations.config).items():
            start, stop = stop, stop + length
            yield key, recorded[key], rows[:, start:stop]


def _within(numbers: Numbers, first: int, stop: int) -> tuple[slice, Numbers]:
    """Return where ascending numbers are from `first` to `stop - 1`, and these numbers."""
    found = slice(*np.searchsorted(numbers, (first, stop)).tolist())
    return found, numbers[found]
