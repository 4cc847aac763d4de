"""The greedy policy over many operations, with a memory: the network sees an observation once.

A memory-less policy without its randomness is a table from observations to actions. The abaci run
in compiled code as long as the table knows what they show; those that show something new wait, the
network answers for all of them at once, and they go on. Scores and not actions are kept, because
what is legal also depends on edges out of sight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.kernel import (
    ACTIONS,
    END_BUDGET,
    END_NONE,
    SIGNPOST_OUTCOME,
    SLIDE_OUTCOME,
    SUBMIT_OUTCOME,
    advance,
    compiled,
    is_legal,
)
from abacus.observation import frame_pixels
from abacus.rules import Action, End
from oracle.algorithm import Variant
from oracle.exact.certificate import CHUNK, answers_of
from oracle.exact.complete_set import ObservationSet
from oracle.expert import expert_actions
from pipelines.scoring.operations import Digits, OperationSet

# numba types the compiled functions from the arguments that they meet.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators


#: The table is at most so full, so that a search is short.
FULLEST = 0.5
_EMPTY = -1


class GreedyTable:
    """Scores of a policy for the observations asked so far; see `answers_of`."""

    #: It does the same again in the same state.
    repeatable = True

    def __init__(self, policy: Any, base: int, frames: int) -> None:
        self.answers = answers_of(policy)
        self.base = base
        self.frames = frames
        self._slots = np.full(1 << 12, _EMPTY, np.int32)
        #: (capacity, frames + 2): frame codes, symbol, operation.
        self._codes = np.zeros((1 << 11, frames + 2), np.int32)
        self._scores = np.zeros((1 << 11, ACTIONS), np.float32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def learn(self, codes: npt.NDArray[np.int32]) -> None:
        """Asks the policy about observations, given as rows of frame codes, symbol, operation."""
        for start in range(0, len(codes), CHUNK):
            self._learn(np.unique(codes[start : start + CHUNK], axis=0))

    def learn_set(self, observations: ObservationSet) -> npt.NDArray[np.float32]:
        """Asks about a whole set at once, into an empty table; returns the scores."""
        if self._count:
            raise ValueError("the table is not empty: make a new one")
        codes = np.column_stack(
            [observations.histories, observations.symbols, observations.operations]
        ).astype(np.int32)
        for start in range(0, len(codes), CHUNK):
            self._learn(codes[start : start + CHUNK])
        return self._scores[: self._count]

    def _learn(self, codes: npt.NDArray[np.int32]) -> None:
        self._make_room(len(codes))
        scores = np.asarray(self.answers(coded_observations(self.base, codes)))
        if scores.ndim == 1:
            scores = np.eye(ACTIONS, dtype=np.float32)[scores]
        if not np.isfinite(scores).all():
            raise ValueError("the policy gives scores that are not finite")
        end = self._count + len(codes)
        self._codes[self._count : end] = codes
        self._scores[self._count : end] = scores
        _insert(self._slots, self._codes, self._count, end)
        self._count = end

    def _make_room(self, more: int) -> None:
        needed = self._count + more
        if needed <= FULLEST * len(self._slots):
            return
        size = 1 << int(np.ceil(np.log2(needed / FULLEST)) + 1)
        self._slots = np.full(size, _EMPTY, np.int32)
        capacity = int(size * FULLEST)
        for name in ("_codes", "_scores"):
            old = getattr(self, name)
            new = np.zeros((capacity, old.shape[1]), old.dtype)
            new[: self._count] = old[: self._count]
            setattr(self, name, new)
        _insert(self._slots, self._codes, 0, self._count)

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """Lets every abacus of a batch that was reset run to its end; each must not start anew."""
        if batch.autoreset:
            raise ValueError("batch has autoreset=True: give one that stays as it ended")
        waiting = np.arange(batch.num_envs, dtype=np.int32)
        mistakes = np.zeros(batch.num_envs, np.uint8)
        while len(waiting):
            left = _run_known(
                batch.rules,
                batch.world,
                batch.program,
                batch.out.results,
                waiting,
                len(waiting),
                mistakes,
                self._slots,
                self._codes,
                self._scores,
                max_steps,
            )
            waiting = waiting[:left]
            if left:
                scalars = batch.scalars[waiting]
                self.learn(
                    np.column_stack(
                        [batch.history[waiting], scalars["symbol"], scalars["operation"]]
                    ).astype(np.int32)
                )
        return Outcome(batch.scalars.copy(), batch.ends.copy(), mistakes, batch.digits.copy())

    def actions(self, batch: AbacusBatch) -> npt.NDArray[np.int64]:
        """The best legal action in every abacus of a batch as it stands."""
        rows = np.empty(batch.num_envs, np.int32)
        _find_all(self._slots, self._codes, batch.scalars, batch.history, rows)
        new = rows == _EMPTY
        if new.any():
            scalars = batch.scalars[new]
            self.learn(
                np.column_stack(
                    [batch.history[new], scalars["symbol"], scalars["operation"]]
                ).astype(np.int32)
            )
            _find_all(self._slots, self._codes, batch.scalars, batch.history, rows)
        return best_action(np.where(batch.masks, self._scores[rows], -np.inf))


@dataclass(frozen=True)
class Outcome:
    """How abaci ended: their last records, why, the first mistake, and what they show."""

    scalars: npt.NDArray[np.void]
    ends: npt.NDArray[np.uint8]
    first_mistakes: npt.NDArray[np.uint8]  # End.WRONG_SIGNPOST, _SLIDE, _SUBMIT or NONE
    digits: npt.NDArray[np.uint8]

    @property
    def solved(self) -> npt.NDArray[np.int32]:
        """Operations that each abacus solved."""
        return self.scalars["operations_solved"]

    @property
    def illegal_actions(self) -> int:
        return int(self.scalars["illegal_actions"].sum())

    def failures(self) -> dict[str, int]:
        """Ends that are failures, counted by name."""
        kinds = (End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT, End.BUDGET)
        return {kind.name.lower(): int((self.ends == kind).sum()) for kind in kinds}


def best_action(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """The action with the greatest score in each row, the first of equals."""
    best: npt.NDArray[np.int64] = np.argmax(scores, axis=1)
    return best


def coded_observations(
    base: int, codes: npt.NDArray[np.int32]
) -> dict[str, npt.NDArray[np.float32]]:
    """Observations as the environment gives them; the previous action is left at zeros."""
    count = len(codes)
    return {
        "window": frame_pixels(base)[codes[:, :-2]].reshape(count, -1),
        "symbol": np.eye(base + 2, dtype=np.float32)[codes[:, -2]],
        "operation": codes[:, -1:].astype(np.float32),
        "previous_action": np.zeros((count, len(Action)), np.float32),
    }


@compiled
def _mixed(key, code):
    key = (key + np.uint64(code)) * np.uint64(0x9E3779B97F4A7C15)
    return key ^ (key >> np.uint64(32))


@compiled
def _insert(slots, codes, start, end):
    for row in range(start, end):
        key = np.uint64(0)
        for k in range(codes.shape[1]):
            key = _mixed(key, codes[row, k])
        slot = key & np.uint64(len(slots) - 1)
        while slots[slot] != _EMPTY:
            slot = (slot + np.uint64(1)) & np.uint64(len(slots) - 1)
        slots[slot] = row


@compiled
def _find(slots, codes, s, history, i):
    """The row of what abacus i shows, or _EMPTY."""
    frames = history.shape[1]
    key = np.uint64(0)
    for k in range(frames):
        key = _mixed(key, history[i, k])
    key = _mixed(_mixed(key, s.symbol), s.operation)
    slot = key & np.uint64(len(slots) - 1)
    while slots[slot] != _EMPTY:
        row = slots[slot]
        same = codes[row, frames] == s.symbol and codes[row, frames + 1] == s.operation
        for k in range(frames):
            same = same and codes[row, k] == history[i, k]
        if same:
            return row
        slot = (slot + np.uint64(1)) & np.uint64(len(slots) - 1)
    return _EMPTY


@compiled
def _find_all(slots, codes, scalars, history, rows):
    for i in range(len(rows)):
        rows[i] = _find(slots, codes, scalars[i], history, i)


@compiled
def _best_legal(rules, s, digit, scores, row):
    best = -1
    for action in range(ACTIONS):
        if is_legal(rules, s, digit, action) and (
            best < 0 or scores[row, action] > scores[row, best]
        ):
            best = action
    return best


@compiled
def _mistake(result):
    """The kind of mistake of a step, by the number of the end that it would be."""
    for outcome in (SIGNPOST_OUTCOME, SLIDE_OUTCOME, SUBMIT_OUTCOME):
        if result.outcomes[outcome] < 0:
            return outcome
    return 0


@compiled
def _run_known(
    all_rules, world, program, results, waiting, count, mistakes, slots, codes, scores, max_steps
):
    """Runs the abaci that wait until they end or show something unknown; returns how many wait."""
    rules = all_rules[0]
    scalars, cells, history = world
    left = 0
    for place in range(count):
        i = waiting[place]
        s, result = scalars[i], results[i]
        while True:
            row = _find(slots, codes, s, history, i)
            if row == _EMPTY:
                waiting[left] = i
                left += 1
                break
            action = _best_legal(rules, s, cells[i, s.finger_column].digit, scores, row)
            advance(rules, s, cells, history, program, i, action, result)
            if mistakes[i] == 0:
                mistakes[i] = _mistake(result)
            if result.end == END_NONE and s.steps >= max_steps:
                result.end = END_BUDGET
            if result.end != END_NONE:
                break
    return left


Actions = npt.NDArray[np.int64]
_JUDGED = (SIGNPOST_OUTCOME, SLIDE_OUTCOME, SUBMIT_OUTCOME)


class Player(Protocol):
    """Runs abaci, each of which was reset and does not start anew."""

    #: Whether it does the same again in the same state.
    repeatable: bool

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """Lets every abacus run to its end; `max_steps` ends it as the budget would."""
        ...

    def actions(self, batch: AbacusBatch) -> Actions:
        """What it does in every abacus as it stands."""
        ...


class StepPlayer:
    """Asks for actions at every step."""

    def __init__(self, choose: Callable[[AbacusBatch], Actions], repeatable: bool = True) -> None:
        self._choose = choose
        self.repeatable = repeatable

    def actions(self, batch: AbacusBatch) -> Actions:
        return self._choose(batch)

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """See Player."""
        if batch.autoreset:
            raise ValueError("batch has autoreset=True: give one that stays as it ended")
        outcome = Outcome(
            batch.scalars.copy(),
            np.zeros(batch.num_envs, np.uint8),
            np.zeros(batch.num_envs, np.uint8),
            batch.digits.copy(),
        )
        running = np.ones(batch.num_envs, np.bool_)
        while running.any():
            # Abaci that ended are stepped along: this moves a finger that nobody looks at again.
            batch.step(np.where(running, self._choose(batch), Action.UP))
            mistakes = mistakes_of(batch)
            first = running & (outcome.first_mistakes == End.NONE)
            outcome.first_mistakes[first] = mistakes[first]
            ends = batch.ends.copy()
            ends[(ends == End.NONE) & (batch.scalars["steps"] >= max_steps)] = End.BUDGET
            ended = running & (ends != End.NONE)
            outcome.scalars[ended] = batch.scalars[ended]
            outcome.ends[ended] = ends[ended]
            outcome.digits[ended] = batch.digits[ended]
            running &= ~ended
        return outcome


def mistakes_of(batch: AbacusBatch) -> npt.NDArray[np.uint8]:
    """What was wrong in the last step of each abacus, by the end that it would be; or NONE."""
    wrong = batch.outcomes[:, _JUDGED] < 0
    kinds = np.array([End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT], np.uint8)
    return np.where(wrong.any(axis=1), kinds[np.argmax(wrong, axis=1)], np.uint8(End.NONE))


def teacher_player(variant: Variant = "before") -> StepPlayer:
    """The teacher, who knows the state."""
    return StepPlayer(lambda batch: expert_actions(batch, variant))


def random_player(seed: int = 0) -> StepPlayer:
    """Every legal action with the same chance, drawn anew at every step."""
    rng = np.random.default_rng(seed)

    def choose(batch: AbacusBatch) -> Actions:
        draws = np.where(batch.masks, rng.random(batch.masks.shape), -1.0)
        return best_action(draws)

    return StepPlayer(choose, repeatable=False)


def asking_player(policy: Any) -> StepPlayer:
    """The greedy policy without a memory: its network answers at every step."""
    answers = answers_of(policy)

    def choose(batch: AbacusBatch) -> Actions:
        given = np.asarray(answers(batch.observation))
        if given.ndim == 1:
            return given.astype(np.int64)
        return best_action(np.where(batch.masks, given, -np.inf))

    return StepPlayer(choose)


def wrong_results(operations: OperationSet, outcome: Outcome) -> npt.NDArray[np.bool_]:
    """Whether the abaci show something else than the true result."""
    truths = widened(operations.results(), outcome.digits.shape[1])
    wrong: npt.NDArray[np.bool_] = (outcome.digits != truths).any(axis=1)
    return wrong


def widened(numerals: Digits, width: int) -> Digits:
    """As wide as the abacus; what is cut off is 0 where operands fit."""
    if numerals.shape[1] >= width:
        return numerals[:, :width]
    return np.pad(numerals, ((0, 0), (0, width - numerals.shape[1])))
