"""Action values of the whole abacus in a table, learned from the reward by Q-learning.

The table sees more than the observation, but no answer: the digits of the finger's column and of
the columns at the operand's digit, the finger and the signpost relative to that digit, symbol and
operation, and how many slides were made since the symbol appeared. It does not see the target, nor
what is wrong. These states are few and the table is compiled: it makes millions of steps a second,
and with values that start at 0, more than most actions are worth, it tries every action of a state
before it settles.

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
from abacus.kernel import ON_OPERATION_SYMBOL, SLIDE, SUBMIT
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
#: Distances beyond this count as this.
FARTHEST = 9
#: Slides since the symbol appeared that are told apart.
MOST_SLIDES = 9
#: Actions whose values differ by less are equally good: the first of them is taken.
TIE = 0.2
ACTIONS = len(Action)


@compiled_inline
def _near(distance):
    return min(max(distance, -FARTHEST), FARTHEST) + FARTHEST


@compiled_inline
def _digit(rules, cells, i, column):
    """Return the digit of a column, or the base beyond the last one."""
    if column >= rules.columns:
        return rules.base
    return np.int32(cells[i, column].digit)


@compiled_inline
def _key(rules, s, cells, i, slides):
    """Return the state of abacus i as a number."""
    base, distances = rules.base + 1, 2 * FARTHEST + 1
    home = max(s.digit_index, 0)
    key = np.int64(s.symbol) * 2 + s.operation
    key = key * base + s.finger_row
    key = key * distances + _near(s.signpost - home)
    key = key * distances + _near(s.finger_column - home)
    if s.digit_index == ON_OPERATION_SYMBOL:
        return key
    key = key * base + _digit(rules, cells, i, s.finger_column)
    key = key * (MOST_SLIDES + 1) + slides
    key = key * base + _digit(rules, cells, i, home + slides)
    return key * base + (_digit(rules, cells, i, home + slides - 1) if slides > 0 else 0)


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
def _slides_after(slides, action, result):
    if result.end != 0 or action == SUBMIT:
        return 0
    if action == SLIDE and not result.illegal:
        return min(slides + 1, MOST_SLIDES)
    return slides


@compiled
def _learn(rules, weights, pixels, world, program, out, slides, keys, values, visits, random, plan):
    steps, gamma, epsilon, least_rate = plan
    scalars, cells, _ = world
    abaci = len(scalars)
    actions = np.zeros(abaci, np.int64)
    slots = np.zeros(abaci, np.int64)
    for i in range(abaci):
        slots[i] = _slot(keys, _key(rules[0], scalars[i], cells, i, slides[i]))
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
            result, action, before = out.results[i], actions[i], slots[i]
            slides[i] = _slides_after(slides[i], action, result)
            slots[i] = _slot(keys, _key(rules[0], scalars[i], cells, i, slides[i]))
            # The value after the last step of a truncated episode is not known.
            if result.truncated:
                continue
            target = np.float64(result.reward)
            if not result.terminated:
                target += gamma * _best(values, slots[i], result.mask)
            visits[before, action] += 1
            rate = max(least_rate, 1.0 / visits[before, action])
            values[before, action] += rate * (target - values[before, action])


@compiled
def _answer(rules, world, out, slides, keys, values, tie, actions):
    scalars, cells, _ = world
    for i in range(len(scalars)):
        slot = _slot(keys, _key(rules[0], scalars[i], cells, i, slides[i]))
        mask = out.results[i].mask
        best = _best(values, slot, mask)
        for action in range(ACTIONS):
            if mask[action] and values[slot, action] >= best - tie:
                actions[i] = action
                break


@compiled
def _note(out, actions, slides):
    for i in range(len(slides)):
        slides[i] = _slides_after(slides[i], actions[i], out.results[i])


class StateTable:
    """Values of states and actions, and the abaci that they are learned from."""

    def __init__(self, config: AbacusConfig, gamma: float, seed: int) -> None:
        self.gamma = gamma
        self.batch = AbacusBatch(config, ABACI)
        self.batch.reset(seed)
        self.slides = np.zeros(ABACI, np.int64)
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
            *(self.slides, self.keys, self.values, self.visits, self._random),
            (float(each), self.gamma, epsilon, least_rate),
        )
        self.steps += each * ABACI

    def answers(self, batch: AbacusBatch, slides: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the best actions in a batch whose abaci made `slides` since the last symbol."""
        actions = np.zeros(batch.num_envs, np.int64)
        _answer(
            *(batch.rules, batch.world, batch.out, slides, self.keys, self.values, TIE, actions)
        )
        return actions

    @staticmethod
    def note(
        batch: AbacusBatch, actions: npt.NDArray[np.int64], slides: npt.NDArray[np.int64]
    ) -> None:
        """Update the numbers of slides after a step."""
        _note(batch.out, actions, slides)


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
        self.slides = np.zeros(ROUND_ABACI, np.int64)
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
        answers = self.table.answers(batch, self.slides)
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
        self.table.note(batch, actions, self.slides)
