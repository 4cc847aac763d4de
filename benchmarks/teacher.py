"""Proves the teacher on a million operations; times it, its observations and certificates.

The operations are compared with Python's own integers; steps at many widths are looked up in the
complete set of observations. The exit status is 0 if there was no error; timings are printed beside
their targets and do not change it, for they depend on what else the machine does.
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
    Tally,
    Teacher,
    Trials,
    adversarial_trials,
    random_trials,
    run_trials,
)
from oracle.algorithm import VARIANTS, Variant
from oracle.exact.certificate import certify
from oracle.exact.complete_set import complete_set
from oracle.exact.observability import sample_steps
from oracle.expert import expert_actions, follow
from pipelines.job.command_line import option, run

EXAMPLE = "python -m benchmarks.teacher --operations 1e5"

#: Columns, and the share of the operations that are tried there; wide ones take thousands of steps.
SHARES = {2: 0.02, 3: 0.1, 5: 0.2, 10: 0.4, 20: 0.2, 40: 0.07, 100: 0.0095, 1_000: 0.0005}
BASES = range(2, 11)
#: Trials that run together.
CHUNK = 4_096
#: Widths at which steps are looked up in the complete set.
LOOK_UP_COLUMNS = (2, 3, 4, 6, 9, 13, 20, 31, 45, 60)

ABACI = 4_096
STEPS_IN_A_BURST = 25
BURSTS = 200


@dataclass(frozen=True)
class Options:
    """The command line."""

    operations: int = option(1_000_000, "operations to compare with Python's integers")
    steps: int = option(5_000_000, "steps to look up in the complete set")
    seed: int = option(0, "seed of operations and steps")


def trials_at(rng: np.random.Generator, base: int, columns: int, count: int) -> Iterator[Trials]:
    """So many trials, half of them adversarial, in pieces that run together."""
    while count > 0:
        piece = min(count, CHUNK)
        hard = adversarial_trials(rng, base, columns)
        hard = hard[rng.permutation(len(hard))[: piece - piece // 2]]
        yield hard + random_trials(rng, base, columns, piece - len(hard))
        count -= piece


def prove(options: Options) -> dict[int, Tally]:
    """The tally at each width."""
    rng = np.random.default_rng(options.seed)
    tallies = dict.fromkeys(SHARES, Tally())
    with tqdm(total=options.operations, desc="operations", unit_scale=True, leave=False) as bar:
        for columns, share in SHARES.items():
            trials = -(-options.operations * share // (OPERATIONS_PER_TRIAL * len(BASES)))
            for base in BASES:
                for number, piece in enumerate(trials_at(rng, base, columns, int(trials))):
                    variant = VARIANTS[(base + number) % len(VARIANTS)]
                    tally = run_trials(piece, _teacher(variant))
                    tallies[columns] += tally
                    bar.update(tally.operations)
    return tallies


def _teacher(variant: Variant) -> Teacher:
    return lambda batch: expert_actions(batch, variant)


def proof_lines(tallies: dict[int, Tally]) -> Iterator[str]:
    """The table of the proof."""
    names = ("operations", "steps", "wrong_results", "wrong_actions", "wrong_terms", "wrong_ends")
    yield "  ".join(f"{name.replace('_', ' '):>13}" for name in ("columns", *names))
    total = Tally()
    for columns, tally in tallies.items():
        total += tally
        yield "  ".join(f"{value:>13,}" for value in (columns, *(getattr(tally, n) for n in names)))
    numbers = "  ".join(f"{getattr(total, name):>13,}" for name in names)
    yield f"{'all':>13}  {numbers}"


def strangers(options: Options) -> tuple[int, int]:
    """Steps looked up, and how many of their observations are not in the complete set."""
    complete = complete_set()
    outside = looked_up = 0
    share = -(-options.steps // len(LOOK_UP_COLUMNS))
    with tqdm(total=options.steps, desc="steps", unit_scale=True, leave=False) as bar:
        for columns in LOOK_UP_COLUMNS:
            config = AbacusConfig(columns=columns, max_digits=columns - 1, start="random")
            sample = sample_steps(config, "before", share, options.seed + columns, bar.update)
            rows = complete.index(sample.histories, sample.symbols, sample.operations)
            outside += int((rows < 0).sum())
            looked_up += len(sample)
    return looked_up, outside


@dataclass(frozen=True)
class Seconds:
    """By the clock, and of the processor alone: what is left when others wait for it too."""

    clock: float
    processor: float


def seconds_of(work: Callable[[], object], times: int = 1) -> Seconds:
    """How long it takes at best, in this process and in those that it starts."""
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
    """The best of many short bursts of teacher and environment together, on one core."""
    batch = AbacusBatch(AbacusConfig(), ABACI)
    batch.reset(0)
    follow(batch, 1_000)
    return seconds_of(lambda: follow(batch, STEPS_IN_A_BURST), BURSTS)


ENUMERATE = "from oracle.exact.complete_set import complete_set; complete_set(5, 3)"


def enumeration() -> tuple[Seconds, Seconds]:
    """(first time, from the cache): the set in a new process with nothing compiled, then here."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, cached = Path(folder, "compiled"), Path(folder, "cached")
        places = {"NUMBA_CACHE_DIR": str(compiled), "ABACUS_CACHE": str(cached)}
        command = [sys.executable, "-c", ENUMERATE]
        first = seconds_of(lambda: subprocess.run(command, env=os.environ | places, check=True))
        return first, seconds_of(lambda: complete_set(5, 3, "before", cached), 5)


def certification() -> Seconds:
    """A network of two layers of 256, which knows nothing: all but the search for examples."""
    torch.set_num_threads(1)
    env = AbacusVecEnv(1)
    policy = MaskableMultiInputActorCriticPolicy(
        observation_space(env.config), env.action_space, lambda _: 0.0, net_arch=[256, 256]
    )
    complete = complete_set()
    return seconds_of(lambda: certify(policy, complete, counterexamples=0), 3)


def timing_lines() -> Iterator[str]:
    """The timings beside their targets."""
    yield f"{'timing':<46}{'by the clock':>14}{'of processor':>14}{'target':>14}"
    steps, best = ABACI * STEPS_IN_A_BURST, burst()
    yield _timing(
        "steps a second, teacher and environment",
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
    """Timings first, while nothing else has warmed the machine; then the proof."""
    print(f"machine  {machine()}\n")
    for line in timing_lines():
        print(line, flush=True)
    tallies = prove(options)
    print()
    print("\n".join(proof_lines(tallies)))
    looked_up, outside = strangers(options)
    print(f"\nsteps looked up in the complete set {looked_up:>13,}, not in it {outside:,}")
    errors = sum(tally.errors for tally in tallies.values()) + outside
    print(f"errors {errors:,}")
    return 0 if errors == 0 else 1


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
