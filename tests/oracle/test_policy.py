"""The expert as a policy for Stable-Baselines3 and imitation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium.wrappers.flatten_observation import FlattenObservation
from imitation.algorithms.adversarial.airl import AIRL
from imitation.algorithms.adversarial.gail import GAIL
from imitation.algorithms.bc import BC
from imitation.algorithms.dagger import SimpleDAggerTrainer
from imitation.data import rollout
from imitation.data.wrappers import RolloutInfoWrapper
from imitation.rewards.reward_nets import BasicRewardNet
from imitation.util import logger as imitation_logger
from imitation.util.util import make_vec_env
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor

from abacus.env import AbacusEnv
from abacus.kernel import ON_OPERATION_SYMBOL
from abacus.rules import AbacusConfig, Action
from abacus.sb3 import AbacusVecEnv, Observation
from oracle.algorithm import VARIANTS, Variant
from oracle.demos import Demonstrations, Recipe, record_demonstrations
from oracle.demos.learners import trajectories
from oracle.expert import expert_actions
from oracle.policy import ExpertPolicy, FlatObservations

#: Actions of the algorithm for 3 + 4 in base 5; see tests/oracle/test_algorithm.py.
THREE_PLUS_FOUR = [
    *(Action.DOWN, Action.DOWN, Action.SLIDE, Action.RIGHT),
    *(Action.UP, Action.SLIDE, Action.SUBMIT),
    *(Action.LEFT, Action.SUBMIT),
]


def new_env(num_envs: int = 3, **settings: Any) -> AbacusVecEnv:
    env = AbacusVecEnv(
        num_envs, config=AbacusConfig.from_dict({"columns": 6, "max_digits": 3} | settings)
    )
    env.seed(0)
    return env


def after(env: AbacusVecEnv, actions: npt.NDArray[Any]) -> Observation:
    """Return the observation after a step."""
    env.step_async(actions)
    return env.step_wait()[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_predict_returns_the_experts_actions(variant: Variant) -> None:
    env = new_env()
    policy = ExpertPolicy(env, variant)
    observation = env.reset()
    for _ in range(100):
        actions, state = policy.predict(
            observation, deterministic=True, action_masks=env.action_masks()
        )
        assert state is None
        assert np.array_equal(actions, expert_actions(env.batch, variant))
        assert env.action_masks()[np.arange(3), actions].all()
        observation = after(env, actions)


def test_a_single_observation_gets_a_single_action() -> None:
    env = new_env(1)
    observation = {key: rows[0] for key, rows in env.reset().items()}
    action, _ = ExpertPolicy(env).predict(observation)
    assert action.shape == ()
    assert action == expert_actions(env.batch)[0]


def test_actions_off_the_path_are_right() -> None:
    """DAgger needs labels after arbitrary actions."""
    env = new_env(8, on_error="continue")
    policy = ExpertPolicy(env)
    rng = np.random.default_rng(0)
    observation = env.reset()
    for _ in range(40):
        masks = env.action_masks()
        observation = after(env, np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))
    lost = env.batch.scalars["digit_index"] != ON_OPERATION_SYMBOL
    lost &= env.batch.scalars["wrong_count"] > 0
    assert lost.any()
    for _ in range(15):
        observation = after(env, policy.predict(observation)[0])
        assert (env.batch.outcomes >= 0).all()


def changed(observation: Observation) -> Observation:
    window = observation["window"].copy()
    window[1, 0] += 0.25
    return observation | {"window": window}


def test_an_observation_of_another_step_is_refused() -> None:
    env = new_env()
    policy = ExpertPolicy(env)
    first = env.reset()
    second = after(env, policy.predict(first)[0])
    policy.predict(second)
    message = (
        r"is not the current one of the environment: give the observations of its last step, all 3"
    )
    for stale in (first, changed(second), {key: rows[:2] for key, rows in second.items()}):
        with pytest.raises(ValueError, match=message):
            policy.predict(stale)
    with pytest.raises(ValueError, match=message):
        policy.predict({key: rows[0] for key, rows in second.items()})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (("window", "symbol"), "has the entries window, symbol: give window, symbol, operation"),
        ((), "has the entries : give window"),
    ],
)
def test_an_observation_with_other_entries_is_refused(
    entries: tuple[str, ...], message: str
) -> None:
    env = new_env()
    observation = env.reset()
    with pytest.raises(ValueError, match=message):
        ExpertPolicy(env).predict({key: observation[key] for key in entries})


def test_a_flat_array_of_another_shape_is_refused() -> None:
    env = new_env()
    env.reset()
    with pytest.raises(ValueError, match="observation is not the current one of the environment"):
        ExpertPolicy(env).predict(np.zeros((3, 4)))


def test_another_environment_is_refused() -> None:
    with pytest.raises(ValueError, match="env is a CartPoleEnv: give an AbacusVecEnv, or a Dummy"):
        ExpertPolicy(DummyVecEnv([AbacusEnv, lambda: gymnasium.make("CartPole-v1")]))
    # Without its processes, which take seconds to start.
    elsewhere = SubprocVecEnv.__new__(SubprocVecEnv)
    with pytest.raises(ValueError, match="env is a SubprocVecEnv: give an AbacusVecEnv"):
        ExpertPolicy(elsewhere)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="'after' is not allowed"):
        ExpertPolicy(new_env(), "after")  # type: ignore[arg-type]


def test_serves_through_wrappers() -> None:
    env = new_env(start=3, expression="4")
    returns, lengths = evaluate_policy(
        ExpertPolicy(env), VecMonitor(env), n_eval_episodes=6, return_episode_rewards=True
    )
    assert lengths == [len(THREE_PLUS_FOUR)] * 6
    # Five finger moves at 0.10, two slides and two submits at 1, nine steps at -0.05.
    assert returns == pytest.approx([5 * 0.10 + 4 - 9 * 0.05] * 6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_imitation_rolls_it_out_and_all_is_solved(variant: Variant) -> None:
    env = new_env(8, max_operations=4, operations="add", columns=12)
    trajectories = rollout.generate_trajectories(
        ExpertPolicy(env, variant),
        env,
        rollout.make_min_episodes(20),
        np.random.default_rng(0),
    )
    assert len(trajectories) >= 20
    for trajectory in trajectories:
        assert trajectory.terminal
        assert trajectory.infos is not None
        assert trajectory.infos[-1]["operations_solved"] == 4


def documented_venv(**settings: Any) -> VecEnv:
    """Return the environment that imitation's documentation makes for rollouts."""
    venv: VecEnv = make_vec_env(
        "Abacus-v0",
        rng=np.random.default_rng(0),
        n_envs=3,
        post_wrappers=[lambda env, _: RolloutInfoWrapper(env)],
        env_make_kwargs={"columns": 12, "operations": "add", "max_operations": 2} | settings,
    )
    return venv


