"""The Gymnasium vector environment: `make_vec`, and the same steps as single environments.

The tests run with Gymnasium 0.29 (`make test`) and 1.x (`make test-gymnasium1`).
"""

from __future__ import annotations

import random
import warnings
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.vector.utils import iterate

from abacus.env import AbacusEnv
from abacus.rules import AbacusConfig, Action
from abacus.vector import AbacusVectorEnv, AutoresetMode
from tests.abacus.players import right_action

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "subtractions": {"operations": "subtract", "start": "random"},
    "short episodes": {"columns": 3, "base": 3, "max_digits": 2, "max_operations": 2},
    "continue": {"on_error": "continue", "reward": "no_of", "frames": 2, "max_operations": 3},
    "expression": {"expression": "3+4-2", "base": 10},
}


#: Where the last observation of an episode is.
FINAL = "final_observation" if AutoresetMode is None else "final_obs"
gymnasium_0 = pytest.mark.skipif(AutoresetMode is not None, reason="a mode of Gymnasium 0.29")
gymnasium_1 = pytest.mark.skipif(AutoresetMode is None, reason="needs Gymnasium 1.1 or later")


def make_vec(num_envs: int = 3, **settings: Any) -> AbacusVectorEnv:
    """Call `gymnasium.make_vec` as the docstring says for the installed version."""
    arguments: dict[str, Any] = settings
    if AutoresetMode is None:
        arguments = {"vectorization_mode": "custom", "vector_kwargs": settings}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs: Any = gymnasium.make_vec("Abacus-v0", num_envs=num_envs, **arguments)
    assert isinstance(envs, AbacusVectorEnv)
    return envs


def actions_for(envs: AbacusVectorEnv, rng: random.Random) -> npt.NDArray[np.int64]:
    """Return mostly correct actions, with mistakes of every kind."""
    return np.array(
        [
            right_action(envs.batch, i) if rng.random() < 0.93 else rng.randrange(8)
            for i in range(envs.num_envs)
        ]
    )


def test_make_vec_passes_the_settings() -> None:
    envs = make_vec(5, columns=20, max_digits=12, reward="no_of", copy=False)
    assert envs.num_envs == envs.batch.num_envs == 5
    assert envs.config == AbacusConfig(columns=20, max_digits=12, reward="no_of")
    assert envs.single_observation_space == AbacusEnv(columns=20, max_digits=12).observation_space
    observation, infos = envs.reset(seed=0)
    assert envs.observation_space.contains(observation)
    assert infos["action_mask"].shape == (5, 8)
    assert envs.spec is not None
    assert envs.spec.id == "Abacus-v0"


@gymnasium_1
def test_the_vectorization_mode_can_be_named() -> None:
    envs: Any = gymnasium.make_vec(
        "Abacus-v0", num_envs=2, vectorization_mode="vector_entry_point", columns=20
    )
    assert isinstance(envs, AbacusVectorEnv)
    assert (envs.num_envs, envs.config.columns) == (2, 20)
    assert envs.spec is not None
    again: Any = gymnasium.make_vec(envs.spec)
    assert isinstance(again, AbacusVectorEnv)
    assert (again.num_envs, again.config) == (2, envs.config)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasiums_own_vector_environments_step_as_ours(mode: str) -> None:
    others: Any = gymnasium.make_vec("Abacus-v0", num_envs=3, vectorization_mode=mode)
    ours = make_vec(3)
    try:
        for envs in (ours, others):
            envs.reset(seed=4)
        for _ in range(4):
            actions = np.array([right_action(ours.batch, i) for i in range(3)])
            seen, other = ours.step(actions), others.step(actions)
            assert all(np.array_equal(seen[0][key], other[0][key]) for key in seen[0])
            assert np.allclose(seen[1], other[1])
            assert np.array_equal(seen[4]["action_mask"], np.stack(list(other[4]["action_mask"])))
    finally:
        others.close()


@gymnasium_1
def test_the_metadata_say_when_an_abacus_is_reset() -> None:
    assert AbacusVectorEnv.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def vector_wrapper(name: str) -> Any:
    """Return a wrapper of Gymnasium 1.x."""
    return getattr(import_module("gymnasium.wrappers.vector"), name)


@gymnasium_1
def test_gymnasiums_wrapper_counts_episodes() -> None:
    """It reads `autoreset_mode`: the second episode begins where the first ends."""
    envs: Any = make_vec(2, expression="3+4")
    envs = vector_wrapper("RecordEpisodeStatistics")(envs)
    envs.reset(seed=0)
    for _ in range(2):
        infos: dict[str, Any] = {}
        while "episode" not in infos:
            actions = [right_action(envs.unwrapped.batch, i) for i in range(2)]
            infos = envs.step(np.array(actions))[4]
        assert infos["episode"]["l"].tolist() == infos["final_info"]["steps"].tolist()
        assert infos["episode"]["r"] == pytest.approx(infos["final_info"]["episode_return"])


