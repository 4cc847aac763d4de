"""DQN: masks in acting and in the target; it learns a small world; seeds repeat it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from stable_baselines3.common.logger import Logger

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action
from abacus.sb3 import AbacusVecEnv
from pipelines.learning.dqn import (
    SCALE,
    AbacusDQN,
    DqnResult,
    Rows,
    RowsVecEnv,
    greedy_policy,
    run_dqn,
)
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.settings import PRESETS, DqnSettings, Schedule, Settings
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import Evaluation, training_score
from tests.pipelines.small_world import FRAMES, WORLD

SMALL = DqnSettings(
    n_envs=32,
    buffer_size=20_000,
    batch_size=64,
    learning_rate=Schedule("constant", 1e-3),
    learning_starts=500,
    train_freq=32,
    gradient_steps=2,
    target_update_interval=500,
)
#: Mistakes do not end episodes here, so that many run out of steps.
FORGIVING = replace(WORLD, reward=("step", "signpost", "slide", "submit"))


def env_of(world: AbacusConfig = WORLD, *, masked: bool = True, abaci: int = 32) -> RowsVecEnv:
    env = RowsVecEnv(AbacusVecEnv(abaci, config=world), masked=masked)
    env.seed(0)
    return env


def model_of(
    world: AbacusConfig = WORLD, *, masked: bool = True, seed: int = 0, **changes: Any
) -> AbacusDQN:
    settings = replace(SMALL, **changes)
    model = AbacusDQN(env_of(world, masked=masked, abaci=settings.n_envs), settings, seed, "cpu")
    model.set_logger(Logger(None, []))
    return model


def rows_env(model: AbacusDQN) -> RowsVecEnv:
    assert isinstance(model.env, RowsVecEnv)
    return model.env


def stepped(
    env: RowsVecEnv, actions: npt.NDArray[np.int64]
) -> tuple[Rows, npt.NDArray[np.float32], npt.NDArray[np.bool_], Any]:
    """As `step` of the library, which does not say that rows are arrays."""
    env.step_async(actions)
    return env.step_wait()


def random_legal(env: RowsVecEnv, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    masks = env.venv.action_masks()
    actions: npt.NDArray[np.int64] = (masks * (1 + rng.random(masks.shape))).argmax(axis=1)
    return actions


# Observations.


def test_rows_hold_the_inputs_of_the_actor_and_the_mask() -> None:
    env, rng = env_of(), np.random.default_rng(0)
    rows, read = env.reset(), env.layout.actor
    for _ in range(200):
        batch = env.venv.batch
        assert np.array_equal(rows[:, :read] / np.float32(SCALE), batch.out.rows[:, :read])
        assert np.array_equal(rows[:, read:] == 1, batch.masks)
        rows, *_ = stepped(env, random_legal(env, rng))


def test_without_masks_every_action_is_marked_as_legal() -> None:
    env = env_of(masked=False)
    rows = env.reset()
    assert not env.venv.action_masks().all()
    assert (rows[:, env.layout.actor :] == 1).all()


def test_a_truncated_episode_keeps_its_own_last_mask() -> None:
    """Compared with abaci that are not reset when they end."""
    env, rng = env_of(FORGIVING), np.random.default_rng(0)
    env.reset()
    staying = AbacusBatch(FORGIVING, env.num_envs, autoreset=False)
    staying.reset(range(env.num_envs))
    truncated, other_than_next = 0, 0
    for _ in range(500):
        actions = random_legal(env, rng)
        rows, _, dones, infos = stepped(env, actions)
        staying.step(actions)
        for i in np.flatnonzero(dones):
            kept = infos[i]["terminal_observation"]
            assert np.array_equal(kept[env.layout.actor :] == 1, staying.masks[i])
            truncated += infos[i]["TimeLimit.truncated"]
            other_than_next += not np.array_equal(kept[-8:], rows[i, -8:])
        if dones.any():
            staying.reset(which=np.flatnonzero(dones))
    assert truncated > 10
    assert other_than_next > 10


# Acting.


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_masked_acting_is_legal_and_unmasked_acting_is_not(rate: float) -> None:
    def illegal(*, masked: bool) -> int:
        model = model_of(masked=masked)
        model.exploration_rate = rate
        env = rows_env(model)
        rows = env.reset()
        for _ in range(100):
            rows, *_ = stepped(env, model.predict(rows)[0])
        return env.illegal_actions

    assert illegal(masked=True) == 0
    assert illegal(masked=False) > 0


def test_masked_training_is_legal_and_unmasked_training_is_not() -> None:
    """From the first random actions to the greedy ones."""
    for masked in (True, False):
        model = model_of(masked=masked, learning_starts=1000)
        model.learn(3000)
        assert model._n_updates > 0
        assert (rows_env(model).illegal_actions == 0) == masked


def test_random_actions_come_in_single_abaci() -> None:
    """The library explores in all environments at the same steps."""
    model = model_of()
    rows = rows_env(model).reset()
    greedy, _ = model.predict(rows, deterministic=True)
    model.exploration_rate = 0.5
    differing = np.mean([(model.predict(rows)[0] != greedy).mean() for _ in range(50)])
    shares = [(model.predict(rows)[0] != greedy).mean() for _ in range(50)]
    assert 0.2 < differing < 0.5
    assert min(shares) > 0


# The target.


def constant_values(model: AbacusDQN, values: list[float]) -> None:
    """Makes the target network give these values to the actions, whatever it sees."""
    last = model.q_net_target.q_net[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor(values))


def learned_value(*, masked: bool, end: str = "none") -> float:
    """Learn from one transition only, and return the value of its action.

    Reward 0.5, discount 0.9; the target's values are 1 to 8 for the actions 0 to 7, and where it
    leads, only the actions 0 and 3 are legal.
    """
    model = model_of(
        masked=masked,
        gamma=0.9,
        n_envs=1,
        train_freq=1,
        learning_rate=Schedule("constant", 3e-3),
    )
    constant_values(model, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    model._setup_learn(1)
    rows = rows_env(model).reset()
    after = rows.copy()
    if masked:
        after[:, -8:] = [1, 0, 0, 1, 0, 0, 0, 0]
    assert model.replay_buffer is not None
    model.replay_buffer.add(
        rows,
        after,
        np.array([int(Action.SUBMIT)]),
        np.array([0.5]),
        np.array([end != "none"]),
        [{"TimeLimit.truncated": end == "truncated"}],
    )
    model.train(gradient_steps=150, batch_size=8)
    with torch.no_grad():
        return float(model.q_net(torch.from_numpy(rows))[0, Action.SUBMIT])


def test_the_masked_target_is_the_maximum_over_legal_actions() -> None:
    assert learned_value(masked=True) == pytest.approx(0.5 + 0.9 * 4.0, abs=0.02)


def test_the_unmasked_target_is_the_maximum_over_all_actions() -> None:
    assert learned_value(masked=False) == pytest.approx(0.5 + 0.9 * 8.0, abs=0.02)


def test_a_truncated_episode_is_bootstrapped_and_a_terminated_one_is_not() -> None:
    truncated = learned_value(masked=True, end="truncated")
    assert truncated == pytest.approx(0.5 + 0.9 * 4.0, abs=0.02)
    assert learned_value(masked=True, end="terminated") == pytest.approx(0.5, abs=0.02)


def test_the_replay_buffer_holds_the_transitions_of_the_abaci() -> None:
    """Rows and masks of the buffer compared with the abaci, step by step."""
    model = model_of(FORGIVING, learning_starts=10**9)
    model.learn(32 * 300)
    memory, twin = model.replay_buffer, env_of(FORGIVING)
    assert memory is not None
    rows = twin.reset()
    for step in range(300):
        assert np.array_equal(memory.observations[step], rows)
        rows, rewards, dones, infos = stepped(twin, memory.actions[step].flatten())
        expected = rows.copy()
        for i in np.flatnonzero(dones):
            expected[i] = infos[i]["terminal_observation"]
        assert np.array_equal(memory.next_observations[step], expected)
        assert np.array_equal(memory.rewards[step], rewards)
        ends = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        assert np.array_equal(memory.timeouts[step] == 1, ends)
    assert memory.timeouts.sum() > 0


# The policy.


def test_the_policy_has_the_greedy_actions_of_the_q_network() -> None:
    model = model_of()
    model.learn(2000)
    with torch.no_grad():
        # Values as large as these would all be at the bound of the logits.
        for parameter in model.q_net.q_net[-1].parameters():
            parameter.mul_(1000.0)
    policy = greedy_policy(model, WORLD)
    env, rng = rows_env(model), np.random.default_rng(0)
    rows = env.reset()
    for _ in range(50):
        seen, masks = torch.from_numpy(env.venv.batch.out.rows), env.venv.action_masks()
        expected, _ = model.predict(rows, deterministic=True)
        assert np.array_equal(policy.log_probs(seen, masks).argmax(dim=1).numpy(), expected)
        rows, *_ = stepped(env, random_legal(env, rng))


def test_the_network_is_the_actor_of_the_compact_one() -> None:
    config = AbacusConfig()
    model = AbacusDQN(env_of(config), SMALL, 0, "cpu")
    shapes = [tuple(weights.shape) for weights in model.q_net.parameters() if weights.ndim == 2]
    assert shapes == [(256, 80), (256, 256), (8, 256)]


# Runs.


def settings_of(**changes: Any) -> Settings:
    world = AbacusConfig(
        base=2, columns=4, max_digits=2, frames=FRAMES, reward="dense", start="random"
    )
    return replace(PRESETS["alone"], world=world, eval_freq=1000, **changes)


def evaluator_with(*accuracies: float) -> Any:
    """Return an evaluator with given accuracies."""
    coming = iter(accuracies)

    def evaluate(policy: AbacusPolicy, step: int) -> Evaluation:
        return Evaluation(step, next(coming), 0, 0, {}, None, 1.0)

    return evaluate


def weights(policy: AbacusPolicy) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in policy.network.actor.parameters()])  # type: ignore[union-attr]


def short_run(seed: int = 0, *accuracies: float, masked: bool = True) -> DqnResult:
    settings = settings_of(n_timesteps=2400, seed=seed)
    return run_dqn(settings, masked, evaluator_with(*accuracies or (0, 0, 0, 0)), SMALL)


def test_the_best_policy_is_kept_with_the_last() -> None:
    outcome = short_run(0, 0.1, 0.9, 0.5, 0.2)
    assert [evaluation.step for evaluation in outcome.evaluations] == [0, 1024, 2016, 2400]
    assert outcome.seconds_at_evaluation == sorted(outcome.seconds_at_evaluation)
    assert not torch.equal(weights(outcome.best), weights(outcome.last))
    rising = short_run(0, 0.1, 0.2, 0.3, 0.4)
    assert torch.equal(weights(rising.best), weights(rising.last))
    assert torch.equal(weights(rising.last), weights(outcome.last))


def test_the_same_seed_gives_the_same_policy_and_another_seed_another() -> None:
    first = short_run(3)
    # The global generator is not used.
    np.random.seed(1)  # noqa: NPY002
    again, other = short_run(3), short_run(4)
    assert torch.equal(weights(first.last), weights(again.last))
    assert first.longest_training_run == again.longest_training_run
    assert not torch.equal(weights(first.last), weights(other.last))


def test_evaluations_leave_the_training_as_it_is() -> None:
    def disturbing(policy: AbacusPolicy, step: int) -> Evaluation:
        np.random.rand()  # noqa: NPY002
        torch.rand(1)
        return Evaluation(step, 0.0, 0, 0, {}, None, 1.0)

    settings = settings_of(n_timesteps=2400)
    disturbed = run_dqn(settings, True, disturbing, SMALL)
    assert torch.equal(weights(disturbed.last), weights(short_run().last))


def test_illegal_actions_are_counted() -> None:
    assert short_run(masked=True).illegal_actions == 0
    assert short_run(masked=False).illegal_actions > 100


def test_nothing_is_left_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    short_run()
    assert not list(tmp_path.iterdir())


def random_accuracy(world: AbacusConfig) -> float:
    """The fraction of operations that random legal actions solve."""
    env, rng = env_of(world), np.random.default_rng(0)
    env.reset()
    solved, episodes = 0, 0
    for _ in range(500):
        *_, infos = env.step(random_legal(env, rng))
        ends = [info for info in infos if info]
        solved += sum(info["operations_solved"] for info in ends)
        episodes += len(ends)
    return solved / (solved + episodes)


def test_dqn_learns_the_small_world() -> None:
    """Five seeds gave 0.5 to 0.8; the untrained networks nothing, random actions 0.02."""
    world = replace(WORLD, reward="dense", max_operations=None, max_digits=1, columns=3)
    model = model_of(
        world,
        gamma=0.9,
        learning_rate=Schedule("linear", 2e-3),
        exploration_fraction=0.5,
        exploration_final_eps=0.05,
    )
    model.learn(16_000)
    table = GreedyTable(greedy_policy(model, world), world.base, FRAMES)
    assert random_accuracy(world) < 0.05
    assert training_score(table, world, 100, 7).accuracy > 0.4
    assert rows_env(model).longest_run > 1
