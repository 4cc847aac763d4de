"""PPO: it learns a small world, warms up the critic, stays near the clone; seeds repeat it."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig
from abacus.sb3 import AbacusVecEnv
from pipelines.learning.cloning import Cloning
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exploration import Starts
from pipelines.learning.optimizer import Muon
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.ppo import AbacusPPO, load_ppo_state, load_training_state, ppo_state
from pipelines.learning.rollouts import FAILURES, RolloutCounts
from pipelines.learning.settings import CloningSettings, PpoSettings, Schedule
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import training_score
from tests.pipelines.small_world import FRAMES, WORLD, small_demonstrations, small_set

SETTINGS = PpoSettings(
    n_envs=32,
    n_steps=32,
    batch_size=256,
    n_epochs=4,
    gamma=0.99,
    gae_lambda=0.8,
    optimizer="adamw",
    learning_rate=Schedule("linear", 2e-3),
    entropy=Schedule("linear", 0.04),
    cloning_weight=0.0,
)


def model_of(world: AbacusConfig = WORLD, seed: int = 0, **changes: Any) -> AbacusPPO:
    settings = replace(SETTINGS, **changes)
    env = AbacusVecEnv(settings.n_envs, config=world)
    model = AbacusPPO(AbacusPolicy, env, settings, seed=seed, device="cpu")
    model.set_logger(Logger(None, []))
    return model


def weights(model: AbacusPPO) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}


def test_ppo_alone_learns_the_small_world() -> None:
    world = replace(WORLD, reward="dense", max_operations=None, max_digits=1, columns=3)
    model = model_of(world)

    def accuracy() -> float:
        return training_score(GreedyTable(model.policy, world.base, FRAMES), world, 100, 7).accuracy

    before = accuracy()
    model.learn(100_000)
    assert before < 0.3
    assert accuracy() > 0.7


def test_the_actor_stays_as_it_is_while_the_critic_warms_up() -> None:
    model = model_of(critic_warmup=3 * 1024, learning_rate=Schedule("constant", 1e-3))
    before = weights(model)
    model.learn(3 * 1024)
    after = weights(model)
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) != name.startswith("network.critic")
    model.learn(1024, reset_num_timesteps=False)
    assert not torch.equal(
        after["network.actor.0.weight"], weights(model)["network.actor.0.weight"]
    )


def test_the_warm_up_improves_the_critic() -> None:
    model = model_of(critic_warmup=10**9, learning_rate=Schedule("constant", 3e-3))
    settings = CloningSettings(updates=400, label_smoothing=0.0)
    Cloning(model.policy, small_set(), settings, 0, Logger(None, [])).run()
    model.learn(1024)
    at_first = model.rollout_buffer.explained_variance()
    model.learn(30 * 1024, reset_num_timesteps=False)
    assert model.rollout_buffer.explained_variance() > at_first + 0.1


def divergence_after(steps: int, **changes: Any) -> float:
    model = model_of(**changes)
    model.freeze_clone()
    assert model.clone is not None
    model.learn(steps)
    rows = small_set().rows
    with torch.no_grad():
        clone = torch.log_softmax(model.clone.logits(model.clone.inputs(rows)), dim=1)
        now = model.policy.log_probs(rows)
    return float((clone.exp() * (clone - now)).sum(dim=1).mean())


def test_the_penalty_keeps_the_policy_near_the_clone() -> None:
    free, held = divergence_after(10 * 1024), divergence_after(10 * 1024, kl_weight=5.0)
    assert held < free / 3


def test_the_cloning_loss_teaches_what_the_reward_does_not() -> None:
    """Without rewards, only the demonstrations can teach."""
    data = small_set()
    world = replace(WORLD, reward=("step",))

    def agreement(weight: float) -> float:
        model = model_of(world, cloning_weight=weight)
        model.add_cloning_loss(data)
        model.learn(10 * 1024)
        actions = model.policy.log_probs(data.rows, data.masks).argmax(dim=1)
        return float((actions == data.actions).float().mean())

    assert agreement(1.0) > 0.9 > agreement(0.0)


def test_a_small_kl_limit_stops_updates() -> None:
    model = model_of(target_kl=1e-9, n_epochs=10, learning_rate=Schedule("constant", 1e-2))
    model.learn(1024)
    assert model._n_updates == 1


def test_the_same_seed_gives_the_same_policy_and_another_seed_another() -> None:
    def trained(seed: int) -> dict[str, torch.Tensor]:
        model = model_of(seed=seed)
        model.learn(3 * 1024)
        return weights(model)

    first, again, other = trained(3), trained(3), trained(4)
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    assert not torch.equal(first["network.actor.0.weight"], other["network.actor.0.weight"])


def test_rollouts_are_those_of_the_library() -> None:
    """The lean rollout against sb3-contrib's own, on the same policy, abaci and actions."""
    # Mistakes do not end episodes here, so that many run out of steps and are bootstrapped.
    world = replace(WORLD, reward=("step", "signpost", "slide", "submit"))
    lean = model_of(world, n_steps=200)
    env = AbacusVecEnv(32, config=world)
    usual = MaskablePPO(
        AbacusPolicy,
        env,
        n_steps=200,
        gamma=lean.gamma,
        gae_lambda=lean.gae_lambda,
        seed=0,
        device="cpu",
    )
    usual.set_logger(Logger(None, []))
    usual.policy.load_state_dict(lean.policy.state_dict())
    both: list[Any] = [lean, usual]
    for model in both:
        _, callback = model._setup_learn(6400, None)
        torch.manual_seed(1)
        model.collect_rollouts(model.env, callback, model.rollout_buffer, 200)
    theirs: Any = usual.rollout_buffer
    ours = lean.rollout_buffer
    assert np.array_equal(theirs.actions[..., 0], ours.actions.numpy())
    assert np.array_equal(theirs.action_masks > 0, ours.masks.numpy())
    for name in ("values", "advantages", "log_probs", "rewards", "returns"):
        expected, given = getattr(theirs, name), np.asarray(getattr(ours, name))
        assert np.allclose(expected, given, atol=2e-5), name
    assert ours.dones.sum() > 0
    assert len(ours._truncated) > 0


