"""The networks: `compact`, the default, and `paper`, as described in the paper.

Both map rows of the batched abacus (window, symbol, operation and previous action, concatenated) to
action logits and a value. The actor never reads the previous action.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

import torch
from torch import nn

from abacus.checks import check_choice
from abacus.rules import WINDOW_COLUMNS, WINDOW_PLANES, Action
from pipelines.learning.settings import NetworkName

NETWORK_NAMES: tuple[NetworkName, ...] = get_args(NetworkName)
#: Largest absolute logit, so that no probability of a legal action is 0 or NaN.
LOGIT_BOUND = 30.0
#: Rows evaluated at once without gradients.
CHUNK = 8192
#: The same for the paper network, where CHUNK rows would take 6 GB of activations.
PAPER_ROWS = 512


@dataclass(frozen=True)
class RowLayout:
    """Lengths of the parts of a row, and of what actor and critic read."""

    base: int
    frames: int

    @property
    def volume(self) -> tuple[int, int, int, int]:
        """(frames, planes, columns, rows) of the window."""
        return (self.frames, WINDOW_PLANES, WINDOW_COLUMNS, self.base + 1)

    @property
    def window(self) -> int:
        return self.frames * WINDOW_PLANES * WINDOW_COLUMNS * (self.base + 1)

    @property
    def actor(self) -> int:
        """Inputs of the actor: window, symbol and operation, the first part of a row."""
        return self.window + self.base + 2 + 1

    @property
    def critic(self) -> int:
        """Inputs of the critic, the whole row: the actor's and the previous action."""
        return self.actor + len(Action)


class Network(nn.Module):
    """Base of the networks: rows in, action logits and values out."""

    layout: RowLayout
    #: Whether all observations of the complete set are too many to evaluate during training.
    slow = False

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the bounded action logits, (N, 8)."""
        raise NotImplementedError

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the critic's values, (N,)."""
        raise NotImplementedError

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and values of the same rows."""
        return self.logits(rows), self.values(rows)

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that do not influence the actor."""
        raise NotImplementedError


class CompactNetwork(Network):
    """Two multilayer perceptrons. In base 5 with three frames:

    | part | layers | parameters |
    |---|---|---|
    | actor | 80 - 256 - 256 - 8, ReLU | 88,584 |
    | critic | 88 - 128 - 128 - 1, ReLU | 28,033 |

    The critic can be smaller because advantages only need a ranking; it takes half of the time of
    an update.
    """

    ACTOR = (256, 256)
    CRITIC = (128, 128)

    def __init__(self, layout: RowLayout) -> None:
        super().__init__()
        self.layout = layout
        self.actor = perceptron((layout.actor, *self.ACTOR, len(Action)))
        self.critic = perceptron((layout.critic, *self.CRITIC, 1))
        shrink_last_layer(self.actor)

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        return bounded(self.actor(rows[:, : self.layout.actor]))

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(rows).flatten()
        return values

    def critic_parameters(self) -> list[nn.Parameter]:
        return list(self.critic.parameters())


class PaperNetwork(Network):
    """The paper's network: three Conv3d layers over the stacked frames, then actor and critic.

    Frames are the depth, columns and rows the image, planes the channels. In base 5, three frames:

    | part | layers | out | parameters |
    |---|---|---|---|
    | features | Conv3d 2 to 128, kernel 3, padding 1 | 128 x 3 x 2 x 6 | 7,040 |
    | | Conv3d 128 to 255, kernel 2, padding 1 | 255 x 4 x 3 x 7 | 261,375 |
    | | Conv3d 255 to 512, kernel 2, padding 1 | 512 x 5 x 4 x 8 | 1,044,992 |
    | actor | 81,928 - 2048 - 1024 - 512 - 256 - 128 - 8 | 8 | 170,578,824 |
    | critic | 81,936 - 2048 - 1024 - 512 - 256 - 128 - 1 | 1 | 170,594,305 |

    Symbol and operation, and for the critic the previous action, are concatenated to the features.
    Actor and critic share the features, which is the default of Stable-Baselines3. One core
    evaluates about 90 rows a second: 18 minutes for the complete set of base 5 and three frames.
    """

    slow = True

    CHANNELS = (128, 255, 512)
    KERNELS = (3, 2, 2)
    HIDDEN = (2048, 1024, 512, 256, 128)

    def __init__(self, layout: RowLayout) -> None:
        super().__init__()
        self.layout = layout
        layers: list[nn.Module] = []
        channels = (WINDOW_PLANES, *self.CHANNELS)
        for (inputs, outputs), kernel in zip(pairwise(channels), self.KERNELS, strict=True):
            layers += [nn.Conv3d(inputs, outputs, kernel, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.feature_length = self._feature_length()
        joined = self.feature_length + layout.critic - layout.window
        self.actor = perceptron((joined - len(Action), *self.HIDDEN, len(Action)))
        self.critic = perceptron((joined, *self.HIDDEN, 1))
        shrink_last_layer(self.actor)

    def _feature_length(self) -> int:
        frames, _, columns, rows = self.layout.volume
        sides = [frames, columns, rows]
        for kernel in self.KERNELS:
            sides = [side + 2 - kernel + 1 for side in sides]
        return self.CHANNELS[-1] * sides[0] * sides[1] * sides[2]

    def _joined(self, rows: torch.Tensor) -> torch.Tensor:
        volume = rows[:, : self.layout.window].reshape(-1, *self.layout.volume)
        features = self.features(volume.transpose(1, 2))
        return torch.cat([features, rows[:, self.layout.window :]], dim=1)

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        chunks = torch.split(rows, PAPER_ROWS)
        return torch.cat([self._logits(self._joined(chunk)) for chunk in chunks])

    def _logits(self, joined: torch.Tensor) -> torch.Tensor:
        return bounded(self.actor(joined[:, : -len(Action)]))

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        chunks = torch.split(rows, PAPER_ROWS)
        return torch.cat([self.critic(self._joined(chunk)) for chunk in chunks]).flatten()

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joined = self._joined(rows)
        return self._logits(joined), self.critic(joined).flatten()

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the critic's own layers, without the features, which the actor shares."""
        return list(self.critic.parameters())


def make_network(name: str, layout: RowLayout) -> Network:
    """Return a network by its name, with random weights."""
    check_choice("network", name, NETWORK_NAMES)
    return CompactNetwork(layout) if name == "compact" else PaperNetwork(layout)


def perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    """Return linear layers with a ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def shrink_last_layer(actor: nn.Sequential) -> None:
    """Scale the last layer down, so that an untrained policy is nearly uniform."""
    last = actor[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.01)
        last.bias.zero_()


def bounded(logits: torch.Tensor) -> torch.Tensor:
    """Squash logits smoothly into the bound; those near zero hardly change."""
    return LOGIT_BOUND * torch.tanh(logits / LOGIT_BOUND)
