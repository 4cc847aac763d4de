"""Masked PPO in one file, in the style of CleanRL, on the vector environment. Needs torch.

    python examples/masked_ppo.py --total-timesteps 1_000_000
    python examples/masked_ppo.py --base 2 --columns 4 --max-digits 2 --total-timesteps 100_000

An example of a learner that is not this project's: of the project it imports the environment alone,
and everything that it does is below. It prints its speed in environment steps a second (SPS).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from abacus import AbacusVectorEnv

# torch's distributions carry no types.
# mypy: allow-untyped-calls


@dataclass(frozen=True)
class Args:
    """The flags of the command line, with their defaults."""

    seed: int = 0
    total_timesteps: int = 1_000_000
    num_envs: int = 128
    num_steps: int = 64
    learning_rate: float = 1e-3
    gamma: float = 0.95
    gae_lambda: float = 0.9
    minibatch_size: int = 512
    update_epochs: int = 4
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    base: int = 5
    columns: int = 10
    max_digits: int = 6
    reward: str = "dense"

    @property
    def batch_size(self) -> int:
        """Environment steps between two updates."""
        return self.num_envs * self.num_steps

    @property
    def iterations(self) -> int:
        """Rollouts, each followed by an update; at least the steps asked for are made."""
        return -(-self.total_timesteps // self.batch_size)


def parse_args() -> Args:
    """Return the flags: one for each field."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for field in fields(Args):
        flag = f"--{field.name.replace('_', '-')}"
        kind = type(field.default)
        parser.add_argument(flag, type=kind, default=field.default, help=f"{field.default}")
    return Args(**vars(parser.parse_args()))


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Return a linear layer with orthogonal weights."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


def network(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a network of two hidden layers."""
    return nn.Sequential(
        *(layer(inputs, 128), nn.Tanh()),
        *(layer(128, 128), nn.Tanh()),
        layer(128, outputs, gain),
    )


class Agent(nn.Module):
    """An actor that takes legal actions only, and a critic that also sees the previous action."""

    def __init__(self, actor_inputs: int, critic_inputs: int, actions: int) -> None:
        super().__init__()
        self.actor_inputs = actor_inputs
        self.actor = network(actor_inputs, actions, gain=0.01)
        self.critic = network(critic_inputs, 1, gain=1.0)

    def value(self, inputs: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(inputs)
        return values.flatten()

    def policy(self, inputs: torch.Tensor, masks: torch.Tensor) -> Categorical:
        logits = self.actor(inputs[:, : self.actor_inputs]).masked_fill(~masks, -1e8)
        return Categorical(logits=logits, validate_args=False)


def flat(observation: dict[str, np.ndarray]) -> torch.Tensor:
    """Return a Dict observation as rows, the previous action at the end."""
    parts = ("window", "symbol", "operation", "previous_action")
    return torch.from_numpy(np.concatenate([observation[key] for key in parts], axis=1))


def main(args: Args) -> None:
    """Train, and print a line after every update."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = AbacusVectorEnv(
        args.num_envs,
        base=args.base,
        columns=args.columns,
        max_digits=args.max_digits,
        reward=args.reward,
        # From 0, the first operation would never carry.
        start="random",
    )
    observation, infos = envs.reset(seed=args.seed)
    next_inputs, next_masks = flat(observation), torch.from_numpy(infos["action_mask"])
    next_done = torch.zeros(args.num_envs)
    critic_inputs, actions_count = next_inputs.shape[1], next_masks.shape[1]
    agent = Agent(critic_inputs - actions_count, critic_inputs, actions_count)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    shape = args.num_steps, args.num_envs
    inputs = torch.zeros(*shape, critic_inputs)
    masks = torch.zeros(*shape, actions_count, dtype=torch.bool)
    actions = torch.zeros(shape, dtype=torch.long)
    log_probs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    start_time = time.perf_counter()

    for iteration in range(1, args.iterations + 1):
        rate = args.learning_rate * (1 - (iteration - 1) / args.iterations)
        optimizer.param_groups[0]["lr"] = rate
        counts: Counter[str] = Counter()

        for step in range(args.num_steps):
            inputs[step], masks[step], dones[step] = next_inputs, next_masks, next_done
            with torch.no_grad():
                policy = agent.policy(next_inputs, next_masks)
                actions[step] = policy.sample()
                log_probs[step] = policy.log_prob(actions[step])
                values[step] = agent.value(next_inputs)
            observation, reward, terminated, truncated, infos = envs.step(actions[step].numpy())
            rewards[step] = torch.from_numpy(reward)
            next_inputs, next_masks = flat(observation), torch.from_numpy(infos["action_mask"])
            next_done = torch.from_numpy((terminated | truncated).astype(np.float32))
            # The same is in infos["final_info"], in the layout of the version of Gymnasium.
            # An episode ends with a failed operation, unless the next one would not fit.
            for report in envs.batch.ended_reports():
                counts["solved"] += report["operations_solved"]
                counts["failed"] += report["end"] != "CAPACITY"

        # Generalised advantage estimation; like CleanRL, it takes a truncation as an end.
        with torch.no_grad():
            next_value = agent.value(next_inputs)
        advantages = torch.zeros(shape)
        later = torch.zeros(args.num_envs)
        for step in reversed(range(args.num_steps)):
            last = step == args.num_steps - 1
            continues = 1 - (next_done if last else dones[step + 1])
            following = next_value if last else values[step + 1]
            delta = rewards[step] + args.gamma * following * continues - values[step]
            later = delta + args.gamma * args.gae_lambda * continues * later
            advantages[step] = later
        returns = advantages + values

        b_inputs, b_masks = inputs.flatten(0, 1), masks.flatten(0, 1)
        b_actions, b_log_probs = actions.flatten(), log_probs.flatten()
        b_advantages, b_returns = advantages.flatten(), returns.flatten()
        for _ in range(args.update_epochs):
            for rows in torch.randperm(args.batch_size).split(args.minibatch_size):
                policy = agent.policy(b_inputs[rows], b_masks[rows])
                ratio = (policy.log_prob(b_actions[rows]) - b_log_probs[rows]).exp()
                advantage = b_advantages[rows]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
                value_loss = 0.5 * (agent.value(b_inputs[rows]) - b_returns[rows]).square().mean()
                entropy = policy.entropy().mean()
                loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        steps = iteration * args.batch_size
        speed = steps / (time.perf_counter() - start_time)
        attempted = max(counts.total(), 1)
        print(
            f"step {steps:,}: {counts['solved'] / attempted:.2%} of operations solved by sampling, "
            f"reward {rewards.mean():+.3f} a step, entropy {entropy:.3f}, SPS {speed:,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main(parse_args())
