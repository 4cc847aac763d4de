"""A policy's own solved operations: what is kept, how the file is marked, how it is verified."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py as typed_h5py
import numpy as np
import numpy.typing as npt
import pytest

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action
from abacus.tasks import Task
from oracle.demos import Demonstrations, DemonstrationsError, Recipe, record_policy, record_tasks
from oracle.demos.recipe import TrainedPolicy, task_config
from oracle.demos.replay import first_difference, recipe_difference
from oracle.demos.shards import record_demonstrations
from oracle.demos.writer import content_digest
from oracle.expert import expert_actions
from pipelines import inspect_demos
from pipelines.job.command_line import run
from pipelines.learning.policy_files import load_for_inference
from pipelines.scoring.players import GreedyTable
from tests.oracle.demos.hostile_files import write_seal

# Untyped: the published stubs take every object for a group.
h5py: Any = typed_h5py
CONFIG = AbacusConfig(reward="no_of")
TASKS = tuple(map(Task.parse, ("12 + 34 - 5", "7 + 8", "100 - 99 + 3", "4 - 1")))
SHA256 = "ab" * 32


def played(choose: Any = expert_actions, **settings: Any) -> Demonstrations:
    demonstrations = record_policy(replace(CONFIG, **settings), TASKS, choose, SHA256)
    assert demonstrations is not None
    return demonstrations


def fails_to_subtract(batch: AbacusBatch) -> npt.NDArray[np.int64]:
    """Return the expert's actions, but submit at once where something is subtracted."""
    subtracts = batch.scalars["operation"] == 1
    return np.where(subtracts, Action.SUBMIT, expert_actions(batch))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "own.h5"
    played().write(path, command=["some", "job"])
    return path


def changed(path: Path, target: Path, **values: int) -> Path:
    """Copy a file, change columns of transition 5, and forge digest and seal."""
    target.write_bytes(path.read_bytes())
    with h5py.File(target, "r+") as file:
        for name, value in values.items():
            file[f"transitions/{name}"][5] = value
    write_seal(target)
    demonstrations = Demonstrations.open(target)
    digest = content_digest(demonstrations.columns, demonstrations.recipe)
    with h5py.File(target, "r+") as file:
        file.attrs["digest"] = np.bytes_(json.dumps({"sha256": digest}).encode())
    write_seal(target)
    return target


def inspect(*words: object) -> int:
    arguments = list(map(str, words))
    return run(inspect_demos.main, inspect_demos.Options, inspect_demos.__doc__, "", arguments)


def test_the_published_policy_demonstrates_what_the_expert_does() -> None:
    table = GreedyTable(load_for_inference(), CONFIG.base, CONFIG.frames)
    own, expert = played(table.actions), record_tasks(CONFIG, TASKS)
    for group, columns in expert.columns.items():
        for name, rows in columns.items():
            np.testing.assert_array_equal(own.columns[group][name], rows, f"{group}/{name}")
    np.testing.assert_array_equal(own.terms("dense"), expert.terms("dense"))
    assert own.content_digest() != expert.content_digest()


def test_tasks_with_an_unsolved_operation_are_left_out() -> None:
    kept = played(fails_to_subtract)
    assert kept.tasks() == kept.recipe.tasks == (Task.parse("7 + 8"),)
    assert recipe_difference(kept) is None
    nothing = record_policy(CONFIG, TASKS[:1], fails_to_subtract, SHA256)
    assert nothing is None


def test_the_rules_of_the_level_judge() -> None:
    """A needless detour of the signpost is a mistake at no_of, and none at no_of_sp."""

    def moves_the_signpost(batch: AbacusBatch) -> npt.NDArray[np.int64]:
        first = np.where(batch.scalars["steps"] == 0, Action.SIGNPOST_RIGHT, -1)
        first = np.where(batch.scalars["steps"] == 1, Action.SIGNPOST_LEFT, first)
        return np.where(first >= 0, first, expert_actions(batch))

    assert record_policy(CONFIG, TASKS, moves_the_signpost, SHA256) is None
    own = played(moves_the_signpost, reward="no_of_sp")
    assert own.counts["episodes"] == len(TASKS)
    starts = own.episodes["start"]
    assert (own.transitions["action"][starts] == Action.SIGNPOST_RIGHT).all()
    assert (own.transitions["outcome"][starts] == -1).all()
    assert first_difference(own) is None


