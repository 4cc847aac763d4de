"""Recording: the content depends on the recipe alone, and operations survive every detour."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abacus.env import AbacusEnv
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Task
from oracle.demos import (
    Demonstrations,
    Recipe,
    default_path,
    record_demonstrations,
    record_in_memory,
    record_tasks,
    task_config,
)
from oracle.demos.recipe import episode_seeds, stream_starts
from oracle.demos.recorder import Recorder
from oracle.demos.replay import first_difference, recipe_difference


def config(**settings: Any) -> AbacusConfig:
    return AbacusConfig(**{"max_operations": 10, **settings})


def recorded(recipe: Recipe, path: Path, **settings: Any) -> Demonstrations:
    record_demonstrations(recipe, path, **settings)
    return Demonstrations.open(path, verify=True)


def tasks(*texts: str) -> tuple[Task, ...]:
    return tuple(map(Task.parse, texts))


TASKS = tasks("12 + 34 - 5", "0 + 0", "9765624 - 1", "0 + 15624 + 1", "7 - 7 + 0 - 0 + 3")
#: Every axis of a recipe that changes how it is recorded.
RECIPES = {
    "default": Recipe(operations=403),
    "detours": Recipe(operations=300, epsilon=0.2),
    "only detours": Recipe(operations=60, epsilon=1.0),
    "printed": Recipe(operations=300, variant="printed", epsilon=0.3),
    "reloads": Recipe(
        config(operations="subtract", max_operations=30, start="random"), operations=300
    ),
    "reloads with detours": Recipe(
        config(operations="subtract", max_operations=30), epsilon=0.5, operations=200
    ),
    "capacity": Recipe(
        config(operations="add", columns=4, max_digits=3, max_operations=50), operations=200
    ),
    "capacity with detours": Recipe(
        config(operations="add", columns=2, max_digits=1, base=2), operations=200, epsilon=0.6
    ),
    "wide": Recipe(config(columns=30, max_digits=25, base=10), operations=40, epsilon=0.1),
    "one operation an episode": Recipe(config(max_operations=1), operations=101),
    "one long episode": Recipe(config(max_operations=10**9), operations=500),
    "transitions": Recipe(operations=None, transitions=5000, seed=7),
    # Detours must be no mistakes even if a mistake ends nothing.
    "detours without endings": Recipe(config(reward=("step",)), operations=200, epsilon=0.4),
    "other reward": Recipe(config(reward="no_of_sp"), operations=50),
    "modules": Recipe(config(reward=("step", "slide")), operations=50),
    "tasks": Recipe(AbacusConfig(), tasks=TASKS),
    "tasks with detours": Recipe(AbacusConfig(), tasks=TASKS * 20, epsilon=0.2),
    "wide tasks": Recipe(
        AbacusConfig(columns=60, max_digits=59, base=10), tasks=tasks(f"{10**59} - {10**58} + 1")
    ),
}


@pytest.fixture(scope="module", params=RECIPES, ids=lambda name: name.replace(" ", "-"))
def demonstrations(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Demonstrations:
    path = tmp_path_factory.mktemp("demonstrations") / "some.h5"
    return recorded(RECIPES[request.param], path)


def test_every_episode_replays_through_environment_and_expert(
    demonstrations: Demonstrations,
) -> None:
    assert first_difference(demonstrations) is None


def test_the_requested_amount_is_recorded(demonstrations: Demonstrations) -> None:
    recipe, counts = demonstrations.recipe, demonstrations.counts
    if recipe.operations is not None:
        assert counts["operations"] == recipe.operations
    else:
        assert recipe.transitions is not None
        without_last = demonstrations.first(counts["operations"] - 1)
        assert len(without_last) < recipe.transitions <= counts["transitions"]


def test_the_expert_reaches_the_end_of_every_episode(demonstrations: Demonstrations) -> None:
    given = demonstrations.recipe.tasks is not None
    ends = (End.EXPRESSION,) if given else (End.LIMIT, End.CAPACITY)
    assert np.isin(demonstrations.episodes["end"], ends).all()


def test_no_step_is_a_mistake_at_any_level(demonstrations: Demonstrations) -> None:
    rows = demonstrations.transitions
    judged = rows["taken"] >= Action.SIGNPOST_LEFT
    assert (rows["outcome"][judged] == 1).all()


def test_detours_are_as_frequent_as_epsilon(
    demonstrations: Demonstrations,
) -> None:
    rows, epsilon = demonstrations.transitions, demonstrations.recipe.epsilon
    share = (rows["taken"] != rows["action"]).mean()
    if epsilon == 0:
        assert share == 0
    elif epsilon <= 0.3:
        assert share == pytest.approx(epsilon, abs=0.03)
    else:
        # There is no detour where the budget is nearly spent.
        assert 0.1 < share <= epsilon + 0.03


def test_content_does_not_depend_on_workers_shards_or_compression(tmp_path: Path) -> None:
    recipe = Recipe(operations=777, epsilon=0.1, seed=3)
    settings: list[dict[str, Any]] = [
        {"workers": 1},
        {"workers": 2, "operations_per_shard": 40, "compression": 0},
        {"workers": 5, "operations_per_shard": 1, "compression": 9},
    ]
    digests = {
        record_demonstrations(recipe, tmp_path / f"{number}.h5", **chosen).digest
        for number, chosen in enumerate(settings)
    }
    assert len(digests) == 1
    assert (
        record_demonstrations(Recipe(operations=777, epsilon=0.1, seed=4), tmp_path / "x.h5").digest
        not in digests
    )


def test_a_smaller_set_is_the_beginning_of_a_larger_one(tmp_path: Path) -> None:
    large = recorded(Recipe(operations=1000), tmp_path / "large.h5")
    for operations in (1, 9, 10, 100, 333):
        report = record_demonstrations(Recipe(operations=operations), tmp_path / f"{operations}.h5")
        assert large.first(operations).content_digest() == report.digest


def test_detours_do_not_change_the_operations(tmp_path: Path) -> None:
    plain = recorded(Recipe(operations=200), tmp_path / "plain.h5")
    detoured = recorded(Recipe(operations=200, epsilon=0.3), tmp_path / "detoured.h5")
    for name in ("operation", "operand", "before", "after"):
        assert np.array_equal(plain.operations[name], detoured.operations[name])
    assert len(detoured) > len(plain)


def test_every_action_occurs_as_a_detour() -> None:
    rows = Recorder(Recipe(epsilon=0.3)).record(0, 300).transitions
    detours = rows["taken"][rows["taken"] != rows["action"]]
    # Submits, slides and signpost moves only where they are right, if out of order.
    assert set(np.unique(detours).tolist()) == set(range(len(Action)))


def test_an_episode_can_be_played_again_from_its_seed(tmp_path: Path) -> None:
    demonstrations = recorded(Recipe(operations=60), tmp_path / "some.h5")
    settings = demonstrations.config.to_dict()
    env = AbacusEnv(**settings)
    for e in (0, 3, 5):
        env.reset(seed=int(demonstrations.episodes["seed"][e]))
        start = int(demonstrations.episodes["start"][e])
        for row in range(start, start + int(demonstrations.episodes["length"][e])):
            _, _, terminated, truncated, info = env.step(
                int(demonstrations.transitions["taken"][row])
            )
        assert (terminated, truncated) == (False, True)
        assert info["operations_solved"] == 10


def test_streams_start_as_numpys_seed_sequence() -> None:
    for first in (0, 2**31, 2**32 - 3):
        seeds = episode_seeds(11, first, 3)
        for seed, starts in zip(seeds.tolist(), stream_starts(seeds), strict=True):
            assert (np.random.SeedSequence(seed).generate_state(2, np.uint64) == starts).all()


def test_sets_of_different_seeds_share_no_episode() -> None:
    seeds = np.concatenate([episode_seeds(seed, 0, 1000) for seed in range(5)])
    assert len(np.unique(seeds)) == 5000
    assert seeds.min() >= 2**32


def test_every_setting_has_a_file_name_of_its_own() -> None:
    names = [default_path(recipe).name for recipe in RECIPES.values()]
    names += [Recipe(config(frames=4)).file_name, Recipe(config(base=6)).file_name]
    assert len(set(names)) == len(names)
    assert default_path(Recipe()).as_posix() == "datasets/abacus-both-c10-b5-d6-n50000-s0.h5"


def test_a_finished_file_is_kept_and_other_files_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "some.h5"
    first = record_demonstrations(Recipe(operations=20), path)
    stamp = path.stat().st_mtime_ns
    again = record_demonstrations(Recipe(operations=20), path)
    assert again.existed
    assert again.digest == first.digest
    assert path.stat().st_mtime_ns == stamp
    with pytest.raises(ValueError, match="holds other demonstrations"):
        record_demonstrations(Recipe(operations=30), path)
    path.write_text("other text")
    with pytest.raises(ValueError, match="not a demonstrations file"):
        record_demonstrations(Recipe(operations=30), path)
    assert path.read_text() == "other text"
    assert not record_demonstrations(Recipe(operations=30), path, overwrite=True).existed
    assert Demonstrations.open(path).counts["operations"] == 30
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.h5"]


def test_a_second_process_may_not_record_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "some.h5"
    inside, done = threading.Event(), threading.Event()

    def hold(operations: int, transitions: int) -> None:
        inside.set()
        done.wait(30)

    recording = threading.Thread(
        target=record_demonstrations, args=(Recipe(operations=20), path), kwargs={"progress": hold}
    )
    recording.start()
    try:
        assert inside.wait(30)
        with pytest.raises(ValueError, match="in use"):
            record_demonstrations(Recipe(operations=20), path)
    finally:
        done.set()
        recording.join()
    assert Demonstrations.open(path, verify=True).counts["operations"] == 20


def test_recipes_round_trip_through_json() -> None:
    for recipe in RECIPES.values():
        assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert len({recipe.fingerprint for recipe in RECIPES.values()}) == len(RECIPES)


def test_episode_e_is_task_e(tmp_path: Path) -> None:
    recipe = RECIPES["tasks with detours"]
    found = recorded(recipe, tmp_path / "some.h5", operations_per_shard=7, workers=2)
    assert found.tasks() == found.recipe.tasks == TASKS * 20
    assert found.counts["episodes"] == 100
    assert found.recipe == recipe
    values = [9765624 - 1, 0 + 15624, 15624 + 1]
    assert found.numbers("after")[3:6].tolist() == values
    assert recipe_difference(found) is None
    in_memory = record_in_memory(recipe)
    assert in_memory.content_digest() == found.content_digest()
    assert default_path(recipe) != default_path(RECIPES["tasks"])


def test_what_is_recorded_in_memory_is_what_a_file_holds(tmp_path: Path) -> None:
    for name in ("default", "capacity", "reloads", "tasks"):
        found = recorded(RECIPES[name], tmp_path / f"{name}.h5")
        assert record_in_memory(RECIPES[name]).content_digest() == found.content_digest()
    with pytest.raises(ValueError, match="give operations or tasks"):
        record_in_memory(RECIPES["transitions"])


@pytest.mark.parametrize("name", ["default", "reloads", "capacity"])
def test_random_operations_are_tasks_as_well(name: str) -> None:
    """The same frames and answers; only the symbol of the last reset of a task is always a plus."""
    random = record_in_memory(RECIPES[name])
    given = record_tasks(random.config, random.tasks())
    assert given.config == task_config(random.config)
    for group, column in (
        ("transitions", "frame"),
        ("transitions", "action"),
        ("transitions", "outcome"),
        ("operations", "before"),
        ("operations", "operand"),
        ("operations", "after"),
        ("operations", "fresh"),
    ):
        assert np.array_equal(random.columns[group][column], given.columns[group][column])
    assert np.array_equal(random.histories(), given.histories())
    differs = random.transitions["symbol"] != given.transitions["symbol"]
    last = np.append(given.operations["fresh"][1:] == 1, True)
    in_last = np.repeat(last, given.operations["length"])
    assert not differs[~in_last].any()
    assert (given.transitions["symbol"][differs] == given.config.base).all()


def test_a_set_of_tasks_can_be_cut() -> None:
    whole = record_tasks(AbacusConfig(), TASKS)
    part = whole.first(3)
    assert part.tasks() == part.recipe.tasks == TASKS[:2]
    assert part.content_digest() == record_tasks(AbacusConfig(), TASKS[:2]).content_digest()
    within = whole.first(1)
    assert within.tasks() == tasks("12 + 34")
    assert within.episodes["end"].tolist() == [End.LIMIT]


def test_an_unfinished_recording_of_tasks_resumes(tmp_path: Path) -> None:
    recipe, path = RECIPES["tasks with detours"], tmp_path / "some.h5"

    def stop(operations: int, transitions: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_demonstrations(recipe, path, workers=1, operations_per_shard=20, progress=stop)
    again = record_demonstrations(recipe, path, workers=1, operations_per_shard=20)
    assert again.resumed_shards > 0
    assert again.digest == record_in_memory(recipe).content_digest()
    assert record_demonstrations(recipe, path).existed
    with pytest.raises(ValueError, match="holds other demonstrations"):
        record_demonstrations(RECIPES["tasks"], path)


def test_a_recipe_of_tasks_survives_json() -> None:
    recipe = RECIPES["wide tasks"]
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": ()}, "tasks are empty"),
        ({"tasks": TASKS, "transitions": 5}, "transitions=5 and tasks"),
        ({"tasks": TASKS, "config": AbacusConfig(start=3)}, r"give task_config\(config\)"),
        ({"tasks": TASKS, "config": config()}, r"give task_config\(config\)"),
        ({"tasks": tasks("3 + 1", "3 - 4")}, "task 1: task '3 - 4' goes below zero at -4"),
        ({"tasks": tasks("3 + 15625")}, "task 0: operand 15625 has more than max_digits=6"),
        ({"tasks": tasks("9765625 + 1")}, "task 0: task value 9765625 does not fit"),
        ({"tasks": tasks("9765624 + 1")}, "task 0: task .* reaches 9765625, which does not fit"),
    ],
)
def test_impossible_tasks_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**{"config": AbacusConfig(), **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"operations": 0}, "operations=0"),
        ({"operations": None}, "give one of them"),
        ({"transitions": 5}, "give one of them"),
        ({"epsilon": 1.5}, "epsilon=1.5"),
        ({"epsilon": float("nan")}, "epsilon=nan"),
        ({"seed": -1}, "seed=-1"),
        ({"variant": "other"}, "variant='other'"),
        ({"config": AbacusConfig()}, "max_operations"),
        ({"config": AbacusConfig(expression="1+1", max_operations=1)}, "expression"),
        ({"config": AbacusConfig(on_error="continue", max_operations=1)}, "on_error"),
    ],
)
def test_invalid_recipes_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


@pytest.mark.parametrize(
    "settings", [{"workers": -1}, {"compression": 10}, {"operations_per_shard": 0}]
)
def test_invalid_settings_leave_no_files(settings: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        record_demonstrations(Recipe(operations=20), tmp_path / "some.h5", **settings)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
