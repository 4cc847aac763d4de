"""The report of a finished run: final evaluations, certificate, report.md and summary.json."""

from __future__ import annotations

import json
from dataclasses import replace

from oracle.exact.certificate import Certificate, certify
from oracle.files import atomic_write_text
from pipelines.job.tables import Table
from pipelines.learning.policy_files import CERTIFICATE_FILE, load_policy, save_policy
from pipelines.learning.run import TrainingResult
from pipelines.learning.run_folder import COMMAND, REPORT, SUMMARY, RunFolder
from pipelines.scoring.scores import Evaluation, Evaluator, observations_of

#: Seed of the final evaluations, on other episodes than those that chose the best policy.
REPORT_SEED = 3_000_017
HEADER = ("", "accuracy", "error rate at 16 digits", "observations wrong", "certificate")
NOT_COUNTED, NOT_GIVEN = "not counted", "not given"


def report_run(folder: RunFolder, result: TrainingResult) -> Table:
    """Evaluate and certify the policies of a run, write the reports, and return their table."""
    result = _evaluate_policies(folder, result)
    certificate = _certify_best(folder, result)
    table = _table(result, certificate)
    times = ", ".join(f"{name} {value:.0f}" for name, value in result.seconds.items())
    lines = [
        "# Run report",
        "",
        "Command:",
        "",
        # An indented block: no character of a folder's name ends it or is taken as HTML.
        *(f"    {line}" for line in (folder.path / COMMAND).read_text().strip().splitlines()),
        "",
        table.markdown(),
        *_findings(folder, result, certificate),
        "",
        f"Longest run of operations solved in a training episode: {result.longest_training_run}. "
        f"Seconds: {times}.",
        "",
    ]
    atomic_write_text(folder.path / REPORT, "\n".join(lines))
    summary = {
        "settings": json.loads(folder.settings.to_json()),
        "clone": None if result.clone is None else result.clone.to_dict(),
        "best": result.best.to_dict(),
        "last": result.last.to_dict(),
        "evaluations": [evaluation.to_dict() for evaluation in result.evaluations],
        "exact": None if certificate is None else certificate.exact,
        "longest_training_run": result.longest_training_run,
        "seconds": result.seconds,
    }
    atomic_write_text(folder.path / SUMMARY, json.dumps(summary, indent=2) + "\n")
    return table


def _evaluate_policies(folder: RunFolder, result: TrainingResult) -> TrainingResult:
    """Return the result with its policies evaluated on episodes of their own."""
    settings = folder.settings
    evaluator = Evaluator(settings.world, settings.eval_episodes, seed=REPORT_SEED)
    best = evaluator(load_policy(folder.path / "best"), result.best.step)

    def evaluate(name: str, evaluation: Evaluation) -> Evaluation:
        if evaluation is result.best:
            return best
        return evaluator(load_policy(folder.path / name), evaluation.step)

    clone = None if result.clone is None else evaluate("clone", result.clone)
    return replace(result, clone=clone, best=best, last=evaluate("last", result.last))


def _certify_best(folder: RunFolder, result: TrainingResult) -> Certificate | None:
    """Certify the best policy and save the certificate; return None without a complete set.

    There is none for one operation alone: its observations include resets after the other
    operation, which a policy of one operation need not know.
    """
    settings = folder.settings
    if result.best.wrong is None or settings.world.operations != "both":
        return None
    policy = load_policy(folder.path / "best")
    certificate = certify(policy, observations_of(settings.world))
    atomic_write_text(folder.path / CERTIFICATE_FILE, certificate.to_json() + "\n")
    about = {
        "step": result.best.step,
        "evaluation": result.best.to_dict(),
        "exact": certificate.exact,
        "settings": json.loads(settings.to_json()),
    }
    save_policy(policy, folder.path / "best", about)
    return certificate


def _table(result: TrainingResult, certificate: Certificate | None) -> Table:
    """Return a row for the clone, the best policy, and the last one if it is another."""
    policies = []
    if result.clone is not None:
        policies.append(("after cloning", result.clone))
    if result.last.step:
        policies.append(("after PPO (best)", result.best))
        if result.last is not result.best:
            policies.append(("after PPO (last)", result.last))
    rows = []
    for name, evaluation in policies:
        verdict = "no"
        if certificate is None:
            verdict = NOT_GIVEN
        elif evaluation is result.best and certificate.exact:
            verdict = "exact"
        elif evaluation.wrong == 0:
            verdict = "exact (not the policy kept)"
        wrong = NOT_COUNTED if evaluation.wrong is None else f"{evaluation.wrong:,}"
        rates = f"{evaluation.accuracy:.2%}", f"{evaluation.long_error_rate:.2%}"
        rows.append((name, *rates, wrong, verdict))
    return Table("run", "", "", HEADER, tuple(rows))


def _findings(
    folder: RunFolder, result: TrainingResult, certificate: Certificate | None
) -> list[str]:
    lines = []
    if result.clone is not None and result.last.accuracy < result.clone.accuracy:
        lines.append(
            f"PPO ended below the clone ({result.last.accuracy:.2%} against "
            f"{result.clone.accuracy:.2%}); the policy kept as best is not below it."
        )
    if folder.settings.world.operations != "both":
        lines.append(
            "No certificate is given for one operation alone: the observations counted as wrong "
            "include resets after the other one, which this policy never meets."
        )
    elif certificate is None:
        lines.append("No certificate is given: the complete set is too large here.")
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
