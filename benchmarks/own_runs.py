"""Time the certificate by own runs, and compare it with asking the network once for each situation.

The exploration asks the policy once for each distinct observation, in batches. The comparison asks
about a sample of situations one by one, as a search without a table would, and scales the time up.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass

import numpy as np

from abacus.observation import observation_arrays
from benchmarks.machine import machine
from oracle.exact.budget import longest_ways
from oracle.exact.certificate import answers_of
from oracle.exact.endless_runs import endless_parts
from oracle.exact.own_runs import Asked, certify_own_runs
from oracle.exact.policy_exploration import explore_policy
from pipelines.job.command_line import argument, option, run
from pipelines.learning.named_policies import find_policy


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    level: str = option("dense", "reward level")
    sample: int = option(2_000, "situations to ask one by one")


def main(options: Options) -> int:
    """Print the times of the parts, the peak memory, and the comparison."""
    policy = find_policy(options.policy)
    answers = answers_of(policy.answers)
    base, frames = policy.base, policy.frames
    print(machine())
    # The first call compiles.
    certify_own_runs(lambda seen: np.full(len(seen["symbol"]), 7), base=2, frames=frames)
    began = time.process_time()
    asked = Asked(answers, base, frames)
    exploration = explore_policy(asked, base, frames, options.level)
    explored = time.process_time()
    endless = len(endless_parts(exploration))
    ended = time.process_time()
    ways = longest_ways(exploration) if not (endless or exploration.failures.any()) else None
    counted = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"situations                       {len(exploration):>12,}")
    print(f"observations, asked once         {len(asked):>12,}")
    print(f"situations with a mistake        {np.count_nonzero(exploration.failures):>12,}")
    print(f"exploration, CPU seconds         {explored - began:>12.1f}")
    print(f"runs without an end, CPU seconds {ended - explored:>12.1f}")
    print(f"step budget, CPU seconds         {counted - ended:>12.1f}")
    print(f"peak memory, GB                  {peak:>12.2f}")
    print(f"step budget                      {ways.describe() if ways else 'not known'}")

    rows = np.random.default_rng(0).choice(len(exploration), options.sample)
    codes = exploration.observations[exploration.observation_of[rows]]
    began = time.process_time()
    for row in codes:
        history, (symbol, operation, previous) = row[None, :-3], row[None, -3:].T
        answers(observation_arrays(base, history, symbol, operation, previous))
    each = (time.process_time() - began) / options.sample
    print(f"one by one, CPU seconds for all  {each * len(exploration):>12.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, "python -m benchmarks.own_runs"))
