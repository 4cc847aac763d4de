"""Time PPO and cloning, in comparison with the libraries' own loops and with bare torch.

Speeds are samples or steps per second of processor time on one core, so that other work on the
machine matters less; its load is printed too. Each figure is the best of several repetitions, in
which what is compared takes turns. Shares are those of the bare loop of the same network with the
same optimizer. --profile shows where the time of PPO is spent.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from imitation.algorithms.bc import BC
from imitation.data.types import DictObs, Transitions
from imitation.util.logger import HierarchicalLogger
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from abacus.critic_state import state_length
from abacus.env import AbacusEnv
from abacus.rules import AbacusConfig
from abacus.sb3 import AbacusVecEnv
from benchmarks.machine import machine
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.recorder import Recorder
from pipelines.job.command_line import option, run
from pipelines.learning.cloning import MUON, Cloning
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.exercises import Exercises
from pipelines.learning.inference import RowLayout
from pipelines.learning.networks import CHUNK, StateCritic, make_network
from pipelines.learning.optimizer import Muon
from pipelines.learning.planning import EXTREME, WIDTHS, Planner
from pipelines.learning.policy import AbacusPolicy, new_policy, prepare_torch
from pipelines.learning.policy_files import load_run
from pipelines.learning.ppo import AbacusPPO
from pipelines.learning.practice import practise
from pipelines.learning.settings import PRESETS, CloningSettings, PpoSettings
from pipelines.scoring.players import GreedyTable

EXAMPLE = "python -m benchmarks.learning --profile"
WORLD = AbacusConfig(start="random", reward="no_of")
ROWS_OF_PAPER = 16


@dataclass(frozen=True)
class Options:
    """Options of the timings."""

    repetitions: int = option(3, "repetitions; the best one is reported")
    updates: int = option(6, "updates of PPO in a repetition")
    profile: bool = option(False, "show where the time of PPO is spent")
    paper: bool = option(True, "time the paper's network too (takes 6 GB of memory)")
    ppo: bool = option(True, "time PPO, planning and practice too, not only cloning")


def best_rates(works: Sequence[Callable[[], int]], repetitions: int) -> list[float]:
    """Return samples per second of processor time in the best repetition of each."""
    best = [0.0] * len(works)
    for _ in range(repetitions):
        for place, work in enumerate(works):
            started = time.process_time()
            samples = work()
            best[place] = max(best[place], samples / (time.process_time() - started))
    return best


def show(title: str, works: Mapping[str, Callable[[], int]], repetitions: int) -> None:
    """Print the speeds of what is compared, and their shares of the last one, the limit."""
    rates = best_rates(list(works.values()), repetitions)
    for name, rate in zip(works, rates, strict=True):
        share = f"{rate / rates[-1]:>8.2f}" if len(rates) > 1 else ""
        places = 0 if rate > 100 else 2
        print(f"{f'{title}: {name}':<68}{rate:>12,.{places}f} /s{share}", flush=True)


def ppo_without_logs(settings: PpoSettings) -> AbacusPPO:
    model = AbacusPPO(
        AbacusPolicy, AbacusVecEnv(settings.n_envs, config=WORLD), settings, seed=0, device="cpu"
    )
    model.set_logger(Logger(None, []))
    model.learn(settings.rollout)
    return model


def our_ppo(settings: PpoSettings, updates: int) -> Callable[[], int]:
    model = ppo_without_logs(settings)

    def work() -> int:
        model.learn(updates * settings.rollout, reset_num_timesteps=False)
        return updates * settings.rollout

    return work


def library_ppo(settings: PpoSettings) -> Callable[[], int]:
    """MaskablePPO with single environments in a DummyVecEnv and the library's own policy."""
    envs = 16
    env = DummyVecEnv([_single_environment for _ in range(envs)])
    sizes = {"pi": [256, 256], "vf": [128, 128]}
    model = MaskablePPO(
        MaskableMultiInputActorCriticPolicy,
        env,
        n_steps=settings.n_steps,
        batch_size=settings.batch_size,
        n_epochs=settings.n_epochs,
        policy_kwargs={"net_arch": sizes, "activation_fn": nn.ReLU},
        device="cpu",
        seed=0,
    )
    model.set_logger(Logger(None, []))
    model.learn(settings.n_steps * envs)

    def work() -> int:
        model.learn(settings.n_steps * envs, reset_num_timesteps=False)
        return settings.n_steps * envs

    return work


def _single_environment() -> gymnasium.Env[Any, Any]:
    return AbacusEnv(start="random", reward="no_of")


def bare_ppo(settings: PpoSettings) -> Callable[[], int]:
    """The limit: the passes of the network alone, one forward and n_epochs with gradients."""
    layout = RowLayout(WORLD.base, WORLD.frames)
    network = make_network("onehot", layout)
    length = network.input_length
    critic = StateCritic(length + state_length(WORLD.base))
    optimizer = Muon([*network.parameters(), *critic.parameters()])
    rows = torch.rand(settings.rollout, length + state_length(WORLD.base))

    def work() -> int:
        with torch.no_grad():
            for part in torch.split(rows, settings.n_envs):
                network.logits(part[:, :length])
            for part in torch.split(rows, CHUNK):
                critic(part)
        for _ in range(settings.n_epochs):
            for part in torch.split(rows, settings.batch_size):
                logits, values = network.logits(part[:, :length]), critic(part)
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(logits.square().mean() + values.square().mean())
                optimizer.step()
        return settings.rollout

    return work