@gymnasium_1
def test_gymnasiums_wrapper_splits_the_infos() -> None:
    envs: Any = make_vec(2, expression="3+4")
    envs = vector_wrapper("DictInfoToList")(envs)
    _, infos = envs.reset(seed=0)
    assert infos[1]["action_mask"].shape == (8,)
    infos = envs.step(np.array([Action.SUBMIT, Action.DOWN]))[4]
    assert infos[0]["final_info"]["end"] == "WRONG_SUBMIT"
    assert infos[0][FINAL].keys() == envs.single_observation_space.keys()
    assert infos[1].keys() == {"action_mask", "outcomes", "reward_terms", "illegal"}


def test_a_part_cannot_be_reset() -> None:
    with pytest.raises(ValueError, match="reset_mask is not supported: abaci that end are reset"):
        make_vec().reset(options={"reset_mask": np.array([True, False, False])})


@gymnasium_0
@pytest.mark.parametrize("ignored", [{"columns": 20}, {"render_mode": "ansi"}, {"start": 3}])
def test_settings_that_gymnasium_would_drop_raise(ignored: dict[str, Any]) -> None:
    name = next(iter(ignored))
    with pytest.raises(ValueError, match=f"{name} would be ignored .* vector_kwargs"):
        gymnasium.make_vec("Abacus-v0", num_envs=2, vectorization_mode="custom", **ignored)


