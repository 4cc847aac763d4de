"""Clone the teacher, fine-tune the clone with masked PPO, certify the best policy.

Without arguments: record demonstrations if there are none, clone a few of them, let PPO correct the
errors of the clone, and report both. --preset exact clones as many demonstrations as a policy needs
that is exact at every length. --preset alone is PPO from random weights. Everything is written into
a run folder; --resume continues a run that was interrupted or killed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.job.command_line import EXIT_INTERRUPTED, option, option_group, relative_path, run
from pipelines.learning.settings import Settings, flag_options, resolve

EXAMPLE = "python -m pipelines.bc_then_ppo --demo-operations 500 --n-timesteps 1_000_000"


@dataclass(frozen=True)
class Options:
    """The settings given on the command line, and where the run is kept."""

    given: dict[str, Any] = option_group(flag_options())
    log_folder: Path = option(Path("runs"), "folder of runs")
    run_folder: Path | None = option(None, "folder of this run; a new one by default")
    resume: Path | None = option(None, "folder of the run to resume")
    progress: bool = option(sys.stderr.isatty(), "show a progress bar")
    verbose: int = option(1, "0: print the table alone; 1: print the progress too")


def main(options: Options) -> int:
    """Start or resume a run."""
    if options.resume is None:
        settings = resolve(options.given)
    # Importing torch takes seconds: --help and mistakes in the flags end before.
    from pipelines.learning.run import Training
    from pipelines.learning.run_folder import RunFolder
    from pipelines.learning.run_report import report_run

    if options.resume is not None:
        folder = RunFolder.open(options.resume, options.given)
    else:
        command = ["python", "-m", "pipelines.bc_then_ppo", *sys.argv[1:]]
        folder = RunFolder.create(_new_path(options, settings), settings, command)

    def log(line: str) -> None:
        if options.verbose:
            print(line, flush=True)

    log(f"run folder: {relative_path(folder.path)}")
    training = Training(folder, log, progress=options.progress)
    try:
        result = training.run()
    except KeyboardInterrupt:
        print(
            f"interrupted and saved; resume with: python -m pipelines.bc_then_ppo --resume "
            f"{relative_path(folder.path)}",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    training.model.save(folder.path / "model.zip")
    print(report_run(folder, result).text())
    for name in ("report.md", "best/policy.safetensors", "certificate.json"):
        if (folder.path / name).exists():
            log(f"written: {relative_path(folder.path / name)}")
    return 0


def _new_path(options: Options, settings: Settings) -> Path:
    """Return the given folder, or the first unused one of `log_folder`: `name-1`, `name-2`, ..."""
    if options.run_folder is not None:
        return options.run_folder
    name, number = f"{settings.preset}-{settings.network}-s{settings.seed}", 1
    while (options.log_folder / f"{name}-{number}").exists():
        number += 1
    return options.log_folder / f"{name}-{number}"


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
