"""The tables of a report, made once: the page, the Markdown and the JSON show the same cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oracle.exact.certificate import Certificate
from pipelines.scoring import paper as published
from pipelines.scoring.errors import CLASS_NAMES, ErrorAnalysis, ErrorClass
from pipelines.scoring.operations import MEANINGS
from pipelines.scoring.protocol import MILESTONES, Results
from pipelines.scoring.scores import ErrorRate, Runs, Score

#: Where the authors published nothing.
NONE = "n/a"
OPERATION_WORDS = {"both": "both operations", "add": "addition", "subtract": "subtraction"}


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first column names the row."""

    key: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"{self.key}: {len(row)} cells under {len(self.header)} headings")

    def markdown(self) -> str:
        """The table, its title and its note."""
        lines = [
            f"## {self.title}",
            "",
            self.note,
            "",
            "| " + " | ".join(self.header) + " |",
            "|" + "|".join(["---"] + ["---:"] * (len(self.header) - 1)) + "|",
            *("| " + " | ".join(row) + " |" for row in self.rows),
        ]
        return "\n".join(lines) + "\n"


def tables_of(results: Results) -> list[Table]:
    """All tables for which there is something to show."""
    return list(_tables(results))


def _tables(results: Results) -> Iterator[Table]:
    if results.certificate and results.certificate.counterexamples:
        yield _counterexamples(results.certificate)
    if results.generalisation:
        yield _generalisation(results.generalisation)
        yield _by_operation(results.generalisation)
    if results.adversarial:
        yield _adversarial(results.adversarial)
    if results.generalisation or results.adversarial:
        yield _error_classes(results.errors)
    if results.errors:
        yield _fates(results.errors)
        yield _columns(results.errors)
    if results.runs:
        yield _runs(results.runs)
    if results.curves:
        yield _curves(results)


def _counterexamples(certificate: Certificate) -> Table:
    return Table(
        "counterexamples",
        "The smallest operations that go wrong",
        f"Of the {certificate.observations:,} observations that the algorithm can meet at any "
        f"width and length, {certificate.disagreements:,} are answered otherwise than by the "
        "teacher. The authors have no certificate.",
        ("operation", f"base {certificate.base}", "step", "symbol", "policy", "teacher", "authors"),
        tuple(
            (
                (f"{example.start} " if example.start else "") + _signed(example.expression),
                example.in_base,
                f"{example.step + 1}",
                example.symbol,
                example.policy_action.lower().replace("_", " "),
                example.teacher_action.lower().replace("_", " "),
                NONE,
            )
            for example in certificate.counterexamples
        ),
    )


def _signed(expression: str) -> str:
    return expression if expression[0] in "+-" else f"+{expression}"


def percent(rate: float) -> str:
    """A rate in per cent, with as many digits as say something."""
    value = 100 * rate
    if value == 0 or value >= 10:
        return f"{value:.1f} %" if value else "0 %"
    return f"{value:.2g} %" if value < 1e-3 else f"{value:.3g} %"


def interval(rate: ErrorRate) -> str:
    """`0 % to 0.00369 %`."""
    return f"{percent(rate.low)} to {percent(rate.high)}"


def _generalisation(scores: list[Score]) -> Table:
    rows = []
    for score in scores:
        rate = score.rate()
        authors = NONE
        if score.digits == 16:
            authors = percent(ErrorRate(*published.ERRORS_AT_16).rate)
        elif score.digits in published.DRAWN_DIGITS:
            authors = "drawn only"
        rows.append(
            (
                score.name,
                f"{score.operations:,}",
                f"{score.errors:,}",
                percent(rate.rate),
                interval(rate),
                f"{score.wrong_results:,}",
                authors,
            )
        )
    return Table(
        "generalisation",
        "Generalisation to longer operands",
        "Both operands have so many digits (the paper's Fig. 4; training had 1 to 6). An error "
        "is an operation with a wrong submit or a wrong result; the interval is that of 95 % by "
        "Clopper and Pearson. The authors' 0.601 % are 601 errors in 100,000.",
        (
            "operands",
            "operations",
            "errors",
            "error rate",
            "95 % interval",
            "wrong results",
            "authors",
        ),
        tuple(rows),
    )


def _by_operation(scores: list[Score]) -> Table:
    rows = []
    for score in scores:
        cells = [score.name]
        for errors, trials in (
            (score.addition_errors, score.additions),
            (score.subtraction_errors, score.subtractions),
        ):
            if trials:
                rate = ErrorRate(errors, trials)
                cells += [f"{errors:,} of {trials:,}", percent(rate.rate), interval(rate)]
            else:
                cells += [NONE] * 3
        rows.append((*cells, NONE))
    return Table(
        "by_operation",
        "Addition and subtraction apart",
        "The same operations; the authors published no such figures.",
        (
            "operands",
            "addition errors",
            "addition rate",
            "addition interval",
            "subtraction errors",
            "subtraction rate",
            "subtraction interval",
            "authors",
        ),
        tuple(rows),
    )


