"""The store keeps every record that was added, through kills and damage."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.experiments.store import (
    FILE,
    Contents,
    being_written,
    expected_seconds,
    open_store,
    read_store,
    status_lines,
)
from tests.pipelines.experiments.synthetic_records import cell, record

RECORDS = [record(0.1 * k, seed=k, curve=[(0, 0.0), (100, 0.5)]) for k in range(5)]


def written(folder: Path, count: int = len(RECORDS)) -> bytes:
    """A store of the first records, and its bytes."""
    with open_store(folder) as (store, _):
        for one in RECORDS[:count]:
            store.add(one)
    return (folder / FILE).read_bytes()


def test_records_come_back_as_they_were_added(tmp_path: Path) -> None:
    written(tmp_path)
    contents = read_store(tmp_path)
    assert list(contents.records.values()) == RECORDS
    assert contents.damaged == 0


def test_records_are_appended(tmp_path: Path) -> None:
    before = written(tmp_path, 2)
    with open_store(tmp_path) as (store, message):
        assert message is None
        assert list(store.contents.records.values()) == RECORDS[:2]
        store.add(RECORDS[2])
        assert store.contents.records[RECORDS[2].cell.key] == RECORDS[2]
    assert (tmp_path / FILE).read_bytes().startswith(before)
    assert list(read_store(tmp_path).records.values()) == RECORDS[:3]


def test_a_failure_is_kept_until_the_cell_has_a_record(tmp_path: Path) -> None:
    one = record(0.5)
    with open_store(tmp_path) as (store, _):
        store.add_failure(one.cell, "no memory")
        assert store.contents.failures == {one.cell.key: "no memory"}
    contents = read_store(tmp_path)
    assert contents.failures == {one.cell.key: "no memory"}
    assert not contents.records
    with open_store(tmp_path) as (store, _):
        store.add(one)
    assert not read_store(tmp_path).failures


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 100_000), garbage=st.binary(max_size=40))
def test_a_damaged_tail_costs_only_the_records_that_it_holds(
    cut: int, garbage: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Cut anywhere, with anything behind: what a kill or a full disk may leave."""
    folder = tmp_path_factory.mktemp("store")
    data = written(folder)
    kept = data[: cut % (len(data) + 1)]
    (folder / FILE).write_bytes(kept + garbage.replace(b"\n", b""))
    header = data.index(b"\n") + 1
    if len(kept) < header and garbage:
        # What is left of the first line and something else: it may be anybody's file.
        return
    whole = max(kept.count(b"\n") - 1, 0)
    with open_store(folder) as (store, message):
        assert list(store.contents.records.values()) == RECORDS[:whole]
        damaged = (folder / FILE).stat().st_size < len(kept + garbage)
        if damaged and len(kept) >= header:
            assert message is not None
            assert f"{whole} records are whole" in message
        for one in RECORDS[whole:]:
            store.add(one)
    assert list(read_store(folder).records.values()) == RECORDS
    assert (folder / FILE).read_bytes() == data


def test_what_was_damaged_is_put_aside(tmp_path: Path) -> None:
    data = written(tmp_path)
    for number, cut in ((1, 3), (2, 5)):
        (tmp_path / FILE).write_bytes(data[:-cut])
        with open_store(tmp_path) as (_, message):
            assert f"records.jsonl.damaged-{number}" in (message or "")
        last_line = data.splitlines(keepends=True)[-1]
        assert (tmp_path / f"records.jsonl.damaged-{number}").read_bytes() == last_line[:-cut]


def test_damage_before_whole_records_is_not_cut_off(tmp_path: Path) -> None:
    data = written(tmp_path)
    lines = data.splitlines(keepends=True)
    lines[2] = lines[2].replace(b"supervision", b"superstition")
    (tmp_path / FILE).write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match="damaged in line 3"), open_store(tmp_path):
        pass
    assert (tmp_path / FILE).read_bytes() == b"".join(lines)


