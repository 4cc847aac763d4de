"""Time the environments: batches, single abaci, the interfaces to both, and start-up.

All of them replay the same random legal actions, drawn beforehand from the same seeds, on one core.
Every measurement is repeated, in pieces of about a millisecond. `core` is processor time, with the
fastest repetition of every piece: the speed without other load. `clock` is the wall-clock time of
the median repetition, with the load of the machine. Ratios compare `core`.
"""

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-decorators

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from abacus import (
    AbacusBatch,
    AbacusConfig,
    AbacusEnv,
    AbacusVecEnv,
    AbacusVectorEnv,
    Task,
    kernel,
)
from abacus.compiling import compiled
from abacus.kernel import random_below
from abacus.render import render_ansi, render_rgb, view_of
from benchmarks.machine import machine
from pipelines.job.command_line import option, run
from tests.abacus.slow_reference import SlowAbacus

EXAMPLE = "python -m benchmarks.world --repeats 5 --no-startup"
SMALL, LARGE = 64, 4096
#: Tasks in the list from which episodes are drawn.
TASKS = 1000

Actions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Options:
    """The command line."""

    repeats: int = option(15, "repetitions of every measurement; the best times count")
    steps: int = option(100, "steps of every abacus in a repetition")
    startup: bool = option(True, "also time importing and compiling, in new processes")


@dataclass(frozen=True)
class Rates:
    """Steps per second: of processor time, at best, and of wall-clock time, in the median run."""

    core: float
    clock: float


@compiled
def _choose(masks, streams, actions):
    """Draw a uniform legal action for every abacus, without branches."""
    for i in range(len(actions)):
        count = 0
        for action in range(masks.shape[1]):
            count += masks[i, action]
        chosen = random_below(streams[0], count)
        passed = action = 0
        for k in range(masks.shape[1]):
            passed += masks[i, k]
            action += passed <= chosen
        actions[i] = action


def new_batch(num_envs: int, tasks: int = 0) -> AbacusBatch:
    """Return a batch; with tasks, half of its episodes are drawn from a list of that many."""
    batch = AbacusBatch(AbacusConfig(), num_envs)
    numbers = np.random.default_rng(0).integers(5**6, size=(tasks, 3)).tolist()
    if tasks:
        batch.set_tasks([Task.parse(f"{a} + {b} - {min(c, a)}") for a, b, c in numbers], share=0.5)
    return batch


def random_legal_actions(num_envs: int, steps: int, tasks: int = 0) -> Actions:
    """Return (steps, num_envs) random legal actions for a batch with seed 0."""
    batch = new_batch(num_envs, tasks)
    batch.reset(0)
    streams = np.zeros(1, kernel.SCALARS)
    actions = np.zeros((steps, num_envs), np.int64)
    for row in actions:
        _choose(batch.masks, streams, row)
        batch.step(row)
    return actions


def rates(
    start: Callable[[], object], pieces: Sequence[Callable[[], object]], steps: int, repeats: int
) -> Rates:
    """Time pieces that take `steps` steps together.

    `start` is not timed, and the first repetition, which may compile, is discarded.
    """
    core, clock = np.zeros((repeats + 1, len(pieces))), np.zeros(repeats + 1)
    for turn in range(repeats + 1):
        start()
        began = time.perf_counter()
        for number, piece in enumerate(pieces):
            before = time.thread_time()
            piece()
            core[turn, number] = time.thread_time() - before
        clock[turn] = time.perf_counter() - began
    return Rates(steps / core[1:].min(axis=0).sum(), steps / float(np.median(clock[1:])))


def batched(options: Options, num_envs: int, tasks: int = 0) -> Rates:
    """Time a batch."""
    batch = new_batch(num_envs, tasks)
    actions = random_legal_actions(num_envs, options.steps, tasks)
    pieces = [partial(batch.step, row) for row in actions]
    return rates(lambda: batch.reset(0), pieces, actions.size, options.repeats)


