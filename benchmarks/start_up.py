"""Time how fast commands start: `--help` of every command, a game and a certificate.

Each runs in a process of its own, once so that compiled code and files are cached, and then
--repeats times, of which the fastest counts. The seconds of the processor, beside those of the
clock, hardly depend on what else the machine does. The last row is what a game would take in
addition if the policy ran in torch. The exit status is 1 if a target is missed.
"""

from __future__ import annotations

import os
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


def seconds_of(start: Start, repeats: int) -> tuple[float, float]:
    """Return the seconds of the clock and of the processor, each of the fastest repetition."""
    clock = processor = float("inf")
    for number in range(repeats + 1):
        began, used = time.perf_counter(), _used_by_processes()
        subprocess.run([sys.executable, *start.arguments], check=True, stdout=subprocess.DEVNULL)
        if number:
            clock = min(clock, time.perf_counter() - began)
            processor = min(processor, _used_by_processes() - used)
    return clock, processor


def _used_by_processes() -> float:
    """Return the seconds of the processor that ended processes of this one have used."""
    times = os.times()
    return times.children_user + times.children_system


def main(options: Options) -> int:
    """Time all, and print the table."""
    print(machine(), flush=True)
    timed = [(start, seconds_of(start, options.repeats)) for start in starts()]
    rows = tuple(
        (
            start.name,
            f"{clock:.2f}",
            f"{processor:.2f}",
            "" if start.target is None else f"{start.target:g}",
        )
        for start, (clock, processor) in timed
    )
    header = ("command", "seconds", "processor seconds", "target")
    print(Table("start_up", "", "", header, rows).text())
    missed = [start.name for start, (clock, _) in timed if start.target and clock > start.target]
    for name in missed:
        print(f"slower than its target: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
