"""The job in a small world: it finishes, resumes, repeats with its seed, refuses bad input."""

from __future__ import annotations

import base64
import csv
import functools
import json
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.replay import first_difference, recipe_difference
from oracle.demos.schema import FORMAT_NAME, FORMAT_VERSION, KNOWN_VERSIONS
from oracle.demos.shards import record_demonstrations
from pipelines import bc_then_ppo
from pipelines.bc_then_ppo import EXAMPLE, Options, main
from pipelines.job.command_line import EXIT_INTERRUPTED, EXIT_MISTAKE, run
from pipelines.learning import cloning
from pipelines.learning import run as training_module
from pipelines.learning.mending import Mending
from pipelines.learning.networks import PaperNetwork
from pipelines.learning.policy_files import load_policy, load_run
from pipelines.learning.ppo import ppo_state
from pipelines.learning.rollouts import RolloutCounts
from pipelines.learning.run import MENDING, Training
from pipelines.learning.run_folder import STEP, RunFolder, run_lock
from pipelines.learning.settings import PRESETS, Settings
from tests.pipelines.small_world import FRAMES, WORLD, shorten_mending, shorten_planning

Job = Callable[..., int]


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demonstrations") / "small.h5"
    record_demonstrations(Recipe(config=WORLD, operations=100), path, workers=1)
    return path


