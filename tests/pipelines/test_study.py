"""The command of the study, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oracle.files import lock
from pipelines.experiments.cells import WorkFolder
from pipelines.experiments.grid import Grid
from pipelines.experiments.store import FILE, being_written, open_store, read_store
from pipelines.job.command_line import run
from pipelines.learning.run_folder import CHECKPOINT
from pipelines.study import EXAMPLE, Options, main
from tests.pipelines.experiments import synthetic_records as synthetic
from tests.pipelines.experiments.dask_cluster import cluster

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "eval_freq": 2000,
    "eval_episodes": 20,
    "n_envs": 16,
    "n_steps": 32,
    "cloning_updates": 20,
    "critic_warmup": 512,
}


def grid() -> dict[str, Any]:
    """A grid of three clones and three fine-tuned clones."""
    comparison = {
        "seeds": 3,
        "steps": 2000,
        "settings": SETTINGS,
        "blocks": [
            {"arm": "cloning", "demonstrations": [20]},
            {"arm": "ppo", "demonstrations": [20], "reward": ["dense"]},
        ],
    }
    comparisons = {"supervision": comparison}
    return {"format": "abacus-study-grid", "version": 1, "comparisons": comparisons}


def arguments(folder: Path, *more: str) -> list[str]:
    (folder / "grid.json").write_text(json.dumps(grid()))
    paths = ["--grid", str(folder / "grid.json"), "--store", str(folder / "store")]
    return [*paths, "--work-folder", str(folder / "work"), *more]


def started(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.study", *arguments(folder, *more)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Command:
    """Run the command in this process: in another, imports take as long as a small study."""

    def __init__(self, output: pytest.CaptureFixture[str]) -> None:
        self.output = output

    def __call__(self, folder: Path, *more: str) -> tuple[int, str, str]:
        argv = arguments(folder, *more)
        status = run(main, Options, "", EXAMPLE, argv)
        captured = self.output.readouterr()
        return status, captured.out, captured.err


@pytest.fixture
def study(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(ROOT)
    return Command(capsys)


def records(folder: Path) -> dict[str, Any]:
    return dict(read_store(folder / "store").records)


def children_of(parent: int) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name before it is in brackets, and may hold anything.
            its_parent = int(file.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if its_parent == parent:
            found.append(int(file.parent.name))
    return found


def wait_until_gone(processes: list[int], patience: float = 20.0) -> None:
    deadline = time.monotonic() + patience
    while left := [number for number in processes if Path(f"/proc/{number}").exists()]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.1)


def wait_for_records(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    while len(records(folder)) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def test_a_study_resumes_after_a_kill_and_an_interrupt(tmp_path: Path, study: Command) -> None:
    status, out, _ = study(tmp_path, "--status")
    assert status == 0
    assert "all: 0 done, 0 running, 0 failed, 6 left" in out
    assert "not known" in out

    killed = started(tmp_path, "--workers", "1")
    wait_for_records(tmp_path, 1, killed)
    refused = study(tmp_path)
    assert refused[0] == 2
    assert refused[2].count("\n") == 1
    assert "another study is writing" in refused[2]
    status, out, _ = study(tmp_path, "--status")
    assert "running for" in out
    # Kill the study alone, not its workers.
    workers = children_of(killed.pid)
    assert workers
    killed.kill()
    killed.communicate()
    wait_until_gone(workers)
    kept = records(tmp_path)
    assert kept

    interrupted = started(tmp_path, "--workers", "1")
    wait_for_records(tmp_path, len(kept) + 1, interrupted)
    # As a terminal does, to the whole process group.
    os.killpg(interrupted.pid, signal.SIGINT)
    out, err = interrupted.communicate(timeout=300)
    assert interrupted.returncode == 130
    assert err.count("\n") == 1
    assert "records are kept, the same command resumes" in err
    assert not being_written(tmp_path / "store")

    status, out, err = study(tmp_path)
    assert status == 0, err
    assert "done already" in out
    assert len(records(tmp_path)) == 6
    for name, record in kept.items():
        assert records(tmp_path)[name] == record
    for line in out.splitlines():
        if line.startswith("written: "):
            assert (ROOT / line.removeprefix("written: ")).stat().st_size > 0
    assert "tables.md" in out
    assert not list((tmp_path / "work" / "cells").iterdir())

    before = (tmp_path / "store" / FILE).read_bytes()
    status, out, _ = study(tmp_path)
    assert "6 cells, 6 done already" in out
    assert (tmp_path / "store" / FILE).read_bytes() == before
    status, out, _ = study(tmp_path, "--status")
    assert "all: 6 done, 0 running, 0 failed, 0 left" in out


def test_a_study_removes_run_folders_that_a_kill_left_after_their_record_was_stored(
    tmp_path: Path, study: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between storing a record and removing the run folder; another study uses one."""
    monkeypatch.setattr("pipelines.experiments.report.write_report", lambda *_: [])
    arguments(tmp_path)
    finished, used, *others = Grid.load(tmp_path / "grid.json").cells
    with open_store(tmp_path / "store") as (store, _):
        for cell in (finished, used, *others):
            store.add(replace(synthetic.record(clone=synthetic.score(0.5)), cell=cell))
    work = WorkFolder(tmp_path / "work")
    other_grid = work.run(finished).with_name("0123456789abcdef")
    for folder in (work.run(finished), work.run(used), other_grid):
        folder.mkdir(parents=True)
        (folder / CHECKPOINT).write_bytes(b"some")
    work.lock(finished).touch()
    with lock(work.lock(used)):
        status, out, err = study(tmp_path)
    assert status == 0, err
    assert "6 cells, 6 done already" in out
    kept = {work.run(used), work.lock(used), other_grid}
    assert set((tmp_path / "work" / "cells").iterdir()) == kept
    study(tmp_path)
    assert set((tmp_path / "work" / "cells").iterdir()) == {other_grid}


