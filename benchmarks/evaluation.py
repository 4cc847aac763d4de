"""Times the evaluation of a greedy policy: with a memory, and with a network call at every step.

A memory-less greedy policy is a table, so its network need not see an observation twice. The way
without a memory is slow: it runs some of the operations, as many at once as the other, for some of
their steps. Both are compared by steps a second, in one process on one thread, and must have moved
the beads to the same places.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from pipelines.job.command_line import argument, option, run
from pipelines.learning.named_policies import NamedPolicy, find_policy
from pipelines.scoring.operations import drawn_operations, portions, step_limit
from pipelines.scoring.players import GreedyTable, Outcome, Player, asking_player

EXAMPLE = "python -m benchmarks.evaluation"
#: Operations that run at once without a memory, at most.
SLOW_OPERATIONS = 4_000


@dataclass(frozen=True)
class Options:
    """The command line."""

    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    operations: int = option(100_000, "operations of 16 digits")
    long_operations: int = option(100, "operations of 10,000 digits")
    slow_steps: int = option(1_000, "steps that operations are followed without a memory")
    seed: int = option(0, "seed of the operations")


@dataclass
class Timing:
    """What was done in how many seconds."""

    operations: int = 0
    solved: int = 0
    steps: int = 0
    seconds: float = 0.0
    #: Of this process: what it would take on a machine that does nothing else.
    cpu_seconds: float = 0.0

    def add(self, outcome: Outcome, seconds: float, cpu_seconds: float) -> None:
        """One more portion."""
        self.operations += len(outcome.ends)
        self.solved += int((outcome.solved == 1).sum())
        self.steps += int(outcome.scalars["steps"].sum())
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds

    def line(self, name: str) -> str:
        """A line of the table."""
        rate = self.steps / self.cpu_seconds
        counts = f"{self.operations:>10,} {self.solved:>9,} {self.steps:>14,}"
        return f"  {name:<20} {counts} {self.seconds:>9.1f} {self.cpu_seconds:>9.1f} {rate:>14,.0f}"


def timed(
    policy: NamedPolicy, player: Player, digits: int, sizes: list[int], most: int | None, seed: int
) -> tuple[Timing, Outcome]:
    """(the timing of all portions, the outcome of the last one)."""
    rng = np.random.default_rng(seed)
    timing = Timing()
    for size in sizes:
        began, began_cpu = time.perf_counter(), time.process_time()
        batch = drawn_operations(size, digits, policy.base, rng).batch(policy.frames)
        outcome = player.run(batch, most or step_limit(batch.config))
        timing.add(outcome, time.perf_counter() - began, time.process_time() - began_cpu)
    return timing, outcome


def compare(policy: NamedPolicy, digits: int, operations: int, options: Options) -> Iterator[str]:
    """Lines of the table for one length."""

    def fresh() -> GreedyTable:
        return GreedyTable(policy.answers, policy.base, policy.frames)

    sizes, most, seed = list(portions(operations, digits)), options.slow_steps, options.seed
    memory, _ = timed(policy, fresh(), digits, sizes, None, seed)
    few = [min(sizes[0], SLOW_OPERATIONS)]
    slow, reached = timed(policy, asking_player(policy.answers), digits, few, most, seed)
    _, same = timed(policy, fresh(), digits, few, most, seed)
    if not (same.digits == reached.digits).all():
        raise AssertionError("the beads are at other places with a memory than without")
    yield f"{digits:,} digits"
    yield memory.line("with a memory")
    yield slow.line("call at every step")
    ratio = slow.cpu_seconds / slow.steps * memory.steps / memory.cpu_seconds
    yield f"  the memory is {ratio:,.0f} times faster"


def main(options: Options) -> int:
    """Times both ways, on both lengths."""
    torch.set_num_threads(1)
    policy = find_policy(options.policy)
    # Compiled code is loaded before the clock starts.
    for player in (GreedyTable(policy.answers, policy.base, policy.frames), policy.player):
        timed(policy, player, 2, [10], None, 0)
    print(f"policy {policy.name}, one thread")
    print(
        f"  {'':<20} {'operations':>10} {'solved':>9} {'steps':>14} {'seconds':>9} "
        f"{'of CPU':>9} {'steps a second':>14}"
    )
    for digits, operations in ((16, options.operations), (10_000, options.long_operations)):
        for line in compare(policy, digits, operations, options):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
