"""The report of the study: complete, readable by machines, possible at any time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.experiments.records import Record, frame_of
from pipelines.experiments.report import SUMMARY_FILE, TABLES_FILE, summary, write_report
from pipelines.experiments.store import MissingCell
from tests.pipelines.experiments.synthetic_records import cell, record, score, seeds, study

COMMAND = "python -m pipelines.study --report"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    records = [r for r in study((0, 10), seeds_of_each=3, points=2) if r.cell.reward == "none"]
    records += seeds([0.7, 0.8, 0.9], demonstrations=0, curve=((0, 0.0), (1000, 0.8)))
    # The first was recorded twice.
    folder = tmp_path_factory.mktemp("report")
    return write_report([*records, records[0]], [MissingCell(cell(seed=9), None)], folder, COMMAND)


def test_every_returned_file_exists(report: list[Path]) -> None:
    assert all(path.stat().st_size for path in report)
    assert sorted(path.name for path in report[0].parent.iterdir()) == sorted(
        path.name for path in report
    )


def test_the_page_shows_the_figures_and_its_command(report: list[Path]) -> None:
    folder = report[0].parent
    page = (folder / TABLES_FILE).read_text()
    assert f"`{COMMAND}`" in page
    images = set(re.findall(r"\]\(([^)]+)\)", page))
    assert images == {path.name for path in report if path.suffix == ".png"}
    headings = re.findall("^## (.+)$", page, re.MULTILINE)
    assert len(headings) == len(set(headings)) >= 6
    assert str(folder) not in page


def test_the_numbers_are_standard_json(report: list[Path]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = (report[0].parent / SUMMARY_FILE).read_text()
    numbers = json.loads(text, parse_constant=refuse)
    assert numbers["command"] == COMMAND
    assert numbers["records"] == sum(part["records"] for part in numbers["comparisons"].values())
    # Clones, three times DAgger, teaching, GAIL and PPO, with three seeds each.
    assert numbers["records"] == 7 * 3
    assert set(numbers["comparisons"]) == {"supervision", "teacher", "reward"}
    assert (numbers["failed"], numbers["not_run"]) == (0, 1)


def one(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (row,) = (r for r in rows if all(r[name] == value for name, value in wanted.items()))
    return row


def test_the_numbers_are_those_of_the_records() -> None:
    records: list[Record] = [
        *seeds([0.5, 0.6, 0.7, 0.8], arm="cloning", demonstrations=3),
        *seeds([1.0] * 4, arm="cloning", demonstrations=20),
        *seeds([0.9, 0.9, 1.0, 1.0], clone=score(0.95), demonstrations=3, curve=((1000, 0.75),)),
        *seeds([0.1] * 4, demonstrations=0, curve=((1000, 0.25),), run=7),
        *seeds([0.1] * 4, demonstrations=0, reward="no_of", run=9),
    ]
    missing = [MissingCell(cell(seed=9), "no memory"), MissingCell(cell(seed=8), None)]
    numbers = summary(frame_of(records), missing, COMMAND)
    assert (numbers["failed"], numbers["not_run"]) == (1, 1)
    cloning = one(numbers["settings"], arm="cloning", demonstrations=3)
    assert cloning["accuracy"]["value"] == pytest.approx(0.65)
    assert (cloning["seeds"], cloning["exact_as_the_teacher"], cloning["proven"]) == (4, 0, 0)
    tuned = one(numbers["settings"], arm="ppo", demonstrations=3)
    assert tuned["stage_steps"] == [{"ppo": 1000}] * 4
    exact = numbers["demonstrations_to_exact"]
    assert one(exact, arm="cloning")["all_seeds"] == {
        "value": 20,
        "low": 20,
        "high": 20,
        "seeds": 4,
    }
    assert one(exact, reward="dense")["all_seeds"]["value"] == "not within this grid"
    added = one(numbers["ppo_added"], demonstrations=3)["final_accuracy"]
    assert added == {"rose": 2, "fell": 2, "seeds": 4}
    (runs,) = numbers["longest_training_runs"]
    assert (runs["best"]["dense"], runs["best"]["no_of"], runs["best"]["addition"]) == (7, 9, None)
    assert runs["order_reproduced_by_best"] == "yes (of 2 columns)"


def test_a_report_without_records(tmp_path: Path) -> None:
    paths = write_report([], [], tmp_path, COMMAND)
    assert [path.name for path in paths] == [TABLES_FILE, SUMMARY_FILE]
    assert json.loads(paths[1].read_text())["records"] == 0


def test_every_single_record_has_a_summary() -> None:
    for alone in study((0, 10), seeds_of_each=1, points=2):
        assert json.dumps(summary(frame_of([alone]), [], COMMAND), allow_nan=False)


def test_records_of_two_grids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one grid"):
        write_report([record(seed=0, steps=1), record(seed=1, steps=2)], [], tmp_path, COMMAND)
    parts = record(seed=1, arm="planning", settings={"mend_without": "two-actions"})
    with pytest.raises(ValueError, match="mend_without"):
        write_report([record(seed=0, arm="planning"), parts], [], tmp_path, COMMAND)
    assert not list(tmp_path.iterdir())
