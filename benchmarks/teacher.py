"""Check the expert on a million operations; time the expert, the complete set and certificates.

The results are compared with Python's integers; steps at many widths are looked up in the complete
set of observations. The exit status is 0 if there was no error. Timings are printed beside their
targets and do not affect it, because they depend on the load of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from tqdm import tqdm

from abacus.batch import AbacusBatch
from abacus.observation import observation_space
from abacus.rules import AbacusConfig
from abacus.sb3 import AbacusVecEnv
from benchmarks.machine import machine
from benchmarks.trials import (
    OPERATIONS_PER_TRIAL,
    Expert,
    Tally,
    Trials,
    adversarial_trials,
    follow,
    random_trials,
    run_trials,
)
from oracle.algorithm import VARIANTS, Variant
from oracle.exact.certificate import certify
from oracle.exact.complete_set import complete_set
from oracle.exact.observability import sample_steps
from oracle.expert import expert_actions
from pipelines.job.command_line import option, run

EXAMPLE = "python -m benchmarks.teacher --operations 1e5"

#: Columns, and the share of the operations there; on wide abaci they take thousands of steps.
SHARES = {2: 0.02, 3: 0.1, 5: 0.2, 10: 0.4, 20: 0.2, 40: 0.07, 100: 0.0095, 1_000: 0.0005}
BASES = range(2, 11)
#: Trials in one batch.
CHUNK = 4_096
#: Widths of the steps that are looked up in the complete set.
LOOKUP_COLUMNS = (2, 3, 4, 6, 9, 13, 20, 31, 45, 60)

ABACI = 4_096
STEPS_IN_A_BURST = 25
BURSTS = 200


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    operations: int = option(1_000_000, "operations to compare with Python's integers")
    steps: int = option(5_000_000, "steps to look up in the complete set")
    seed: int = option(0, "seed of operations and steps")


def trials_at(rng: np.random.Generator, base: int, columns: int, count: int) -> Iterator[Trials]:
    """Yield `count` trials in batches, half of them adversarial."""
    while count > 0:
        piece = min(count, CHUNK)
        hard = adversarial_trials(rng, base, columns)
        hard = hard[rng.permutation(len(hard))[: piece - piece // 2]]
        yield hard + random_trials(rng, base, columns, piece - len(hard))
        count -= piece


def check_operations(options: Options) -> dict[int, Tally]:
    """Return the tally of each width."""
    rng = np.random.default_rng(options.seed)
    tallies = dict.fromkeys(SHARES, Tally())
    with tqdm(total=options.operations, desc="operations", unit_scale=True, leave=False) as bar:
        for columns, share in SHARES.items():
            trials = -(-options.operations * share // (OPERATIONS_PER_TRIAL * len(BASES)))
            for base in BASES:
                for number, piece in enumerate(trials_at(rng, base, columns, int(trials))):
                    variant = VARIANTS[(base + number) % len(VARIANTS)]
                    tally = run_trials(piece, _expert(variant))
                    tallies[columns] += tally
                    bar.update(tally.operations)
    return tallies


def _expert(variant: Variant) -> Expert:
    return lambda batch: expert_actions(batch, variant)


def tally_lines(tallies: dict[int, Tally]) -> Iterator[str]:
    """Yield the lines of the table of operations."""
    names = ("operations", "steps", "wrong_results", "wrong_actions", "wrong_terms", "wrong_ends")
    yield "  ".join(f"{name.replace('_', ' '):>13}" for name in ("columns", *names))
    total = Tally()
    for columns, tally in tallies.items():
        total += tally
        yield "  ".join(f"{value:>13,}" for value in (columns, *(getattr(tally, n) for n in names)))
    numbers = "  ".join(f"{getattr(total, name):>13,}" for name in names)
    yield f"{'all':>13}  {numbers}"


def look_up_steps(options: Options) -> tuple[int, int]:
    """Return the number of steps looked up, and of those not in the complete set."""
    complete = complete_set()
    outside = looked_up = 0
    share = -(-options.steps // len(LOOKUP_COLUMNS))
    with tqdm(total=options.steps, desc="steps", unit_scale=True, leave=False) as bar:
        for columns in LOOKUP_COLUMNS:
            config = AbacusConfig(columns=columns, max_digits=columns - 1, start="random")
            sample = sample_steps(config, "before", share, options.seed + columns, bar.update)
            rows = complete.index(sample.histories, sample.symbols, sample.operations)
            outside += int((rows < 0).sum())
            looked_up += len(sample)
    return looked_up, outside


@dataclass(frozen=True)
class Seconds:
    """Wall-clock and CPU time; only the latter is steady on a busy machine."""

    clock: float
    processor: float


def seconds_of(work: Callable[[], object], times: int = 1) -> Seconds:
    """Return the shortest of several times, of this process and its children."""
    measured = []
    for _ in range(times):
        clock, processor = time.perf_counter(), _processor_seconds()
        work()
        measured.append((time.perf_counter() - clock, _processor_seconds() - processor))
    return Seconds(*(min(column) for column in zip(*measured, strict=True)))


def _processor_seconds() -> float:
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


def burst() -> Seconds:
    """Return the shortest of many bursts of steps of expert and environment, on one core."""
    batch = AbacusBatch(AbacusConfig(), ABACI)
    batch.reset(0)
    follow(batch, 1_000)
    return seconds_of(lambda: follow(batch, STEPS_IN_A_BURST), BURSTS)


ENUMERATE = "from oracle.exact.complete_set import complete_set; complete_set(5, 3)"


def enumeration() -> tuple[Seconds, Seconds]:
    """Return the times of enumerating, in a new process without compiled code, and of loading."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, cached = Path(folder, "compiled"), Path(folder, "cached")
        places = {"NUMBA_CACHE_DIR": str(compiled), "ABACUS_CACHE": str(cached)}
        command = [sys.executable, "-c", ENUMERATE]
        first = seconds_of(lambda: subprocess.run(command, env=os.environ | places, check=True))
        return first, seconds_of(lambda: complete_set(5, 3, "before", cached), 5)


