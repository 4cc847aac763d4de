"""Policies in NumPy answer as the same policies in torch do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from abacus.observation import frame_codes, observation_arrays
from oracle.exact.certificate import certify, digest_of, greedy_actions
from oracle.exact.complete_set import complete_set
from pipelines.learning.inference import IN_NUMPY, NumpyPolicy, RowLayout, onehot_inputs
from pipelines.learning.networks import OneHotNetwork
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.policy_files import (
    WEIGHTS_FILE,
    PolicyFileError,
    load_for_inference,
    load_policy,
    load_run,
    published_policy,
    save_policy,
)

#: The largest difference of logits up to 30 that the order of float32 sums may make.
ROUNDING = 1e-4


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def observations_of(base: int, frames: int, count: int = 500) -> dict[str, np.ndarray]:
    """Return observations of random frames, which need not follow one another."""
    rng = np.random.default_rng(0)
    codes = rng.choice(frame_codes(base), (count, frames))
    return observation_arrays(
        base, codes, rng.integers(0, base + 2, count), rng.integers(0, 2, count)
    )


def torch_logits(policy: AbacusPolicy, observations: dict[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in observations.items()}
        logits: np.ndarray = policy.network.logits(policy.inputs(tensors)).numpy()
    return logits


@pytest.mark.parametrize("network", IN_NUMPY)
@pytest.mark.parametrize(("base", "frames"), [(5, 3), (2, 1), (10, 4)])
def test_logits_are_those_of_torch(network: str, base: int, frames: int) -> None:
    policy = new_policy(network, base, frames)
    with torch.no_grad():  # untrained logits are near 0, where the bound does nothing
        for parameter in policy.parameters():
            parameter.mul_(3)
        policy.network.actor[-1].weight.mul_(1000)  # type: ignore[index, union-attr]
    observations = observations_of(base, frames)
    expected = torch_logits(policy, observations)
    assert np.abs(expected).max() > 10
    np.testing.assert_allclose(
        NumpyPolicy.of(policy)(observations), expected, rtol=1e-5, atol=ROUNDING
    )


def test_inputs_of_onehot_are_the_same_bits_on_the_complete_set() -> None:
    known, layout = complete_set(5, 3), RowLayout(5, 3)
    parts = known.observations(slice(None))
    rows = np.concatenate([parts[name] for name in ("window", "symbol", "operation")], axis=1)
    whole = torch.from_numpy(np.concatenate([rows, parts["previous_action"]], axis=1))
    network = OneHotNetwork(layout)
    expected = network.inputs(whole)[:, : network.actor_inputs].numpy()
    assert np.array_equal(onehot_inputs(rows, layout), expected)


def test_the_published_policy_is_certified_alike_in_numpy_and_torch() -> None:
    in_numpy, in_torch = load_for_inference(), load_run()
    assert isinstance(in_numpy, NumpyPolicy)
    assert isinstance(in_torch, AbacusPolicy)
    known = complete_set(5, 3)
    actions, margins = greedy_actions(in_numpy, known)
    expected, torch_margins = greedy_actions(in_torch, known)
    assert np.array_equal(actions, expected)
    assert margins is not None
    assert torch_margins is not None
    np.testing.assert_allclose(margins, torch_margins, atol=ROUNDING)
    certificate = certify(in_numpy, known)
    assert certificate.exact
    assert certificate.policy_digest == digest_of(in_torch)


def test_the_network_of_the_paper_is_left_to_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = new_policy("compact", 2, 1)
    with pytest.raises(ValueError, match="paper does not run in NumPy"):
        NumpyPolicy("paper", policy.layout, {})
    folder = save_policy(policy, tmp_path)
    assert isinstance(load_for_inference(folder), NumpyPolicy)
    # The paper's own weights would take a gigabyte.
    monkeypatch.setattr("pipelines.learning.policy_files.IN_NUMPY", ("onehot",))
    assert isinstance(load_for_inference(folder), AbacusPolicy)


def test_weights_of_another_network_or_type_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load, save

    small, other = tmp_path / "small", tmp_path / "other"
    save_policy(new_policy("onehot", 2, 1), small)
    save_policy(new_policy("compact", 2, 1), other)
    weights = (small / WEIGHTS_FILE).read_bytes()
    (small / WEIGHTS_FILE).write_bytes((other / WEIGHTS_FILE).read_bytes())
    for loading in (load_for_inference, load_policy):
        with pytest.raises(PolicyFileError, match="does not hold the weights of a onehot"):
            loading(small)
    arrays = load(weights)
    for changed, message in (
        ({name: array.astype(np.float64) for name, array in arrays.items()}, "not of type float32"),
        ({name: array * np.float32(np.nan) for name, array in arrays.items()}, "not finite"),
        ({name: array + np.float32(1) for name, array in arrays.items()}, "is damaged"),
        ({}, "does not hold the weights"),
    ):
        (small / WEIGHTS_FILE).write_bytes(save(changed))
        for loading in (load_for_inference, load_policy):
            with pytest.raises(PolicyFileError, match=message):
                loading(small)


def test_observations_of_another_base_are_refused() -> None:
    policy = load_for_inference(published_policy())
    assert isinstance(policy, NumpyPolicy)
    with pytest.raises(ValueError, match="give those of base 5 with 3 frames"):
        policy(observations_of(2, 3))
