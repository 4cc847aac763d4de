"""Publish the best policy of a run, with new certificates.

Without --name or --into, it becomes the policy that comes with the project for its base, which
commands such as `python -m pipelines.evaluate` use when no run is given; this one must agree with
the teacher. A policy with an algorithm of its own is published under a --name, and must be exact by
its own runs, judged as at the reward level of its run.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abacus.checks import not_allowed
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, relative_path, run

if TYPE_CHECKING:
    from pipelines.learning.policy import AbacusPolicy

EXAMPLE = "python -m pipelines.publish runs/alone-s110-1 --name reward_no_of"
_NAME = re.compile("[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Options:
    """The run, and where its policy is published."""

    run_folder: Path = argument("folder of the run")
    name: str | None = option(None, "name among the project's policies (default: that of its base)")
    into: Path | None = option(None, "folder to write to, for a policy that need not be exact")

    def __post_init__(self) -> None:
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise not_allowed("name", self.name, "small letters, digits and underscores")
        if self.name is not None and self.into is not None:
            raise ValueError("name and into: give one of them")


def main(options: Options) -> int:
    """Certify and write the policy."""
    from oracle.exact.certificate import certify
    from pipelines.learning.policy_files import (
        CERTIFICATE_FILE,
        OWN_RUNS_FILE,
        PUBLISHED,
        RUN_POLICIES,
        load_policy,
        published_policy,
        read_description,
        save_policy,
    )

    source = options.run_folder / RUN_POLICIES[0]
    policy = load_policy(source)
    about = read_description(source)["about"]
    certificates: dict[str, Any] = {
        CERTIFICATE_FILE: certify(policy, base=policy.layout.base, frames=policy.layout.frames)
    }
    wrong = certificates[CERTIFICATE_FILE].disagreements
    found = f"differs from the teacher on {wrong:,} observations"
    folder = options.into
    if options.name is not None:
        folder = PUBLISHED / options.name
        if wrong:
            certificates[OWN_RUNS_FILE] = own_runs = _own_runs(policy, about)
            found += f", {own_runs.verdict} by its own runs"
            if not own_runs.exact:
                raise ValueError(
                    f"the policy of {relative_path(options.run_folder)} is {own_runs.verdict} by "
                    "its own runs, and a policy of the project must be exact: give --into"
                )
    elif folder is None:
        if wrong:
            raise ValueError(
                f"the policy of {relative_path(options.run_folder)} is wrong on {wrong:,} "
                "observations, and the project's own must be exact: give --into for another folder"
            )
        folder = published_policy(policy.layout.base)
    save_policy(policy, folder, about)
    for name, certificate in certificates.items():
        atomic_write_text(folder / name, certificate.to_json() + "\n")
    print(f"written: {relative_path(folder)}: {found}")
    return 0


def _own_runs(policy: AbacusPolicy, about: dict[str, Any]) -> Any:
    """Certify the own runs of a policy, judged as at the reward level that it learned from."""
    from oracle.exact.own_runs import certify_own_runs

    if "settings" not in about:
        raise ValueError(
            "the run has no report, which tells its settings: end it with "
            "`python -m pipelines.bc_then_ppo --resume FOLDER`"
        )
    reward = about["settings"]["world"]["reward"]
    base, frames = policy.layout.base, policy.layout.frames
    return certify_own_runs(policy, base=base, frames=frames, level=reward)


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
