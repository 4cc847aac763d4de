"""Time how fast commands start: `--help` of every command, a game and a certificate.

Each runs in a process of its own, once so that compiled code and files are cached, and then
--repeats times, of which the fastest counts. The last row is what a game would take in addition if
the policy ran in torch. The exit status is 1 if a target is missed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from abacus.checks import check_integer
from benchmarks.machine import machine
from pipelines.__main__ import command_names
from pipelines.job.command_line import option, run
from pipelines.job.tables import Table

EXAMPLE = "python -m benchmarks.start_up --repeats 5"
#: Targets in seconds: a command's help, and a game with the published policy.
HELP, GAME = 1.0, 3.0


@dataclass(frozen=True)
class Options:
    """The command line."""

    repeats: int = option(3, "timed repetitions of each command")

    def __post_init__(self) -> None:
        check_integer("repeats", self.repeats, 1)


@dataclass(frozen=True)
class Start:
    """A command line for Python, and the seconds that it may take."""

    name: str
    arguments: tuple[str, ...]
    target: float | None = None


def starts() -> Iterator[Start]:
    """Yield what is timed."""
    for name in command_names():
        yield Start(f"{name} --help", ("-m", f"pipelines.{name}", "--help"), HELP)
    yield Start('play "12+34"', ("-m", "pipelines.play", "12+34", "--plain"), GAME)
    yield Start("certify", ("-m", "pipelines.certify"))
    yield Start("import torch, sb3_contrib", ("-c", "import torch, sb3_contrib"))


def seconds_of(start: Start, repeats: int) -> float:
    """Return the fastest of the repetitions."""
    fastest = float("inf")
    for number in range(repeats + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *start.arguments], check=True, stdout=subprocess.DEVNULL)
        if number:
            fastest = min(fastest, time.perf_counter() - began)
    return fastest


def main(options: Options) -> int:
    """Time all, and print the table."""
    print(machine(), flush=True)
    timed = [(start, seconds_of(start, options.repeats)) for start in starts()]
    rows = tuple(
        (start.name, f"{seconds:.2f}", "" if start.target is None else f"{start.target:g}")
        for start, seconds in timed
    )
    print(Table("start_up", "", "", ("command", "seconds", "target"), rows).text())
    missed = [start.name for start, seconds in timed if start.target and seconds > start.target]
    for name in missed:
        print(f"slower than its target: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
