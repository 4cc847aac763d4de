"""The report of an evaluation: one page, Markdown and JSON, with the findings on top."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from oracle.files import atomic_write_text
from pipelines.job.pages import render_page
from pipelines.job.tables import Table, counted, interval, markdown_text, percent
from pipelines.scoring import paper
from pipelines.scoring.figures import Picture, pictures_of
from pipelines.scoring.operations import PAPER_DIGITS
from pipelines.scoring.protocol import Results
from pipelines.scoring.scores import ErrorRate, Runs, Score
from pipelines.scoring.tables import tables_of

FORMAT, VERSION = "virtual-abacus-evaluation", 1
HTML_FILE, MARKDOWN_FILE, JSON_FILE = "report.html", "report.md", "report.json"
#: Key, title, figures and tables of each section of the page.
SECTIONS = (
    ("certificate", "Certificate", (), ("counterexamples",)),
    ("generalisation", "Longer operands", ("generalisation",), ("generalisation", "by_operation")),
    ("adversarial", "Adversarial sets", (), ("adversarial",)),
    ("errors", "Errors", ("classes", "columns"), ("error_classes", "fates", "columns")),
    ("runs", "Runs of operations", ("runs",), ("runs",)),
    ("curves", "Learning curves", ("curves",), ("curves",)),
)
#: What the page calls policies of each kind, beside the authors' agent.
SUBJECTS = {
    "trained policy": "your run",
    "zip of Stable-Baselines3": "your run",
    "Python function": "your function",
    "published policy": "the published policy",
    "reference algorithm": "the teacher",
}
#: Examples of errors, in all and for each length of operands.
MOST_EXAMPLES, EXAMPLES_EACH = 8, 4


@dataclass(frozen=True)
class Finding:
    """A label, a figure, and a sentence that explains it."""

    label: str
    figure: str
    detail: str
    verdict: Literal["good", "bad", "plain"] = "plain"


def findings_of(results: Results) -> list[Finding]:
    """Summarise the results in a few lines."""
    return list(_findings(results))


def _findings(results: Results) -> Iterator[Finding]:
    if results.stopped:
        yield Finding(
            "Stopped", "not complete", "Stopped before the end: these are the parts done.", "bad"
        )
    certificate = results.certificate
    if certificate:
        total = f"{certificate.observations:,} observations, all that operands of any length show"
        if certificate.exact:
            detail = f"Agrees with the teacher on {total}: right at every length."
            yield Finding("Certificate", "exact", detail, "good")
        elif any(score.errors for score in (*results.generalisation, *results.adversarial)):
            detail = f"{certificate.disagreements:,} wrong of {total}."
            yield Finding("Certificate", "not exact", detail, "bad")
        else:
            detail = (
                f"Differs from the teacher on {certificate.disagreements:,} of {total}, but made "
                "no error here: certify --own-runs tells whether its own algorithm is exact."
            )
            yield Finding("Certificate", "not the teacher's", detail)
    for score in results.generalisation:
        if score.digits == PAPER_DIGITS:
            yield _error_rate(score)
    if results.generalisation:
        longest = results.generalisation[-1]
        yield Finding(
            "Longest operands",
            f"{longest.digits:,} digits",
            f"{_errors_of(longest.rate())}. The authors went to {PAPER_DIGITS}.",
            "plain" if longest.errors else "good",
        )
    if results.adversarial:
        yield _adversarial(results.adversarial)
    if results.runs:
        runs = results.runs[0]
        authors = paper.LONGEST_RUNS[runs.operations]
        at_limit = f" ({runs.limited:,} reached the limit)" if runs.limited else ""
        yield Finding(
            "Longest run",
            f"{runs.longest:,}",
            f"Operations solved in one of {runs.episodes:,} episodes{at_limit}. The authors' "
            f"agent: {authors:,}.",
            "good" if runs.longest > authors else "plain",
        )


def _errors_of(rate: ErrorRate) -> str:
    return f"{counted(rate.errors, 'error')} in {counted(rate.trials, 'operation')}"


def _error_rate(score: Score) -> Finding:
    rate, authors = score.rate(), ErrorRate(*paper.ERRORS_AT_16)
    return Finding(
        f"Error rate, {score.name}",
        percent(rate.rate),
        f"{_errors_of(rate)} (95 %: {interval(rate.low, rate.high)}). The authors' agent: "
        f"{percent(authors.rate)}.",
        "good" if rate.high < authors.low else "bad" if rate.low > authors.high else "plain",
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
        f"{_errors_of(rate)} of {len(scores)} sets.{where}",
        "plain" if rate.errors else "good",
    )


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    key: str
    title: str
    pictures: list[Picture]
    tables: list[Table]


@dataclass(frozen=True)
class Report:
    """Results, with the policy and the settings that they belong to."""

    policy: dict[str, Any]
    settings: dict[str, Any]
    results: Results

    @property
    def subject(self) -> str:
        """What was evaluated, in a few words: `your run`."""
        return SUBJECTS.get(self.policy["kind"], "this policy")

    def write(self, folder: Path) -> list[Path]:
        """Write the three files, and return their paths."""
        contents = {
            HTML_FILE: self.html(),
            MARKDOWN_FILE: self.markdown(),
            JSON_FILE: json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n",
        }
        for name, content in contents.items():
            atomic_write_text(folder / name, content)
        return [folder / name for name in contents]

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain values."""
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
            "generalisation": [_score_dict(score) for score in results.generalisation],
            "adversarial": [_score_dict(score) for score in results.adversarial],
            "errors": [analysis.to_dict() for analysis in results.errors],
            "runs": [_runs_dict(runs) for runs in results.runs],
            "curves": [asdict(curve) for curve in results.curves],
            "tables": [asdict(table) for table in tables_of(results, self.subject)],
            "replays": [replay.to_dict() for replay in results.replays],
        }

    def markdown(self) -> str:
        """Return the report as text."""
        parts = [f"# Evaluation of {markdown_text(self.policy['name'])}\n"]
        parts += [f"- **{f.label}: {f.figure}.** {f.detail}" for f in findings_of(self.results)]
        parts.append("")
        parts += [table.markdown() for table in tables_of(self.results, self.subject)]
        parts.append("## Examples of errors\n")
        parts.append("State (S), input (I), output (O), truth (T), as in the paper's Table 3.\n")
        for example, description in _examples(self.results):
            parts += [
                f"- {description}",
                f"  - S {example.state}",
                f"  - I {example.input}",
                f"  - O {_marked(example)}",
                f"  - T {example.truth}",
            ]
        parts.append("\n## Configuration\n")
        parts += [f"- {name}: {markdown_text(value)}" for name, value in self._configuration()]
        return "\n".join(parts) + "\n"

    def html(self) -> str:
        """Return the report as a page that works offline."""
        return render_page(
            HTML_FILE,
            policy=self.policy,
            subject=self.subject,
            findings=findings_of(self.results),
            sections=self._sections(),
            examples=_examples(self.results),
            replays=[replay.to_dict() for replay in self.results.replays],
            configuration=self._configuration(),
        )

    def _sections(self) -> list[Section]:
        """Return the sections that have a table."""
        pictures = {picture.key: picture for picture in pictures_of(self.results, self.subject)}
        tables = {table.key: table for table in tables_of(self.results, self.subject)}
        sections = (
            Section(
                key,
                title,
                [pictures[name] for name in picture_keys if name in pictures],
                [tables[name] for name in table_keys if name in tables],
            )
            for key, title, picture_keys, table_keys in SECTIONS
        )
        return [section for section in sections if section.tables]

    def _configuration(self) -> list[tuple[str, str]]:
        policy = {f"policy {name}": value for name, value in self.policy.items()}
        return [(name, _value_words(value)) for name, value in (policy | self.settings).items()]