def test_it_is_read_as_it_was_written(path: Path) -> None:
    own, again = played(), Demonstrations.open(path, verify=True)
    assert again.recipe == own.recipe
    assert again.recipe.policy == TrainedPolicy(SHA256, "no_of")
    assert Recipe.from_dict(json.loads(json.dumps(own.recipe.to_dict()))) == own.recipe
    for group, columns in own.columns.items():
        for name, rows in columns.items():
            np.testing.assert_array_equal(again.columns[group][name], rows)
    np.testing.assert_array_equal(again.transitions["action"], again.transitions["taken"])
    with pytest.raises(ValueError, match="write the whole set"):
        again.train.write(path)


def test_the_file_is_marked(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(path) as file:
        algorithm = json.loads(file.attrs["algorithm"])
        assert json.loads(file.attrs["format"])["version"] == 3
    assert algorithm["name"].startswith("a trained policy")
    assert (algorithm["sha256"], algorithm["level"]) == (SHA256, "no_of")
    assert inspect(path, "--verify") == 0
    printed = capsys.readouterr().out
    assert f"demonstrator  a trained policy, judged at no_of, weights with SHA-256 {SHA256}" in (
        printed
    )
    assert "all 4 episodes replay as they were recorded\nnot verified: the actions" in printed


@pytest.mark.parametrize("names", [("action",), ("action", "taken")])
def test_a_changed_action_is_found(
    path: Path, tmp_path: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = Demonstrations.open(path).transitions
    mask, action = int(rows["mask"][5]), int(rows["action"][5])
    # Another finger move: its outcome, and so the reward at no_of, may stay the same.
    other = next(each for each in range(4) if mask >> each & 1 and each != action)
    values = dict.fromkeys(names, other) | ({"outcome": 0} if "taken" in names else {})
    if "taken" in names:
        values["reward"] = -1
    target = changed(path, tmp_path / "other.h5", **values)
    forged = Demonstrations.open(target, verify=True)
    assert first_difference(forged) is not None
    assert recipe_difference(forged) is not None
    assert inspect(target, "--verify") == inspect_demos.EXIT_DIFFERENT
    assert capsys.readouterr().err.count("\n") == 1


def test_a_level_that_did_not_judge_is_refused(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "other.h5"
    target.write_bytes(path.read_bytes())
    with h5py.File(target, "r+") as file:
        algorithm = json.loads(file.attrs["algorithm"]) | {"level": "dense"}
        file.attrs["algorithm"] = np.bytes_(json.dumps(algorithm).encode())
    write_seal(target)
    with pytest.raises(DemonstrationsError, match="another level"):
        Demonstrations.open(target)


def test_the_expert_does_not_record_for_a_policy(tmp_path: Path) -> None:
    recipe = Recipe(task_config(CONFIG), tasks=TASKS, policy=TrainedPolicy(SHA256, "no_of"))
    with pytest.raises(ValueError, match="from its actions alone"):
        record_demonstrations(recipe, tmp_path / "some.h5")
    for settings in ({"tasks": None}, {"epsilon": 0.1}, {"variant": "printed"}):
        with pytest.raises(ValueError, match="a policy plays given tasks"):
            replace(recipe, **settings)
    with pytest.raises(ValueError, match="no digest"):
        TrainedPolicy("abc", "no_of")
    with pytest.raises(ValueError, match="give the level that judges"):
        record_policy(replace(CONFIG, reward=("submit",)), TASKS, expert_actions, SHA256)
