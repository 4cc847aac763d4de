"""`--track wandb`: what is stored of a run, that it stays offline, and the real library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipelines.bc_then_ppo import EXAMPLE, Options, main
from pipelines.job.command_line import run
from pipelines.learning.tracking import track_run
from tests.pipelines.without_libraries import ROOT

STEP = "time/total_timesteps"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run folder with what is stored of it."""
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"preset": "default", "seed": 3}))
    (folder / "cloning.csv").write_text(f"{STEP},bc/loss\n500,0.5\n1000,0.25\n")
    (folder / "progress.csv").write_text(f"{STEP},rollout/accuracy\n16384,\n32768,0.75\n")
    (folder / "summary.json").write_text(
        json.dumps({"exact": True, "own_runs": {"taught": "exact"}})
    )
    return folder


class FakeRun:
    """The run of a module in the place of wandb; it keeps what it gets."""

    def __init__(self, **settings: Any) -> None:
        self.settings, self.name = settings, settings["name"]
        self.steps: dict[str, str] = {}
        self.rows: list[dict[str, float]] = []
        self.summary: dict[str, Any] = {}
        self.finished = False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.steps[name] = step_metric

    def log(self, values: dict[str, float]) -> None:
        self.rows.append(values)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    runs: list[FakeRun] = []

    def init(**settings: Any) -> FakeRun:
        runs.append(FakeRun(**settings))
        return runs[-1]

    module: Any = ModuleType("wandb")
    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return runs


def test_settings_logs_and_result_are_stored_offline(folder: Path, runs: list[FakeRun]) -> None:
    assert track_run(folder).startswith("tracked offline: upload it with wandb sync ")
    (stored,) = runs
    assert (stored.settings["mode"], stored.settings["dir"]) == ("offline", str(folder))
    assert stored.settings["config"] == {"preset": "default", "seed": 3}
    assert stored.rows == [
        {f"cloning/{STEP}": 500, "cloning/bc/loss": 0.5},
        {f"cloning/{STEP}": 1000, "cloning/bc/loss": 0.25},
        {f"progress/{STEP}": 16384},
        {f"progress/{STEP}": 32768, "progress/rollout/accuracy": 0.75},
    ]
    assert stored.steps == {f"{log}/*": f"{log}/{STEP}" for log in ("cloning", "progress")}
    assert stored.summary == {"exact": True, "own_runs": {"taught": "exact"}}
    assert stored.finished


def test_the_mode_of_the_environment_is_taken(
    folder: Path, runs: list[FakeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    assert "offline" not in track_run(folder)
    assert runs[0].settings["mode"] == "online"


def test_a_finished_run_is_tracked(
    folder: Path, runs: list[FakeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines import bc_then_ppo

    monkeypatch.setattr(
        "pipelines.learning.run.Training", lambda *_, **__: SimpleNamespace(finished=True)
    )
    for track in ("nothing", "wandb"):
        words = Options(track=track)
        assert bc_then_ppo._run(SimpleNamespace(path=folder), words) == 0  # type: ignore[arg-type]
    assert [each.name for each in runs] == ["first"]


def test_a_missing_library_is_one_line_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    words = ["--track", "wandb", "--run-folder", str(tmp_path / "run")]
    assert run(main, Options, "", EXAMPLE, words) == 2
    assert capsys.readouterr().err == (
        "pipelines.bc_then_ppo: --track wandb needs it: pip install wandb\n"
    )
    assert not (tmp_path / "run").exists()


def test_the_real_library_writes_an_offline_run(folder: Path) -> None:
    """The interpreter is the one in the variable WANDB_PYTHON, or else this one."""
    interpreter = os.environ.get("WANDB_PYTHON", sys.executable)
    found = subprocess.run([interpreter, "-c", "import wandb"], capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("wandb is not installed: give WANDB_PYTHON, the Python of an environment")
    code = "import sys, pathlib as p; from pipelines.learning.tracking import track_run as store; "
    code += "store(p.Path(sys.argv[1]))"
    environment = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}
    done = subprocess.run(
        [interpreter, "-c", code, folder],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (stored,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    content = stored.read_bytes()
    assert b"cloning/bc/loss" in content
    assert b"own_runs" in content