def _score_dict(score: Score) -> dict[str, Any]:
    rate = score.rate()
    return {
        **asdict(score),
        "operations": score.operations,
        "errors": score.errors,
        "error_rate": rate.rate,
        "interval": [rate.low, rate.high],
        "complete": score.complete,
    }


def _runs_dict(runs: Runs) -> dict[str, Any]:
    return {**asdict(runs), "longest": runs.longest, "median": runs.median}


def _value_words(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _examples(results: Results) -> list[tuple[paper.ErrorExample, str]]:
    """Choose examples of errors, those of the longest operands first; the authors' come last."""
    chosen: list[tuple[paper.ErrorExample, str]] = []
    for analysis in reversed(results.errors):
        for example in analysis.examples[: min(EXAMPLES_EACH, MOST_EXAMPLES - len(chosen))]:
            actions = f", {example.policy_action} for {example.teacher_action}"
            description = (
                f"{analysis.name}: {example.error_class} in column {example.column}"
                f"{actions if example.policy_action else ''}; {example.spread}"
            )
            chosen.append((example, description))
    return [*chosen, *((example, "authors") for example in paper.EXAMPLES)]


def _marked(example: paper.ErrorExample) -> str:
    """Return the output with its wrong digits in bold."""
    marked = (
        f"**{digit}**" if place in example.wrong_places else digit
        for place, digit in enumerate(example.output)
    )
    return "".join(marked).replace("****", "")
