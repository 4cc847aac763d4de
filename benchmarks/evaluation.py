"""Time the evaluation of a greedy policy: from a table, and with a network call at every step.

A memoryless greedy policy is a table, so its network needs to see an observation once only. Without
the table, only some of the operations are run, for some of their steps. Both are compared by steps
per second, in one process on one thread, and must leave the same digits on the abaci.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from abacus.batch import AbacusBatch
from oracle.exact.certificate import answers_of
from pipelines.job.command_line import argument, option, run
from pipelines.learning.named_policies import find_policy
from pipelines.scoring.operations import chunk_sizes, drawn_operations, step_limit
from pipelines.scoring.players import (
    Actions,
    GreedyTable,
    NamedPolicy,
    Outcome,
    Player,
    StepPlayer,
    best_actions,
)

EXAMPLE = "python -m benchmarks.evaluation"
#: Most operations without the table.
SLOW_OPERATIONS = 4_000


@dataclass(frozen=True)
class Options:
    """The command line."""

    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    operations: int = option(100_000, "operations of 16 digits")
    long_operations: int = option(100, "operations of 10,000 digits")
    slow_steps: int = option(1_000, "steps of each operation without the table")
    seed: int = option(0, "random seed of the operations")


@dataclass
class Timing:
    """Work done, and the time it took."""

    operations: int = 0
    solved: int = 0
    steps: int = 0
    seconds: float = 0.0
    #: Processor time of this process: the time on a machine that does nothing else.
    cpu_seconds: float = 0.0

    def add(self, outcome: Outcome, seconds: float, cpu_seconds: float) -> None:
        """Add a chunk."""
        self.operations += len(outcome.ends)
        self.solved += int((outcome.solved == 1).sum())
        self.steps += int(outcome.scalars["steps"].sum())
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds

    def line(self, name: str) -> str:
        """Return a line of the table."""
        rate = self.steps / self.cpu_seconds
        counts = f"{self.operations:>10,} {self.solved:>9,} {self.steps:>14,}"
        return f"  {name:<20} {counts} {self.seconds:>9.1f} {self.cpu_seconds:>9.1f} {rate:>16,.0f}"


def direct_player(policy: Any) -> StepPlayer:
    """Return the greedy policy without a table: its network answers at every step."""
    answers = answers_of(policy)

    def choose(batch: AbacusBatch) -> Actions:
        given = np.asarray(answers(batch.observation))
        if given.ndim == 1:
            return given.astype(np.int64)
        return best_actions(np.where(batch.masks, given, -np.inf))

    return StepPlayer(choose)


def timed(
    policy: NamedPolicy, player: Player, digits: int, sizes: list[int], most: int | None, seed: int
) -> tuple[Timing, Outcome]:
    """Return the timing of all chunks, and the outcome of the last one."""
    rng = np.random.default_rng(seed)
    timing = Timing()
    for size in sizes:
        began, began_cpu = time.perf_counter(), time.process_time()
        batch = drawn_operations(size, digits, policy.base, rng).batch(policy.frames)
        outcome = player.run(batch, most or step_limit(batch.config))
        timing.add(outcome, time.perf_counter() - began, time.process_time() - began_cpu)
    return timing, outcome


def compare(policy: NamedPolicy, digits: int, operations: int, options: Options) -> Iterator[str]:
    """Return the lines of the table for one length."""

    def fresh() -> GreedyTable:
        return GreedyTable(policy.answers, policy.base, policy.frames)

    sizes, most, seed = list(chunk_sizes(operations, digits)), options.slow_steps, options.seed
    table, _ = timed(policy, fresh(), digits, sizes, None, seed)
    few = [min(sizes[0], SLOW_OPERATIONS)]
    slow, reached = timed(policy, direct_player(policy.answers), digits, few, most, seed)
    _, same = timed(policy, fresh(), digits, few, most, seed)
    if not (same.digits == reached.digits).all():
        raise AssertionError("the digits differ with and without the table")
    yield f"{digits:,} digits"
    yield table.line("with the table")
    yield slow.line("call at every step")
    ratio = slow.cpu_seconds / slow.steps * table.steps / table.cpu_seconds
    yield f"  the table is {ratio:,.0f} times faster"


def main(options: Options) -> int:
    """Time both ways, on both lengths."""
    torch.set_num_threads(1)
    policy = find_policy(options.policy)
    # Load compiled code before the clock starts.
    for player in (GreedyTable(policy.answers, policy.base, policy.frames), policy.player):
        timed(policy, player, 2, [10], None, 0)
    print(f"policy {policy.name}, one thread")
    print(
        f"  {'':<20} {'operations':>10} {'solved':>9} {'steps':>14} {'seconds':>9} "
        f"{'of CPU':>9} {'steps per second':>16}"
    )
    for digits, operations in ((16, options.operations), (10_000, options.long_operations)):
        for line in compare(policy, digits, operations, options):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
