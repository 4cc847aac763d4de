"""The evaluate command: its report, its exit status, its one-line messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import evaluate
from pipelines.job.command_line import run
from pipelines.learning.policy import new_policy
from pipelines.learning.policy_files import save_policy

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "--digits", "1", "3", "--n-operations", "20", "--n-set-operations", "10", "--set-digits", "3",
    "--n-episodes", "2", "--run-limit", "3", "--base", "3", "--frames", "2",
]  # fmt: skip


def status(*words: str) -> int:
    return run(evaluate.main, evaluate.Options, evaluate.__doc__, evaluate.EXAMPLE, list(words))


def test_the_report_of_the_expert(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "first.csv"
    log.write_text("time/total_timesteps,rollout/accuracy\n100,0.5\n")
    words = ["--replay", "5+7", "--logs", str(log), "--output", str(tmp_path / "report")]
    assert status("teacher", *SMALL, *words) == 0
    printed = capsys.readouterr().out
    assert "exact" in printed
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    assert content["complete"] is True
    assert content["certificate"]["exact"] is True
    assert [score["errors"] for score in content["generalisation"]] == [0, 0]
    assert len(content["adversarial"]) == 7
    assert content["settings"]["n_operations"] == 20
    assert content["curves"][0]["accuracies"] == [0.5]
    assert content["replays"][0]["truth"] == "110"  # 12 in base 3


def test_a_run_defines_its_base_and_frames(tmp_path: Path) -> None:
    save_policy(new_policy("compact", 3, 2), tmp_path / "run" / "best")
    words = [*SMALL[:-4], "--sets", "none", "--no-certificate"]
    assert status(str(tmp_path / "run"), *words, "--output", str(tmp_path)) == 0
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["policy"]["base"] == 3
    assert content["policy"]["weights"]
    assert content["adversarial"] == []
    assert content["generalisation"][0]["illegal_actions"] == 0


def test_a_folder_name_that_is_no_text_is_printed_and_written_escaped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"report-\xff")
    words = ["--n-operations", "5", "--sets", "none", "--no-certificate", "--output", str(folder)]
    assert status("teacher", *SMALL, *words) == 0
    assert "report-\\udcff" in capsys.readouterr().out
    assert "report-\\udcff" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n-operations", "0"], "n_operations=0 is not allowed: give an integer from 1 to"),
        (["--sets", "ones"], "set 'ones' is not known: give some of full-carries"),
        (["--columns", "3"], "operands of 3 digits do not fit on 3 columns"),
        (["--base", "11"], "base=11 is not allowed"),
        (["--frames", "0"], "frames=0 is not allowed"),
        (["--replay", "1+x"], "expression='1+x' is not allowed"),
        (["--replay", "3-5"], "goes below zero"),
        (["--logs", "no/such/run"], "holds no log"),
    ],
)
def test_a_bad_argument_ends_in_one_line_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], message: str
) -> None:
    assert status("teacher", *SMALL, *words, "--output", str(tmp_path / "report")) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "report").exists()


def test_ctrl_c_writes_the_finished_parts(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "pipelines.evaluate", "teacher", "--base", "3", "--frames", "2",
        "--digits", "1", "2000", "--n-operations", "2000", "--n-long-operations", "100000",
        "--no-certificate", "--output", str(tmp_path),
    ]  # fmt: skip
    job = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stderr is not None
    assert job.stderr.readline().startswith("1 digit: 0 errors in 2,000 operations")
    job.send_signal(signal.SIGINT)
    printed, errors = job.communicate(timeout=60)
    assert job.returncode == 130, errors
    assert "Stopped before the end" in printed
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["complete"] is False
    assert content["generalisation"][0]["operations"] == 2000
    assert (tmp_path / "report.html").exists()