def test_a_study_on_a_cluster_survives_a_killed_worker(tmp_path: Path, study: Command) -> None:
    """On a real scheduler and two workers, one of which is killed."""
    with cluster(tmp_path / "dask") as (address, workers):
        running = started(tmp_path, "--scheduler", address)
        wait_for_records(tmp_path, 1, running)
        os.killpg(workers[0].pid, signal.SIGKILL)
        out, err = running.communicate(timeout=300)
        assert workers[1].poll() is None
    assert running.returncode == 0, err
    assert len(records(tmp_path)) == 6
    assert not read_store(tmp_path / "store").failures
    table = (tmp_path / "store" / "tables.md").read_text()
    assert "3 seeds" in table
    # Nothing is left for processes of this machine.
    _, out, _ = study(tmp_path)
    assert "6 cells, 6 done already" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--grid", "nowhere.json"), "No such file"),
        (("--comparisons", "other"), "'other' is not in the grid: give supervision"),
        (("--workers", "0"), "workers=0"),
        (("--workers", "0", "--status"), "workers=0"),
        (("--scheduler", "nonsense://"), "no Dask scheduler answers"),
        (("--report-only",), "has no records of the grid yet"),
    ],
)
def test_bad_input_is_a_one_line_error_and_writes_no_records(
    more: tuple[str, ...], message: str, tmp_path: Path, study: Command
) -> None:
    status, _, err = study(tmp_path, *more)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    assert not records(tmp_path)


def test_an_unfinished_study_is_reported_with_what_is_missing(
    tmp_path: Path, study: Command
) -> None:
    arguments(tmp_path)
    cells = Grid.load(tmp_path / "grid.json").cells
    with open_store(tmp_path / "store") as (store, _):
        for cell in cells[:3]:
            # Trained before a default was changed.
            old = replace(cell, settings=cell.settings | {"gamma": 0.5})
            store.add(replace(synthetic.record(clone=synthetic.score(0.5)), cell=old))
        store.add_failure(cells[3], "no memory")
    status, out, err = study(tmp_path, "--report-only")
    assert status == 1, err
    assert "3 of 6 cells have a record, 1 failed, 2 were not run" in out
    assert "3 records were made with other settings" in out
    table = (tmp_path / "store" / "tables.md").read_text()
    assert "from 3 records" in table
    assert "no memory" in table
    _, out, _ = study(tmp_path, "--status")
    assert "all: 0 done, 0 running, 1 failed, 5 left" in out


def test_a_damaged_store_is_repaired_with_a_message(tmp_path: Path, study: Command) -> None:
    with open_store(tmp_path / "store"):
        pass
    with (tmp_path / "store" / FILE).open("ab") as file:
        file.write(b'01234567 {"record"')
    status, out, _ = study(tmp_path, "--status")
    assert status == 0
    assert "the last 18 bytes of the store are damaged" in out
    _, out, _ = study(tmp_path, "--scheduler", "nonsense://")
    assert "damaged at its end: 0 records are whole" in out
    assert not read_store(tmp_path / "store").damaged
