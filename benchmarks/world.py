"""Times the world: many abaci in one process, one abacus, the ways to reach them, and start-up.

Rates are the best of several repeats, since other work on the machine only ever slows a repeat
down. Ratios compare rows of the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import DummyVecEnv

import abacus.kernel
from abacus import AbacusBatch, AbacusConfig, AbacusEnv, AbacusVecEnv, AbacusVectorEnv
from abacus.compiling import compiled
from benchmarks.machine import machine
from pipelines.command_line import option, run
from tests.abacus.slow_reference import SlowAbacus

LARGE, SMALL = 4096, 64


@dataclass(frozen=True)
class Options:
    repeats: int = option(7, "repeats of each timing, of which the best counts")
    steps: int = option(200, "steps of all abaci in a repeat")
    startup: bool = option(True, "also time importing and compiling, in fresh processes")


@compiled
def _legal(masks: Any, numbers: Any, actions: Any) -> None:
    """One legal action an abacus, chosen by a number below 2**16."""
    for i in range(len(actions)):
        count = 0
        for action in range(masks.shape[1]):
            count += masks[i, action]
        chosen = (np.int64(numbers[i]) * count) >> 16
        for action in range(masks.shape[1]):
            if masks[i, action]:
                if chosen == 0:
                    actions[i] = action
                    break
                chosen -= 1


class Chooser:
    """Draws random legal actions; the numbers are drawn beforehand, and not timed."""

    def __init__(self, count: int) -> None:
        self.numbers = np.random.default_rng(0).integers(0, 1 << 16, (64, count), np.uint16)
        self.actions = np.zeros(count, np.int64)
        self.turn = 0

    def __call__(self, masks: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        self.turn = (self.turn + 1) % len(self.numbers)
        _legal(masks, self.numbers[self.turn], self.actions)
        return self.actions


def best_rate(work: Callable[[], int], repeats: int) -> float:
    """Steps a second of the best repeat; the first call, which may compile, is not timed."""
    work()
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        done = work()
        rates.append(done / (time.perf_counter() - began))
    return max(rates)


def batched(options: Options, count: int) -> float:
    batch, choose = AbacusBatch(AbacusConfig(), count), Chooser(count)
    batch.reset(0)

    def work() -> int:
        for _ in range(options.steps):
            batch.step(choose(batch.masks))
        return options.steps * count

    return best_rate(work, options.repeats)


def choosing(options: Options, count: int) -> float:
    """The actions alone, to be taken off the row before."""
    batch, choose = AbacusBatch(AbacusConfig(), count), Chooser(count)
    batch.reset(0)

    def work() -> int:
        for _ in range(options.steps):
            choose(batch.masks)
        return options.steps * count

    return best_rate(work, options.repeats)


def sb3_face(options: Options, count: int) -> float:
    env, choose = AbacusVecEnv(count), Chooser(count)
    env.seed(0)
    env.reset()
    steps = max(1, options.steps // 4)

    def work() -> int:
        for _ in range(steps):
            env.step(choose(env.action_masks()))
        return steps * count

    return best_rate(work, options.repeats)


def gymnasium_face(options: Options, count: int) -> float:
    env, choose = AbacusVectorEnv(count), Chooser(count)
    env.reset(seed=0)
    steps = max(1, options.steps // 4)

    def work() -> int:
        for _ in range(steps):
            env.step(choose(env.action_masks()))
        return steps * count

    return best_rate(work, options.repeats)


def single(options: Options) -> float:
    env = gym.make("Abacus-v0")
    env.reset(seed=0)
    steps = 10 * options.steps

    def work() -> int:
        for turn in range(steps):
            _, _, terminated, truncated, _ = env.step(turn % 2)
            if terminated or truncated:
                env.reset()
        return steps

    return best_rate(work, options.repeats)


def dummy_vec_env(options: Options, count: int) -> float:
    env, choose = DummyVecEnv([AbacusEnv] * count), Chooser(count)
    env.seed(0)
    env.reset()
    steps = max(1, options.steps // 40)

    def work() -> int:
        for _ in range(steps):
            env.step(choose(np.stack(env.env_method("action_masks"))))
        return steps * count

    return best_rate(work, max(2, options.repeats // 3))


def slow_reference(options: Options) -> float:
    slow = SlowAbacus(AbacusConfig())
    slow.reset(0)
    rng = np.random.default_rng(0)

    def work() -> int:
        for _ in range(options.steps):
            slow.step(int(rng.choice(np.flatnonzero(slow.mask))))
            if slow.terminated or slow.truncated:
                slow.reset(None)
        return options.steps

    return best_rate(work, max(2, options.repeats // 3))


def bytes_per_step() -> int:
    """What a step must write of an abacus: observation, results, state, frames."""
    batch = AbacusBatch(AbacusConfig(), 1)
    return int(
        batch.out.seen.nbytes
        + abacus.kernel.RESULT.itemsize
        + abacus.kernel.SCALARS.itemsize
        + batch.history.nbytes
    )


def fill_bandwidth(options: Options, size: int) -> float:
    """Bytes a second at which memory of this size is filled, the limit of any such step."""
    block = np.zeros(size // 4, np.float32)

    def work() -> int:
        for turn in range(50):
            block.fill(turn)
        return 50 * block.nbytes

    return best_rate(work, options.repeats)


def in_fresh_process(code: str, cache: str) -> float:
    """Seconds that the code says it took, with machine code kept in the given folder."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)",
        ],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


