"""Mend a policy: let it practise what it gets wrong until its own runs are exact.

The reward of the level is the only judge, and no answer of the teacher is used. Where the policy
fails in exercises, other actions are tried, and what succeeds is cloned. When hardly anything
fails, all runs of the policy are explored, and what fails there is practised too, until nothing is
found to fail; then the policy is certified at every width. The reward level and the abacus are
those of the run that the policy comes from, unless flags say otherwise. The result is a run folder
of its own. --resume continues a run.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.bc_then_ppo import Options as RunOptions
from pipelines.bc_then_ppo import start
from pipelines.job.command_line import argument, run

EXAMPLE = "python -m pipelines.mend runs/alone-onehot-s0-1 --mend-rounds 40"
#: The world's settings that are flags, and are taken from the policy's run.
_WORLD = ("base", "columns", "max_digits", "frames", "operations", "reward", "start")


@dataclass(frozen=True)
class Options(RunOptions):
    """The policy, and the options of a run."""

    policy: Path | None = argument("folder of a run or of a policy", None)


def main(options: Options) -> int:
    """Start or resume a run that mends a policy."""
    if options.resume is not None:
        return start(options, "pipelines.mend")
    if options.policy is None:
        raise ValueError("no policy is given: give the folder of a run or of a policy")
    given: dict[str, Any] = {
        "preset": "alone",
        **_origin_of(options.policy),
        "start_from": options.policy,
        "plan_exercises": 0,
        "n_timesteps": 0,
        **options.given,
    }
    return start(replace(options, given=given), "pipelines.mend")


def _origin_of(path: Path) -> dict[str, Any]:
    """Return the network of a policy, and its world's settings as far as they are known."""
    from pipelines.learning.policy_files import policy_folder, read_description

    description = read_description(policy_folder(path))
    world = description["about"].get("settings", {}).get("world", {})
    known = {name: world[name] for name in _WORLD if isinstance(world.get(name), str | int)}
    return known | {name: description[name] for name in ("network", "base", "frames")}


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
