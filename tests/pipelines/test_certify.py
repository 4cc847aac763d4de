"""The certify command: its output, its file, and its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.exact.certificate import Certificate
from oracle.exact.own_runs import OwnRunsCertificate
from pipelines import certify
from pipelines.job.command_line import run
from pipelines.learning.policy import new_policy
from pipelines.learning.policy_files import save_policy

SMALL = ["--base", "3", "--frames", "2"]


def status(*words: str) -> int:
    return run(certify.main, certify.Options, certify.__doc__, certify.EXAMPLE, list(words))


def test_an_exact_policy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    assert status("teacher", *SMALL, "--json", str(file)) == 0
    printed = capsys.readouterr().out
    assert "EXACT: right on operands of every length" in printed
    assert "NOT EXACT" not in printed
    assert Certificate.from_json(file.read_text()).exact


def test_an_inexact_policy_gets_counterexamples(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    save_policy(new_policy("compact", 3, 2), tmp_path / "best")
    assert status(str(tmp_path), "--counterexamples", "3") == 1
    printed = capsys.readouterr().out
    assert "NOT EXACT" in printed
    assert printed.count("where the teacher") == 3
    assert "weights       sha256" in printed


def test_ambiguous_observations_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("teacher", "--variant", "printed", *SMALL, "--counterexamples", "1") == 1
    printed = capsys.readouterr().out
    assert "no memoryless policy is right on all" in printed
    assert "as the teacher does in only some states" in printed


def test_own_runs_of_an_exact_policy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    assert status("teacher", *SMALL, "--own-runs", "--json", str(file)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("result        EXACT: its own runs never go wrong")
    assert "judged as at dense" in printed
    assert OwnRunsCertificate.from_json(file.read_text()).exact


def test_own_runs_that_go_wrong_are_printed_with_their_rule(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    save_policy(new_policy("compact", 3, 2), tmp_path / "best")
    assert status(str(tmp_path), "--own-runs", "--level", "no_of") == 1
    printed = capsys.readouterr().out
    assert printed.startswith("result        NOT EXACT")
    assert "in base 3) on" in printed
    assert "rule: " in printed
    assert "weights       sha256" in printed


def test_a_limit_is_not_proven(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("teacher", *SMALL, "--own-runs", "--limit", "1e3") == 3
    printed = capsys.readouterr().out
    assert printed.startswith("result        NOT PROVEN: too many situations")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing/here"], "policy='nothing/here' is not there: give the folder of a run"),
        (["random", "--base", "1"], "base=1 is not allowed"),
        (["random", "--counterexamples", "-1"], "counterexamples=-1 is not allowed"),
        (["random", "--variant", "other"], "invalid choice: 'other'"),
        (["random", "--own-runs", "--level", "none"], "invalid choice: 'none'"),
        (["random", "--own-runs", "--limit", "0"], "limit=0 is not allowed"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    try:
        code = status(*words)
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
