"""Engines: every cell ends with a record or an error, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.experiments.engines import ATTEMPTS, DaskCluster, Done, LocalProcesses
from pipelines.experiments.records import Cell
from tests.pipelines.experiments import made_up_work
from tests.pipelines.experiments.dask_cluster import cluster
from tests.pipelines.experiments.synthetic_records import cell


def cells(count: int, **settings: Any) -> list[Cell]:
    return [cell(seed=seed, settings=settings) for seed in range(count)]


def silent(cell: Cell) -> None:
    pass


def by_seed(done: list[Done]) -> dict[int, Done]:
    assert len({one.cell.seed for one in done}) == len(done)
    return {one.cell.seed: one for one in done}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_cell_is_run_once_and_the_workers_share_them(workers: int, tmp_path: Path) -> None:
    asked = cells(6, folder=str(tmp_path), seconds=0.1)
    started: list[Cell] = []
    done = list(LocalProcesses(workers).run(made_up_work.slow_answer, asked, started.append))
    assert sorted(by_seed(done)) == list(range(6))
    assert sorted(one.seed for one in started) == list(range(6))
    processes = {one.record.labels for one in done if one.record}
    assert len(processes) == workers
    assert os.getpid() not in processes
    assert len(list(tmp_path.iterdir())) == 6


def test_the_cell_of_a_dead_worker_is_run_again(tmp_path: Path) -> None:
    asked = cells(4, folder=str(tmp_path), deaths=1)
    done = by_seed(list(LocalProcesses(2).run(made_up_work.dies_first, asked, silent)))
    assert all(one.record is not None for one in done.values())
    assert sorted(mark.name for mark in tmp_path.iterdir()) == ["1-0", "3-0"]


def test_a_cell_that_kills_every_worker_fails(tmp_path: Path) -> None:
    asked = cells(3, folder=str(tmp_path), deaths=ATTEMPTS)
    done = by_seed(list(LocalProcesses(1).run(made_up_work.dies_first, asked, silent)))
    assert done[0].record is not None
    assert done[2].record is not None
    assert done[1].record is None
    assert done[1].error == f"its worker died {ATTEMPTS} times"


def test_a_cell_that_fails_does_not_stop_the_others() -> None:
    done = by_seed(list(LocalProcesses(2).run(made_up_work.fails_on_odd, cells(4), silent)))
    assert [one.error for _, one in sorted(done.items())] == [
        None,
        "ValueError: odd and even",
        None,
        "ValueError: odd and even",
    ]


def test_a_cell_that_times_out_is_a_failure_like_any_other() -> None:
    (done,) = LocalProcesses(1).run(made_up_work.raises_timeout, cells(1), silent)
    assert done.error == "TimeoutError: too slow"


def test_a_full_disk_when_a_cell_starts_does_not_hang_the_study() -> None:
    def full(cell: Cell) -> None:
        raise OSError(28, "No space left on device")

    done = list(LocalProcesses(2).run(made_up_work.answer, cells(3), full))
    assert [one.error for one in done] == ["OSError: [Errno 28] No space left on device"] * 3


def test_workers_have_one_thread_and_the_environment_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    done = list(LocalProcesses(1).run(made_up_work.threads_of_torch, cells(1), silent))
    assert done[0].record is not None
    assert done[0].record.longest_training_run == 1
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_closing_an_engine_leaves_no_process(tmp_path: Path) -> None:
    asked = cells(4, folder=str(tmp_path), seconds=60.0)
    quick = cell(seed=9, settings={"folder": str(tmp_path), "seconds": 0.0})
    running = LocalProcesses(2).run(made_up_work.slow_answer, [quick, *asked], silent)
    next(running)
    while len(list(tmp_path.iterdir())) < 3:
        time.sleep(0.05)
    running.close()  # type: ignore[attr-defined]
    for mark in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.name.split("-")[1]), 0)


def test_zero_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="workers=0"):
        LocalProcesses(0)


def processes_of(marks: Path) -> set[str]:
    """Return the ids of the processes that started a `slow_answer`."""
    return {mark.name.split("-")[1] for mark in marks.iterdir()}


def test_the_cells_of_a_killed_cluster_worker_are_run_again(tmp_path: Path) -> None:
    """A real scheduler and two workers; one is killed in the middle of its cell."""
    marks = tmp_path / "marks"
    marks.mkdir()
    asked = cells(8, folder=str(marks), seconds=0.7)
    with cluster(tmp_path) as (address, workers):
        engine = DaskCluster(address)
        engine.client.wait_for_workers(2, timeout=60)
        assert engine.workers == 2
        done = []
        for one in engine.run(made_up_work.slow_answer, asked, silent):
            done.append(one)
            if len(done) == 1:
                waited_until = time.monotonic() + 60
                while len(processes_of(marks)) < 2:
                    assert time.monotonic() < waited_until
                    time.sleep(0.02)
                # Both are in the middle of a cell, or just before the next one.
                os.killpg(workers[0].pid, signal.SIGKILL)
    assert sorted(by_seed(done)) == list(range(8))
    assert all(one.record is not None for one in done)
    processes = {one.record.labels for one in done if one.record}
    assert workers[1].pid in processes
    assert len(processes_of(marks)) == 2
    # The cell that was lost was started twice.
    assert len(list(marks.iterdir())) > 8 or workers[0].pid not in processes


def test_a_scheduler_that_dies_while_a_result_is_fetched_is_one_line() -> None:
    class Lost:
        status = "finished"

        def result(self) -> None:
            raise ConnectionResetError(104, "Connection reset by peer")

    engine = DaskCluster.__new__(DaskCluster)
    engine.address = "tcp://somewhere:1"
    with pytest.raises(ValueError, match="scheduler at tcp://somewhere:1 is gone"):
        engine._done(cells(1)[0], Lost())


def test_a_scheduler_that_dies_is_one_line_and_no_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with cluster(tmp_path) as (address, processes):
        engine = DaskCluster(address)
        engine.client.wait_for_workers(2, timeout=60)
        asked = cells(8, folder=str(marks), seconds=0.3)
        running = engine.run(made_up_work.slow_answer, asked, silent)
        done = [next(running)]
        os.killpg(processes[2].pid, signal.SIGKILL)
        with pytest.raises(ValueError, match=r"scheduler at .* is gone: .* same command") as gone:
            done.extend(running)
    assert "\n" not in str(gone.value)
    assert all(one.record is not None for one in done)
    assert "Traceback" not in capfd.readouterr().err


def test_a_cluster_reports_cells_when_they_start(tmp_path: Path) -> None:
    def release(cell: Cell) -> None:
        (tmp_path / f"go-{cell.seed}").touch()

    with cluster(tmp_path / "dask") as (address, _):
        engine = DaskCluster(address)
        engine.client.wait_for_workers(1, timeout=60)
        asked = cells(3, folder=str(tmp_path))
        done = list(engine.run(made_up_work.waits_for_a_file, asked, release))
    assert [one.error for one in done] == [None] * 3


def test_a_cell_that_fails_on_a_cluster_does_not_stop_the_others(tmp_path: Path) -> None:
    with cluster(tmp_path) as (address, _):
        engine = DaskCluster(address)
        engine.client.wait_for_workers(1, timeout=60)
        done = by_seed(list(engine.run(made_up_work.fails_on_odd, cells(4), silent)))
    assert [done[seed].error for seed in range(4)] == [
        None,
        "ValueError: odd and even",
        None,
        "ValueError: odd and even",
    ]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://", "not an address"])
def test_an_unreachable_scheduler_is_a_one_line_error(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.experiments.engines.PATIENCE", 1.0)
    with pytest.raises(ValueError, match="no Dask scheduler answers") as error:
        DaskCluster(address)
    assert "\n" not in str(error.value)
