"""The networks: `onehot`, the default, `wide`, `compact`, and `paper`, as described in the paper.

All map rows of the batched abacus (window, symbol, operation and previous action, concatenated) to
action logits and a value, in two steps: `inputs` prepares rows once for a rollout or a dataset,
`logits` and `values` run the layers on what it returned. The actor never reads the previous action.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from abacus.checks import check_choice
from abacus.observation import SIGNPOST_PLACES
from abacus.rules import ENCODING_PERIOD, WINDOW_PLANES, Action
from pipelines.learning.inference import LOGIT_BOUND, NETWORK_NAMES, RowLayout

#: Addition and subtraction.
OPERATIONS = 2
#: Rows evaluated at once without gradients.
CHUNK = 8192
#: The same for the paper network, where CHUNK rows would take 6 GB of activations.
PAPER_ROWS = 512


class Network(nn.Module):
    """Base of the networks: prepared rows in, action logits and values out."""

    layout: RowLayout
    #: Whether all observations of the complete set are too many to evaluate during training.
    slow = False

    def inputs(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what the layers read of rows, (N, `input_length`)."""
        return rows

    @property
    def input_length(self) -> int:
        """Length of a row of `inputs`."""
        return self.layout.critic

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the bounded action logits, (N, 8)."""
        raise NotImplementedError

    def values(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the critic's values, (N,)."""
        raise NotImplementedError

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and values of the same inputs."""
        return self.logits(inputs), self.values(inputs)

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that do not influence the actor."""
        raise NotImplementedError


class CompactNetwork(Network):
    """Two multilayer perceptrons on the pixels. In base 5 with three frames:

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
        self.actor = perceptron((self.actor_inputs, *self.hidden, len(Action)))
        self.critic = perceptron((self.input_length, *self.CRITIC, 1))
        shrink_last_layer(self.actor)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the actor's hidden layers."""
        return self.ACTOR

    @property
    def actor_inputs(self) -> int:
        """Length of the part of a row of inputs that the actor reads, the first."""
        return self.layout.actor

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        return bounded(self.actor(inputs[:, : self.actor_inputs]))

    def values(self, inputs: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(inputs).flatten()
        return values

    def critic_parameters(self) -> list[nn.Parameter]:
        return list(self.critic.parameters())


class OneHotNetwork(CompactNetwork):
    """Smaller perceptrons on the contents of the frames instead of their pixels.

    In base 5 with three frames 75 - 128 - 128 - 8 for the actor and 83 - 128 - 128 - 1 for the
    critic: 27,272 and 27,393 parameters. The actor of a base above 5 is twice as wide: in base 10
    there are 25 times as many observations.

    Of each frame one-hot codes of the left digit or padding, the right digit, the finger's row, the
    column's phase and the place of the signpost; then the symbol and the operation. A clone of the
    same demonstrations is wrong on a fraction of the unseen observations: see docs/cloning.md.
    """

    ACTOR = (128, 128)
    #: The same for bases above `NARROW_BASE`.
    WIDE_ACTOR = (256, 256)
    NARROW_BASE = 5

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.ACTOR if self.layout.base <= self.NARROW_BASE else self.WIDE_ACTOR

    @property
    def actor_inputs(self) -> int:
        base, frames = self.layout.base, self.layout.frames
        frame = (base + 1) + base + base + ENCODING_PERIOD + SIGNPOST_PLACES
        return frames * frame + (base + 2) + OPERATIONS

    @property
    def input_length(self) -> int:
        return self.actor_inputs + len(Action)

    def inputs(self, rows: torch.Tensor) -> torch.Tensor:
        layout = self.layout
        window, symbol, operation, previous = torch.split(
            rows, [layout.window, layout.base + 2, 1, len(Action)], dim=1
        )
        beads, marks = window.reshape(-1, *layout.volume).unbind(dim=2)
        # A column has a bead in all places but one; padding has none.
        present = beads[:, :, 0, 1:].sum(dim=2, keepdim=True) / (layout.base - 1)
        phases = torch.arange(1, ENCODING_PERIOD + 1, device=rows.device)
        frames = [
            present - beads[:, :, 0, 1:],
            1 - present,
            1 - beads[:, :, 1, 1:],
            marks[:, :, 1, 1:],
            ((beads[:, :, 1, :1] * (ENCODING_PERIOD + 1)).round() == phases).to(rows.dtype),
            marks[:, :, :, 0],
            1 - marks[:, :, :, 0].sum(dim=2, keepdim=True),
        ]
        frame = torch.cat(frames, dim=2).flatten(1)
        return torch.cat([frame, symbol, operation, 1 - operation, previous], dim=1)


class WideNetwork(OneHotNetwork):
    """`onehot` with an actor of twice the width, for policies whose algorithm is less regular.

    In base 5 with three frames 75 - 256 - 256 - 8, 87,304 parameters.
    """

    ACTOR = (256, 256)
    WIDE_ACTOR = (512, 512)


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

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        chunks = torch.split(inputs, PAPER_ROWS)
        return torch.cat([self._logits(self._joined(chunk)) for chunk in chunks])

    def _logits(self, joined: torch.Tensor) -> torch.Tensor:
        return bounded(self.actor(joined[:, : -len(Action)]))

    def values(self, inputs: torch.Tensor) -> torch.Tensor:
        chunks = torch.split(inputs, PAPER_ROWS)
        return torch.cat([self.critic(self._joined(chunk)) for chunk in chunks]).flatten()

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joined = self._joined(inputs)
        return self._logits(joined), self.critic(joined).flatten()

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the critic's own layers, without the features, which the actor shares."""
        return list(self.critic.parameters())


class StateCritic(nn.Module):
    """A critic that reads the state of the abacus beside the inputs of a network.

    With `onehot` in base 5, 83 + 51 - 128 - 128 - 1. It serves training alone: no policy file
    holds it.
    """

    HIDDEN = (128, 128)

    def __init__(self, input_length: int) -> None:
        super().__init__()
        self.layers = perceptron((input_length, *self.HIDDEN, 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the values, (N,)."""
        values: torch.Tensor = self.layers(inputs).flatten()
        return values


def make_network(name: str, layout: RowLayout) -> Network:
    """Return a network by its name, with random weights."""
    networks: dict[str, type[CompactNetwork | PaperNetwork]] = {
        "onehot": OneHotNetwork,
        "wide": WideNetwork,
        "compact": CompactNetwork,
        "paper": PaperNetwork,
    }
    return networks[check_choice("network", name, NETWORK_NAMES)](layout)


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
