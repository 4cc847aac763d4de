"""Cloning: masked loss, held-out score, early stopping, an unchanged critic; it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from pipelines.learning.cloning import Cloning, MaskedLoss, one_cycle, score_set
from pipelines.learning.cloning_data import CloningBatches, CloningSet, split_masks
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.settings import CloningSettings
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import training_score
from tests.pipelines.small_world import FRAMES, WORLD, small_demonstrations


def policy_of(seed: int = 0) -> AbacusPolicy:
    torch.manual_seed(seed)
    return new_policy("compact", WORLD.base, FRAMES)


def cloning_of(policy: AbacusPolicy, sets: tuple[CloningSet, CloningSet], **kwargs: Any) -> Cloning:
    settings = CloningSettings(**{"epochs": 40, "patience": 40, **kwargs})
    return Cloning(policy, sets[0], sets[1], settings, 0, Logger(None, []))


def test_distinct_observations_are_counted_with_their_transitions() -> None:
    demonstrations = small_demonstrations(100)
    data = CloningSet.from_demonstrations(demonstrations, FRAMES)
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
    data = CloningSet.from_demonstrations(demonstrations, FRAMES)
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
    sets: tuple[CloningSet, CloningSet],
) -> None:
    batches = CloningBatches(sets[0], 32, torch.Generator().manual_seed(0))
    epochs = [torch.cat([batch["obs"] for batch in batches]) for _ in range(2)]
    for rows in epochs:
        assert len(rows) == len(batches) * 32 > len(sets[0]) - 32
        assert len(torch.unique(rows[:, :-8], dim=0)) == len(rows)
    assert not torch.equal(*epochs)


def test_a_set_smaller_than_a_batch_is_one_batch() -> None:
    data = CloningSet.from_demonstrations(small_demonstrations(1), FRAMES)
    batches = CloningBatches(data, 4096, torch.Generator())
    assert [len(batch["acts"]) for batch in batches] == [len(data)]


def test_the_loss_is_over_the_legal_actions(sets: tuple[CloningSet, CloningSet]) -> None:
    policy = policy_of()
    obs = torch.cat([sets[0].rows, sets[0].masks.float()], dim=1)
    loss = MaskedLoss(0.0)(policy, obs, sets[0].actions).loss.item()
    rows, masks = split_masks(obs)
    assert torch.equal(masks, sets[0].masks)
    logits = policy.network.logits(rows).masked_fill(~masks, -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, sets[0].actions)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    unmasked = torch.nn.functional.cross_entropy(policy.network.logits(rows), sets[0].actions)
    assert loss < unmasked.item()


def test_label_smoothing_spreads_over_legal_actions_only(
    sets: tuple[CloningSet, CloningSet],
) -> None:
    """With nearly all of the target spread, the best policy is uniform over legal actions."""
    policy = policy_of()
    obs = torch.cat([sets[0].rows, sets[0].masks.float()], dim=1)
    loss = MaskedLoss(0.999999)(policy, obs, sets[0].actions).loss.item()
    uniform = float(sets[0].masks.sum(dim=1).float().log().mean())
    assert loss == pytest.approx(uniform, abs=0.05)


def test_a_clone_of_the_small_world_solves_it(sets: tuple[CloningSet, CloningSet]) -> None:
    policy = policy_of()
    critic = [parameter.clone() for parameter in policy.network.critic_parameters()]
    curve = cloning_of(policy, sets).run()
    assert curve[-1].held_out_accuracy > 0.99 > curve[0].held_out_accuracy
    assert curve[-1].held_out_loss < curve[0].held_out_loss
    score = training_score(GreedyTable(policy, WORLD.base, FRAMES), WORLD, episodes=100, seed=7)
    assert score.accuracy > 0.98
    assert score.illegal_actions == 0
    for before, now in zip(critic, policy.network.critic_parameters(), strict=True):
        assert torch.equal(before, now)


def test_the_best_weights_are_kept_and_training_stops_early(
    sets: tuple[CloningSet, CloningSet],
) -> None:
    """Labels that contradict the held-out ones: the held-out loss can only rise."""
    wrong = CloningSet(
        sets[0].rows, (sets[0].actions + 1) % 8, torch.ones_like(sets[0].masks), sets[0].counts
    )
    policy = policy_of()
    cloning = cloning_of(policy, (wrong, sets[0]), patience=3)
    curve = cloning.run()
    losses = [score.held_out_loss for score in curve]
    assert len(curve) == int(np.argmin(losses)) + 1 + 3 < 40
    assert score_set(policy, sets[0], 0.05)[0] == pytest.approx(min(losses), rel=1e-5)


def test_resumed_cloning_gives_the_same_weights(sets: tuple[CloningSet, CloningSet]) -> None:
    whole, halves = policy_of(), policy_of()
    cloning_of(whole, sets, epochs=4).run()
    first = cloning_of(halves, sets, epochs=4)

    class Stop(Exception):  # noqa: N818 - not an error
        pass

    def stop(score: Any) -> None:
        if score.epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        first.run(stop)
    state = first.state()
    again = policy_of(seed=5)
    second = cloning_of(again, sets, epochs=4)
    second.load_state(state)
    assert [score.epoch for score in second.run()] == [1, 2, 3, 4]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [one_cycle(done / 100) for done in range(101)]
    assert max(rates) == rates[10] == 1.0
    assert rates[0] < 0.1
    assert rates[-1] == pytest.approx(0.0)