def choosing(options: Options) -> Rates:
    """Time the drawing of actions from the masks of a run."""
    batch = AbacusBatch(AbacusConfig(), LARGE)
    streams = np.zeros(1, kernel.SCALARS)
    masks = []
    batch.reset(0)
    for row in random_legal_actions(LARGE, options.steps):
        masks.append(batch.masks.copy())
        batch.step(row)
    drawn = np.zeros(LARGE, np.int64)
    pieces = [partial(_choose, mask, streams, drawn) for mask in masks]
    return rates(lambda: None, pieces, LARGE * options.steps, options.repeats)


def stable_baselines(options: Options, env: VecEnv) -> Rates:
    """Time a Stable-Baselines3 environment."""
    actions = random_legal_actions(env.num_envs, options.steps)

    def start() -> None:
        env.seed(0)
        env.reset()

    pieces = [partial(env.step, row) for row in actions]
    return rates(start, pieces, actions.size, options.repeats)


def gymnasium_vector(options: Options, num_envs: int, copy: bool) -> Rates:
    """Time the Gymnasium vector environment."""
    env = AbacusVectorEnv(num_envs, copy=copy)
    actions = random_legal_actions(num_envs, options.steps)
    pieces = [partial(env.step, row) for row in actions]
    return rates(lambda: env.reset(seed=0), pieces, actions.size, options.repeats)


def single(options: Options) -> Rates:
    """Time a single environment from `gymnasium.make`, with a reset after every end."""
    env = gymnasium.make("Abacus-v0")
    actions = random_legal_actions(1, 50 * options.steps)[:, 0].tolist()
    chunks = [actions[k : k + 100] for k in range(0, len(actions), 100)]

    def play(chunk: list[int]) -> None:
        for action in chunk:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    pieces = [partial(play, chunk) for chunk in chunks]
    return rates(lambda: env.reset(seed=0), pieces, len(actions), options.repeats)


def slow_reference(options: Options) -> Rates:
    """Time the slow implementation of the tests."""
    slow = SlowAbacus(AbacusConfig())
    actions = random_legal_actions(1, 10 * options.steps)[:, 0].tolist()

    def step(action: int) -> None:
        slow.step(action)
        if slow.terminated or slow.truncated:
            slow.reset()

    pieces = [partial(step, action) for action in actions]
    return rates(lambda: slow.reset(0), pieces, len(actions), options.repeats)


@dataclass(frozen=True)
class Traffic:
    """The memory that a step writes, and the speed at which memory can be filled."""

    bytes_per_step: float
    ended: float
    bytes_per_second: float

    @property
    def limit(self) -> float:
        """Steps per second if writing memory took all the time."""
        return self.bytes_per_second / self.bytes_per_step


def traffic(options: Options) -> Traffic:
    """Measure the memory traffic of the large batch."""
    batch = AbacusBatch(AbacusConfig(), LARGE)
    batch.reset(0)
    ended = 0
    for row in random_legal_actions(LARGE, options.steps):
        batch.step(row)
        ended += len(batch.ended)
    share = ended / (LARGE * options.steps)
    arrays = (batch.out.rows, batch.out.results, batch.world.scalars, batch.world.history)
    kept = (batch.out.final_rows, batch.out.final_scalars, batch.out.ended)
    written = sum(array.nbytes for array in arrays) + share * sum(array.nbytes for array in kept)
    return Traffic(written / LARGE, share, filling(int(written), options))


def filling(size: int, options: Options) -> float:
    """Return the bytes per second at which a block of this size is filled repeatedly."""
    block = np.zeros(size, np.uint8)
    return rates(lambda: None, [lambda: block.fill(1)] * 20, 20 * size, options.repeats).core


@dataclass(frozen=True)
class Seconds:
    """Wall-clock time and processor time."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{self.clock:.2f} s ({self.processor:.2f} s of processor)"


IMPORT = "import abacus"
FIRST_USE = """
import numpy
from abacus import AbacusBatch, AbacusConfig
batch = AbacusBatch(AbacusConfig(), 4)
batch.reset(0)
batch.step(numpy.zeros(4, numpy.int64))
"""
TIMED = """
import time
clock, processor = time.perf_counter(), time.process_time()
{code}
print(time.perf_counter() - clock, time.process_time() - processor)
"""


def in_new_process(code: str, cache: str) -> Seconds:
    """Time code in a new process whose compilation cache is the folder `cache`."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(code=code)],
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    clock, processor = map(float, done.stdout.split()[-2:])
    return Seconds(clock, processor)


