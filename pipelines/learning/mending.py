"""Mending: practise what a policy gets wrong, by trial and error, until its own runs are exact.

No answer of the teacher is used: the environment, at the policy's reward level, is the only judge.
The greedy policy is a table from observations to actions, and is corrected as one
(`pipelines.learning.practice`). A search plays a pool of exercises: random ones, variations of
those that met rare observations, and all that failed before; what fails is corrected. When little
fails, the runs of the table are explored on few columns, and when nothing fails at every width, as
for the certificate by own runs. Failures that an exploration finds join the next pool.

At the end all actions of an exact table, in every situation that it can reach, are cloned into a
network that is wide enough to hold them: it is exact too. Of another table, the actions that it
takes in exercises are cloned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abacus.rules import AbacusConfig
from abacus.tasks import Task
from oracle.exact import SITUATIONS_LIMIT
from oracle.exact.concrete_runs import RULES, failing_runs, failing_situations, likely_failures
from oracle.exact.own_runs import (
    EXACT,
    NOT_EXACT,
    NOT_PROVEN,
    Asked,
    OwnRunsCertificate,
    certify_own_runs,
)
from oracle.exact.policy_exploration import explore_policy
from pipelines.learning.cloning import REPETITIONS, clone_every_action, copy_weights
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import Exercise, Exercises, hard_exercises, join
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.practice import NO_ROW, Practice, Visits
from pipelines.learning.settings import MendingSettings, NetworkName
from pipelines.learning.value_table import ValueTable, greedy_actions

#: New random exercises of a pool, and variations of those that met rare observations.
RANDOM_EXERCISES, VARIATIONS = 25_000, 25_000
#: An observation is rare if it was met this often, and this many exercises with one are varied.
RARE, MOST_RARE = 4, 60_000
#: Pools of a round, and how many may end without a failure and without a proof.
MOST_POOLS, MOST_UNPROVEN = 60, 3
#: If fewer runs of a pool fail, the table is explored.
FEW_FAILING = 20
#: How far from the view an exploration remembers hidden columns, in the attempts to prove.
MARGINS = 3
#: Where more than this part of the exercises fails, there is no mending.
MOST_FAILING = 0.9
#: Failures of an exploration, each in another observation, that join the pool.
MOST_FOUND = 1_000
#: Columns on which failing exercises are looked for in an exploration.
FEW_COLUMNS = 10
#: The network of a corrected policy, which holds every action of its table.
NETWORK: NetworkName = "wide"


@dataclass(frozen=True)
class MendingRound:
    """A round: what failed at its start, what was corrected, and the verdict at its end."""

    number: int
    #: Of the own runs: of the corrected table, in the last round of the network.
    verdict: str
    #: Situations of the last exploration; 0 if there was none.
    situations: int
    #: Random exercises that fail at the start of the round, and how many were tried.
    failed: int
    tried: int
    #: Environment steps of this round.
    steps: int = 0
    #: Pools of exercises that were played, failing exercises among them, and corrections.
    pools: int = 0
    practised: int = 0
    corrections: int = 0
    seconds: float = 0.0

    def describe(self) -> str:
        """Return the round in words."""
        line = f"{self.failed:,} of {self.tried:,} random exercises fail"
        if self.pools:
            line += f"; {self.corrections} corrections in {self.pools} pools of exercises"
        return f"{line}; own runs {self.verdict}"


class Mending:
    """Rounds of practice; `state` and `load_state` make them resumable between rounds.

    `policy` is the network to mend, and after `run` the mended one. If it is the clone of a table
    of values, that table is given too: it is what is corrected.
    """

    def __init__(
        self,
        policy: AbacusPolicy,
        world: AbacusConfig,
        settings: MendingSettings,
        seed: int,
        table: ValueTable | None = None,
    ) -> None:
        self.policy, self.world, self.settings, self.seed = policy, world, settings, seed
        #: Called with a line after each pool, of which a round plays many.
        self.on_pool: Callable[[str], None] = lambda line: None
        self.rounds: list[MendingRound] = []
        #: Exercises that once failed, and must not fail again.
        self.practised: list[Exercise] = []
        self._seen: set[Exercise] = set()
        #: What decides where nothing was corrected.
        self._base: AbacusPolicy | ValueTable = policy if table is None else table
        self.practice = Practice(self._base, world)
        #: Which observations the exercises have met, by their rows in the table.
        self.visits = Visits.none()

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
        """Whether there is no further round: exact, all rounds used, or hardly anything solved."""
        if not self.rounds:
            return False
        last = self.rounds[-1]
        hopeless = last.failed > MOST_FAILING * last.tried
        return self.exact or len(self.rounds) > self.settings.rounds or hopeless

    def run(self, after_round: Callable[[MendingRound], None] | None = None) -> bool:
        """Practise until the policy is exact or the rounds are used; return whether it is."""
        while not self.ended:
            done = self._round(last=len(self.rounds) == self.settings.rounds)
            self.rounds.append(done)
            if after_round:
                after_round(done)
        return self.exact

    def _round(self, *, last: bool) -> MendingRound:
        """Correct the table until it is exact; in the last round, or if it is, clone it."""
        started, steps = time.perf_counter(), self.practice.steps
        rng = np.random.default_rng([self.seed, len(self.rounds)])
        tried = hard_exercises(rng, self.settings.tried, self.world)
        failed = int((~self.practice.play(tried).solved).sum())
        score = MendingRound(len(self.rounds), NOT_EXACT, 0, failed, len(tried))
        if failed == 0 and not self.rounds and self._base is self.policy:
            certificate = self._certify(Asked(self.policy, self.world.base, self.world.frames))
            score = _with(score, certificate)
        # What solves next to nothing has nothing to start from.
        if score.verdict != EXACT and failed <= MOST_FAILING * len(tried):
            if not last:
                score = self._correct(score, rng)
            if last or score.verdict == EXACT:
                self.clone_table(REPETITIONS, exact=score.verdict == EXACT)
                network = Asked(self.policy, self.world.base, self.world.frames)
                score = _with(score, self._certify(network))
        seconds = round(time.perf_counter() - started, 1)
        return replace(score, steps=self.practice.steps - steps, seconds=seconds)

    def _correct(self, score: MendingRound, rng: np.random.Generator) -> MendingRound:
        """Correct what fails in pools of exercises, until the table is exact or nothing is found.

        As soon as few exercises of a pool fail, the runs of the table are explored on few columns:
        this finds failures that random exercises hardly ever meet, and they join the next pool.
        """
        before, corrections, pools, unproven = len(self.practised), 0, 0, 0
        rare, known = Exercises.of([]), Exercises.of(self.practised)
        while pools < MOST_POOLS and unproven < MOST_UNPROVEN:
            parts = [known, hard_exercises(rng, RANDOM_EXERCISES, self.world)]
            if len(rare):
                chosen = rare.take(rng.integers(0, len(rare), VARIATIONS))
                parts.append(chosen.varied(rng, self.world))
            pool = join(parts)
            self.visits = self.visits.grown(self.practice.table.capacity)
            failing, made = self.practice.correct(
                pool, rng, self.settings.exercises, self.visits, len(known)
            )
            pools, corrections = pools + 1, corrections + made
            rare = _last(join([rare, _met_rarely(pool, self.visits)]), MOST_RARE)
            new = pool.take(failing[failing >= len(known)]).copy()
            found = [new[row] for row in range(len(new))]
            self.on_pool(f"{corrections} corrections in {pools} pools, {len(failing)} kinds fail")
            if len(failing) < min(FEW_FAILING, self.settings.exercises):
                found += self._failures_on_few_columns()
                if not len(failing) and not found:
                    score, found = self._prove(score)
                    if score.verdict == EXACT:
                        break
                    unproven += not found
            found = [exercise for exercise in dict.fromkeys(found) if exercise not in self._seen]
            self._seen.update(found)
            self.practised += found
            known = join([known, Exercises.of(found)])
        practised = len(self.practised) - before
        return replace(score, pools=pools, practised=practised, corrections=corrections)

    def _failures_on_few_columns(self) -> list[Exercise]:
        """Explore the table on few columns, and return exercises that fail when they are played.

        Without wider abaci, and with the digits of what is next to the view, paths are mostly real.
        """
        world = self.practice.asked(), self.world.base, self.world.frames, self.level
        near = explore_policy(*world, margin=1, exact_columns=FEW_COLUMNS, limit=SITUATIONS_LIMIT)
        failing = failing_situations(near, MOST_FOUND)
        likely = [Exercise(task, width) for width, task in likely_failures(near, failing)]
        if not likely:
            return []
        solved = self.practice.play(Exercises.of(likely)).solved
        found = [likely[row] for row in np.flatnonzero(~solved).tolist()]
        self.on_pool(f"{len(failing)} kinds of failures explored, {len(found)} exercises fail")
        return found

    def _prove(self, score: MendingRound) -> tuple[MendingRound, list[Exercise]]:
        """Explore all runs of the table at every width; return the score, and what fails."""
        world = self.practice.asked(), self.world.base, self.world.frames, self.level
        for margin in range(MARGINS):
            explored = explore_policy(*world, margin=margin, limit=SITUATIONS_LIMIT)
            score = replace(score, situations=len(explored))
            if explored.incomplete is None and not len(failing_situations(explored, 1)):
                return replace(score, verdict=EXACT), []
        runs = failing_runs(*world, set(RULES), quick=True)
        found = [Exercise(Task.parse(run.calculation), run.columns) for run in runs]
        return replace(score, verdict=NOT_EXACT if found else NOT_PROVEN), found

    def _certify(self, asked: Asked) -> OwnRunsCertificate:
        world = self.world
        return certify_own_runs(asked, base=world.base, frames=world.frames, level=self.level)

    def clone_table(self, repetitions: int, *, exact: bool) -> int:
        """Clone the table's actions into a wide network; return how many of them it does not take.

        Of an exact table, they are those in all situations that it can reach. The exploration of
        another one also reaches what no run does, which would take up the network.
        """
        self.policy = self.new_network(NETWORK)
        if exact:
            data = reachable_actions(self.practice, self.level)
        else:
            data = greedy_actions(self.practice, np.flatnonzero(self.visits.counts))
        return clone_every_action(self.policy, data, self.on_pool, repetitions)

    def new_network(self, name: str) -> AbacusPolicy:
        """Return a network with new weights, seeded for this round."""
        seed = np.random.SeedSequence([self.seed, len(self.rounds)])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        return new_policy(name, self.world.base, self.world.frames)

    def state(self) -> dict[str, Any]:
        """Return everything that the rounds change, as plain values and tensors."""
        codes, scores = self.practice.table.changed()
        met = np.flatnonzero(self.visits.counts)
        return {
            "policy": _stored(self.policy),
            "base": None if isinstance(self._base, ValueTable) else _stored(self._base),
            "codes": torch.from_numpy(codes),
            "scores": torch.from_numpy(scores),
            "lossy": torch.from_numpy(self.practice.table.codes_of_pairs(self.practice.lossy)),
            "steps": self.practice.steps,
            "met": torch.from_numpy(self.practice.table.codes_of(met)),
            "counts": torch.from_numpy(self.visits.counts[met]),
            "practised": [str(exercise) for exercise in self.practised],
            "rounds": [asdict(each) for each in self.rounds],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.policy = self._restored(state["policy"])
        if not isinstance(self._base, ValueTable):
            self._base = self._restored(state["base"])
        self.practice = Practice(self._base, self.world)
        self.practice.table.restore(state["codes"].numpy(), state["scores"].numpy())
        self.practice.lossy = self.practice.table.pairs_of_codes(state["lossy"].numpy())
        self.practice.steps = state["steps"]
        met = state["met"].numpy()
        self.practice.table.scores_of(met)
        self.visits = Visits.none(self.practice.table.capacity)
        self.visits.counts[self.practice.table.known_rows(met)] = state["counts"].numpy()
        self.practised = [Exercise.parse(text) for text in state["practised"]]
        self._seen = set(self.practised)
        self.rounds = [MendingRound(**each) for each in state["rounds"]]

    def _restored(self, stored: dict[str, Any]) -> AbacusPolicy:
        policy = new_policy(stored["network"], self.world.base, self.world.frames)
        policy.load_state_dict(stored["weights"])
        return policy


def _stored(policy: AbacusPolicy) -> dict[str, Any]:
    return {"network": policy.network_name, "weights": copy_weights(policy)}


def _with(score: MendingRound, certificate: OwnRunsCertificate) -> MendingRound:
    return replace(score, verdict=certificate.verdict, situations=certificate.situations)


def reachable_actions(practice: Practice, level: str) -> CloningSet:
    """Return observations and actions of all situations that a table can reach.

    An observation comes once for each action that is taken in it: where an edge out of view makes
    the best action illegal, the mask lacks it and those between.
    """
    world, asked = practice.world, practice.asked()
    explored = explore_policy(asked, world.base, world.frames, level, limit=SITUATIONS_LIMIT)
    pairs = np.unique(
        np.column_stack([explored.observation_of, explored.actions.astype(np.int32)]), axis=0
    )
    observations, actions = explored.observations[pairs[:, 0]], pairs[:, 1]
    orders = asked(explored.observations)[pairs[:, 0]]
    better = np.cumsum(orders == actions[:, None], axis=1) == 0
    masks = ~practice.illegal_actions(observations[:, -4])
    row, place = np.nonzero(better)
    masks[row, orders[row, place]] = False
    return CloningSet.of_codes(world.base, observations[:, :-1], actions, masks)


def _met_rarely(pool: Exercises, visits: Visits) -> Exercises:
    """Return the exercises of a pool that were the last to meet a rare observation."""
    rare = (visits.exercises != NO_ROW) & (visits.counts <= RARE)
    return pool.take(np.unique(visits.exercises[rare])).copy()


def _last(exercises: Exercises, most: int) -> Exercises:
    rows: npt.NDArray[np.int64] = np.arange(max(len(exercises) - most, 0), len(exercises))
    return exercises.take(rows).copy()
