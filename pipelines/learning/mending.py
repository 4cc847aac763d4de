"""Mending: practise what a policy gets wrong, by trial and error, until its own runs are exact.

No answer of the teacher is used. The reward of the level is the only judge: an operation counts as
solved if the environment says so. In each round

1. the policy plays random operations; if few fail, its own runs are certified
   (`oracle.exact.own_runs`), until they are exact;
2. for operations that it fails other actions are tried, one at a time on the way to the failure. A
   change that leads further, to another right submit, becomes a *correction*, an action for an
   observation: that with which the policy fails the fewest of the other operations, and no more
   than before;
3. the corrected policy plays random operations and those that it has practised, and the solved ones
   are cloned into new weights (self-imitation). Its actions are a function of the observation, so
   that the transitions do not contradict each other, and cloning makes its algorithm regular: rare
   observations are treated as similar frequent ones.

Once few operations fail, the corrected policy, a table, is corrected further: in what it fails of
the random operations, then in what the exploration of the certificate finds, until it finds
nothing. Its actions in all observations that it can meet are then cloned into a network that is
wide enough to hold every one of them. If the table is exact, so is that network.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger

from abacus.batch import AbacusBatch
from abacus.observation import decode_frame, encode_frame, visibly_illegal_actions
from abacus.rules import ENCODING_PERIOD, AbacusConfig, Action, End
from abacus.tasks import Operation, Task
from oracle.exact.concrete_runs import various_failing_runs
from oracle.exact.own_runs import EXACT, NOT_EXACT, Asked, OwnRunsCertificate, certify_own_runs
from pipelines.learning.cloning import Cloning, copy_weights
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.policy import AbacusPolicy, masked_log_probs, new_policy
from pipelines.learning.settings import CloningSettings, MendingSettings, NetworkName
from pipelines.scoring.operations import step_limit
from pipelines.scoring.players import GreedyTable, best_actions

#: Operations of a random exercise: the first reset and what follows it are part of it.
OPERATIONS = 3
#: Digits of the longest operand of a random exercise.
MOST_DIGITS = 8
#: Exercises among which the episodes of PPO are drawn.
PPO_EXERCISES = 4_000
#: Columns of random exercises: those of the paper's training and of its test.
WIDTHS = (10, 20)
#: Failures of the certificate that a round searches at most: each takes a second.
MOST_SEARCHED = 40
#: Random exercises on which a correction must not fail more than before.
CHECKED = 1_000
#: Changes of one exercise that are checked.
MOST_CHECKED = 16
#: Searches for failing exercises of the table in a round, and hard exercises of each: on any number
#: of columns up to `WIDTHS`, with this share of digits that are 0 or the highest, for long carries.
MOST_SEARCHES = 15
HARD_EXERCISES, EXTREME = 200_000, 0.6
#: Where no more than this share of the random exercises fails, the policy is corrected as a table.
#: Earlier, imitation helps more, because it corrects similar observations at once.
FEW = 0.03
#: The network of a policy that was corrected as a table, and how it is cloned: it is to hold every
#: action, and nothing is to be inferred.
NETWORK: NetworkName = "wide"
TABLE_CLONING = CloningSettings(
    updates=4_000, batch_size=1024, learning_rate=0.05, weight_decay=0.0, label_smoothing=0.0
)
#: Times that the wide network is trained until it takes all actions of the table. After the first,
#: the learning rate is lower, and observations with another action count as often as this.
REPETITIONS, REPEATED_RATE, WRONG_COUNT = 5, 0.0125, 20
#: Exercises that a correction may lose where no other solves a failing one: these are practised in
#: their turn.
MOST_LOST = 2
#: Copies of an exercise that are played at random now and then, and the share of such actions.
RANDOM_TRIALS = 512
RANDOM_SHARE = 0.05
#: Most steps of a failing run, counted back from its end, at which other actions are tried.
MOST_STEPS_BACK = 80

#: Frame codes, symbol and operation.
Codes = npt.NDArray[np.int32]
#: Histories, symbols, operations, actions and masks, as `CloningSet.from_transitions` takes them.
Transitions = tuple[npt.NDArray[Any], ...]
#: Distinct observations, and another action for each of them.
Change = tuple[Codes, npt.NDArray[np.int64]]


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
class MendingRound:
    """The policy at the start of a round, and what the round practised."""

    number: int
    verdict: str
    #: Situations that the certificate explored; 0 if too many exercises fail that none was made.
    situations: int
    #: Operations of random exercises that it fails, and how many were tried.
    failed: int
    tried: int
    #: Environment steps of this round: exercises, trials and checks.
    steps: int = 0
    #: Exercises that were practised, and the corrections that solved them.
    practised: int = 0
    corrections: int = 0
    seconds: float = 0.0

    def describe(self) -> str:
        """Return the round in words."""
        line = f"{self.failed:,} of {self.tried:,} random exercises fail, {self.verdict}"
        if self.practised:
            line += f"; {self.practised} practised, {self.corrections} corrections"
        return line


class Mending:
    """Rounds of practice; `state` and `load_state` make them resumable between rounds.

    `policy` is the present one, which may get another network, and after `run` the best one.
    """

    def __init__(
        self,
        policy: AbacusPolicy,
        world: AbacusConfig,
        settings: MendingSettings,
        seed: int,
    ) -> None:
        self.policy, self.world, self.settings, self.seed = policy, world, settings, seed
        #: Called with a line after each search of a round, which may take minutes.
        self.on_search: Callable[[str], None] = lambda line: None
        self.rounds: list[MendingRound] = []
        #: Exercises that the policy or its corrections once failed, and must not fail again.
        self.practised: list[Exercise] = []
        self.best = policy

    @property
    def level(self) -> str:
        """The reward level, which judges."""
        reward = self.world.reward
        if not isinstance(reward, str):
            raise ValueError("mending needs a reward level, not modules: give --reward a level")
        return reward

    @property
    def exact(self) -> bool:
        """Whether the last certificate proves the policy exact by its own runs."""
        return bool(self.rounds) and self.rounds[-1].verdict == EXACT

    @property
    def ended(self) -> bool:
        """Whether there is no further round: exact, all rounds used, or nothing to imitate."""
        if not self.rounds:
            return False
        last = self.rounds[-1]
        return self.exact or len(self.rounds) > self.settings.rounds or last.failed == last.tried

    def run(self, after_round: Callable[[MendingRound], None] | None = None) -> bool:
        """Practise until the policy is exact or the rounds are used; return whether it is."""
        while not self.ended:
            done = self._round(last=len(self.rounds) == self.settings.rounds)
            self.rounds.append(done)
            if after_round:
                after_round(done)
        self.policy = self.best
        return self.exact

    def _round(self, *, last: bool) -> MendingRound:
        started = time.perf_counter()
        practice = Practice(self.policy, self.world)
        exercises = list(self._random_exercises())
        solved = practice.solved(exercises)
        failed = int(sum(not each for each in solved))
        few = failed <= FEW * len(exercises)
        # Where many exercises fail, the policy is not exact, and exploring it takes long.
        asked = Asked(self.policy, self.world.base, self.world.frames)
        certificate = self._certify(asked) if few else None
        score = MendingRound(
            number=len(self.rounds),
            verdict=NOT_EXACT if certificate is None else certificate.verdict,
            situations=0 if certificate is None else certificate.situations,
            failed=failed,
            tried=len(exercises),
        )
        if not self.rounds or self._rank(score) >= max(map(self._rank, self.rounds)):
            self.best = copy.deepcopy(self.policy)
        # A policy that solves nothing has no operations of its own to imitate.
        if score.verdict != EXACT and not last and any(solved):
            before = len(self.practised)
            if few:
                corrections = self._correct_table(practice, exercises)
                self._clone_table(practice, exercises)
            else:
                failing = self._failed_variously(practice, exercises)
                corrections = self._practise(practice, failing, exercises[:CHECKED])
                self._imitate(practice.transitions([*exercises, *self.practised]))
            practised = len(self.practised) - before
            score = replace(score, practised=practised, corrections=corrections)
        return replace(score, steps=practice.steps, seconds=round(time.perf_counter() - started, 1))

    def _correct_table(self, practice: Practice, exercises: list[Exercise]) -> int:
        """Correct the policy until no failing exercise is found; return the corrections."""
        others, corrections = exercises[:CHECKED], 0
        rng = np.random.default_rng([self.seed, len(self.rounds), HARD_EXERCISES])
        for _ in range(MOST_SEARCHES):
            made = self._practise(
                practice, self._failed_variously(practice, [*self.practised, *exercises]), others
            )
            if not made:
                hard = practice.failed_hard_exercises(rng, HARD_EXERCISES)
                made = self._practise(practice, self._failed_variously(practice, hard), others)
            if not made:
                found = self._searched(practice.asked())
                made = self._practise(practice, found, others)
                made = made or self._practise(practice, found, others, MOST_LOST)
            if not made:
                break
            corrections += made
            self.on_search(f"{corrections} corrections in round {len(self.rounds)}")
        return corrections

    def _practise(
        self,
        practice: Practice,
        failing: list[Exercise],
        others: list[Exercise],
        lost: int = 0,
    ) -> int:
        """Correct failing exercises; return the number of corrections.

        `lost` is the number of others that a correction may lose.
        """
        corrections = practice.correct(failing, [*self.practised, *others], lost)
        self.practised = list(dict.fromkeys([*self.practised, *failing]))
        return corrections

    @staticmethod
    def _rank(score: MendingRound) -> tuple[bool, int]:
        return score.verdict == EXACT, -score.failed

    def _certify(self, asked: Asked) -> OwnRunsCertificate:
        world = self.world
        return certify_own_runs(asked, base=world.base, frames=world.frames, level=self.level)

    def _failed_variously(self, practice: Practice, exercises: list[Exercise]) -> list[Exercise]:
        """Return exercises that the policy fails, each in another observation."""
        solved = practice.solved(exercises)
        failed = [each for each, right in zip(exercises, solved, strict=True) if not right]
        last = practice.last_observations(failed)
        found = list(dict(zip(last, failed, strict=True)).values())
        return list(dict.fromkeys(found[: self.settings.exercises]))

    def _searched(self, asked: Asked) -> list[Exercise]:
        """Return failing exercises that the certificate's exploration finds."""
        world = self.world
        runs = various_failing_runs(asked, world.base, world.frames, self.level, MOST_SEARCHED)
        found = (Exercise(Task.parse(run.calculation), run.columns) for run in runs)
        return list(dict.fromkeys(found))

    def _random_exercises(self) -> Iterator[Exercise]:
        """Yield random tasks of the world's operations, at several widths."""
        rng = np.random.default_rng([self.seed, len(self.rounds)])
        for number in range(self.settings.tried):
            columns = WIDTHS[number % len(WIDTHS)]
            yield Exercise(random_task(rng, self.world, columns), columns)

    def _imitate(self, own: Transitions) -> None:
        """Clone the policy's own transitions into new weights."""
        self._start_network(self.policy.network_name)
        self._clone(CloningSet.from_transitions(self.world.base, *own), self.settings.cloning)

    def _clone_table(self, practice: Practice, exercises: list[Exercise]) -> None:
        """Clone the table's actions in all observations that it can meet into a wide network."""
        asked = practice.asked()
        self._certify(asked)
        own = practice.transitions([*exercises, *self.practised])
        parts = zip(own, practice.answers(asked.observations()), strict=True)
        data = CloningSet.from_transitions(self.world.base, *(map(np.concatenate, parts)))
        self._start_network(NETWORK)
        settings, wrong = TABLE_CLONING, torch.empty(0, dtype=torch.int64)
        for _ in range(REPETITIONS):
            rows = torch.cat([torch.arange(len(data)), wrong.repeat(WRONG_COUNT)])
            self._clone(data.rows_at(rows), settings)
            wrong = torch.nonzero(~self._given(data))[:, 0]
            if not len(wrong):
                break
            settings = replace(TABLE_CLONING, learning_rate=REPEATED_RATE)

    def _start_network(self, name: str) -> None:
        """Begin with new weights, seeded for this round."""
        seed = np.random.SeedSequence([self.seed, len(self.rounds)])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        self.policy = new_policy(name, self.world.base, self.world.frames)

    def _given(self, data: CloningSet) -> torch.Tensor:
        """Return for each observation whether the policy takes its action."""
        network = self.policy.network
        with torch.no_grad():
            log_probs = masked_log_probs(network.logits(network.inputs(data.rows)), data.masks)
        return log_probs.argmax(dim=1) == data.actions

    def _clone(self, data: CloningSet, settings: CloningSettings) -> None:
        seed = int(torch.randint(2**31, ()))
        Cloning(self.policy, data, settings, seed, Logger(None, [])).run()

    def state(self) -> dict[str, Any]:
        """Return everything that the rounds change, as plain values and tensors."""
        return {
            "policy": _stored(self.policy),
            "best": _stored(self.best),
            "practised": [str(exercise) for exercise in self.practised],
            "rounds": [asdict(each) for each in self.rounds],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.policy, self.best = (self._restored(state[name]) for name in ("policy", "best"))
        self.practised = [Exercise.parse(text) for text in state["practised"]]
        self.rounds = [MendingRound(**each) for each in state["rounds"]]

    def _restored(self, stored: dict[str, Any]) -> AbacusPolicy:
        policy = new_policy(stored["network"], self.world.base, self.world.frames)
        policy.load_state_dict(stored["weights"])
        return policy


def _stored(policy: AbacusPolicy) -> dict[str, Any]:
    return {"network": policy.network_name, "weights": copy_weights(policy)}


def exercises_for_ppo(world: AbacusConfig, seed: int) -> list[Task]:
    """Return random tasks that PPO mixes into its episodes."""
    rng = np.random.default_rng(seed)
    return [random_task(rng, world, world.columns) for _ in range(PPO_EXERCISES)]


def random_task(rng: np.random.Generator, world: AbacusConfig, columns: int) -> Task:
    """Return a task that fits on a number of columns: a random value and `OPERATIONS` operations.

    Lengths are uniform, so that short numbers are as frequent as long ones.
    """
    base, digits = world.base, min(MOST_DIGITS, columns - 1)
    capacity = base**columns

    def number() -> int:
        return int(rng.integers(0, base ** int(rng.integers(1, digits + 1))))

    start = value = number()
    operations = []
    for _ in range(OPERATIONS):
        operand = number()
        sign = {"add": 1, "subtract": -1}.get(world.operations) or int(rng.choice((1, -1)))
        if sign < 0:
            operand = min(operand, value)
        elif value + operand >= capacity:
            operand = capacity - 1 - value
        operations.append(Operation(sign, operand))
        value += sign * operand
    return Task(start, tuple(operations))


class HardTasks(NamedTuple):
    """Random tasks in arrays, for a number of columns: values, signs and operands.

    A part `EXTREME` of the digits are 0 or the highest, for long carries.
    """

    starts: npt.NDArray[np.int64]  # (N,)
    signs: npt.NDArray[np.int64]  # (N, OPERATIONS): 1 or -1
    operands: npt.NDArray[np.int64]  # (N, OPERATIONS)

    @classmethod
    def draw(
        cls, rng: np.random.Generator, count: int, world: AbacusConfig, columns: int
    ) -> HardTasks:
        """Draw tasks that fit on the columns; numbers have at most `MOST_DIGITS` digits."""
        base = world.base
        # No sum of so few numbers is larger than what 64 bits hold.
        capacity = min(base**columns, 2**62)
        starts = value = cls._numbers(rng, count, base, columns)
        signs = np.empty((count, OPERATIONS), np.int64)
        operands = np.empty((count, OPERATIONS), np.int64)
        one = {"add": 1, "subtract": -1}.get(world.operations)
        for k in range(OPERATIONS):
            signs[:, k] = rng.choice((1, -1), count) if one is None else one
            most = np.where(signs[:, k] > 0, capacity - 1 - value, value)
            operands[:, k] = np.minimum(cls._numbers(rng, count, base, columns), most)
            value = value + signs[:, k] * operands[:, k]
        return cls(starts, signs, operands)

    @staticmethod
    def _numbers(
        rng: np.random.Generator, count: int, base: int, columns: int
    ) -> npt.NDArray[np.int64]:
        longest = min(MOST_DIGITS, columns - 1)
        size = (count, longest)
        ends = (base - 1) * rng.integers(0, 2, size)
        digits = np.where(rng.random(size) < EXTREME, ends, rng.integers(0, base, size))
        shown = np.arange(longest) < rng.integers(1, longest + 1, count)[:, None]
        numbers: npt.NDArray[np.int64] = (digits * shown) @ base ** np.arange(longest)
        return numbers

    def task(self, row: int) -> Task:
        """Return one of the tasks."""
        pairs = zip(self.signs[row].tolist(), self.operands[row].tolist(), strict=True)
        return Task(int(self.starts[row]), tuple(Operation(*pair) for pair in pairs))

    def load(self, batch: AbacusBatch) -> None:
        """Give each abacus of a batch its task."""
        base, longest = batch.config.base, batch.config.longest_operand
        columns = batch.config.columns
        operands = self.operands.ravel()
        digits = _digits(operands, base, longest)
        lengths = np.maximum(longest - np.argmax(digits[:, ::-1] > 0, axis=1), 1)
        lengths[operands == 0] = 1
        batch.load(
            _digits(self.starts, base, columns),
            digits,
            lengths.astype(np.int32),
            (self.signs.ravel() < 0).astype(np.int32),
            np.full(len(self.starts), OPERATIONS, np.int32),
        )


def _digits(values: npt.NDArray[np.int64], base: int, length: int) -> npt.NDArray[np.uint8]:
    """Return the digits of values, least significant first."""
    rows = np.empty((len(values), length), np.uint8)
    for place in range(length):
        values, rows[:, place] = np.divmod(values, base)
    return rows


@dataclass(frozen=True)
class Step:
    """A step of all abaci of a batch; those that have ended are not `running`."""

    running: npt.NDArray[np.bool_]
    codes: Codes
    #: The policy's actions, and those that were taken.
    greedy: npt.NDArray[np.int64]
    actions: npt.NDArray[np.int64]
    #: Bits of the legal actions.
    masks: npt.NDArray[np.uint8]
    #: Operations solved before and after the step.
    solved: npt.NDArray[np.int32]
    solved_after: npt.NDArray[np.int32]
    #: Right submits of each abacus so far.
    progress: npt.NDArray[np.int32]


class _Run(NamedTuple):
    """A run of the policy: observations, actions and masks (as bits), and its right submits."""

    steps: list[tuple[Codes, int, int]]
    progress: int


class _AskedTable(Asked):
    """The scores of a table, asked as a policy."""

    def __init__(self, table: GreedyTable) -> None:
        super().__init__(table.answers, table.base, table.frames)
        self._table = table

    def _ask(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        illegal = visibly_illegal_actions(self._base)[codes[:, -4]]
        scores = np.where(illegal, -np.inf, self._table.scores_of(codes[:, :-1]))
        return np.argsort(-scores, axis=1, kind="stable").astype(np.uint8)


class Practice:
    """A greedy policy with corrections, and its exercises; `steps` counts those of environments."""

    def __init__(self, policy: Any, world: AbacusConfig) -> None:
        self.world = world
        self.table = GreedyTable(policy, world.base, world.frames)
        self.steps = 0
        #: Failures in the exercises that corrections must not lose, and what these meet.
        self._lost, self._others_meet, self._may_lose = 0, set[bytes](), 0

    def _batches(
        self, exercises: Sequence[Exercise]
    ) -> Iterator[tuple[npt.NDArray[np.int64], AbacusBatch]]:
        """Yield abaci that are about to start exercises of one width, and which these are."""
        order = sorted(range(len(exercises)), key=lambda k: exercises[k].columns)
        for columns, part in groupby(order, key=lambda k: exercises[k].columns):
            rows = np.array(list(part))
            tasks = [exercises[row].task for row in rows]
            longest = max(len(task.operations) for task in tasks)
            config = self._config(columns, longest)
            batch = AbacusBatch(config, len(rows), autoreset=False)
            batch.load_tasks(tasks)
            batch.reset(0)
            yield rows, batch

    def asked(self) -> Asked:
        """Return the corrected policy as it is now, to be asked by a certificate."""
        return _AskedTable(self.table)

    def failed_hard_exercises(self, rng: np.random.Generator, count: int) -> list[Exercise]:
        """Draw hard exercises on any number of columns; return those that the policy fails."""
        widths = range(2, max(WIDTHS) + 1)
        failed: list[Exercise] = []
        for columns in widths:
            tasks = HardTasks.draw(rng, count // len(widths), self.world, columns)
            batch = AbacusBatch(
                self._config(columns, OPERATIONS), len(tasks.starts), autoreset=False
            )
            tasks.load(batch)
            batch.reset(0)
            rows = np.flatnonzero(~self._solved(batch)).tolist()
            failed += [Exercise(tasks.task(row), columns) for row in rows]
        return failed

    def _config(self, columns: int, operations: int) -> AbacusConfig:
        return AbacusConfig(
            base=self.world.base,
            frames=self.world.frames,
            columns=columns,
            max_digits=columns - 1,
            reward=self.world.reward,
            max_operations=operations,
        )

    def solved(self, exercises: Sequence[Exercise]) -> list[bool]:
        """Return whether the policy solves all operations of each exercise."""
        solved = np.zeros(len(exercises), np.bool_)
        for rows, batch in self._batches(exercises):
            solved[rows] = self._solved(batch)
        return solved.tolist()

    def _solved(self, batch: AbacusBatch) -> npt.NDArray[np.bool_]:
        """Return whether the policy solves the tasks of abaci that are about to start."""
        outcome = self.table.run(batch, _limit(batch))
        self.steps += int(outcome.scalars["steps"].sum())
        solved: npt.NDArray[np.bool_] = outcome.solved == outcome.scalars["program_count"]
        return solved

    def correct(
        self, failing: Sequence[Exercise], others: Sequence[Exercise], lost: int = 0
    ) -> int:
        """Look for corrections that solve failing exercises; return their number.

        `others` are exercises of which a correction must not lose more than `lost`.
        """
        self._may_lose = lost
        checks = [batch for _, batch in self._batches(others)]
        self._lost, self._others_meet = self._failures(checks), self._met(checks)
        corrections = 0
        for exercise in failing:
            # An exercise may fail in several places, one after another.
            for _ in exercise.task.operations:
                if self.solved([exercise])[0]:
                    break
                run = self._failing_run(exercise)
                # Changes of several actions are for what no single one corrects.
                made = self._make_best(
                    exercise, run, islice(self._single_changes(exercise, run), MOST_CHECKED), checks
                ) or self._make_best(
                    exercise, run, islice(self._random_changes(exercise, run), MOST_CHECKED), checks
                )
                if not made:
                    break
                corrections += 1
        return corrections

    def _make_best(
        self,
        exercise: Exercise,
        run: _Run,
        changes: Iterable[Change],
        checks: Sequence[AbacusBatch],
    ) -> bool:
        """Make the change that leads further than a failing run, and fails the fewest others.

        Return whether there is one with no more failures than allowed.
        """
        best: tuple[int, Change] | None = None
        for change in (variant for each in changes for variant in (self._shifted(each), each)):
            before = self.table.prefer(*change)
            if self._failing_run(exercise).progress > run.progress:
                failures = self._failures(checks) if self._is_met(change) else self._lost
                allowed = failures <= self._lost + self._may_lose
                if allowed and (best is None or failures < best[0]):
                    best = failures, change
            self.table.restore(change[0], before)
        if best is None:
            return False
        self._lost, change = best
        self.table.prefer(*change)
        if self._is_met(change):
            self._others_meet = self._met(checks)
        return True

    def _shifted(self, change: Change) -> Change:
        """Return a change that is also made one and two columns further.

        It is made there only where the policy acts as it did before the change. Observations of the
        left edge, with padding, are nowhere else.
        """
        codes, actions = change
        base, frames = self.world.base, self.world.frames
        left, right, row, phase, signpost = decode_frame(base, codes[:, :frames])
        movable = (left < base).all(axis=1)
        taken = self.table.scores_of(codes).argmax(axis=1)
        every, every_action = [codes], [actions]
        for shift in range(1, ENCODING_PERIOD):
            moved = codes.copy()
            shifted = (phase + shift) % ENCODING_PERIOD
            moved[:, :frames] = encode_frame(base, left, right, row, shifted, signpost)
            same = movable & (self.table.scores_of(moved).argmax(axis=1) == taken)
            every.append(moved[same])
            every_action.append(actions[same])
        joined, first = np.unique(np.concatenate(every), axis=0, return_index=True)
        return joined, np.concatenate(every_action)[first]

    def _is_met(self, change: Change) -> bool:
        """Whether other exercises meet an observation; what they never meet cannot change them."""
        return any(codes.tobytes() in self._others_meet for codes in change[0])

    def _met(self, batches: Sequence[AbacusBatch]) -> set[bytes]:
        """Return the observations that the policy meets in exercises."""
        met: set[bytes] = set()
        for batch in batches:
            batch.reset(0)
            codes = np.concatenate([step.codes[step.running] for step in self._steps(batch)])
            rows = np.ascontiguousarray(codes).view(f"V{codes.itemsize * codes.shape[1]}")
            met.update(np.unique(rows).tolist())
        return met

    def last_observations(self, exercises: Sequence[Exercise]) -> list[bytes]:
        """Return the last observation of the policy in each exercise: that of its failure."""
        last = [b""] * len(exercises)
        for rows, batch in self._batches(exercises):
            for step in self._steps(batch):
                for k in np.flatnonzero(step.running):
                    last[rows[k]] = step.codes[k].tobytes()
        return last

    def _failures(self, batches: Sequence[AbacusBatch]) -> int:
        failures = 0
        for batch in batches:
            batch.reset(0)
            failures += int((~self._solved(batch)).sum())
        return failures

    def _single_changes(self, exercise: Exercise, run: _Run) -> Iterator[Change]:
        """Yield changes of one action that lead further, those with the shortest runs first."""
        steps = run.steps
        trials = [
            (step, action)
            for step, (_, taken, mask) in enumerate(steps)
            if step >= len(steps) - MOST_STEPS_BACK
            for action in Action
            if mask >> action & 1 and action != taken
        ]
        if not trials:
            return
        places, actions = np.array(trials).T
        found: dict[int, None] = {}
        ((_, batch),) = self._batches([exercise] * len(trials))
        for step in self._steps(
            batch, lambda number, chosen: np.where(places == number, actions, chosen)
        ):
            found |= dict.fromkeys(np.flatnonzero(step.progress > run.progress).tolist())
        for row in found:
            yield steps[places[row]][0][None], actions[row : row + 1]

    def _random_changes(self, exercise: Exercise, run: _Run) -> Iterator[Change]:
        """Yield changes of several actions, found by playing at random now and then.

        The smallest ones come first.
        """
        rng = np.random.default_rng([len(exercise.task.operations), exercise.task.start % 2**63])
        ((_, batch),) = self._batches([exercise] * RANDOM_TRIALS)
        #: The changed actions of each trial, by observation; None if one was changed twice, or if
        #: the trial has led further already.
        changes: list[dict[bytes, int] | None] = [{} for _ in range(RANDOM_TRIALS)]
        found: list[dict[bytes, int]] = []

        def play(number: int, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            other = np.argmax(np.where(batch.masks, rng.random(batch.masks.shape), -1.0), axis=1)
            return np.where(rng.random(RANDOM_TRIALS) < RANDOM_SHARE, other, chosen)

        for step in self._steps(batch, play):
            for row in np.flatnonzero(step.running):
                known, key, action = changes[row], step.codes[row].tobytes(), step.actions[row]
                if known is None:
                    continue
                if action != known.get(key, step.greedy[row]):
                    changes[row] = known = None if key in known else known | {key: int(action)}
                if known is not None and step.progress[row] > run.progress:
                    found.append(known)
                    changes[row] = None
        for known in sorted(found, key=len):
            codes = np.array([np.frombuffer(key, np.int32) for key in known])
            yield codes, np.array(list(known.values()))

    def _failing_run(self, exercise: Exercise) -> _Run:
        """Return the policy's run."""
        ((_, batch),) = self._batches([exercise])
        steps, progress = [], 0
        for step in self._steps(batch):
            steps.append((step.codes[0], int(step.actions[0]), int(step.masks[0])))
            progress = int(step.progress[0])
        return _Run(steps, progress)

    def answers(self, observations: Codes) -> Transitions:
        """Return what the corrected policy does in coded observations of `Asked`."""
        codes = np.unique(observations[:, :-1], axis=0)
        illegal = visibly_illegal_actions(self.world.base)[codes[:, -3]]
        actions = best_actions(np.where(illegal, -np.inf, self.table.scores_of(codes)))
        masks = np.packbits(~illegal, axis=1, bitorder="little")[:, 0]
        return codes[:, :-2], codes[:, -2], codes[:, -1], actions, masks

    def transitions(self, exercises: Sequence[Exercise]) -> Transitions:
        """Return the transitions of the operations that the corrected policy solves."""
        parts = [
            part for _, batch in self._batches(exercises) for part in self._solved_steps(batch)
        ]
        return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))

    def _solved_steps(self, batch: AbacusBatch) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        steps = list(self._steps(batch))
        solved = np.zeros(batch.num_envs, np.int32)
        for step in steps:
            solved[step.running] = step.solved_after[step.running]
        # A step belongs to a solved operation if more operations are solved in the end.
        for step in steps:
            kept = step.running & (step.solved < solved)
            columns = step.codes[:, :-2], step.codes[:, -2], step.codes[:, -1], step.actions
            yield tuple(column[kept] for column in (*columns, step.masks))

    def _steps(
        self,
        batch: AbacusBatch,
        change: Callable[[int, npt.NDArray[np.int64]], npt.NDArray[np.int64]] | None = None,
    ) -> Iterator[Step]:
        """Play abaci that are about to start until all have ended.

        Actions are the policy's, or what `change` makes of them, given the number of the step.
        """
        running = np.ones(batch.num_envs, np.bool_)
        progress = np.zeros(batch.num_envs, np.int32)
        for number in range(_limit(batch)):
            codes, greedy = _codes(batch), self.table.actions(batch)
            actions = greedy if change is None else change(number, greedy)
            masks = np.packbits(batch.masks, axis=1, bitorder="little")[:, 0]
            solved = batch.scalars["operations_solved"].copy()
            batch.step(np.where(running, actions, Action.UP))
            self.steps += int(running.sum())
            after = batch.scalars["operations_solved"].copy()
            right = running & (actions == Action.SUBMIT) & (batch.ends != End.WRONG_SUBMIT)
            progress += right
            yield Step(running.copy(), codes, greedy, actions, masks, solved, after, progress)
            running &= batch.ends == End.NONE
            if not running.any():
                break


def _codes(batch: AbacusBatch) -> Codes:
    scalars = batch.scalars
    return np.column_stack([batch.history, scalars["symbol"], scalars["operation"]]).astype(
        np.int32
    )


def _limit(batch: AbacusBatch) -> int:
    return step_limit(batch.config, batch.config.max_operations or 1)
