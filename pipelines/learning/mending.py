"""Mending: practise what a policy gets wrong until its own runs are exact.

No answer of the teacher is used: the environment, at the policy's reward level, is the only judge.
A round tries the policy on random exercises. If hardly any fails, all its runs are explored on few
columns, which finds failures that random exercises hardly ever meet; if none is found there, it is
certified by its own runs at every width. Of a policy that only adds, or only subtracts, random
exercises are all that is asked. A policy that is not exact practises
(`pipelines.learning.practice`) random exercises and everything that ever failed when little did,
with variations. What follows depends on whether practice found a way out of every failure:

- If it did not, the result is cloned into new weights. A network that is trained long and with a
  strong weight decay generalises what was practised to what was not, and other accidents happen in
  what practice left open.
- If it did, the table of the policy's actions is explored and practised again, until exploration
  finds nothing more. Nearly all observations that the table can meet on these columns are then
  known, hardly anything is left to generalise, and the policy learns the whole table with the
  weights that it has and without weight decay: what was right stays right.

The next round begins with the clone. A policy in which nothing is found to fail and of which
nothing is proven has an algorithm that the certificate cannot follow. New weights would clone the
same algorithm, so a policy that began with a plan begins again with another one. For any other
policy mending ends there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger

from abacus.observation import visibly_illegal_actions
from abacus.rules import AbacusConfig
from abacus.tasks import Task
from oracle.exact import SITUATIONS_LIMIT
from oracle.exact.concrete_runs import (
    FailingRun,
    failing_situations,
    likely_failures,
    resumed_failures,
)
from oracle.exact.own_runs import EXACT, NOT_EXACT, NOT_PROVEN, certify_own_runs
from oracle.exact.policy_exploration import PolicyExploration, explore_policy
from pipelines.learning.cloning import Cloning, copy_weights
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import EXTREME, Exercise, Exercises, hard_exercises, join
from pipelines.learning.planning import planned_actions
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.practice import Practised, practise, solved
from pipelines.learning.settings import MendingPart, MendingSettings, PlanningSettings
from pipelines.scoring.players import GreedyTable, best_actions

#: Random exercises that a policy is tried on, and how many of them may fail where it is explored.
TRIED, FEW_FAILING = 20_000, 400
#: Columns of random exercises that are practised: with the right edge in every phase of the
#: encoding, near to small numbers and far from them.
WIDTHS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
#: The part of the digits that repeat the one before, in a third of them: these make carries over
#: many columns.
REPEATED = 0.7
#: Variations of found exercises in a pool, in proportion to the random ones.
VARIATIONS = 0.5
#: Explorations that look for failures, one after another until there is one: their columns, and how
#: far from the view they remember hidden ones. The fewer are forgotten, the fewer situations are of
#: no abacus, and the more there are: each takes two to eight seconds.
EXPLORATIONS = ((5, 3), (7, 1), (10, 0), (13, 0))
#: Failing situations after which an exploration stops.
ENOUGH_FAILURES = 50_000
#: Failing situations of an exploration, of each kind, that are turned into exercises.
MOST_FOUND = 1_000
#: Where none of these fails: situations of each kind of which the last operations are tried after
#: others, and how often.
RESUMED, RESUMED_TRIES = 25, 100
#: Most explorations of a table that is corrected, and its random exercises in proportion to those
#: of a round.
CORRECTIONS, CORRECTED = 30, 0.2
#: A policy that keeps its weights learns the whole table at this fraction of the learning rate and
#: of the updates.
KEPT_RATE, KEPT_UPDATES = 0.1, 0.5


@dataclass(frozen=True)
class MendingRound:
    """A round: how the policy was judged at its start, and what was practised."""

    number: int
    #: Of the own runs of the policy at the start of the round.
    verdict: str
    #: Random exercises that fail, and how many were tried.
    failed: int
    tried: int
    #: Situations of the last exploration, 0 without one; other exercises that fail, found by
    #: exploration, among those that failed before, or by the certificate.
    situations: int = 0
    found: int = 0
    #: Of practice: states met, those from which the policy failed, observations that got another
    #: action. 0 in the last round, and before another plan.
    states: int = 0
    failing: int = 0
    changed: int = 0
    #: Explorations of the table that the policy then learned whole; 0 if something was still found
    #: to fail, and what was practised was cloned instead.
    corrections: int = 0
    #: Whether the next policy clones another plan, because nothing failed and nothing was proven.
    planned_again: bool = False
    #: Environment steps of practice, random exercises, another plan and the last exploration,
    #: without earlier explorations and without exercises that are tried because something suggests
    #: that they fail; seconds of the processor.
    steps: int = 0
    seconds: float = 0.0

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Order of policies by what is known of them: the larger, the better."""
        return self.verdict == EXACT, -self.failed, -self.found

    @property
    def next_policy(self) -> str:
        """What the next policy was made of."""
        if self.planned_again:
            return "another plan"
        if self.corrections:
            return "the whole table"
        return "what was practised" if self.states else "none"

    def describe(self) -> str:
        """Return the round in words."""
        line = f"{self.failed:,} of {self.tried:,} random exercises fail"
        if self.found:
            line += f", {self.found:,} others found to fail"
        line += f"; own runs {self.verdict}"
        if self.states:
            line += f"; practised {self.states:,} states, {self.changed:,} observations changed"
        if self.corrections:
            line += f", nothing found after {self.corrections:,} explorations"
        if self.planned_again:
            line += "; begins again with another plan"
        return line