@pytest.mark.parametrize("variant", VARIANTS)
def test_imitation_rolls_it_out_as_its_documentation_says(variant: Variant) -> None:
    venv = documented_venv()
    assert isinstance(venv, DummyVecEnv)
    rollouts = rollout.rollout(
        ExpertPolicy(venv, variant),
        venv,
        rollout.make_sample_until(min_timesteps=None, min_episodes=6),
        rng=np.random.default_rng(0),
    )
    assert len(rollouts) >= 6
    for trajectory in rollouts:
        # Two operations with their resets: all submits are right, and no term punishes a mistake.
        assert trajectory.terminal
        assert (trajectory.rews > -0.1).all()
        assert trajectory.acts[-1] == Action.SUBMIT
    transitions = rollout.flatten_trajectories(rollouts)
    assert len(transitions) == sum(map(len, rollouts))


def test_actions_in_a_dummy_vec_env_are_those_in_a_batch() -> None:
    """Also where a wrapper of each environment flattens the observations."""
    batched = new_env(3, start="random")
    dummies: list[Callable[[], gymnasium.Env[Any, Any]]] = [
        lambda: AbacusEnv(columns=6, max_digits=3, start="random"),
        lambda: FlattenObservation(AbacusEnv(columns=6, max_digits=3, start="random")),
    ]
    for make in dummies:
        batched.seed(0)
        batched.reset()
        dummy = DummyVecEnv([make] * 3)
        dummy.seed(0)
        observation, expert = dummy.reset(), ExpertPolicy(dummy)
        # Later episodes differ: a batch and single environments draw them alike only once.
        for _ in range(12):
            actions, _ = expert.predict(observation)  # type: ignore[arg-type]
            assert np.array_equal(actions, expert_actions(batched.batch))
            batched.step(actions)
            observation = dummy.step(actions)[0]
        with pytest.raises(ValueError, match="is not the current one"):
            expert.predict(np.zeros((3, 88)))


