"""A run with mending writes its policy's own operations, which are cloned and cannot be taught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from oracle.demos.dataset import Demonstrations
from oracle.demos.replay import first_difference, recipe_difference
from oracle.exact.certificate import digest_of
from pipelines import bc_then_ppo
from pipelines.bc_then_ppo import EXAMPLE, Options, main
from pipelines.job.command_line import EXIT_MISTAKE, run
from pipelines.learning import run_report
from pipelines.learning.policy_files import load_run
from pipelines.learning.run_folder import OWN_OPERATIONS
from tests.pipelines.small_world import FRAMES, shorten_mending

Job = Callable[..., int]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    torch.set_num_threads(1)
    monkeypatch.setattr(run_report, "OWN_TASKS", 30)

    def start(*words: Any) -> int:
        argv = [
            *f"--base 2 --frames {FRAMES} --n-timesteps 0 --eval-episodes 20 --no-progress".split(),
            *map(str, words),
        ]
        monkeypatch.setattr("sys.argv", ["job", *argv])
        return run(main, Options, bc_then_ppo.__doc__, EXAMPLE, argv)

    return start


def test_own_operations_are_written_cloned_and_not_taught(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = "--demo-operations 1000 --cloning-updates 500"
    shorten_mending(monkeypatch)
    mending = "--mend-rounds 1 --mend-exercises 20 --reward no_of --teach-rounds 0"
    job("--run-folder", tmp_path / "run", *small.split(), *mending.split())
    path = tmp_path / "run" / OWN_OPERATIONS
    own = Demonstrations.open(path, verify=True)
    assert own.recipe.policy is not None
    assert own.recipe.policy.sha256 == digest_of(load_run(tmp_path / "run"))
    assert (own.recipe.policy.level, own.config.columns) == ("no_of", 20)
    assert first_difference(own) is None
    assert recipe_difference(own) is None
    report = (tmp_path / "run" / "report.md").read_text()
    assert f"the policy solves {own.counts['episodes']}: `{OWN_OPERATIONS}`" in report
    capsys.readouterr()

    given = f"--demonstrations {path} --demo-operations 5 --columns 20 --cloning-updates 5".split()
    assert job("--run-folder", tmp_path / "taught", *given, "--teach-rounds", 1) == EXIT_MISTAKE
    error = capsys.readouterr().err
    assert "was recorded by a trained policy" in error
    assert error.count("\n") == 1
    assert job("--run-folder", tmp_path / "cloned", *given, "--teach-rounds", 0) == 0
