"""Arms that are runs of `pipelines.learning.run`: cloning, PPO, teaching, planning and mending.

Many cells start from the same clone. A clone is trained once, in a run of its own that is kept in
the work folder; a cell that fine-tunes it takes a copy of that run and continues with PPO, with
the same numbers as if it had cloned itself.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from oracle.files import lock, move_into_place
from pipelines.learning.learner import Job, Learner, Trained
from pipelines.learning.policy_files import load_policy
from pipelines.learning.run import TUNING, Training, TrainingResult
from pipelines.learning.run_folder import CHECKPOINT, RunFolder, remove_temporary
from pipelines.learning.settings import MendingSettings, PpoSettings, Settings

COMMAND = ["python", "-m", "pipelines.study"]


def _clone(job: Job) -> Trained:
    path = cloned_run(job.settings, job.clones)
    # The run is finished: this reads its results.
    result = Training(RunFolder(path, job.settings), _silent).run()
    clone = load_policy(path / "clone")
    return Trained(
        best=clone,
        last=clone,
        seconds=result.seconds,
        clone=clone,
        evaluations=result.evaluations,
        seconds_at_evaluation=result.seconds_at_evaluation,
        labels=result.cloned_answers,
        demonstrated=job.settings.demo_operations,
    )


def _fine_tune(job: Job) -> Trained:
    settings, path = job.settings, job.folder
    cloned = settings.demo_operations > 0
    if cloned and not (path / CHECKPOINT).is_file():
        shutil.rmtree(path, ignore_errors=True)
        run = branch(settings, cloned_run(settings, job.clones), path)
    else:
        run = _open_or_create(path, settings)
    result = Training(run, _silent).run()
    return Trained(
        best=load_policy(path / "best"),
        last=load_policy(path / "last"),
        seconds=result.seconds,
        clone=load_policy(path / "clone") if cloned else None,
        **_curve(settings, result),
        longest_training_run=result.longest_training_run,
        labels=result.cloned_answers,
        demonstrated=settings.demo_operations,
        stage_steps=_steps(settings, result),
    )


def _curve(settings: Settings, result: TrainingResult) -> dict[str, Any]:
    """Return evaluations and their times: of mending if there was any, otherwise of PPO."""
    if settings.mending.rounds:
        return {
            "evaluations": result.mending_evaluations,
            "seconds_at_evaluation": result.seconds_at_mending_evaluation,
        }
    return {
        "evaluations": result.evaluations,
        "seconds_at_evaluation": result.seconds_at_evaluation,
    }


def _steps(settings: Settings, result: TrainingResult) -> dict[str, int]:
    """Return the environment steps of each stage that the run had."""
    steps = {
        "planning": result.planned_steps,
        "ppo": result.evaluations[-1].step,
        "mending": result.mending_steps,
    }
    return {stage: count for stage, count in steps.items() if count}


def _teach(job: Job) -> Trained:
    """Clone, and teach counterexamples until the policy is exact or at a limit."""
    settings, path = job.settings, job.folder
    result = Training(_open_or_create(path, settings), _silent).run()
    spent = result.rounds[-1]
    return Trained(
        best=load_policy(path / "best"),
        last=load_policy(path / "taught"),
        seconds=result.seconds,
        clone=load_policy(path / "clone") if settings.demo_operations else None,
        labels=spent.answers,
        demonstrated=spent.operations,
        rounds=[(each.operations, each.answers, each.wrong) for each in result.rounds],
    )


CLONING, PPO, TEACHING = Learner(_clone), Learner(_fine_tune), Learner(_teach)


def cloned_run(settings: Settings, clones: Path) -> Path:
    """Return the folder of the run that clones; train it if there is none."""
    alone = _cloning_alone(settings)
    path = clones / hashlib.sha256(alone.to_json().encode()).hexdigest()[:16]
    if path.is_dir():
        return path
    # Of several workers that need the clone, the first trains it and the others wait.
    with lock(path.with_name(f".{path.name}.lock")):
        if not path.is_dir():
            unfinished = path.with_name(f".cloning-{path.name}")
            training = Training(_open_or_create(unfinished, alone), _silent)
            training.run()
            # Cells that read a finished run write nothing into it.
            training.finish()
            move_into_place(unfinished, path)
    return path


def _open_or_create(path: Path, settings: Settings) -> RunFolder:
    """Return the run folder at a path, a new one if there is no checkpoint to resume from."""
    if (path / CHECKPOINT).is_file():
        remove_temporary(path)
        return RunFolder(path, settings)
    shutil.rmtree(path, ignore_errors=True)
    return RunFolder.create(path, settings, COMMAND)


def _cloning_alone(settings: Settings) -> Settings:
    """Return settings that are equal for all runs with the same clone."""
    default = Settings()
    return replace(
        settings,
        preset=default.preset,
        n_timesteps=0,
        ppo=PpoSettings(),
        mending=MendingSettings(),
        world=replace(settings.world, reward=default.world.reward),
        eval_freq=default.eval_freq,
    )


def branch(settings: Settings, cloned: Path, path: Path) -> RunFolder:
    """Make a run that has cloned already, and continues with PPO."""
    run = RunFolder.create(path, settings, COMMAND)
    source = RunFolder(cloned, settings)
    state = source.load_checkpoint()
    if state is None:
        raise ValueError(f"{cloned / CHECKPOINT} is missing: remove that folder")
    run.rows = source.rows
    run.save_checkpoint({**state, "stage": TUNING})
    return run


def _silent(line: str) -> None:
    """Discard the output of a run: many run at once."""
