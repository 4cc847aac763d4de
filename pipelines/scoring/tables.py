"""The tables of an evaluation report; where the authors published figures, the last column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from abacus.rules import Action
from oracle.exact.certificate import Certificate
from pipelines.job.tables import OPERATION_WORDS, Table, counted, interval, percent
from pipelines.scoring import paper
from pipelines.scoring.errors import ErrorAnalysis, ErrorClass
from pipelines.scoring.operations import PAPER_DIGITS, SETS
from pipelines.scoring.protocol import Curve, Results
from pipelines.scoring.scores import ErrorRate, Runs, Score

#: Where the authors published nothing, or a drawing without numbers.
NONE, DRAWN_ONLY = "n/a", "drawn only"
#: Accuracies whose first steps are given for learning curves.
MILESTONES = (0.5, 0.9, 0.99)
#: First errors beyond this column are counted together.
MOST_COLUMNS = 20


def tables_of(results: Results, subject: str) -> list[Table]:
    """Return the tables of all parts that have results; `subject` names what was evaluated."""
    return [_without_empty_columns(table) for table in _tables(results, subject)]


def _without_empty_columns(table: Table) -> Table:
    """Return the table without columns in which no row has a value."""
    kept = [
        column
        for column in range(len(table.header))
        if not table.rows or any(row[column] not in (NONE, DRAWN_ONLY) for row in table.rows)
    ]
    return replace(
        table,
        header=tuple(table.header[column] for column in kept),
        rows=tuple(tuple(row[column] for column in kept) for row in table.rows),
    )


def _tables(results: Results, subject: str) -> Iterator[Table]:
    if results.certificate and results.certificate.counterexamples:
        yield _counterexamples(results.certificate, subject)
    if results.generalisation:
        yield _generalisation(results.generalisation)
        yield _by_operation(results.generalisation)
    if results.adversarial:
        yield _adversarial(results.adversarial)
    if results.generalisation or results.adversarial:
        yield _error_classes(results.errors, subject)
    if results.errors:
        yield _spreads(results.errors)
        yield _columns(results.errors)
    if results.runs:
        yield _runs(results.runs)
    if results.curves:
        yield _curves(results.curves)


def _counterexamples(certificate: Certificate, subject: str) -> Table:
    rows = [
        (
            example.calculation,
            example.in_base,
            f"{example.step + 1}",
            example.symbol,
            Action[example.policy_action].words,
            Action[example.teacher_action].words,
        )
        for example in certificate.counterexamples
    ]
    return Table(
        "counterexamples",
        "The smallest operations where it differs from the teacher",
        f"Of the {certificate.observations:,} observations that the algorithm can meet at any "
        f"width and length, the policy differs from the teacher on {certificate.disagreements:,}. "
        "The authors have no certificate.",
        ("operation", f"base {certificate.base}", "step", "symbol", subject, "teacher"),
        tuple(rows),
    )


def _rate_cells(rate: ErrorRate) -> tuple[str, str]:
    return percent(rate.rate), interval(rate.low, rate.high)


def _generalisation(scores: list[Score]) -> Table:
    rows = []
    for score in scores:
        authors = NONE
        if score.digits == PAPER_DIGITS:
            authors = percent(ErrorRate(*paper.ERRORS_AT_16).rate)
        elif score.digits in paper.DRAWN_DIGITS:
            authors = DRAWN_ONLY
        counts = (score.name, f"{score.operations:,}", f"{score.errors:,}")
        rows.append((*counts, *_rate_cells(score.rate()), f"{score.wrong_results:,}", authors))
    return Table(
        "generalisation",
        "Generalisation to longer operands",
        "Both operands have this number of digits (the paper's Fig. 4; training had 1 to 6). An "
        "error is an operation with a wrong submit or a wrong result; the interval is the 95 % "
        "interval of Clopper and Pearson. The authors' 0.601 % are 601 errors in 100,000.",
        (
            *("operands", "operations", "errors", "error rate", "95 % interval"),
            *("wrong results", "authors"),
        ),
        tuple(rows),
    )


def _by_operation(scores: list[Score]) -> Table:
    rows = []
    for score in scores:
        cells: list[str] = []
        for rate in score.rates().values():
            if rate is None:
                cells += [NONE] * 3
            else:
                cells += [f"{rate.errors:,} of {rate.trials:,}", *_rate_cells(rate)]
        rows.append((score.name, *cells))
    return Table(
        "by_operation",
        "Addition and subtraction apart",
        "The same operations; the authors published no such figures.",
        (
            "operands",
            *(f"addition {name}" for name in ("errors", "rate", "interval")),
            *(f"subtraction {name}" for name in ("errors", "rate", "interval")),
        ),
        tuple(rows),
    )


def _adversarial(scores: list[Score]) -> Table:
    return Table(
        "adversarial",
        "Error rates by set",
        f"Operands of 1 to {scores[0].digits - 1} digits, made to be hard. Beyond the paper: the "
        "authors published nothing to compare.",
        ("set", "contents", "operations", "errors", "error rate", "95 % interval"),
        tuple(
            (
                score.name,
                SETS[score.name].description,
                f"{score.operations:,}",
                f"{score.errors:,}",
                *_rate_cells(score.rate()),
            )
            for score in scores
        ),
    )


def _error_classes(errors: list[ErrorAnalysis], subject: str) -> Table:
    rows = []
    for name in (error_class.words for error_class in ErrorClass):
        authors = paper.ERROR_CLASSES.get(name)
        cells = [f"{each.classes[name]:,} ({percent(each.share(name))})" for each in errors]
        rows.append((name, *(cells or ["0"]), NONE if authors is None else f"{authors} %"))
    analysed = [f"{each.analysed:,} of {each.failures:,}" for each in errors]
    rows.append(("errors analysed", *(analysed or ["0 of 0"]), "601 of 601"))
    return Table(
        "error_classes",
        "Class of the first error",
        (f"By the operands of {subject}. " if errors else "There were no errors to classify. ")
        + "The paper's Table 2, over operands of 16 digits. docs/fidelity.md defines the classes; "
        f"“{ErrorClass.OUT_OF_STEPS.words}”, no wrong action but no answer either, is not among "
        "the paper's.",
        ("class", *([each.name for each in errors] or [subject]), "authors (16 digits)"),
        tuple(rows),
    )


def _spreads(errors: list[ErrorAnalysis]) -> Table:
    rows = []
    for analysis in errors:
        size = analysis.to_dict()["median_relative_size"]
        rows.append(
            (
                analysis.name,
                *(f"{count:,}" for count in analysis.spreads.values()),
                NONE if size is None else f"{size:.2g}",
                counted(max(analysis.error_digits, default=0), "digit"),
            )
        )
    return Table(
        "fates",
        "Consequences of errors",
        "Healed: the result is right all the same. Stayed: no column above that of the first "
        "error is wrong. Spread: some column above it is. The size is the distance of the output "
        "from the truth. The paper shows both kinds in its Table 3 and counts neither.",
        ("operands", "healed", "stayed", "spread", "median size / truth", "largest size"),
        tuple(rows),
    )


def _columns(errors: list[ErrorAnalysis]) -> Table:
    highest = max(max(analysis.columns) for analysis in errors)
    rows = [
        (str(column), *(f"{analysis.columns.get(column, 0):,}" for analysis in errors))
        for column in range(min(highest + 1, MOST_COLUMNS))
    ]
    if highest >= MOST_COLUMNS:
        beyond = (
            sum(count for column, count in analysis.columns.items() if column >= MOST_COLUMNS)
            for analysis in errors
        )
        rows.append((f"{MOST_COLUMNS} and more", *(f"{count:,}" for count in beyond)))
    return Table(
        "columns",
        "Column of the first error",
        f"The paper's Fig. 5, which is a picture: {paper.ERRORS_BY_COLUMN}. Column 0 is the "
        "least significant.",
        ("column", *(analysis.name for analysis in errors)),
        tuple(rows),
    )


def _runs(all_runs: list[Runs]) -> Table:
    return Table(
        "runs",
        "Operations solved in one episode",
        "The world of training: ten columns, operands of 1 to 6 digits. An episode ends at the "
        "first wrong slide or submit, when the abacus is full, or at the limit. The authors' "
        "figures (Table 1) are the most operations during training, with both operations at their "
        "best level of supervision (“No OF”; dense 515, “No OF + SP” 773).",
        (
            *("operations", "episodes", "longest", "median", "ended by a mistake", "by capacity"),
            *("at the limit", "authors' longest"),
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
                f"{paper.LONGEST_RUNS[runs.operations]:,}",
            )
            for runs in all_runs
        ),
    )


def _curves(curves: list[Curve]) -> Table:
    rows = []
    for curve in curves:
        reached = (curve.steps_to(accuracy) for accuracy in MILESTONES)
        rows.append(
            (
                curve.name,
                f"{curve.steps[-1]:,}",
                f"{curve.accuracies[-1]:.1%}",
                f"{max(curve.accuracies):.1%}",
                *("not reached" if steps is None else f"{steps:,}" for steps in reached),
            )
        )
    return Table(
        "curves",
        "Learning curves",
        "The fraction of operations solved during training (the paper's Figs. 2 and 3, which give "
        "no numbers), and the steps until it was first reached.",
        (
            *("run", "steps", "last accuracy", "best accuracy"),
            *(f"steps to {accuracy:.0%}" for accuracy in MILESTONES),
        ),
        tuple(rows),
    )
