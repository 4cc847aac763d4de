"""How much supervision does an agent need? Trains the cells of a grid and says what they show.

Every finished cell is a record in the store, and is never run again: a study that was killed goes
on when it is started again, a larger grid adds to what there is. --status shows how far it is.
Tables and figures are written beside the records.

With --scheduler the cells are run by a Dask cluster: start `dask scheduler`, and on each machine
`dask worker ADDRESS --nthreads 1 --nworkers N`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from pipelines.experiments.cells import WorkFolder, run_cell, settings_of
from pipelines.experiments.engines import DaskCluster, Done, Engine, LocalProcesses
from pipelines.experiments.grid import Grid
from pipelines.experiments.records import Cell, Record
from pipelines.experiments.report import write_report
from pipelines.experiments.store import (
    Running,
    Store,
    being_written,
    open_store,
    read_store,
    status_lines,
)
from pipelines.job.command_line import EXIT_INTERRUPTED, option, run, shown_path
from pipelines.learning.cloning_data import recorded_file

EXAMPLE = "python -m pipelines.study --workers 2"
GRID = Path(__file__).parent / "experiments" / "grids" / "study.json"


@dataclass(frozen=True)
class Options:
    """What to study, where, and by whom."""

    grid: Path = option(GRID, "file of the grid")
    comparisons: tuple[str, ...] = option((), "comparisons of the grid to run (default: all)")
    store: Path = option(Path("results/study"), "folder of records, tables and figures")
    work_folder: Path = option(Path("runs/study"), "folder of clones, and of runs under way")
    workers: int = option(2, "processes of this machine")
    scheduler: str | None = option(None, "address of a Dask scheduler to run the cells")
    status: bool = option(False, "say what is done, and run nothing")
    report_only: bool = option(False, "write tables and figures of what is done, and run nothing")
    progress: bool = option(sys.stderr.isatty(), "show a progress bar")


def main(options: Options, argv: Sequence[str] | None = None) -> int:
    """Runs what is left of a study."""
    if options.workers < 1:
        raise ValueError(f"workers={options.workers} is not allowed: give 1 or more")
    grid = Grid.load(options.grid)
    cells = chosen_cells(grid, options.comparisons)
    work = WorkFolder(options.work_folder)
    if options.status:
        contents = read_store(options.store)
        running = Running(work.path).read() if being_written(options.store) else {}
        print("\n".join(status_lines(cells, contents, running, options.workers)))
        return 0
    if not options.report_only:
        status = _run(options, cells, work)
        if status:
            return status
    contents = read_store(options.store)
    # Of the whole grid, also where some comparisons were run now: there is one report of a store.
    records = [contents.records[cell.key] for cell in grid.cells if cell.key in contents.records]
    if not records:
        raise ValueError(f"{shown_path(options.store)} has no records of this grid yet")
    for path in write_report(records, options.store, _command(argv)):
        print(f"written: {shown_path(path)}")
    return 1 if any(cell.key in contents.failures for cell in cells) else 0


def _command(argv: Sequence[str] | None) -> str:
    """The command that runs what is reported, whether it was run now or before."""
    words = [word for word in (argv or sys.argv[1:]) if word != "--report-only"]
    return shlex.join(["python", "-m", "pipelines.study", *words])


def chosen_cells(grid: Grid, comparisons: Sequence[str]) -> list[Cell]:
    """The cells of a grid, or of some of its comparisons."""
    known = sorted({cell.comparison for cell in grid.cells})
    for name in comparisons:
        if name not in known:
            raise ValueError(f"comparison {name!r} is not in the grid: give {', '.join(known)}")
    return [cell for cell in grid.cells if cell.comparison in (comparisons or known)]


def _run(options: Options, cells: list[Cell], work: WorkFolder) -> int:
    with open_store(options.store) as (store, damage):
        if damage:
            print(damage)
        left = [cell for cell in cells if cell.key not in store.contents.records]
        print(f"{len(cells)} cells, {len(cells) - len(left)} done already")
        if not left:
            return 0
        engine: Engine = (
            DaskCluster(options.scheduler) if options.scheduler else LocalProcesses(options.workers)
        )
        print(
            f"{len(left)} cells left, {engine.workers} at a time; results go to "
            f"{shown_path(options.store)}"
        )
        _record_demonstrations(left)
        try:
            _run_left(engine, left, store, work, progress=options.progress)
        except KeyboardInterrupt:
            print(
                "interrupted; what is done is kept, the same command goes on from there",
                file=sys.stderr,
            )
            return EXIT_INTERRUPTED
    return 0


def _record_demonstrations(cells: list[Cell]) -> None:
    """Recorded before there are workers, who would all want to."""
    wanted = [settings_of(cell) for cell in cells if cell.demonstrations]
    files = {settings.recipe().file_name: settings for settings in wanted}
    for settings in files.values():
        recorded_file(settings, print)


def _run_left(
    engine: Engine, left: list[Cell], store: Store, work: WorkFolder, *, progress: bool
) -> None:
    running = Running(work.path)
    with tqdm(total=len(left), desc="study", unit="cell", disable=not progress) as bar, running:
        for done in engine.run(partial(run_cell, work=work), left, running.add):
            if done.record is not None:
                store.add(done.record)
                work.forget(done.cell)
            else:
                store.add_failure(done.cell, done.error or "")
            running.remove(done.cell)
            bar.update()
            tqdm.write(f"{len(store.contents.records)}: {done_line(done)}", file=sys.stdout)
            sys.stdout.flush()


def done_line(done: Done) -> str:
    """A cell and what came of it."""
    if done.record is None:
        return f"{done.cell.name}: failed: {done.error}"
    return f"{done.cell.name}: {_result(done.record)}"


def _result(record: Record) -> str:
    before = "" if record.clone is None else f"{record.clone.accuracy:.2%} -> "
    exact = ", exact" if record.final.exact else ""
    return (
        f"{before}{record.final.accuracy:.2%}, {record.final.wrong:,} wrong{exact}, "
        f"{record.seconds['all']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
