"""Arms: every registered one can be run, and a new one takes a module and a line."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipelines.experiments import cells
from pipelines.experiments.arms import ARMS, Arm
from pipelines.experiments.cells import WorkFolder, run_cell
from pipelines.experiments.figures import draw_figures
from pipelines.experiments.grid import Grid
from pipelines.experiments.records import Record, frame_of
from pipelines.experiments.tables import tables_of
from pipelines.learning.learner import Job, Learner, Trained
from pipelines.learning.policy_files import load_policy
from tests.test_project import ROOT, run_python

PUBLISHED = ROOT / "pipelines" / "policies" / "base5"


@pytest.mark.parametrize("arm", ARMS.values(), ids=list(ARMS))
def test_every_arm_has_a_learner_and_something_to_learn_from(arm: Arm) -> None:
    assert isinstance(arm.learner, Learner)
    assert ARMS[arm.name] is arm
    assert arm.lists
    # A reward is learned from by taking steps: those of the grid, or what planning needs.
    assert arm.steps or arm.plans or not arm.reward


def test_records_and_their_arms_need_no_torch() -> None:
    done = run_python(
        "import sys, pipelines.experiments.tables; print('torch' in sys.modules)", ROOT
    )
    assert done.stdout.strip() == "False", done.stderr


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Register an arm as a contributor would; return the jobs that it is given."""
    for name in ("SCORE_EPISODES", "SCORE_LONG_OPERATIONS", "RUN_EPISODES", "RUN_LIMIT"):
        monkeypatch.setattr(cells, name, 10)
    monkeypatch.setattr(cells, "_scorer", cells.Scorer)
    jobs: list[Job] = []

    def run(job: Job) -> Trained:
        jobs.append(job)
        policy = load_policy(PUBLISHED)
        return Trained(policy, policy, {"parrot": 1.0}, labels=7)

    module: Any = ModuleType("pipelines.learning.parrot")
    module.PARROT = Learner(run, {"parrot": {"colour": "grey"}})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    arm = Arm("parrot", "Parrot", "learning.parrot:PARROT", demonstrations=2, steps=True)
    monkeypatch.setitem(ARMS, arm.name, arm)
    return jobs


def parrot_grid(**block: Any) -> dict[str, Any]:
    blocks = [{"arm": "parrot", "demonstrations": [5], **block}]
    comparison = {"seeds": 1, "steps": 1000, "blocks": blocks}
    return {"format": "abacus-study-grid", "version": 1, "comparisons": {"birds": comparison}}


def test_a_registered_arm_runs_to_a_record_and_into_the_tables(
    parrot: list[Job], tmp_path: Path
) -> None:
    (cell,) = Grid.from_dict(parrot_grid()).cells
    assert (cell.arm, cell.demonstrations, cell.steps, cell.reward) == ("parrot", 5, 1000, "none")
    assert cell.settings["parrot"] == {"colour": "grey"}
    record = run_cell(cell, WorkFolder(tmp_path))
    (job,) = parrot
    assert (job.settings.demo_operations, job.settings.n_timesteps) == (5, 1000)
    assert job.folder == tmp_path / "cells" / cell.key
    assert record.final.exact
    assert record.clone is None
    assert (record.labels, record.seconds["parrot"]) == (7, 1.0)
    assert Record.from_dict(record.to_dict()) == record
    tables = {table.key: table.markdown() for table in tables_of(frame_of([record]))}
    for key in ("by_steps", "milestones_birds", "seconds"):
        assert "Parrot" in tables[key]
    supervision, *_ = draw_figures(frame_of([record]), tmp_path)
    assert "Parrot" in supervision.title + supervision.alt


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"demonstrations": [1]}, "demonstrations=1 is not allowed: give an integer from 2"),
        ({"reward": ["dense"]}, "reward is not for arm parrot"),
        ({"labels": [10]}, "labels is not for arm parrot"),
    ],
)
def test_a_grid_gives_an_arm_what_it_declares(
    parrot: list[Job], block: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Grid.from_dict(parrot_grid(**block))


def test_other_settings_of_a_learner_make_another_cell(
    parrot: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = Grid.from_dict(parrot_grid()).cells
    module = sys.modules["pipelines.learning.parrot"]
    green = replace(ARMS["parrot"].learner, settings={"parrot": {"colour": "green"}})
    monkeypatch.setattr(module, "PARROT", green)
    (other,) = Grid.from_dict(parrot_grid()).cells
    assert other.key != cell.key
