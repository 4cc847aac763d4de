"""Cells: a run from a kept clone equals a whole run, and scores are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipelines.experiments import cells
from pipelines.experiments.arms import ARMS
from pipelines.experiments.cells import Scorer, WorkFolder, run_cell, settings_of
from pipelines.experiments.clones import branch, cloned_run
from pipelines.experiments.grid import Grid
from pipelines.experiments.records import Cell, Record
from pipelines.learning import run
from pipelines.learning.mending import Mending
from pipelines.learning.policy_files import load_policy
from pipelines.learning.run import Training
from pipelines.learning.run_folder import RunFolder
from pipelines.learning.settings import PlanningSettings, Settings
from tests.pipelines.small_world import shorten_mending, shorten_planning

SETTINGS: dict[str, Any] = {
    "eval_freq": 1000,
    "eval_episodes": 20,
    "n_envs": 16,
    "n_steps": 32,
    "cloning_updates": 20,
    "critic_warmup": 512,
}


def one_cell(arm: str, **block: Any) -> Cell:
    """The only cell of a grid."""
    steps = {"steps": 2000} if ARMS[arm].steps else {}
    more = {"teach_answers": 500, "teach_counterexamples": 5} if arm == "teaching" else {}
    settings = SETTINGS | more
    comparison = {"seeds": 1, **steps, "settings": settings, "blocks": [{"arm": arm, **block}]}
    grid = {"format": "abacus-study-grid", "version": 1, "comparisons": {"some": comparison}}
    (cell,) = Grid.from_dict(grid).cells
    return cell


CLONING = one_cell("cloning", demonstrations=[20])
FINE_TUNING = one_cell("ppo", demonstrations=[20], reward=["no_of"])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> WorkFolder:
    return WorkFolder(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def fine_tuned(work: WorkFolder) -> Record:
    return run_cell(FINE_TUNING, work)


def same_weights(one: Path, other: Path) -> bool:
    weights = [load_policy(path).state_dict() for path in (one, other)]
    return all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_run_from_a_kept_clone_equals_a_whole_run(work: WorkFolder, tmp_path: Path) -> None:
    settings = settings_of(FINE_TUNING)
    straight = RunFolder.create(tmp_path / "straight", settings, ["test"])
    whole = Training(straight, lambda line: None).run()
    branched = branch(settings, cloned_run(settings, work.clones), tmp_path / "branched")
    resumed = Training(branched, lambda line: None).run()
    assert resumed.evaluations == whole.evaluations
    assert len(whole.evaluations) >= 3
    for name in ("clone", "best", "last"):
        assert same_weights(straight.path / name, branched.path / name)
    assert not same_weights(straight.path / "clone", straight.path / "last")


def test_cells_with_the_same_clone_share_it(work: WorkFolder) -> None:
    path = cloned_run(settings_of(FINE_TUNING), work.clones)
    made = (path / "checkpoint.pt").stat().st_mtime_ns
    other = {"reward": "dense", "gamma": 0.5, "n_timesteps": 7}
    dense = settings_of(FINE_TUNING).with_flags(other)
    assert cloned_run(dense, work.clones) == path
    assert cloned_run(settings_of(CLONING), work.clones) == path
    assert (path / "checkpoint.pt").stat().st_mtime_ns == made


@pytest.mark.parametrize("changed", [{"seed": 1}, {"demo_operations": 21}, {"cloning_updates": 30}])
def test_other_settings_of_cloning_make_another_clone(
    changed: dict[str, Any], work: WorkFolder
) -> None:
    other = settings_of(FINE_TUNING).with_flags(changed)
    assert cloned_run(other, work.clones) != cloned_run(settings_of(FINE_TUNING), work.clones)


def test_the_record_of_a_fine_tuned_clone(fine_tuned: Record, work: WorkFolder) -> None:
    assert fine_tuned.cell == FINE_TUNING
    assert fine_tuned.clone == run_cell(CLONING, work).last
    assert fine_tuned.curve[0].step == 0
    assert fine_tuned.curve[-1].step >= FINE_TUNING.steps
    assert fine_tuned.curve[-1].seconds == round(fine_tuned.seconds["ppo_processor"], 1) > 0
    assert 400 < fine_tuned.labels < 900
    assert not fine_tuned.final.exact
    assert set(fine_tuned.seconds) >= {"cloning", "ppo", "all"}
    # The run is kept until its record is stored: a kill in between loses nothing.
    assert (work.run(FINE_TUNING) / "checkpoint.pt").is_file()
    work.remove(FINE_TUNING)
    assert not work.run(FINE_TUNING).exists()


def test_the_same_cell_gives_the_same_record(fine_tuned: Record, work: WorkFolder) -> None:
    work.remove(FINE_TUNING)
    again = run_cell(FINE_TUNING, work)
    # A finished run that was not removed is only scored again.
    assert replace(run_cell(FINE_TUNING, work), seconds=again.seconds) == again
    assert again.longest_training_run == fine_tuned.longest_training_run
    assert again.clone == fine_tuned.clone
    assert again.final == fine_tuned.final
    assert again.last == fine_tuned.last
    assert [replace(point, seconds=0) for point in again.curve] == [
        replace(point, seconds=0) for point in fine_tuned.curve
    ]


def test_an_interrupted_cell_resumes_from_its_checkpoint(
    fine_tuned: Record, work: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.remove(FINE_TUNING)
    monkeypatch.setattr("pipelines.learning.run.CHECKPOINT_SECONDS", 0.0)
    after_rollout = Training.after_rollout
    rollouts = 0

    def interrupt(self: Training, *, final: bool = False) -> None:
        nonlocal rollouts
        after_rollout(self, final=final)
        rollouts += 1
        if rollouts == 2:
            raise OSError("no power")

    monkeypatch.setattr(Training, "after_rollout", interrupt)
    with pytest.raises(OSError, match="no power"):
        run_cell(FINE_TUNING, work)
    assert (work.run(FINE_TUNING) / "checkpoint.pt").is_file()
    steps: list[int] = []

    def watch(self: Training, *, final: bool = False) -> None:
        steps.append(self.model.num_timesteps)
        after_rollout(self, final=final)

    monkeypatch.setattr(Training, "after_rollout", watch)
    record = run_cell(FINE_TUNING, work)
    # It resumes with the saved rollout; a new run would begin with the first.
    assert steps[0] == 2 * 512
    assert record.final == fine_tuned.final
    assert record.last == fine_tuned.last


@pytest.mark.parametrize(
    "cell",
    [
        one_cell("ppo", demonstrations=[0], reward=["dense"]),
        one_cell("dqn", reward=["dense"]),
        one_cell("dqn_unmasked", reward=["no_of"]),
        one_cell("dagger", labels=[100]),
        one_cell("teaching", demonstrations=[0]),
        one_cell("gail", demonstrations=[20]),
    ],
    ids=lambda cell: cell.arm,
)
def test_the_other_arms_make_records(cell: Cell, work: WorkFolder) -> None:
    record = run_cell(cell, work)
    assert record.clone is None
    assert 0 <= record.final.accuracy < 1
    assert record.final.wrong > 0
    assert record.final.own_runs == "not exact"
    assert record.last.own_runs is None
    if cell.arm == "dagger":
        assert 0 < record.labels <= cell.labels
        assert record.all_steps == 0
        return
    if cell.arm == "teaching":
        first, *_, last = record.rounds
        assert first.operations == first.labels == 0 < record.demonstrated == last.operations
        assert last.operations < last.labels == record.labels
        assert min(each.wrong for each in record.rounds) == record.final.wrong
        return
    # The transitions of twenty operations, or none.
    assert (400 < record.labels < 900) if cell.demonstrations else record.labels == 0
    assert record.demonstrated == cell.demonstrations
    name = cell.arm.removesuffix("_unmasked")
    assert record.stage_steps == {name: record.curve[-1].step}
    assert record.curve[-1].step >= cell.steps
    assert record.seconds[name] > 0


def test_reward_alone_counts_the_steps_of_every_stage(
    work: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[PlanningSettings | None] = []

    def note_plan(*given: Any) -> Mending:
        plans.append(given[-1])
        return Mending(*given)

    monkeypatch.setattr(run, "Mending", note_plan)
    shorten_planning(monkeypatch)
    shorten_mending(monkeypatch)
    settings = {"plan_exercises": 12, "mend_rounds": 1, "mend_exercises": 10}
    record = run_cell(one_cell("planning", reward=["dense"], settings=settings), work)
    assert plans == [PlanningSettings(exercises=12)]
    assert record.cell.steps == 0
    assert set(record.stage_steps) == {"planning", "mending"}
    # The policy of each round, at the steps that were made before.
    first, last = record.curve
    assert first.step == record.stage_steps["planning"] > 1_000
    assert first.step < last.step < record.all_steps == sum(record.stage_steps.values())
    assert 0 < first.seconds <= last.seconds
    assert record.labels == record.demonstrated == 0
    assert record.clone is None
    assert record.final.own_runs == "not exact"


PUBLISHED = Path(__file__).parents[3] / "pipelines" / "policies"


def scorer_of(level: str) -> Scorer:
    return Scorer(replace(Settings().world, reward=level))


def test_the_exact_policy_scores_as_exact() -> None:
    exact, scorer = load_policy(PUBLISHED / "base5"), scorer_of("dense")
    score = scorer(exact, own_runs=True)
    assert score.exact
    assert score.proven
    assert score.own_runs == "exact"
    assert (score.accuracy, score.long_error_rate, score.wrong) == (1.0, 0.0, 0)
    assert score.longest_run == 2000
    # The same weights as another policy of the run, whose own runs were not asked for.
    assert scorer(exact) == replace(score, own_runs=None)


def test_a_policy_with_its_own_algorithm_is_proven_by_its_own_runs() -> None:
    score = scorer_of("dense")(load_policy(PUBLISHED / "reward_dense"), own_runs=True)
    assert (score.exact, score.own_runs, score.proven) == (False, "exact", True)
    assert score.wrong > 1_000
    assert score.own_accuracy == score.accuracy == 1.0


@pytest.mark.parametrize(
    ("failures", "verdict"),
    [({"wrong_submit": 1}, "not exact"), ({"budget": 1}, "asked"), ({}, "asked")],
)
def test_a_sampled_mistake_is_a_verdict_and_a_spent_budget_is_not(
    failures: dict[str, int], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Own runs may take more steps than the budget of the training world, and be right."""
    kinds = ("wrong_signpost", "wrong_slide", "wrong_submit", "budget")
    sampled = SimpleNamespace(failures={kind: failures.get(kind, 0) for kind in kinds})
    monkeypatch.setattr(cells, "training_score", lambda *_: sampled)
    asked = SimpleNamespace(verdict="asked")
    monkeypatch.setattr(cells, "certify_own_runs", lambda *_, **__: asked)
    assert scorer_of("no_of_sp")._own_runs(load_policy(PUBLISHED / "base5")) == verdict


def test_own_runs_of_a_single_operation_are_not_asked_for() -> None:
    """The certificate is about both operations."""
    scorer = Scorer(replace(Settings().world, operations="add"))
    assert scorer._own_runs(load_policy(PUBLISHED / "base5")) is None
