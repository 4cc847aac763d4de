"""The actor-critic policy that cloning and PPO train.

It is sb3-contrib's maskable policy with other networks, whose actor does not see the previous
action, and with the distribution computed in two lines of torch. The library builds and checks
several distribution objects in every call; bounded logits and at least one legal action make the
checks unnecessary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

from abacus.observation import observation_lengths, observation_space
from abacus.rules import WINDOW_COLUMNS, WINDOW_PLANES, AbacusConfig, Action
from pipelines.learning.inference import ACTOR_PARTS, RowLayout
from pipelines.learning.networks import Network, make_network
from pipelines.learning.settings import Schedule

#: The parts of a row, in the order of the batched abacus.
ROW_PARTS = (*ACTOR_PARTS, "previous_action")
#: Logit of a masked action: far below every bounded logit, so that its probability is exactly 0.
MASKED_LOGIT = -1e8

#: Learning rate of policies that are made without a learner.
UNUSED_LEARNING_RATE = 3e-4

#: From the remaining progress to the learning rate.
LearningRate = Callable[[float], float]
Observation = dict[str, torch.Tensor]
Masks = torch.Tensor | npt.NDArray[np.bool_] | None


class AbacusPolicy(MaskableActorCriticPolicy):
    """One of the networks behind Stable-Baselines3's policy interface."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: LearningRate,
        network: str = "onehot",
        **kwargs: Any,
    ) -> None:
        self.network_name = network
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _build(self, lr_schedule: LearningRate) -> None:
        self.layout = layout_of(self.observation_space)
        self.network: Network = make_network(self.network_name, self.layout)
        # Without the fused kernel, Adam takes a third of an update of these small networks.
        self.optimizer_kwargs = {**self.optimizer_kwargs, "fused": True}
        self.optimizer = self.optimizer_class(
            self.parameters(),
            lr=lr_schedule(1.0),  # type: ignore[call-arg]
            **self.optimizer_kwargs,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "network": self.network_name}

    def rows(self, obs: Observation | torch.Tensor) -> torch.Tensor:
        """Return observations concatenated to rows; rows are returned unchanged."""
        if isinstance(obs, torch.Tensor):
            return obs
        return torch.cat([obs[part] for part in ROW_PARTS], dim=1)

    def inputs(self, obs: Observation | torch.Tensor) -> torch.Tensor:
        """Return what the network reads of observations or rows."""
        return self.network.inputs(self.rows(obs))

    def log_probs(self, obs: Observation | torch.Tensor, masks: Masks = None) -> torch.Tensor:
        """Return the log-probabilities of all actions, (N, 8), without running the critic."""
        return masked_log_probs(self.network.logits(self.inputs(obs)), self._tensor(masks))

    def forward(
        self,
        obs: Any,
        deterministic: bool = False,
        action_masks: Masks = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return actions, values (N, 1) and the log-probabilities of the actions."""
        logits, values = self.network(self.inputs(obs))
        log_probs = masked_log_probs(logits, self._tensor(action_masks))
        actions = log_probs.argmax(dim=1) if deterministic else sample(log_probs)
        return actions, values[:, None], gather(log_probs, actions)

    def evaluate_actions(
        self, obs: Any, actions: torch.Tensor, action_masks: Masks = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return values (N, 1), log-probabilities of the actions, and entropies."""
        logits, values = self.network(self.inputs(obs))
        log_probs = masked_log_probs(logits, self._tensor(action_masks))
        return values[:, None], gather(log_probs, actions.long()), entropy(log_probs)

    def get_distribution(self, obs: Any, action_masks: Masks = None) -> MaskableDistribution:
        """Return the distribution as an object of the library."""
        logits = self.network.logits(self.inputs(obs))
        distribution = self.action_dist.proba_distribution(action_logits=logits)
        if action_masks is not None:
            distribution.apply_masking(action_masks)  # type: ignore[arg-type]
        return distribution

    def predict_values(self, obs: Any) -> torch.Tensor:
        """Return the critic's values, (N, 1)."""
        return self.network.values(self.inputs(obs))[:, None]

    def _predict(
        self, observation: Any, deterministic: bool = False, action_masks: Masks = None
    ) -> torch.Tensor:
        log_probs = self.log_probs(observation, action_masks)
        return log_probs.argmax(dim=1) if deterministic else sample(log_probs)

    def _tensor(self, masks: Masks) -> torch.Tensor | None:
        if masks is None:
            return None
        tensor = torch.as_tensor(masks, dtype=torch.bool, device=self.device)
        return tensor.reshape(-1, len(Action))


def prepare_torch(threads: int) -> None:
    """Set the threads of torch, and compute with 0 in place of denormal numbers.

    With weight decay, what the optimizer keeps of units that are no longer active shrinks until it
    is denormal; processors compute with such numbers up to a hundred times slower. This is a mode
    of the present thread and of those that it starts later: call it before torch computes.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


def layout_of(space: spaces.Space[Any]) -> RowLayout:
    """Return the layout of an abacus's observation space; raise ValueError for another space."""
    shapes = {key: part.shape for key, part in getattr(space, "spaces", {}).items()}
    lengths = {part: int(np.prod(shapes.get(part, (0,)))) for part in ROW_PARTS}
    base = lengths["symbol"] - 2
    frames = lengths["window"] // max(WINDOW_PLANES * WINDOW_COLUMNS * (base + 1), 1)
    try:
        expected = observation_lengths(AbacusConfig(base=base, frames=frames))
    except ValueError:
        expected = {}
    if not shapes or shapes != {key: (length,) for key, length in expected.items()}:
        raise ValueError(f"the observation space is not that of an abacus: {shapes or space}")
    return RowLayout(base, frames)


def new_policy(network: str, base: int, frames: int) -> AbacusPolicy:
    """Return an untrained policy for a base and a number of stacked frames."""
    space = observation_space(AbacusConfig(base=base, frames=frames))
    schedule = Schedule("constant", UNUSED_LEARNING_RATE)
    return AbacusPolicy(space, spaces.Discrete(len(Action)), schedule, network=network)


def masked_log_probs(logits: torch.Tensor, masks: torch.Tensor | None) -> torch.Tensor:
    """Return the log-probabilities over the legal actions."""
    if masks is not None:
        logits = logits.masked_fill(~masks, MASKED_LOGIT)
    return torch.log_softmax(logits, dim=1)


def sample(log_probs: torch.Tensor) -> torch.Tensor:
    """Sample an action per row, as the first of exponential clocks; probability 0 never wins."""
    return (log_probs.exp() / torch.empty_like(log_probs).exponential_()).argmax(dim=1)


def gather(log_probs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of the given action of each row."""
    return log_probs.gather(1, actions[:, None]).flatten()


def entropy(log_probs: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each row; masked actions add 0."""
    return -(log_probs.exp() * log_probs).sum(dim=1)
