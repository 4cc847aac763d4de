"""Trained policies without torch: the actor of `onehot`, `wide` and `compact` in NumPy.

To watch a policy or to certify it takes its logits alone, and importing torch takes seconds. The
networks that learn are in `pipelines.learning.networks`; what describes both is defined here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from abacus.rules import ENCODING_PERIOD, WINDOW_COLUMNS, WINDOW_PLANES, Action
from pipelines.learning.settings import NetworkName

if TYPE_CHECKING:
    from pipelines.learning.policy import AbacusPolicy

NETWORK_NAMES: tuple[NetworkName, ...] = get_args(NetworkName)
#: The networks that run in NumPy; convolutions of the third would be slow.
IN_NUMPY: tuple[NetworkName, ...] = ("onehot", "wide", "compact")
#: Largest absolute logit, so that no probability of a legal action is 0 or NaN.
LOGIT_BOUND = 30.0
#: The parts of an observation that the actor reads, in the order of a row.
ACTOR_PARTS = ("window", "symbol", "operation")

Array = npt.NDArray[np.float32]
Weights = Mapping[str, Array]


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


class NumpyPolicy:
    """A trained policy that can be asked for its logits, and not be trained.

    Calling it with N observations returns their bounded logits, (N, 8), as
    `oracle.exact.certificate.certify` takes a policy.
    """

    def __init__(self, network_name: str, layout: RowLayout, weights: Weights) -> None:
        if network_name not in IN_NUMPY:
            raise ValueError(f"the network {network_name} does not run in NumPy: use torch")
        self.network_name = network_name
        self.layout = layout
        self._weights = weights
        #: Weights (outputs, inputs) and biases of the actor, from the first layer to the last.
        self.layers = tuple(_actor_layers(weights))
        self._check_layers()

    @classmethod
    def of(cls, policy: AbacusPolicy) -> NumpyPolicy:
        """Return a copy of a policy of torch; raise ValueError for a network that needs torch."""
        weights = {name: tensor.numpy(force=True) for name, tensor in policy.state_dict().items()}
        return cls(policy.network_name, policy.layout, weights)

    def _check_layers(self) -> None:
        probe = self._inputs(np.zeros((1, self.layout.actor), np.float32))
        inputs = [weight.shape[1] for weight, _ in self.layers]
        outputs = [weight.shape[0] for weight, _ in self.layers]
        if [*inputs, len(Action)] != [probe.shape[1], *outputs]:
            raise ValueError(
                f"its actor has layers with {inputs} inputs and {outputs} outputs: the first "
                f"takes {probe.shape[1]} inputs, the last gives {len(Action)} outputs"
            )

    def state_dict(self) -> Weights:
        """Return all weights by their names in torch, those of the critic too."""
        return self._weights

    def __call__(self, observations: Mapping[str, npt.NDArray[Any]]) -> Array:
        """Return the logits of observations, (N, 8)."""
        base = self.layout.base
        expected = {"window": self.layout.window, "symbol": base + 2, "operation": 1}
        given = {part: observations[part].shape[1] for part in ACTOR_PARTS}
        if given != expected:
            raise ValueError(
                f"the policy takes {expected}, the observations have {given}: give those of base "
                f"{base} with {self.layout.frames} frames"
            )
        rows = np.concatenate([observations[part] for part in ACTOR_PARTS], axis=1)
        return self.logits(rows.astype(np.float32, copy=False))

    def logits(self, rows: Array) -> Array:
        """Return the bounded logits of rows of window, symbol and operation, (N, 8)."""
        outputs = self._inputs(rows)
        for number, (weight, bias) in enumerate(self.layers):
            if number:
                outputs = np.maximum(outputs, 0)
            outputs = outputs @ weight.T + bias
        bound = np.float32(LOGIT_BOUND)
        bounded: Array = bound * np.tanh(outputs / bound)
        return bounded

    def _inputs(self, rows: Array) -> Array:
        return rows if self.network_name == "compact" else onehot_inputs(rows, self.layout)


def _actor_layers(weights: Weights) -> Iterator[tuple[Array, Array]]:
    """Yield the linear layers of the actor; with the ReLUs between them every second number."""
    number = 0
    while f"network.actor.{number}.weight" in weights:
        weight = weights[f"network.actor.{number}.weight"]
        bias = weights.get(f"network.actor.{number}.bias", np.empty(0, np.float32))
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise ValueError(f"layer {number} of the actor has no weight and bias that fit")
        yield weight, bias
        number += 2


def onehot_inputs(rows: Array, layout: RowLayout) -> Array:
    """Return what the actor of `OneHotNetwork` reads of rows, which describes it."""
    window, symbol, operation = np.split(rows, [layout.window, layout.actor - 1], axis=1)
    volume = window.reshape(-1, *layout.volume)
    beads, marks = volume[:, :, 0], volume[:, :, 1]
    # A column has a bead in all places but one; padding has none.
    present = beads[:, :, 0, 1:].sum(axis=2, keepdims=True) / np.float32(layout.base - 1)
    phases = np.arange(1, ENCODING_PERIOD + 1)
    frames = [
        present - beads[:, :, 0, 1:],
        1 - present,
        1 - beads[:, :, 1, 1:],
        marks[:, :, 1, 1:],
        np.rint(beads[:, :, 1, :1] * (ENCODING_PERIOD + 1)) == phases,
        marks[:, :, :, 0],
        1 - marks[:, :, :, 0].sum(axis=2, keepdims=True),
    ]
    frame = np.concatenate(frames, axis=2, dtype=np.float32).reshape(len(rows), -1)
    return np.concatenate([frame, symbol, operation, 1 - operation], axis=1)
