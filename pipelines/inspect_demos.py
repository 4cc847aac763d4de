"""Shows what a file of demonstrations holds: its tree, attributes, statistics, one demonstration.

With --verify every episode is replayed through the environment and the teacher, and the status is
1 if anything differs. A damaged file is refused in one line, with status 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
from tqdm import tqdm

from oracle.demos import Demonstrations
from oracle.demos.replay import first_difference
from pipelines.command_line import argument, option, run
from pipelines.demonstrations.summary import summary
from pipelines.demonstrations.trace import animate, check_operation, trace

EXAMPLE = "python -m pipelines.inspect_demos datasets/sample.h5 --operation 7 --verify"
EXIT_DIFFERENT = 1


@dataclass(frozen=True)
class Options:
    """The command line."""

    file: Path = argument("the file of demonstrations")
    operation: int = option(0, "number of the operation that is shown step by step")
    animate: bool = option(False, "show that operation as an animation in the terminal")
    steps_per_second: float = option(4.0, "speed of the animation")
    verify: bool = option(False, "check the digest, and replay every episode")


def main(options: Options) -> int:
    """Prints, and verifies on request."""
    if not options.steps_per_second > 0:
        raise ValueError("--steps-per-second must be above 0")
    demonstrations = Demonstrations.open(options.file, verify=options.verify)
    check_operation(demonstrations, options.operation)
    if options.animate:
        animate(demonstrations, options.operation, sys.stdout, options.steps_per_second)
        return 0
    sections = (
        _tree(options.file),
        _attributes(demonstrations),
        summary(demonstrations, options.file).splitlines(),
        trace(demonstrations, options.operation),
    )
    for lines in sections:
        print("\n".join(lines), end="\n\n")
    return _verify(demonstrations) if options.verify else 0


def _tree(path: Path) -> Iterator[str]:
    # The file passed every check: it is safe to walk through.
    with h5py.File(str(path), "r") as file:
        groups: Any = file
        for name, group in groups.items():
            yield f"/{name}"
            for member, dataset in group.items():
                stored = dataset.id.get_storage_size()
                scale = f", scale {dataset.attrs['scale']:g}" if "scale" in dataset.attrs else ""
                shape = "(" + ", ".join(f"{length:,}" for length in dataset.shape) + ")"
                yield f"  {member:<16} {dataset.dtype!s:<7} {shape:<22} {stored:>12,} bytes{scale}"


def _attributes(demonstrations: Demonstrations) -> Iterator[str]:
    assert demonstrations.about is not None
    for name, value in demonstrations.about.attributes.items():
        yield f"@{name:<12} {json.dumps(value)}"


def _verify(demonstrations: Demonstrations) -> int:
    with tqdm(total=len(demonstrations), unit=" transitions", unit_scale=True, disable=None) as bar:
        difference = first_difference(demonstrations, bar.update)
    if difference is not None:
        print(f"differs: {difference}", file=sys.stderr)
        return EXIT_DIFFERENT
    print(
        f"verified: the digest is right, and all {demonstrations.counts['episodes']:,} episodes "
        "replay as they were recorded"
    )
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
