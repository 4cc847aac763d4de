"""PPO from nothing at the paper's reward levels: steps and time to half, 90 and 99 % accuracy.

Runs levels one after the other and writes the table after each. Started again it goes on where it
was; --table-only writes the table of what there is, also of a run that is under way.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pipelines.command_line import option, run, shown_path
from pipelines.learning.files import write_text
from pipelines.learning.logs import STEP
from pipelines.learning.settings import Settings
from pipelines.learning.studies import Cell, evaluations, markdown, run_cell, seconds_at

EXAMPLE = "python -m pipelines.study_ppo_alone --levels dense no_of"
TARGETS = (0.5, 0.9, 0.99)
HEADERS = ("level", "steps", "best accuracy", *(f"to {target:.0%}" for target in TARGETS))


@dataclass(frozen=True)
class Options:
    """What to run."""

    levels: tuple[str, ...] = option(("dense", "no_of", "no_of_sp"), "reward levels")
    n_timesteps: int = option(20_000_000, "steps of each run")
    seed: int = option(0, "seed")
    folder: Path = option(Path("runs/ppo_alone"), "folder of the runs")
    results: Path = option(Path("results/ppo_alone.md"), "table to write")
    table_only: bool = option(False, "write the table of what there is")


def cells(options: Options) -> list[Cell]:
    """A run for each level."""
    return [
        Cell(
            f"{level}-s{options.seed}",
            Settings(
                preset="alone",
                reward=level,
                seed=options.seed,
                n_timesteps=options.n_timesteps,
                eval_episodes=200,
            ),
        )
        for level in options.levels
    ]


def row(cell: Cell, folder: Path) -> list[str]:
    """A line of the table."""
    path = folder / cell.name
    curve = evaluations(path)
    if not curve:
        return [cell.settings.reward, "not run", *[""] * (1 + len(TARGETS))]
    best = max(line["eval/accuracy"] for line in curve)
    reached = []
    for target in TARGETS:
        step = next((line[STEP] for line in curve if line["eval/accuracy"] >= target), None)
        reached.append("not reached" if step is None else _when(path, step))
    return [cell.settings.reward, f"{curve[-1][STEP]:,.0f}", f"{best:.2%}", *reached]


def _when(path: Path, step: float) -> str:
    seconds = seconds_at(path, step, "time/ppo_processor_seconds")
    time = "" if seconds is None else f", {seconds / 60:.1f} min"
    return f"{step:,.0f} steps{time}"


def write_table(options: Options) -> None:
    """Writes the table."""
    text = (
        "# PPO alone\n\n"
        "The compact network from nothing, by `python -m pipelines.study_ppo_alone`: accuracy of "
        "the greedy policy on both operations, from random starting values. Minutes are of "
        "processor time on one core.\n\n"
    ) + markdown(HEADERS, [row(cell, options.folder) for cell in cells(options)])
    write_text(options.results, text)
    print(f"written: {shown_path(options.results)}")


def main(options: Options) -> int:
    """Runs what is missing, and writes the table."""
    if not options.table_only:
        for cell in cells(options):
            command = ["python", "-m", "pipelines.study_ppo_alone", *sys.argv[1:]]
            run_cell(cell, options.folder, command, lambda line: print(line, flush=True))
            write_table(options)
    write_table(options)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
