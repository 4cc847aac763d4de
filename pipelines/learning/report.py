"""The end of a run: a table for the terminal, report.md, summary.json, certificate.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from oracle.certificate import Certificate, certify
from pipelines.learning.evaluating import Evaluation, Evaluator, observations_of
from pipelines.learning.files import write_text
from pipelines.learning.publish import load_policy, save_policy
from pipelines.learning.settings import Settings
from pipelines.learning.training import Outcome

#: Of episodes that no policy was chosen by.
REPORT_SEED = 3_000_017
HEADERS = ("", "accuracy", "error rate at 16 digits", "observations wrong", "certificate")


def measured_anew(folder: Path, settings: Settings, outcome: Outcome) -> Outcome:
    """The outcome with the policies' figures from other episodes than those it was chosen by."""
    evaluator = Evaluator(
        settings.world(),
        settings.eval_episodes,
        with_set=outcome.best.wrong is not None,
        seed=REPORT_SEED,
    )
    best = evaluator(load_policy(folder / "best"), outcome.best.step)
    same = outcome.last is outcome.best
    last = best if same else evaluator(load_policy(folder / "last"), outcome.last.step)
    clone = None
    if outcome.clone is not None:
        same = outcome.clone is outcome.best
        clone = best if same else evaluator(load_policy(folder / "clone"), 0)
    return replace(outcome, clone=clone, best=best, last=last)


def certify_best(folder: Path, settings: Settings, outcome: Outcome) -> Certificate | None:
    """Certifies the best policy and writes the certificate; None where there is no set to ask.

    There is none of one operation alone: what is seen during it holds resets after the other, which
    a policy of one operation need not know.
    """
    if outcome.best.wrong is None or settings.operations != "both":
        return None
    policy = load_policy(folder / "best")
    certificate = certify(policy, observations_of(settings.world()))
    write_text(folder / "certificate.json", certificate.to_json() + "\n")
    about = {
        "step": outcome.best.step,
        "evaluation": outcome.best.to_dict(),
        "exact": certificate.exact,
        "settings": json.loads(settings.to_json()),
    }
    save_policy(policy, folder / "best", about)
    return certificate


def summary_rows(outcome: Outcome, certificate: Certificate | None) -> list[tuple[str, ...]]:
    """The table's rows: after cloning, after PPO, and the last policy where another was better."""
    rows = []
    if outcome.clone is not None:
        rows.append(_row("after cloning", outcome.clone, certificate, outcome))
    if outcome.last.step:
        rows.append(_row("after PPO (best)", outcome.best, certificate, outcome))
        if outcome.last is not outcome.best:
            rows.append(_row("after PPO (last)", outcome.last, certificate, outcome))
    return rows


def _row(
    name: str, evaluation: Evaluation, certificate: Certificate | None, outcome: Outcome
) -> tuple[str, ...]:
    wrong = "not asked" if evaluation.wrong is None else f"{evaluation.wrong:,}"
    verdict = "no"
    if certificate is None:
        verdict = "not asked"
    elif evaluation is outcome.best and certificate.exact:
        verdict = "exact"
    elif evaluation.wrong == 0:
        verdict = "exact (not the policy kept)"
    return (
        name,
        f"{evaluation.accuracy:.2%}",
        f"{evaluation.long_error_rate:.2%}",
        wrong,
        verdict,
    )


def text_table(rows: list[tuple[str, ...]], headers: tuple[str, ...] = HEADERS) -> str:
    """Columns under their headers."""
    lines = [headers, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def write_report(
    folder: Path, settings: Settings, outcome: Outcome, certificate: Certificate | None
) -> None:
    """report.md for people, summary.json for programs."""
    rows = summary_rows(outcome, certificate)
    lines = [
        "# Run report",
        "",
        f"Command: `{(folder / 'command.txt').read_text().strip()}`",
        "",
        "| " + " | ".join(HEADERS) + " |",
        "|" + "---|" * len(HEADERS),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        *_verdict(settings, outcome, certificate),
        "",
        f"Longest run of operations solved in a training episode: {outcome.longest_training_run}. "
        f"Seconds: {', '.join(f'{name} {value:.0f}' for name, value in outcome.seconds.items())}.",
        "",
    ]
    write_text(folder / "report.md", "\n".join(lines))
    summary = {
        "settings": json.loads(settings.to_json()),
        "clone": None if outcome.clone is None else outcome.clone.to_dict(),
        "best": outcome.best.to_dict(),
        "last": outcome.last.to_dict(),
        "evaluations": [evaluation.to_dict() for evaluation in outcome.evaluations],
        "exact": None if certificate is None else certificate.exact,
        "longest_training_run": outcome.longest_training_run,
        "seconds": outcome.seconds,
    }
    write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")


def _verdict(settings: Settings, outcome: Outcome, certificate: Certificate | None) -> list[str]:
    lines = []
    if outcome.clone is not None and outcome.last.accuracy < outcome.clone.accuracy:
        lines.append(
            f"PPO ended below the clone ({outcome.last.accuracy:.2%} against "
            f"{outcome.clone.accuracy:.2%}); the policy kept as best is not below it."
        )
    if settings.operations != "both":
        lines.append(
            "No certificate is given for one operation alone: the observations counted as wrong "
            "hold resets after the other one, which this policy never meets."
        )
    elif certificate is None:
        lines.append("No certificate was asked for: the complete set is too large here.")
    elif certificate.exact:
        lines.append(
            f"Exact at every length: the policy agrees with the teacher on all "
            f"{certificate.observations:,} observations, by a margin of "
            f"{certificate.smallest_margin:.3g}."
        )
    else:
        lines.append(
            f"Not exact: wrong on {certificate.disagreements:,} of "
            f"{certificate.observations:,} observations."
        )
        if certificate.counterexamples:
            first = certificate.counterexamples[0]
            lines.append(
                f"The nearest mistake: from {first.start}, {first.expression} on "
                f"{first.columns} columns, step {first.step}: {first.policy_action} where the "
                f"teacher does {first.teacher_action}."
            )
    return lines
