"""Run the study: train the cells of a grid, store their records, write tables and figures.

How much supervision does an agent need? A cell with a record in the store is not run again: the
same command resumes a study that was killed, and a larger grid adds to the store. --status shows
the progress. Tables and figures are written beside the records.

With --scheduler a Dask cluster runs the cells: start `dask scheduler`, and on each machine
`dask worker ADDRESS --nthreads 1 --nworkers N`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from abacus.checks import check_integer
from pipelines.job.command_line import EXIT_INTERRUPTED, option, relative_path, run

if TYPE_CHECKING:
    from pipelines.experiments.cells import WorkFolder
    from pipelines.experiments.engines import Done, Engine
    from pipelines.experiments.grid import Grid
    from pipelines.experiments.records import Cell
    from pipelines.experiments.store import Store

EXAMPLE = "python -m pipelines.study --workers 2"
GRID = Path(__file__).parent / "experiments" / "grids" / "study.json"


@dataclass(frozen=True)
class Options:
    """Options of the study."""

    grid: Path = option(GRID, "file of the grid")
    comparisons: tuple[str, ...] = option((), "comparisons of the grid to run (default: all)")
    store: Path = option(Path("results/study"), "folder of records, tables and figures")
    work_folder: Path = option(Path("runs/study"), "folder of clones and of unfinished runs")
    workers: int = option(2, "processes of this machine")
    scheduler: str | None = option(None, "address of a Dask scheduler to run the cells")
    status: bool = option(False, "show the progress, and run nothing")
    report_only: bool = option(False, "write tables and figures of the store, and run nothing")
    progress: bool = option(sys.stderr.isatty(), "show a progress bar")


def main(options: Options, argv: Sequence[str] | None = None) -> int:
    """Run the cells that have no record, and write the report."""
    check_integer("workers", options.workers, 1)
    from pipelines.experiments.cells import WorkFolder
    from pipelines.experiments.grid import Grid

    grid = Grid.load(options.grid)
    cells = grid.cells_of(options.comparisons)
    work = WorkFolder(options.work_folder)
    if options.status:
        return _show_status(options, cells, work)
    if not options.report_only:
        status = _run(options, cells, work)
        if status:
            return status
    return _write_report(options, grid, _command(argv))


def _show_status(options: Options, cells: list[Cell], work: WorkFolder) -> int:
    from pipelines.experiments.store import Running, being_written, read_store, status_lines

    contents = read_store(options.store)
    running = Running(work.path).read() if being_written(options.store) else {}
    print("\n".join(status_lines(cells, contents, running, options.workers)))
    return 0


def _write_report(options: Options, grid: Grid, command: str) -> int:
    """Report the whole grid, even if some of its comparisons alone were run now."""
    from pipelines.experiments.report import write_report
    from pipelines.experiments.store import read_store

    contents = read_store(options.store)
    records = contents.records_of(grid.cells)
    if not records:
        raise ValueError(f"{relative_path(options.store)} has no records of the grid yet")
    missing = contents.missing(grid.cells)
    failed = [each for each in missing if each.error is not None]
    print(
        f"{len(records)} of {len(grid.cells)} cells have a record, {len(failed)} failed, "
        f"{len(missing) - len(failed)} were not run"
    )
    keys = {cell.key for cell in grid.cells}
    other = sum(record.cell.key not in keys for record in records)
    if other:
        print(f"{other} records were made with other settings than the present grid and defaults")
    for path in write_report(records, missing, options.store, command):
        print(f"written: {relative_path(path)}")
    return 1 if failed else 0


def _command(argv: Sequence[str] | None) -> str:
    """Return the command that runs the reported cells, for the report."""
    words = [word for word in (argv or sys.argv[1:]) if word != "--report-only"]
    return shlex.join(["python", "-m", "pipelines.study", *words])


def _run(options: Options, cells: list[Cell], work: WorkFolder) -> int:
    from pipelines.experiments.engines import DaskCluster, LocalProcesses
    from pipelines.experiments.store import open_store

    with open_store(options.store) as (store, damage):
        if damage:
            print(damage)
        work.remove_stored(record.cell for record in store.contents.records.values())
        left = [cell for cell in cells if cell.key not in store.contents.records]
        print(f"{len(cells)} cells, {len(cells) - len(left)} done already")
        if not left:
            return 0
        engine: Engine = (
            LocalProcesses(options.workers)
            if options.scheduler is None
            else DaskCluster(options.scheduler)
        )
        print(
            f"{len(left)} cells left, {engine.workers} at a time; results go to "
            f"{relative_path(options.store)}"
        )
        _record_demonstrations(left)
        try:
            _run_left(engine, left, store, work, progress=options.progress)
        except KeyboardInterrupt:
            print("interrupted; records are kept, the same command resumes", file=sys.stderr)
            return EXIT_INTERRUPTED
    return 0


def _record_demonstrations(cells: list[Cell]) -> None:
    """Record demonstrations before the workers start, each of which would record them."""
    from pipelines.experiments.cells import settings_of
    from pipelines.learning.cloning_data import recorded_file

    needed = [settings_of(cell) for cell in cells if cell.demonstrations]
    files = {settings.recipe().file_name: settings for settings in needed}
    for settings in files.values():
        recorded_file(settings, print)


def _run_left(
    engine: Engine, left: list[Cell], store: Store, work: WorkFolder, *, progress: bool
) -> None:
    from pipelines.experiments.cells import run_cell
    from pipelines.experiments.store import Running

    running = Running(work.path)
    with tqdm(total=len(left), desc="study", unit="cell", disable=not progress) as bar, running:
        for done in engine.run(partial(run_cell, work=work), left, running.add):
            if done.record is not None:
                store.add(done.record)
                work.remove(done.cell)
            else:
                store.add_failure(done.cell, done.error or "")
            running.remove(done.cell)
            bar.update()
            line = f"{len(store.contents.records)}: {done.cell.name}: {_result(done)}"
            tqdm.write(line, file=sys.stdout)
            sys.stdout.flush()


def _result(done: Done) -> str:
    record = done.record
    if record is None:
        return f"failed: {done.error}"
    before = "" if record.clone is None else f"{record.clone.accuracy:.2%} -> "
    exact = ", exact" if record.final.exact else ""
    exact += ", own runs exact" if record.final.own_runs == "exact" else ""
    return (
        f"{before}{record.final.accuracy:.2%}, {record.final.wrong:,} wrong{exact}, "
        f"{record.seconds['all']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
