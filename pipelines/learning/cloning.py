"""Behavioural cloning with imitation's `BC`, of the policy that PPO trains afterwards.

The loss is a masked cross entropy, over the legal actions only. Training uses distinct observations
(see `CloningSet`), a learning rate that rises over the first tenth of the updates, then falls along
a cosine, and a strong weight decay. It continues long after every demonstrated action is learned,
because the accuracy on other observations keeps rising. See docs/cloning.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from imitation.algorithms.bc import BC, BCTrainingMetrics
from imitation.util.logger import HierarchicalLogger
from stable_baselines3.common.logger import Logger

from pipelines.learning.cloning_data import CloningBatches, CloningSet, split_masks
from pipelines.learning.networks import CHUNK
from pipelines.learning.optimizer import Muon
from pipelines.learning.policy import AbacusPolicy, gather, masked_log_probs
from pipelines.learning.settings import CloningSettings

#: Fraction of the updates in which the learning rate rises.
WARMUP = 0.1
#: Chosen for cloning; see docs/cloning.md.
MUON = {"adam_share": 0.1, "steps": 3}
#: Updates between two scores.
SCORE_UPDATES = 500
#: Disables the log of BC: ours has a line per score.
NEVER = 10**9


@dataclass(frozen=True)
class CloningScore:
    """Loss and accuracy on the cloned observations after a number of updates."""

    update: int
    loss: float
    accuracy: float


class MaskedLoss:
    """Loss function for BC: cross entropy over the legal actions, without running the critic.

    Label smoothing spreads a part of the target over all legal actions. It keeps the clone from
    becoming overconfident, and helps it to generalise.
    """

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing

    def __call__(
        self, policy: AbacusPolicy, obs: torch.Tensor, acts: torch.Tensor
    ) -> BCTrainingMetrics:
        inputs, masks = split_masks(obs)
        log_probs = masked_log_probs(policy.network.logits(inputs), masks)
        loss = smoothed_losses(log_probs, masks, acts, self.smoothing).mean()
        # BC would only log the other metrics, in every update; `Cloning` logs its own scores.
        unused = torch.zeros(())
        return BCTrainingMetrics(
            neglogp=unused,
            entropy=unused,
            ent_loss=unused,
            prob_true_act=unused,
            l2_norm=unused,
            l2_loss=unused,
            loss=loss,
        )


class Cloning:
    """Trains a policy on a cloning set; `state` and `load_state` make it resumable."""

    def __init__(
        self,
        policy: AbacusPolicy,
        data: CloningSet,
        settings: CloningSettings,
        seed: int,
        logger: Logger,
    ) -> None:
        self.policy = policy
        self.settings = settings
        self.inputs = policy.network.inputs(data.rows)
        self.data = data
        self.generator = torch.Generator().manual_seed(seed)
        self.batches = CloningBatches(self.inputs, data, settings.batch_size, self.generator)
        self.logger = logger
        self.bc = self._new_bc()
        self.curve: list[CloningScore] = []
        self.updates = 0

    def _new_bc(self) -> BC:
        muon = self.settings.optimizer == "muon"
        bc = BC(
            observation_space=self.policy.observation_space,
            action_space=self.policy.action_space,
            # BC uses it for rollouts only, and makes none here.
            rng=np.random.default_rng(0),
            policy=self.policy,  # type: ignore[arg-type]
            demonstrations=self.batches,  # type: ignore[arg-type]
            batch_size=self.batches.batch_size,
            optimizer_cls=Muon if muon else torch.optim.AdamW,
            optimizer_kwargs={"lr": 0.0, **(MUON if muon else {})},
            device=self.policy.device,
            custom_logger=HierarchicalLogger(Logger(None, []), []),
        )
        # BC refuses a weight decay: its own penalty would be scaled by Adam, unlike AdamW's.
        for group in bc.optimizer.param_groups:
            group["weight_decay"] = self.settings.weight_decay
        bc.loss_calculator = MaskedLoss(self.settings.label_smoothing)  # type: ignore[assignment]
        return bc

    def run(self, after_score: Callable[[CloningScore], None] | None = None) -> CloningScore:
        """Train to the end; return the last score."""
        self._set_learning_rate()
        while self.updates < self.settings.updates:
            score = self._train(min(SCORE_UPDATES, self.settings.updates - self.updates))
            if after_score:
                after_score(score)
        return self.curve[-1]

    def _train(self, updates: int) -> CloningScore:
        self.policy.set_training_mode(True)
        with warnings.catch_warnings():
            # BC logs its loss without detaching it.
            warnings.filterwarnings("ignore", message="Converting a tensor with requires_grad")
            self.bc.train(
                n_batches=updates,
                progress_bar=False,
                log_interval=NEVER,
                on_batch_end=self._after_update,
            )
        loss, accuracy = self._score()
        score = CloningScore(self.updates, loss, accuracy)
        self.curve.append(score)
        self.logger.record("bc/loss", loss)
        self.logger.record("bc/accuracy", accuracy)
        self.logger.dump(score.update)
        return score

    def _score(self) -> tuple[float, float]:
        """Return the loss and the accuracy on the cloned observations, by their frequencies."""
        loss = correct = 0.0
        data = self.data
        self.policy.set_training_mode(False)
        with torch.no_grad():
            for chunk in torch.split(torch.arange(len(data)), CHUNK):
                masks, actions, counts = data.masks[chunk], data.actions[chunk], data.counts[chunk]
                log_probs = masked_log_probs(self.policy.network.logits(self.inputs[chunk]), masks)
                losses = smoothed_losses(log_probs, masks, actions, self.settings.label_smoothing)
                loss += float((losses * counts).sum())
                correct += float(((log_probs.argmax(dim=1) == actions) * counts).sum())
        total = float(data.counts.sum())
        return loss / total, correct / total

    def _after_update(self) -> None:
        self.updates += 1
        self._set_learning_rate()

    def _set_learning_rate(self) -> None:
        done = self.updates / self.settings.updates
        for group in self.bc.optimizer.param_groups:
            peak = self.settings.learning_rate * group.get("factor", 1.0)
            group["lr"] = peak * one_cycle(done)

    def state(self) -> dict[str, Any]:
        """Return everything that training changes, as plain values and tensors."""
        return {
            "policy": copy_weights(self.policy),
            "optimizer": self.bc.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "curve": [vars(score) for score in self.curve],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.policy.load_state_dict(state["policy"])
        self.bc.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.updates = state["updates"]
        self.curve = [CloningScore(**score) for score in state["curve"]]


def one_cycle(done: float) -> float:
    """Return the learning rate as a fraction of its peak, for the fraction of updates done."""
    if done < WARMUP:
        return 0.04 + 0.96 * done / WARMUP
    return 0.5 * (1.0 + math.cos(math.pi * min((done - WARMUP) / (1 - WARMUP), 1.0)))


def smoothed_losses(
    log_probs: torch.Tensor, masks: torch.Tensor, actions: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """Return the cross entropy of each row, with label smoothing over the legal actions."""
    spread = log_probs.masked_fill(~masks, 0.0).sum(dim=1) / masks.sum(dim=1)
    return -((1 - smoothing) * gather(log_probs, actions) + smoothing * spread)


def copy_weights(policy: AbacusPolicy) -> dict[str, torch.Tensor]:
    """Return a copy of the named weights."""
    return {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
