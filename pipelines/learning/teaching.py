"""Teaching by counterexamples: ask the teacher about what the policy gets wrong, clone, repeat.

In each round the policy answers the complete set of observations. Of those that it gets wrong some
are chosen; a witness of each, the smallest operation known that meets the observation, becomes a
task, which the teacher demonstrates. Then all demonstrations so far are cloned. The rounds end when
nothing is wrong, or at a limit.

An answer is an action of the teacher that is trained on. Beside the answers, the certificate
compares the policy with the teacher on the whole set; the choice `margin` does without: it asks
about observations of which the policy is least sure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger

from abacus.observation import decode_frame
from abacus.rules import AbacusConfig
from abacus.tasks import Operation, Task, digit_count
from oracle.demos.dataset import Demonstrations
from oracle.demos.recorder import record_tasks
from oracle.exact.certificate import greedy_actions
from oracle.exact.complete_set import ObservationSet
from oracle.exact.witness import WitnessFinder, witness_width
from pipelines.learning.cloning import Cloning, copy_weights
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.settings import CloningSettings, TeachingSettings

#: Witnesses among which `cover` chooses, for each task.
CANDIDATES = 5
#: Random continuations that `longer` tries for a witness.
CONTINUATIONS = 5

Rows = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Round:
    """The policy after a round; round 0 is the policy to start from."""

    number: int
    #: Operations and answers that were cloned, with those of the demonstrations to start from.
    operations: int
    answers: int
    wrong: int
    seconds: float


def teaching_world(base: int, frames: int) -> AbacusConfig:
    """Return an abacus that is wide enough for every witness."""
    columns = witness_width(frames)
    return AbacusConfig(base=base, columns=columns, max_digits=columns - 1, frames=frames)


class Teaching:
    """Rounds of teaching; `state` and `load_state` make them resumable."""

    def __init__(
        self,
        policy: AbacusPolicy,
        observations: ObservationSet,
        demonstrations: Demonstrations | None,
        settings: TeachingSettings,
        cloning: CloningSettings,
        seed: int,
    ) -> None:
        self.policy, self.observations = policy, observations
        self.demonstrations = demonstrations
        self.settings, self.cloning, self.seed = settings, cloning, seed
        #: The tasks that were asked for, in the order of the rounds.
        self.tasks: list[Task] = []
        self.rounds: list[Round] = []
        self.best_weights = copy_weights(policy)
        #: The abacus of the tasks.
        self.world = teaching_world(observations.base, observations.frames)
        self._finder = WitnessFinder(observations)
        #: The demonstrations of `tasks`.
        self.asked: Demonstrations | None = None

    @property
    def best(self) -> Round:
        """The round after which the fewest observations are wrong."""
        return min(self.rounds, key=lambda each: each.wrong)

    @property
    def exact(self) -> bool:
        """Whether a policy with no wrong observation was found."""
        return bool(self.rounds) and self.best.wrong == 0

    def run(self, after_round: Callable[[Round], None] | None = None) -> Round:
        """Teach until nothing is wrong or a limit is reached; load the best weights."""
        if not self.rounds:
            self._finish_round(time.perf_counter(), after_round)
        while not self.exact and len(self.rounds) <= self.settings.rounds:
            started = time.perf_counter()
            chosen = self._chosen_tasks()
            if not chosen:
                break
            self._add(chosen)
            self._clone()
            self._finish_round(started, after_round)
        self.policy.load_state_dict(self.best_weights)
        return self.best

    def _finish_round(self, started: float, after_round: Callable[[Round], None] | None) -> None:
        operations, answers = self._used(self._parts)
        wrong = len(self._wrong_and_margins()[0])
        if not self.rounds or wrong < self.best.wrong:
            self.best_weights = copy_weights(self.policy)
        seconds = time.perf_counter() - started
        self.rounds.append(Round(len(self.rounds), operations, answers, wrong, round(seconds, 1)))
        if after_round:
            after_round(self.rounds[-1])

    def _wrong_and_margins(self) -> tuple[Rows, npt.NDArray[np.float64]]:
        """Return the rows that the policy gets wrong, and the margins of all rows."""
        actions, margins = greedy_actions(self.policy, self.observations)
        assert margins is not None
        wrong = (actions != self.observations.actions) | self.observations.ambiguous
        return np.flatnonzero(wrong), margins

    @property
    def _parts(self) -> list[Demonstrations]:
        return [part for part in (self.demonstrations, self.asked) if part is not None]

    @staticmethod
    def _used(parts: list[Demonstrations]) -> tuple[int, int]:
        """Return the operations and the answers of demonstrations."""
        return sum(part.counts["operations"] for part in parts), sum(map(len, parts))

    def _add(self, tasks: list[Task]) -> None:
        self.tasks += tasks
        self.asked = record_tasks(self.world, self.tasks)

    def _clone(self) -> None:
        """Clone all demonstrations, from new weights or from those of the last round."""
        torch.manual_seed(self._round_seed)
        cloning = self.cloning
        if self.settings.weights == "new":
            base, frames = self.observations.base, self.observations.frames
            fresh = new_policy(self.policy.network_name, base, frames)
            self.policy.load_state_dict(fresh.state_dict())
        elif self.settings.learning_rate:
            cloning = replace(cloning, learning_rate=self.settings.learning_rate)
        data = CloningSet.from_demonstrations(*self._parts, frames=self.observations.frames)
        logger = Logger(None, [])
        Cloning(self.policy, data, cloning, self._round_seed, logger).run()

    @property
    def _round_seed(self) -> int:
        sequence = np.random.SeedSequence([self.seed, len(self.rounds)])
        return int(sequence.generate_state(1)[0])

    def _chosen_tasks(self) -> list[Task]:
        """Return tasks for the next round that were not asked for yet and fit the limits."""
        generator = np.random.default_rng(self._round_seed)
        known = set(self.tasks)
        tasks = [task for task in self._choose(generator) if task not in known]
        while tasks and not self._fits(tasks):
            tasks.pop()
        return tasks

    def _fits(self, tasks: list[Task]) -> bool:
        more = record_tasks(self.world, tasks)
        operations, answers = self._used([*self._parts, more])
        return operations <= self.settings.operations and answers <= self.settings.answers

    def _choose(self, generator: np.random.Generator) -> list[Task]:
        wrong, margins = self._wrong_and_margins()
        count = self.settings.counterexamples
        if self.settings.choice == "margin":
            return self._distinct(np.argsort(margins, kind="stable"), count)
        if self.settings.choice == "nearest":
            return self._distinct(self._finder.nearest_first(wrong), count)
        shuffled = generator.permutation(wrong)
        if self.settings.choice == "random":
            return self._distinct(shuffled, count)
        if self.settings.choice == "spread":
            return self._distinct(self._spread(shuffled), count)
        if self.settings.choice == "longer":
            return self._distinct(self._spread(shuffled), count, generator)
        return self._covering(self._distinct(shuffled, CANDIDATES * count), wrong, count)

    def _spread(self, rows: Rows) -> Rows:
        """Return one row of each group that shares digit, finger row, symbol and operation.

        The digit under the finger and the finger's row are those of the newest frame. A policy that
        has never been shown such a combination gets many observations wrong for the same reason.
        The largest groups come first.
        """
        known = self.observations
        _, right, row, _, _ = decode_frame(known.base, known.histories[rows, -1])
        keys = np.stack([right, row, known.symbols[rows], known.operations[rows]], axis=1)
        _, first, counts = np.unique(keys, axis=0, return_index=True, return_counts=True)
        return rows[first[np.argsort(-counts, kind="stable")]]

    def _distinct(
        self, rows: Rows, count: int, generator: np.random.Generator | None = None
    ) -> list[Task]:
        """Return a task for each of the first rows that no task before it meets, up to `count`.

        With a generator, the numbers of a task are continued by random digits.
        """
        tasks: list[Task] = []
        met: set[int] = set()
        for row in rows.tolist():
            if len(tasks) == count:
                break
            if row not in met:
                witness = self._finder.find(row)
                task = Task(witness.start, witness.config(1).program)
                tasks.append(task if generator is None else self._longer(task, row, generator))
                met |= self._rows_of(tasks[-1:])[0]
        return tasks

    def _longer(self, task: Task, row: int, generator: np.random.Generator) -> Task:
        """Return a task with random digits above its own, if it still meets the row.

        The start and the last operand get as many digits as fit: the demonstration meets many more
        observations than the smallest one does.
        """
        base, (*first, last) = self.world.base, task.operations
        numbers = task.start, *(operation.operand for operation in task.operations)
        used = max(digit_count(number, base) for number in numbers)
        free = self.world.max_digits - 1 - used
        for _ in range(CONTINUATIONS if free > 0 else 0):
            # A subtraction must not go below zero.
            low, high = sorted(generator.integers(base**free, size=2).tolist())
            operand = last.operand + low * base**used
            longer = Task(task.start + high * base**used, (*first, Operation(last.sign, operand)))
            if row in self._rows_of([longer])[0]:
                return longer
        return task

    def _rows_of(self, tasks: list[Task]) -> list[set[int]]:
        """Return the rows of the complete set that the demonstration of each task meets."""
        shown = record_tasks(self.world, tasks)
        rows = self.observations.index(
            shown.histories(frames=self.observations.frames),
            shown.transitions["symbol"],
            shown.transitions["operation"],
        )
        return [set(part.tolist()) for part in np.split(rows, shown.episodes["start"][1:])]

    def _covering(self, candidates: list[Task], wrong: Rows, count: int) -> list[Task]:
        """Choose tasks one by one, each with the most wrong observations not met by the others."""
        left = set(wrong.tolist())
        met = [rows & left for rows in self._rows_of(candidates)]
        chosen: list[Task] = []
        while left and len(chosen) < count:
            best = max(range(len(candidates)), key=lambda k: len(met[k] & left))
            if not met[best] & left:
                break
            chosen.append(candidates[best])
            left -= met[best]
        return chosen

    def state(self) -> dict[str, Any]:
        """Return everything that the rounds change, as plain values and tensors."""
        return {
            "policy": copy_weights(self.policy),
            "best_weights": self.best_weights,
            "tasks": [str(task) for task in self.tasks],
            "rounds": [asdict(each) for each in self.rounds],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.policy.load_state_dict(state["policy"])
        self.best_weights = state["best_weights"]
        self.tasks = [Task.parse(task) for task in state["tasks"]]
        self.rounds = [Round(**each) for each in state["rounds"]]
        self.asked = record_tasks(self.world, self.tasks) if self.tasks else None
