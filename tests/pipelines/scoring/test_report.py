"""The report: the same cells in the page, the Markdown and the JSON, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from oracle.exact.certificate import Certificate
from pipelines.learning.named_policies import find_policy
from pipelines.scoring import paper
from pipelines.scoring.figures import pictures_of
from pipelines.scoring.protocol import Curve, Results, evaluate_policy
from pipelines.scoring.report import Report, findings_of
from pipelines.scoring.request import Request
from pipelines.scoring.scores import Score
from pipelines.scoring.tables import tables_of

ABOUT = {"name": "<b>policy</b> & co", "kind": "test", "base": 5, "frames": 3, "weights": None}


@pytest.fixture(scope="module")
def results() -> Results:
    request = Request(
        digits=(2, 16),
        n_operations=20,
        sets=("zeros",),
        n_set_operations=20,
        n_episodes=2,
        run_limit=3,
        n_errors=10,
        certificate=False,
    )
    results = evaluate_policy(find_policy("random"), request)
    results.curves.append(Curve("first", (100, 200), (0.4, 0.995)))
    return results


@pytest.fixture(scope="module")
def folder(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    written = Report(ABOUT, {"seed": 0, "logs": []}, results).write(folder)
    assert [path.name for path in written] == ["report.html", "report.md", "report.json"]
    return folder


def page_cells(page: str, key: str) -> list[list[str]]:
    table = re.search(rf'<table data-key="{key}">(.*?)</table>', page, re.DOTALL)
    assert table is not None
    rows = re.findall(r"<tr>(.*?)</tr>", table[1])
    return [[unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t", row)] for row in rows]


def test_the_three_files_hold_the_same_tables(folder: Path) -> None:
    page, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    content = json.loads((folder / "report.json").read_text())
    keys = [table["key"] for table in content["tables"]]
    assert keys == [
        "generalisation", "by_operation", "adversarial", "error_classes", "fates", "columns",
        "runs", "curves",
    ]  # fmt: skip
    for table in content["tables"]:
        assert page_cells(page, table["key"]) == [table["header"], *table["rows"]]
        for row in table["rows"]:
            assert "| " + " | ".join(row) + " |" in text


def test_the_tables_hold_the_numbers_of_the_results(folder: Path, results: Results) -> None:
    content = json.loads((folder / "report.json").read_text())
    table = content["tables"][0]
    for row, score, raw in zip(
        table["rows"], results.generalisation, content["generalisation"], strict=True
    ):
        assert row[:3] == [score.name, f"{score.operations:,}", f"{score.errors:,}"]
        assert raw["errors"] == score.errors
        assert raw["interval"][0] <= raw["error_rate"] <= raw["interval"][1]


def test_the_authors_stand_beside_your_run_where_they_have_figures(results: Results) -> None:
    tables = {table.key: table for table in tables_of(results, "your run")}
    compared = [key for key, table in tables.items() if table.header[-1].startswith("authors")]
    assert compared == ["generalisation", "error_classes", "runs"]
    assert tables["generalisation"].rows[1][-1] == "0.601 %"
    assert [row[-1] for row in tables["runs"].rows] == ["1,145", "907", "675"]
    shares = [row[-1] for row in tables["error_classes"].rows[:4]]
    assert shares == ["32.9 %", "27.7 %", "27.3 %", "12.1 %"]


def test_no_column_is_empty(results: Results) -> None:
    additions = Score("3 digits", 3, 100, additions=100)
    for each in (results, Results(generalisation=[additions])):
        for table in tables_of(each, "your run"):
            for column in zip(*table.rows, strict=True):
                assert set(column) - {"n/a", "drawn only"}, (table.key, column)


@pytest.mark.parametrize("operations", [1, 100, 100_000])
def test_the_axis_of_error_rates_has_at_least_two_numbers(operations: int) -> None:
    """The limits of the axis depend on the number of operations, here without an error."""
    score = Score("16 digits", 16, 2 * operations, additions=operations, subtractions=operations)
    (picture,) = pictures_of(Results(generalisation=[score]), "your run")
    texts = re.findall(r"<text[^>]*>([\d.e-]+)</text>", picture.svg)
    assert len([text for text in texts if text != "16"]) >= 2


@pytest.mark.parametrize(
    ("kind", "subject"), [("trained policy", "your run"), ("reference algorithm", "the teacher")]
)
def test_the_policy_is_called_your_run_if_it_is_one(kind: str, subject: str) -> None:
    results = Results(generalisation=[Score("16 digits", 16, 100, additions=50, subtractions=50)])
    report = Report(ABOUT | {"kind": kind}, {}, results)
    assert f"| class | {subject} | authors (16 digits) |" in report.markdown()
    page = report.html()
    assert f"“{subject.capitalize()}” is the policy evaluated here" in page
    assert f"{subject}, addition" in page


@pytest.mark.parametrize(
    ("different", "errors", "figure", "verdict"),
    [
        (0, 0, "exact", "good"),
        (7, 1, "not exact", "bad"),
        # An algorithm of its own, as that of the published policy reward_dense.
        (7, 0, "not the teacher's", "plain"),
    ],
)
def test_a_policy_is_called_wrong_only_where_it_made_an_error(
    different: int, errors: int, figure: str, verdict: str
) -> None:
    score = Score("16 digits", 16, 100, additions=100, addition_errors=errors)
    certificate = Certificate(5, 3, "before", 99_784, different, 0, None, "0" * 64, None)
    found = findings_of(Results(generalisation=[score], certificate=certificate))
    assert (found[0].figure, found[0].verdict) == (figure, verdict)
    assert found[1].detail.startswith("1 error in 100" if errors else "0 errors in 100")


def test_figures_take_the_colours_of_the_page(folder: Path) -> None:
    """A colour that is dark on white would vanish in dark mode."""
    figures = re.findall(r"<figure>.*?</figure>", (folder / "report.html").read_text(), re.DOTALL)
    assert len(figures) == 5
    for figure in figures:
        assert "var(--ink)" in figure
        assert not re.search("#(27303a|000000|ffffff|dddddd)", figure)


def test_the_page_needs_no_other_file(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    addresses = set(re.findall(r"""https?://[^\s"'<>)]+""", page))
    # The names of formats are addresses that no browser fetches.
    assert all(address.startswith("http://www.w3.org/") for address in addresses)
    assert not re.search(r"<(link|script|img|iframe)[^>]+(src|href)=\"(?!data:|#)", page)
    assert "@import" not in page
    assert "url(http" not in page
    identities = re.findall(r'\bid="([^"]+)"', page)
    assert len(identities) == len(set(identities)), "figures share the names of their parts"