def test_each_rollout_is_discounted_by_the_schedule() -> None:
    """From advantages with a lambda of 1 and constant values, the discount can be read."""
    model = model_of(gamma=0.5, gamma_end=0.9, gae_lambda=1.0)
    # The critic's value is 0 everywhere.
    for parameter in model.policy.network.critic_parameters():
        parameter.requires_grad_(False).zero_()
    found = []

    def train() -> None:
        rollouts = model.rollout_buffer
        advantages, rewards = rollouts.advantages, rollouts.rewards
        step, abacus = np.argwhere(~rollouts.dones[:-1] & (np.abs(advantages[1:]) > 0.01))[0]
        left = advantages[step, abacus] - rewards[step, abacus]
        found.append(left / advantages[step + 1, abacus])

    model.train = train  # type: ignore[method-assign]
    model.learn(4 * 1024)
    done = np.arange(4) / 4
    assert found == pytest.approx(1 - 0.5 ** (1 - done) * 0.1**done, rel=1e-4)


STARTS: dict[str, Any] = {
    "starts": 3,
    "start_steps": 2 * 1024,
    "count_bonus": 0.5,
    "retry_share": 0.5,
    "critic_sees": "state",
    "optimizer": "muon",
    "learning_rate": Schedule("linear", 0.01),
}


