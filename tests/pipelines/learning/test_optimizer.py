"""Muon: orthogonal updates of matrices, AdamW for the rest, decoupled weight decay, resumable."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from pipelines.learning.networks import perceptron
from pipelines.learning.optimizer import Muon, orthogonalized


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return perceptron((12, 32, 16, 8))


def update(network: nn.Sequential, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    torch.manual_seed(1)
    inputs, targets = torch.rand(64, 12), torch.randint(8, (64,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (25, 25)])
def test_an_orthogonalized_matrix_has_singular_values_near_1(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape) @ torch.diag(torch.logspace(0, -1, shape[1]))
    values = torch.linalg.svdvals(orthogonalized(matrix))
    assert values.min() > 0.5
    assert values.max() < 1.3
    # The singular vectors are those of the matrix: both are diagonal in the same bases.
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ orthogonalized(matrix) @ right.T
    assert torch.allclose(turned, torch.diag(turned.diagonal()), atol=1e-3)


def test_hidden_weights_are_orthogonal_and_the_rest_is_adamw() -> None:
    ours, other = layers(), layers()
    optimizer = Muon(ours.parameters(), lr=0.01, weight_decay=0.1)
    adam = torch.optim.AdamW(other.parameters(), lr=0.002, weight_decay=0.1)
    before = {name: tensor.clone() for name, tensor in ours.named_parameters()}
    update(ours, optimizer)
    update(other, adam)
    after, expected = dict(ours.named_parameters()), dict(other.named_parameters())
    for name in ("0.bias", "2.bias", "4.weight", "4.bias"):
        assert torch.allclose(after[name], expected[name], atol=1e-7), name
    for name in ("0.weight", "2.weight"):
        step = (after[name] - before[name] * (1 - 0.01 * 0.1)) / 0.01
        outputs, inputs = step.shape
        values = torch.linalg.svdvals(step) / max(1.0, outputs / inputs) ** 0.5
        assert values.max() < 1.3
        assert values.median() > 0.5


def test_parameters_without_a_gradient_stay_as_they_are() -> None:
    network = layers()
    optimizer = Muon(network.parameters(), weight_decay=1.0)
    before = [tensor.clone() for tensor in network.parameters()]
    optimizer.step()
    for old, new in zip(before, network.parameters(), strict=True):
        assert torch.equal(old, new)


def test_a_restored_state_continues_with_the_same_updates() -> None:
    whole, resumed = layers(), layers()
    update(whole, Muon(whole.parameters(), lr=0.01), steps=6)
    first = Muon(resumed.parameters(), lr=0.01)
    update(resumed, first, steps=3)
    state = copy.deepcopy(first.state_dict())
    second = Muon(resumed.parameters(), lr=0.5)
    second.load_state_dict(state)
    update(resumed, second, steps=3)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
