"""The dataset card: its Python runs, its commands exist, its scripts learn, its tree is right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py as typed_h5py
import pytest

from pipelines import export
from pipelines.job.command_line import run

# Untyped: the published stubs take every object for a group.
h5py: Any = typed_h5py
ROOT = Path(__file__).parents[2]
CARD = (ROOT / "datasets" / "README.md").read_text()
OURS = ("abacus", "oracle", "pipelines")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", CARD, flags=re.DOTALL)


def run_alone(code: str) -> str:
    """Run code without this project on the path."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plain_example_runs_without_our_code() -> None:
    output = run_alone(
        f"{blocks('python')[0]}\nimport sys; assert not set({OURS}) & set(sys.modules)"
    )
    assert output.startswith("57,957 transitions; the first operation has the operands 0 and ")


def test_the_example_with_this_project_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(blocks("python")[1], "README.md", "exec"), {})
    assert "100 operations" in capsys.readouterr().out


def test_the_example_of_pandas_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(blocks("python")[2], "README.md", "exec"), {})
    assert "signpost left" in capsys.readouterr().out


def test_the_example_of_tasks_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("python")[3], "README.md", "exec"), {})
    output = capsys.readouterr().out
    assert "2 episodes, 3 operations" in output
    assert "12 episodes, 103 operations" in output


def test_the_example_of_a_policys_own_operations_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("python")[4], "README.md", "exec"), {})
    output = capsys.readouterr().out
    assert "2 episodes, 3 operations" in output
    assert "a trained policy, judged at no_of" in output


def test_every_command_exists_and_has_the_flags() -> None:
    commands = [
        line.partition("#")[0].split()
        for block in blocks("bash")
        for line in block.splitlines()
        if line
    ]
    assert len(commands) >= 8
    helps = {}
    for _, _, job, *words in commands:
        if job not in helps:
            done = subprocess.run(
                [sys.executable, "-m", job, "--help"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
            helps[job] = done.stdout
        for flag in (word for word in words if word.startswith("--")):
            assert flag in helps[job], f"{job} has no {flag}"


def test_the_tree_in_the_card_is_that_of_the_sample() -> None:
    named: dict[str, tuple[str, str]] = {}
    for names, kinds, shape in re.findall(r"^\| (`\w+/.*?) \| (.*?) \| (\(.*?\)) \|", CARD, re.M):
        group = re.match(r"`(\w+)/", names)
        assert group is not None
        members = re.findall(r"`(?:\w+/)?(\w+)`", names)
        each = kinds.split(", ") if ", " in kinds else [kinds] * len(members)
        for member, kind in zip(members, each, strict=True):
            named[f"{group[1]}/{member}"] = (kind, shape)
    with h5py.File(ROOT / "datasets" / "sample.h5") as file:
        there = {
            f"{group}/{name}": dataset for group in file for name, dataset in file[group].items()
        }
        letters = {"N": len(there["transitions/action"]), "E": 200, "M": 2000}
        assert set(named) == set(there)
        for name, (kind, shape) in named.items():
            lengths = re.findall(r"\w+", shape)
            assert there[name].shape == tuple(int(letters.get(part, part)) for part in lengths)
            assert kind in (str(there[name].dtype), "as above")


@pytest.mark.parametrize(
    ("script", "arguments", "at_least"),
    [("decision_tree", ["--operations", "500"], 97.0), ("gru", ["--epochs", "2"], 40.0)],
)
def test_the_example_scripts_import_nothing_of_this_project_and_learn(
    script: str, arguments: list[str], at_least: float
) -> None:
    pytest.importorskip("sklearn")
    path = ROOT / "datasets" / "examples" / f"{script}.py"
    source = path.read_text()
    assert not re.search(rf"^\s*(?:import|from) (?:{'|'.join(OURS)})\b", source, re.M)
    code = (
        f"import runpy, sys; sys.argv = {[str(path), *arguments]!r}; runpy.run_path({str(path)!r})"
    )
    accuracy = re.search(r"validation accuracy ([\d.]+)%", run_alone(code))
    assert accuracy is not None
    assert float(accuracy[1]) > at_least


def interpreter_with(package: str) -> str:
    """Return the interpreter that runs the example of a package, which may need its own.

    It is the one in the variable D3RLPY_PYTHON or TORCHRL_PYTHON, or else this one.
    """
    variable = f"{package.upper()}_PYTHON"
    interpreter = os.environ.get(variable, sys.executable)
    found = subprocess.run(
        [interpreter, "-c", f"import {package}"], capture_output=True, check=False
    )
    if found.returncode != 0:
        pytest.skip(f"{package} is not installed: give {variable}, the Python of an environment")
    return interpreter


@pytest.mark.parametrize(
    ("package", "to", "at_least"), [("d3rlpy", "d4rl", 50.0), ("torchrl", "minari", 50.0)]
)
def test_the_examples_of_other_libraries_learn_from_an_export(
    package: str, to: str, at_least: float, tmp_path: Path
) -> None:
    interpreter = interpreter_with(package)
    output = tmp_path / "exported"
    sample = ROOT / "datasets" / "sample.h5"
    words = [str(sample), "--to", to, "--output", str(output), "--n-operations", "300"]
    assert run(export.main, export.Options, "", export.EXAMPLE, words) == 0
    script = ROOT / "datasets" / "examples" / f"{package}_cloning.py"
    assert not re.search(rf"^\s*(?:import|from) (?:{'|'.join(OURS)})\b", script.read_text(), re.M)
    source = [output] if to == "d4rl" else ["sample-v0", "--root", output]
    done = subprocess.run(
        [interpreter, script, *source, "--updates", "200"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    accuracy = re.search(r"validation accuracy ([\d.]+)%", done.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) > at_least