def test_the_best_of_several_starts_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three starts of two rollouts, then three more of the second one."""
    model = model_of(**STARTS)
    lines: list[str] = []
    model.announce = lines.append
    accuracies = iter([0.3, 0.4, 0.8, 0.6, 0.7, 0.5, 0.9, 0.9, 0.9])
    first_inputs, remaining, states, train = [], [], [], model.train

    def follow() -> None:
        first_inputs.append(model.rollout_buffer.inputs[0].clone())
        remaining.append(model.progress_remaining)
        train()
        states.append(ppo_state(model))

    monkeypatch.setattr(model, "train", follow)
    add = Starts.add
    monkeypatch.setattr(Starts, "add", lambda starts, _: add(starts, next(accuracies)))
    model.learn(9 * 1024)
    assert [line.partition(";")[0] for line in lines] == [
        f"start {number} of 3: {accuracy} solved by sampling"
        for number, accuracy in ((1, "6.7%"), (2, "13.2%"), (3, "11.3%"))
    ]
    assert lines[-1].endswith("; start 2 is continued")
    # The schedules are those of a training of five rollouts.
    assert remaining == pytest.approx([0.8, 0.6, 0.8, 0.6, 0.8, 0.6, 0.4, 0.2, 0.0])
    # Each start has other weights and abaci.
    begun = [states[number]["policy"]["network.actor.0.weight"] for number in (0, 2, 4)]
    assert not torch.equal(begun[0], begun[1])
    assert not torch.equal(begun[1], begun[2])
    assert not torch.equal(first_inputs[0], first_inputs[2])
    # The rollout after the choice follows the last one of the second start.
    chosen = states[3]
    again = model_of(**STARTS)
    again._setup_learn(9 * 1024, None)
    load_training_state(again, chosen)
    assert torch.equal(first_inputs[6], again._inputs(again.batch))
    assert model.starts is not None
    assert model.starts.states == []


def test_a_start_begins_with_nothing_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(**STARTS)
    begun = []
    begin = AbacusPPO._add_ingredients

    def note(self: AbacusPPO) -> None:
        begin(self)
        assert self.bonus is not None
        assert self.retries is not None
        begun.append((int(self.bonus.visits.sum()), bool(self.retries.resumed.any())))
        assert not self.policy.optimizer.state
        held = {
            id(each) for group in self.policy.optimizer.param_groups for each in group["params"]
        }
        assert {id(each) for each in self.policy.network.parameters()} <= held

    monkeypatch.setattr(AbacusPPO, "_add_ingredients", note)
    model.learn(7 * 1024)
    assert begun == [(0, False)] * 2


@pytest.mark.parametrize("rollouts", [1, 2, 3, 5, 6, 7])
def test_starts_resume_to_the_same_result(rollouts: int) -> None:
    """Interrupted within a start, where one ends, and after the choice."""
    whole, restored = model_of(**STARTS), model_of(**STARTS)
    whole.learn(8 * 1024)
    interrupted = model_of(**STARTS)
    interrupted._setup_learn(8 * 1024, None)
    states = []

    class Stop(BaseCallback):
        def _on_rollout_start(self) -> None:
            if self.model.num_timesteps == rollouts * 1024:
                states.append(copy.deepcopy(ppo_state(interrupted)))

        def _on_step(self) -> bool:
            return not states

    interrupted.learn(8 * 1024, callback=Stop())
    (state,) = states
    restored._setup_learn(1024, None)
    load_ppo_state(restored, state)
    restored.learn((8 - rollouts) * 1024, reset_num_timesteps=False)
    assert restored.num_timesteps == whole.num_timesteps
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(restored)[name]), name


def test_the_counts_of_a_rollout_are_consistent() -> None:
    model = model_of(n_steps=250)
    model.learn(250 * 32)
    counts = model.rollout_buffer.counts
    assert counts.illegal == 0
    assert 0 < counts.accuracy < 1
    assert sum(counts.failures.values()) <= len(counts.returns)
    assert model.longest_run >= counts.longest_run > 0


def test_the_critic_of_the_state_is_trained_and_no_policy_holds_it() -> None:
    model = model_of(
        critic_sees="state",
        critic_warmup=1024,
        kl_weight=0.1,
        learning_rate=Schedule("constant", 1e-3),
    )
    model.freeze_clone()
    assert model.state_critic is not None
    policy = weights(model)
    critic = [parameter.detach().clone() for parameter in model.state_critic.parameters()]
    model.learn(1024)
    # While the critic warms up, nothing of the policy changes.
    assert all(torch.equal(tensor, weights(model)[name]) for name, tensor in policy.items())
    after = list(model.state_critic.parameters())
    assert not any(torch.equal(old, new) for old, new in zip(critic, after, strict=True))
    model.learn(1024, reset_num_timesteps=False)
    for name, tensor in policy.items():
        assert torch.equal(tensor, weights(model)[name]) == name.startswith("network.critic")
    plain = new_policy("onehot", WORLD.base, FRAMES)
    assert list(policy) == list(plain.state_dict())


@pytest.mark.parametrize("sees", ["progress", "state"])
def test_the_actor_does_not_read_the_state_and_the_critic_does(sees: Any) -> None:
    model = model_of(critic_sees=sees)
    model.learn(1024)
    inputs = model.rollout_buffer.inputs.flatten(0, 1)
    other = inputs.clone()
    other[:, model.policy.network.input_length :] = 0.0
    with torch.no_grad():
        assert torch.equal(model.logits(inputs), model.logits(other))
        assert not torch.equal(model.values(inputs), model.values(other))


def test_values_of_truncated_episodes_are_those_of_their_last_states() -> None:
    world = replace(WORLD, reward=("step", "signpost", "slide", "submit"))
    model = model_of(world, n_steps=200, critic_sees="state")
    _, callback = model._setup_learn(6400, None)
    batch, rollouts = model.batch, model.rollout_buffer
    twin = AbacusBatch(world, 32)
    twin.reset(0)
    lasts: list[torch.Tensor] = []
    batch.reset(0)
    model.collect_rollouts(model.env, callback, rollouts, 200)  # type: ignore[arg-type]
    for step in range(200):
        twin.step(rollouts.actions[step].numpy())
        truncated = twin.truncated[twin.ended]
        rows = twin.out.final_rows[: len(twin.ended)][truncated]
        lasts += list(model.policy.network.inputs(torch.from_numpy(rows.copy())))
    length = model.policy.network.input_length
    found = [row for _, _, inputs in rollouts._truncated for row in inputs]
    assert len(found) == len(lasts) > 10
    assert torch.equal(torch.stack(found)[:, :length], torch.stack(lasts))
    # The state's part: where the finger is, which the episodes that started since do not tell.
    assert (torch.stack(found)[:, length:].sum(dim=1) >= 5).all()


def test_the_bonus_is_added_to_the_rewards() -> None:
    plain = model_of()
    plain.learn(1024)
    paid = model_of(count_bonus=0.5)
    paid.learn(1024)
    assert torch.equal(plain.rollout_buffer.actions, paid.rollout_buffer.actions)
    assert paid.bonus is not None
    visits = paid.bonus.visits[paid.bonus.visits > 0]
    expected = sum((0.5 / np.sqrt(np.arange(1, count + 1))).sum() for count in visits)
    # Truncated episodes would add the values of the critic, which are not the same.
    assert not plain.rollout_buffer._truncated
    added = paid.rollout_buffer.rewards - plain.rollout_buffer.rewards
    assert added.sum() == pytest.approx(expected, rel=1e-5)


def test_ppo_resumes_the_share_of_its_mistakes_from_its_last_inputs() -> None:
    torch.manual_seed(0)
    model = model_of(n_steps=100, retry_share=0.8)
    model.learn(100 * 32)
    rollouts = model.rollout_buffer
    inputs = rollouts.inputs.numpy()
    resumed = sum(
        any(
            np.array_equal(inputs[step + 1, i], inputs[back, i])
            for back in range(step - 7, step + 1)
        )
        for step, i in np.argwhere(rollouts.dones[7:-1]) + np.array([7, 0])
    )
    # Some episodes start with an observation that was among the last eight.
    assert 0.75 < resumed / rollouts.dones[7:-1].sum() < 0.9


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_operations_of_first_tries_count_once(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followed step by step, over two rollouts; a resumed episode has no count but its run."""
    model = model_of(n_steps=150, retry_share=share)
    solved, failed, retried = [0, 0], [0, 0], np.zeros(32, np.bool_)
    step = AbacusBatch.step

    def follow(batch: AbacusBatch, actions: Any) -> None:
        rollout = model.num_timesteps // (150 * 32)
        before = batch.scalars["operations_solved"].copy()
        if model.retries is not None:
            retried[:] = model.retries.resumed
        step(batch, actions)
        after = batch.scalars["operations_solved"]
        solved[rollout] += int((after - before)[~retried].sum())
        failed[rollout] += sum(
            batch.ends[i] in FAILURES for i in batch.ended.tolist() if not retried[i]
        )

    monkeypatch.setattr(AbacusBatch, "step", follow)
    for rollout in range(2):
        model.learn(150 * 32, reset_num_timesteps=not rollout)
        counts = model.rollout_buffer.counts
        assert (counts.solved, counts.failures.total()) == (solved[rollout], failed[rollout])
    assert min(*solved, *failed) > 0