def test_names_are_escaped(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "<b>policy</b>" not in page
    assert "&lt;b&gt;policy&lt;/b&gt; &amp; co" in page


def test_names_are_no_tags_in_markdown(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    assert not re.search(r"<(?=[A-Za-z/!?])", text)
    assert "&lt;" in text


def test_wrong_digits_are_marked_everywhere(folder: Path, results: Results) -> None:
    page, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    example = results.errors[-1].examples[0]
    marked = "".join(
        f"<mark>{digit}</mark>" if place in example.wrong_places else digit
        for place, digit in enumerate(example.output)
    )
    assert marked in page
    assert "11131122400010**0**24" in text
    assert page.count('class="example authors"') == len(paper.EXAMPLES)


def test_a_report_without_errors(tmp_path: Path) -> None:
    results = Results(generalisation=[Score("16 digits", 16, 100, additions=50, subtractions=50)])
    Report(ABOUT, {}, results).write(tmp_path)
    table = {table.key: table for table in tables_of(results, "your run")}["generalisation"]
    assert table.rows[0][2:5] == ("0", "0 %", "0 % to 3.62 %")
    assert "There were no errors to classify" in (tmp_path / "report.md").read_text()


def test_a_report_without_results(tmp_path: Path) -> None:
    Report(ABOUT, {}, Results(stopped=True)).write(tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["complete"] is False
    assert "Stopped before the end" in (tmp_path / "report.html").read_text()


def test_the_summary_judges_by_the_intervals(results: Results) -> None:
    better = Score("16 digits", 16, 100_000, additions=50_000, subtractions=50_000)
    unclear = replace(better, asked=100, additions=50, subtractions=50)
    for score, verdict in (
        (better, "good"),
        (unclear, "plain"),
        (results.generalisation[1], "bad"),
    ):
        finding = findings_of(Results(generalisation=[score]))[0]
        assert finding.verdict == verdict