@pytest.mark.parametrize("text", ['{"failed": {"arm": "ppo"}}', "{}", "[]", '{"record": {}}'])
def test_whole_lines_of_another_version_are_refused_with_their_place(
    text: str, tmp_path: Path
) -> None:
    written(tmp_path, 1)
    with (tmp_path / FILE).open("ab") as file:
        file.write(f"{zlib.crc32(text.encode()):08x} {text}\n".encode())
    with pytest.raises(ValueError, match="line 3, is not a record of this version"):
        read_store(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format": "abacus-study-records", "version": 1}, "version 1, this is 2"),
        ({"format": "shopping list", "version": 1}, "not the store of a study"),
        (["abacus"], "not the store of a study"),
    ],
)
def test_another_kind_of_file_is_refused_and_left_alone(
    header: object, message: str, tmp_path: Path
) -> None:
    data = json.dumps(header).encode() + b"\nmilk\n"
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(ValueError, match=message), open_store(tmp_path):
        pass
    assert (tmp_path / FILE).read_bytes() == data


def test_the_second_writer_is_refused_and_readers_are_not(tmp_path: Path) -> None:
    assert not being_written(tmp_path)
    with open_store(tmp_path) as (store, _):
        store.add(RECORDS[0])
        with pytest.raises(ValueError, match="another study is writing"), open_store(tmp_path):
            pass
        assert being_written(tmp_path)
        assert list(read_store(tmp_path).records.values()) == RECORDS[:1]
    assert not being_written(tmp_path)


def test_records_are_found_whatever_the_defaults_were_and_the_last_one_counts() -> None:
    made = [record(0.1, seed=0), record(0.2, seed=1, settings={"rate": 1})]
    made += [record(0.3, seed=1, settings={"rate": 2}), record(0.4, comparison="other")]
    contents = Contents({one.cell.key: one for one in made})
    cells = [cell(seed=seed) for seed in range(3)]
    assert [one.final.accuracy for one in contents.records_of(cells)] == [0.1, 0.3]
    contents.failures[cells[2].key] = "no memory"
    (missing,) = contents.missing(cells)
    assert (missing.cell, missing.error) == (cells[2], "no memory")
    (never_run,) = contents.missing([cell(seed=9)])
    assert never_run.error is None


def test_the_time_left_is_predicted_from_like_cells() -> None:
    """All made-up records took 4 s: 1000 steps of PPO, or cloning."""
    done = [record(arm="ppo", steps=1000), record(arm="cloning", demonstrations=3)]
    contents = Contents({one.cell.key: one for one in done})
    same = cell(arm="ppo", steps=1000, seed=5)
    longer = cell(arm="ppo", steps=3000)
    other = cell(arm="dqn", steps=3000)
    cloning = cell(arm="cloning", demonstrations=99)
    assert expected_seconds([same, longer, other, cloning], contents) == [4, 12, 4, 4]
    assert "time left: about 0 min with 2 workers" in status_lines([longer], contents, {}, 2)
    assert "time left: not known before a cell is done" in status_lines([same], Contents(), {}, 1)


def _write_endlessly(folder: Path) -> None:
    with open_store(folder) as (store, _):
        for seed in range(10**6):
            store.add(record(0.5, seed=seed))


def test_killed_at_random_points_no_record_is_lost(tmp_path: Path) -> None:
    """What was read from outside before a kill is there after it."""
    context = multiprocessing.get_context("fork")
    for kill in range(10):
        process = context.Process(target=_write_endlessly, args=(tmp_path,))
        process.start()
        while not being_written(tmp_path):
            time.sleep(0.001)
        time.sleep(0.003 * kill)
        seen = set(read_store(tmp_path).records)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with open_store(tmp_path) as (store, _):
            assert seen <= set(store.contents.records)
    seeds = sorted(one.cell.seed for one in read_store(tmp_path).records.values())
    assert seeds == list(range(len(seeds)))
    assert seeds
    assert cell(seed=0).key in read_store(tmp_path).records