def best_in_new_processes(code: str, cache: str, repeats: int = 3) -> Seconds:
    return min((in_new_process(code, cache) for _ in range(repeats)), key=lambda took: took.clock)


def show(name: str, value: str, note: str = "") -> None:
    print(f"{name:<46}{value:>24}  {note}".rstrip(), flush=True)


def show_rates(name: str, measured: Rates, note: str = "") -> None:
    show(name, f"{measured.core:>12,.0f}{measured.clock:>12,.0f}", note)


def show_batch(options: Options) -> Rates:
    measured = batched(options, LARGE)
    show_rates(f"batch of {LARGE:,}, all results written", measured, "target 8,000,000")
    given = batched(options, LARGE, TASKS)
    show_rates(f"  half of the episodes of {TASKS:,} tasks", given)
    drawn = choosing(options)
    both = Rates(
        1 / (1 / measured.core + 1 / drawn.core), 1 / (1 / measured.clock + 1 / drawn.clock)
    )
    show_rates("  and drawing the actions", both)
    written = traffic(options)
    show(
        "  bytes written per step",
        f"{written.bytes_per_step:,.0f}",
        f"{written.ended:.0%} of the actions end an episode",
    )
    show(
        "  limit by filling memory, steps/s",
        f"{written.limit:>12,.0f}{'':12}",
        f"{written.bytes_per_second / 1e9:.0f} GB/s; the batch reaches "
        f"{measured.core / written.limit:.0%} of it",
    )
    return measured


def show_interfaces(options: Options) -> Rates:
    """Print the rates of the interfaces; return that of the small Stable-Baselines3 VecEnv."""
    show_rates(f"batch of {SMALL}", batched(options, SMALL))
    small = stable_baselines(options, AbacusVecEnv(SMALL))
    show_rates(f"SB3 VecEnv of {SMALL}", small)
    show_rates(f"SB3 VecEnv of {LARGE:,}", stable_baselines(options, AbacusVecEnv(LARGE)))
    for num_envs in (SMALL, LARGE):
        show_rates(
            f"Gymnasium VectorEnv of {num_envs:,}", gymnasium_vector(options, num_envs, True)
        )
    show_rates(f"  without copies, {LARGE:,}", gymnasium_vector(options, LARGE, False))
    return small


def show_pictures() -> None:
    batch = AbacusBatch(AbacusConfig(start="random"), 1)
    batch.reset(0)
    draws: dict[str, Callable[[Any], object]] = {"text": render_ansi, "picture": render_rgb}
    for name, draw in draws.items():
        took = []
        for _ in range(30):
            began = time.perf_counter()
            draw(view_of(batch, 0))
            took.append(time.perf_counter() - began)
            batch.step(np.array([batch.masks[0].argmax()]))
        show(f"{name}, first and next, ms", f"{took[0] * 1e3:>12.1f}{min(took) * 1e3:>12.1f}")


def show_startup() -> None:
    with tempfile.TemporaryDirectory() as cache:
        show("import abacus", str(best_in_new_processes(IMPORT, cache)), "target 1 s")
        show("first use, with compiling", str(in_new_process(FIRST_USE, cache)), "target 20 s")
        show("first use, compiled already", str(best_in_new_processes(FIRST_USE, cache)))


def main(options: Options) -> int:
    """Print the table."""
    print(machine())
    show("random legal actions, steps/s", f"{'core':>12}{'clock':>12}")
    large = show_batch(options)
    interfaces = show_interfaces(options)
    one = single(options)
    show_rates("single, through gymnasium.make", one, "target 30,000")
    dummy = stable_baselines(options, DummyVecEnv([AbacusEnv] * SMALL))
    show_rates(f"SB3 DummyVecEnv of {SMALL} singles", dummy)
    slow = slow_reference(options)
    show_rates("slow reference of the tests", slow)
    show(f"batch of {LARGE:,} to slow reference", f"{large.core / slow.core:,.0f} x")
    show("single to slow reference", f"{one.core / slow.core:,.1f} x")
    show(f"SB3 VecEnv to DummyVecEnv of {SMALL}", f"{interfaces.core / dummy.core:,.0f} x")
    show_pictures()
    if options.startup:
        show_startup()
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
