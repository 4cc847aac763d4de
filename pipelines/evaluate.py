"""Measures a policy as the paper does, and beyond, and writes a report that one can read.

Error rates on operands of any length with intervals, adversarial sets, the classes and columns of
errors, runs of operations, learning curves of runs, a certificate, and replays, beside the authors'
published figures: as one page, as Markdown and as JSON.

The policy is the folder of a run or of a policy, a zip of Stable-Baselines3 (with --trust), a
Python function as module:function, teacher or random; without one, the policy that comes with the
project.
Ctrl-C stops, and the report tells what was done until then.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipelines.job.command_line import EXIT_INTERRUPTED, argument, option, run, shown_path
from pipelines.learning.named_policies import NamedPolicy, find_policy
from pipelines.scoring.operations import SETS
from pipelines.scoring.protocol import Evaluation, Request, Results
from pipelines.scoring.report import Report, findings_of

EXAMPLE = "python -m pipelines.evaluate runs/first --digits 1 2 4 8 16 --n-operations 1e5"
DIGITS = (1, 2, 4, 8, 16, 32, 64, 128, 1_000, 10_000)
NO_SETS = "none"
#: Where reports go by default.
REPORTS = Path("runs") / "evaluations"


@dataclass(frozen=True)
class Options:
    """The command line."""

    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    trust: bool = option(False, "load a zip, which runs code of its maker")
    digits: tuple[int, ...] = option(DIGITS, "digits of both operands, as many kinds as are given")
    n_operations: int = option(100_000, "operations of each kind up to 16 digits")
    n_long_operations: int | None = option(
        None, "operations of each kind beyond (default: as many digits in all, at least 100)"
    )
    columns: int | None = option(None, "columns (default: 20, and wider where operands need it)")
    sets: tuple[str, ...] = option(tuple(SETS), "adversarial sets, or 'none'")
    n_set_operations: int = option(10_000, "operations of each adversarial set")
    set_digits: int = option(16, "digits of the longest operands in the adversarial sets")
    n_episodes: int = option(20, "episodes for the runs of operations; 0 for none")
    run_limit: int = option(2_000, "operations at which a run is ended")
    logs: tuple[Path, ...] = option((), "folders of runs, or CSV files, for learning curves")
    n_errors: int = option(2_000, "errors of each kind to look at")
    replay: tuple[str, ...] = option((), "expressions in decimal to replay, such as 1234+567")
    certificate: bool = option(True, "ask about every observation too")
    base: int | None = option(None, "base, for what does not know its own (default: 5)")
    frames: int | None = option(None, "frames, for what does not know its own (default: 3)")
    seed: int = option(0, "seed of everything random")
    output: Path | None = option(None, "folder of the report (default: one in runs/evaluations)")

    def request(self) -> Request:
        """What is to be measured."""
        return Request(
            digits=self.digits,
            operations=self.n_operations,
            long_operations=self.n_long_operations,
            columns=self.columns,
            sets=() if self.sets == (NO_SETS,) else self.sets,
            set_operations=self.n_set_operations,
            set_digits=self.set_digits,
            episodes=self.n_episodes,
            run_limit=self.run_limit,
            logs=self.logs,
            analysed=self.n_errors,
            replays=self.replay,
            certificate=self.certificate,
            seed=self.seed,
        )


def main(options: Options) -> int:
    """Measures, writes the report, and says what was found."""
    request = options.request()
    policy = find_policy(
        options.policy,
        trust=options.trust,
        base=options.base,
        frames=options.frames,
        seed=options.seed,
    )
    began = time.perf_counter()
    results = Evaluation(policy, request, _tell).run()
    settings = _plain(asdict(options)) | {"seconds": round(time.perf_counter() - began, 1)}
    report = Report(_about(policy), settings, results)
    folder = options.output or REPORTS / _folder_name(policy.name)
    print("\n".join(_lines(policy, results)))
    for path in report.write(folder):
        print(f"written       {shown_path(path)}")
    return EXIT_INTERRUPTED if results.stopped else 0


def _tell(line: str) -> None:
    """A line above the bar, where there is one."""
    tqdm.write(line, file=sys.stderr)
    sys.stderr.flush()


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Paths as text, tuples as lists."""
    return {
        name: [str(item) if isinstance(item, Path) else item for item in value]
        if isinstance(value, tuple)
        else str(value)
        if isinstance(value, Path)
        else value
        for name, value in values.items()
        if name not in ("policy", "base", "frames")
    }


def _about(policy: NamedPolicy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "kind": policy.kind,
        "base": policy.base,
        "frames": policy.frames,
        "weights": policy.digest,
    }


def _folder_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "policy"


def _lines(policy: NamedPolicy, results: Results) -> list[str]:
    lines = (f"{f.label:<22} {f.figure:<18} {f.detail}" for f in findings_of(results))
    return [f"{'Policy':<22} {policy.name}", *lines]


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