def test_muon_keeps_the_share_of_its_groups_in_the_schedule() -> None:
    model = model_of(optimizer="muon", learning_rate=Schedule("linear", 0.02), weight_decay=0.1)
    model.learn(4 * 1024)
    optimizer = model.policy.optimizer
    assert isinstance(optimizer, Muon)
    rate = model.settings.learning_rate(0.0)
    assert [group["lr"] for group in optimizer.param_groups] == [rate, rate * 0.2]
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.1}


def test_a_restored_training_continues_in_the_same_way() -> None:
    """Count table, critic of the state and momenta of Muon are in the state."""
    changes: dict[str, Any] = {
        "count_bonus": 0.5,
        "retry_share": 0.5,
        "critic_sees": "state",
        "optimizer": "muon",
        "learning_rate": Schedule("constant", 0.01),
        "entropy": Schedule("constant", 0.04),
        "gamma": 0.8,
        "gamma_end": 0.99,
    }
    whole, restored = model_of(**changes), model_of(**changes)
    whole.learn(2 * 1024)
    state = copy.deepcopy(ppo_state(whole))
    whole.learn(2 * 1024, reset_num_timesteps=False)
    expected = weights(whole)
    restored._setup_learn(1024, None)
    load_ppo_state(restored, state)
    restored.learn(2 * 1024, reset_num_timesteps=False)
    assert all(torch.equal(tensor, weights(restored)[name]) for name, tensor in expected.items())
    assert whole.bonus is not None
    assert restored.bonus is not None
    assert np.array_equal(whole.bonus.visits, restored.bonus.visits)


