"""The networks are those that their docstrings and the paper describe."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from abacus.observation import decode_frame, frame_codes, observation_rows
from abacus.rules import Action
from pipelines.learning.inference import LOGIT_BOUND, NETWORK_NAMES, RowLayout
from pipelines.learning.networks import (
    CompactNetwork,
    OneHotNetwork,
    PaperNetwork,
    bounded,
    make_network,
)

LAYOUT = RowLayout(base=5, frames=3)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture(scope="module")
def paper() -> PaperNetwork:
    """The paper's network at its true size, 342 million numbers, without memory behind it."""
    with torch.device("meta"):
        return PaperNetwork(LAYOUT)


def test_the_layout_is_that_of_the_environment() -> None:
    assert (LAYOUT.window, LAYOUT.actor, LAYOUT.critic) == (72, 80, 88)


def test_compact_has_the_sizes_of_its_docstring() -> None:
    network = CompactNetwork(LAYOUT)
    assert count(network.actor) == 88_584
    assert count(network.critic) == 28_033


def test_onehot_has_the_sizes_of_its_docstring() -> None:
    network = OneHotNetwork(LAYOUT)
    assert (network.actor_inputs, network.input_length) == (75, 83)
    assert (count(network.actor), count(network.critic)) == (27_272, 27_393)


def test_paper_has_the_paper_s_convolutions(paper: PaperNetwork) -> None:
    convolutions = [layer for layer in paper.features if isinstance(layer, nn.Conv3d)]
    assert [layer.out_channels for layer in convolutions] == [128, 255, 512]
    assert [layer.kernel_size for layer in convolutions] == [(3,) * 3, (2,) * 3, (2,) * 3]
    assert all(layer.padding == (1, 1, 1) for layer in convolutions)


def test_paper_has_five_layers_for_actor_and_critic_apart(paper: PaperNetwork) -> None:
    for head, outputs in ((paper.actor, 8), (paper.critic, 1)):
        linear = [layer for layer in head if isinstance(layer, nn.Linear)]
        assert [layer.out_features for layer in linear] == [2048, 1024, 512, 256, 128, outputs]
    assert not set(map(id, paper.actor.parameters())) & set(map(id, paper.critic.parameters()))


def test_paper_has_the_parameters_of_its_docstring(paper: PaperNetwork) -> None:
    assert count(paper.features) == 7_040 + 261_375 + 1_044_992
    assert (count(paper.actor), count(paper.critic)) == (170_578_824, 170_594_305)


def test_paper_gives_the_shapes_of_its_docstring(paper: PaperNetwork) -> None:
    rows = torch.empty(2, LAYOUT.critic, device="meta")
    assert paper.feature_length == 512 * 5 * 4 * 8
    assert paper._joined(rows).shape == (2, 81_936)
    logits, values = paper(rows)
    assert (logits.shape, values.shape) == ((2, 8), (2,))


@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_the_actor_does_not_read_the_previous_action_and_the_critic_does(name: str) -> None:
    layout = RowLayout(base=2, frames=1)
    torch.manual_seed(0)
    network = make_network(name, layout)
    rows = torch.rand(4, layout.critic)
    other = rows.clone()
    other[:, layout.actor :] = 1 - other[:, layout.actor :]
    inputs, changed = network.inputs(rows), network.inputs(other)
    assert inputs.shape == (4, network.input_length)
    with torch.no_grad():
        assert torch.equal(network.logits(inputs), network.logits(changed))
        assert not torch.equal(network.values(inputs), network.values(changed))
        assert torch.equal(network(inputs)[0], network.logits(inputs))
        assert torch.allclose(network(inputs)[1], network.values(inputs), atol=1e-6)


@pytest.mark.parametrize("base", [2, 3, 5, 10])
def test_onehot_reads_the_contents_of_every_frame(base: int) -> None:
    """All frame codes, twice in a row: newest and oldest; decoded by the table of codes."""
    codes = np.arange(frame_codes(base))
    histories = np.stack([codes, codes[::-1]], axis=1)
    symbols, operations = codes % (base + 2), codes % 2
    actions = codes % (len(Action) + 1)
    rows = torch.from_numpy(observation_rows(base, histories, symbols, operations, actions))
    network = OneHotNetwork(RowLayout(base, frames=2))
    sizes = (base + 1, base, base, 3, 3)
    columns = [
        np.eye(size)[values]
        for history in histories.T
        for size, values in zip(sizes, _in_order(base, history), strict=True)
    ]
    columns += [np.eye(base + 2)[symbols], np.eye(2)[1 - operations], np.eye(9, 8)[actions]]
    assert np.array_equal(network.inputs(rows).numpy(), np.concatenate(columns, axis=1))


def _in_order(base: int, history: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Return the contents of frames; the signpost's places are left, right, unseen."""
    left, right, row, phase, signpost = decode_frame(base, history)
    return [left, right, row, phase, np.array([2, 0, 1])[signpost]]


def test_paper_sees_frames_as_depth_and_planes_as_channels() -> None:
    """A row's window goes into the convolution as (plane, frame, column, row)."""
    layout = RowLayout(base=2, frames=2)
    with torch.device("meta"):
        network = PaperNetwork(layout)
    seen = []
    network.features = nn.Sequential(nn.Flatten())
    network.features.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    rows = torch.arange(layout.critic, dtype=torch.float32)[None]
    network._joined(rows)
    window = rows[0, : layout.window].reshape(layout.volume)
    for frame in range(2):
        for plane in range(2):
            assert torch.equal(seen[0][0, plane, frame], window[frame, plane])


def test_logits_are_bounded_and_small_ones_unchanged() -> None:
    huge = bounded(torch.tensor([1e9, -1e9, 0.1]))
    assert huge.tolist() == pytest.approx([LOGIT_BOUND, -LOGIT_BOUND, 0.1], rel=1e-4)


def test_an_unknown_network_is_refused() -> None:
    with pytest.raises(ValueError, match="onehot, wide, compact, paper"):
        make_network("huge", LAYOUT)