@pytest.mark.parametrize(
    ("vector_kwargs", "message"),
    [
        ({"colums": 20}, "'colums' is not a setting"),
        ({"base": 11}, "base=11 is not allowed"),
        ({"render_mode": "human"}, "render_mode='human' is not allowed"),
        ({"num_envs": 0}, "num_envs=0 is not allowed"),
    ],
)
def test_impossible_settings_raise(vector_kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AbacusVectorEnv(**vector_kwargs)


def test_max_episode_steps_raises() -> None:
    with pytest.raises(ValueError, match="max_episode_steps=100 is not allowed"):
        AbacusVectorEnv(2, max_episode_steps=100)


def assert_row(batched: Any, i: int, single: Any) -> None:
    """Assert that row i of a batch equals the result of the single environment."""
    if isinstance(single, dict):
        assert batched.keys() == single.keys()
        for key in single:
            assert_row(batched[key], i, single[key])
    else:
        assert np.array_equal(batched[i], single)


class Singles:
    """Single environments with their own seeds that are reset when they end."""

    def __init__(self, num_envs: int, settings: dict[str, Any]) -> None:
        self.envs = [AbacusEnv(**settings) for _ in range(num_envs)]

    def reset(self, seed: int) -> list[tuple[Any, dict[str, Any]]]:
        return [env.reset(seed=seed + i) for i, env in enumerate(self.envs)]

    def step(self, i: int, action: int) -> tuple[tuple[Any, ...], Any, Any]:
        """Return the results of a step, and the observation and mask after an automatic reset."""
        result = self.envs[i].step(action)
        if not (result[2] or result[3]):
            return result, result[0], result[4]["action_mask"]
        observation, info = self.envs[i].reset()
        return result, observation, info["action_mask"]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
def test_vector_env_equals_single_environments(settings: dict[str, Any], copy: bool) -> None:
    """Compare seeds, observations, masks, rewards, ends, final observations and infos."""
    envs, singles = make_vec(3, copy=copy, **settings), Singles(3, settings)
    rng = random.Random(0)
    observation, infos = envs.reset(seed=11)
    for i, (seen, info) in enumerate(singles.reset(seed=11)):
        assert_row(observation, i, seen)
        assert_row(infos["action_mask"], i, info["action_mask"])
    ends = set()
    for _ in range(250):
        actions = actions_for(envs, rng)
        observation, rewards, terminated, truncated, infos = envs.step(actions)
        for i, action in enumerate(actions):
            result, seen, mask = singles.step(i, int(action))
            last, reward, was_terminated, was_truncated, info = result
            assert_row(observation, i, seen)
            assert_row(infos["action_mask"], i, mask)
            assert rewards[i] == pytest.approx(reward)
            assert (terminated[i], truncated[i]) == (was_terminated, was_truncated)
            assert infos["illegal"][i] == info["illegal"]
            assert infos["reward_terms"][i].tolist() == list(info["reward_terms"].values())
            assert infos["outcomes"][i].tolist() == list(info["outcomes"].values())
            if was_terminated or was_truncated:
                ends.add(info["end"])
                assert_final(infos, i, last, info)
            else:
                assert_no_final(infos, i)
    assert ends


def report_of(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """Return the report of the episode that ended in abacus i."""
    if AutoresetMode is None:
        report: dict[str, Any] = infos["final_info"][i]
        return report
    columns = infos["final_info"]
    assert all(columns[f"_{key}"][i] for key in columns if key[0] != "_")
    return {key: column[i] for key, column in columns.items() if key[0] != "_"}


def assert_final(infos: dict[str, Any], i: int, last: Any, info: dict[str, Any]) -> None:
    assert infos[f"_{FINAL}"][i]
    assert infos["_final_info"][i]
    for key, seen in last.items():
        assert np.array_equal(infos[FINAL][i][key], seen)
    report = report_of(infos, i)
    for key in ("end", "operations_done", "operations_solved", "illegal_actions", "reloads"):
        assert report[key] == info[key]


def assert_no_final(infos: dict[str, Any], i: int) -> None:
    if "final_info" not in infos:
        return
    assert not infos[f"_{FINAL}"][i]
    assert not infos["_final_info"][i]
    assert infos[FINAL][i] is None
    if AutoresetMode is None:
        assert infos["final_info"][i] is None
    else:
        assert infos["final_info"]["end"][i] is None
        assert not infos["final_info"]["_end"][i]


def test_final_info_counts_the_whole_episode() -> None:
    envs = make_vec(2, expression="3+4", reward="dense")
    envs.reset(seed=0)
    total = np.zeros(2)
    steps = 0
    infos: dict[str, Any] = {}
    while "final_info" not in infos:
        actions = np.array([right_action(envs.batch, i) for i in range(2)])
        _, rewards, _, _, infos = envs.step(actions)
        total += rewards
        steps += 1
    for i in range(2):
        report = report_of(infos, i)
        assert report["episode_return"] == pytest.approx(total[i])
        assert report["steps"] == steps
        assert report["operations_solved"] == 2


def results_of(envs: AbacusVectorEnv) -> list[npt.NDArray[Any]]:
    """Return every array of the results of a step."""
    observation, rewards, terminated, truncated, infos = envs.step(np.full(3, Action.DOWN))
    arrays = [rewards, terminated, truncated, *observation.values(), envs.action_masks()]
    return [*arrays, *(infos[key] for key in ("action_mask", "outcomes", "reward_terms"))]


def test_copies_are_writable_and_do_not_change() -> None:
    envs = make_vec(copy=True)
    envs.reset(seed=0)
    given = results_of(envs)
    kept = [array.copy() for array in given]
    for _ in range(5):
        results_of(envs)
    assert all(np.array_equal(one, other) for one, other in zip(given, kept, strict=True))
    before = envs.batch.observation["window"].copy()
    for array in given:
        array[...] = 0
    assert np.array_equal(envs.batch.observation["window"], before)


def test_without_copies_arrays_are_read_only_views() -> None:
    envs = make_vec(copy=False)
    envs.reset(seed=0)
    given = results_of(envs)
    for array in given:
        assert not array.flags.writeable
    window = given[3]
    assert np.shares_memory(window, envs.batch.out.rows)
    kept = window.copy()
    envs.step(np.full(3, Action.RIGHT))
    assert not np.array_equal(window, kept)


def test_seeds_can_be_a_sequence() -> None:
    one, other = make_vec(start="random"), make_vec(start="random")
    seen = [envs.reset(seed=seed)[0] for envs, seed in ((one, 7), (other, [7, 8, 9]))]
    assert all(np.array_equal(seen[0][key], seen[1][key]) for key in seen[0])
    with pytest.raises(ValueError, match="seed has 2 values: give one, or 3"):
        one.reset(seed=[1, 2])


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(2, np.int64), r"shape \(2,\)"),
        (np.zeros((3, 1), np.int64), r"shape \(3, 1\)"),
        (np.zeros(3), "type float64"),
        (np.array([0, 8, 0]), "from 0 to 8: give 0 to 7"),
        (np.array([0, -1, 0]), "from -1 to 0: give 0 to 7"),
    ],
)
def test_bad_actions_raise_and_change_nothing(actions: npt.NDArray[Any], message: str) -> None:
    envs = make_vec()
    envs.reset(seed=0)
    before = [array.copy() for array in envs.batch.world]
    with pytest.raises(ValueError, match=message):
        envs.step(actions)
    assert all(np.array_equal(*pair) for pair in zip(before, envs.batch.world, strict=True))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64])
def test_any_integer_dtype_is_accepted(kind: type[np.integer]) -> None:
    envs = make_vec()
    envs.reset(seed=0)
    envs.step(np.array([1, 3, 1], kind)[::-1])
    assert envs.batch.scalars["finger_column"].tolist() == [1, 0, 1]


def test_step_before_reset_raises() -> None:
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        make_vec().step(np.zeros(3, np.int64))


def test_render_returns_every_abacus() -> None:
    envs = make_vec(2, render_mode="ansi", start="random")
    envs.reset(seed=0)
    texts = envs.render()
    assert texts is not None
    assert len(texts) == 2
    assert texts[0] != texts[1]
    pictures = make_vec(2, render_mode="rgb_array")
    pictures.reset(seed=0)
    frames = pictures.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [frames[0].shape] * 2
    silent = make_vec(2)
    silent.reset(seed=0)
    assert silent.render() is None


def test_batched_observations_can_be_iterated() -> None:
    envs = make_vec()
    observation, _ = envs.reset(seed=0)
    for single in iterate(envs.observation_space, observation):
        assert envs.single_observation_space.contains(single)
