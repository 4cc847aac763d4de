"""Action values of the whole abacus in a table, learned from the reward by Q-learning.

The table sees more than the observation, but no answer: the digits of the finger's column and of
the columns at the operand's digit, the finger and the signpost relative to that digit, symbol and
operation, and which columns were changed since the symbol appeared, with the digit that the last of
them showed before. It does not see the target, nor what is wrong. These states are few and the
table is compiled: it makes millions of steps a second, and with values that start at 0, more than
most actions are worth, it tries every action of a state before it settles.

What it found is cloned into a policy that sees the observation alone, on the observations that the
policy itself meets. Where an observation does not tell the state, the most frequent action of the
table is taken: such a policy solves a third of the operations, knows carries and borrows, and is
where PPO starts. All of it is learned from the reward of the level: there is no demonstration.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger

from abacus import kernel
from abacus.batch import AbacusBatch
from abacus.compiling import compiled, compiled_inline
from abacus.kernel import ON_OPERATION_SYMBOL, SUBMIT
from abacus.rules import AbacusConfig, Action
from pipelines.learning.cloning import Cloning
from pipelines.learning.cloning_data import CloningSet, Log
from pipelines.learning.policy import AbacusPolicy, sample
from pipelines.learning.settings import CloningSettings

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Abaci that the table learns from.
ABACI = 64
#: Slots of the hash table, a power of two.
SLOTS = 1 << 21
_SHIFT = 64 - 21
EMPTY = -1
#: Distances of the finger and of the signpost beyond these count as these.
FINGER_FARTHEST, SIGNPOST_FARTHEST = 3, 2
#: Numbers of changed columns that are told apart: none, the digit's alone, more by a carry.
MOST_CHANGED = 2
#: The state of an abacus on which other columns were changed than those from the digit's on.
ASTRAY = 1 << 62
#: Actions whose values differ by less are equally good: the first of them is taken.
TIE = 0.05
ACTIONS = len(Action)


@compiled_inline
def _near(distance, farthest):
    return min(max(distance, -farthest), farthest) + farthest


@compiled_inline
def _digit(rules, cells, i, column):
    """Return the digit of a column, or the base beyond the last one."""
    if column >= rules.columns:
        return rules.base
    return np.int32(cells[i, column].digit)


@compiled_inline
def _key(rules, s, cells, i, before):
    """Return the state of abacus i as a number; `before` are its digits when the symbol appeared.

    Right slides change the digit's column and those after it, one by one. What changed a column
    elsewhere went astray: a level that judges slides has ended the episode.
    """
    base = rules.base + 1
    home = max(s.digit_index, 0)
    changed, last = 0, np.int32(-1)
    for column in range(rules.columns):
        if cells[i, column].digit != before[i, column]:
            changed, last = changed + 1, np.int32(column)
    if changed > 0 and (s.digit_index == ON_OPERATION_SYMBOL or last != home + changed - 1):
        return np.int64(ASTRAY)
    key = np.int64(s.symbol) * 2 + s.operation
    key = key * base + s.finger_row
    key = key * (2 * SIGNPOST_FARTHEST + 1) + _near(s.signpost - home, SIGNPOST_FARTHEST)
    # Relative to the column that would be changed next.
    finger = s.finger_column - home - changed
    key = key * (2 * FINGER_FARTHEST + 1) + _near(finger, FINGER_FARTHEST)
    if s.digit_index == ON_OPERATION_SYMBOL:
        return key
    key = key * base + _digit(rules, cells, i, s.finger_column)
    key = key * (MOST_CHANGED + 1) + min(changed, MOST_CHANGED)
    key = key * base + _digit(rules, cells, i, home + changed)
    if changed == 0:
        return key * base * base
    return (key * base + cells[i, last].digit) * base + before[i, last]


@compiled_inline
def _slot(keys, key):
    """Return the slot of a state, which is taken if it was empty."""
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(_SHIFT))
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & (SLOTS - 1)
    keys[slot] = key
    return slot


@compiled_inline
def _best(values, slot, mask):
    best = np.float32(-np.inf)
    for action in range(ACTIONS):
        if mask[action] and values[slot, action] > best:
            best = values[slot, action]
    return best


@compiled_inline
def _note_digits(cells, i, before, action, result):
    """Note the digits of abacus i if the step has brought a symbol."""
    if result.end != 0 or action == SUBMIT:
        for column in range(before.shape[1]):
            before[i, column] = cells[i, column].digit


@compiled
def _learn(rules, weights, pixels, world, program, out, before, keys, values, visits, random, plan):
    steps, gamma, epsilon, least_rate = plan
    scalars, cells, _ = world
    abaci = len(scalars)
    actions = np.zeros(abaci, np.int64)
    slots = np.zeros(abaci, np.int64)
    for i in range(abaci):
        slots[i] = _slot(keys, _key(rules[0], scalars[i], cells, i, before))
    for _ in range(np.int64(steps)):
        for i in range(abaci):
            mask = out.results[i].mask
            best = _best(values, slots[i], mask)
            random[0] = random[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            chance = np.float64(random[0] >> np.uint64(11)) / 2.0**53
            first = np.int64(0)
            explore = chance < epsilon
            if explore:
                first = np.int64(chance / epsilon * ACTIONS)
            for k in range(ACTIONS):
                action = (first + k) % ACTIONS
                if mask[action] and (explore or values[slots[i], action] == best):
                    actions[i] = action
                    break
        kernel.step(rules, weights, pixels, world, program, out, actions, True)
        for i in range(abaci):
            result, action, slot = out.results[i], actions[i], slots[i]
            _note_digits(cells, i, before, action, result)
            slots[i] = _slot(keys, _key(rules[0], scalars[i], cells, i, before))
            # The value after the last step of a truncated episode is not known.
            if result.truncated:
                continue
            target = np.float64(result.reward)
            if not result.terminated:
                target += gamma * _best(values, slots[i], result.mask)
            visits[slot, action] += 1
            rate = max(least_rate, 1.0 / visits[slot, action])
            values[slot, action] += rate * (target - values[slot, action])


@compiled
def _answer(rules, world, out, before, keys, values, tie, actions):
    scalars, cells, _ = world
    for i in range(len(scalars)):
        slot = _slot(keys, _key(rules[0], scalars[i], cells, i, before))
        mask = out.results[i].mask
        best = _best(values, slot, mask)
        for action in range(ACTIONS):
            if mask[action] and values[slot, action] >= best - tie:
                actions[i] = action
                break


@compiled
def _note(world, out, actions, before):
    for i in range(len(before)):
        _note_digits(world.cells, i, before, actions[i], out.results[i])


class StateTable:
    """Values of states and actions, and the abaci that they are learned from."""

    def __init__(self, config: AbacusConfig, gamma: float, seed: int) -> None:
        self.gamma = gamma
        self.batch = AbacusBatch(config, ABACI)
        self.batch.reset(seed)
        self.before = self.batch.digits.copy()
        self.keys = np.full(SLOTS, EMPTY, np.int64)
        self.values = np.zeros((SLOTS, ACTIONS), np.float32)
        self.visits = np.zeros((SLOTS, ACTIONS), np.int32)
        self._random = np.array([2 * seed + 1], np.uint64)
        self.steps = 0

    @property
    def states(self) -> int:
        """Number of states met so far."""
        return int((self.keys != EMPTY).sum())

    def learn(self, steps: int, epsilon: float, least_rate: float = 0.02) -> None:
        """Learn from steps of the abaci; a part `epsilon` of the actions is random."""
        batch, each = self.batch, -(-steps // ABACI)
        if self.states > SLOTS // 2:
            raise ValueError(f"the table is full with {self.states:,} states: give fewer steps")
        _learn(
            *(batch.rules, batch.weights, batch.pixels, batch.world, batch.program, batch.out),
            *(self.before, self.keys, self.values, self.visits, self._random),
            (float(each), self.gamma, epsilon, least_rate),
        )
        self.steps += each * ABACI

    def answers(self, batch: AbacusBatch, before: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return the best actions in a batch; `before` are its digits at the last symbols."""
        actions = np.zeros(batch.num_envs, np.int64)
        _answer(
            *(batch.rules, batch.world, batch.out, before, self.keys, self.values, TIE, actions)
        )
        return actions

    @staticmethod
    def note(
        batch: AbacusBatch, actions: npt.NDArray[np.int64], before: npt.NDArray[np.uint8]
    ) -> None:
        """Update the digits at the last symbols after a step."""
        _note(batch.world, batch.out, actions, before)


