"""What starts without heavy libraries: the help of every command, games, certificates, reading."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pipelines.job.command_line import _EXTRAS
from tests.pipelines.without_libraries import EXTRAS, ROOT, run_without

OURS = ("abacus", "oracle", "pipelines")
HELP_OF_ALL = """
import contextlib, io, sys
from pipelines.__main__ import command_names, main
for name in command_names():
    sys.argv = ["abacus", name, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main()
    print(name, text.getvalue().startswith("usage: abacus " + name))
"""


def test_help_imports_neither_compiled_code_nor_libraries_that_take_long(tmp_path: Path) -> None:
    hidden = (*EXTRAS, "numba", "h5py", "safetensors")
    done = run_without(hidden, tmp_path, ["-c", HELP_OF_ALL])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= 11
    assert all(line.endswith(" True") for line in lines), done.stdout + done.stderr


def test_help_of_a_command_that_imports_too_much_would_be_seen(tmp_path: Path) -> None:
    done = run_without(["gymnasium"], tmp_path, ["-c", HELP_OF_ALL])
    assert "No module named 'gymnasium'" in done.stderr


READ_AND_STEP = """
import gymnasium, abacus
from oracle.demos import Demonstrations
env = gymnasium.make("Abacus-v0", expression="3+4")
env.reset(seed=0)
demonstrations = Demonstrations.open("datasets/sample.h5", verify=True)
print(abacus.__version__, len(demonstrations.observations(slice(8))["symbol"]))
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-c", READ_AND_STEP], " 8\n"),
        (["-m", "pipelines", "play", "12+34"], "correct in 38 steps: the abacus shows 46"),
        (["-m", "pipelines", "play", "12+34", "--html", "FOLDER/page.html"], "wrote "),
        (["-m", "pipelines", "certify"], "EXACT: right on operands of every length"),
        (["-m", "pipelines", "inspect-demos", "datasets/sample.h5"], "transitions"),
    ],
    ids=["environment", "play", "page", "certify", "inspect"],
)
def test_the_core_needs_no_library_of_the_extras(
    arguments: list[str], expected: str, tmp_path: Path
) -> None:
    arguments = [each.replace("FOLDER", str(tmp_path)) for each in arguments]
    done = run_without(EXTRAS, tmp_path, arguments)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize(
    ("command", "library", "extra"),
    [
        (["bc-then-ppo"], "torch", "train"),
        (["study", "--status"], "pandas", "train"),
        (["evaluate", "random"], "scipy", "evaluate"),
        (["certify", "--own-runs"], "scipy", "evaluate"),
    ],
)
def test_a_missing_library_is_one_line_that_names_its_extra(
    command: list[str], library: str, extra: str, tmp_path: Path
) -> None:
    done = run_without(EXTRAS, tmp_path, ["-m", "pipelines", *command])
    line = f"{library} is not installed: pip install 'virtual-abacus[{extra}]'"
    assert (done.returncode, done.stderr) == (2, f"abacus {command[0]}: {line}\n")


def test_extras_hold_the_libraries_that_messages_say_they_hold() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    held = {
        extra: {Requirement(line).name for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }
    assert [name for name, extra in _EXTRAS.items() if name not in held[extra]] == []
    sources = [path.read_text() for name in OURS for path in (ROOT / name).rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"virtual-abacus\[(\w+)\]", text)}
    assert {"minari", "parquet"} <= named
    assert named <= set(held)
    core = {Requirement(line).name for line in project["dependencies"]}
    assert core & held["train"] == {"gymnasium"}
