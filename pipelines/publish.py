"""Publish the best policy of a run, with a new certificate.

Without --into, it becomes the policy that comes with the project for its base, which commands such
as `python -m pipelines.evaluate` use when no run is given; this one must be exact.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from oracle.exact.certificate import certify
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, relative_path, run
from pipelines.learning.policy_files import (
    CERTIFICATE_FILE,
    RUN_POLICIES,
    load_policy,
    published_policy,
    read_description,
    save_policy,
)

EXAMPLE = "python -m pipelines.publish runs/exact-onehot-s0-1"


@dataclass(frozen=True)
class Options:
    """The run, and where its policy is published."""

    run_folder: Path = argument("folder of the run")
    into: Path | None = option(None, "folder to write to; the project's own policy by default")


def main(options: Options) -> int:
    """Certify and write the policy."""
    source = options.run_folder / RUN_POLICIES[0]
    policy = load_policy(source)
    description = read_description(source)
    certificate = certify(policy, base=policy.layout.base, frames=policy.layout.frames)
    if options.into is None and not certificate.exact:
        raise ValueError(
            f"the policy of {relative_path(options.run_folder)} is wrong on "
            f"{certificate.disagreements:,} observations, and the project's own must be exact: "
            "give --into for another folder"
        )
    folder = published_policy(policy.layout.base) if options.into is None else options.into
    save_policy(policy, folder, description["about"])
    atomic_write_text(folder / CERTIFICATE_FILE, certificate.to_json() + "\n")
    print(
        f"written: {relative_path(folder)}, wrong on {certificate.disagreements:,} of "
        f"{certificate.observations:,} observations"
    )
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
