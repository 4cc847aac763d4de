"""Mending: practise what a policy gets wrong until its own runs are exact.

No answer of the teacher is used: the environment, at the policy's reward level, is the only judge.
A round tries the policy on random exercises. If hardly any fails, all its runs are explored on few
columns, which finds failures that random exercises hardly ever meet; if none is found there, it is
certified by its own runs at every width. A policy that is not exact practises
(`pipelines.learning.practice`) random exercises and everything that an exploration ever found, with
variations, and the result is cloned into new weights: a network that is trained long and with a
strong weight decay generalises what was practised to what was not. Near the end the weights are
kept, so that little else changes. The next round begins with the clone.
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

from abacus.rules import AbacusConfig
from abacus.tasks import Task
from oracle.exact import SITUATIONS_LIMIT
from oracle.exact.concrete_runs import failing_situations, likely_failures
from oracle.exact.own_runs import EXACT, NOT_EXACT, Asked, certify_own_runs
from oracle.exact.policy_exploration import explore_policy
from pipelines.learning.cloning import Cloning, copy_weights
from pipelines.learning.exercises import EXTREME, Exercise, Exercises, hard_exercises, join
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.practice import Practised, practise, solved
from pipelines.learning.settings import MendingSettings
from pipelines.scoring.players import GreedyTable

#: Random exercises that a policy is tried on, and how many of them may fail where it is explored.
TRIED, FEW_FAILING = 20_000, 400
#: Columns of random exercises that are practised: with the right edge in every phase of the
#: encoding, near to small numbers and far from them.
WIDTHS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
#: Variations of found exercises in a pool, in proportion to the random ones.
VARIATIONS = 0.5
#: Columns of an exploration that looks for failures, how far from the view it remembers hidden
#: columns, and after how many failing situations it stops.
FEW_COLUMNS, MARGIN, ENOUGH_FAILURES = 7, 1, 50_000
#: Failing situations of an exploration, of each kind, that are turned into exercises.
MOST_FOUND = 1_000
#: If fewer of the tried exercises fail, the next policy keeps the weights, and is trained at this
#: fraction of the learning rate: what is right already changes little.
KEPT_BELOW, KEPT_RATE = 20, 0.25


@dataclass(frozen=True)
class MendingRound:
    """A round: how the policy was judged at its start, and what was practised."""

    number: int
    #: Of the own runs of the policy at the start of the round.
    verdict: str
    #: Random exercises that fail, and how many were tried.
    failed: int
    tried: int
    #: Situations of the last exploration, 0 without one; exercises that it found to fail.
    situations: int = 0
    found: int = 0
    #: Of practice: states met, those from which the policy failed, observations that got another
    #: action. 0 in the last round.
    states: int = 0
    failing: int = 0
    changed: int = 0
    #: Environment steps, and seconds of the processor.
    steps: int = 0
    seconds: float = 0.0

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Order of policies by what is known of them: the larger, the better."""
        return self.verdict == EXACT, -self.failed, -self.found

    def describe(self) -> str:
        """Return the round in words."""
        line = f"{self.failed:,} of {self.tried:,} random exercises fail"
        if self.found:
            line += f", exploration finds {self.found:,} more"
        line += f"; own runs {self.verdict}"
        if self.states:
            line += f"; practised {self.states:,} states, {self.changed:,} observations changed"
        return line


