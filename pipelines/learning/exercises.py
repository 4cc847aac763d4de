"""Exercises: tasks on abaci of several widths, in arrays, for policies that practise.

They are drawn by the rules of the world alone: a value, and operations whose results fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig
from abacus.tasks import Operation, Task

#: Operations of a random exercise: the first reset and what follows it are part of it.
OPERATIONS = 3
#: Digits of the longest operand of a random exercise.
MOST_DIGITS = 12
#: Columns of random exercises: those of the paper's training and of its test.
WIDTHS = (10, 20)
#: Columns of hard exercises, and the part of the digits of every other one that are 0 or the
#: highest: these make long carries.
HARD_WIDTHS = tuple(range(2, 21))
EXTREME = 0.6
#: Exercises among which the episodes of PPO are drawn.
PPO_EXERCISES = 4_000
#: Abaci of a batch.
BATCH = 16_384
#: Sums of a few numbers below this fit into 64 bits.
_MOST = 2**61


@dataclass(frozen=True)
class Exercise:
    """A task on an abacus of a number of columns."""

    task: Task
    columns: int

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return f"{self.columns}: {self.task}"

    @classmethod
    def parse(cls, text: str) -> Exercise:
        """Read what `str` wrote."""
        columns, task = text.split(":")
        return cls(Task.parse(task), int(columns))


@dataclass(frozen=True)
class Exercises:
    """Many exercises: columns, starting values, and operations of all in one list.

    Exercise k has `counts[k]` operations, from `firsts[k]` on.
    """

    columns: npt.NDArray[np.int64]  # (N,)
    starts: npt.NDArray[np.int64]  # (N,)
    firsts: npt.NDArray[np.int64]  # (N,)
    counts: npt.NDArray[np.int64]  # (N,)
    signs: npt.NDArray[np.int64]  # (M,): 1 or -1
    operands: npt.NDArray[np.int64]  # (M,)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, row: int) -> Exercise:
        """Return one of the exercises."""
        first = int(self.firsts[row])
        rows = slice(first, first + int(self.counts[row]))
        pairs = zip(self.signs[rows].tolist(), self.operands[rows].tolist(), strict=True)
        task = Task(int(self.starts[row]), tuple(Operation(*pair) for pair in pairs))
        return Exercise(task, int(self.columns[row]))

    @classmethod
    def of(cls, exercises: Sequence[Exercise]) -> Exercises:
        """Return a list of exercises as arrays."""
        tasks = [exercise.task for exercise in exercises]
        every = [operation for task in tasks for operation in task.operations]
        counts = np.array([len(task.operations) for task in tasks], np.int64)
        return cls(
            np.array([exercise.columns for exercise in exercises], np.int64),
            np.array([task.start for task in tasks], np.int64),
            np.cumsum(counts) - counts,
            counts,
            np.array([operation.sign for operation in every], np.int64),
            np.array([operation.operand for operation in every], np.int64),
        )

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        count: int,
        world: AbacusConfig,
        widths: Sequence[int] = WIDTHS,
        extreme: float = 0.0,
        repeated: float = 0.0,
    ) -> Exercises:
        """Draw random exercises, about as many of each width.

        Lengths of numbers are uniform, so that short ones are as frequent as long ones. A part
        `extreme` of the digits is 0 or the highest, and a part `repeated` equals the digit before.
        """
        kind = extreme, repeated
        return join(
            [
                cls._draw(rng, count // len(widths) + (k < count % len(widths)), world, w, kind)
                for k, w in enumerate(widths)
            ]
        )

    def varied(self, rng: np.random.Generator, world: AbacusConfig) -> Exercises:
        """Return the exercises with another digit in one number of each, where the results fit."""
        own = self.copy()
        firsts, counts, signs = own.firsts, own.counts, own.signs
        operands, starts = own.operands, own.starts.copy()
        # Number 0 is the starting value, the others are operands.
        number = rng.integers(0, counts + 1)
        place = rng.integers(0, np.minimum(self.columns - 1, MOST_DIGITS))
        change = rng.integers(1 - world.base, world.base, len(self)) * world.base**place
        first = number == 0
        capacity = np.minimum(float(world.base) ** self.columns, _MOST).astype(np.int64)
        starts[first] = np.clip(starts[first] + change[first], 0, capacity[first] - 1)
        changed = (firsts + number - 1)[~first]
        operands[changed] = np.maximum(operands[changed] + change[~first], 0)
        value = starts.copy()
        for k in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > k)
            at = firsts[rows] + k
            most = np.where(signs[at] > 0, capacity[rows] - 1 - value[rows], value[rows])
            # An operand leaves a column free.
            most = np.minimum(most, capacity[rows] // world.base - 1)
            operands[at] = np.minimum(operands[at], most)
            value[rows] += signs[at] * operands[at]
        return Exercises(self.columns, starts, firsts, counts, signs, operands)

    @classmethod
    def _draw(
        cls,
        rng: np.random.Generator,
        count: int,
        world: AbacusConfig,
        columns: int,
        kind: tuple[float, float],
    ) -> Exercises:
        base = world.base
        capacity = min(base**columns, _MOST)
        starts = value = _numbers(rng, count, base, columns, *kind)
        signs = np.empty((count, OPERATIONS), np.int64)
        operands = np.empty((count, OPERATIONS), np.int64)
        only = {"add": 1, "subtract": -1}.get(world.operations)
        for k in range(OPERATIONS):
            signs[:, k] = rng.choice((1, -1), count) if only is None else only
            most = np.where(signs[:, k] > 0, capacity - 1 - value, value)
            operands[:, k] = np.minimum(_numbers(rng, count, base, columns, *kind), most)
            value = value + signs[:, k] * operands[:, k]
        counts = np.full(count, OPERATIONS)
        return cls(
            np.full(count, columns),
            starts,
            np.cumsum(counts) - counts,
            counts,
            signs.ravel(),
            operands.ravel(),
        )

    def take(self, rows: npt.NDArray[np.integer]) -> Exercises:
        """Return some of the exercises; they share the list of operations."""
        return replace(
            self,
            columns=self.columns[rows],
            starts=self.starts[rows],
            firsts=self.firsts[rows],
            counts=self.counts[rows],
        )

    def copy(self) -> Exercises:
        """Return the exercises with their own operations alone, in order."""
        which = np.repeat(self.firsts, self.counts) + _places(self.counts)
        firsts = np.cumsum(self.counts) - self.counts
        operations = self.signs[which], self.operands[which]
        return Exercises(self.columns, self.starts, firsts, self.counts, *operations)

    def batches(
        self, world: AbacusConfig, spare: int = 0
    ) -> Iterator[tuple[npt.NDArray[np.int64], AbacusBatch]]:
        """Yield abaci that are about to start exercises of one width, and which these are.

        `spare` abaci follow in each batch.
        """
        for columns in np.unique(self.columns).tolist():
            rows = np.flatnonzero(self.columns == columns)
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                yield part, self._batch(np.pad(part, (0, spare), mode="edge"), columns, world)

    def _batch(self, rows: npt.NDArray[np.int64], columns: int, world: AbacusConfig) -> AbacusBatch:
        counts = self.counts[rows]
        config = AbacusConfig(
            base=world.base,
            frames=world.frames,
            columns=columns,
            max_digits=columns - 1,
            reward=world.reward,
            max_operations=int(counts.max()),
        )
        which = np.repeat(self.firsts[rows], counts) + _places(counts)
        operands = self.operands[which]
        digits = _digits(operands, world.base, config.longest_operand)
        lengths = config.longest_operand - np.argmax(digits[:, ::-1] > 0, axis=1)
        batch = AbacusBatch(config, len(rows), autoreset=False)
        batch.load(
            _digits(self.starts[rows], world.base, columns),
            digits,
            np.where(operands == 0, 1, lengths).astype(np.int32),
            (self.signs[which] < 0).astype(np.int32),
            counts.astype(np.int32),
        )
        batch.reset(0)
        return batch


def join(parts: Sequence[Exercises]) -> Exercises:
    """Return all exercises of several lists."""
    lengths = [len(part.operands) for part in parts]
    offsets = np.cumsum([0, *lengths[:-1]]).tolist()
    return Exercises(
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.firsts + k for part, k in zip(parts, offsets, strict=True)]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.signs for part in parts]),
        np.concatenate([part.operands for part in parts]),
    )


def hard_exercises(rng: np.random.Generator, count: int, world: AbacusConfig) -> Exercises:
    """Draw exercises on any number of columns up to 20, half of them with long carries."""
    carries = Exercises.draw(rng, count // 2, world, HARD_WIDTHS, EXTREME)
    return join([carries, Exercises.draw(rng, count - count // 2, world, HARD_WIDTHS)])


def exercises_for_ppo(world: AbacusConfig, seed: int) -> list[Task]:
    """Return random tasks that PPO mixes into its episodes."""
    rng = np.random.default_rng(seed)
    drawn = Exercises.draw(rng, PPO_EXERCISES, world, (world.columns,), EXTREME)
    return [drawn[row].task for row in range(len(drawn))]


def _numbers(
    rng: np.random.Generator,
    count: int,
    base: int,
    columns: int,
    extreme: float,
    repeated: float,
) -> npt.NDArray[np.int64]:
    """Draw numbers that leave a column free, of at most `MOST_DIGITS` digits."""
    longest = min(MOST_DIGITS, columns - 1)
    size = (count, longest)
    digits = rng.integers(0, base, size)
    if extreme:
        ends = (base - 1) * rng.integers(0, 2, size)
        digits = np.where(rng.random(size) < extreme, ends, digits)
    if repeated:
        repeats = rng.random(size) < repeated
        for place in range(1, longest):
            digits[:, place] = np.where(repeats[:, place], digits[:, place - 1], digits[:, place])
    shown = np.arange(longest) < rng.integers(1, longest + 1, count)[:, None]
    numbers: npt.NDArray[np.int64] = (digits * shown) @ base ** np.arange(longest)
    return numbers


def _places(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0, 1, ... up to each of the counts, in one list."""
    places: npt.NDArray[np.int64] = np.arange(counts.sum())
    return places - np.repeat(np.cumsum(counts) - counts, counts)


def _digits(values: npt.NDArray[np.int64], base: int, length: int) -> npt.NDArray[np.uint8]:
    """Return the digits of values, least significant first."""
    rows = np.empty((len(values), length), np.uint8)
    for place in range(length):
        values, rows[:, place] = np.divmod(values, base)
    return rows
