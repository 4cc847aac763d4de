"""Grids: cells are those of the file, and a malformed file is refused."""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from abacus.reward import LEVELS
from pipelines.experiments.cells import SCORING, settings_of
from pipelines.experiments.grid import Grid
from pipelines.experiments.records import Cell
from pipelines.learning.settings import PRESETS

STUDY = Path(__file__).parents[3] / "pipelines" / "experiments" / "grids" / "study.json"
SMALL: dict[str, Any] = {
    "format": "abacus-study-grid",
    "version": 1,
    "comparisons": {
        "some": {
            "seeds": 2,
            "steps": 1000,
            "settings": {"eval_freq": 500},
            "blocks": [
                {"arm": "cloning", "demonstrations": [1, 10]},
                {"arm": "ppo", "demonstrations": [0, 10], "reward": ["dense", "no_of"]},
                {"arm": "dagger", "labels": [300]},
                {"arm": "dqn", "reward": ["dense"]},
            ],
        }
    },
}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The small grid with one value changed."""
    grid: Any = copy.deepcopy(SMALL)
    place = grid
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return grid  # type: ignore[no-any-return]


def test_the_cells_are_those_of_the_file() -> None:
    cells = Grid.from_dict(SMALL).cells
    assert Counter((cell.arm, cell.seed) for cell in cells) == {
        ("cloning", 0): 2,
        ("cloning", 1): 2,
        ("ppo", 0): 4,
        ("ppo", 1): 4,
        ("dagger", 0): 1,
        ("dagger", 1): 1,
        ("dqn", 0): 1,
        ("dqn", 1): 1,
    }
    assert len({cell.key for cell in cells}) == len(cells)
    by_preset = {
        cell.demonstrations: cell.settings for cell in cells if cell.arm == "ppo" and not cell.seed
    }
    assert by_preset[0]["gamma"] == PRESETS["alone"].ppo.gamma
    assert by_preset[10]["gamma"] == PRESETS["default"].ppo.gamma
    assert by_preset[10]["demo_operations"] == 10
    assert {cell.settings["eval_freq"] for cell in cells} == {500}


def test_cells_of_a_comparison_have_one_budget() -> None:
    for cell in Grid.from_dict(SMALL).cells:
        rewarded = cell.arm in ("ppo", "dqn")
        assert cell.steps == cell.settings["n_timesteps"] == (1000 if rewarded else 0)


def test_cells_that_take_seconds_come_first_and_the_others_seed_by_seed() -> None:
    cells = Grid.from_dict(SMALL).cells
    slow = [cell.steps > 0 for cell in cells]
    assert slow == sorted(slow)
    for part in (True, False):
        seeds = [cell.seed for cell in cells if (cell.steps > 0) == part]
        assert seeds == sorted(seeds)


def test_only_the_arm_that_plans_plans_and_mends() -> None:
    """As the preset says, and with the steps that this takes; the others are measured alone."""
    blocks = [{"arm": "planning", "reward": ["dense"]}, {"arm": "dqn", "reward": ["dense"]}]
    both = Grid.from_dict(changed("comparisons", "some", "blocks", to=blocks)).cells
    planning, dqn = (next(cell for cell in both if cell.arm == arm) for arm in ("planning", "dqn"))
    alone = PRESETS["alone"]
    assert planning.steps == planning.settings["n_timesteps"] == planning.demonstrations == 0
    assert planning.settings["plan_exercises"] == alone.planning.exercises > 0
    assert planning.settings["mend_rounds"] == alone.mending.rounds > 0
    assert planning.settings["teach_rounds"] == 0
    assert dqn.steps == dqn.settings["n_timesteps"] > 0
    assert dqn.settings["plan_exercises"] == dqn.settings["mend_rounds"] == 0
    fewer = changed("comparisons", "some", "settings", to={"plan_exercises": 7, "mend_rounds": 2})
    fewer["comparisons"]["some"]["blocks"] = blocks[:1]
    (cell, _) = Grid.from_dict(fewer).cells
    assert (cell.settings["plan_exercises"], cell.settings["mend_rounds"]) == (7, 2)


@pytest.mark.parametrize(
    ("block", "name", "neutral", "value"),
    [
        ({"arm": "planning", "reward": ["dense"]}, "mend_without", "", "two-actions"),
        (
            {"arm": "ppo", "demonstrations": [0], "reward": ["dense"]},
            "retry_share",
            0.0,
            0.9,
        ),
        (
            {"arm": "ppo", "demonstrations": [0], "reward": ["dense"]},
            "gamma_end",
            0.0,
            0.99,
        ),
        (
            {"arm": "ppo", "demonstrations": [0], "reward": ["dense"]},
            "start_steps",
            2_000_000,
            1000,
        ),
    ],
)
def test_settings_that_came_later_are_left_out_where_they_change_nothing(
    block: dict[str, Any], name: str, neutral: object, value: object
) -> None:
    """Such cells keep the keys of records from before; they are trained as if it were there."""
    whole = changed("comparisons", "some", "blocks", to=[block])
    cells = Grid.from_dict(whole).cells
    assert all(name not in cell.settings for cell in cells)
    assert {settings_of(cell).flags()[name] for cell in cells} == {neutral}
    whole["comparisons"]["some"]["settings"] = {name: value}
    others = Grid.from_dict(whole).cells
    assert all(cell.settings[name] == value for cell in others)
    assert {settings_of(cell).flags()[name] for cell in others} == {value}
    assert not {cell.key for cell in cells} & {cell.key for cell in others}


def test_seeds_start_where_the_grid_says_and_a_block_may_have_more() -> None:
    grid = changed("comparisons", "some", "first_seed", to=100)
    grid["comparisons"]["some"]["blocks"][2]["seeds"] = 4
    cells = Grid.from_dict(grid).cells
    assert {cell.seed for cell in cells if cell.arm == "ppo"} == {100, 101}
    assert {cell.seed for cell in cells if cell.arm == "dagger"} == {100, 101, 102, 103}
    for cell in cells:
        assert cell.settings["seed"] == cell.settings["demo_seed"] == cell.seed


def test_only_the_arm_that_is_taught_asks_for_more() -> None:
    blocks = [
        *SMALL["comparisons"]["some"]["blocks"],
        {"arm": "teaching", "demonstrations": [0, 5]},
    ]
    cells = Grid.from_dict(changed("comparisons", "some", "blocks", to=blocks)).cells
    rounds = {cell.settings["teach_rounds"] for cell in cells if cell.arm == "teaching"}
    assert rounds == {PRESETS["exact"].teaching.rounds}
    assert {c.settings["demo_operations"] for c in cells if c.arm == "teaching"} == {0, 5}
    assert {c.settings["teach_rounds"] for c in cells if c.arm != "teaching"} == {0}


def test_a_changed_setting_is_another_cell() -> None:
    before = {cell.key for cell in Grid.from_dict(SMALL).cells}
    for settings in ({"eval_freq": 501}, {"eval_freq": 500, "gamma": 0.5}):
        other = Grid.from_dict(changed("comparisons", "some", "settings", to=settings))
        assert not before & {cell.key for cell in other.cells}
    steps = {
        cell.key for cell in Grid.from_dict(changed("comparisons", "some", "steps", to=1001)).cells
    }
    assert {cell.arm for cell in Grid.from_dict(SMALL).cells if cell.key in steps} == {
        "cloning",
        "dagger",
    }


def test_a_changed_preset_is_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {cell.key: cell for cell in Grid.from_dict(SMALL).cells}
    monkeypatch.setitem(PRESETS, "alone", PRESETS["alone"].with_flags({"gamma": 0.123}))
    gone = set(before) - {cell.key for cell in Grid.from_dict(SMALL).cells}
    assert {(before[key].arm, before[key].demonstrations) for key in gone} == {
        ("ppo", 0),
        ("dqn", 0),
    }


def test_another_scoring_is_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {cell.key for cell in Grid.from_dict(SMALL).cells}
    monkeypatch.setitem(SCORING, "episodes", 1)
    assert not before & {cell.key for cell in Grid.from_dict(SMALL).cells}


def test_the_key_depends_on_every_part_of_the_cell() -> None:
    cell = Grid.from_dict(SMALL).cells[0]
    others: list[Cell] = [
        replace(cell, comparison="other"),
        replace(cell, arm="dqn"),
        replace(cell, demonstrations=11),
        replace(cell, reward="dense"),
        replace(cell, operations="add"),
        replace(cell, labels=1),
        replace(cell, steps=1),
        replace(cell, seed=9),
        replace(cell, settings={}),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 1 + len(others)


def test_the_grid_of_the_study_is_complete() -> None:
    cells = Grid.load(STUDY).cells
    found = Counter((cell.comparison, cell.arm, cell.operations) for cell in cells)
    named = {"teacher", "reward", "from_nothing", "longer", "alone"}
    assert {comparison for comparison, _, _ in found} == named
    arms = {"cloning", "teaching", "dagger", "ppo", "planning", "dqn", "gail"}
    assert {arm for _, arm, _ in found} == arms
    assert found["teacher", "cloning", "both"] == 7 * 10
    tuned = {
        (c.demonstrations, c.reward) for c in cells if (c.comparison, c.arm) == ("reward", "ppo")
    }
    assert tuned == set(product((0, 10, 30, 100, 300, 1000), LEVELS))
    # The paper's levels and single operations, to the end of learning.
    paper = [cell for cell in cells if cell.comparison == "from_nothing"]
    assert Counter((cell.reward, cell.operations) for cell in paper) == {
        ("dense", "both"): 3,
        ("no_of", "both"): 3,
        ("no_of_sp", "both"): 3,
        ("dense", "add"): 3,
        ("dense", "subtract"): 3,
    }
    assert {(cell.arm, cell.demonstrations) for cell in paper} == {("ppo", 0)}
    # With the settings of the preset; no_of_sp has fewer retries and a higher learning rate.
    preset = PRESETS["ppo"].ppo
    faster = replace(preset.learning_rate, start=0.015)
    signpost_free = replace(preset, retry_share=0.5, learning_rate=faster)
    for cell in paper:
        expected = signpost_free if cell.reward == "no_of_sp" else preset
        assert settings_of(cell).ppo == expected
        assert settings_of(cell).n_timesteps == PRESETS["ppo"].n_timesteps
    # The level that takes longest once more, with more steps and the best of three starts.
    longer = [cell for cell in cells if cell.comparison == "longer"]
    assert [cell.reward for cell in longer] == ["no_of_sp"] * 3
    assert {settings_of(cell).ppo for cell in longer} == {replace(signpost_free, starts=3)}
    assert min(cell.steps for cell in longer) > 2 * PRESETS["ppo"].n_timesteps
    alone = [cell for cell in cells if cell.comparison == "alone"]
    assert {cell.arm for cell in alone} == {"planning"}
    assert {cell.seed for cell in alone} == {110, 111, 112}
    assert all(cell.settings["mend_rounds"] for cell in alone)
    assert Counter((cell.reward, cell.operations) for cell in alone) == {
        **{(level, "both"): 3 for level in LEVELS if level != "answer_only"},
        ("dense", "add"): 3,
        ("dense", "subtract"): 3,
    }
    # Settings were chosen on other seeds.
    assert min(cell.seed for cell in cells) == 100
    for comparison in {cell.comparison for cell in cells}:
        budgets = {cell.steps for cell in cells if cell.comparison == comparison and cell.steps}
        assert len(budgets) <= 1


BLOCK = ("comparisons", "some", "blocks", 1)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([], "JSON object"),
        (changed("format", to="other"), "abacus-study-grid"),
        (changed("version", to=2), "version 2"),
        (changed("comparisons", to={}), "at least one"),
        (changed("comparison", to={}), "'comparison'"),
        (changed("comparisons", "some", to=3), 'comparison "some": it must be a JSON object'),
        (changed("comparisons", "some", "seeds", to=0), "seeds=0"),
        (changed("comparisons", "some", "seeds", to=True), "seeds=True"),
        (changed("comparisons", "some", "first_seed", to=-1), "first_seed=-1"),
        (changed(*BLOCK, "seeds", to=0), "seeds=0"),
        (changed("comparisons", "some", "steps", to=-1), "steps=-1"),
        (changed("comparisons", "some", "steps", to=0), "needs steps"),
        (
            changed(*BLOCK, to={"arm": "dqn", "reward": ["dense"], "settings": {"mend_rounds": 3}}),
            "neither plans nor mends",
        ),
        (changed("comparisons", "some", "seed", to=1), "'seed'"),
        (changed("comparisons", "some", "blocks", to=[]), "list of at least one"),
        (changed("comparisons", "some", "settings", to={"reward": "dense"}), "'reward'"),
        (changed("comparisons", "some", "settings", to={"gamma": 2}), "gamma=2"),
        (changed("comparisons", "some", "settings", to={"gamma": "much"}), "gamma='much'"),
        (changed("comparisons", "some", "settings", to={"n_envs": 1.5}), "n_envs=1.5"),
        (changed("comparisons", "some", "settings", to={"eval_freq": None}), "eval_freq=None"),
        (changed("comparisons", "some", "settings", to={"start": 3.5}), "start=3.5"),
        (changed("comparisons", "some", "blocks", 2, "labels", to=[0]), "labels=0"),
        (changed(*BLOCK, "settings", to={"reward": "dense"}), "'reward'"),
        (changed(*BLOCK, "arm", to="sarsa"), "'sarsa'"),
        (changed(*BLOCK, "demonstrations", to=[-1]), "demonstrations=-1"),
        (changed(*BLOCK, "demonstrations", to=[10**6]), "from 0 to 50000"),
        (changed(*BLOCK, "demonstrations", to=10), "list of at least one"),
        (changed(*BLOCK, "reward", to=["dense", "denser"]), "'denser'"),
        (changed(*BLOCK, "reward", to=[1]), "reward=1"),
        (changed(*BLOCK, "reward", to=[{}]), "reward={}"),
        (changed(*BLOCK, "labels", to=[10]), "labels is not for arm ppo"),
        (changed(*BLOCK, "operations", to=["multiply"]), "'multiply'"),
        (changed("comparisons", "some", "blocks", 0, "demonstrations", to=[0]), "from 1 to 50000"),
        (changed(*BLOCK, "operations", to="both"), "list of at least one"),
    ],
)
def test_a_malformed_grid_is_refused_in_one_line(grid: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "grid.json"
    file.write_text(json.dumps(grid))
    with pytest.raises(ValueError, match=r"grid\.json") as error:
        Grid.load(file)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_json_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "grid.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="not a grid"):
        Grid.load(file)