#: Parts of the table's training; the part of random actions falls from one to the next.
PARTS = 10
EPSILON_START, EPSILON_END = 0.1, 0.01
#: Abaci and steps of each of a round of transitions, and rounds: in the first one the table acts,
#: then the policy.
ROUND_ABACI, ROUND_STEPS, ROUNDS = 256, 256, 2


def train_table(table: StateTable, steps: int, log: Log) -> None:
    """Train a table, with ever fewer random actions."""
    for part in range(PARTS):
        done = part / (PARTS - 1)
        table.learn(-(-steps // PARTS), EPSILON_START + (EPSILON_END - EPSILON_START) * done)
    log(f"table of {table.states:,} states learned from {table.steps:,} steps")


class TableCloning:
    """Clones what a table found into a policy, on the observations that the policy itself meets."""

    def __init__(
        self,
        policy: AbacusPolicy,
        table: StateTable,
        settings: CloningSettings,
        config: AbacusConfig,
        seed: int,
    ) -> None:
        self.policy, self.table, self.settings, self.seed = policy, table, settings, seed
        self.batch = AbacusBatch(config, ROUND_ABACI)
        self.batch.reset(seed + ABACI)
        self.before = self.batch.digits.copy()
        #: Histories, symbols, operations, actions and masks of all transitions.
        self.transitions: list[tuple[npt.NDArray[np.int32], ...]] = []

    def run(self, log: Log) -> CloningSet:
        """Alternate between collecting transitions and cloning them; return those cloned last."""
        for number in range(ROUNDS):
            for _ in range(ROUND_STEPS):
                self._step(number > 0)
            data = CloningSet.from_transitions(
                self.batch.config.base,
                *(np.concatenate(part) for part in zip(*self.transitions, strict=True)),
            )
            cloning = Cloning(self.policy, data, self.settings, self.seed, Logger(None, []))
            score = cloning.run()
            log(
                f"round {number}: {len(data):,} observations of the table, "
                f"{score.accuracy:.2%} cloned"
            )
        return data

    def _step(self, policy_acts: bool) -> None:
        batch = self.batch
        answers = self.table.answers(batch, self.before)
        masks = batch.masks.copy()
        self.transitions.append(
            (
                batch.history.copy(),
                batch.scalars["symbol"].astype(np.int32),
                batch.scalars["operation"].astype(np.int32),
                answers.astype(np.int32),
                np.packbits(masks, axis=1, bitorder="little")[:, 0].astype(np.int32),
            )
        )
        actions = answers
        if policy_acts:
            with torch.no_grad():
                log_probs = self.policy.log_probs(torch.from_numpy(batch.out.rows), masks)
            actions = sample(log_probs).numpy()
        batch.step(actions)
        self.table.note(batch, actions, self.before)
