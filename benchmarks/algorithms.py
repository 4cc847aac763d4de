"""Compare the algorithms of policies with the teacher's: steps, and where they first differ.

Every policy computes the same operations. Where it solves one, its steps are compared with the
teacher's. The first action of a run that is not the teacher's tells how its algorithm differs.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from abacus.batch import AbacusBatch
from abacus.rules import Action, End
from oracle.expert import expert_actions
from pipelines.job.command_line import argument, option, run
from pipelines.job.tables import Table
from pipelines.learning.named_policies import find_policy
from pipelines.scoring.operations import OperationSet, drawn_operations, step_limit
from pipelines.scoring.players import GreedyTable, expert_player

EXAMPLE = "python -m benchmarks.algorithms base5 reward_no_of --digits 1 6 16"


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    policies: tuple[str, ...] = argument("policies, as `pipelines.certify` takes them")
    digits: tuple[int, ...] = option((1, 6, 16), "digits of the operands")
    operations: int = option(2_000, "operations of each length")
    seed: int = option(0, "random seed")


def main(options: Options) -> int:
    """Print the tables."""
    rows = []
    for name in options.policies:
        policy = find_policy(name)
        player = GreedyTable(policy.answers, policy.base, policy.frames)
        for digits in options.digits:
            rng = np.random.default_rng([options.seed, digits])
            drawn = drawn_operations(options.operations, digits, policy.base, rng)
            rows.append((name, str(digits), *_compared(drawn, policy.frames, player)))
        print(f"\n{name}: first actions that are not the teacher's")
        rng = np.random.default_rng([options.seed, options.digits[-1]])
        drawn = drawn_operations(options.operations, options.digits[-1], policy.base, rng)
        for difference, count in _first_differences(drawn, policy.frames, player).most_common(8):
            print(f"  {count:>6,}  {difference}")
    header = (
        "policy",
        "digits",
        "solved",
        "its steps",
        "teacher's steps",
        "ratio",
        "fewer",
        "more",
    )
    print("\n" + Table("steps", "", "", header, tuple(rows)).text())
    return 0


def _compared(operations: OperationSet, frames: int, player: GreedyTable) -> tuple[str, ...]:
    """Return how many operations are solved, and the mean steps of both in these."""
    batch = operations.batch(frames)
    own = player.run(batch, step_limit(batch.config))
    taught = expert_player().run(operations.batch(frames), step_limit(batch.config))
    solved = own.solved == 1
    steps, usual = own.scalars["steps"][solved], taught.scalars["steps"][solved]
    return (
        f"{solved.mean():.2%}",
        f"{steps.mean():.2f}",
        f"{usual.mean():.2f}",
        f"{steps.mean() / usual.mean():.3f}",
        f"{(steps < usual).mean():.1%}",
        f"{(steps > usual).mean():.1%}",
    )


def _first_differences(operations: OperationSet, frames: int, player: GreedyTable) -> Counter[str]:
    """Count, by both actions and what is shown, where runs first leave the teacher's."""
    batch = operations.batch(frames)
    found: Counter[str] = Counter()
    following = np.ones(len(operations), np.bool_)
    while following.any():
        own, taught = player.actions(batch), expert_actions(batch)
        for row in np.flatnonzero(following & (own != taught)):
            found[_described(batch, int(row), int(own[row]), int(taught[row]))] += 1
        following &= own == taught
        batch.step(np.where(following, taught, Action.UP))
        following &= batch.ends == End.NONE
    return found


def _described(batch: AbacusBatch, row: int, own: int, taught: int) -> str:
    scalars = batch.scalars[row]
    on_digit = scalars["symbol"] < batch.config.base
    shown = "on a digit" if on_digit else "in a reset"
    written = "" if not on_digit else f", {'not ' if scalars['wrong_count'] else ''}all written"
    return f"{Action(own).words} where the teacher does {Action(taught).words}, {shown}{written}"


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