def certification() -> Seconds:
    """Return the time of certifying an untrained network, without counterexamples."""
    torch.set_num_threads(1)
    env = AbacusVecEnv(1)
    policy = MaskableMultiInputActorCriticPolicy(
        observation_space(env.config), env.action_space, lambda _: 0.0, net_arch=[256, 256]
    )
    complete = complete_set()
    return seconds_of(lambda: certify(policy, complete, counterexamples=0), 3)


def timing_lines() -> Iterator[str]:
    """Yield the lines of the timings, with their targets."""
    yield f"{'timing':<46}{'wall clock':>14}{'CPU':>14}{'target':>14}"
    steps, best = ABACI * STEPS_IN_A_BURST, burst()
    yield _timing(
        "steps per second, expert and environment",
        Seconds(steps / best.clock, steps / best.processor),
        5_000_000,
    )
    first, cached = enumeration()
    yield _timing("seconds to enumerate the set, compiling", first, 60)
    yield _timing("seconds to load it from the cache", cached, 1)
    yield _timing("seconds to certify a network of 256 and 256", certification(), 10)


def _timing(name: str, measured: Seconds, target: float) -> str:
    numbers = (measured.clock, measured.processor)
    shown = "".join(f"{n:>14,.0f}" if n >= 1_000 else f"{n:>14.2f}" for n in numbers)
    return f"{name:<46}{shown}{target:>14,}"


def main(options: Options) -> int:
    """Print the timings first, on a cool machine, then the errors."""
    print(f"machine  {machine()}\n")
    for line in timing_lines():
        print(line, flush=True)
    tallies = check_operations(options)
    print()
    print("\n".join(tally_lines(tallies)))
    looked_up, outside = look_up_steps(options)
    print(f"\nsteps looked up in the complete set {looked_up:>13,}, not found {outside:,}")
    errors = sum(tally.errors for tally in tallies.values()) + outside
    print(f"errors {errors:,}")
    return 0 if errors == 0 else 1


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
