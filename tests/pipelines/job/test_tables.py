"""Tables as text, Markdown and HTML, and the wording of numbers."""

from __future__ import annotations

import pytest

from pipelines.job.tables import (
    Table,
    count,
    counted,
    decimal_percent,
    interval,
    percent,
    points,
)

TABLE = Table("key", "A <title>", "A note.", ("name", "n"), (("a & b", "1"), ("c", "1,234")))


def test_text_is_aligned() -> None:
    assert TABLE.text().splitlines() == ["name       n", "a & b      1", "c      1,234"]


def test_markdown_has_title_note_and_cells() -> None:
    lines = ["## A &lt;title>", "", "A note.", "", "| name | n |", "|---|---:|", "| a & b | 1 |"]
    assert TABLE.markdown() == "\n".join([*lines, "| c | 1,234 |", ""])


def test_markdown_without_title_and_note_is_the_cells_alone() -> None:
    assert Table("key", "", "", ("a",), (("1",),)).markdown() == "| a |\n|---|\n| 1 |\n"


def test_html_is_escaped() -> None:
    html = TABLE.html()
    assert "<h3>A &lt;title&gt;</h3>" in html
    assert "<tr><td>a &amp; b</td><td>1</td></tr>" in html
    assert '<table data-key="key">' in html


def test_markdown_holds_no_tag_and_no_cell_more() -> None:
    table = Table("k", "<b>", "", ("a", "b"), (("<img src=x>", "p < 0.05 | two\nlines"),))
    assert table.markdown().splitlines()[0] == "## &lt;b>"
    assert table.markdown().splitlines()[-1] == "| &lt;img src=x> | p < 0.05 \\| two lines |"


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="key: 2 cells under 1 headings"):
        Table("key", "T", "", ("a",), (("1", "2"),))


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.00601, "0.601 %"), (0.5, "50.0 %"), (1, "100.0 %"), (3.7e-5, "0.0037 %"),
     (3e-8, "3e-06 %")],
)  # fmt: skip
def test_percent_has_three_digits(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (1, "100"), (0.978412, "97.84"), (0.99997, "99.997"), (0.000001, "0.0001"),
     (1 - 1e-13, "100")],
)  # fmt: skip
def test_decimal_percent_is_not_rounded_to_none_or_all(share: float, text: str) -> None:
    assert decimal_percent(share) == text


def test_other_numbers() -> None:
    assert (points(0.0125), points(-0.5)) == ("+1.25", "-50.00")
    assert (count(1234.0), count(2.5), count(12.5)) == ("1,234", "2.5", "12")
    assert (counted(1, "digit"), counted(1000, "digit")) == ("1 digit", "1,000 digits")
    assert interval(0, 0.0000369) == "0 % to 0.00369 %"
    assert interval(1, 2000, count) == "1 to 2,000"
