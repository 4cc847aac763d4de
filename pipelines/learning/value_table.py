"""Action values in a table, over nothing but what the policy sees, learned from the reward.

An observation is described by four entries of one hash table: its last three frames and its last
two, each with and without the digit in the left column. Frames are compared without the phase of
their column; only the change of phase from frame to frame, the direction of a move, is kept. The
value of an action is the sum of its values in these entries, so that what is learned in one
observation also holds for those that look alike, until they prove different.

The table is learned by Q-learning with whole returns (Watkins's Q(lambda), lambda = 1): an action
is worth the discounted rewards up to the next exploratory action, and from there what the table
expects. Returns instead of one-step targets are what makes it work: a policy without memory cannot
tell all states apart, and one-step targets would mix their values. The table is compiled, and makes
more than a million steps a second.

Between rounds the table plays random exercises, and those that it fails become part of its next
episodes: its own errors choose what it practises. No answer of the teacher and no state of the
world beyond the observation is used, neither for actions nor for values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.batch import AbacusBatch
from abacus.checks import check_choice
from abacus.compiling import compiled, compiled_inline
from abacus.kernel import ACTIONS
from abacus.observation import (
    SIGNPOST_PLACES,
    decode_frame,
    frame_codes,
    window_codes,
)
from abacus.rules import ENCODING_PERIOD, AbacusConfig
from oracle.files import atomic_write
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import EXTREME, Exercises, hard_exercises, join
from pipelines.learning.practice import Practice
from pipelines.scoring.players import best_actions

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Slots of the hash table, a power of two, and the part of them that may be taken.
SLOT_BITS = 22
SLOTS = 1 << SLOT_BITS
FULL = 0.8
EMPTY = -1
#: Entries of an observation: two numbers of frames, with and without the left digit.
ENTRIES = 4
#: The first entry alone: the last three frames in full, but for the phase.
LONE_ENTRY = 1
#: Columns of an entry: the values of the actions, then how often each was taken. Together they fill
#: a cache line.
VALUES, VISITS, COLUMNS, LINE_BYTES = 0, ACTIONS, 2 * ACTIONS, 64
#: What a training may use, each of which can be left out: returns instead of one-step targets,
#: entries that several observations share, exercises that failed, widths beside the world's.
INGREDIENTS = ("whole returns", "shared values", "own errors", "several widths")
#: Abaci of each width, and steps of each between two updates.
ABACI, SEGMENT = 32, 64
#: Segments of one width before the next one has its turn.
TURN = 16
#: Rounds of a training. After the first ones, each is followed by a search for failing exercises.
ROUNDS, ROUNDS_WITHOUT_SEARCH = 30, 3
#: The part of exploratory actions and the smallest learning rate, in the first and last round.
EXPLORATION = 0.3, 0.02
LEARNING_RATE = 0.1, 0.02
#: Random exercises of a search, and exercises that are kept: those that fail, then others.
SEARCHED, KEPT = 10_000, 6_000
#: Hard exercises whose observations are cloned.
CLONED_EXERCISES = 100_000
#: Exercises that each width practises in a round, and the part of episodes that are exercises.
PRACTISED, PRACTICE_SHARE = 500, 0.85


@cache
def _descriptions(base: int) -> npt.NDArray[np.int64]:
    """Return each frame without left digit and phase, the same with its left digit, and its phase.

    Padding in place of the left digit is still told apart.
    """
    left, right, row, phase, signpost = decode_frame(base, np.arange(frame_codes(base)))
    padding = (left == base).astype(np.int64)
    rest = (right * base + row) * SIGNPOST_PLACES + signpost
    size = base * base * SIGNPOST_PLACES
    return np.column_stack([padding * size + rest, left * size + rest, phase])


@compiled_inline
def _key(descriptions, codes, row, symbol, operation, depth, with_left):
    """Return the last `depth` frames of an observation, with symbol and operation, as a number."""
    newest = codes.shape[1] - 1
    phase = descriptions[codes[row, newest], 2]
    key = np.int64(symbol) * 2 + operation
    for back in range(depth):
        code = codes[row, newest - back]
        moved = (phase - descriptions[code, 2] + ENCODING_PERIOD) % ENCODING_PERIOD
        # Frames without phase are fewer than this in every base.
        key = (key << 13 | descriptions[code, with_left]) << 2 | moved
    return key


@compiled_inline
def _slot(keys, taken, key):
    """Return the slot of a key, which is taken if it was empty."""
    hashed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(hashed >> np.uint64(64 - SLOT_BITS))
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & (SLOTS - 1)
    if keys[slot] == EMPTY:
        taken[0] += 1
        keys[slot] = key
    return slot


@compiled_inline
def _find_entries(descriptions, codes, row, symbol, operation, keys, taken, entries):
    """Write the slots of an observation's entries."""
    frames = codes.shape[1]
    longer = min(frames, 3)
    shorter = max(longer - 1, 1)
    for k in range(len(entries)):
        depth = longer if k < 2 else shorter
        key = _key(descriptions, codes, row, symbol, operation, depth, 1 - k % 2)
        # Entries of different depths never share a key.
        entries[k] = _slot(keys, taken, key * ENTRIES + k)


