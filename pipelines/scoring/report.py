"""The answer on top: a few lines that say how good a policy is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal, Protocol

from oracle.files import atomic_write_text
from pipelines.job.pages import read_asset, render_page
from pipelines.scoring import paper as published
from pipelines.scoring.figures import Picture, pictures_of
from pipelines.scoring.protocol import Results
from pipelines.scoring.scores import ErrorRate, Runs, Score
from pipelines.scoring.tables import Table, percent, tables_of

Verdict = Literal["good", "bad", "plain"]


@dataclass(frozen=True)
class Finding:
    """A label, a figure, and a sentence that explains it."""

    label: str
    figure: str
    detail: str
    verdict: Verdict = "plain"


def findings_of(results: Results) -> list[Finding]:
    """What to know first."""
    return list(_findings(results))


def _findings(results: Results) -> Iterator[Finding]:
    if results.stopped:
        yield Finding(
            "Stopped", "not complete", "Stopped before the end: this is what was done.", "bad"
        )
    if results.certificate:
        yield _certificate(results)
    score = _paper_score(results.generalisation)
    if score:
        yield _error_rate(score)
    if results.generalisation:
        yield _longest_operands(results.generalisation[-1])
    if results.adversarial:
        yield _adversarial(results.adversarial)
    if results.runs:
        yield _runs_finding(results)


def _paper_score(scores: list[Score]) -> Score | None:
    return next((score for score in scores if score.digits == 16), None)


def _certificate(results: Results) -> Finding:
    certificate = results.certificate
    assert certificate is not None
    asked = f"{certificate.observations:,} observations, all that operands of any length can show"
    if certificate.exact:
        return Finding(
            "Certificate",
            "exact",
            f"Answers as the teacher on {asked}: right at every length.",
            "good",
        )
    return Finding(
        "Certificate", "not exact", f"{certificate.disagreements:,} wrong of {asked}.", "bad"
    )


def _error_rate(score: Score) -> Finding:
    rate = score.rate()
    authors = ErrorRate(*published.ERRORS_AT_16)
    return Finding(
        "Error rate, 16 digits",
        percent(rate.rate),
        f"{rate.errors:,} errors in {rate.trials:,} operations (95 %: {percent(rate.low)} to "
        f"{percent(rate.high)}). The authors' agent: {percent(authors.rate)}.",
        "good" if rate.high < authors.low else "bad" if rate.low > authors.high else "plain",
    )


def _longest_operands(score: Score) -> Finding:
    return Finding(
        "Longest operands",
        f"{score.digits:,} digits",
        f"{score.errors:,} errors in {score.operations:,} operations. The authors went to 16.",
        "plain" if score.errors else "good",
    )


def _adversarial(scores: list[Score]) -> Finding:
    rate = ErrorRate(
        sum(score.errors for score in scores), sum(score.operations for score in scores)
    )
    worst = max(scores, key=lambda score: score.rate().rate)
    where = f" Most in {worst.name}." if rate.errors else ""
    return Finding(
        "Adversarial sets",
        percent(rate.rate),
        f"{rate.errors:,} errors in {rate.trials:,} operations of {len(scores)} sets.{where}",
        "plain" if rate.errors else "good",
    )


def _runs_finding(results: Results) -> Finding:
    runs = results.runs[0]
    at_limit = f" ({runs.limited:,} reached the limit)" if runs.limited else ""
    return Finding(
        "Longest run",
        f"{runs.longest:,}",
        f"Operations solved in one of {runs.episodes:,} episodes{at_limit}. The authors' agent: "
        f"{published.LONGEST_RUNS[runs.operations]:,}.",
        "good" if runs.longest > published.LONGEST_RUNS[runs.operations] else "plain",
    )


FORMAT, VERSION = "virtual-abacus-evaluation", 1
HTML_FILE, MARKDOWN_FILE, JSON_FILE = "report.html", "report.md", "report.json"
#: Figures and tables of the page, under their headings.
SECTIONS = (
    ("certificate", "Certificate", (), ("counterexamples",)),
    ("generalisation", "Longer operands", ("generalisation",), ("generalisation", "by_operation")),
    ("adversarial", "Adversarial sets", (), ("adversarial",)),
    ("errors", "Errors", ("classes", "columns"), ("error_classes", "fates", "columns")),
    ("runs", "Runs of operations", ("runs",), ("runs",)),
    ("curves", "Learning curves", ("curves",), ("curves",)),
)
MOST_EXAMPLES = 8


class ErrorExample(Protocol):
    """A failed operation, ours or the authors'."""

    @property
    def state(self) -> str: ...
    @property
    def input(self) -> str: ...
    @property
    def output(self) -> str: ...
    @property
    def truth(self) -> str: ...
    @property
    def wrong_places(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Report:
    """Results with what they are about."""

    policy: dict[str, Any]
    settings: dict[str, Any]
    results: Results

    def write(self, folder: Path) -> list[Path]:
        """Writes the three files; returns their paths."""
        contents = {
            HTML_FILE: self.html(),
            MARKDOWN_FILE: self.markdown(),
            JSON_FILE: json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n",
        }
        for name, content in contents.items():
            atomic_write_text(folder / name, content)
        return [folder / name for name in contents]

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain values."""
        results = self.results
        certificate = results.certificate
        return {
            "format": FORMAT,
            "version": VERSION,
            "complete": not results.stopped,
            "policy": self.policy,
            "settings": self.settings,
            "summary": [asdict(finding) for finding in findings_of(results)],
            "certificate": None if certificate is None else json.loads(certificate.to_json()),
            "generalisation": [_score(score) for score in results.generalisation],
            "adversarial": [_score(score) for score in results.adversarial],
            "errors": [analysis.to_dict() for analysis in results.errors],
            "runs": [_runs(runs) for runs in results.runs],
            "curves": [asdict(curve) for curve in results.curves],
            "tables": [asdict(table) for table in tables_of(results)],
            "replays": [replay.to_dict() for replay in results.replays],
        }

    def markdown(self) -> str:
        """The report as text."""
        parts = [f"# Evaluation of {self.policy['name']}\n"]
        parts += [f"- **{f.label}: {f.figure}.** {f.detail}" for f in findings_of(self.results)]
        parts.append("")
        parts += [table.markdown() for table in tables_of(self.results)]
        parts += _markdown_examples(self.results)
        parts.append("## Configuration\n")
        parts += [f"- {name}: {_shown(value)}" for name, value in self._configuration()]
        return "\n".join(parts) + "\n"

    def html(self) -> str:
        """The report as a page that needs nothing else."""
        body = "\n".join([*self._head(), *self._sections(), *self._replay(), *self._settings()])
        title = f"Evaluation of {self.policy['name']}"
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            # Without an icon of its own, a browser would ask for one.
            '<link rel="icon" href="data:,">\n'
            f"<title>{escape(title)}</title>\n{render_page('drawing.html')}\n"
            f"<style>\n{read_asset('report.css')}</style>\n</head>\n"
            f"<body>\n{body}\n</body>\n</html>\n"
        )

    def _head(self) -> Iterator[str]:
        findings = findings_of(self.results)
        yield f"<header><h1>Evaluation of {escape(self.policy['name'])}</h1>"
        yield (
            f'<p class="faint">{escape(self.policy["kind"])}, base {self.policy["base"]}, '
            f"{self.policy['frames']} frames. “Authors” are the figures that Petruzzellis, Chen "
            "and Testolin published.</p>"
        )
        links = [(key, title) for key, title, _, _ in self._present()]
        links += [("replays", "Replays")] if self.results.replays else []
        links.append(("configuration", "Configuration"))
        yield "<nav>" + "".join(f'<a href="#{key}">{title}</a>' for key, title in links) + "</nav>"
        yield "</header>\n<main>"
        yield f'<div class="findings">{"".join(_card(finding) for finding in findings)}</div>'

    def _present(self) -> list[tuple[str, str, list[Picture], list[Table]]]:
        """The sections that have something to show."""
        pictures = {picture.key: picture for picture in pictures_of(self.results)}
        tables = {table.key: table for table in tables_of(self.results)}
        present = []
        for key, title, picture_keys, table_keys in SECTIONS:
            own_pictures = [pictures[name] for name in picture_keys if name in pictures]
            own_tables = [tables[name] for name in table_keys if name in tables]
            if own_tables:
                present.append((key, title, own_pictures, own_tables))
        return present

    def _sections(self) -> Iterator[str]:
        for key, title, pictures, tables in self._present():
            yield f'<section id="{key}"><h2>{title}</h2>'
            yield from (_figure(picture) for picture in pictures)
            yield from (_table(table) for table in tables)
            if key == "errors":
                yield from _html_examples(self.results)
            yield "</section>"

    def _replay(self) -> Iterator[str]:
        if not self.results.replays:
            return
        replays = [replay.to_dict() for replay in self.results.replays]
        yield '<section id="replays"><h2>Replays</h2>'
        yield render_page("replay.html", replays=replays)
        yield "</section>"

    def _settings(self) -> Iterator[str]:
        yield '<section id="configuration"><h2>Configuration</h2><dl class="settings">'
        for name, value in self._configuration():
            yield f"<dt>{escape(name)}</dt><dd>{escape(_shown(value))}</dd>"
        yield "</dl></section>\n</main>"

    def _configuration(self) -> list[tuple[str, Any]]:
        named = [(f"policy {name}", value) for name, value in self.policy.items()]
        return [*named, *self.settings.items()]


def _score(score: Score) -> dict[str, Any]:
    rate = score.rate()
    return {
        **asdict(score),
        "operations": score.operations,
        "errors": score.errors,
        "error_rate": rate.rate,
        "interval": [rate.low, rate.high],
        "complete": score.complete,
    }


def _runs(runs: Runs) -> dict[str, Any]:
    return {**asdict(runs), "longest": runs.longest, "median": runs.median}


def _shown(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _card(finding: Finding) -> str:
    return (
        f'<div class="finding {finding.verdict}"><div>{escape(finding.label)}</div>'
        f'<div class="figure">{escape(finding.figure)}</div><p>{escape(finding.detail)}</p></div>'
    )


def _figure(picture: Picture) -> str:
    svg = picture.svg.replace(
        "<svg ", f'<svg role="img" aria-label="{escape(picture.alt, quote=True)}" ', 1
    )
    return f"<figure>{svg}<figcaption>{escape(picture.title)}</figcaption></figure>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f"<h3>{escape(table.title)}</h3><p>{escape(table.note)}</p>"
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f'<table data-key="{table.key}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _marked(example: ErrorExample, before: str, after: str) -> str:
    """The output with its wrong digits marked."""
    return "".join(
        f"{before}{digit}{after}" if place in example.wrong_places else digit
        for place, digit in enumerate(example.output)
    )


def _html_example(example: ErrorExample, said: str, kind: str) -> str:
    output = _marked(example, "<mark>", "</mark>")
    rows = (("S", example.state), ("I", example.input), ("O", output), ("T", example.truth))
    cells = "".join(
        f'<tr><th scope="row">{name}</th><td class="numeral">{text}</td></tr>'
        for name, text in rows
    )
    return f'<div class="example {kind}"><p>{escape(said)}</p><table>{cells}</table></div>'


def _html_examples(results: Results) -> Iterator[str]:
    ours = _chosen_examples(results)
    yield "<h3>Examples of errors</h3>"
    yield (
        "<p>State of the abacus (S), input (I), output (O) and truth (T) in the abacus's base, "
        "wrong digits marked, as in the paper's Table 3; the authors' own four come last.</p>"
    )
    cards = [_html_example(example, said, "ours") for example, said in ours]
    cards += [_html_example(example, "authors", "authors") for example in published.EXAMPLES]
    yield f'<div class="examples">{"".join(cards)}</div>'


def _chosen_examples(results: Results) -> Sequence[tuple[ErrorExample, str]]:
    """Some of every kind of operands that has errors, with a line that says what went wrong."""
    chosen: list[tuple[ErrorExample, str]] = []
    # The longest first: those are the paper's.
    for analysis in reversed(results.errors):
        for example in analysis.examples[: MOST_EXAMPLES - len(chosen)][:4]:
            did = f", {example.policy_action} for {example.teacher_action}"
            said = (
                f"{analysis.name}: {example.error_class} in column {example.column}"
                f"{did if example.policy_action else ''}; {example.spread}"
            )
            chosen.append((example, said))
    return chosen


def _markdown_examples(results: Results) -> Iterator[str]:
    yield "## Examples of errors\n"
    yield "State (S), input (I), output (O), truth (T), as in the paper's Table 3.\n"
    examples = [
        *_chosen_examples(results),
        *((example, "authors") for example in published.EXAMPLES),
    ]
    for example, said in examples:
        yield f"- {said}"
        for name, text in (
            ("S", example.state),
            ("I", example.input),
            ("O", _marked(example, "**", "**").replace("****", "")),
            ("T", example.truth),
        ):
            yield f"  - {name} {text}"
    yield ""
