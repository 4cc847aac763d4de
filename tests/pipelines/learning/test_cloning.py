"""Cloning: masked loss, weight decay, an unchanged critic; it learns, and resumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from pipelines.learning.cloning import Cloning, MaskedLoss, one_cycle
from pipelines.learning.cloning_data import CloningBatches, CloningSet, split_masks
from pipelines.learning.networks import OneHotNetwork
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.settings import CloningSettings
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import training_score
from tests.pipelines.small_world import FRAMES, WORLD, small_demonstrations


def policy_of(seed: int = 0) -> AbacusPolicy:
    torch.manual_seed(seed)
    return new_policy("onehot", WORLD.base, FRAMES)


def cloning_of(policy: AbacusPolicy, data: CloningSet, **kwargs: Any) -> Cloning:
    settings = CloningSettings(**{"updates": 1000, "batch_size": 64, **kwargs})
    return Cloning(policy, data, settings, 0, Logger(None, []))


def joined(policy: AbacusPolicy, data: CloningSet) -> torch.Tensor:
    return torch.cat([policy.network.inputs(data.rows), data.masks.float()], dim=1)


def test_distinct_observations_are_counted_with_their_transitions() -> None:
    demonstrations = small_demonstrations(100)
    data = CloningSet.from_demonstrations(demonstrations, frames=FRAMES)
    rows = np.concatenate(
        [
            demonstrations.observations(frames=FRAMES)[key]
            for key in ("window", "symbol", "operation")
        ],
        axis=1,
    )
    expected, counts = np.unique(rows, axis=0, return_counts=True)
    ours = data.rows[:, : rows.shape[1]].numpy()
    order = np.lexsort(ours.T[::-1])
    assert np.array_equal(ours[order], expected)
    assert np.array_equal(data.counts.numpy()[order], counts)
    assert int(data.counts.sum()) == len(demonstrations)
    assert (data.rows[:, rows.shape[1] :] == 0).all()


def test_the_mask_allows_what_was_legal_in_any_transition() -> None:
    demonstrations = small_demonstrations(100)
    data = CloningSet.from_demonstrations(demonstrations, frames=FRAMES)
    legal: dict[bytes, np.ndarray[Any, Any]] = {}
    rows = np.concatenate(
        [
            demonstrations.observations(frames=FRAMES)[key]
            for key in ("window", "symbol", "operation")
        ],
        axis=1,
    )
    for row, mask in zip(rows, demonstrations.masks(), strict=True):
        legal[row.tobytes()] = legal.get(row.tobytes(), np.zeros(8, bool)) | mask
    for row, mask in zip(data.rows[:, : rows.shape[1]].numpy(), data.masks.numpy(), strict=True):
        assert np.array_equal(legal[row.tobytes()], mask)
    assert data.masks[torch.arange(len(data)), data.actions].all()


def test_an_epoch_has_every_sample_at_most_once_in_a_new_order(
    data: CloningSet,
) -> None:
    batches = CloningBatches(data.rows, data, 32, torch.Generator().manual_seed(0))
    epochs = [torch.cat([batch["obs"] for batch in batches]) for _ in range(2)]
    for rows in epochs:
        assert len(rows) == len(batches) * 32 > len(data) - 32
        assert len(torch.unique(rows[:, :-8], dim=0)) == len(rows)
    assert not torch.equal(*epochs)


def test_a_set_smaller_than_a_batch_is_one_batch() -> None:
    data = CloningSet.from_demonstrations(small_demonstrations(1), frames=FRAMES)
    batches = CloningBatches(data.rows, data, 4096, torch.Generator())
    assert [len(batch["acts"]) for batch in batches] == [len(data)]


def test_the_loss_is_over_the_legal_actions(data: CloningSet) -> None:
    policy = policy_of()
    obs = joined(policy, data)
    loss = MaskedLoss(0.0)(policy, obs, data.actions).loss.item()
    inputs, masks = split_masks(obs)
    assert torch.equal(masks, data.masks)
    logits = policy.network.logits(inputs).masked_fill(~masks, -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, data.actions)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    unmasked = torch.nn.functional.cross_entropy(policy.network.logits(inputs), data.actions)
    assert loss < unmasked.item()


def test_label_smoothing_spreads_over_legal_actions_only(
    data: CloningSet,
) -> None:
    """With nearly all of the target spread, the best policy is uniform over legal actions."""
    policy = policy_of()
    obs = joined(policy, data)
    loss = MaskedLoss(0.999999)(policy, obs, data.actions).loss.item()
    uniform = float(data.masks.sum(dim=1).float().log().mean())
    assert loss == pytest.approx(uniform, abs=0.05)


def test_a_clone_of_the_small_world_solves_it(data: CloningSet) -> None:
    policy = policy_of()
    critic = [parameter.clone() for parameter in policy.network.critic_parameters()]
    cloning = cloning_of(policy, data)
    last = cloning.run()
    assert [score.update for score in cloning.curve] == [500, 1000]
    assert last is cloning.curve[-1]
    assert last.accuracy > 0.99
    assert last.loss < cloning.curve[0].loss
    score = training_score(GreedyTable(policy, WORLD.base, FRAMES), WORLD, episodes=100, seed=7)
    assert score.accuracy > 0.98
    assert score.illegal_actions == 0
    for before, now in zip(critic, policy.network.critic_parameters(), strict=True):
        assert torch.equal(before, now)


def test_weight_decay_keeps_the_weights_small(data: CloningSet) -> None:
    def norm(weight_decay: float) -> float:
        policy = policy_of()
        cloning_of(policy, data, updates=200, weight_decay=weight_decay).run()
        assert isinstance(policy.network, OneHotNetwork)
        return sum(float(tensor.square().sum()) for tensor in policy.network.actor.parameters())

    assert norm(1.0) < 0.8 * norm(0.0)


def test_resumed_cloning_gives_the_same_weights(data: CloningSet) -> None:
    whole, halves = policy_of(), policy_of()
    cloning_of(whole, data, updates=1200).run()
    first = cloning_of(halves, data, updates=1200)

    class Stop(Exception):  # noqa: N818 - not an error
        pass

    def stop(score: Any) -> None:
        if score.update == 1000:
            raise Stop

    with pytest.raises(Stop):
        first.run(stop)
    state = first.state()
    again = policy_of(seed=5)
    second = cloning_of(again, data, updates=1200)
    second.load_state(state)
    second.run()
    assert [score.update for score in second.curve] == [500, 1000, 1200]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [one_cycle(done / 100) for done in range(101)]
    assert max(rates) == rates[10] == 1.0
    assert rates[0] < 0.1
    assert rates[-1] == pytest.approx(0.0)