@compiled_inline
def _value(values, entries, action):
    total = np.float32(0.0)
    for k in range(len(entries)):
        total += values[entries[k], VALUES + action]
    return total


@compiled_inline
def _random(state):
    """Return a random number from 0 to 1 (SplitMix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / 2.0**53


@compiled_inline
def _choose(values, entries, mask, epsilon, random):
    """Return the best legal action, its value, and an action that may be exploratory instead."""
    best, best_value, legal = -1, np.float32(0.0), 0
    for action in range(ACTIONS):
        if mask[action]:
            legal += 1
            value = _value(values, entries, action)
            if best < 0 or value > best_value:
                best, best_value = action, value
    chosen = best
    if _random(random) < epsilon:
        place = np.int64(_random(random) * legal)
        for action in range(ACTIONS):
            if mask[action]:
                if place == 0:
                    chosen = action
                place -= 1
    return best, best_value, chosen


@compiled
def _learn(
    descriptions, rules, weights, pixels, world, program, out, keys, taken, values, random, plan
):
    """Act for `segments` segments and learn from the returns of each."""
    segments, gamma, epsilon, least_rate, whole_returns, used = plan
    scalars, _, history = world
    abaci = len(scalars)
    entries = np.zeros((SEGMENT + 1, abaci, np.int64(used)), np.int64)
    actions = np.zeros((SEGMENT + 1, abaci), np.int64)
    rewards = np.zeros((SEGMENT, abaci), np.float64)
    # The value of the best action, and whether the action taken is another one.
    expected = np.zeros((SEGMENT + 1, abaci), np.float64)
    exploratory = np.zeros((SEGMENT + 1, abaci), np.bool_)
    ended = np.zeros((SEGMENT, abaci), np.bool_)
    unknown = np.zeros((SEGMENT, abaci), np.bool_)
    for _ in range(np.int64(segments)):
        for t in range(SEGMENT + 1):
            for i in range(abaci):
                s, found = scalars[i], entries[t, i]
                _find_entries(descriptions, history, i, s.symbol, s.operation, keys, taken, found)
                mask = out.results[i].mask
                best, value, chosen = _choose(values, found, mask, epsilon, random)
                actions[t, i], expected[t, i] = chosen, value
                exploratory[t, i] = chosen != best
            if t == SEGMENT:
                break
            kernel.step_drawing_tasks(rules, weights, pixels, world, program, out, actions[t], True)
            for i in range(abaci):
                result = out.results[i]
                rewards[t, i] = result.reward
                ended[t, i] = result.terminated
                # An episode that was cut off has another start behind it: nothing is learned.
                unknown[t, i] = result.truncated
        for i in range(abaci):
            following = expected[SEGMENT, i]
            for t in range(SEGMENT - 1, -1, -1):
                found, action = entries[t, i], actions[t, i]
                value = _value(values, found, action)
                if unknown[t, i]:
                    following = value
                    continue
                if exploratory[t + 1, i] or whole_returns == 0:
                    following = expected[t + 1, i]
                target = rewards[t, i]
                if not ended[t, i]:
                    target += gamma * following
                following = target
                for k in range(len(found)):
                    values[found[k], VISITS + action] += 1
                    rate = max(least_rate, 1.0 / values[found[k], VISITS + action]) / len(found)
                    values[found[k], VALUES + action] += rate * (target - value)


@compiled
def _look_up(descriptions, codes, symbols, operations, keys, taken, values, used, scores):
    entries = np.zeros(used, np.int64)
    for i in range(len(codes)):
        _find_entries(descriptions, codes, i, symbols[i], operations[i], keys, taken, entries)
        for action in range(ACTIONS):
            scores[i, action] = _value(values, entries, action)


@compiled
def _insert(new_keys, new_values, keys, taken, values):
    for i in range(len(new_keys)):
        slot = _slot(keys, taken, new_keys[i])
        for action in range(ACTIONS):
            values[slot, VALUES + action] = new_values[i, action]


class ValueTable:
    """Values of observations and actions; a callable policy from observations to scores."""

    def __init__(self, base: int, frames: int, ingredients: Collection[str] = INGREDIENTS) -> None:
        self.base, self.frames = base, frames
        self._whole_returns = "whole returns" in ingredients
        self._used = ENTRIES if "shared values" in ingredients else LONE_ENTRY
        self.keys = np.full(SLOTS, EMPTY, np.int64)
        self._columns = _aligned_zeros(SLOTS, COLUMNS)
        self._taken = np.zeros(1, np.int64)
        #: Environment steps of learning, and of the searches for failing exercises.
        self.steps = 0

    def __len__(self) -> int:
        return int(self._taken[0])

    @property
    def values(self) -> npt.NDArray[np.float32]:
        """Values of all slots and actions, as a view."""
        return self._columns[:, :VISITS]

    def __call__(self, observations: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return the values of all actions, (N, 8), as `oracle.exact.certificate.Answers`.

        Observations that were never met get entries too.
        """
        self._check_room(len(observations["symbol"]))
        scores = np.zeros((len(observations["symbol"]), ACTIONS), np.float32)
        _look_up(
            _descriptions(self.base),
            window_codes(self.base, observations["window"]),
            observations["symbol"].argmax(axis=1),
            observations["operation"][:, 0].astype(np.int64),
            *(self.keys, self._taken, self._columns, self._used, scores),
        )
        return scores

    def _check_room(self, observations: int) -> None:
        """Raise ValueError if this many new observations might not fit: a probe would not end."""
        if len(self) + ENTRIES * observations > FULL * SLOTS:
            raise ValueError(
                f"the table is full with {len(self):,} entries: give fewer --table-steps or frames"
            )

    @property
    def digest(self) -> str:
        """SHA-256 of the keys and values, whatever the order of the slots."""
        taken = np.flatnonzero(self.keys != EMPTY)
        order = taken[np.argsort(self.keys[taken])]
        content = self.keys[order].tobytes() + self.values[order].tobytes()
        return hashlib.sha256(content).hexdigest()

    def save(self, path: Path) -> None:
        """Write the values to a file of NumPy's."""
        taken = np.flatnonzero(self.keys != EMPTY)
        keys, values = self.keys[taken], self.values[taken]
        atomic_write(path, lambda file: np.savez(file, keys=keys, values=values))

    def load(self, path: Path) -> None:
        """Read what `save` wrote into an empty table; it can be asked, and not be trained on."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
                keys, values = content["keys"], content["values"]
            shapes = values.shape == (len(keys), ACTIONS) and len(keys) <= FULL * SLOTS
            if keys.dtype != np.int64 or not shapes:
                raise ValueError(f"arrays of {keys.dtype}, {keys.shape} and {values.shape}")
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            reason = " ".join(str(error).split())[:80]
            raise ValueError(f"{path.name} is not a table of values: {reason}") from None
        _insert(keys, values.astype(np.float32), self.keys, self._taken, self._columns)

    def learn(
        self,
        batch: AbacusBatch,
        segments: int,
        gamma: float,
        epsilon: float,
        least_rate: float,
        random: npt.NDArray[np.uint64],
    ) -> None:
        """Learn from segments of the abaci, which act by the table; `random` is advanced."""
        self._check_room(0)
        _learn(
            _descriptions(self.base),
            *(batch.rules, batch.weights, batch.pixels, batch.world, batch.program, batch.out),
            *(self.keys, self._taken, self._columns, random),
            (float(segments), gamma, epsilon, least_rate, self._whole_returns, self._used),
        )
        self.steps += segments * SEGMENT * batch.num_envs


def _aligned_zeros(rows: int, columns: int) -> npt.NDArray[np.float32]:
    """Return an array whose first row starts a cache line."""
    buffer = np.zeros(rows * columns + LINE_BYTES, np.float32)
    first = -buffer.ctypes.data % LINE_BYTES // buffer.itemsize
    return buffer[first : first + rows * columns].reshape(rows, columns)


@dataclass(frozen=True)
class TableRound:
    """What a round of learning has reached; nothing was searched in the first ones."""

    number: int
    steps: int
    entries: int
    failed: int | None
    tried: int
    #: Whether it was the last one.
    last: bool

    def describe(self) -> str:
        """Return the round in words."""
        line = f"{self.steps:,} steps, {self.entries:,} entries"
        if self.failed is None:
            return line
        return f"{line}, {self.failed:,} of {self.tried:,} random exercises fail"


class TableTraining:
    """Rounds of Q-learning on abaci of several widths, and of exercises that the table fails.

    Narrow abaci show both edges, wide ones have long operands; a third is as wide as the world.
    `ingredients` are those of `INGREDIENTS` that are used.
    """

    def __init__(
        self,
        world: AbacusConfig,
        steps: int,
        gamma: float,
        seed: int,
        ingredients: Collection[str] = INGREDIENTS,
    ) -> None:
        for name in ingredients:
            check_choice("ingredient", name, INGREDIENTS)
        self.world, self.gamma, self.ingredients = world, gamma, ingredients
        self.table = ValueTable(world.base, world.frames, ingredients)
        self._rng = np.random.default_rng([seed, 1])
        self._random = np.array([seed], np.uint64)
        self.batches = []
        widths = _widths(world) if "several widths" in ingredients else (world.columns,)
        for number, columns in enumerate(widths):
            own = replace(world, columns=columns, max_digits=min(world.max_digits, columns - 1))
            batch = AbacusBatch(own, ABACI)
            batch.set_tasks([])
            batch.reset(seed * 100 + number)
            self.batches.append(batch)
        each = ROUNDS * len(self.batches) * ABACI * SEGMENT
        #: Segments of each width in a round.
        self.segments = max(-(-steps // each), 1)
        self._pool = Exercises.of([])

    def rounds(self) -> Iterator[TableRound]:
        """Learn round by round."""
        for number in range(ROUNDS):
            done = number / (ROUNDS - 1)
            self._learn(_between(EXPLORATION, done), _between(LEARNING_RATE, done))
            failed = None
            if number >= ROUNDS_WITHOUT_SEARCH and "own errors" in self.ingredients:
                failed = self._search()
            last = number == ROUNDS - 1
            yield TableRound(number, self.table.steps, len(self.table), failed, SEARCHED, last)

    def _learn(self, epsilon: float, rate: float) -> None:
        left = self.segments
        while left > 0:
            segments, left = min(TURN, left), left - TURN
            for batch in self.batches:
                self.table.learn(batch, segments, self.gamma, epsilon, rate, self._random)

    def _search(self) -> int:
        """Find exercises that fail, and make them tasks; return how many random ones fail."""
        rng, world = self._rng, self.world
        widths = sorted({batch.config.columns for batch in self.batches})
        half = SEARCHED // 2
        exercises = join(
            [
                Exercises.draw(rng, half, world, widths, EXTREME),
                Exercises.draw(rng, SEARCHED - half, world, widths),
                self._pool,
            ]
        )
        practice = Practice(self.table, world)
        solved = practice.play(exercises).solved
        self.table.steps += practice.steps
        failing = self._rng.permutation(np.flatnonzero(~solved))
        # What was solved by now is practised on, as long as there is room.
        known = np.arange(SEARCHED, len(exercises))
        others = rng.permutation(known[solved[known]])[: max(KEPT - len(failing), 0)]
        self._pool = exercises.take(np.concatenate([failing[:KEPT], others])).copy()
        self._set_tasks()
        return int((failing < SEARCHED).sum())

    def _set_tasks(self) -> None:
        order = self._rng.permutation(len(self._pool))
        for batch in self.batches:
            rows = order[self._pool.columns[order] == batch.config.columns][:PRACTISED]
            tasks = [self._pool[int(row)].task for row in rows]
            batch.set_tasks(tasks, share=PRACTICE_SHARE)


def _widths(world: AbacusConfig) -> tuple[int, ...]:
    """Return the columns of the abaci that are learned from."""
    columns = world.columns
    narrow = [each for each in (2, 3, 4, 5, 6, 8) if each < columns]
    return (*narrow, columns, columns, columns, columns + 2, 2 * columns)


def _between(ends: tuple[float, float], done: float) -> float:
    """Return a value that falls from the first to the second end by equal factors."""
    first, last = ends
    return float(first * (last / first) ** done)


def met_actions(table: ValueTable, world: AbacusConfig, seed: int) -> CloningSet:
    """Return the greedy table's actions in all observations that it meets in hard exercises."""
    practice = Practice(table, world)
    practice.play(hard_exercises(np.random.default_rng([seed, 2]), CLONED_EXERCISES, world))
    return greedy_actions(practice, np.arange(len(practice.table)))


def greedy_actions(practice: Practice, rows: npt.NDArray[np.integer]) -> CloningSet:
    """Return the best actions in observations, given by their rows in the table of a practice."""
    codes = practice.table.codes_of(rows)
    legal = ~practice.illegal_actions(codes[:, -3])
    actions = best_actions(np.where(legal, practice.table.scores_at(rows), -np.inf))
    return CloningSet.of_codes(practice.world.base, codes, actions, legal)