class Mending:
    """Rounds of practice; `state` and `load_state` make them resumable between rounds.

    `policy` is what the next round starts with, `judged` what the last one started with, and `best`
    the best of all rounds.
    """

    def __init__(
        self, policy: AbacusPolicy, world: AbacusConfig, settings: MendingSettings, seed: int
    ) -> None:
        if not isinstance(world.reward, str):
            raise ValueError("mending needs a reward level, not modules: give --reward a level")
        self.policy, self.world, self.settings, self.seed = policy, world, settings, seed
        self.level: str = world.reward
        #: Called with a line about what a round does at the moment.
        self.on_progress: Callable[[str], None] = lambda line: None
        self.rounds: list[MendingRound] = []
        #: Exercises that an exploration found to fail; they are practised in every later round.
        self.practised: list[Exercise] = []
        self.judged = self.best = policy
        #: Observations of the last practice, which the next policy is asked about first.
        self._known: npt.NDArray[np.int32] = np.zeros((0, world.frames + 2), np.int32)

    @property
    def exact(self) -> bool:
        """Whether the best policy is proven exact by its own runs."""
        return bool(self.rounds) and self.rounds[-1].verdict == EXACT

    @property
    def ended(self) -> bool:
        """Whether there is no further round: the policy is exact, or all rounds are used."""
        return self.exact or len(self.rounds) > self.settings.rounds

    def run(self, after_round: Callable[[MendingRound], None] | None = None) -> bool:
        """Practise until the policy is exact or the rounds are used; return whether it is."""
        while not self.ended:
            done = self._round()
            self.rounds.append(done)
            if after_round:
                after_round(done)
        return self.exact

    def _round(self) -> MendingRound:
        """Judge the policy; if it is not exact and rounds are left, practise and clone."""
        started, number = time.process_time(), len(self.rounds)
        rng = np.random.default_rng([self.seed, number])
        self.judged = self.policy
        score = self._judge(number, rng)
        if all(score.rank > before.rank for before in self.rounds):
            self.best = self.policy
        if score.verdict != EXACT and number < self.settings.rounds:
            practised = self._practise(rng)
            score = replace(
                score,
                states=practised.states,
                failing=practised.failing,
                changed=practised.changed,
                steps=score.steps + practised.steps,
            )
            # A policy that never succeeds leaves nothing to clone; the next exercises are others.
            if len(practised.data):
                self._clone(practised, score)
        return replace(score, seconds=round(time.process_time() - started, 1))

    def _judge(self, number: int, rng: np.random.Generator) -> MendingRound:
        """Try random exercises; if few fail, explore; if nothing is found, certify."""
        table = GreedyTable(self.policy, self.world.base, self.world.frames)
        right, steps = solved(table, hard_exercises(rng, TRIED, self.world), self.world)
        failed = int((~right).sum())
        score = MendingRound(number, NOT_EXACT, failed, TRIED, steps=steps)
        self.on_progress(score.describe())
        if failed > FEW_FAILING:
            return score
        asked = Asked(self.policy, self.world.base, self.world.frames)
        found, situations = self._explore(asked, table)
        verdict: str = NOT_EXACT
        if not found:
            certificate = certify_own_runs(
                asked, base=self.world.base, frames=self.world.frames, level=self.level
            )
            verdict, situations = certificate.verdict, certificate.situations
            found = [
                Exercise(Task.parse(run.calculation), run.columns) for run in certificate.failures
            ]
        known = set(self.practised)
        self.practised += [each for each in dict.fromkeys(found) if each not in known]
        return replace(score, verdict=verdict, situations=situations, found=len(found))

    def _explore(self, asked: Asked, table: GreedyTable) -> tuple[list[Exercise], int]:
        """Return exercises on few columns that an exploration suggests and that do fail.

        The second value is the number of explored situations.
        """
        explored = explore_policy(
            *(asked, self.world.base, self.world.frames, self.level),
            margin=MARGIN,
            exact_columns=FEW_COLUMNS,
            limit=SITUATIONS_LIMIT,
            stop_at_failures=ENOUGH_FAILURES,
        )
        failing = failing_situations(explored, MOST_FOUND)
        likely = [Exercise(task, columns) for columns, task in likely_failures(explored, failing)]
        if not likely:
            return [], len(explored)
        right, _ = solved(table, Exercises.of(likely), self.world)
        return [likely[row] for row in np.flatnonzero(~right).tolist()], len(explored)

    def _practise(self, rng: np.random.Generator) -> Practised:
        world, count = self.world, self.settings.exercises
        parts = [
            Exercises.draw(rng, count // 2, world, WIDTHS, EXTREME),
            Exercises.draw(rng, count - count // 2, world, WIDTHS),
        ]
        if self.practised:
            found = Exercises.of(self.practised)
            chosen = found.take(rng.integers(0, len(found), int(VARIATIONS * count)))
            parts += [found, chosen.varied(rng, world)]
        table = GreedyTable(self.policy, world.base, world.frames)
        table.learn(self._known)
        practised = practise(table, join(parts), world)
        self._known = np.unique(practised.codes, axis=0)
        self.on_progress(f"{practised.failing:,} of {practised.states:,} practised states fail")
        return practised

    def _clone(self, practised: Practised, score: MendingRound) -> None:
        """Clone what was practised into new weights, or near the end into the present ones."""
        seed = int(np.random.SeedSequence([self.seed, score.number]).generate_state(1)[0])
        torch.manual_seed(seed)
        policy, settings = self._new_policy(), self.settings.cloning
        if score.failed < KEPT_BELOW:
            policy.load_state_dict(self.policy.state_dict())
            settings = replace(settings, learning_rate=KEPT_RATE * settings.learning_rate)
        cloning = Cloning(policy, practised.data, settings, seed, Logger(None, []))
        cloning.run(
            lambda done: self.on_progress(
                f"cloning: {done.update:,} of {settings.updates:,} updates"
            )
        )
        self.policy = policy

    def _new_policy(self) -> AbacusPolicy:
        return new_policy(self.policy.network_name, self.world.base, self.world.frames)

    def state(self) -> dict[str, Any]:
        """Return everything that the rounds change, as plain values and tensors."""
        return {
            "policy": copy_weights(self.policy),
            "best": copy_weights(self.best),
            "known": torch.from_numpy(self._known),
            "practised": [str(exercise) for exercise in self.practised],
            "rounds": [asdict(each) for each in self.rounds],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.policy = self._restored(state["policy"])
        self.best = self._restored(state["best"])
        self._known = state["known"].numpy()
        self.practised = [Exercise.parse(text) for text in state["practised"]]
        self.rounds = [MendingRound(**each) for each in state["rounds"]]

    def _restored(self, weights: dict[str, torch.Tensor]) -> AbacusPolicy:
        with torch.random.fork_rng(devices=[]):
            policy = self._new_policy()
        policy.load_state_dict(weights)
        return policy
