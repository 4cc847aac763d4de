"""The study's tables: the right numbers in the right cells, and gaps visible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipelines.experiments.paper_tables import PAPER_ROWS, order_reproduced, verdict
from pipelines.experiments.records import Record, frame_of
from pipelines.experiments.statistics import BEYOND, Estimate
from pipelines.experiments.store import MissingCell
from pipelines.experiments.tables import tables_of, threshold_text
from pipelines.job.tables import Table, count
from pipelines.job.tables import decimal_percent as percent
from tests.pipelines.experiments.synthetic_records import (
    cell,
    record,
    score,
    seeds,
    study,
    taught,
)


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


def test_answers_stand_beside_what_they_reach_and_both_certificates() -> None:
    own = replace(score(1.0, wrong=7), own_runs="exact")
    open_case = replace(score(1.0, wrong=8), own_runs="not proven")
    cloned = [
        *seeds([0.5, 0.6], arm="cloning", demonstrations=3, labels=90),
        record(arm="cloning", demonstrations=3, labels=96, seed=2, final=own),
        record(arm="cloning", demonstrations=3, labels=96, seed=3, final=open_case),
    ]
    single = seeds([0.7] * 3, arm="cloning", operations="add", demonstrations=5, labels=333)
    table = tables([*cloned, *single, taught(0), taught(1, wrong=(5, 0))])["by_answers"]
    assert [row[0] for row in table.rows] == ["cloning alone", "cloning alone", "teaching"]
    row = cells(table, "cloning alone", "both operations")
    assert row["answers"] == "93 (90 to 96)"
    assert row["demonstrated operations"] == "3"
    assert row["operations solved, %"].startswith("80.00 (")
    assert row["exact as the teacher"] == "0 of 4"
    # Two records of the four were not asked.
    assert row["exact by own runs"] == "1 of 2 (1 not decided)"
    assert cells(table, "cloning alone", "addition")["exact by own runs"] == "-"
    row = cells(table, "teaching")
    assert row["answers"] == "4,800 (4,200 to 5,400)"
    assert row["demonstrated operations"] == "160 (140 to 180)"
    assert row["exact as the teacher"] == "2 of 2"


def test_steps_are_given_by_stage_with_both_accuracies() -> None:
    made = seeds([0.25] * 3, arm="planning", reward="no_of_sp")
    stages = {"planning": 9000, "mending": 80}
    alone = [
        replace(one, stage_steps=stages, final=replace(one.final, own_accuracy=0.75))
        for one in made
    ]
    plain = seeds([0.5] * 3, comparison="reward", labels=300)
    found = tables([*alone, *plain])
    # It asks the teacher for nothing.
    assert "by_answers" not in found
    table = found["by_steps"]
    row = cells(table, "supervision", "planning and mending", "no_of_sp")
    assert row["steps"] == "planning 9,000; mending 80"
    assert row["operations solved, %"] == "25.00 (25.00 to 25.00)"
    assert row["by the level's own rules, %"] == "75.00 (75.00 to 75.00)"
    row = cells(table, "reward", "clone, then PPO")
    assert (row["steps"], row["answers"], row["demonstrations"]) == ("1,000", "300", "10")


def test_levels_stand_side_by_side_with_the_lowest_and_the_highest_seed() -> None:
    exact = replace(score(1.0, wrong=7), own_runs="exact")
    clone = score(0.5)
    found = tables(
        [
            *seeds([0.25, 0.75, 0.5], demonstrations=0),
            *seeds([0.9, 0.8], demonstrations=3, clone=clone),
            record(demonstrations=3, seed=2, final=exact, clone=clone),
            *seeds([0.7], demonstrations=3, reward="answer_only", clone=score(0.6)),
        ]
    )["by_level"]
    assert found.header == ("demonstrations", "clone", "dense", "answer_only")
    assert found.rows == (
        ("0", "-", "25.00 to 75.00", "-"),
        ("3", "50.00 to 60.00", "80.00 to 100, exact 1 of 3", "70.00"),
    )


def test_each_seed_without_demonstrations_has_a_row() -> None:
    proven = replace(score(1.0, wrong=7), own_runs="exact", longest_run=2000)
    before = replace(score(0.8), own_accuracy=0.85)
    trained = record(comparison="from_nothing", demonstrations=0, final=proven, last=before)
    planned = record(arm="planning", comparison="alone", run=0, seed=4)
    stages = {"planning": 3000, "mending": 70_000}
    clones = seeds([0.9], demonstrations=3)
    found = tables([trained, replace(planned, stage_steps=stages), *clones])
    assert [key for key in found if key.startswith("each_seed")] == [
        "each_seed_alone",
        "each_seed_from_nothing",
    ]
    row = cells(found["each_seed_from_nothing"], "PPO from nothing", "dense", "0")
    assert (row["solved by the last, %"], row["solved by the kept, %"]) == ("85.00", "100")
    assert (row["longest run"], row["while training"]) == ("2,000", "10")
    assert (row["own runs"], row["seconds"]) == ("exact", "4")
    row = cells(found["each_seed_alone"], "planning and mending", "dense", "4")
    assert (row["own runs"], row["while training"], row["steps"]) == ("not asked", "-", "73,000")


def test_the_seconds_of_all_cells_are_added_up() -> None:
    made = [*seeds([0.5] * 3), *seeds([0.6] * 2, arm="cloning", demonstrations=5)]
    table = tables([replace(one, seconds={"all": 1800.0}) for one in made])["seconds"]
    assert cells(table, "all")["cells"] == "5"
    assert cells(table, "all")["hours"] == "2.50"


def test_short_and_long_trainings_stand_side_by_side() -> None:
    line = ((0, 0.1), (100, 0.4), (1000, 0.9))
    made = [
        *seeds([0.95] * 3, demonstrations=5, curve=line),
        *seeds([0.3] * 3, demonstrations=0, reward="no_of"),
    ]
    table = tables(made)["short_and_long"]
    assert table.title == "PPO after 100 and after 1,000 steps"
    row = cells(table, "5", "dense")
    assert row["before PPO"] == "10.00 (10.00 to 10.00)"
    assert row["100 steps"] == "40.00 (40.00 to 40.00)"
    assert row["1,000 steps"] == "90.00 (90.00 to 90.00)"
    assert row["kept"] == "95.00 (95.00 to 95.00)"
    # Without a curve.
    assert cells(table, "0", "no_of")["100 steps"] == "-"


def test_demonstrations_to_exactness() -> None:
    table = tables(small_grid())["demonstrations_to_exact"]
    cloning, dense = cells(table, "cloning alone"), cells(table, "dense")
    assert cloning["all seeds exact"] == "20 (20 to 20; 4 seeds)"
    assert dense["all seeds exact"].startswith("not within this grid (3 to not")
    assert dense["at least half"].startswith("3 (3 to ")
    assert cells(table, "answer_only")["at least half"] == "not within this grid (1 seed)"


def test_a_proof_by_own_runs_counts_for_the_threshold() -> None:
    own = replace(score(1.0, wrong=7), own_runs="exact")
    made = [
        *seeds([0.5] * 3, arm="cloning", demonstrations=3),
        *seeds([1.0] * 3, arm="cloning", demonstrations=20, final=own),
    ]
    table = tables(made)["demonstrations_to_exact"]
    assert cells(table, "cloning alone")["all seeds exact"] == "20 (20 to 20; 3 seeds)"


def test_cells_without_a_record_are_counted() -> None:
    missing = [
        MissingCell(cell(seed=7), "no memory"),
        MissingCell(cell(seed=8), None),
        MissingCell(cell(arm="dagger", labels=300, demonstrations=0), None),
    ]
    (table,) = tables_of(frame_of([]), missing)
    assert "1 cells failed, 2 were not run" in table.note
    row = cells(table, "supervision", "clone, then PPO", "dense", "10")
    assert (row["failed"], row["not run"], row["seeds"]) == ("1", "1", "7, 8")
    assert row["errors"] == "no memory"
    assert cells(table, "supervision", "DAgger", "none", "300 answers")["errors"] == "-"


def test_ppo_added_counts_seeds() -> None:
    table = tables(small_grid())["ppo_added"]
    row = cells(table, "3", "dense")
    assert row["solved, %: clone"] == "95.00"
    assert row["solved, %: kept: rose / fell"] == "2 / 2"
    assert row["wrong: kept: rose / fell"] == "2 / 2"
    worse = seeds([0.99] * 3, clone=score(0.9, wrong=5), last=score(0.8, wrong=5))
    row = cells(tables(worse)["ppo_added"], "10", "dense")
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
    row = cells(tables(records)["milestones_supervision"], "PPO from nothing", "dense", "0")
    assert row["to 90%"] == "400 steps, 4 s (3 of 4)"
    assert row["to 100%"] == "400 steps, 4 s (1 of 4)"
    lost = record(demonstrations=0, curve=((0, 0.0), (50, 0.2)))
    row = cells(tables([lost])["milestones_supervision"], "PPO from nothing", "dense", "0")
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
    paper = cells(table, "the paper, 35 million steps")
    assert [paper[name] for name in PAPER_ROWS] == ["515", "1,145", "773", "907", "675"]
    ours = cells(table, "supervision, 1,000 steps")
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


def test_learners_stand_side_by_side_at_equal_steps() -> None:
    def run(arm: str, end: float, **values: Any) -> list[Record]:
        line = ((0, 0.0), (1000, end))
        return seeds([end] * 3, arm=arm, comparison="reward", curve=line, **values)

    table = tables(
        [
            *run("ppo", 0.8, demonstrations=0),
            *run("ppo", 0.9, demonstrations=10),
            *run("dqn", 0.2, demonstrations=0),
            *run("gail", 0.1, demonstrations=10, reward="none"),
        ]
    )["learners_reward"]
    assert [row[0] for row in table.rows] == ["PPO from nothing", "GAIL", "DQN, masked"]
    row = cells(table, "PPO from nothing", "dense", "0")
    assert row["500 steps"] == "40.00 (40.00 to 40.00)"
    assert cells(table, "DQN, masked")["1,000 steps"] == "20.00 (20.00 to 20.00)"


def test_seconds_are_summed_by_approach() -> None:
    made = [*seeds([0.5] * 3), *seeds([0.5], arm="cloning")]
    table = tables(made)["seconds"]
    # All made-up records took 4 s.
    row = cells(table, "supervision", "clone, then PPO")
    assert (row["cells"], row["median"], row["hours"]) == ("3", "4", "0.00")
    assert cells(table, "supervision", "cloning alone")["cells"] == "1"


def test_any_part_of_the_study_has_tables() -> None:
    whole = study((0, 1, 10), seeds_of_each=1, points=2)
    assert tables([]) == {}
    for one in whole:
        assert tables([one])
    for table in tables(whole[::3]).values():
        assert "seed" in table.markdown() or table.key == "seconds"


def test_other_comparisons_and_rewards_keep_their_names() -> None:
    renamed = seeds([0.5] * 3, comparison="mine", demonstrations=7, reward="step,submit")
    row = cells(tables(renamed)["by_steps"], "mine", "clone, then PPO", "step,submit")
    assert row["demonstrations"] == "7"


def test_runs_of_two_budgets_are_not_mixed() -> None:
    mixed = [record(seed=0, steps=10), record(seed=1, steps=20)]
    with pytest.raises(ValueError, match="another steps"):
        frame_of(mixed)
    with pytest.raises(ValueError, match="another rate"):
        frame_of([record(seed=0, settings={"rate": 1}), record(seed=1, settings={"rate": 2})])
    assert tables([record(seed=k, settings={"seed": k}) for k in range(2)])
    # A flag that did not exist when the first seed was run.
    assert tables([record(seed=0), record(seed=1, settings={"rate": 1})])


def test_a_cell_that_was_recorded_twice_counts_once() -> None:
    assert len(frame_of([record(), record(), record(seed=1)])) == 2


def test_the_order_of_records_does_not_matter() -> None:
    whole = study((0, 10), seeds_of_each=3, points=2)
    assert tables(whole[::-1]) == tables(whole)
