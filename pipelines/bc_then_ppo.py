"""Clones the teacher, fine-tunes the clone with masked PPO, certifies what comes out.

Without arguments: makes the demonstrations if there are none, clones a few of them, lets PPO mend
what the clone does wrong, and says what each did. --preset exact clones as many as it takes for a
policy that is exact at every length. --preset alone is PPO from nothing. Everything is written
into a run folder; a run that was killed goes on with --resume.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pipelines.job.command_line import EXIT_INTERRUPTED, option, run, shown_path
from pipelines.learning.run import (
    Training,
    certify_best,
    measured_anew,
    summary_rows,
    text_table,
    write_report,
)
from pipelines.learning.run_folder import RunFolder, named_on_command_line, next_folder
from pipelines.learning.settings import Settings

EXAMPLE = "python -m pipelines.bc_then_ppo --demo-operations 500 --n-timesteps 1_000_000"


@dataclass(frozen=True)
class Options(Settings):
    """The settings of a run, and where it is kept."""

    log_folder: Path = option(Path("runs"), "folder of runs")
    run_folder: Path | None = option(None, "folder of this run; a new one where none is given")
    resume: Path | None = option(None, "go on with the run of this folder")
    progress: bool = option(sys.stderr.isatty(), "show a progress bar")
    verbose: int = option(1, "0: the table alone; 1: what is done")

    def settings(self) -> Settings:
        """What decides the run."""
        return Settings(**{field.name: getattr(self, field.name) for field in fields(Settings)})


def main(options: Options, argv: Sequence[str] | None = None) -> int:
    """Runs, or goes on."""
    folder = _folder(options, list(sys.argv[1:] if argv is None else argv))

    def say(line: str) -> None:
        if options.verbose:
            print(line, flush=True)

    say(f"run folder: {shown_path(folder.path)}")
    training = Training(folder, say, progress=options.progress)
    try:
        outcome = training.run()
    except KeyboardInterrupt:
        print(
            f"interrupted and saved; go on with: python -m pipelines.bc_then_ppo --resume "
            f"{shown_path(folder.path)}",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    training.model.save(folder.path / "model.zip")
    outcome = measured_anew(folder.path, folder.settings, outcome)
    certificate = certify_best(folder.path, folder.settings, outcome)
    write_report(folder.path, folder.settings, outcome, certificate)
    print(text_table(summary_rows(outcome, certificate)))
    for name in ("report.md", "best/policy.safetensors", "certificate.json"):
        if (folder.path / name).exists():
            say(f"written: {shown_path(folder.path / name)}")
    return 0


def _folder(options: Options, argv: list[str]) -> RunFolder:
    if options.resume is not None:
        named = named_on_command_line(argv)
        return RunFolder.open(options.resume, options.settings(), named)
    settings = options.settings().settled()
    path = options.run_folder or next_folder(
        options.log_folder, f"{settings.preset}-{settings.network}-s{settings.seed}"
    )
    return RunFolder.create(path, settings, ["python", "-m", "pipelines.bc_then_ppo", *argv])


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
