"""The actor-critic policy that cloning and PPO train, one and the same object.

It is sb3-contrib's maskable policy with two things replaced: the networks, so that the actor never
sees the previous action, and the distribution, which is two lines of torch here. The library's
builds and checks several distribution objects for every call; with bounded logits and at least one
legal action there is nothing to check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule

from abacus.observation import observation_space
from abacus.rules import WINDOW_COLUMNS, WINDOW_PLANES, AbacusConfig, Action
from pipelines.learning.networks import Network, RowLayout, make_network

#: The parts of a row, in the order in which the batched abacus keeps them.
ROW_PARTS = ("window", "symbol", "operation", "previous_action")
#: Of a masked action: far below every bounded logit, and its probability is exactly 0.
MASKED_LOGIT = -1e8

Observation = dict[str, torch.Tensor]
Masks = torch.Tensor | npt.NDArray[np.bool_] | None


class AbacusPolicy(MaskableActorCriticPolicy):
    """A network by its name behind Stable-Baselines3's policy interface."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        network: str = "compact",
        **kwargs: Any,
    ) -> None:
        self.network_name = network
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        self.layout = layout_of(self.observation_space)
        self.network: Network = make_network(self.network_name, self.layout)
        # One kernel for the whole step: with networks this small, Adam's bookkeeping is a third
        # of an update otherwise.
        self.optimizer_kwargs = {**self.optimizer_kwargs, "fused": True}
        self.optimizer = self.optimizer_class(
            self.parameters(),
            lr=lr_schedule(1),  # type: ignore[call-arg]
            **self.optimizer_kwargs,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "network": self.network_name}

    def rows(self, obs: Observation | torch.Tensor) -> torch.Tensor:
        """Observations as rows; rows as they are."""
        if isinstance(obs, torch.Tensor):
            return obs
        return torch.cat([obs[part] for part in ROW_PARTS], dim=1)

    def log_probs(self, obs: Observation | torch.Tensor, masks: Masks = None) -> torch.Tensor:
        """(N, 8): log-probabilities of all actions; the critic is not run."""
        return masked_log_probs(self.network.logits(self.rows(obs)), self._tensor(masks))

    def forward(
        self,
        obs: Any,
        deterministic: bool = False,
        action_masks: Masks = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions, values (N, 1) and the actions' log-probabilities."""
        logits, values = self.network(self.rows(obs))
        log_probs = masked_log_probs(logits, self._tensor(action_masks))
        actions = log_probs.argmax(dim=1) if deterministic else sampled(log_probs)
        return actions, values[:, None], taken(log_probs, actions)

    def evaluate_actions(
        self, obs: Any, actions: torch.Tensor, action_masks: Masks = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Values (N, 1), log-probabilities of the actions, entropies."""
        logits, values = self.network(self.rows(obs))
        log_probs = masked_log_probs(logits, self._tensor(action_masks))
        return values[:, None], taken(log_probs, actions.long()), entropy(log_probs)

    def get_distribution(self, obs: Any, action_masks: Masks = None) -> MaskableDistribution:
        """The library's distribution object, for those who ask for one."""
        logits = self.network.logits(self.rows(obs))
        distribution = self.action_dist.proba_distribution(action_logits=logits)
        if action_masks is not None:
            distribution.apply_masking(action_masks)  # type: ignore[arg-type]
        return distribution

    def predict_values(self, obs: Any) -> torch.Tensor:
        """(N, 1)."""
        return self.network.values(self.rows(obs))[:, None]

    def _predict(
        self, observation: Any, deterministic: bool = False, action_masks: Masks = None
    ) -> torch.Tensor:
        log_probs = self.log_probs(observation, action_masks)
        return log_probs.argmax(dim=1) if deterministic else sampled(log_probs)

    def _tensor(self, masks: Masks) -> torch.Tensor | None:
        if masks is None:
            return None
        tensor = torch.as_tensor(masks, dtype=torch.bool, device=self.device)
        return tensor.reshape(-1, len(Action))


def layout_of(space: spaces.Space[Any]) -> RowLayout:
    """The layout of an abacus's observations, from their lengths."""
    if not isinstance(space, spaces.Dict) or set(space) != set(ROW_PARTS):
        raise ValueError("the observation space is not that of an abacus")
    length = {part: int(np.prod(space[part].shape or ())) for part in ROW_PARTS}
    base = length["symbol"] - 2
    return RowLayout(base, length["window"] // (WINDOW_PLANES * WINDOW_COLUMNS * (base + 1)))


def new_policy(network: str, base: int, frames: int, learning_rate: float = 3e-4) -> AbacusPolicy:
    """An untrained policy for abaci of this base and these frames."""
    space = observation_space(AbacusConfig(base=base, frames=frames))
    return AbacusPolicy(
        space, spaces.Discrete(len(Action)), _Constant(learning_rate), network=network
    )


class _Constant:
    """A schedule that can be saved; a lambda cannot."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, progress_remaining: float) -> float:
        return self.value


def masked_log_probs(logits: torch.Tensor, masks: torch.Tensor | None) -> torch.Tensor:
    """Log-probabilities over the legal actions."""
    if masks is not None:
        logits = logits.masked_fill(~masks, MASKED_LOGIT)
    return torch.log_softmax(logits, dim=1)


def sampled(log_probs: torch.Tensor) -> torch.Tensor:
    """An action of each row, by a race of exponential clocks: probability 0 never wins."""
    return (log_probs.exp() / torch.empty_like(log_probs).exponential_()).argmax(dim=1)


def taken(log_probs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """The log-probability of the action of each row."""
    return log_probs.gather(1, actions[:, None]).flatten()


def entropy(log_probs: torch.Tensor) -> torch.Tensor:
    """Of each row; masked actions add 0 times a large number."""
    return -(log_probs.exp() * log_probs).sum(dim=1)
