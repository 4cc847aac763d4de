"""Players choose actions for the abaci of a batch: the greedy policy, the expert, random actions.

A memoryless policy without its randomness is a table from observations to actions. `GreedyTable`
runs abaci in compiled code as long as it knows their observations; abaci with a new observation
wait, the network answers for all of them in one call, and they continue. The table holds scores
and not actions, because legality also depends on edges outside the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.compiling import compiled, compiled_inline
from abacus.hash_index import EMPTY, empty_slots, find_slot, insert_rows
from abacus.kernel import (
    ACTIONS,
    END_BUDGET,
    END_NONE,
    SIGNPOST_OUTCOME,
    SLIDE_OUTCOME,
    SUBMIT_OUTCOME,
    advance,
    is_legal,
)
from abacus.observation import observation_arrays, visibly_illegal_actions
from abacus.rules import Action, End
from oracle.algorithm import Variant
from oracle.exact.certificate import CHUNK, answers_of, digest_of
from oracle.exact.complete_set import ObservationSet
from oracle.expert import expert_actions

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

Actions = npt.NDArray[np.int64]
#: Outcomes that can be wrong, and the ends that they cause.
_JUDGED = (SIGNPOST_OUTCOME, SLIDE_OUTCOME, SUBMIT_OUTCOME)
_WRONG_ENDS = np.array([End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT], np.uint8)


@dataclass(frozen=True)
class Outcome:
    """Final records of abaci, why they ended, and the digits they show."""

    scalars: npt.NDArray[np.void]
    ends: npt.NDArray[np.uint8]
    digits: npt.NDArray[np.uint8]

    @property
    def solved(self) -> npt.NDArray[np.int32]:
        """Operations solved by each abacus."""
        return self.scalars["operations_solved"]

    @property
    def illegal_actions(self) -> int:
        return int(self.scalars["illegal_actions"].sum())

    def failures(self) -> dict[str, int]:
        """Count the ends that are failures, by name."""
        kinds = (End.WRONG_SIGNPOST, End.WRONG_SLIDE, End.WRONG_SUBMIT, End.BUDGET)
        return {kind.name.lower(): int((self.ends == kind).sum()) for kind in kinds}


class Player(Protocol):
    """Chooser of actions for the abaci of a batch that was reset and has `autoreset=False`."""

    #: Whether it always takes the same action in the same state.
    deterministic: bool

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """Run every abacus to its end; at `max_steps` it ends as if the budget were spent."""
        ...

    def actions(self, batch: AbacusBatch) -> Actions:
        """Return an action for every abacus in its present state."""
        ...


@dataclass(frozen=True)
class NamedPolicy:
    """A policy from the command line that can be run, and asked about observations."""

    name: str
    kind: str
    base: int
    frames: int
    #: As `oracle.exact.certificate.certify` takes it.
    answers: Any
    player: Player

    @property
    def digest(self) -> str | None:
        """Digest of the weights; None without weights."""
        return digest_of(self.answers)


class GreedyTable:
    """The greedy policy: its scores for all observations met so far, answered once each."""

    deterministic = True

    def __init__(self, policy: Any, base: int, frames: int) -> None:
        self.answers = answers_of(policy)
        self.base = base
        self.frames = frames
        #: (capacity + 1, frames + 2): frame codes, symbol, operation; the last row is for look-ups.
        self._codes = np.zeros((1, frames + 2), np.int32)
        self._scores = np.zeros((1, ACTIONS), np.float32)
        self._count = 0
        self._reserve(1 << 11)

    def __len__(self) -> int:
        return self._count

    def learn_set(self, observations: ObservationSet) -> npt.NDArray[np.float32]:
        """Store the scores of a whole set in an empty table, and return them."""
        if self._count:
            raise ValueError("the table is not empty: make a new one")
        codes = np.column_stack(
            [observations.histories, observations.symbols, observations.operations]
        ).astype(np.int32)
        for start in range(0, len(codes), CHUNK):
            self._learn(codes[start : start + CHUNK])
        return self._scores[: self._count]

    def learn(self, codes: npt.NDArray[np.int32]) -> None:
        """Store the scores of new observations: rows of frame codes, symbol and operation."""
        for start in range(0, len(codes), CHUNK):
            self._learn(np.unique(codes[start : start + CHUNK], axis=0))

    def codes_of(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Return observations by their rows in the table: frame codes, symbol and operation."""
        codes: npt.NDArray[np.int32] = self._codes[rows]
        return codes

    def scores_at(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Return the scores of rows of the table, (N, 8)."""
        scores: npt.NDArray[np.float32] = self._scores[rows]
        return scores

    def prefer(self, rows: npt.NDArray[np.integer], actions: npt.NDArray[np.integer]) -> None:
        """Let actions be the best of rows of the table, in place of the policy's."""
        self._scores[rows, actions] = self._scores[rows].max(axis=1) + 1.0

    def restore(self, scores: npt.NDArray[np.float32]) -> None:
        """Store again what `scores_at` returned for the first rows of the table."""
        self._scores[: len(scores)] = scores

    def known_rows(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the rows of observations, EMPTY for those that are not in the table."""
        rows: npt.NDArray[np.int64] = _find_codes(self._slots, self._codes, codes)
        return rows

    def scores_of(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Return the scores of distinct observations, (N, 8), which are learned if they are new."""
        rows = self.known_rows(codes)
        if (rows == EMPTY).any():
            self.learn(codes[rows == EMPTY])
            rows = self.known_rows(codes)
        return self._scores[rows]

    def orders_of(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Return (N, 8) actions, the best first, as `explore_policy` asks for them.

        It asks about frame codes, symbol, operation and previous action, which the policy does not
        see.
        """
        distinct, index = np.unique(codes[:, :-1], axis=0, return_inverse=True)
        illegal = visibly_illegal_actions(self.base)[distinct[:, -3]]
        scores = np.where(illegal, -np.inf, self.scores_of(distinct))
        return np.argsort(-scores, axis=1, kind="stable").astype(np.uint8)[index.ravel()]

    def _learn_rows(self, batch: AbacusBatch, rows: npt.NDArray[Any]) -> None:
        scalars = batch.scalars[rows]
        codes = np.column_stack([batch.history[rows], scalars["symbol"], scalars["operation"]])
        self.learn(codes.astype(np.int32))

    def _learn(self, codes: npt.NDArray[np.int32]) -> None:
        if self._count + len(codes) >= len(self._codes):
            self._reserve(2 * (self._count + len(codes)))
        observations = observation_arrays(self.base, codes[:, :-2], codes[:, -2], codes[:, -1])
        scores = np.asarray(self.answers(observations))
        if scores.ndim == 1:
            scores = np.eye(ACTIONS, dtype=np.float32)[scores]
        if not np.isfinite(scores).all():
            raise ValueError("the policy gives scores that are not finite")
        end = self._count + len(codes)
        self._codes[self._count : end] = codes
        self._scores[self._count : end] = scores
        insert_rows(self._slots, self._codes, self._count, end)
        self._count = end

    def _reserve(self, capacity: int) -> None:
        self._slots = empty_slots(capacity)
        for name in ("_codes", "_scores"):
            old = getattr(self, name)
            new = np.zeros((capacity + 1, old.shape[1]), old.dtype)
            new[: self._count] = old[: self._count]
            setattr(self, name, new)
        insert_rows(self._slots, self._codes, 0, self._count)

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """See `Player`."""
        _check_autoreset(batch)
        every = np.arange(batch.num_envs, dtype=np.int32)
        self.run_waiting(_run_known, batch, every, max_steps)
        return Outcome(batch.scalars.copy(), batch.ends.copy(), batch.digits.copy())

    def run_waiting(
        self,
        loop: Any,
        batch: AbacusBatch,
        waiting: npt.NDArray[np.int32],
        max_steps: int,
        *more: Any,
    ) -> None:
        """Run some abaci of a batch by a compiled loop, which takes the arguments of `_run_known`.

        The loop is called again for abaci that met a new observation.
        """
        while len(waiting):
            left = loop(
                batch.rules,
                batch.world,
                batch.program,
                batch.out.results,
                waiting,
                self._slots,
                self._codes,
                self._scores,
                max_steps,
                *more,
            )
            waiting = waiting[:left]
            if left:
                self._learn_rows(batch, waiting)

    def actions(self, batch: AbacusBatch) -> Actions:
        """Return the legal action with the highest score in every abacus."""
        rows = np.empty(batch.num_envs, np.int32)
        _find_all(self._slots, self._codes, batch.scalars, batch.history, rows)
        new = rows == EMPTY
        if new.any():
            self._learn_rows(batch, new)
            _find_all(self._slots, self._codes, batch.scalars, batch.history, rows)
        return best_actions(np.where(batch.masks, self._scores[rows], -np.inf))


def _check_autoreset(batch: AbacusBatch) -> None:
    if batch.autoreset:
        raise ValueError("batch has autoreset=True: give one with autoreset=False")


def best_actions(scores: npt.NDArray[np.floating]) -> Actions:
    """Return the action with the highest score in each row, the first of equal ones."""
    best: Actions = np.argmax(scores, axis=1)
    return best


@compiled_inline
def find_row(slots, codes, s, history, i):
    """Return the row of the observation of abacus i, or EMPTY."""
    frames, last = history.shape[1], len(codes) - 1
    for k in range(frames):
        codes[last, k] = history[i, k]
    codes[last, frames] = s.symbol
    codes[last, frames + 1] = s.operation
    return slots[find_slot(slots, codes, last)]


@compiled
def _find_all(slots, codes, scalars, history, rows):
    for i in range(len(rows)):
        rows[i] = find_row(slots, codes, scalars[i], history, i)


@compiled
def _find_codes(slots, codes, wanted):
    rows, last = np.empty(len(wanted), np.int64), len(codes) - 1
    for i in range(len(wanted)):
        codes[last] = wanted[i]
        rows[i] = slots[find_slot(slots, codes, last)]
    return rows


@compiled
def best_legal(rules, s, digit, scores, row):
    best = -1
    for action in range(ACTIONS):
        if is_legal(rules, s, digit, action) and (
            best < 0 or scores[row, action] > scores[row, best]
        ):
            best = action
    return best


@compiled
def _run_known(all_rules, world, program, results, waiting, slots, codes, scores, max_steps):
    """Run waiting abaci until they end or meet a new observation; return how many are left."""
    rules = all_rules[0]
    scalars, cells, history = world
    left = 0
    for place in range(len(waiting)):
        i = waiting[place]
        s, result = scalars[i], results[i]
        while True:
            row = find_row(slots, codes, s, history, i)
            if row == EMPTY:
                waiting[left] = i
                left += 1
                break
            action = best_legal(rules, s, cells[i, s.finger_column].digit, scores, row)
            advance(rules, s, cells, history, program, i, action, result)
            if result.end == END_NONE and s.steps >= max_steps:
                result.end = END_BUDGET
            if result.end != END_NONE:
                break
    return left


class StepPlayer:
    """Player that calls a function for the actions of every step."""

    def __init__(
        self, choose: Callable[[AbacusBatch], Actions], deterministic: bool = True
    ) -> None:
        self._choose = choose
        self.deterministic = deterministic

    def actions(self, batch: AbacusBatch) -> Actions:
        """See `Player`."""
        return self._choose(batch)

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        """See `Player`."""
        _check_autoreset(batch)
        ends = np.zeros(batch.num_envs, np.uint8)
        outcome = Outcome(batch.scalars.copy(), ends, batch.digits.copy())
        running = np.ones(batch.num_envs, np.bool_)
        while running.any():
            # Abaci that ended are stepped along with the others; their outcome is kept already.
            batch.step(np.where(running, self._choose(batch), Action.UP))
            ends = batch.ends.copy()
            ends[(ends == End.NONE) & (batch.scalars["steps"] >= max_steps)] = End.BUDGET
            ended = running & (ends != End.NONE)
            outcome.scalars[ended] = batch.scalars[ended]
            outcome.ends[ended] = ends[ended]
            outcome.digits[ended] = batch.digits[ended]
            running &= ~ended
        return outcome


def mistakes_of(batch: AbacusBatch) -> npt.NDArray[np.uint8]:
    """Return the mistake of the last step in each abacus, as the `End` that it would cause."""
    wrong = batch.outcomes[:, _JUDGED] < 0
    ends = _WRONG_ENDS[np.argmax(wrong, axis=1)]
    return np.where(wrong.any(axis=1), ends, np.uint8(End.NONE))


def expert_player(variant: Variant = "before") -> StepPlayer:
    """Return the expert, which knows the state."""
    return StepPlayer(lambda batch: expert_actions(batch, variant))


def random_player(seed: int = 0) -> StepPlayer:
    """Return a player of uniformly random legal actions."""
    rng = np.random.default_rng(seed)

    def choose(batch: AbacusBatch) -> Actions:
        return best_actions(np.where(batch.masks, rng.random(batch.masks.shape), -1.0))

    return StepPlayer(choose, deterministic=False)