@pytest.fixture
def job(demonstrations: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a function that runs the job in the small world with further flags."""
    torch.set_num_threads(1)
    given = (
        f"--demonstrations {demonstrations} --demo-operations 20 --cloning-updates 30 --base 2 "
        f"--columns 4 --max-digits 2 --frames {FRAMES} --n-timesteps 4096 --n-envs 32 --n-steps 16 "
        "--batch-size 128 --n-epochs 2 --critic-warmup 1024 --eval-freq 1024 --eval-episodes 20 "
        "--teach-rounds 0 "
        "--no-progress"
    ).split()

    def start(*words: Any, alone: bool = False) -> int:
        argv = [*([] if alone else given), *map(str, words)]
        monkeypatch.setattr("sys.argv", ["job", *argv])
        return run(main, Options, bc_then_ppo.__doc__, EXAMPLE, argv)

    return start


def test_a_run_is_taught_until_it_is_exact(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    more = ["--teach-rounds", 40, "--cloning-updates", 150, "--n-timesteps", 1024]
    assert job("--run-folder", folder, *more) == 0
    printed = capsys.readouterr().out
    assert "after teaching" in printed
    assert "exact" in printed
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["exact"] is True
    assert summary["taught"]["wrong"] == 0 < summary["best"]["wrong"]
    assert [each["number"] for each in summary["rounds"]] == list(range(len(summary["rounds"])))
    asked = Demonstrations.open(folder / "teaching_set.h5", verify=True)
    operations = summary["rounds"][-1]["operations"] - 20
    assert asked.counts["operations"] == operations
    assert first_difference(asked) is None
    assert recipe_difference(asked) is None
    assert load_run(folder).state_dict().keys() == weights(folder / "taught").keys()
    assert same(load_run(folder).state_dict(), weights(folder / "taught"))
    assert not same(weights(folder / "tuned"), weights(folder / "taught"))
    report = (folder / "report.md").read_text()
    assert "| round" in report
    assert "Exact at every length" in report


def test_the_bar_ends_with_the_steps_really_made_and_leaves_lines_whole(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--n-timesteps", 1000, "--progress"]
    assert job("--run-folder", tmp_path / "run", *given) == 0
    printed = capsys.readouterr()
    assert "1,024 of 1,024 steps" in printed.err
    assert "solved by sampling" in printed.err
    assert "trained 100%" in printed.err.split("\r")[-1]
    # One meaning of accuracy: that of the greedy policy. Rollouts sample, and are called so.
    assert "accuracy" not in printed.err
    assert "step 1,024: greedy accuracy" in printed.out
    lines = printed.out.partition("\n\n")[0].splitlines()
    assert not [line for line in lines if "accuracy" in line and "greedy accuracy" not in line]


def test_a_limit_before_exactness_keeps_the_best_policy_and_ends_with_status_1(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert job("--run-folder", folder, "--teach-rounds", 1, "--n-timesteps", 0) == 1
    printed = capsys.readouterr()
    left = json.loads((folder / "certificate.json").read_text())["disagreements"]
    assert f"not exact: {left:,} observations are still wrong" in printed.err
    assert printed.err.count("\n") == 1
    assert load_run(folder) is not None
    assert job("--resume", folder, alone=True) == 0
    assert "the run is finished" in capsys.readouterr().out
    # The mistake reads as an operation: "1 + 1", not "from 1: 1".
    report = (tmp_path / "run" / "report.md").read_text()
    assert re.search(r"The nearest mistake: \d+( [+-] \d+)+ on \d+ columns, step \d+: ", report)


def test_a_policy_or_nothing_can_be_taught(job: Job, tmp_path: Path) -> None:
    more = ["--cloning-updates", 150, "--n-timesteps", 0, "--cloning-weight", 0]
    nothing = ["--demo-operations", 0, *more]
    assert job("--run-folder", tmp_path / "nothing", "--teach-rounds", 40, *nothing) == 0
    job("--run-folder", tmp_path / "clone", *more)
    started = ["--start-from", tmp_path / "clone", "--teach-rounds", 40, *nothing]
    assert job("--run-folder", tmp_path / "policy", *started) == 0


def test_printed_demonstrations_cannot_be_taught(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "printed.h5"
    recipe = Recipe(config=WORLD, operations=40, variant="printed")
    record_demonstrations(recipe, path, workers=1)
    given = ["--run-folder", tmp_path / "run", "--demonstrations", path]
    assert job(*given, "--teach-rounds", 3) == EXIT_MISTAKE
    error = capsys.readouterr().err
    assert "which cannot be learned exactly" in error
    assert error.count("\n") == 1


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_policy(folder).state_dict()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, b[name]) for name, tensor in a.items())


def test_a_run_writes_all_files_and_prints_their_places(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert job("--run-folder", folder) == 0
    printed = capsys.readouterr().out
    for words in ("after cloning", "after PPO", "wrong observations", "best/policy.safetensors"):
        assert words in printed
    summary = json.loads((folder / "summary.json").read_text())
    assert [line["step"] for line in summary["evaluations"]] == [0, 1024, 2048, 3072, 4096]
    assert summary["best"]["accuracy"] >= summary["clone"]["accuracy"]
    assert all(line["illegal_actions"] == 0 for line in summary["evaluations"])
    assert "--demo-operations 20" in (folder / "command.txt").read_text()
    saved = RunFolder.open(folder, {}).settings
    assert (saved.n_timesteps, saved.ppo.kl_weight) == (4096, PRESETS["default"].ppo.kl_weight)
    header = (folder / "progress.csv").read_text().splitlines()[0].split(",")
    for key in (
        "rollout/accuracy",
        "rollout/longest_run",
        "rollout/illegal_actions",
        "train/approx_kl",
        "train/entropy_loss",
        "train/explained_variance",
        "failures/wrong_slide",
        "rollout/ep_rew_mean",
    ):
        assert key in header
    assert list((folder / "tensorboard").rglob("events*"))
    assert load_run(folder).predict is not None
    assert load_run(folder / "model.zip", trust=True).network_name == "onehot"
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["disagreements"] == summary["best"]["wrong"]
    # The warm-up of the critic leaves the actor as it is.
    before, after_warm_up = summary["evaluations"][:2]
    assert after_warm_up["accuracy"] == before["accuracy"]
    assert after_warm_up["wrong"] == before["wrong"] == summary["clone"]["wrong"]


@pytest.mark.parametrize("operations", ["add", "subtract"])
def test_a_run_with_one_operation_alone_has_no_certificate(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], operations: str
) -> None:
    words = f"--operations {operations} --demo-operations 0 --cloning-weight 0".split()
    assert job("--run-folder", tmp_path / "run", *words) == 0
    assert "not given" in capsys.readouterr().out
    assert "for one operation alone" in (tmp_path / "run" / "report.md").read_text()
    assert not (tmp_path / "run" / "certificate.json").exists()


def test_the_paper_network_is_counted_and_certified_at_the_end(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few channels and hidden units; counting takes long at the true size."""
    monkeypatch.setattr(PaperNetwork, "CHANNELS", (4, 5, 6))
    monkeypatch.setattr(PaperNetwork, "HIDDEN", (32, 16))
    folder = tmp_path / "run"
    assert job("--run-folder", folder, "--network", "paper", "--n-timesteps", 512) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert [evaluation["wrong"] for evaluation in summary["evaluations"]] == [None, None]
    assert summary["clone"]["wrong"] > 0
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["disagreements"] == summary["best"]["wrong"] > 0


def test_the_same_seed_gives_the_same_run(job: Job, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert job("--run-folder", tmp_path / name, "--seed", seed) == 0
    assert same(weights(tmp_path / "a/last"), weights(tmp_path / "b/last"))
    assert not same(weights(tmp_path / "a/last"), weights(tmp_path / "c/last"))


def test_cloning_alone_and_ppo_alone(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job("--run-folder", tmp_path / "clone", "--n-timesteps", 0) == 0
    assert "after PPO" not in capsys.readouterr().out
    assert job("--run-folder", tmp_path / "ppo", "--demo-operations", 0, "--cloning-weight", 0) == 0
    assert "after cloning" not in capsys.readouterr().out
    assert not (tmp_path / "ppo/clone").exists()


def test_a_run_plans_mends_and_resumes_to_the_same_result(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    shorten_planning(monkeypatch)
    shorten_mending(monkeypatch)
    words = ["--demo-operations", 0, "--cloning-weight", 0, "--plan-exercises", 60]
    words += ["--cloning-updates", 200, "--n-timesteps", 512, "--critic-warmup", 0]
    words += ["--mend-rounds", 2, "--mend-exercises", 20, "--reward", "no_of"]
    plans = []

    def note_plan(*given: Any) -> Mending:
        plans.append(given[-1])
        return Mending(*given)

    with monkeypatch.context() as patch:
        patch.setattr(training_module, "Mending", note_plan)
        assert job("--run-folder", whole, *words) == 0
    # Another plan would discard what PPO has learned.
    assert plans == [None]
    printed = capsys.readouterr().out
    assert re.search(r"planned 60 exercises in [\d,]+ steps of the environment: \d+ obs", printed)
    assert "round 0: " in printed
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["evaluations"][0]["accuracy"] > 0.1, "a random policy solves nothing"
    rounds, evaluations = summary["mending_rounds"], summary["mending_evaluations"]
    assert len(rounds) == len(evaluations) == 3
    # Each policy is evaluated at the steps of all stages before.
    steps = [each["step"] for each in evaluations]
    assert steps[0] > 512
    assert np.diff(steps).tolist() == [each["steps"] for each in rounds[:-1]]
    report = (whole / "report.md").read_text()
    assert "| after mending |" in report
    assert "| others found |" in report
    assert re.search(r"\| next policy\s*\|", report)
    save = Training._save

    def kill(*arguments: Any) -> None:
        raise Killed

    def save_and_die(self: Training, stage: str, more: Any = None) -> None:
        save(self, stage, more)
        if stage == MENDING:
            raise Killed

    for name, killed in (("_evaluate", kill), ("_save", save_and_die)):
        with monkeypatch.context() as patch:
            patch.setattr(Training, name, killed)
            with pytest.raises(Killed):
                job("--run-folder", broken / name, *words)
        assert job("--resume", broken / name, alone=True) == 0
        again = json.loads((broken / name / "summary.json").read_text())
        for policy in ("best", "last", "mended"):
            assert same(weights(whole / policy), weights(broken / name / policy))
        for part in ("evaluations", "mending_evaluations"):
            assert again[part] == summary[part]


def test_a_collapsed_policy_is_named_in_log_and_report(
    job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether a policy collapses depends on the seed: here every one does."""
    monkeypatch.setattr(RolloutCounts, "collapse", lambda *_: "idling: made up")
    assert job("--run-folder", tmp_path / "run", "--n-timesteps", 2048) == 0
    assert "the policy has collapsed, idling: made up" in capsys.readouterr().out
    assert "had collapsed, idling: made up" in (tmp_path / "run/report.md").read_text()


def test_ppo_can_start_from_a_policy(job: Job, tmp_path: Path) -> None:
    assert job("--run-folder", tmp_path / "a", "--n-timesteps", 0) == 0
    words = ("--demo-operations", 0, "--cloning-weight", 0, "--start-from", tmp_path / "a")
    assert job("--run-folder", tmp_path / "b", *words) == 0
    assert same(weights(tmp_path / "a/best"), weights(tmp_path / "b/clone"))


class Killed(BaseException):
    pass


def without_times(log: Path) -> list[dict[str, str]]:
    """Return the rows of a log without times; iterations are counted from the last resume."""
    with log.open(newline="") as lines:
        return [
            {name: v for name, v in row.items() if name == STEP or not name.startswith("time/")}
            for row in csv.DictReader(lines)
        ]


@pytest.mark.parametrize("after", ["update 20", "step 1536", "step 3584"])
def test_a_killed_run_resumes_to_the_same_result(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    monkeypatch.setattr(cloning, "SCORE_UPDATES", 10)
    assert job("--run-folder", whole) == 0
    monkeypatch.setattr(training_module, "CHECKPOINT_SECONDS", 0.0)
    save = Training._save

    def save_and_die(self: Training, stage: str, more: Any = None) -> None:
        save(self, stage, more)
        steps = self.model.num_timesteps
        updates = (more or {}).get("cloning", {}).get("updates", 0)
        if after in (f"update {updates}", f"step {steps}"):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_save", save_and_die)
        with pytest.raises(Killed):
            job("--run-folder", broken)
    assert job("--resume", broken, alone=True) == 0
    assert same(weights(whole / "last"), weights(broken / "last"))
    runs = [json.loads((folder / "summary.json").read_text()) for folder in (whole, broken)]
    assert runs[0]["evaluations"] == runs[1]["evaluations"]
    assert runs[0]["settings"] == runs[1]["settings"]
    for name, rows in (("cloning.csv", 3), ("evaluations.csv", 5), ("progress.csv", 8)):
        assert len(without_times(whole / name)) == rows
        assert without_times(whole / name) == without_times(broken / name)


def test_ctrl_c_saves_and_prints_how_to_resume(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after_rollout = Training.after_rollout

    def press(self: Training, *, final: bool = False) -> None:
        self.interruption.requested = self.model.num_timesteps >= 1536
        after_rollout(self, final=final)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "after_rollout", press)
        assert job("--run-folder", tmp_path / "run") == EXIT_INTERRUPTED
    assert f"--resume {tmp_path / 'run'}" in capsys.readouterr().err
    assert job("--resume", tmp_path / "run", alone=True) == 0


def test_a_finished_run_is_left_alone(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job("--run-folder", tmp_path / "run", "--n-timesteps", 1024) == 0
    before = contents(tmp_path / "run")
    capsys.readouterr()
    assert job("--resume", tmp_path / "run", alone=True) == 0
    assert "the run is finished, nothing was changed: see" in capsys.readouterr().out
    assert contents(tmp_path / "run") == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stop_before(monkeypatch: pytest.MonkeyPatch, job: Job, folder: Path, method: str) -> None:
    """Start a run that is killed before a method of `Training` is called."""

    def kill(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Training, method, kill)
        with pytest.raises(Killed):
            job("--run-folder", folder)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "5"], "columns=4, the run has columns=5"),
        (["--base", "3"], "base=2, the run has base=3"),
        (["--demo-operations", "101"], "has 100 operations, fewer than demo_operations=101"),
        (["--columns", "0"], "columns=0 is not allowed"),
        (["--n-envs", "0"], "n_envs=0 is not allowed"),
        (["--clip-range", "nan"], "clip_range=nan is not allowed"),
        (["--cloning-learning-rate", "inf"], "learning_rate=inf is not allowed"),
        (["--cloning-learning-rate", "0"], "learning_rate=0.0 is not allowed"),
        (["--target-kl", "-1"], "target_kl=-1.0 is not allowed"),
        (["--seed", str(2**32)], "seed=4294967296 is not allowed"),
        (["--n-timesteps", "1e300"], "n_timesteps=a number of"),
        (["--n-envs", "1e15"], "do not fit into memory"),
        (["--n-steps", "1e15"], "do not fit into memory"),
        (["--device", "gpu9"], "device='gpu9' is not allowed"),
        (["--device", "meta"], "device='meta' is not allowed"),
        (["--device", "zzz"], "device='zzz' is not allowed"),
        (["--device", "cuda:77"], "device='cuda:77' is not allowed"),
        (["--reward", "gold"], "reward='gold' is not allowed"),
        (["--n-timesteps", "0", "--demo-operations", "0"], "nothing to do"),
        (["--teach-answers", "0"], "answers=0 is not allowed"),
        (["--start-from", "nowhere"], "give one of them"),
        (["--cloning-updates", "-1"], "updates=-1 is not allowed"),
        (["--gamma", "2"], "gamma=2.0 is not allowed"),
        (["--count-bonus", "-1"], "count_bonus=-1.0 is not allowed"),
        (
            ["--entropy-schedule", "constant", "--entropy-start", "0.1", "--entropy-end", "0.2"],
            "end=0.2 is not allowed: give none with a constant schedule of 0.1",
        ),
    ],
)
def test_bad_input_is_one_clear_line(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert job("--run-folder", tmp_path / "run", *words) == EXIT_MISTAKE
    assert message in one_line(capsys)


def test_a_folder_with_another_run_is_left_alone(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job("--run-folder", tmp_path / "run", "--n-timesteps", 0) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert job("--run-folder", tmp_path / "run") == EXIT_MISTAKE
    assert "holds a run" in one_line(capsys)
    assert job("--resume", tmp_path / "run", "--seed", "7", alone=True) == EXIT_MISTAKE
    assert "--seed 7 (was 0)" in one_line(capsys)
    assert job("--resume", tmp_path, alone=True) == EXIT_MISTAKE
    assert "holds no run" in one_line(capsys)
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert before == after


def test_a_resumed_run_takes_another_number_of_threads(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_before(monkeypatch, job, tmp_path / "run", "finish")
    assert job("--resume", tmp_path / "run", "--threads", 2, alone=True) == 0
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_a_run_with_a_damaged_config_is_refused(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"colour": "red"}')
    assert job("--resume", tmp_path, alone=True) == EXIT_MISTAKE
    message = one_line(capsys)
    assert "config.json: the settings are not those of a run of this version" in message
    assert "unknown: colour" in message


def test_demonstrations_of_another_version_are_refused(
    job: Job, demonstrations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = tmp_path / "newer.h5"
    mark, other = (f"{FORMAT_NAME} {version}\n".encode() for version in (FORMAT_VERSION, 99))
    content = demonstrations.read_bytes()
    assert content.count(mark) == 1
    newer.write_bytes(content.replace(mark, other, 1))
    assert job("--demonstrations", newer, "--run-folder", tmp_path / "run") == EXIT_MISTAKE
    message = one_line(capsys)
    assert "newer.h5 has format version 99" in message
    assert f"reads version {KNOWN_VERSIONS}" in message


def test_truncated_demonstrations_are_refused(
    job: Job, demonstrations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truncated = tmp_path / "truncated.h5"
    truncated.write_bytes(demonstrations.read_bytes()[:-100])
    assert job("--demonstrations", truncated, "--run-folder", tmp_path / "run") == EXIT_MISTAKE
    assert "truncated.h5" in one_line(capsys)


def test_a_full_disk_is_one_line_and_leaves_the_checkpoint(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device", "checkpoint.pt")

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.learning.run_folder.atomic_write", full)
        assert job("--run-folder", tmp_path / "run") == EXIT_MISTAKE
    assert "No space left on device (checkpoint.pt)" in one_line(capsys)
    assert job("--resume", tmp_path / "run", alone=True) == 0


def test_a_strangers_run_runs_no_code_of_a_zip(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trust is given on the command line alone: a run folder cannot bring it along."""
    forged, created = tmp_path / "forged", tmp_path / "created"
    write_zip_that_creates(created, tmp_path / "model.zip")
    changes = {"demo_operations": 0, "start_from": tmp_path / "model.zip", "cloning_weight": 0.0}
    settings = Settings().with_flags({**changes, "base": 2, "columns": 4, "max_digits": 2})
    RunFolder.create(forged, settings, ["job"])
    assert "trust" not in (forged / "config.json").read_text()
    assert job("--resume", forged, alone=True) == EXIT_MISTAKE
    assert "Give --trust if you trust its source" in one_line(capsys)
    assert not created.exists()
    # The value in config.json that older versions followed is refused.
    config = json.loads((forged / "config.json").read_text())
    (forged / "config.json").write_text(json.dumps({**config, "trust": True}))
    assert job("--resume", forged, alone=True) == EXIT_MISTAKE
    assert "unknown: trust" in one_line(capsys)
    assert not created.exists()
    # The zip is one that does run code.
    (forged / "config.json").write_text(json.dumps(config))
    assert job("--resume", forged, "--trust", alone=True) == EXIT_MISTAKE
    assert created.exists()


class Creates:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def write_zip_that_creates(created: Path, path: Path) -> None:
    """Write a zip of Stable-Baselines3 whose data create a file when they are unpickled."""
    pickled = base64.b64encode(pickle.dumps(Creates(created))).decode()
    data = {"policy_class": {":type:": "<class>", ":serialized:": pickled}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(data))


def test_a_safetensors_policy_needs_no_trust(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job("--run-folder", tmp_path / "clone", "--n-timesteps", 0) == 0
    words = ["--demo-operations", 0, "--cloning-weight", 0, "--n-timesteps", 512]
    start = ["--start-from", tmp_path / "clone", *words]
    assert job("--run-folder", tmp_path / "run", *start) == 0
    assert same(weights(tmp_path / "clone/last"), weights(tmp_path / "run/clone"))
    assert job("--run-folder", tmp_path / "other", *start, "--frames", 3) == EXIT_MISTAKE
    assert "of another network, base or number of frames" in capsys.readouterr().err


def test_a_run_whose_inputs_changed_is_refused(
    job: Job,
    demonstrations: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "own.h5"
    shutil.copy(demonstrations, path)
    given = functools.partial(job, "--demonstrations", path)
    stop_before(monkeypatch, given, tmp_path / "run", "_evaluate")
    record_demonstrations(Recipe(config=WORLD, operations=100, seed=1), path, overwrite=True)
    assert job("--resume", tmp_path / "run", alone=True) == EXIT_MISTAKE
    assert "started with other demonstrations" in one_line(capsys)
    shutil.copy(demonstrations, path)
    assert job("--resume", tmp_path / "run", alone=True) == 0

    shutil.copytree(tmp_path / "run/clone", tmp_path / "start")
    words = ["--start-from", tmp_path / "start", "--demo-operations", 0, "--cloning-weight", 0]
    stop_before(monkeypatch, functools.partial(job, *words), tmp_path / "from", "_evaluate")
    shutil.rmtree(tmp_path / "start")
    shutil.copytree(tmp_path / "run/last", tmp_path / "start")
    capsys.readouterr()
    assert job("--resume", tmp_path / "from", alone=True) == EXIT_MISTAKE
    assert "started with other start_from" in one_line(capsys)


def test_a_run_in_use_is_refused(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_before(monkeypatch, job, tmp_path / "run", "finish")
    before = contents(tmp_path / "run")
    with run_lock(tmp_path / "run"):
        words = [sys.executable, "-m", "pipelines.bc_then_ppo", "--resume", str(tmp_path / "run")]
        done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == EXIT_MISTAKE
    assert done.stderr.count("\n") == 1
    assert "is in use: another process runs it" in done.stderr
    assert contents(tmp_path / "run") == before


def test_a_file_with_the_default_name_and_other_content_is_refused(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipelines.learning.settings.RECORDED_OPERATIONS", 100)
    flags = {"base": 2, "columns": 4, "max_digits": 2, "frames": 2, "demo_operations": 20}
    wanted = Settings().with_flags(flags).recipe()
    other = replace(wanted, seed=7, config=replace(wanted.config, max_digits=1))
    record_demonstrations(other, tmp_path / "datasets" / wanted.file_name, workers=1)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    assert job("--run-folder", tmp_path / "run", *words, alone=True) == EXIT_MISTAKE
    message = one_line(capsys)
    assert "was recorded with seed=7 instead of 0, config.max_digits=1 instead of 2" in message
    assert wanted.file_name in message


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, demonstrations: Path) -> Path:
    """A run that was killed in the middle of PPO."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    flags = {"demonstrations": demonstrations, "demo_operations": 20, "n_envs": 4, "n_steps": 8}
    world = {"base": 2, "columns": 4, "max_digits": 2, "frames": FRAMES, "cloning_updates": 10}
    more = {"n_timesteps": 64, "eval_episodes": 2, "eval_freq": 32}
    settings = Settings().with_flags({**flags, **world, **more})
    Training(RunFolder.create(folder, settings, ["job"]), lambda line: None).run()
    return folder


def test_a_damaged_checkpoint_is_one_line(interrupted: Path) -> None:
    path = interrupted / "checkpoint.pt"
    content = path.read_bytes()
    folder = RunFolder.open(interrupted, {})
    assert folder.load_checkpoint() is not None
    changes = [content[:size] for size in (0, 1, 50, 100, len(content) // 2, len(content) - 1)]
    for bit in np.random.default_rng(0).choice(8 * len(content), 300, replace=False):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << (bit % 8)
        changes.append(bytes(changed))
    messages = []
    for each in [*changes, content + b"1", b"PK" + content]:
        path.write_bytes(each)
        with pytest.raises(ValueError, match=r"checkpoint\.pt is damaged: ") as error:
            folder.load_checkpoint()
        messages.append(str(error.value))
    path.write_bytes(content)
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "dancing"},
        {"stage": None},
        {"logs": 1},
        {"logs": {"cloning": 3}},
        {"evaluations": [{"step": 0}]},
        {"evaluations": []},
        {"policies": {}},
        {"policies": {"last": 3}},
        {"policies": {"last": {"weights": {}, "evaluation": 0}}},
        {"ppo": {"policy": 1}, "stage": "ppo"},
        {"ppo": 5, "stage": "trained"},
        {"seconds": 3},
        {"inputs": [1]},
    ],
)
def test_a_forged_checkpoint_is_one_line(
    job: Job,
    interrupted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
) -> None:
    """With its digest, as whoever writes a checkpoint can compute it."""
    folder = RunFolder.open(shutil.copytree(interrupted, tmp_path / "run"), {})
    state = folder.load_checkpoint()
    assert state is not None
    folder.rows = change.pop("logs", folder.rows)
    folder.save_checkpoint({**state, "ppo": None, "stage": "ppo", **change})
    assert job("--resume", tmp_path / "run", alone=True) == EXIT_MISTAKE
    assert "checkpoint.pt is damaged: " in one_line(capsys)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", "[]", "3", "\xff"])
def test_a_config_that_is_no_object_is_one_line(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    assert job("--resume", tmp_path, alone=True) == EXIT_MISTAKE
    assert len(one_line(capsys)) < 400


def test_a_changed_setting_in_config_json_is_refused(
    job: Job, interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(interrupted, tmp_path / "run")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"gamma": 0.95', '"gamma": 0.94'))
    assert job("--resume", folder, alone=True) == EXIT_MISTAKE
    assert "the settings do not have their digest" in one_line(capsys)


def test_a_flipped_bit_in_config_json_is_refused_or_harmless(interrupted: Path) -> None:
    path = interrupted / "config.json"
    content, settings = path.read_bytes(), RunFolder.open(interrupted, {}).settings
    refused = 0
    for bit in np.random.default_rng(0).choice(8 * len(content), 300, replace=False):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(changed)
        try:
            assert RunFolder.open(interrupted, {}).settings == settings
        except ValueError as error:
            refused += "\n" not in str(error)
    path.write_bytes(content)
    assert refused > 200


def test_the_report_shows_the_command_as_it_is(job: Job, tmp_path: Path) -> None:
    folder = tmp_path / "``` <img src=x onerror=alert(1)> \n<b>"
    assert job("--run-folder", folder, "--n-timesteps", 0) == 0
    lines = (folder / "report.md").read_text().splitlines()
    assert [line for line in lines if "<" in line and not line.startswith("    ")] == []
    assert any("<img src=x" in line for line in lines)


def test_tensorboard_shows_every_step_once_after_a_resume(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_later(model: Any) -> Any:
        if model.num_timesteps == 2048:
            raise Killed
        return ppo_state(model)

    with monkeypatch.context() as patch:
        patch.setattr(training_module, "ppo_state", kill_later)
        with pytest.raises(Killed):
            job("--run-folder", tmp_path / "run")
    assert job("--resume", tmp_path / "run", alone=True) == 0
    for name, key in (("progress", "rollout/accuracy"), ("evaluations", "eval/accuracy")):
        events = EventAccumulator(str(tmp_path / "run/tensorboard" / name), {"scalars": 0})
        events.Reload()
        with (tmp_path / "run" / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [event.step for event in events.Scalars(key)] == [int(row[STEP]) for row in rows]
        values = [event.value for event in events.Scalars(key)]
        assert values == pytest.approx([float(row[key]) for row in rows])