@pytest.mark.parametrize(
    ("budget", "actions", "entropy", "expected"),
    [
        (95, [0, 1], 1.0, "idling: 95% of the episodes ran out of steps"),
        (50, [3] * 19 + [0], 1.0, "one action: 95% of the actions are down"),
        (50, [0, 1, 2], 0.001, "no exploration is left"),
        (50, [0, 1, 2], 0.5, None),
    ],
)
def test_a_collapse_is_named(
    budget: int, actions: list[int], entropy: float, expected: str | None
) -> None:
    failures = Counter(budget=budget, wrong_slide=100 - budget)
    counts = RolloutCounts(solved=20, failures=failures, lengths=[9] * 100)
    found = counts.collapse(torch.tensor(actions), entropy)
    assert found == expected if expected is None else expected in str(found)
    solving = RolloutCounts(solved=200, failures=failures, lengths=[9] * 100)
    assert solving.collapse(torch.tensor(actions), entropy) is None


def test_a_diverging_training_raises() -> None:
    model = model_of()
    with torch.no_grad():
        model.policy.network.critic_parameters()[0].fill_(torch.nan)
    with pytest.raises(ValueError, match="diverged"):
        model.learn(1024)


def test_a_zip_of_the_library_holds_the_policy(tmp_path: Any) -> None:
    model = model_of()
    model.learn(1024)
    model.save(tmp_path / "model.zip")
    loaded = AbacusPPO.load(tmp_path / "model.zip", device="cpu")
    for name, tensor in model.policy.state_dict().items():
        assert torch.equal(tensor, loaded.policy.state_dict()[name])


def test_paper_is_cloned_and_fine_tuned() -> None:
    """In base 2 with one frame, where the same layers have 127 million numbers and not 342."""
    world = replace(WORLD, frames=1)
    settings = replace(SETTINGS, n_envs=4, n_steps=2, batch_size=8, n_epochs=1)
    env = AbacusVecEnv(4, config=world)
    model = AbacusPPO(
        AbacusPolicy, env, settings, seed=0, device="cpu", policy_kwargs={"network": "paper"}
    )
    model.set_logger(Logger(None, []))
    data = CloningSet.from_demonstrations(small_demonstrations(1), frames=1)
    # Muon would take a minute for matrices of this size.
    settings_of_cloning = CloningSettings(optimizer="adamw", updates=1, learning_rate=1e-4)
    before = model.policy.network.state_dict()["actor.0.weight"][:4].clone()
    Cloning(model.policy, data, settings_of_cloning, 0, Logger(None, [])).run()
    cloned = model.policy.network.state_dict()["actor.0.weight"][:4].clone()
    assert not torch.equal(before, cloned)
    model.learn(8)
    assert all(torch.isfinite(tensor).all() for tensor in model.policy.state_dict().values())
