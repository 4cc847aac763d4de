"""The report of a finished run: final evaluations, certificate, report.md and summary.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from abacus.rules import AbacusConfig, Action
from abacus.tasks import Task
from oracle.demos.recipe import Recipe, check_task, task_config, tasks_of
from oracle.demos.recorder import record_policy
from oracle.demos.shards import record_demonstrations
from oracle.exact.certificate import Certificate, certify, digest_of
from oracle.exact.own_runs import OwnRunsCertificate, certify_own_runs
from oracle.files import atomic_write_text
from pipelines.job.tables import Table
from pipelines.learning.cloning_data import open_demonstrations
from pipelines.learning.exercises import WIDTHS, Exercises
from pipelines.learning.policy_files import (
    CERTIFICATE_FILE,
    OWN_RUNS_FILE,
    load_policy,
    save_policy,
)
from pipelines.learning.run import TrainingResult
from pipelines.learning.run_folder import (
    COMMAND,
    OWN_OPERATIONS,
    REPORT,
    SUMMARY,
    TEACHING_SET,
    RunFolder,
)
from pipelines.learning.settings import Settings
from pipelines.learning.teaching import teaching_world
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import STRICT_REWARD, Evaluation, Evaluator, observations_of

#: Seed of the final evaluations, on other episodes than those that chose the best policy.
REPORT_SEED = 3_000_017
#: Random tasks and columns of the file of the policy's own operations.
OWN_TASKS, OWN_COLUMNS = 1_000, max(WIDTHS)
HEADER = (
    "",
    "operations solved",
    "errors at 16 digits",
    "wrong observations",
    "agrees with the teacher",
    "exact by its own runs",
    "demonstrations",
    "answers",
    "reward steps",
)
NOT_COUNTED, NOT_GIVEN = "not counted", "not given"
#: Names of the policies of a run in its folder, by their field in the result.
FOLDERS = {
    "clone": "clone",
    "best": "tuned",
    "last": "last",
    "mended": "mended",
    "taught": "taught",
}


def report_run(folder: RunFolder, result: TrainingResult) -> Table:
    """Evaluate and certify the policies of a run, write the reports, and return their table."""
    result = _evaluate_policies(folder, result)
    certificate = _certify_best(folder, result)
    own_runs = _certify_own_runs(folder, result)
    _write_teaching_set(folder, result)
    own_operations = _write_own_operations(folder, result)
    table = _table(folder.settings, result, certificate, own_runs)
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
        *_own_runs_lines(own_runs.get(_kept_name(result))),
        *_mending_lines(result),
        *own_operations,
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
        "mended": None if result.mended is None else result.mended.to_dict(),
        "mending_rounds": [asdict(each) for each in result.mending_rounds],
        "taught": None if result.taught is None else result.taught.to_dict(),
        "rounds": [asdict(each) for each in result.rounds],
        "evaluations": [evaluation.to_dict() for evaluation in result.evaluations],
        "mending_evaluations": [each.to_dict() for each in result.mending_evaluations],
        "exact": None if certificate is None else certificate.exact,
        "own_runs": {name: found.verdict for name, found in own_runs.items()},
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

    found: dict[str, Any] = {
        name: evaluate(_folder_of(folder, name), getattr(result, name))
        for name in FOLDERS
        if getattr(result, name) is not None
    }
    return replace(result, **found)


def _folder_of(folder: RunFolder, name: str) -> str:
    """Return the folder of a policy; without mending or teaching, PPO's best one is the best."""
    return FOLDERS[name] if (folder.path / FOLDERS[name]).is_dir() else "best"


def _kept_name(result: TrainingResult) -> str:
    """Return the field of the result that holds the policy kept as the best."""
    return next(name for name in reversed(FOLDERS) if getattr(result, name) is result.kept)


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


def _certify_own_runs(folder: RunFolder, result: TrainingResult) -> dict[str, OwnRunsCertificate]:
    """Certify the policies of all stages by their own runs; save the certificate of the best."""
    world = folder.settings.world
    certificates: dict[str, OwnRunsCertificate] = {}
    if result.kept.wrong is None or world.operations != "both":
        return certificates
    for name in FOLDERS:
        if getattr(result, name) is not None:
            # A reward of single modules is judged by the strictest rules.
            certificates[name] = certify_own_runs(
                load_policy(folder.path / _folder_of(folder, name)),
                base=world.base,
                frames=world.frames,
                level=world.reward if isinstance(world.reward, str) else STRICT_REWARD,
            )
    kept = certificates[_kept_name(result)]
    atomic_write_text(folder.path / OWN_RUNS_FILE, kept.to_json() + "\n")
    return certificates


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