def test_flat_observations_concatenate_the_entries() -> None:
    env, twin = new_env(expression="3"), new_env(expression="3")
    flat = FlatObservations(twin)
    observation, row = env.reset(), flat.reset()
    for _ in range(40):
        assert np.array_equal(np.concatenate(list(observation.values()), axis=1), row)
        assert flat.observation_space.contains(row[0])
        actions, _ = ExpertPolicy(flat).predict(row)
        for abaci in (env, flat):
            abaci.step_async(actions)
        observation, _, dones, infos = env.step_wait()
        row, _, flat_dones, flat_infos = flat.step_wait()
        assert np.array_equal(dones, flat_dones)
        if dones[0]:
            last = np.concatenate(list(infos[0]["terminal_observation"].values()))
            assert np.array_equal(flat_infos[0]["terminal_observation"], last)
            break
    assert dones[0]


@pytest.mark.parametrize("trainer", [GAIL, AIRL])
def test_adversarial_trainers_run(trainer: type[GAIL | AIRL], tmp_path: Path) -> None:
    """A few hundred steps as in imitation's documentation, with demonstrations from a file."""
    record_demonstrations(Recipe(operations=30), tmp_path / "some.h5")
    demonstrations = Demonstrations.open(tmp_path / "some.h5")
    env = FlatObservations(AbacusVecEnv(4, config=demonstrations.config))
    env.seed(0)
    learner = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=2, seed=0, device="cpu")
    rewards = BasicRewardNet(env.observation_space, env.action_space)
    before = {name: tensor.clone() for name, tensor in rewards.state_dict().items()}
    logger: Any = imitation_logger.configure(tmp_path / "log", [])
    adversary = trainer(
        demonstrations=list(trajectories(demonstrations, flat=True)),
        demo_batch_size=64,
        venv=env,
        gen_algo=learner,
        reward_net=rewards,
        allow_variable_horizon=True,
        custom_logger=logger,
        log_dir=tmp_path,
    )
    adversary.train(512)
    assert learner.num_timesteps == 512
    assert any(not torch.equal(before[name], now) for name, now in rewards.state_dict().items())
    infos = adversary.venv_train.step(np.zeros(4, np.int64))[3]
    assert all("original_env_rew" in info for info in infos)
    logger.close()


def test_dagger_uses_it_as_expert(tmp_path: Path) -> None:
    """Two short rounds: the expert acts in the first, an untrained clone in the second."""
    env = FlatObservations(new_env(2, start=3, expression="4", on_error="continue"))
    rng = np.random.default_rng(0)
    cloner = BC(
        observation_space=env.observation_space,
        action_space=env.action_space,
        rng=rng,
        batch_size=8,
        device="cpu",
    )
    trainer = SimpleDAggerTrainer(
        venv=env,
        scratch_dir=tmp_path,
        expert_policy=ExpertPolicy(env),
        rng=rng,
        bc_trainer=cloner,
        beta_schedule=lambda number: 1.0 if number == 0 else 0.0,
    )
    trainer.train(
        total_timesteps=40,
        rollout_round_min_episodes=2,
        rollout_round_min_timesteps=8,
        bc_train_kwargs={"n_epochs": 1, "progress_bar": False},
    )
    labels = [trajectory.acts.tolist() for trajectory in trainer._all_demos]
    assert labels[:2] == [THREE_PLUS_FOUR] * 2
    assert len(labels) >= 4
    for of_the_clone in labels[2:]:
        assert of_the_clone != THREE_PLUS_FOUR
        assert of_the_clone[0] == THREE_PLUS_FOUR[0]
