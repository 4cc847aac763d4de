"""DAgger: it keeps the budget, labels are the expert's, the learner acts legally, and it learns."""

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
    DaggerResult,
    Labels,
    Plan,
    initial_policy,
    plan_rounds,
    run_dagger,
)
from pipelines.learning.settings import CloningSettings, Settings, replace_at
from pipelines.scoring.scores import Evaluator
from tests.pipelines.small_world import FRAMES, WORLD

SETTINGS = Settings(
    world=replace(Settings().world, base=2, columns=4, max_digits=2, frames=FRAMES),
    cloning=CloningSettings(updates=300),
    n_timesteps=0,
)
LABELS = 1000
FIRST_ROUND = 100
EVALUATOR = Evaluator(SETTINGS.world, 100, long_operations=10)


class Spy:
    """Records the actions taken, whether they were legal, and the expert's."""

    def __init__(self) -> None:
        self.taken: list[npt.NDArray[Any]] = []
        self.legal: list[npt.NDArray[np.bool_]] = []
        self.answers: list[npt.NDArray[np.int64]] = []

    def record(self, env: AbacusVecEnv, actions: npt.NDArray[Any]) -> None:
        self.taken.append(np.array(actions))
        self.legal.append(env.action_masks()[np.arange(env.num_envs), actions])
        self.answers.append(expert_actions(env.batch))

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.concatenate(getattr(self, name))


class Trained(NamedTuple):
    """A training in the small world, and what the spy recorded."""

    result: DaggerResult
    labels: Labels
    spy: Spy


@pytest.fixture(scope="module")
def trained() -> Trained:
    spy, made = Spy(), list[Labels]()
    step_async, new_labels = AbacusVecEnv.step_async, Labels.__init__

    def noted(env: AbacusVecEnv, actions: npt.NDArray[Any]) -> None:
        spy.record(env, actions)
        step_async(env, actions)

    def kept(labels: Labels, base: int) -> None:
        new_labels(labels, base)
        made.append(labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AbacusVecEnv, "step_async", noted)
        patch.setattr(Labels, "__init__", kept)
        result = run_dagger(SETTINGS, LABELS)
    return Trained(result, made[0], spy)


def codes(*parts: npt.NDArray[Any]) -> list[tuple[int, ...]]:
    """Observations that can be compared."""
    return list(map(tuple, np.column_stack(parts).tolist()))


@pytest.mark.parametrize("labels", [1, 29, 100, 301, 3000, 12_345, 100_000, 1_000_000])
def test_a_plan_keeps_the_budget(labels: int) -> None:
    plan = plan_rounds(labels)
    assert 0 <= labels - plan.labels < plan.abaci <= MOST_ABACI
    assert 1 <= len(plan.steps) <= ROUNDS
    assert min(plan.steps) >= 1


def test_no_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="labels=0 is not allowed: give an integer of 1 or more"):
        plan_rounds(0)


def test_every_action_of_the_expert_is_a_label(trained: Trained) -> None:
    asked = len(trained.spy.column("answers"))
    assert asked == len(trained.labels) == trained.result.labels == LABELS
    assert int(trained.labels.cloning_set().counts.sum()) == asked


def test_labels_are_the_actions_of_the_expert_and_the_learner_acts(trained: Trained) -> None:
    taken, answers = trained.spy.column("taken"), trained.spy.column("answers")
    assert np.array_equal(trained.labels.columns()["action"], answers)
    assert np.array_equal(taken[:FIRST_ROUND], answers[:FIRST_ROUND])
    assert (taken[FIRST_ROUND:] != answers[FIRST_ROUND:]).any()


def test_later_rounds_leave_the_path_of_the_expert(trained: Trained) -> None:
    columns = trained.labels.columns()
    complete = complete_set(WORLD.base, FRAMES)
    on_the_path = codes(complete.histories, complete.symbols, complete.operations)
    met = codes(columns["history"], columns["symbol"], columns["operation"])
    assert set(met[:FIRST_ROUND]) <= set(on_the_path)
    assert set(met[FIRST_ROUND:]) - set(on_the_path)


def test_labels_carry_their_action_masks(trained: Trained) -> None:
    train = trained.labels.cloning_set()
    assert train.masks[torch.arange(len(train)), train.actions].all()
    assert not train.masks.all()


def test_no_illegal_action_is_taken(trained: Trained) -> None:
    assert trained.spy.column("legal").all()


def test_the_learner_acts_in_more_steps_from_round_to_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A learner that only submits, with an expert that only moves down."""
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


def test_few_labels_solve_the_small_world(trained: Trained) -> None:
    evaluation = EVALUATOR(trained.result.policy, LABELS)
    assert EVALUATOR(initial_policy(SETTINGS), 0).accuracy < 0.2
    assert evaluation.accuracy > 0.8
    assert evaluation.illegal_actions == 0


def test_the_same_seed_gives_the_same_policy() -> None:
    settings = replace_at(SETTINGS, {"cloning.updates": 20})
    twins = [run_dagger(settings, 200).policy.state_dict() for _ in range(2)]
    other = run_dagger(replace(settings, seed=1), 200).policy.state_dict()
    for name, tensor in twins[0].items():
        assert torch.equal(tensor, twins[1][name])
    assert any(not torch.equal(tensor, other[name]) for name, tensor in twins[0].items())


def test_no_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run_dagger(replace_at(SETTINGS, {"cloning.updates": 10}), 60).labels == 60
    assert list(tmp_path.iterdir()) == []
