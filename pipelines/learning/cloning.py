"""Cloning: imitation's `BC` on the policy that PPO trains afterwards.

The loss is masked: it compares the teacher's action with what was legal, not with what no agent
could do. Training goes over distinct observations (see `cloning_set`), under a learning rate that
rises for a tenth of the way and then falls along a cosine. It stops when the held-out loss has not
fallen for `patience` epochs, and keeps the weights with which that loss was lowest.
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
from pipelines.learning.policy import AbacusPolicy, entropy, taken
from pipelines.learning.settings import CloningSettings

#: Part of the training in which the learning rate rises.
RISING_PART = 0.1
#: Samples asked at once when a whole set is scored.
CHUNK = 8192
#: Updates between the lines of BC's own log, which goes nowhere: ours has a line for an epoch.
NEVER = 10**9


@dataclass(frozen=True)
class EpochScore:
    """A line of the learning curve."""

    epoch: int
    train_loss: float
    held_out_loss: float
    held_out_accuracy: float


class MaskedLoss:
    """The loss that BC asks for, over the legal actions; the critic is not run.

    A part `smoothing` of the target is spread over all legal actions. It keeps the clone from
    growing ever surer of what it has seen, and is what makes it right on what it has not: with
    it, unseen observations went from 6 wrong to none.
    """

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing

    def __call__(
        self, policy: AbacusPolicy, obs: torch.Tensor, acts: torch.Tensor
    ) -> BCTrainingMetrics:
        rows, masks = split_masks(obs)
        log_probs = policy.log_probs(rows, masks)
        right = taken(log_probs, acts)
        loss = smoothed_losses(log_probs, masks, acts, self.smoothing).mean()
        with torch.no_grad():
            none = torch.zeros(())
            return BCTrainingMetrics(
                neglogp=-right.mean(),
                entropy=entropy(log_probs).mean(),
                ent_loss=none,
                prob_true_act=right.exp().mean(),
                l2_norm=none,
                l2_loss=none,
                loss=loss,
            )


class Cloning:
    """A cloning in progress: `run` goes on to the end, `state` and `load_state` in between."""

    def __init__(
        self,
        policy: AbacusPolicy,
        train: CloningSet,
        held_out: CloningSet | None,
        settings: CloningSettings,
        seed: int,
        logger: Logger,
    ) -> None:
        self.policy = policy
        self.settings = settings
        self.train_set = train
        self.held_out = train if held_out is None else held_out
        self.generator = torch.Generator().manual_seed(seed)
        self.batches = CloningBatches(train, settings.batch_size_for(len(train)), self.generator)
        self.logger = logger
        self.bc = self._new_bc()
        self.curve: list[EpochScore] = []
        self.best_loss = math.inf
        self.best_weights = _copied(policy)
        self._updates = 0

    def _new_bc(self) -> BC:
        bc = BC(
            observation_space=self.policy.observation_space,
            action_space=self.policy.action_space,
            # BC draws from it in rollouts alone, and none are asked for.
            rng=np.random.default_rng(0),
            policy=self.policy,  # type: ignore[arg-type]
            demonstrations=self.batches,  # type: ignore[arg-type]
            batch_size=self.batches.batch_size,
            optimizer_kwargs={"lr": 0.0, "fused": True},
            device=self.policy.device,
            custom_logger=HierarchicalLogger(Logger(None, []), []),
        )
        bc.loss_calculator = MaskedLoss(self.settings.label_smoothing)  # type: ignore[assignment]
        return bc

    @property
    def epochs_done(self) -> int:
        return len(self.curve)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the held-out loss no longer falls."""
        return self.epochs_done >= self.settings.epochs or self._epochs_since_best() >= (
            self.settings.patience
        )

    def _epochs_since_best(self) -> int:
        if not self.curve:
            return 0
        losses = [score.held_out_loss for score in self.curve]
        return len(losses) - 1 - int(np.argmin(losses))

    def run(self, after_epoch: Callable[[EpochScore], None] | None = None) -> list[EpochScore]:
        """Clones to the end and leaves the best weights in the policy; returns the curve."""
        self._set_learning_rate()
        while not self.finished:
            score = self._epoch()
            if after_epoch:
                after_epoch(score)
        self.policy.load_state_dict(self.best_weights)
        return self.curve

    def _epoch(self) -> EpochScore:
        self.policy.set_training_mode(True)
        with warnings.catch_warnings():
            # BC logs its loss without detaching it, which torch remarks on.
            warnings.filterwarnings("ignore", message="Converting a tensor with requires_grad")
            self.bc.train(
                n_epochs=1,
                progress_bar=False,
                log_interval=NEVER,
                on_batch_end=self._after_update,
            )
        smoothing = self.settings.label_smoothing
        train_loss, _ = score_set(self.policy, self.train_set, smoothing)
        loss, accuracy = score_set(self.policy, self.held_out, smoothing)
        score = EpochScore(self.epochs_done + 1, train_loss, loss, accuracy)
        if loss < self.best_loss:
            self.best_loss = loss
            self.best_weights = _copied(self.policy)
        self.curve.append(score)
        self.logger.record("bc/neglogp", train_loss)
        self.logger.record("bc/held_out_loss", loss)
        self.logger.record("bc/held_out_accuracy", accuracy)
        self.logger.dump(score.epoch)
        return score

    def _after_update(self) -> None:
        self._updates += 1
        self._set_learning_rate()

    def _set_learning_rate(self) -> None:
        done = self._updates / (self.settings.epochs * len(self.batches))
        for group in self.bc.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * one_cycle(done)

    def state(self) -> dict[str, Any]:
        """Everything that changes, in plain values and tensors."""
        return {
            "policy": _copied(self.policy),
            "best_weights": self.best_weights,
            "best_loss": self.best_loss,
            "optimizer": self.bc.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self._updates,
            "curve": [vars(score) for score in self.curve],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes back to where `state` was taken."""
        self.policy.load_state_dict(state["policy"])
        self.best_weights = state["best_weights"]
        self.best_loss = state["best_loss"]
        self.bc.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self._updates = state["updates"]
        self.curve = [EpochScore(**score) for score in state["curve"]]


def one_cycle(done: float) -> float:
    """The learning rate, as a part of its highest, when so much of the training is done."""
    if done < RISING_PART:
        return 0.04 + 0.96 * done / RISING_PART
    return 0.5 * (1.0 + math.cos(math.pi * min((done - RISING_PART) / (1 - RISING_PART), 1.0)))


def smoothed_losses(
    log_probs: torch.Tensor, masks: torch.Tensor, actions: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """(N,): the cross entropy to a target of which a part is spread over the legal actions."""
    spread = log_probs.masked_fill(~masks, 0.0).sum(dim=1) / masks.sum(dim=1)
    return -((1 - smoothing) * taken(log_probs, actions) + smoothing * spread)


def score_set(
    policy: AbacusPolicy, data: CloningSet, smoothing: float = 0.0
) -> tuple[float, float]:
    """(loss, accuracy) over the transitions that a set stands for, masked as the agent is."""
    loss = right = 0.0
    policy.set_training_mode(False)
    with torch.no_grad():
        for start in range(0, len(data), CHUNK):
            part = slice(start, start + CHUNK)
            log_probs = policy.log_probs(data.rows[part], data.masks[part])
            counts = data.counts[part]
            losses = smoothed_losses(log_probs, data.masks[part], data.actions[part], smoothing)
            loss += float((losses * counts).sum())
            right += float(((log_probs.argmax(dim=1) == data.actions[part]) * counts).sum())
    total = float(data.counts.sum())
    return loss / total, right / total


def _copied(policy: AbacusPolicy) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
