"""The command line of a job: flags from a dataclass, one-line errors, exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from pipelines.job.command_line import (
    EXIT_INTERRUPTED,
    EXIT_MISTAKE,
    argument,
    option,
    option_group,
    parse,
    relative_path,
    run,
)

EXAMPLE = "python -m pipelines.job data.h5 --seed 1"


@dataclass(frozen=True)
class Options:
    """Every kind of option."""

    file: Path = argument("the file to read")
    seed: int = option(0, "random seed")
    kind: Literal["a", "b"] = option("a", "choice")
    digits: tuple[int, ...] = option((1, 2), "several numbers, 100 % of them")
    fast: bool = option(False, "a switch")
    given: dict[str, Any] = option_group(
        {"gamma": (float, "discount factor"), "trust": (bool, "a switch in a group")}
    )


def parsed(*words: str) -> Options:
    return parse(Options, "A job.", EXAMPLE, words)


def test_defaults_and_values() -> None:
    assert parsed("x.h5") == Options(Path("x.h5"))
    given = parsed("x.h5", "--seed", "3", "--kind", "b", "--digits", "4", "5", "--fast")
    assert given == Options(Path("x.h5"), 3, "b", (4, 5), True)


@pytest.mark.parametrize("text", ["1000000", "1_000_000", "1e6"])
def test_integers_as_people_write_them(text: str) -> None:
    seed = parsed("x.h5", "--seed", text).seed
    assert seed == 1_000_000
    assert isinstance(seed, int)


def test_a_group_holds_the_flags_that_were_given() -> None:
    assert parsed("x.h5").given == {}
    assert parsed("x.h5", "--gamma", "1", "--no-trust").given == {"gamma": 1.0, "trust": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "file"),
        (["x.h5", "--seed", "1.5"], "invalid int value: '1.5'"),
        (["x.h5", "--seed", "inf"], "invalid int value: 'inf'"),
        (["x.h5", "--kind", "c"], "invalid choice: 'c'"),
        (["x.h5", "--colour", "red"], "--colour"),
        (["x.h5", "--see", "1"], "--see"),
    ],
)
def test_bad_words_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parsed(*words)
    assert stop.value.code == EXIT_MISTAKE
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("pipelines.job: ")
    assert message in error


def test_help_shows_defaults_and_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parsed("--help")
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("A job.", "several numbers, 100 % of them (default: 1 2)", "discount factor"):
        assert words in text
    assert text.endswith(f"example: {EXAMPLE}")


def raising(error: BaseException) -> Callable[[Options], int]:
    def main(options: Options) -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("two\nlines"), EXIT_MISTAKE, "pipelines.job: two lines\n"),
        (ValueError(), EXIT_MISTAKE, "pipelines.job: ValueError\n"),
        (OSError(2, "No such file", "x"), EXIT_MISTAKE, "pipelines.job: No such file (x)\n"),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, "pipelines.job: interrupted\n"),
    ],
)
def test_mistakes_become_one_line_and_a_status(
    error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(error), Options, "A job.", EXAMPLE, ["x.h5"]) == status
    assert capsys.readouterr().err == line


def test_other_errors_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()), Options, "A job.", EXAMPLE, ["x.h5"])


PRINTING_JOB = """
import dataclasses, sys
from pipelines.job.command_line import run
Options = dataclasses.make_dataclass("Options", [])
def main(options):
    for _ in range(10**6):
        print("a line")
sys.exit(run(main, Options, "A job.", "python -m pipelines.job"))
"""


def test_a_closed_pipe_is_silent() -> None:
    command = [sys.executable, "-c", PRINTING_JOB]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stderr is not None
    assert job.stdout.readline() == "a line\n"
    job.stdout.close()
    assert job.stderr.read() == ""
    assert job.wait(60) == EXIT_MISTAKE


def test_paths_are_relative_to_the_working_directory(tmp_path: Path) -> None:
    assert relative_path(Path.cwd() / "runs" / "a") == "runs/a"
    assert relative_path(tmp_path) == str(tmp_path)


def test_messages_are_one_line_of_bounded_length(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("x.h5", "--seed", "9" * 5000 + "x")
    with pytest.raises(SystemExit):
        parsed("x.h5", "two\nlines")
    first, second = capsys.readouterr().err.splitlines()
    assert len(first) < 700
    assert "two lines" in second


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "pipelines.job: not enough memory: give smaller sizes\n"),
        (
            OverflowError("int too big to convert"),
            "pipelines.job: a number is too large (int too big to convert): give a smaller one\n",
        ),
    ],
)
def test_sizes_beyond_the_machine_are_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(error), Options, "A job.", EXAMPLE, ["x.h5"]) == EXIT_MISTAKE
    assert capsys.readouterr().err == line


#: What Ctrl-C meets: the first imports of the package, those of its options, those of the work.
PLACES = (
    "import pipelines.job.command_line",
    "import gymnasium",
    "import numba",
    "import safetensors",
)
INTERRUPTED_IMPORT = """
import builtins, os, signal, sys
imported = builtins.__import__
def interrupting(name, *arguments, **keywords):
    if name.split(".")[:{depth}] == {name!r}.split("."):
        builtins.__import__ = imported
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *arguments, **keywords)
builtins.__import__ = interrupting
"""


@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_during_imports_is_one_line(place: str, tmp_path: Path) -> None:
    name = place.removeprefix("import ")
    code = INTERRUPTED_IMPORT.format(name=name, depth=1 + name.count("."))
    (tmp_path / "sitecustomize.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.play", "1+1", "--plain"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        EXIT_INTERRUPTED,
        "pipelines.play: interrupted\n",
    )


def test_libraries_that_import_the_package_keep_their_handler() -> None:
    code = "import pipelines, signal; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
