"""Puts the best policy of a run where others find it, with a certificate made anew.

Without --into, it becomes the policy that comes with the project, which `python -m
pipelines.evaluate` uses when no run is given; that one has to be exact.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from oracle.exact.certificate import certify
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, run, shown_path
from pipelines.learning.policy_files import (
    PUBLISHED_POLICY,
    RUN_POLICIES,
    load_policy,
    read_description,
    save_policy,
)

EXAMPLE = "python -m pipelines.publish runs/exact-compact-s0-1"


@dataclass(frozen=True)
class Options:
    """What to publish, and where."""

    run_folder: Path = argument("the run")
    into: Path | None = option(None, "folder to write into; without it, the project's own policy")


def main(options: Options) -> int:
    """Certifies and writes."""
    source = options.run_folder / RUN_POLICIES[0]
    policy = load_policy(source)
    description = read_description(source)
    certificate = certify(policy, base=policy.layout.base, frames=policy.layout.frames)
    if options.into is None and not certificate.exact:
        raise ValueError(
            f"the policy of {shown_path(options.run_folder)} is wrong on "
            f"{certificate.disagreements:,} observations: the project's own has to be exact; give "
            "--into for another folder"
        )
    folder = options.into or PUBLISHED_POLICY
    save_policy(policy, folder, description["about"])
    atomic_write_text(folder / "certificate.json", certificate.to_json() + "\n")
    print(
        f"written: {shown_path(folder)}, wrong on {certificate.disagreements:,} of "
        f"{certificate.observations:,} observations"
    )
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
