"""Evaluate a policy as the paper does, and beyond, and write a report.

Error rates on operands of any length with intervals, adversarial sets, classes and columns of
errors, runs of operations, learning curves, a certificate and replays, beside the authors'
published figures: as one page, as Markdown and as JSON.

The policy is the folder of a run or of a policy, a zip of Stable-Baselines3 (with --trust), a
Python function as module:function, teacher or random; by default the policy that comes with the
project. Ctrl-C stops the evaluation; the report then holds the parts done so far.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from pipelines.job.command_line import EXIT_INTERRUPTED, argument, option, relative_path, run
from pipelines.scoring.request import Request

EXAMPLE = "python -m pipelines.evaluate runs/first --digits 1 2 4 8 16 --n-operations 1e5"
#: Default folder of reports.
REPORTS = Path("runs") / "evaluations"


@dataclass(frozen=True)
class Options(Request):
    """The command line: what to evaluate of which policy, and where the report goes."""

    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    trust: bool = option(False, "load a zip, which can run code of its author")
    base: int | None = option(None, "base of a policy that does not define it (default: 5)")
    frames: int | None = option(None, "frames of a policy that does not define them (default: 3)")
    output: Path | None = option(None, "folder of the report (default: one in runs/evaluations)")


def main(options: Options) -> int:
    """Evaluate, print the findings, and write the report."""
    from pipelines.learning.named_policies import find_policy
    from pipelines.scoring.protocol import evaluate_policy
    from pipelines.scoring.report import Report, findings_of

    policy = find_policy(
        options.policy,
        trust=options.trust,
        base=options.base,
        frames=options.frames,
        seed=options.seed,
    )
    folder = options.output or REPORTS / _folder_name(policy.name)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)  # fails now, not after the evaluation
    began = time.perf_counter()
    try:
        results = evaluate_policy(policy, options, _print_above_bar)
    except ValueError:
        if is_new:
            folder.rmdir()
        raise
    # Tuples as lists and paths as text, as in a file.
    settings = json.loads(json.dumps(asdict(options), default=str))
    settings["seconds"] = round(time.perf_counter() - began, 1)
    about = {name: getattr(policy, name) for name in ("name", "kind", "base", "frames")}
    for name in ("policy", "base", "frames"):
        del settings[name]
    report = Report(about | {"weights": policy.digest}, settings, results)
    print(f"{'Policy':<22} {policy.name}")
    for finding in findings_of(results):
        print(f"{finding.label:<22} {finding.figure:<18} {finding.detail}")
    for path in report.write(folder):
        print(f"{'Written':<22} {relative_path(path)}")
    return EXIT_INTERRUPTED if results.stopped else 0


def _print_above_bar(line: str) -> None:
    tqdm.write(line, file=sys.stderr)
    sys.stderr.flush()


def _folder_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "policy"


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