class Mending:
    """Rounds of practice; `state` and `load_state` make them resumable between rounds.

    `policy` is what the next round starts with, `judged` what the last one started with, and `best`
    the best of all rounds. `planning` is how the first policy was planned, if it was.
    """

    def __init__(
        self,
        policy: AbacusPolicy,
        world: AbacusConfig,
        settings: MendingSettings,
        seed: int,
        planning: PlanningSettings | None = None,
    ) -> None:
        if not isinstance(world.reward, str):
            raise ValueError("mending needs a reward level, not modules: give --reward a level")
        self.policy, self.world, self.settings, self.seed = policy, world, settings, seed
        self.planning = planning
        self.level: str = world.reward
        #: Called with a line about what a round does at the moment.
        self.on_progress: Callable[[str], None] = lambda line: None
        self.rounds: list[MendingRound] = []
        #: Exercises that failed when few did, and those that an exploration found to fail; they are
        #: practised in every later round.
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
        """Whether there is no further round: nothing can be found to fail, or all are used."""
        used = len(self.rounds) > self.settings.rounds
        return used or bool(self.rounds and self._is_enough(self.rounds[-1]))

    def _is_enough(self, score: MendingRound) -> bool:
        """Whether nothing is left to do: the policy is proven exact, or nothing fails.

        The latter counts where no proof can be had: in a world of one operation, or if the
        certificate cannot follow the policy and there is no other plan.
        """
        if score.verdict == EXACT:
            return True
        unproven = score.verdict == NOT_PROVEN and not self._plans_again
        return not score.failed and (unproven or not self._certifiable)

    @property
    def _plans_again(self) -> bool:
        return self.planning is not None and not self._is_left_out("another-plan")

    @property
    def _certifiable(self) -> bool:
        """Whether own runs can be explored: those of a policy that both adds and subtracts."""
        return self.world.operations == "both"

    def run(self, after_round: Callable[[MendingRound], None] | None = None) -> bool:
        """Practise until nothing can be found to fail or the rounds are used.

        Return whether the best policy is proven exact.
        """
        while not self.ended:
            done = self._round()
            self.rounds.append(done)
            if after_round:
                after_round(done)
        return self.exact

    def _round(self) -> MendingRound:
        """Judge the policy; if that is not enough and rounds are left, make the next one."""
        started, number = time.process_time(), len(self.rounds)
        rng = np.random.default_rng([self.seed, number])
        self.judged = self.policy
        score = self._judge(number, rng)
        if all(score.rank > before.rank for before in self.rounds):
            self.best = self.policy
        if not self._is_enough(score) and number < self.settings.rounds:
            score = self._improve(score, rng)
        return replace(score, seconds=round(time.process_time() - started, 1))

    def _judge(self, number: int, rng: np.random.Generator) -> MendingRound:
        """Try random exercises; if few fail, explore; if nothing is found, certify.

        Before the certificate, what failed in earlier rounds is tried again.
        """
        table = self._table()
        tried = hard_exercises(rng, TRIED, self.world)
        right, steps = solved(table, tried, self.world)
        failed = int((~right).sum())
        score = MendingRound(number, NOT_EXACT, failed, TRIED, steps=steps)
        self.on_progress(score.describe())
        if self._is_enough(score):
            return replace(score, verdict=NOT_PROVEN)
        if failed > FEW_FAILING:
            return score
        self._remember([tried[row] for row in np.flatnonzero(~right).tolist()])
        if not self._certifiable:
            return score
        explores, found = not self._is_left_out("exploration"), list[Exercise]()
        if explores:
            found, explored = self._explore(table)
            score = replace(score, situations=len(explored), steps=steps + len(explored))
        if not (failed or found):
            # What ever failed is practised, and may still fail.
            found = self._failing_of(table, ((each.columns, each.task) for each in self.practised))
        if not found and (explores or not failed):
            score, found = self._certified(score)
        self._remember(found)
        return replace(score, found=len(found))

    def _certified(self, score: MendingRound) -> tuple[MendingRound, list[Exercise]]:
        """Certify the policy; return the round with the verdict, and exercises that fail."""
        certificate = certify_own_runs(
            self.policy, base=self.world.base, frames=self.world.frames, level=self.level
        )
        judged = replace(
            score,
            verdict=certificate.verdict,
            situations=certificate.situations,
            steps=score.steps + certificate.situations,
        )
        return judged, _exercises_of(certificate.failures)

    def _is_left_out(self, part: MendingPart) -> bool:
        return part in self.settings.left_out

    def _table(self) -> GreedyTable:
        return GreedyTable(self.policy, self.world.base, self.world.frames)

    def _explore(self, table: GreedyTable) -> tuple[list[Exercise], PolicyExploration]:
        """Return exercises that explorations on few columns suggest and that do fail."""
        world = self.world
        for columns, margin in EXPLORATIONS:
            explored = explore_policy(
                table.orders_of,
                world.base,
                world.frames,
                self.level,
                margin=margin,
                keep_runs=True,
                exact_columns=columns,
                limit=SITUATIONS_LIMIT,
                stop_at_failures=ENOUGH_FAILURES,
            )
            failing = failing_situations(explored, MOST_FOUND)
            found = self._failing_of(table, likely_failures(explored, failing))
            if not found:
                rng = np.random.default_rng(self.seed)
                failing = failing_situations(explored, RESUMED)
                resumed = resumed_failures(explored, failing, rng, RESUMED_TRIES)
                found = self._failing_of(table, resumed)
            if found:
                break
        return found, explored

    def _failing_of(self, table: GreedyTable, tasks: Iterable[tuple[int, Task]]) -> list[Exercise]:
        """Return the tasks, given with their columns, that the table fails in."""
        exercises = list(dict.fromkeys(Exercise(task, columns) for columns, task in tasks))
        if not exercises:
            return []
        right, _ = solved(table, Exercises.of(exercises), self.world)
        return [exercises[row] for row in np.flatnonzero(~right).tolist()]

    def _remember(self, found: list[Exercise]) -> None:
        """Practise exercises from now on."""
        known = set(self.practised)
        self.practised += [each for each in dict.fromkeys(found) if each not in known]

    def _improve(self, score: MendingRound, rng: np.random.Generator) -> MendingRound:
        """Practise, and make the result the next policy; without a failure, plan again."""
        if score.verdict == NOT_PROVEN and not score.failed and self.planning is not None:
            return self._plan_again(score, self.planning)
        table = self._table()
        table.learn(self._known)
        practised = self._practise(table, self._exercises(rng, self.settings.exercises))
        self.on_progress(f"{practised.failing:,} of {practised.states:,} practised states fail")
        score = replace(
            score,
            states=practised.states,
            failing=practised.failing,
            changed=practised.changed,
            steps=score.steps + practised.steps,
        )
        codes, data = practised.codes, practised.data
        corrected = not (self._is_left_out("exploration") or self._is_left_out("whole-table"))
        if corrected and score.situations and not practised.left:
            score, whole = self._correct(score, table, practised, rng)
            if whole is not None:
                codes, data = whole
        # A policy that never succeeds leaves nothing to clone; the next exercises are others.
        if len(data):
            is_whole = score.corrections > 0
            keep_weights = is_whole or self._is_left_out("new-weights")
            self._clone(data, score.number, keep_weights, is_whole)
        self._known = np.unique(codes, axis=0)
        return score

    def _plan_again(self, score: MendingRound, planning: PlanningSettings) -> MendingRound:
        """Plan other exercises, and clone them into new weights with the settings of mending."""

        def on_progress(planned: int, steps: int) -> None:
            self.on_progress(f"another plan: {planned:,} of {planning.exercises:,} exercises")

        data, steps = planned_actions(
            self.world, planning, self._seed_of(score.number), on_progress
        )
        self._clone(data, score.number, keep_weights=False)
        self._known = self._known[:0]
        return replace(score, planned_again=True, steps=score.steps + steps)

    def _seed_of(self, number: int) -> int:
        """Return the seed of a round's weights, of its cloning and of another plan."""
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])

    def _practise(self, table: GreedyTable, exercises: Exercises) -> Practised:
        return practise(table, exercises, self.world, self.settings.left_out)

    def _exercises(self, rng: np.random.Generator, count: int) -> Exercises:
        """Draw random exercises; add those that were found to fail, and variations of them."""
        world, third = self.world, count // 3
        parts = [
            Exercises.draw(rng, third, world, WIDTHS, EXTREME),
            Exercises.draw(rng, third, world, WIDTHS, EXTREME, REPEATED),
            Exercises.draw(rng, count - 2 * third, world, WIDTHS),
        ]
        if self.practised:
            found = Exercises.of(self.practised)
            chosen = found.take(rng.integers(0, len(found), int(VARIATIONS * count)))
            parts += [found, chosen.varied(rng, world)]
        return join(parts)

    def _correct(
        self,
        score: MendingRound,
        table: GreedyTable,
        practised: Practised,
        rng: np.random.Generator,
    ) -> tuple[MendingRound, tuple[npt.NDArray[np.int32], CloningSet] | None]:
        """Explore a table and practise what fails, until exploration finds nothing.

        Return what the table does in all observations that it can meet; None if something is found
        to the end. What practice leaves may be mended with the exercises of the next exploration.
        """
        parts, count = [practised], max(1, int(CORRECTED * self.settings.exercises))
        for number in range(1, CORRECTIONS + 1):
            found, explored = self._explore(table)
            self._remember(found)
            self.on_progress(f"exploration {number} of the table finds {len(found):,} failures")
            score = replace(score, steps=score.steps + len(explored))
            if not found:
                return replace(score, corrections=number), self._whole(table, parts, explored)
            practised = self._practise(table, self._exercises(rng, count))
            parts.append(practised)
            score = replace(
                score,
                changed=score.changed + practised.changed,
                steps=score.steps + practised.steps,
            )
        return score, None

    def _whole(
        self, table: GreedyTable, parts: list[Practised], explored: PolicyExploration
    ) -> tuple[npt.NDArray[np.int32], CloningSet]:
        """Return what a table does in all observations that were practised or explored.

        A failure that no run shows is no reason to learn the action that leads to it.
        """
        failing = np.zeros(len(explored.observations), np.bool_)
        failing[explored.observation_of[explored.failures > 0]] = True
        met = explored.observations[~failing, :-1]
        visible = ~visibly_illegal_actions(self.world.base)[met[:, -3]]
        keys = [np.column_stack([met, visible])]
        keys += [np.column_stack([part.codes, part.data.masks.numpy()]) for part in parts]
        distinct = np.unique(np.concatenate(keys), axis=0)
        width = self.world.frames + 2
        codes, masks = distinct[:, :width].astype(np.int32), distinct[:, width:].astype(np.bool_)
        scores = table.scores_at(table.known_rows(codes))
        actions = best_actions(np.where(masks, scores, -np.inf))
        return codes, CloningSet.of_codes(self.world.base, codes, actions, masks)

    def _clone(
        self, data: CloningSet, number: int, keep_weights: bool, whole: bool = False
    ) -> None:
        """Clone into new weights or into the present ones; learn a whole table at a low rate."""
        seed = self._seed_of(number)
        torch.manual_seed(seed)
        policy, settings = self._new_policy(), self.settings.cloning
        if keep_weights:
            policy.load_state_dict(self.policy.state_dict())
        if whole:
            settings = replace(
                settings,
                learning_rate=KEPT_RATE * settings.learning_rate,
                updates=max(1, int(KEPT_UPDATES * settings.updates)),
                weight_decay=0.0,
            )
        cloning = Cloning(policy, data, settings, seed, Logger(None, []))
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


def _exercises_of(runs: Sequence[FailingRun]) -> list[Exercise]:
    return [Exercise(Task.parse(run.calculation), run.columns) for run in runs]
