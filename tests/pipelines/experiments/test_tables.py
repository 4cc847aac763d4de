"""The study's tables: the right numbers in the right cells, and gaps visible."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.experiments.records import Record, frame_of
from pipelines.experiments.statistics import BEYOND, Estimate
from pipelines.experiments.tables import (
    PAPER_ROWS,
    order_reproduced,
    tables_of,
    threshold_text,
    verdict,
)
from pipelines.job.tables import Table, count
from pipelines.job.tables import decimal_percent as percent
from tests.pipelines.experiments.synthetic_records import record, score, seeds, study


def tables(records: list[Record]) -> dict[str, Table]:
    listed = tables_of(frame_of(records))
    found = {table.key: table for table in listed}
    assert len(found) == len(listed), "two tables of one name"
    return found


def cells(table: Table, *row: str) -> dict[str, str]:
    """The row that starts with these cells, by heading."""
    (found,) = (cells for cells in table.rows if cells[: len(row)] == row)
    return dict(zip(table.header, found, strict=True))


def test_texts_of_estimates_and_thresholds() -> None:
    assert Estimate(0.5, None, None, 1).text(percent) == "50.00 (1 seed)"
    assert Estimate(3.25, 0.0, 1234.4, 5).text(count, 5) == "3.2 (0 to 1,234)"
    assert Estimate(1.0, 1.0, 1.0, 4).text(percent, 5) == "100 (100 to 100; 4 seeds)"
    assert threshold_text(Estimate(3000, 1000, 3000, 5)) == "3,000 (1,000 to 3,000; 5 seeds)"
    assert threshold_text(Estimate(10, 10, BEYOND, 5)) == "10 (10 to not within this grid; 5 seeds)"
    assert threshold_text(Estimate(BEYOND, BEYOND, BEYOND, 5)) == "not within this grid (5 seeds)"
    assert threshold_text(Estimate(BEYOND, None, None, 1)) == "not within this grid (1 seed)"


def small_grid() -> list[Record]:
    """Two numbers of demonstrations, cloning and two levels; PPO was not run at all of them."""
    return [
        *seeds([0.5, 0.6, 0.7, 0.8], arm="cloning", demonstrations=3),
        *seeds([1.0, 1.0, 1.0, 1.0], arm="cloning", demonstrations=20),
        *seeds([0.9, 0.9, 1.0, 1.0], demonstrations=3, clone=score(0.95)),
        *seeds([0.25], demonstrations=3, reward="answer_only", clone=score(0.95)),
        *seeds([0.1, 0.2, 0.3, 0.4], demonstrations=0),
    ]


def test_the_grid_has_means_and_missing_cells() -> None:
    table = tables(small_grid())["accuracy"]
    assert table.header == ("demonstrations", "cloning alone", "dense", "answer_only")
    assert [row[0] for row in table.rows] == ["0", "3", "20"]
    assert cells(table, "0")["cloning alone"] == "-"
    assert cells(table, "0")["dense"].startswith("25.00 (1")
    assert cells(table, "3")["cloning alone"].startswith("65.00 (5")
    assert cells(table, "3")["dense"] == "95.00 (90.00 to 100)"
    assert cells(table, "3")["answer_only"] == "25.00 (1 seed)"
    assert cells(table, "20")["dense"] == "-"
    assert cells(table, "20")["cloning alone"] == "100 (100 to 100)"
    assert "4 seeds unless" in table.note


def test_errors_wrong_observations_and_certificates() -> None:
    found = tables(small_grid())
    # Three times the error, by how the records are made: 3 * 0.05.
    assert cells(found["long_error_rate"], "3")["dense"].startswith("15.00 (")
    # 30,000 times the error.
    assert cells(found["wrong"], "3")["dense"] == "1,500 (0 to 3,000)"
    assert cells(found["certified"], "3")["dense"] == "2 of 4"
    assert cells(found["certified"], "20")["cloning alone"] == "4 of 4"
    assert cells(found["certified"], "20")["answer_only"] == "-"


def test_the_last_row_averages_over_demonstrations_of_all_columns() -> None:
    records = [
        *seeds([0.0] * 3, arm="cloning", demonstrations=1),
        *seeds([1.0] * 3, arm="cloning", demonstrations=9),
        *seeds([0.5] * 3, demonstrations=1),
        *seeds([0.5] * 3, demonstrations=9),
        *seeds([0.9] * 3, demonstrations=0),
    ]
    row = cells(tables(records)["accuracy"], "1 to 9 together")
    assert row["cloning alone"] == "50.00 (50.00 to 50.00)"
    assert row["dense"] == "50.00 (50.00 to 50.00)"


def test_demonstrations_to_exactness() -> None:
    table = tables(small_grid())["demonstrations_to_exact"]
    cloning, dense = cells(table, "cloning alone"), cells(table, "dense")
    assert cloning["all seeds exact"] == "20 (20 to 20; 4 seeds)"
    assert dense["all seeds exact"].startswith("not within this grid (3 to not")
    assert dense["at least half"].startswith("3 (3 to ")
    assert cells(table, "answer_only")["at least half"] == "not within this grid (1 seed)"


def test_ppo_added_counts_seeds() -> None:
    table = tables(small_grid())["ppo_added"]
    row = cells(table, "supervision", "dense", "3")
    assert row["solved, %: clone"] == "95.00"
    assert row["solved, %: kept: rose / fell"] == "2 / 2"
    assert row["wrong: kept: rose / fell"] == "2 / 2"
    worse = seeds([0.99] * 3, clone=score(0.9, wrong=5), last=score(0.8, wrong=5))
    row = cells(tables(worse)["ppo_added"], "supervision", "dense", "10")
    assert row["solved, %: kept: rose / fell"] == "3 / 0"
    assert row["solved, %: last: rose / fell"] == "0 / 3"
    assert row["wrong: last: rose / fell"] == "0 / 0"
    assert row["wrong: kept: rose / fell"] == "3 / 0"
    assert row["seeds"] == "3"


def test_milestones_are_medians_of_the_seeds_that_reached_them() -> None:
    records = [
        record(seed=k, demonstrations=0, curve=((0, 0.0), (step, top)))
        for k, (step, top) in enumerate([(200, 0.95), (400, 1.0), (900, 0.9), (999, 0.2)])
    ]
    row = cells(tables(records)["milestones_supervision"], "PPO", "dense", "0")
    assert row["to 90%"] == "400 steps, 4 s (3 of 4)"
    assert row["to 100%"] == "400 steps, 4 s (1 of 4)"
    lost = record(demonstrations=0, curve=((0, 0.0), (50, 0.2)))
    row = cells(tables([lost])["milestones_supervision"], "PPO", "dense", "0")
    assert row["to 90%"] == "not reached (0 of 1)"


def longest(**by_row: list[int]) -> list[Record]:
    made = []
    for name, (kind, _) in PAPER_ROWS.items():
        for seed, run in enumerate(by_row.get(name, [])):
            setting: dict[str, Any] = {"reward": kind.reward, "operations": kind.operations}
            made.append(record(run=run, demonstrations=0, seed=seed, **setting))
    return made


IN_ORDER = {
    "no_of": [90, 91, 92],
    "addition": [80, 81, 82],
    "no_of_sp": [70, 71, 72],
    "subtraction": [60, 61, 62],
    "dense": [50, 51, 52],
}


def test_the_papers_rows_stand_beside_ours() -> None:
    table = tables(longest(**IN_ORDER))["longest_runs"]
    paper = cells(table, "the paper")
    assert [paper[name] for name in PAPER_ROWS] == ["515", "1,145", "773", "907", "675"]
    ours = cells(table, "supervision, 1,000 steps", "0")
    assert ours["no_of"].startswith("best 92; 91 (")
    assert ours["order reproduced? (mean)"] == ours["order reproduced? (best)"] == "yes"


def test_the_order_of_the_paper_is_compared_with_ours() -> None:
    swapped = longest(**(IN_ORDER | {"dense": [10, 11, 200]}))
    ours = cells(tables(swapped)["longest_runs"], "supervision, 1,000 steps")
    # One lucky seed has the longest run of all; the mean, (1/4 * 10 + 11 + 1/4 * 200) / (3/2), is
    # still the lowest.
    assert ours["order reproduced? (best)"] == "no"
    assert ours["order reproduced? (mean)"] == "yes"
    assert order_reproduced({"dense": 1, "no_of": 3, "no_of_sp": 2}) == "yes (of 3 columns)"
    assert order_reproduced({"dense": 1, "no_of": 2, "no_of_sp": 2}) == "no (of 3 columns)"
    assert order_reproduced({"dense": 1}) == "-"


def test_a_claim_is_decided_by_its_interval() -> None:
    table = tables(longest(**(IN_ORDER | {"dense": [10, 11, 200]})))["paper_claims"]
    assert cells(table, "no_of > no_of_sp")["reproduced?"] == "yes"
    assert cells(table, "no_of > no_of_sp")["the paper"] == "372"
    assert cells(table, "no_of > no_of_sp")["here"].startswith("+20 (+1")
    assert cells(table, "no_of > dense")["reproduced?"] == "not decided"
    other_way = tables(longest(no_of=[1, 2, 3], dense=[7, 8, 9]))["paper_claims"]
    assert [row[-1] for row in other_way.rows] == ["opposite"]
    assert verdict(Estimate(5, None, None, 1)) == "not decided"


def test_dagger_and_cloning_are_sorted_by_labels() -> None:
    records = [
        *seeds([0.5] * 3, arm="cloning", demonstrations=1, labels=60),
        *seeds([0.9] * 3, arm="cloning", demonstrations=10, labels=600),
        *seeds(
            [1.0] * 3, arm="dagger", comparison="teachers", demonstrations=0, labels=299, asked=300
        ),
        *seeds([0.7] * 3, arm="cloning", operations="add", demonstrations=5, labels=333),
    ]
    rows = tables(records)["labels"].rows
    assert [row[:2] for row in rows] == [
        ("60", "cloning alone"),
        ("299", "DAgger"),
        ("600", "cloning alone"),
    ]
    assert rows[1][4] == "100 (100 to 100)"
    assert rows[1][-1] == "3 of 3"


def test_dqn_stands_beside_ppo_at_equal_steps() -> None:
    def run(arm: str, end: float) -> list[Record]:
        line = ((0, 0.0), (1000, end))
        return seeds([end] * 3, arm=arm, comparison="dqn", demonstrations=0, curve=line)

    table = tables([*run("ppo", 0.8), *run("dqn", 0.2)])["dqn_dqn"]
    assert cells(table, "dense", "PPO")["500 steps"] == "40.00 (40.00 to 40.00)"
    assert cells(table, "dense", "DQN, masked")["1,000 steps"] == "20.00 (20.00 to 20.00)"


def test_demonstrations_against_none_at_equal_steps() -> None:
    records = [
        *seeds([0.4] * 3, demonstrations=0, curve=((0, 0.0), (1000, 0.4))),
        *seeds([0.9] * 3, demonstrations=5, labels=70, curve=((0, 0.5), (1000, 0.9))),
        *seeds([0.9] * 3, demonstrations=5, reward="no_of"),
    ]
    table = tables(records)["equal_steps_supervision"]
    without, given = cells(table, "dense", "0"), cells(table, "dense", "5")
    assert without["500 steps"] == "20.00 (20.00 to 20.00)"
    assert given["500 steps"] == "70.00 (70.00 to 70.00); +50.00 (+50.00 to +50.00)"
    assert given["teacher's answers"] == "70"
    # Not run, or without a curve.
    assert cells(table, "no_of", "0")["seeds"] == "0"
    assert cells(table, "no_of", "5")["500 steps"] == "-"


def test_any_part_of_the_study_has_tables() -> None:
    whole = study((0, 1, 10), seeds_of_each=1, points=2)
    assert tables([]) == {}
    for one in whole:
        assert tables([one])
    for table in tables(whole[::3]).values():
        assert "seed" in table.markdown()


def test_other_comparisons_and_rewards_keep_their_names() -> None:
    renamed = [
        *seeds([0.5] * 3, comparison="mine", demonstrations=7, reward="step,submit"),
        *seeds([0.5] * 3, comparison="mine", demonstrations=77, reward="dense"),
    ]
    table = tables(renamed)["accuracy"]
    assert table.header == ("demonstrations", "dense", "step,submit")
    assert "`mine`" in table.note


def test_runs_of_two_budgets_are_not_mixed() -> None:
    mixed = [record(seed=0, steps=10), record(seed=1, steps=20)]
    with pytest.raises(ValueError, match="another steps"):
        frame_of(mixed)
    with pytest.raises(ValueError, match="another rate"):
        frame_of([record(seed=0, settings={"rate": 1}), record(seed=1, settings={"rate": 2})])
    assert tables([record(seed=k, settings={"seed": k}) for k in range(2)])


def test_a_cell_that_was_recorded_twice_counts_once() -> None:
    assert len(frame_of([record(), record(), record(seed=1)])) == 2


def test_the_order_of_records_does_not_matter() -> None:
    whole = study((0, 10), seeds_of_each=3, points=2)
    assert tables(whole[::-1]) == tables(whole)
