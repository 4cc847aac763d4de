"""DAgger: the budget is kept, labels are the teacher's, the learner acts masked, and it learns."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch

from abacus.rules import Action
from abacus.sb3 import AbacusVecEnv
from oracle.exact.complete_set import complete_set
from oracle.expert import expert_actions
from pipelines.learning.dagger import (
    MOST_ABACI,
    ROUNDS,
    Dagger,
    DaggerOutcome,
    Labels,
    Plan,
    fresh_policy,
    planned,
    run_dagger,
)
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.settings import Settings
from pipelines.scoring.scores import Evaluation, Evaluator
from tests.pipelines.small_world import FRAMES, WORLD

SETTINGS = Settings(
    base=WORLD.base,
    columns=WORLD.columns,
    max_digits=WORLD.max_digits,
    frames=FRAMES,
    epochs=30,
    n_timesteps=0,
).settled()
LABELS = 1000
FIRST_ROUND = 100
EVALUATOR = Evaluator(SETTINGS.world(), 100, long_operations=10)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Watch:
    """What happens on the abaci: what was taken, what was legal, what the teacher would do."""

    def __init__(self) -> None:
        self.taken: list[npt.NDArray[Any]] = []
        self.legal: list[npt.NDArray[np.bool_]] = []
        self.answers: list[npt.NDArray[np.int64]] = []

    def note(self, env: AbacusVecEnv, actions: npt.NDArray[Any]) -> None:
        self.taken.append(np.array(actions))
        self.legal.append(env.action_masks()[np.arange(env.num_envs), actions])
        self.answers.append(expert_actions(env.batch))

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.concatenate(getattr(self, name))


class Lesson(NamedTuple):
    """A run on the small world, and what was seen of it from outside."""

    outcome: DaggerOutcome
    labels: Labels
    watch: Watch


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    watch, made = Watch(), list[Labels]()
    step_async, new_labels = AbacusVecEnv.step_async, Labels.__init__

    def noted(env: AbacusVecEnv, actions: npt.NDArray[Any]) -> None:
        watch.note(env, actions)
        step_async(env, actions)

    def kept(labels: Labels, base: int) -> None:
        new_labels(labels, base)
        made.append(labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AbacusVecEnv, "step_async", noted)
        patch.setattr(Labels, "__init__", kept)
        outcome = run_dagger(SETTINGS, LABELS, EVALUATOR)
    return Lesson(outcome, made[0], watch)


def codes(*parts: npt.NDArray[Any]) -> list[tuple[int, ...]]:
    """Observations that can be compared."""
    return list(map(tuple, np.column_stack(parts).tolist()))


@pytest.mark.parametrize("labels", [1, 29, 100, 301, 3000, 12_345, 100_000, 1_000_000])
def test_a_plan_keeps_the_budget(labels: int) -> None:
    plan = planned(labels)
    assert 0 <= labels - plan.labels < plan.abaci <= MOST_ABACI
    assert 1 <= len(plan.steps) <= ROUNDS
    assert min(plan.steps) >= 1


def test_no_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="labels=0 is not allowed: give 1 or more"):
        planned(0)


def test_every_answer_of_the_teacher_is_a_label_and_counted(lesson: Lesson) -> None:
    asked = len(lesson.watch.column("answers"))
    assert asked == len(lesson.labels) == lesson.outcome.labels == LABELS
    train, held_out = lesson.labels.sets()
    assert held_out is not None
    assert int(train.counts.sum() + held_out.counts.sum()) == asked


def test_labels_are_what_the_teacher_does_and_the_learner_acts(lesson: Lesson) -> None:
    taken, answers = lesson.watch.column("taken"), lesson.watch.column("answers")
    assert np.array_equal(lesson.labels.columns()["action"], answers)
    assert np.array_equal(taken[:FIRST_ROUND], answers[:FIRST_ROUND])
    assert (taken[FIRST_ROUND:] != answers[FIRST_ROUND:]).any()


def test_later_rounds_hold_what_no_demonstration_shows(lesson: Lesson) -> None:
    columns = lesson.labels.columns()
    complete = complete_set(WORLD.base, FRAMES)
    on_the_path = codes(complete.histories, complete.symbols, complete.operations)
    met = codes(columns["history"], columns["symbol"], columns["operation"])
    assert set(met[:FIRST_ROUND]) <= set(on_the_path)
    assert set(met[FIRST_ROUND:]) - set(on_the_path)


def test_masks_go_with_the_labels(lesson: Lesson) -> None:
    train, _ = lesson.labels.sets()
    assert train.masks[torch.arange(len(train)), train.actions].all()
    assert not train.masks.all()


def test_no_illegal_action_is_taken(lesson: Lesson) -> None:
    assert lesson.watch.column("legal").all()


def test_the_learner_acts_in_more_steps_from_round_to_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A learner that only submits, and is told apart by it while the teacher is said to move."""
    dagger = Dagger(SETTINGS, Plan(abaci=20, steps=(50,) * 5))
    submits = np.full(20, Action.SUBMIT)
    monkeypatch.setattr(dagger, "_learner_actions", lambda rows: submits[: len(rows)])
    parts = []
    for dagger.round_num in range(5):
        collector = dagger.create_trajectory_collector()
        collector.seed(0)
        collector.reset()
        taken = []
        for _ in range(50):
            collector.step_async(np.full(20, Action.DOWN))
            taken.append(dagger.env.abaci._actions)
        parts.append(float((np.array(taken) == Action.SUBMIT).mean()))
    assert parts == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8], abs=0.05)


def test_few_labels_solve_the_small_world(lesson: Lesson) -> None:
    nothing_known = EVALUATOR(fresh_policy(SETTINGS), 0)
    last = lesson.outcome.rounds[-1].evaluation
    assert last is not None
    assert nothing_known.accuracy < 0.2
    assert last.accuracy > 0.8
    assert last.illegal_actions == 0
    assert last == EVALUATOR(lesson.outcome.policy, lesson.outcome.labels)


def test_rounds_are_evaluated_by_their_labels(lesson: Lesson) -> None:
    rounds = lesson.outcome.rounds
    assert [one.labels for one in rounds] == [100 * k for k in range(1, 11)]
    for one in rounds:
        assert one.evaluation is not None
        assert one.evaluation.step == one.labels
        assert one.observations < one.labels


def test_the_same_seed_gives_the_same_policy() -> None:
    settings = replace(SETTINGS, epochs=2)
    twins = [run_dagger(settings, 200).policy.state_dict() for _ in range(2)]
    other = run_dagger(replace(settings, seed=1), 200).policy.state_dict()
    for name, tensor in twins[0].items():
        assert torch.equal(tensor, twins[1][name])
    assert any(not torch.equal(tensor, other[name]) for name, tensor in twins[0].items())


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked: list[int] = []

    def evaluate(policy: AbacusPolicy, step: int) -> Evaluation:
        asked.append(step)
        return Evaluation(step, 0.0, 0, 0, {}, None, 1.0)

    outcome = run_dagger(replace(SETTINGS, epochs=1), 60, evaluate)
    assert asked == [one.labels for one in outcome.rounds] == [30, 60]
    assert list(tmp_path.iterdir()) == []