def planning() -> Callable[[], int]:
    """Steps of the environment in which exercises are planned."""
    planner, rng = Planner(WORLD), np.random.default_rng(0)

    def work() -> int:
        before = planner.steps
        planner.plan(Exercises.draw(rng, 200, WORLD, WIDTHS, EXTREME))
        return planner.steps - before

    return work


def practice() -> Callable[[], int]:
    """Steps of the environment in which the published policy practises."""
    rng = np.random.default_rng(0)
    table = GreedyTable(load_run(), WORLD.base, WORLD.frames)

    def work() -> int:
        return practise(table, Exercises.draw(rng, 2_000, WORLD), WORLD).steps

    return work


def demonstrations() -> Demonstrations:
    recipe = Recipe(config=replace(WORLD, max_operations=10, reward="dense"), operations=2_000)
    return Recorder(recipe).record(0, 200)


def our_cloning(data: Demonstrations, batch_size: int) -> Callable[[], int]:
    """Updates of BC with our minibatches."""
    chosen = CloningSet.from_demonstrations(data, frames=WORLD.frames)
    settings = CloningSettings(updates=10**6, batch_size=batch_size)
    policy = new_policy("onehot", WORLD.base, WORLD.frames)
    cloning = Cloning(policy, chosen, settings, 0, Logger(None, []))

    def work() -> int:
        cloning.bc.train(n_epochs=2, progress_bar=False, log_interval=10**9)
        return 2 * len(cloning.batches) * cloning.batches.batch_size

    return work


def imitation_cloning(data: Demonstrations, batch_size: int) -> Callable[[], int]:
    """imitation's own loader over transitions, and its unmasked loss."""
    samples = 20 * batch_size
    seen = data.observations(slice(0, samples + 1))
    transitions = Transitions(
        obs=DictObs({key: rows[:-1] for key, rows in seen.items()}),
        acts=data.transitions["action"][:samples].astype(np.int64),
        infos=np.array([{}] * samples),
        next_obs=DictObs({key: rows[1:] for key, rows in seen.items()}),
        dones=np.zeros(samples, np.bool_),
    )
    policy = new_policy("onehot", WORLD.base, WORLD.frames)
    bc = BC(
        observation_space=policy.observation_space,
        action_space=policy.action_space,
        rng=np.random.default_rng(0),
        policy=policy,  # type: ignore[arg-type]
        demonstrations=transitions,
        batch_size=batch_size,
        device="cpu",
        custom_logger=HierarchicalLogger(Logger(None, []), []),
    )

    def work() -> int:
        bc.train(n_epochs=1, progress_bar=False, log_interval=10**9)
        return samples

    return work


def bare_cloning(data: Demonstrations, batch_size: int) -> Callable[[], int]:
    """The limit: the passes of the actor over rows in order, with the optimizer of cloning."""
    chosen = CloningSet.from_demonstrations(data, frames=WORLD.frames)
    network = make_network("onehot", RowLayout(WORLD.base, WORLD.frames))
    muon: dict[str, Any] = {**MUON, "weight_decay": CloningSettings().weight_decay}
    optimizer = Muon(network.parameters(), **muon)
    inputs = network.inputs(chosen.rows)
    batches = len(chosen) // batch_size

    def work() -> int:
        for index in range(batches):
            part = slice(index * batch_size, (index + 1) * batch_size)
            loss = nn.functional.cross_entropy(network.logits(inputs[part]), chosen.actions[part])
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
        return batches * batch_size

    return work


def network_pass(name: str, rows: int) -> Callable[[], int]:
    """An update of a network."""
    layout = RowLayout(WORLD.base, WORLD.frames)
    network = make_network(name, layout)
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    given = torch.rand(rows, network.input_length)

    def work() -> int:
        logits, values = network(given)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(logits.square().mean() + values.square().mean())
        optimizer.step()
        return rows

    work()
    return work


def show_profile(settings: PpoSettings, updates: int) -> None:
    work = our_ppo(settings, updates)
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(work)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(15)


def main(options: Options) -> int:
    """Print a table of speeds."""
    prepare_torch(1)
    settings = PRESETS["ppo"].ppo
    print(machine())
    if options.ppo:
        ppo = {
            "ours": our_ppo(settings, options.updates),
            "DummyVecEnv and MaskablePPO's own policy": library_ppo(settings),
            "bare torch, the limit": bare_ppo(settings),
        }
        show("PPO, steps", ppo, options.repetitions)
        show("planning", {"steps": planning()}, options.repetitions)
        show("practice", {"steps": practice()}, options.repetitions)
    data = demonstrations()
    for batch in (CloningSettings().batch_size, 512):
        cloning = {
            "ours": our_cloning(data, batch),
            "imitation's loader and loss": imitation_cloning(data, batch),
            "bare torch, the limit": bare_cloning(data, batch),
        }
        show(f"cloning, samples in batches of {batch}", cloning, options.repetitions)
    show("update of onehot", {"samples": network_pass("onehot", 1024)}, options.repetitions)
    if options.paper:
        paper = network_pass("paper", ROWS_OF_PAPER)
        show("update of paper", {"samples": paper}, options.repetitions)
    if options.profile:
        show_profile(settings, options.updates)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
