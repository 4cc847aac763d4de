"""Masked PPO on the batched abacus: sb3-contrib's `MaskablePPO` with two methods replaced.

`collect_rollouts` works on the arrays of the batched abacus instead of a list of infos. It can add
a bonus for rarely tried actions and resume episodes shortly before their mistakes, it can choose
among several starts, and the critic can see the state of the abacus beside the observation:
ingredients for policies that learn from the reward alone. `train` adds what keeps PPO from
forgetting a clone: a warm-up of the critic, a KL penalty toward the frozen clone, and a cloning
loss on demonstrations. The training loop, callbacks, schedules and logs are the library's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import safe_mean
from torch import nn

from abacus.batch import AbacusBatch
from abacus.critic_state import state_length, write_critic_state
from abacus.sb3 import AbacusVecEnv
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exploration import CountBonus, Retries, Starts
from pipelines.learning.networks import CHUNK, Network, StateCritic, make_network
from pipelines.learning.optimizer import Muon
from pipelines.learning.policy import AbacusPolicy, entropy, gather, masked_log_probs, sample
from pipelines.learning.rollouts import Rollouts, Samples
from pipelines.learning.settings import PpoSettings

#: Samples of a minibatch per demonstration in its cloning loss; with as many demonstrations as
#: samples an update would take nearly twice as long.
SAMPLES_PER_DEMONSTRATION = 4
#: An update stops early at this multiple of `target_kl`, as in Stable-Baselines3.
KL_TOLERANCE = 1.5


class AbacusPPO(MaskablePPO):
    """PPO for `AbacusVecEnv` and `AbacusPolicy`."""

    rollout_buffer: Rollouts  # type: ignore[assignment]
    policy: AbacusPolicy  # type: ignore[assignment]

    def __init__(
        self,
        policy: Any,
        env: Any,
        settings: PpoSettings | None = None,
        **kwargs: Any,
    ) -> None:
        self.settings = s = PpoSettings() if settings is None else settings
        self.clone: Network | None = None
        #: What the cloning loss is computed on, and what the network reads of it.
        self.demonstrations: CloningSet | None = None
        self._demonstration_inputs: torch.Tensor | None = None
        #: Most operations solved in one episode so far, after its last mistake if it was resumed.
        self.longest_run = 0
        #: How the policy of the last update collapsed; None if it did not.
        self.collapse: str | None = None
        #: Trainings to choose from; None: there is one.
        self.starts = Starts(s.starts, s.start_steps) if s.starts > 1 else None
        #: Called with a line when a start ends.
        self.announce: Callable[[str], None] = lambda line: None
        # The library's `load` passes some of these as keywords.
        arguments: dict[str, Any] = {
            "learning_rate": s.learning_rate,
            "n_steps": s.n_steps,
            "batch_size": s.batch_size,
            "n_epochs": s.n_epochs,
            "gamma": s.gamma,
            "gae_lambda": s.gae_lambda,
            "clip_range": s.clip_range,
            "vf_coef": s.vf_coef,
            "max_grad_norm": s.max_grad_norm,
        }
        super().__init__(policy, env, **(arguments | kwargs))

    def _setup_model(self) -> None:
        super()._setup_model()
        self._add_ingredients()

    def _add_ingredients(self) -> None:
        """Make what a training consists of beside the policy, as it is at the beginning."""
        network, settings = self.policy.network, self.settings
        length = network.input_length
        #: The critic that sees the state of the abacus; None: the policy's own.
        self.state_critic: StateCritic | None = None
        #: Rows of inputs hold what the network reads of an observation, then what this critic
        #: reads of the state.
        if settings.critic_sees != "observation":
            length += state_length(self.policy.layout.base)
            self.state_critic = StateCritic(length)
        self.bonus: CountBonus | None = None
        if settings.count_bonus and self.env is not None:
            self.bonus = CountBonus(self.batch.config, settings.count_bonus)
        self.retries: Retries | None = None
        if settings.retry_share and self.env is not None:
            self.retries = Retries(self.batch, settings.retry_share)
        self.policy.optimizer = self._new_optimizer()
        self.rollout_buffer = Rollouts(self.n_steps, self.n_envs, length)

    def _new_optimizer(self) -> torch.optim.Optimizer:
        settings, parameters = self.settings, list(self.policy.parameters())
        if self.state_critic is not None:
            parameters += self.state_critic.parameters()
        rate, decay = settings.learning_rate(1.0), settings.weight_decay
        if settings.optimizer == "muon":
            return Muon(parameters, lr=rate, weight_decay=decay)
        # Without the fused kernel, it would take a third of an update of these small networks.
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, eps=1e-5, fused=True)

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "clone",
            "demonstrations",
            "_demonstration_inputs",
            "rollout_buffer",
            "state_critic",
            "bonus",
            "retries",
            "starts",
            "announce",
        ]

    def add_cloning_loss(self, demonstrations: CloningSet) -> None:
        """Add the cloning loss on demonstrations to the loss of PPO."""
        self.demonstrations = demonstrations
        self._demonstration_inputs = self.policy.network.inputs(demonstrations.rows)

    def freeze_clone(self) -> None:
        """Keep a copy of the current policy as the reference of the KL penalty."""
        self.clone = copy.deepcopy(self.policy.network).requires_grad_(False)

    @property
    def batch(self) -> AbacusBatch:
        """The batched abaci of the environment."""
        assert isinstance(self.env, AbacusVecEnv)
        return self.env.batch

    @property
    def warming_up(self) -> bool:
        """Whether the actor is frozen."""
        return self.num_timesteps - self._discarded <= self.settings.critic_warmup

    @property
    def _discarded(self) -> int:
        """Steps of starts that are not continued."""
        return 0 if self.starts is None else self.starts.discarded

    @property
    def progress_remaining(self) -> float:
        """What is left of the training for its schedules, from 1 (beginning) to 0 (end)."""
        others = 0 if self.starts is None else (self.starts.count - 1) * self.starts.steps
        length = max(self._total_timesteps - others, 1)
        return max(1 - (self.num_timesteps - self._discarded) / length, 0.0)

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        self._current_progress_remaining = self.progress_remaining

    def collect_rollouts(  # type: ignore[override]
        self,
        env: AbacusVecEnv,
        callback: BaseCallback,
        rollout_buffer: Rollouts,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """Fill the rollout buffer with actions sampled from the policy."""
        batch = self.batch
        # `_end_episodes` starts the next ones: the critic sees the last states first.
        batch.autoreset = False
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        counts = rollout_buffer.counts
        callback.on_rollout_start()
        self._choose_start()
        # In the first rollout of a resumed training, the library's own progress is still 1.
        self.gamma = self.settings.discount(self.progress_remaining)
        if self.retries is not None:
            self.retries.forget()
        solved_before = self._solved_in_first_tries(batch)
        with torch.no_grad():
            for step in range(n_rollout_steps):
                self._act(step, batch, rollout_buffer)
                self.num_timesteps += batch.num_envs
                if not callback.on_step():
                    return False
            rollout_buffer.finish(self.values, self._inputs(batch), self.gamma, self.gae_lambda)
        counts.solved += self._solved_in_first_tries(batch) - solved_before
        counts.longest_run = max(counts.longest_run, int(batch.scalars["operations_solved"].max()))
        self.longest_run = max(self.longest_run, counts.longest_run)
        if self.starts is not None:
            self.starts.add(counts.accuracy)
        self._log_counts()
        callback.on_rollout_end()
        return True

    def _choose_start(self) -> None:
        """Begin the next of several starts, or continue the best, if the running one has ended."""
        starts = self.starts
        if starts is None or not starts.has_ended(self.num_timesteps):
            return
        chosen = starts.end(self.num_timesteps, training_state(self))
        self.announce(starts.describe())
        if chosen is not None:
            load_training_state(self, chosen)
            return
        number = len(starts.accuracies)
        entropy = [0 if self.seed is None else self.seed, number]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        torch.manual_seed(seed)
        self.policy.network = make_network(self.policy.network_name, self.policy.layout)
        self.policy.to(self.device)
        self._add_ingredients()
        self.batch.reset(seed)

    @property
    def _resumed(self) -> npt.NDArray[np.bool_] | None:
        return None if self.retries is None else self.retries.resumed

    def _solved_in_first_tries(self, batch: AbacusBatch) -> int:
        solved = batch.scalars["operations_solved"]
        return int(solved.sum() if self._resumed is None else solved[~self._resumed].sum())

    def _act(self, step: int, batch: AbacusBatch, rollouts: Rollouts) -> None:
        if self.retries is not None:
            self.retries.remember(batch)
        inputs, masks = rollouts.inputs[step], rollouts.masks[step]
        inputs.copy_(self._inputs(batch))
        np.copyto(masks.numpy(), batch.masks)
        log_probs = masked_log_probs(self.logits(inputs), masks)
        actions = sample(log_probs)
        rollouts.actions[step] = actions
        rollouts.log_probs[step] = gather(log_probs, actions)
        bonus = None if self.bonus is None else self.bonus.pay(batch, actions.numpy())
        batch.step(actions.numpy())
        rollouts.add(step, batch, bonus, self._resumed)
        if len(batch.ended):
            self._end_episodes(step, batch, rollouts)

    def _end_episodes(self, step: int, batch: AbacusBatch, rollouts: Rollouts) -> None:
        """Note the last states of truncated episodes, and start or resume the next ones."""
        ended = batch.ended.copy()
        truncated = ended[batch.truncated[ended]]
        if len(truncated):
            rollouts.add_truncated(step, truncated, self._inputs(batch, truncated))
        if self.retries is not None:
            ended = self.retries.resume(batch, ended)
        batch.reset(which=ended)

    def _inputs(
        self, batch: AbacusBatch, which: npt.NDArray[np.int32] | None = None
    ) -> torch.Tensor:
        """Return what actor and critic read, of all abaci or of those in `which`."""
        rows = batch.out.rows if which is None else batch.out.rows[which]
        inputs = self.policy.network.inputs(torch.from_numpy(rows))
        if self.state_critic is None:
            return inputs
        state = torch.empty(len(rows), state_length(batch.config.base))
        write_critic_state(
            batch,
            np.arange(len(rows), dtype=np.int32) if which is None else which,
            state.numpy(),
            wanted_digit=self.settings.critic_sees == "state",
        )
        return torch.cat([inputs, state], dim=1)

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the action logits, from the observation alone."""
        network = self.policy.network
        return network.logits(inputs[:, : network.input_length])

    def values(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the values of the critic that is trained."""
        return (self.state_critic or self.policy.network.values)(inputs)

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
        """Update the policy: several epochs over the rollout, in shuffled minibatches."""
        self.policy.set_training_mode(True)
        self._set_learning_rate()
        samples = self.rollout_buffer.samples()
        reference = self._clone_log_probs(samples)
        means = _Means()
        for _ in range(self.n_epochs):
            finished = self._epoch(samples, reference, means)
            self._n_updates += 1
            if not finished:
                break
        self._log_training(means)

    def _set_learning_rate(self) -> None:
        rate = self.settings.learning_rate(self._current_progress_remaining)
        self.logger.record("train/learning_rate", rate)
        for group in self.policy.optimizer.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)

    def _epoch(self, samples: Samples, reference: torch.Tensor | None, means: _Means) -> bool:
        """Update on all minibatches; return whether `target_kl` was kept."""
        for indices in torch.split(torch.randperm(len(samples)), self.settings.batch_size):
            minibatch = samples.select(indices)
            loss = self._loss(minibatch, None if reference is None else reference[indices], means)
            if self._exceeds_target_kl(means):
                return False
            self._update(loss)
        return True

    def _loss(
        self, samples: Samples, reference: torch.Tensor | None, means: _Means
    ) -> torch.Tensor:
        logits, values = self._forward(samples.inputs)
        value_loss = nn.functional.mse_loss(values, samples.returns)
        means.add("value_loss", value_loss)
        if self.warming_up:
            return value_loss
        log_probs = masked_log_probs(logits, samples.masks)
        loss = self._surrogate(gather(log_probs, samples.actions), samples, means)
        mean_entropy = entropy(log_probs).mean()
        means.add("entropy_loss", -mean_entropy)
        loss = loss + self.vf_coef * value_loss
        weight = self.settings.entropy(self._current_progress_remaining)
        loss = loss - weight * mean_entropy
        if reference is not None:
            divergence = (reference.exp() * (reference - log_probs)).sum(dim=1).mean()
            means.add("kl_to_clone", divergence)
            loss = loss + self.settings.kl_weight * divergence
        if self.demonstrations is not None and self.settings.cloning_weight > 0:
            cloning = self._cloning_loss(self.demonstrations)
            means.add("cloning_loss", cloning)
            loss = loss + self.settings.cloning_weight * cloning
        return loss

    def _forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.state_critic is None:
            logits, values = self.policy.network(inputs)
            return logits, values
        return self.logits(inputs), self.values(inputs)

    def _surrogate(self, log_probs: torch.Tensor, samples: Samples, means: _Means) -> torch.Tensor:
        """Return PPO's clipped surrogate loss."""
        advantages = samples.advantages
        if len(advantages) > 1:
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
        count = max(self.settings.batch_size // SAMPLES_PER_DEMONSTRATION, 1)
        indices = torch.randint(len(data), (min(count, len(data)),))
        assert self._demonstration_inputs is not None
        logits = self.policy.network.logits(self._demonstration_inputs[indices])
        log_probs = masked_log_probs(logits, data.masks[indices])
        return -gather(log_probs, data.actions[indices]).mean()

    def _clone_log_probs(self, samples: Samples) -> torch.Tensor | None:
        """Return the log-probabilities of the frozen clone, once for all epochs."""
        if self.clone is None or self.settings.kl_weight == 0 or self.warming_up:
            return None
        with torch.no_grad():
            chunks = torch.split(samples.inputs, CHUNK)
            length = self.clone.input_length
            logits = torch.cat([self.clone.logits(chunk[:, :length]) for chunk in chunks])
            return masked_log_probs(logits, samples.masks)

    def _exceeds_target_kl(self, means: _Means) -> bool:
        if self.settings.target_kl == 0 or self.warming_up:
            return False
        return means.last("approx_kl") > KL_TOLERANCE * self.settings.target_kl

    def _update(self, loss: torch.Tensor) -> None:
        optimizer = self.policy.optimizer
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        if self.warming_up:
            # Optimizers skip parameters without gradients.
            critic = {id(parameter) for parameter in self._critic_parameters()}
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

    def _critic_parameters(self) -> list[nn.Parameter]:
        if self.state_critic is not None:
            return list(self.state_critic.parameters())
        return self.policy.network.critic_parameters()

    def _log_training(self, means: _Means) -> None:
        log = self.logger.record
        rollouts = self.rollout_buffer
        if not self.warming_up:
            mean_entropy = -means.all()["entropy_loss"]
            self.collapse = rollouts.counts.collapse(rollouts.actions, mean_entropy)
        for name, value in means.all().items():
            log(f"train/{name}", value)
        log("train/explained_variance", self.rollout_buffer.explained_variance())
        log("train/n_updates", self._n_updates, exclude="tensorboard")
        log("train/entropy_weight", self.settings.entropy(self._current_progress_remaining))
        log("train/gamma", self.gamma)
        log("train/warming_up", int(self.warming_up))


class _Means:
    """Means of the losses of an update; tensors are converted only when the means are read."""

    def __init__(self) -> None:
        self._values: dict[str, list[torch.Tensor]] = {}

    def add(self, name: str, value: torch.Tensor) -> None:
        self._values.setdefault(name, []).append(value.detach())

    def last(self, name: str) -> float:
        return float(self._values[name][-1])

    def all(self) -> dict[str, float]:
        return {name: float(torch.stack(values).mean()) for name, values in self._values.items()}


def training_state(model: AbacusPPO) -> dict[str, Any]:
    """Return what a training has learned and where its abaci are, as plain values and tensors."""
    return {
        "policy": copy.deepcopy(model.policy.state_dict()),
        "state_critic": None
        if model.state_critic is None
        else copy.deepcopy(model.state_critic.state_dict()),
        "resumed": None
        if model.retries is None
        else torch.from_numpy(model.retries.resumed.copy()),
        "visits": None if model.bonus is None else torch.from_numpy(model.bonus.visits.copy()),
        "optimizer": copy.deepcopy(model.policy.optimizer.state_dict()),
        "abaci": _abaci_state(model.batch),
    }


def load_training_state(model: AbacusPPO, state: dict[str, Any]) -> None:
    """Restore what `training_state` returned."""
    model.policy.load_state_dict(state["policy"])
    if model.state_critic is not None:
        model.state_critic.load_state_dict(state["state_critic"])
    if model.retries is not None:
        model.retries.resumed[...] = state["resumed"].numpy()
    if model.bonus is not None:
        model.bonus.visits[...] = state["visits"].numpy()
    model.policy.optimizer.load_state_dict(state["optimizer"])
    _load_abaci(model.batch, state["abaci"])
    # Without a last observation, the library resets the environment.
    model._last_obs = dict(model.batch.observation)


def ppo_state(model: AbacusPPO) -> dict[str, Any]:
    """Return what resumes a training between two rollouts, as plain values and tensors."""
    return {
        **training_state(model),
        "clone": None if model.clone is None else model.clone.state_dict(),
        "starts": None if model.starts is None else copy.deepcopy(vars(model.starts)),
        "num_timesteps": model.num_timesteps,
        "n_updates": model._n_updates,
        "longest_run": model.longest_run,
        "collapse": model.collapse,
        # The losses of the last update, which the next rollout writes to the log.
        "logged": dict(model.logger.name_to_value),
        "torch_generator": torch.get_rng_state(),
    }


def load_ppo_state(model: AbacusPPO, state: dict[str, Any]) -> None:
    """Restore what `ppo_state` returned, but for the log."""
    if state["clone"] is not None:
        model.freeze_clone()
        assert model.clone is not None
        model.clone.load_state_dict(state["clone"])
    if model.starts is not None:
        model.starts = Starts(**copy.deepcopy(state["starts"]))
    load_training_state(model, state)
    model.num_timesteps = state["num_timesteps"]
    model._n_updates = state["n_updates"]
    model.longest_run = state["longest_run"]
    model.collapse = state["collapse"]
    torch.set_rng_state(state["torch_generator"])


def _abaci_state(batch: AbacusBatch) -> dict[str, torch.Tensor]:
    """Return the arrays as bytes: torch has no structured arrays."""
    return {
        name: torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy())
        for name, array in batch.state_arrays().items()
    }


def _load_abaci(batch: AbacusBatch, state: dict[str, torch.Tensor]) -> None:
    batch.reset(0)
    for name, array in batch.state_arrays().items():
        saved = np.frombuffer(state[name].numpy().tobytes(), array.dtype)
        if saved.size != array.size:
            raise ValueError("the checkpoint was written by another version of the abacus")
        array[...] = saved.reshape(array.shape)
