"""Teach a policy until it is exact: clone, ask about what it gets wrong, clone again.

In each round the policy is compared with the teacher on all observations; for some of those that it
gets wrong, the teacher demonstrates the smallest operations that meet them, and all demonstrations
are cloned. It starts from --demo-operations random operations, from a policy (--start-from, with
--demo-operations 0), or from nothing (--demo-operations 0). The demonstrations asked for are
written to teaching_set.h5 in the run folder. --resume continues a run. The exit status is 1 if a
limit is reached before the policy is exact; the best policy is kept.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from pipelines.bc_then_ppo import Options, start
from pipelines.job.command_line import run
from pipelines.learning.settings import resolve

EXAMPLE = "python -m pipelines.teach --demo-operations 300 --teach-counterexamples 40"


def main(options: Options) -> int:
    """Start or resume a run that clones and teaches, without PPO."""
    given = options.given if options.resume else {"preset": "exact", **options.given}
    if options.resume is None and resolve(given).network == "paper":
        raise ValueError(
            "network='paper' is too slow to be compared with the teacher on all observations in "
            "every round: give onehot or compact, or clone it without teaching by "
            "python -m pipelines.bc_then_ppo"
        )
    return start(replace(options, given=given), "pipelines.teach")


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
