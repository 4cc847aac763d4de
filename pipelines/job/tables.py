"""Tables as text, Markdown and HTML, and the wording of the numbers in their cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup

#: Cells of settings that were not run.
MISSING = "-"
#: Names of `AbacusConfig.operations` for readers.
OPERATION_WORDS = {"both": "both operations", "add": "addition", "subtract": "subtraction"}
#: Decimals kept of a percentage: what lies below is rounding noise of a mean.
_DECIMALS = 9
#: The beginning of an HTML tag or comment in Markdown.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_HTML = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<h3>{{ table.title }}</h3><p>{{ table.note }}</p>
<div class="wide" tabindex="0" role="region" aria-label="{{ table.title }}">
<table data-key="{{ table.key }}">
<thead><tr>
{%- for cell in table.header -%}
<th scope="col"{{ classes[loop.index0] }}>{{ cell }}</th>
{%- endfor -%}
</tr></thead>
<tbody>
{% for row in table.rows %}
<tr>{% for cell in row %}<td{{ classes[loop.index0] }}>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
""")


@dataclass(frozen=True)
class Table:
    """A table of finished cells; the first column names the rows. Title and note may be empty."""

    key: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"{self.key}: {len(row)} cells under {len(self.header)} headings")

    def text(self) -> str:
        """Return the cells aligned for a terminal, without title and note."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.header))]
        aligned = (
            [f"{line[0]:<{widths[0]}}", *map(str.rjust, line[1:], widths[1:])] for line in lines
        )
        return "\n".join("  ".join(line) for line in aligned)

    def markdown(self) -> str:
        """Return the title as a heading, the note and the cells."""
        lines = [
            *([f"## {markdown_text(self.title)}", ""] if self.title else []),
            *([markdown_text(self.note), ""] if self.note else []),
            _markdown_row(self.header),
            "|" + "|".join(["---"] + ["---:"] * (len(self.header) - 1)) + "|",
            *map(_markdown_row, self.rows),
        ]
        return "\n".join(lines) + "\n"

    def html(self) -> Markup:
        """Return the title as a heading, the note and the cells, escaped."""
        authors = Markup(' class="authors"')  # the style sheet sets the published figures apart
        classes = [authors if name.startswith("authors") else "" for name in self.header]
        return Markup(_HTML.render(table=self, classes=classes))


def table_of(key: str, title: str, note: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """Make a table from rows of named cells; the header is the names of the first row."""
    return Table(key, title, note, tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(markdown_text(cell).replace("|", "\\|") for cell in cells) + " |"


def markdown_text(text: str) -> str:
    """Return text on one line in which nothing is an HTML tag: names of folders can hold any."""
    return _TAG.sub("&lt;", " ".join(text.splitlines()))


def percent(share: float) -> str:
    """Format a share as a percentage with three significant digits: `0.601 %`."""
    value = 100 * share
    if value == 0 or value >= 10:
        return f"{value:.1f} %" if value else "0 %"
    return f"{value:.2g} %" if value < 1e-3 else f"{value:.3g} %"


def decimal_percent(share: float) -> str:
    """Format a share as a percentage with two decimals, without its sign: `97.84`.

    More decimals are given where a value other than 0 or 100 would be rounded to these.
    """
    value, decimals = round(100 * share, _DECIMALS), 2
    while 0 < value < 100 and round(value, decimals) in (0, 100):
        decimals += 1
    return f"{value:.{decimals}f}" if value not in (0, 100) else f"{value:.0f}"


def points(difference: float) -> str:
    """Format a difference of shares in percentage points: `+1.25`."""
    return f"{100 * difference:+.2f}"


def count(value: float) -> str:
    """Format a count, or a mean of counts: `1,234`, or `2.5` below ten."""
    return f"{value:,.1f}" if value < 10 and value != round(value) else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: `1 digit`, `1,000 digits`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def interval(low: float, high: float, wording: Callable[[float], str] = percent) -> str:
    """Format an interval: `0 % to 0.00369 %`."""
    return f"{wording(low)} to {wording(high)}"
