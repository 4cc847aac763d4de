"""Clone the teacher, fine-tune with masked PPO, teach what is still wrong, certify the policy.

Without arguments: record demonstrations if there are none, clone a few of them, let PPO correct
errors of the clone, teach counterexamples until the policy is exact at every length, and report
each stage. --preset exact does the same without PPO. Two presets learn from the reward alone: alone
plans and practises, ppo is masked PPO from nothing. Everything is written into a run folder;
--resume continues a run that was interrupted or killed.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oracle.files import atomic_write
from pipelines.job.command_line import EXIT_INTERRUPTED, option, option_group, relative_path, run
from pipelines.learning.settings import Settings, flag_options, resolve

if TYPE_CHECKING:
    from pipelines.learning.run_folder import RunFolder

#: Teaching reached a limit before the policy was exact.
EXIT_NOT_EXACT = 1
EXAMPLE = "python -m pipelines.bc_then_ppo --demo-operations 500 --n-timesteps 1_000_000"


@dataclass(frozen=True)
class Options:
    """The settings given on the command line, and where the run is kept."""

    given: dict[str, Any] = option_group(flag_options())
    log_folder: Path = option(Path("runs"), "folder of runs")
    run_folder: Path | None = option(None, "folder of this run; a new one by default")
    trust: bool = option(False, "load a zip with --start-from, which can run code of its author")
    resume: Path | None = option(None, "folder of the run to resume")
    progress: bool = option(
        sys.stderr.isatty(), "show a progress bar with the time left for the run"
    )
    track: Literal["nothing", "wandb"] = option(
        "nothing", "store the finished run in Weights & Biases, offline unless WANDB_MODE is set"
    )
    verbose: int = option(1, "0: print the table alone; 1: print the progress too")


def main(options: Options) -> int:
    """Start or resume a run."""
    return start(options, "pipelines.bc_then_ppo")


def start(options: Options, module: str) -> int:
    """Start or resume a run for the command of a module, which the run folder names."""
    if options.resume is None:
        settings = resolve(options.given)
    if options.track == "wandb":
        from pipelines.learning.tracking import check_tracker

        check_tracker()
    # Importing torch takes seconds: --help and mistakes in the flags end before.
    from pipelines.learning.run_folder import RunFolder, check_new, check_run, run_lock

    if options.resume is not None:
        check_run(options.resume)
        with run_lock(options.resume):
            return _run(RunFolder.open(options.resume, options.given), options)
    path = _new_path(options, settings)
    command = ["python", "-m", module, *sys.argv[1:]]
    check_new(path)
    with run_lock(path):
        return _run(RunFolder.create(path, settings, command), options)


def _run(folder: RunFolder, options: Options) -> int:
    from pipelines.learning.progress import print_above
    from pipelines.learning.run import Training
    from pipelines.learning.run_folder import MODEL, REPORT, TEACHING_SET
    from pipelines.learning.run_report import report_run

    def log(line: str) -> None:
        if options.verbose:
            print_above(line)

    log(f"run folder: {relative_path(folder.path)}")
    training = Training(folder, log, progress=options.progress, trust=options.trust)
    if training.finished:
        print(
            f"the run is finished, nothing was changed: see {relative_path(folder.path / REPORT)}"
        )
        _track(folder, options)
        return 0
    try:
        result = training.run()
    except KeyboardInterrupt:
        print(
            f"interrupted and saved; resume with: python -m pipelines.bc_then_ppo --resume "
            f"{relative_path(folder.path)}",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    model = io.BytesIO()
    training.model.save(model)
    atomic_write(folder.path / MODEL, lambda file: file.write(model.getvalue()))
    table = report_run(folder, result)
    training.finish()
    print(table.text())
    for name in (REPORT, "best/policy.safetensors", "certificate.json", TEACHING_SET):
        if (folder.path / name).exists():
            log(f"written: {relative_path(folder.path / name)}")
    _track(folder, options)
    if result.rounds and result.kept.wrong:
        print(
            f"not exact: {result.kept.wrong:,} observations are still wrong at the limit of "
            "teaching; give larger --teach-rounds, --teach-operations or --teach-answers",
            file=sys.stderr,
        )
        return EXIT_NOT_EXACT
    return 0


def _track(folder: RunFolder, options: Options) -> None:
    if options.track == "wandb":
        from pipelines.learning.tracking import track_run

        print(track_run(folder.path))


def _new_path(options: Options, settings: Settings) -> Path:
    """Return the given folder, or create the first of `log_folder`: `name-1`, `name-2`, ..."""
    if options.run_folder is not None:
        return options.run_folder
    name, number = f"{settings.preset}-{settings.network}-s{settings.seed}", 1
    options.log_folder.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            path = options.log_folder / f"{name}-{number}"
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
