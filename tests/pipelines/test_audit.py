"""The audit command: its output, its files, and its error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abacus.env import AbacusEnv
from oracle.algorithm import BatchWindow, Variant, reference_algorithm
from pipelines.audit import EXAMPLE, Options, main
from pipelines.job.command_line import run

#: (variant, frames, observations, ambiguous), of any width, in base 5.
EXACT = [
    ("before", 1, 10_340, 2_866),
    ("before", 2, 31_396, 0),
    ("printed", 1, 7_940, 2_380),
    ("printed", 2, 28_786, 114),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "new"
    arguments = ["--frames", "2", "1", "--steps", "2e5", "--output", str(folder)]
    assert run(main, Options, "audit", EXAMPLE, arguments) == 0
    return folder


@pytest.fixture(scope="module")
def rows(written: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((written / "observability.json").read_text())["rows"]
    return found


def test_the_exact_numbers(rows: list[dict[str, Any]]) -> None:
    keys = ("variant", "frames", "observations", "ambiguous")
    assert [tuple(row[key] for key in keys) for row in rows] == EXACT


def test_the_sampled_numbers(rows: list[dict[str, Any]]) -> None:
    """Unlearnable steps occur only with ambiguous observations, and fall with the frames."""
    for row in rows:
        assert row["sampled_steps"] == 200_000
        assert 0 < row["sampled_observations"] <= row["observations"]
        assert row["sampled_ambiguous"] <= row["ambiguous"]
        assert (row["unlearnable_share"] > 0) == (row["ambiguous"] > 0)
    shares = {(row["variant"], row["frames"]): row["unlearnable_share"] for row in rows}
    assert 0.005 < shares["printed", 2] < 0.02 < shares["before", 1] < shares["printed", 1] < 0.25


def test_kinds_add_up_and_few_ambiguities_are_listed(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert sum(kind["observations"] for kind in row["kinds"]) == row["ambiguous"]
        listed = len(row["ambiguous_observations"])
        assert listed == (row["ambiguous"] if row["ambiguous"] <= 200 else 0)


def examples_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(kind["example"] for kind in row["kinds"]), *row["ambiguous_observations"]]


def test_examples_can_be_replayed(rows: list[dict[str, Any]]) -> None:
    """Use only the environment and the reference algorithm, as a reader would."""
    for row in rows:
        for example in examples_of(row):
            seen = {follow(met, row["variant"], row["frames"]) for met in example["met_by"]}
            assert len(seen) == 1
            assert len({met["answer"] for met in example["met_by"]}) == len(example["met_by"]) >= 2


def follow(met: dict[str, Any], variant: Variant, frames: int) -> bytes:
    """Return the observation at the example's step; check the action there."""
    env = AbacusEnv(
        columns=met["columns"], start=met["start"], expression=met["expression"], frames=frames
    )
    observation, _ = env.reset(seed=0)
    algorithm = reference_algorithm(BatchWindow(env.batch), variant)
    for _ in range(met["step"]):
        observation, *_ = env.step(next(algorithm))
    assert next(algorithm).name == met["answer"]
    keys = ("window", "symbol", "operation")
    return b"".join(observation[key].tobytes() for key in keys)


def test_the_page_holds_the_table_and_examples(written: Path) -> None:
    page = (written / "observability.md").read_text()
    assert "| before the write | 2 | 31,396 | 0 |" in page
    assert "| after the write (printed) | 2 | 28,786 | 114 |" in page
    assert "## Signpost moves before the write, 2 frames\n\nNo observation is ambiguous." in page
    assert '- **4 + 1** (`start=4`, `expression="1"`), after 4 steps' in page


def test_the_table_and_the_files_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Options(base=2, frames=(2,), variants=("printed",), steps=1_000, output=tmp_path)
    assert main(settings) == 0
    printed = capsys.readouterr().out
    assert "after the write (printed)       2" in printed
    for name in ("observability.json", "observability.md"):
        assert str(tmp_path / name) in printed
        assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frames", "0"], "frames=0 is not allowed: give an integer from 1 to 6"),
        (["--frames", "7"], "frames=7 is not allowed"),
        (["--steps", "0"], "steps=0 is not allowed: give an integer of 1 or more"),
        (["--base", "11"], "base=11 is not allowed: give an integer from 2 to 10"),
        (["--columns", "6"], "max_digits=6 is not allowed"),
        (["--variants", "after"], "invalid choice: 'after'"),
    ],
)
def test_impossible_values_are_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = run(main, Options, "audit", EXAMPLE, [*arguments, "--output", str(tmp_path)])
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    assert status == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_in_place_of_the_folder_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").touch()
    assert run(main, Options, "audit", EXAMPLE, ["--output", str(tmp_path / "results")]) == 2
    assert "is a file: give a folder" in capsys.readouterr().err
