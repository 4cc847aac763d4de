"""The report of a finished run: final evaluations, certificate, report.md and summary.json."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from oracle.demos.recipe import Recipe, task_config, tasks_of
from oracle.demos.shards import record_demonstrations
from oracle.exact.certificate import Certificate, certify
from oracle.files import atomic_write_text
from pipelines.job.tables import Table
from pipelines.learning.cloning_data import open_demonstrations
from pipelines.learning.policy_files import CERTIFICATE_FILE, load_policy, save_policy
from pipelines.learning.run import TrainingResult
from pipelines.learning.run_folder import COMMAND, REPORT, SUMMARY, TEACHING_SET, RunFolder
from pipelines.learning.settings import Settings
from pipelines.learning.teaching import teaching_world
from pipelines.scoring.scores import Evaluation, Evaluator, observations_of

#: Seed of the final evaluations, on other episodes than those that chose the best policy.
REPORT_SEED = 3_000_017
HEADER = (
    "",
    "operations solved",
    "errors at 16 digits",
    "wrong observations",
    "certificate",
    "demonstrations",
    "answers",
    "reward steps",
)
NOT_COUNTED, NOT_GIVEN = "not counted", "not given"


def report_run(folder: RunFolder, result: TrainingResult) -> Table:
    """Evaluate and certify the policies of a run, write the reports, and return their table."""
    result = _evaluate_policies(folder, result)
    certificate = _certify_best(folder, result)
    _write_teaching_set(folder, result)
    table = _table(folder.settings, result, certificate)
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
        *_teaching_lines(result),
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
        "taught": None if result.taught is None else result.taught.to_dict(),
        "rounds": [asdict(each) for each in result.rounds],
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
    done: dict[int, Evaluation] = {}

    def evaluate(name: str, evaluation: Evaluation) -> Evaluation:
        # The same evaluation is that of the same weights.
        if id(evaluation) not in done:
            done[id(evaluation)] = evaluator(load_policy(folder.path / name), evaluation.step)
        return done[id(evaluation)]

    return replace(
        result,
        best=evaluate("best" if result.taught is None else "tuned", result.best),
        clone=None if result.clone is None else evaluate("clone", result.clone),
        last=evaluate("last", result.last),
        taught=None if result.taught is None else evaluate("taught", result.taught),
    )


def _certify_best(folder: RunFolder, result: TrainingResult) -> Certificate | None:
    """Certify the best policy and save the certificate; return None without a complete set.

    There is none for one operation alone: its observations include resets after the other
    operation, which a policy of one operation need not know.
    """
    settings = folder.settings
    if result.kept.wrong is None or settings.world.operations != "both":
        return None
    policy = load_policy(folder.path / "best")
    certificate = certify(policy, observations_of(settings.world))
    atomic_write_text(folder.path / CERTIFICATE_FILE, certificate.to_json() + "\n")
    about = {
        "step": result.kept.step,
        "evaluation": result.kept.to_dict(),
        "exact": certificate.exact,
        "settings": json.loads(settings.to_json()),
    }
    save_policy(policy, folder.path / "best", about)
    return certificate


def _write_teaching_set(folder: RunFolder, result: TrainingResult) -> None:
    """Write the demonstrations that were asked for, as a file like any other.

    It starts with the operations that were cloned first, if these are of the same width.
    """
    if result.tasks:
        settings, tasks = folder.settings, result.tasks
        config = task_config(teaching_world(settings.world.base, settings.world.frames))
        if settings.demo_operations and settings.world.columns == config.columns:
            first = open_demonstrations(settings, lambda line: None)
            tasks = (*tasks_of(first.columns, config.base), *tasks)
        recipe = Recipe(config, tasks=tasks)
        record_demonstrations(recipe, folder.path / TEACHING_SET, workers=1, overwrite=True)


def _table(settings: Settings, result: TrainingResult, certificate: Certificate | None) -> Table:
    """Return a row for each stage: the clone, PPO's best and last policy, the taught one."""
    cloned = settings.demo_operations, result.cloned_answers
    stages = []
    if result.clone is not None:
        stages.append(("after cloning", result.clone, cloned))
    if result.last.step:
        stages.append(("after PPO (best)", result.best, cloned))
        if result.last is not result.best:
            stages.append(("after PPO (last)", result.last, cloned))
    if result.taught is not None:
        best = min(result.rounds, key=lambda each: each.wrong)
        stages.append(("after teaching", result.taught, (best.operations, best.answers)))
    rows = []
    for name, evaluation, (operations, answers) in stages:
        verdict = "no"
        if certificate is None:
            verdict = NOT_GIVEN
        elif evaluation is result.kept and certificate.exact:
            verdict = "exact"
        elif evaluation.wrong == 0:
            verdict = "exact (not the policy kept)"
        rows.append(
            (
                name,
                f"{evaluation.accuracy:.2%}",
                f"{evaluation.long_error_rate:.2%}",
                NOT_COUNTED if evaluation.wrong is None else f"{evaluation.wrong:,}",
                verdict,
                f"{operations:,}",
                f"{answers:,}",
                f"{evaluation.step:,}",
            )
        )
    return Table("run", "", "", HEADER, tuple(rows))


def _teaching_lines(result: TrainingResult) -> list[str]:
    """Return a table of the rounds of teaching."""
    if not result.rounds:
        return []
    header = ("round", "operations", "answers", "wrong observations")
    rows = tuple(
        (str(each.number), f"{each.operations:,}", f"{each.answers:,}", f"{each.wrong:,}")
        for each in result.rounds
    )
    return ["", Table("rounds", "", "", header, rows).markdown()]


def _findings(
    folder: RunFolder, result: TrainingResult, certificate: Certificate | None
) -> list[str]:
    lines = []
    if result.collapse is not None:
        lines.append(f"The last policy of PPO had collapsed, {result.collapse}.")
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
        lines.append(
            "No certificate is given here: asking this network about every observation takes long. "
            f"`python -m pipelines.certify {folder.path.name}` does it."
        )
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
