"""Masked PPO on the batched abacus: sb3-contrib's algorithm with leaner loops.

`MaskablePPO` drives the training, its callbacks, schedules and logs. Two methods are replaced.
`collect_rollouts` reads and writes the arrays of the batched abacus instead of a list of infos.
`train` adds what keeps a clone from being forgotten: steps in which only the critic learns, a
penalty for leaving the frozen clone, a cloning loss on demonstrations.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import safe_mean
from torch import nn

from abacus.batch import AbacusBatch
from abacus.sb3 import AbacusVecEnv
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.networks import Network
from pipelines.learning.policy import AbacusPolicy, entropy, masked_log_probs, sampled, taken
from pipelines.learning.rollouts import CHUNK, Rollouts, Samples, parts
from pipelines.learning.settings import PpoSettings

#: Of a batch, how many demonstrations are cloned beside it: they are an anchor, and as many as the
#: batch would make an update nearly twice as long.
DEMONSTRATED_PART = 4


class AbacusPPO(MaskablePPO):
    """PPO for `AbacusVecEnv` and `AbacusPolicy`; see the module."""

    rollout_buffer: Rollouts  # type: ignore[assignment]
    policy: AbacusPolicy  # type: ignore[assignment]

    def __init__(
        self,
        policy: Any,
        env: Any,
        settings: PpoSettings | None = None,
        demonstrations: CloningSet | None = None,
        **kwargs: Any,
    ) -> None:
        self.settings = settings or PpoSettings()
        self.clone: Network | None = None
        self.demonstrations = demonstrations
        #: The longest run of operations solved in an episode so far.
        self.longest_run = 0
        s = self.settings
        # `load` of the library passes the saved arguments once more.
        settled = {
            "learning_rate": s.learning_rate,
            "n_steps": s.n_steps,
            "batch_size": s.batch_size,
            "n_epochs": s.n_epochs,
            "gamma": s.gamma,
            "gae_lambda": s.gae_lambda,
            "clip_range": s.clip_range,
            "vf_coef": s.vf_coef,
            "max_grad_norm": s.max_grad_norm,
            "target_kl": s.target_kl,
        }
        super().__init__(policy, env, **{**settled, **kwargs})

    def _setup_model(self) -> None:
        super()._setup_model()
        self.rollout_buffer = Rollouts(self.n_steps, self.n_envs, self.policy.layout.critic)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "clone", "demonstrations", "rollout_buffer"]

    def freeze_clone(self) -> None:
        """Keeps the policy as it is now as what the penalty pulls toward."""
        self.clone = copy.deepcopy(self.policy.network).requires_grad_(False)

    @property
    def batch(self) -> AbacusBatch:
        """The abaci."""
        assert isinstance(self.env, AbacusVecEnv)
        return self.env.batch

    @property
    def warming_up(self) -> bool:
        """Whether only the critic learns."""
        return self.num_timesteps <= self.settings.critic_warmup

    def collect_rollouts(  # type: ignore[override]
        self,
        env: AbacusVecEnv,
        callback: BaseCallback,
        rollout_buffer: Rollouts,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """Lets all abaci act by the sampling policy until the rollout is full."""
        batch, store = self.batch, rollout_buffer
        self.policy.set_training_mode(False)
        store.reset()
        callback.on_rollout_start()
        running_before = int(batch.scalars["operations_solved"].sum())
        with torch.no_grad():
            for step in range(n_rollout_steps):
                self._act(step, batch, store)
                self.num_timesteps += batch.num_envs
                if not callback.on_step():
                    return False
            store.finish(self.policy.network, batch, self.gamma, self.gae_lambda)
        running = batch.scalars["operations_solved"]
        store.counts.solved += int(running.sum()) - running_before
        store.counts.longest_run = max(store.counts.longest_run, int(running.max()))
        self.longest_run = max(self.longest_run, store.counts.longest_run)
        self._log_counts()
        callback.on_rollout_end()
        return True

    def _act(self, step: int, batch: AbacusBatch, store: Rollouts) -> None:
        rows, masks = store.rows[step], store.masks[step]
        rows.copy_(torch.from_numpy(batch.out.seen))
        np.copyto(masks.numpy(), batch.masks)
        log_probs = masked_log_probs(self.policy.network.logits(rows), masks)
        actions = sampled(log_probs)
        store.actions[step] = actions
        store.log_probs[step] = taken(log_probs, actions)
        batch.step(actions.numpy())
        store.note(step, batch)

    def _log_counts(self) -> None:
        counts, log = self.rollout_buffer.counts, self.logger.record
        log("rollout/accuracy", counts.accuracy)
        log("rollout/longest_run", self.longest_run)
        log("rollout/illegal_actions", counts.illegal)
        log("rollout/ep_rew_mean", safe_mean(counts.returns))
        log("rollout/ep_len_mean", safe_mean(counts.lengths))
        for kind, count in sorted(counts.failures.items()):
            log(f"failures/{kind}", count)

    def train(self) -> None:
        """One update: several passes over the rollout, in shuffled batches."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        samples = self.rollout_buffer.flat()
        reference = self._clone_log_probs(samples)
        means = _Means()
        stopped = False
        for _ in range(self.n_epochs):
            order = torch.randperm(len(samples))
            for part in parts(len(samples), self.settings.batch_size):
                which = order[part]
                loss = self._loss(
                    samples.pick(which), None if reference is None else reference[which], means
                )
                stopped = self._too_far(means)
                if stopped:
                    break
                self._update(loss)
            self._n_updates += 1
            if stopped:
                break
        self._log_training(means)

    def _loss(
        self, samples: Samples, reference: torch.Tensor | None, means: _Means
    ) -> torch.Tensor:
        logits, values = self.policy.network(samples.rows)
        value_loss = nn.functional.mse_loss(values, samples.returns)
        means.add("value_loss", value_loss)
        if self.warming_up:
            return value_loss
        log_probs = masked_log_probs(logits, samples.masks)
        loss = self._surrogate(taken(log_probs, samples.actions), samples, means)
        disorder = entropy(log_probs).mean()
        means.add("entropy_loss", -disorder)
        loss = loss + self.vf_coef * value_loss
        weight = self.settings.entropy(self._current_progress_remaining)
        loss = loss - weight * disorder
        if reference is not None:
            leaving = (reference.exp() * (reference - log_probs)).sum(dim=1).mean()
            means.add("kl_to_clone", leaving)
            loss = loss + self.settings.kl_weight * leaving
        if self.demonstrations is not None and self.settings.cloning_weight > 0:
            cloning = self._cloning_loss(self.demonstrations)
            means.add("cloning_loss", cloning)
            loss = loss + self.settings.cloning_weight * cloning
        return loss

    def _surrogate(self, log_probs: torch.Tensor, samples: Samples, means: _Means) -> torch.Tensor:
        """PPO's clipped objective, as a loss."""
        advantages = samples.advantages
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_ratio = log_probs - samples.log_probs
        ratio = log_ratio.exp()
        clip = self.settings.clip_range
        loss = -torch.min(advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
        with torch.no_grad():
            means.add("policy_gradient_loss", loss)
            means.add("approx_kl", (ratio - 1 - log_ratio).mean())
            means.add("clip_fraction", ((ratio - 1).abs() > clip).float().mean())
        return loss

    def _cloning_loss(self, data: CloningSet) -> torch.Tensor:
        samples = max(self.settings.batch_size // DEMONSTRATED_PART, 1)
        which = torch.randint(len(data), (min(samples, len(data)),))
        log_probs = self.policy.log_probs(data.rows[which], data.masks[which])
        return -taken(log_probs, data.actions[which]).mean()

    def _clone_log_probs(self, samples: Samples) -> torch.Tensor | None:
        """What the frozen clone would do, once for all passes."""
        if self.clone is None or self.settings.kl_weight == 0 or self.warming_up:
            return None
        with torch.no_grad():
            return torch.cat(
                [
                    masked_log_probs(self.clone.logits(samples.rows[part]), samples.masks[part])
                    for part in parts(len(samples), CHUNK)
                ]
            )

    def _too_far(self, means: _Means) -> bool:
        """The paper's stop; sb3's tolerance of one half more."""
        if self.target_kl is None or self.warming_up:
            return False
        return means.last("approx_kl") > 1.5 * self.target_kl

    def _update(self, loss: torch.Tensor) -> None:
        optimizer = self.policy.optimizer
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        parameters = list(self.policy.parameters())
        if self.warming_up:
            # Where there are no gradients, Adam leaves weights as they are.
            critic = {id(parameter) for parameter in self.policy.network.critic_parameters()}
            for parameter in parameters:
                if id(parameter) not in critic:
                    parameter.grad = None
        norm = nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        if not bool(torch.isfinite(norm)):
            raise ValueError(
                f"the training diverged at step {self.num_timesteps}: the gradient is not finite; "
                "give a lower --learning-rate"
            )
        optimizer.step()

    def _log_training(self, means: _Means) -> None:
        log = self.logger.record
        for name, value in means.all().items():
            log(f"train/{name}", value)
        log("train/explained_variance", self.rollout_buffer.explained_variance())
        log("train/n_updates", self._n_updates, exclude="tensorboard")
        log("train/entropy_weight", self.settings.entropy(self._current_progress_remaining))
        log("train/warming_up", int(self.warming_up))


class _Means:
    """Means of what updates report; kept as tensors until they are asked for."""

    def __init__(self) -> None:
        self._values: dict[str, list[torch.Tensor]] = {}

    def add(self, name: str, value: torch.Tensor) -> None:
        self._values.setdefault(name, []).append(value.detach())

    def last(self, name: str) -> float:
        return float(self._values[name][-1])

    def all(self) -> dict[str, float]:
        return {name: float(torch.stack(values).mean()) for name, values in self._values.items()}


def ppo_state(model: AbacusPPO) -> dict[str, Any]:
    """Weights, optimiser, counters, torch's generator and every abacus, between two rollouts."""
    return {
        "policy": model.policy.state_dict(),
        "clone": None if model.clone is None else model.clone.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "num_timesteps": model.num_timesteps,
        "n_updates": model._n_updates,
        "longest_run": model.longest_run,
        "torch_generator": torch.get_rng_state(),
        "abaci": _abaci_state(model.batch),
    }


def load_ppo_state(model: AbacusPPO, state: dict[str, Any]) -> None:
    """Goes back to where `ppo_state` was taken."""
    if state["clone"] is not None:
        model.freeze_clone()
        assert model.clone is not None
        model.clone.load_state_dict(state["clone"])
    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimizer"])
    model.num_timesteps = state["num_timesteps"]
    model._n_updates = state["n_updates"]
    model.longest_run = state["longest_run"]
    _load_abaci(model.batch, state["abaci"])
    # The library starts the environment anew where it has no last observation.
    model._last_obs = dict(model.batch.observation)
    torch.set_rng_state(state["torch_generator"])


def _abaci_arrays(batch: AbacusBatch) -> dict[str, npt.NDArray[Any]]:
    return {
        "scalars": batch.world.scalars,
        "cells": batch.world.cells,
        "history": batch.world.history,
        "seen": batch.out.seen,
        "results": batch.out.results,
    }


def _abaci_state(batch: AbacusBatch) -> dict[str, torch.Tensor]:
    """The arrays as bytes: records are nothing that torch knows."""
    return {
        name: torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy())
        for name, array in _abaci_arrays(batch).items()
    }


def _load_abaci(batch: AbacusBatch, state: dict[str, torch.Tensor]) -> None:
    batch.reset(0)
    for name, array in _abaci_arrays(batch).items():
        saved = np.frombuffer(state[name].numpy().tobytes(), array.dtype)
        if saved.size != array.size:
            raise ValueError("the checkpoint was written by another version of the abacus")
        array[...] = saved.reshape(array.shape)
