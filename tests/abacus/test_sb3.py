"""The Stable-Baselines3 VecEnv: autoreset, infos, seeds, masks, and a learner that uses it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor

from abacus.env import AbacusEnv
from abacus.rules import AbacusConfig, Action
from abacus.sb3 import AbacusVecEnv, Observation
from abacus.tasks import Task
from tests.abacus.players import right_action

SMALL: dict[str, Any] = {"columns": 3, "base": 3, "max_digits": 2}


def new_envs(num_envs: int = 3, seed: int = 0, **settings: Any) -> AbacusVecEnv:
    envs = AbacusVecEnv(num_envs, config=AbacusConfig.from_dict(settings))
    envs.seed(seed)
    return envs


def step(
    envs: AbacusVecEnv, actions: npt.ArrayLike
) -> tuple[Observation, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
    """Call `envs.step` with the types of an abacus; those of the base class are wider."""
    envs.step_async(np.asarray(actions))
    return envs.step_wait()


def actions_for(
    envs: AbacusVecEnv, rngs: list[random.Random], slips: float = 0.07
) -> npt.NDArray[np.int64]:
    """Return mostly correct actions; each abacus has its own generator of mistakes."""
    return np.array(
        [
            rng.randrange(8) if rng.random() < slips else right_action(envs.batch, i)
            for i, rng in enumerate(rngs)
        ]
    )


def test_step_returns_the_types_of_stable_baselines3() -> None:
    envs = new_envs(4)
    observation = envs.reset()
    assert observation.keys() == envs.observation_space.keys()  # type: ignore[attr-defined]
    observation, rewards, dones, infos = step(envs, np.full(4, Action.DOWN))
    for key, rows in observation.items():
        assert rows.shape == (4, *envs.observation_space[key].shape)  # type: ignore[index]
        assert rows.dtype == np.float32
    assert rewards.shape == dones.shape == (4,)
    assert rewards.dtype == np.float32
    assert dones.dtype == np.bool_
    assert len(infos) == 4
    assert envs.env_is_wrapped(Monitor) == [False] * 4
    assert envs.get_attr("render_mode", [0, 2]) == [None, None]


def test_returned_arrays_do_not_change() -> None:
    envs = new_envs()
    first = envs.reset()
    given = [*first.values(), envs.action_masks()]
    second, rewards, dones, _ = step(envs, np.full(3, Action.DOWN))
    given += [*second.values(), rewards, dones]
    kept = [array.copy() for array in given]
    for action in (Action.RIGHT, Action.DOWN, Action.SUBMIT):
        envs.step(np.full(3, action))
    assert all(np.array_equal(one, other) for one, other in zip(given, kept, strict=True))


def test_only_ended_abaci_have_infos() -> None:
    envs = new_envs(3, expression="3+4")
    envs.reset()
    _, _, dones, infos = envs.step(np.array([Action.SUBMIT, Action.DOWN, Action.LEFT]))
    assert dones.tolist() == [True, False, False]
    assert infos[0]["end"] == "WRONG_SUBMIT"
    assert infos[1] == infos[2] == {}


def test_a_wrapper_may_write_into_the_infos() -> None:
    """imitation's wrappers do; what they write stays with that abacus and that step."""
    envs = new_envs(3)
    envs.reset()
    infos = envs.step(np.full(3, Action.DOWN))[3]
    infos[0]["mine"] = 1
    assert infos[1:] == [{}, {}]
    assert envs.step(np.full(3, Action.DOWN))[3] == [{}, {}, {}]


def test_episodes_are_drawn_from_tasks() -> None:
    envs = new_envs(2, columns=4, base=3, max_digits=3)
    envs.batch.set_tasks([Task.parse("7 + 1")])
    envs.reset()
    infos: list[dict[str, Any]] = [{}]
    while not infos[0]:
        _, _, _, infos = step(envs, [right_action(envs.batch, i) for i in range(2)])
    assert [info["end"] for info in infos] == ["EXPRESSION"] * 2
    assert [info["operations_solved"] for info in infos] == [1, 1]
    assert envs.batch.final_tasks.tolist() == [0, 0]