FIRST_USE = """
from abacus import AbacusBatch, AbacusConfig
import numpy as np
batch = AbacusBatch(AbacusConfig(), 4); batch.reset(0); batch.step(np.zeros(4, np.int64))
"""


def show(name: str, value: str, note: str = "") -> None:
    print(f"{name:<44}{value:>16}  {note}".rstrip(), flush=True)


def main(options: Options) -> int:
    """Prints the table."""
    print(machine())
    rate = batched(options, LARGE)
    alone = 1 / (1 / rate - 1 / choosing(options, LARGE))
    show(f"batch of {LARGE}, steps/s with choosing actions", f"{rate:,.0f}")
    show(f"batch of {LARGE}, steps/s", f"{alone:,.0f}", "target 8,000,000")
    size = bytes_per_step()
    bandwidth = fill_bandwidth(options, size * LARGE)
    share = alone * size / bandwidth
    show("bytes written a step", f"{size:,}")
    show("memory filled, GB/s", f"{bandwidth / 1e9:.1f}", f"a step uses {share:.0%} of it")
    small = batched(options, SMALL)
    show(f"batch of {SMALL}, steps/s", f"{small:,.0f}")
    for count in (SMALL, LARGE):
        show(f"SB3 VecEnv of {count}, steps/s", f"{sb3_face(options, count):,.0f}")
        show(f"Gymnasium VectorEnv of {count}, steps/s", f"{gymnasium_face(options, count):,.0f}")
    one = single(options)
    show("single, gymnasium.make, steps/s", f"{one:,.0f}", "target 30,000")
    slow = slow_reference(options)
    show("slow re-implementation, steps/s", f"{slow:,.0f}")
    show("batch to slow re-implementation", f"{alone / slow:,.0f} x")
    show("single to slow re-implementation", f"{one / slow:,.1f} x")
    dummy = dummy_vec_env(options, SMALL)
    show(f"DummyVecEnv of {SMALL} singles, steps/s", f"{dummy:,.0f}")
    show(f"SB3 VecEnv to DummyVecEnv, {SMALL} abaci", f"{sb3_face(options, SMALL) / dummy:,.1f} x")
    if options.startup:
        with tempfile.TemporaryDirectory() as cache:
            show("import abacus, s", f"{in_fresh_process('import abacus', cache):.2f}", "target 1")
            show(
                "first use, compiling, s", f"{in_fresh_process(FIRST_USE, cache):.1f}", "target 20"
            )
            show("first use, compiled before, s", f"{in_fresh_process(FIRST_USE, cache):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, "python -m benchmarks.world --repeats 3"))
