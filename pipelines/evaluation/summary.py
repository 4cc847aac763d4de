"""The answer on top: a few lines that say how good a policy is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pipelines.evaluation import published
from pipelines.evaluation.evaluation import Results
from pipelines.evaluation.intervals import ErrorRate
from pipelines.evaluation.measure import Score
from pipelines.evaluation.tables import percent

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
        yield _runs(results)


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


def _runs(results: Results) -> Finding:
    runs = results.runs[0]
    at_limit = f" ({runs.limited:,} reached the limit)" if runs.limited else ""
    return Finding(
        "Longest run",
        f"{runs.longest:,}",
        f"Operations solved in one of {runs.episodes:,} episodes{at_limit}. The authors' agent: "
        f"{published.LONGEST_RUNS[runs.operations]:,}.",
        "good" if runs.longest > published.LONGEST_RUNS[runs.operations] else "plain",
    )