@pytest.mark.parametrize("settings", [{}, {"base": 10, "frames": 1, "start": "random"}], ids=str)
def test_the_checker_passes_the_single_environment_without_a_warning(
    settings: dict[str, Any],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(AbacusEnv(**settings))


@pytest.mark.parametrize(
    "settings",
    [{}, SMALL | {"max_operations": 2}, {"operations": "subtract"}, {"expression": "3+4-2"}],
    ids=str,
)
def test_vec_env_equals_single_environments(settings: dict[str, Any]) -> None:
    """With autoreset, the terminal observation is the last one, the returned one is the next."""
    envs = new_envs(3, seed=21, **settings)
    singles = [AbacusEnv(**settings) for _ in range(3)]
    rngs = [random.Random(i) for i in range(3)]
    observation = envs.reset()
    for i, single in enumerate(singles):
        assert_row(observation, i, single.reset(seed=21 + i)[0])
    ended = 0
    for _ in range(200):
        actions = actions_for(envs, rngs)
        observation, rewards, dones, infos = step(envs, actions)
        masks = envs.action_masks()
        for i, single in enumerate(singles):
            seen, reward, terminated, truncated, info = single.step(actions[i])
            assert rewards[i] == pytest.approx(reward)
            assert dones[i] == (terminated or truncated)
            if dones[i]:
                ended += 1
                assert_row(
                    {k: v[None] for k, v in infos[i]["terminal_observation"].items()}, 0, seen
                )
                assert infos[i]["TimeLimit.truncated"] == truncated
                for key in ("end", "operations_done", "operations_solved", "illegal_actions"):
                    assert infos[i][key] == info[key]
                seen, info = single.reset()
            assert_row(observation, i, seen)
            assert np.array_equal(masks[i], info["action_mask"])
    assert ended >= 3


def assert_row(
    batched: dict[str, npt.NDArray[Any]], i: int, single: dict[str, npt.NDArray[Any]]
) -> None:
    assert batched.keys() == single.keys()
    for key in single:
        assert np.array_equal(batched[key][i], single[key])


Player = Callable[[AbacusVecEnv], int]


@pytest.mark.parametrize(
    ("settings", "player", "end", "truncated"),
    [
        ({}, lambda envs: Action.LEFT, "BUDGET", True),
        ({"max_operations": 1}, lambda envs: right_action(envs.batch, 0), "LIMIT", True),
        ({"expression": "3+4"}, lambda envs: right_action(envs.batch, 0), "EXPRESSION", False),
        (
            {"columns": 2, "base": 2, "max_digits": 1, "operations": "add"},
            lambda envs: right_action(envs.batch, 0),
            "CAPACITY",
            False,
        ),
        ({"expression": "3"}, lambda envs: Action.SUBMIT, "WRONG_SUBMIT", False),
        ({"expression": "3"}, lambda envs: Action.SIGNPOST_RIGHT, "WRONG_SIGNPOST", False),
        (
            {"expression": "3"},
            lambda envs: Action.SLIDE if envs.action_masks()[0, Action.SLIDE] else Action.DOWN,
            "WRONG_SLIDE",
            False,
        ),
        # The last step of the budget is a mistake, which comes before the budget.
        (
            {"expression": "3"},
            lambda envs: Action.SUBMIT if envs.batch.scalars["steps"][0] == 31 else Action.LEFT,
            "WRONG_SUBMIT",
            False,
        ),
    ],
)
def test_truncation_and_termination_are_distinguished(
    settings: dict[str, Any], player: Player, end: str, truncated: bool
) -> None:
    envs = new_envs(1, **settings)
    envs.reset()
    done = False
    while not done:
        _, _, (done,), (info,) = envs.step(np.array([player(envs)]))
    assert (info["end"], info["TimeLimit.truncated"]) == (end, truncated)


def test_monitor_reports_the_same_episodes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = new_envs(3, **SMALL)
        monitored = VecMonitor(envs)
    rngs = [random.Random(i) for i in range(3)]
    monitored.reset()
    episodes = 0
    for _ in range(300):
        _, _, dones, infos = monitored.step(actions_for(envs, rngs))
        for i in np.flatnonzero(dones):
            episodes += 1
            episode = infos[i]["episode"]
            assert episode["r"] == pytest.approx(infos[i]["episode_return"], abs=1e-4)
            assert episode["l"] == infos[i]["steps"]
    assert episodes > 10


def test_episode_info_equals_that_of_a_monitor() -> None:
    envs = new_envs(1, **SMALL)
    envs.reset()
    rewards: list[float] = []
    rngs = [random.Random(0)]
    for _ in range(200):
        _, (reward,), (done,), (info,) = envs.step(actions_for(envs, rngs))
        rewards.append(float(reward))
        if done:
            assert info["episode"].keys() == {"r", "l", "t"}
            assert info["episode"]["r"] == pytest.approx(sum(rewards), abs=1e-4)
            assert info["episode"]["l"] == len(rewards)
            assert info["episode"]["t"] >= 0
            rewards = []


def test_sb3_contrib_finds_the_masks() -> None:
    envs = new_envs(4, start="random")
    envs.reset()
    rng = random.Random(0)
    for _ in range(100):
        masks = envs.action_masks()
        assert masks.shape == (4, len(Action))
        assert masks.dtype == np.bool_
        assert masks.any(axis=1).all()
        assert np.array_equal(get_action_masks(envs), masks)
        chosen = [rng.choice(np.flatnonzero(mask).tolist()) for mask in masks]
        envs.step(np.array(chosen))
        assert not envs.batch.illegal.any()
    assert is_masking_supported(envs)
    assert is_masking_supported(VecMonitor(envs))
    with pytest.raises(AttributeError, match="no method 'fly' of their own"):
        envs.env_method("fly")
    with pytest.raises(AttributeError, match="share their settings"):
        envs.set_attr("columns", 20)


@pytest.fixture
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_masked_ppo_takes_no_illegal_actions() -> None:
    envs = new_envs(8, **SMALL, reward="dense")
    model = MaskablePPO(
        "MultiInputPolicy", envs, n_steps=32, batch_size=64, n_epochs=2, seed=0, device="cpu"
    )
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(512)
    assert model.num_timesteps == 512
    after = model.policy.parameters()
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    # The learner's own statistics come from the episode infos.
    assert len(model.ep_info_buffer or ()) > 10
    evaluation = new_envs(4, seed=100, **SMALL)
    illegal = []

    def note(local: dict[str, Any], _: dict[str, Any]) -> None:
        illegal.append(bool(evaluation.batch.illegal.any()))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        returns, lengths = evaluate_policy(
            model,
            VecMonitor(evaluation),
            n_eval_episodes=20,
            callback=note,
            return_episode_rewards=True,
            use_masking=True,
        )
    assert len(returns) == len(lengths) == 20  # type: ignore[arg-type]
    assert illegal
    assert not any(illegal)


Trajectory = list[list[Any]]


def trajectories(envs: VecEnv, rngs: list[random.Random], steps: int = 150) -> list[Trajectory]:
    """Return the results of each environment under its own random actions."""
    observation: Any = envs.reset()
    rows: list[Trajectory] = [[] for _ in rngs]
    for _ in range(steps):
        masks = get_action_masks(envs)
        actions = [
            rng.choice(np.flatnonzero(mask).tolist()) for rng, mask in zip(rngs, masks, strict=True)
        ]
        observation, rewards, dones, infos = envs.step(np.array(actions))
        for i, row in enumerate(rows):
            seen = [observation[key][i].tobytes() for key in sorted(observation)]
            row.append([*seen, masks[i].tolist(), float(rewards[i]), bool(dones[i])])
            if dones[i]:
                row[-1].append(infos[i]["TimeLimit.truncated"])
    return rows


@pytest.mark.parametrize(
    "settings", [{}, {"operations": "subtract", "start": "random", "on_error": "continue"}], ids=str
)
def test_batch_of_eight_equals_eight_single_runs(settings: dict[str, Any]) -> None:
    together = trajectories(new_envs(8, seed=40, **settings), [random.Random(i) for i in range(8)])
    alone = [
        trajectories(new_envs(1, seed=40 + i, **settings), [random.Random(i)])[0] for i in range(8)
    ]
    assert together == alone
    assert len({str(row) for row in together}) == 8


def test_number_of_workers_changes_nothing() -> None:
    """Compare one process per abacus, one process for all, and the batch."""

    batch = new_envs(2, seed=3)
    dummies, workers = DummyVecEnv([AbacusEnv] * 2), SubprocVecEnv([AbacusEnv] * 2)
    for envs in (dummies, workers):
        envs.seed(3)
    rows = [
        trajectories(envs, [random.Random(i) for i in range(2)], steps=80)
        for envs in (batch, dummies, workers)
    ]
    workers.close()
    assert rows[0] == rows[1] == rows[2]


def test_global_generators_are_not_used() -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    envs = AbacusVecEnv(4, config=AbacusConfig(start="random"))
    envs.reset()
    envs.seed()
    envs.reset()
    envs.seed(5)
    envs.reset()
    own = random.Random(0)
    for _ in range(100):
        envs.step(np.array([own.randrange(8) for _ in range(4)]))
    single = AbacusEnv(start="random")
    single.reset()
    single.reset(seed=3)
    single.step(0)
    assert (random.getstate(), repr(np.random.get_state())) == before  # noqa: NPY002


def test_runs_without_a_seed_differ() -> None:
    firsts = set()
    for _ in range(5):
        envs = AbacusVecEnv(1, config=AbacusConfig(start="random", max_digits=9))
        envs.reset()
        firsts.add(envs.batch.digits[0].tobytes())
    assert len(firsts) > 1


@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_metadata_is_that_of_the_single_environment(render_mode: str | None) -> None:
    envs = AbacusVecEnv(2, render_mode=render_mode)
    assert envs.metadata == {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}
    assert envs.get_attr("metadata")[0] == AbacusEnv.metadata


def test_pictures_are_tiled() -> None:
    envs = AbacusVecEnv(2, config=AbacusConfig(**SMALL), render_mode="rgb_array")
    envs.reset()
    images = [image for image in envs.get_images() if image is not None]
    assert len(images) == 2
    tiled = envs.render()
    assert tiled is not None
    assert tiled.shape[0] * tiled.shape[1] >= 2 * images[0].shape[0] * images[0].shape[1]
    assert "symbol" in envs.ansi(1)
    assert list(new_envs(2).get_images()) == [None, None]
