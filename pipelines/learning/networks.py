"""The networks: `compact`, the default, and `paper`, as the paper gives it.

Both take rows as the batched abacus keeps them, window, symbol, operation and previous action side
by side, and give action logits and a value. The actor never reads the previous action.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import nn

from abacus.rules import WINDOW_COLUMNS, WINDOW_PLANES, Action

NetworkName = Literal["compact", "paper"]
NETWORK_NAMES: tuple[NetworkName, ...] = get_args(NetworkName)
#: Logits lie within this of zero, so that no probability of a legal action is 0 or not a number.
LOGIT_BOUND = 30.0


@dataclass(frozen=True)
class RowLayout:
    """Where the parts of an observation lie in a row."""

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
        """The length of what the actor reads: window, symbol and operation."""
        return self.window + self.base + 2 + 1

    @property
    def critic(self) -> int:
        """The length of a whole row: the critic also reads the previous action."""
        return self.actor + len(Action)


class Network(nn.Module):
    """Rows in, action logits and values out."""

    layout: RowLayout

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """(N, 8): what the actor wants, bounded."""
        raise NotImplementedError

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        """(N,): what the critic expects."""
        raise NotImplementedError

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and values of the same rows."""
        return self.logits(rows), self.values(rows)

    def critic_parameters(self) -> list[nn.Parameter]:
        """What may be trained while the actor has to stay as it is."""
        raise NotImplementedError


class CompactNetwork(Network):
    """Two perceptrons. In base 5 with three frames:

    | part | layers | parameters |
    |---|---|---|
    | actor | 80 - 256 - 256 - 8, ReLU | 88,584 |
    | critic | 88 - 128 - 128 - 1, ReLU | 28,033 |

    The critic is smaller because it only has to rank, and half of the time of an update is its.
    """

    ACTOR = (256, 256)
    CRITIC = (128, 128)

    def __init__(self, layout: RowLayout) -> None:
        super().__init__()
        self.layout = layout
        self.actor = perceptron((layout.actor, *self.ACTOR, len(Action)))
        self.critic = perceptron((layout.critic, *self.CRITIC, 1))
        quiet_start(self.actor)

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        return bounded(self.actor(rows[:, : self.layout.actor]))

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(rows).flatten()
        return values

    def critic_parameters(self) -> list[nn.Parameter]:
        return list(self.critic.parameters())


class PaperNetwork(Network):
    """The paper's: three Conv3d layers over the stacked frames, then actor and critic apart.

    Frames are the depth, columns and rows the image, planes the channels. In base 5, three frames:

    | part | layers | out | parameters |
    |---|---|---|---|
    | features | Conv3d 2 to 128, kernel 3, padding 1 | 128 x 3 x 2 x 6 | 7,040 |
    | | Conv3d 128 to 255, kernel 2, padding 1 | 255 x 4 x 3 x 7 | 261,375 |
    | | Conv3d 255 to 512, kernel 2, padding 1 | 512 x 5 x 4 x 8 | 1,044,992 |
    | actor | 81,928 - 2048 - 1024 - 512 - 256 - 128 - 8 | 8 | 170,578,824 |
    | critic | 81,936 - 2048 - 1024 - 512 - 256 - 128 - 1 | 1 | 170,594,305 |

    Symbol and operation are joined after the convolutions, for the critic the previous action too.
    Actor and critic share the features, as Stable-Baselines3 does unless told otherwise.
    """

    CHANNELS = (128, 255, 512)
    KERNELS = (3, 2, 2)
    HIDDEN = (2048, 1024, 512, 256, 128)

    def __init__(self, layout: RowLayout) -> None:
        super().__init__()
        self.layout = layout
        layers: list[nn.Module] = []
        channels = (WINDOW_PLANES, *self.CHANNELS)
        for (wide, out), kernel in zip(pairwise(channels), self.KERNELS, strict=True):
            layers += [nn.Conv3d(wide, out, kernel, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.feature_length = self._feature_length()
        joined = self.feature_length + layout.critic - layout.window
        self.actor = perceptron((joined - len(Action), *self.HIDDEN, len(Action)))
        self.critic = perceptron((joined, *self.HIDDEN, 1))
        quiet_start(self.actor)

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
        return self._logits(self._joined(rows))

    def _logits(self, joined: torch.Tensor) -> torch.Tensor:
        return bounded(self.actor(joined[:, : -len(Action)]))

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(self._joined(rows)).flatten()
        return values

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joined = self._joined(rows)
        return self._logits(joined), self.critic(joined).flatten()

    def critic_parameters(self) -> list[nn.Parameter]:
        """The critic's own layers: the features are the actor's too."""
        return list(self.critic.parameters())


def make_network(name: str, layout: RowLayout) -> Network:
    """A network by its name."""
    if name == "compact":
        return CompactNetwork(layout)
    if name == "paper":
        return PaperNetwork(layout)
    raise ValueError(f"network={name!r} is not allowed: give one of {', '.join(NETWORK_NAMES)}")


def perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with a ReLU between them."""
    layers: list[nn.Module] = []
    for wide, out in pairwise(sizes):
        layers += [nn.Linear(wide, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def quiet_start(actor: nn.Sequential) -> None:
    """Nearly equal logits at first: a policy that has learned nothing prefers nothing."""
    last = actor[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.01)
        last.bias.zero_()


def bounded(logits: torch.Tensor) -> torch.Tensor:
    """Logits squeezed smoothly into the bound; those near zero stay as they are."""
    return LOGIT_BOUND * torch.tanh(logits / LOGIT_BOUND)
