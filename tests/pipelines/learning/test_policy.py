"""The policy: masked, bounded, and consistent over its methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig
from pipelines.learning.policy import (
    AbacusPolicy,
    entropy,
    masked_log_probs,
    new_policy,
    prepare_torch,
    sample,
)


@pytest.fixture
def policy() -> AbacusPolicy:
    torch.manual_seed(0)
    return new_policy("compact", 5, 3)


@pytest.fixture
def batch() -> AbacusBatch:
    batch = AbacusBatch(AbacusConfig(start="random"), 64)
    batch.reset(0)
    return batch


def seen_by(batch: AbacusBatch) -> dict[str, np.ndarray[Any, Any]]:
    return {key: rows.copy() for key, rows in batch.observation.items()}


def test_masked_actions_have_probability_zero_and_are_never_sampled() -> None:
    torch.manual_seed(0)
    masks = torch.rand(2000, 8) < 0.3
    masks[:, 7] = True
    log_probs = masked_log_probs(30 * torch.randn(2000, 8), masks)
    assert (log_probs.exp()[~masks] == 0).all()
    for _ in range(20):
        assert masks[torch.arange(2000), sample(log_probs)].all()


def test_sampling_follows_the_probabilities() -> None:
    torch.manual_seed(0)
    probabilities = torch.tensor([0.5, 0.25, 0.125, 0.125])
    drawn = sample(probabilities.log().expand(40_000, 4))
    shares = torch.bincount(drawn, minlength=4) / 40_000
    assert torch.allclose(shares, probabilities, atol=0.01)


def test_everything_is_finite_at_the_bound_of_the_logits() -> None:
    """Therefore the library's checks can be skipped."""
    logits = torch.tensor([[30.0, -30.0] * 4]).requires_grad_()
    masks = torch.tensor([[True, True] + [False] * 6])
    log_probs = masked_log_probs(logits, masks)
    loss = entropy(log_probs).sum() + log_probs[0, 1]
    torch.autograd.backward(loss)
    assert torch.isfinite(log_probs[0, :2]).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_the_entropy_is_that_of_the_legal_actions() -> None:
    masks = torch.tensor([[True] * 4 + [False] * 4])
    assert float(entropy(masked_log_probs(torch.zeros(1, 8), masks))) == pytest.approx(np.log(4))


def test_the_distribution_of_the_library_agrees(policy: AbacusPolicy, batch: AbacusBatch) -> None:
    tensors, _ = policy.obs_to_tensor(seen_by(batch))
    masks = batch.masks.copy()
    ours = policy.log_probs(tensors, masks).exp()
    theirs: Any = policy.get_distribution(tensors, masks).distribution
    assert torch.allclose(ours, theirs.probs, atol=1e-6)
    actions = torch.from_numpy(batch.masks.argmax(axis=1))
    _, log_prob, disorder = policy.evaluate_actions(tensors, actions, masks)
    distribution: Any = policy.get_distribution(tensors, masks)
    assert torch.allclose(log_prob, distribution.log_prob(actions), atol=1e-5)
    assert torch.allclose(disorder, distribution.entropy(), atol=1e-5)


def test_rows_and_observations_are_the_same_input(policy: AbacusPolicy, batch: AbacusBatch) -> None:
    tensors, _ = policy.obs_to_tensor(seen_by(batch))
    rows = torch.from_numpy(batch.out.rows)
    assert torch.equal(policy.log_probs(tensors), policy.log_probs(rows))


def test_predict_is_greedy_legal_and_takes_single_observations(
    policy: AbacusPolicy, batch: AbacusBatch
) -> None:
    seen = seen_by(batch)
    actions, _ = policy.predict(seen, deterministic=True, action_masks=batch.masks.copy())
    assert batch.masks[np.arange(64), actions].all()
    one = {key: rows[0] for key, rows in seen.items()}
    single, _ = policy.predict(one, deterministic=True, action_masks=batch.masks[0].copy())
    assert single == actions[0]


def test_forward_agrees_with_evaluate_actions(policy: AbacusPolicy, batch: AbacusBatch) -> None:
    tensors, _ = policy.obs_to_tensor(seen_by(batch))
    masks = batch.masks.copy()
    actions, values, log_prob = policy(tensors, action_masks=masks)
    again_values, again, _ = policy.evaluate_actions(tensors, actions, masks)
    assert torch.allclose(log_prob, again)
    assert torch.allclose(values, again_values)
    assert torch.allclose(values, policy.predict_values(tensors))


def test_torch_computes_with_zero_in_place_of_denormal_numbers() -> None:
    """Cloning takes ten times as long with them, on some processors."""
    smallest = torch.tensor([torch.finfo(torch.float32).tiny])
    torch.set_flush_denormal(False)
    assert (smallest / 2).item() > 0
    prepare_torch(1)
    assert (smallest / 2).item() == 0
    assert torch.get_num_threads() == 1
