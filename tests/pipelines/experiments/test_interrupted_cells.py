"""Cells of a study that are killed at any file operation give the same record when run again."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oracle.demos.recipe import Recipe
from oracle.demos.shards import record_demonstrations
from pipelines.experiments import cells
from pipelines.experiments.cells import WorkFolder, run_cell
from pipelines.experiments.records import Cell
from pipelines.learning import run as training_module
from pipelines.scoring.scores import Evaluator
from tests.interruptions import folder_in_memory, folder_states, in_child, spread
from tests.pipelines.small_world import FRAMES, WORLD


@pytest.fixture(autouse=True)
def small_scores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Score on few operations; the scores are not the subject."""
    for name in ("SCORE_EPISODES", "SCORE_LONG_OPERATIONS", "RUN_EPISODES", "RUN_LIMIT"):
        monkeypatch.setattr(cells, name, 10)
    evaluator = functools.partial(Evaluator, long_operations=50)
    monkeypatch.setattr(training_module, "Evaluator", evaluator)
    monkeypatch.setattr(training_module, "CHECKPOINT_SECONDS", 0.0)
    cells._scorer.cache_clear()
    yield
    cells._scorer.cache_clear()


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demonstrations") / "small.h5"
    record_demonstrations(Recipe(config=WORLD, operations=100), path, workers=1)
    return path


def small_cell(arm: str, demonstrations: Path) -> Cell:
    steps = 768 if arm == "ppo" else 0
    world = {"base": 2, "columns": 4, "max_digits": 2, "frames": FRAMES, "cloning_updates": 20}
    cloning = {"demonstrations": str(demonstrations), "demo_operations": 20, "n_timesteps": steps}
    ppo = {"n_envs": 32, "n_steps": 8, "batch_size": 128, "n_epochs": 1, "critic_warmup": 256}
    evaluation = {"eval_freq": 512, "eval_episodes": 4}
    settings = {**world, **cloning, **ppo, **evaluation}
    return Cell("some", arm, 20, "no_of", "both", 0, steps, 0, settings)


def record_of(cell: Cell, work: Path) -> dict[str, Any]:
    """Run a cell in a child and return its record without times."""
    path = work.with_suffix(".json")

    def run() -> None:
        path.write_text(json.dumps(run_cell(cell, WorkFolder(work)).to_dict()))

    assert in_child(run) == 0
    record: dict[str, Any] = json.loads(path.read_text())
    del record["seconds"]
    for point in record["curve"]:
        del point["seconds"]
    return record


@pytest.mark.parametrize(("arm", "tried"), [("cloning", 12), ("ppo", 15)])
def test_a_cell_killed_at_any_file_operation_gives_the_same_record(
    arm: str, tried: int, demonstrations: Path, tmp_path: Path
) -> None:
    cell = small_cell(arm, demonstrations)
    wrong = []
    with folder_in_memory(tmp_path / "works") as folder:
        work = folder / "work"
        expected = record_of(cell, work)
        shutil.rmtree(work)
        states, operations = folder_states(
            lambda: run_cell(cell, WorkFolder(work)), work, tmp_path / "states"
        )
        taken = spread(states, tried)
        for state in taken:
            shutil.rmtree(work)
            shutil.copytree(state, work)
            if record_of(cell, work) != expected:
                wrong.append(state.name)
            left = [path for path in work.rglob(".*") if not path.name.endswith(".lock")]
            if left:
                wrong.append(f"{state.name}: {left}")
    print(
        f"{operations} file operations, {len(states)} states, {len(taken)} resumed, "
        f"{len(wrong)} not equal"
    )
    assert wrong == []
    assert len(states) > 50