def _write_own_operations(folder: RunFolder, result: TrainingResult) -> list[str]:
    """Write tasks that the kept policy solves after mending, by its own actions; report them."""
    if not result.mending_rounds:
        return []
    world, policy = folder.settings.world, load_policy(folder.path / "best")
    config = task_config(replace(world, columns=OWN_COLUMNS, max_digits=OWN_COLUMNS - 1))
    tasks = list(dict.fromkeys(_own_tasks(world, config, result)))
    sha256 = digest_of(policy)
    assert sha256 is not None
    choose = GreedyTable(policy, world.base, world.frames).actions
    solved = record_policy(config, tasks, choose, sha256)
    if solved is None:
        return ["", f"The policy solves none of {len(tasks):,} tasks by itself."]
    solved.write(folder.path / OWN_OPERATIONS)
    return [
        "",
        f"Of {len(tasks):,} tasks on {OWN_COLUMNS} columns the policy solves "
        f"{solved.counts['episodes']:,}: `{OWN_OPERATIONS}` holds them, with its own actions.",
    ]


def _own_tasks(world: AbacusConfig, config: AbacusConfig, result: TrainingResult) -> Iterator[Task]:
    """Yield random tasks, then those of the practised ones that fit."""
    rng = np.random.default_rng(REPORT_SEED)
    drawn = Exercises.draw(rng, OWN_TASKS, world, (OWN_COLUMNS,))
    yield from (drawn[row].task for row in range(len(drawn)))
    for exercise in result.practised:
        try:
            check_task(exercise.task, config)
        except ValueError:
            continue
        yield exercise.task


def _table(
    settings: Settings,
    result: TrainingResult,
    certificate: Certificate | None,
    own_runs: dict[str, OwnRunsCertificate],
) -> Table:
    """Return a row for each stage: the clone, PPO's best and last policy, mended, taught."""
    cloned = settings.demo_operations, result.cloned_answers
    stages = []
    planned = result.planned_steps
    if result.clone is not None:
        stages.append(("after cloning", "clone", cloned, 0))
    if result.last.step:
        stages.append(("after PPO (best)", "best", cloned, planned))
        if result.last is not result.best:
            stages.append(("after PPO (last)", "last", cloned, planned))
    elif planned:
        stages.append(("planned, cloned", "last", cloned, planned))
    if result.mended is not None:
        stages.append(("after mending", "mended", cloned, planned + result.mending_steps))
    if result.taught is not None:
        best = min(result.rounds, key=lambda each: each.wrong)
        stages.append(("after teaching", "taught", (best.operations, best.answers), 0))
    rows = []
    for title, name, (operations, answers), steps in stages:
        evaluation: Evaluation = getattr(result, name)
        agrees = NOT_GIVEN if certificate is None else "yes" if evaluation.wrong == 0 else "no"
        rows.append(
            (
                title,
                _accuracy_text(evaluation),
                f"{evaluation.long_error_rate:.2%}",
                NOT_COUNTED if evaluation.wrong is None else f"{evaluation.wrong:,}",
                agrees,
                own_runs[name].verdict if name in own_runs else NOT_GIVEN,
                f"{operations:,}",
                f"{answers:,}",
                f"{evaluation.step + steps:,}",
            )
        )
    return Table("run", "", "", HEADER, tuple(rows))


def _accuracy_text(evaluation: Evaluation) -> str:
    """Format the accuracy by the rules of the level, and where they are laxer the strict one."""
    own = evaluation.own_accuracy
    if own is None:
        return f"{evaluation.accuracy:.2%}"
    return f"{own:.2%} ({evaluation.accuracy:.2%} strictly)"


def _own_runs_lines(certificate: OwnRunsCertificate | None) -> list[str]:
    """Return what the policy's own runs have shown."""
    if certificate is None:
        return []
    if certificate.exact:
        return [
            "",
            f"Exact by its own runs at every length: none of its {certificate.situations:,} "
            f"situations leads to a mistake, judged as at {certificate.level}.",
        ]
    lines = ["", f"By its own runs {certificate.verdict}. {certificate.reason}".rstrip()]
    lines += [
        f"Smallest operation of a {failure.kind}: {failure.calculation}."
        for failure in certificate.failures
    ]
    return lines


def _mending_lines(result: TrainingResult) -> list[str]:
    """Return a table of the rounds of mending."""
    if not result.mending_rounds:
        return []
    header = (
        *("round", "failing", "tried", "others found", "own runs"),
        *("states practised", "observations changed", "next policy", "steps"),
    )
    rows = tuple(
        (
            str(each.number),
            f"{each.failed:,}",
            f"{each.tried:,}",
            f"{each.found:,}" if each.situations or each.found else NOT_COUNTED,
            each.verdict,
            f"{each.states:,}",
            f"{each.changed:,}",
            each.next_policy,
            f"{each.steps:,}",
        )
        for each in result.mending_rounds
    )
    return ["", Table("mending", "", "", header, rows).markdown()]


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
                f"The nearest mistake: {first.calculation} on {first.columns} columns, "
                f"step {first.step + 1}: {Action[first.policy_action].words} where the teacher "
                f"does {Action[first.teacher_action].words}."
            )
    return lines