def _adversarial(scores: list[Score]) -> Table:
    return Table(
        "adversarial",
        "Error rates by set",
        f"Operands of 1 to {scores[0].digits - 1} digits, made to be hard. Beyond the paper: the "
        "authors published nothing to compare.",
        ("set", "what it holds", "operations", "errors", "error rate", "95 % interval", "authors"),
        tuple(
            (
                score.name,
                MEANINGS[score.name],
                f"{score.operations:,}",
                f"{score.errors:,}",
                percent(score.rate().rate),
                interval(score.rate()),
                NONE,
            )
            for score in scores
        ),
    )


def _error_classes(errors: list[ErrorAnalysis]) -> Table:
    rows = []
    for name in CLASS_NAMES.values():
        authors = published.ERROR_CLASSES.get(name)
        cells = [
            f"{analysis.classes[name]:,} ({percent(analysis.share(name))})" for analysis in errors
        ] or ["0"]
        rows.append((name, *cells, NONE if authors is None else f"{authors} %"))
    looked = [f"{analysis.analysed:,} of {analysis.failures:,}" for analysis in errors]
    analysed = looked or ["0 of 0"]
    names = [analysis.name for analysis in errors] or ["ours"]
    rows.append(("errors looked at", *analysed, "601 of 601"))
    said = "There were no errors to class. " if not errors else ""
    return Table(
        "error_classes",
        "What the first error is about",
        f"{said}The paper's Table 2, over operands of 16 digits. The classes are defined in "
        f"docs/fidelity.md; “{CLASS_NAMES[ErrorClass.OUT_OF_STEPS]}”, no wrong action but no "
        "answer either, is ours.",
        ("class", *names, "authors (16 digits)"),
        tuple(rows),
    )


def _fates(errors: list[ErrorAnalysis]) -> Table:
    return Table(
        "fates",
        "What became of errors",
        "Healed: the result is right all the same. Stayed: no column above that of the first "
        "error is wrong. Spread: some column above it is. The size is the distance of the output "
        "from the truth. The paper shows both kinds in its Table 3 and counts neither.",
        (
            "operands",
            "healed",
            "stayed",
            "spread",
            "median size / truth",
            "largest size",
            "authors",
        ),
        tuple(
            (
                analysis.name,
                *(f"{count:,}" for count in analysis.spreads.values()),
                _median_size(analysis),
                _counted_digits(max(analysis.error_digits, default=0)),
                NONE,
            )
            for analysis in errors
        ),
    )


def _counted_digits(count: int) -> str:
    return f"{count:,} digit{'' if count == 1 else 's'}"


def _median_size(analysis: ErrorAnalysis) -> str:
    size = analysis.to_dict()["median_relative_size"]
    return NONE if size is None else f"{size:.2g}"


def _columns(errors: list[ErrorAnalysis]) -> Table:
    """The columns of the first errors; beyond twenty, together."""
    most = 20
    highest = max(max(analysis.columns) for analysis in errors)
    rows = [
        (str(column), *(f"{analysis.columns.get(column, 0):,}" for analysis in errors), NONE)
        for column in range(min(highest + 1, most))
    ]
    if highest >= most:
        beyond = (
            sum(count for column, count in analysis.columns.items() if column >= most)
            for analysis in errors
        )
        rows.append((f"{most} and more", *(f"{count:,}" for count in beyond), NONE))
    return Table(
        "columns",
        "Column of the first error",
        f"The paper's Fig. 5, which is a picture: {published.ERRORS_BY_COLUMN}. Column 0 is the "
        "least significant.",
        ("column", *(analysis.name for analysis in errors), "authors"),
        tuple(rows),
    )


def _runs(all_runs: list[Runs]) -> Table:
    return Table(
        "runs",
        "Operations solved in one episode",
        "The world of training: ten columns, operands of 1 to 6 digits. An episode ends at the "
        "first wrong slide or submit, when the abacus is full, or at the limit. The authors' "
        "(Table 1) are the most that were met during training, with both operations at their best "
        "level of supervision (“No OF”; dense 515, “No OF + SP” 773).",
        (
            "operations",
            "episodes",
            "longest",
            "median",
            "ended by a mistake",
            "by capacity",
            "at the limit",
            "authors' longest",
        ),
        tuple(
            (
                OPERATION_WORDS[runs.operations],
                f"{runs.episodes:,}",
                f"{runs.longest:,}",
                f"{runs.median:,.0f}",
                f"{runs.mistakes:,}",
                f"{runs.capacity:,}",
                f"{runs.limited:,} (of {runs.limit:,})",
                f"{published.LONGEST_RUNS[runs.operations]:,}",
            )
            for runs in all_runs
        ),
    )


def _curves(results: Results) -> Table:
    rows = []
    for curve in results.curves:
        reached = (curve.steps_to(accuracy) for accuracy in MILESTONES)
        rows.append(
            (
                curve.name,
                f"{curve.steps[-1]:,}",
                f"{curve.accuracies[-1]:.1%}",
                f"{max(curve.accuracies):.1%}",
                *("not reached" if steps is None else f"{steps:,}" for steps in reached),
                "drawn only",
            )
        )
    return Table(
        "curves",
        "Learning curves",
        "The fraction of operations solved while training (the paper's Figs. 2 and 3, which give "
        "no numbers), and the steps until it was first reached.",
        (
            "run",
            "steps",
            "last accuracy",
            "best accuracy",
            *(f"steps to {accuracy:.0%}" for accuracy in MILESTONES),
            "authors",
        ),
        tuple(rows),
    )
