"""Shows what a file of demonstrations holds: its tree, attributes, statistics, one demonstration.

With --verify every episode is replayed through the environment and the teacher, and the status is
1 if anything differs. A damaged file is refused in one line, with status 2.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import h5py
from tqdm import tqdm

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.render import AbacusView, render_ansi, view_of
from abacus.render.text import base_numeral, decimal_numeral
from abacus.render.view import visible_columns
from abacus.rules import Action
from oracle.demos import Demonstrations
from oracle.demos.replay import first_difference
from oracle.demos.statistics import KindStatistics, Statistics, coverage_of, statistics_of
from pipelines.job.command_line import argument, option, run, shown_path


def summary(demonstrations: Demonstrations, path: Path) -> str:
    """Lines of text, one for each thing to know."""
    lines = [*_content(demonstrations), *_file(demonstrations, path)]
    return "\n".join(f"{name:<13} {text}" for name, text in lines)


def _content(demonstrations: Demonstrations) -> Iterator[tuple[str, str]]:
    statistics = statistics_of(demonstrations)
    yield "transitions", f"{statistics.transitions:,}"
    yield (
        "operations",
        f"{statistics.operations:,}, in {statistics.episodes:,} episodes, "
        f"{statistics.validation_episodes:,} of them for validation",
    )
    yield "actions", _histogram(statistics)
    if statistics.detours:
        share = statistics.detours / statistics.transitions
        yield "detours", f"{statistics.detours:,} ({share:.1%} of transitions)"
    yield "additions", _kind(statistics.additions, "carry", "carries")
    yield "subtractions", _kind(statistics.subtractions, "borrow", "borrows")
    yield (
        "mean returns",
        ", ".join(f"{level} {value:.2f}" for level, value in statistics.returns.items()),
    )
    yield "covers", _coverage(demonstrations)


def _histogram(statistics: Statistics) -> str:
    return ", ".join(
        f"{name} {count:,} ({count / statistics.transitions:.1%})"
        for name, count in statistics.actions.items()
    )


def _kind(kind: KindStatistics, one: str, many: str) -> str:
    if kind.operations == 0:
        return "none"
    return (
        f"{kind.operations:,}, {kind.share_with_carry:.1%} with a {one}, "
        f"{kind.mean_carries:.2f} {many} each, longest chain {kind.longest_chain}"
    )


def _coverage(demonstrations: Demonstrations) -> str:
    coverage = coverage_of(demonstrations)
    if coverage is None:
        config = demonstrations.config
        return (
            f"unknown: all observations in base {config.base} with {config.frames} frames are not "
            "enumerated on this machine, and that takes minutes (oracle.exact.complete_set)"
        )
    return (
        f"{coverage.seen:,} of the {coverage.complete:,} observations that the algorithm can meet "
        f"at any length ({coverage.share:.2%})"
    )


def _file(demonstrations: Demonstrations, path: Path) -> Iterator[tuple[str, str]]:
    assert demonstrations.about is not None
    size = path.stat().st_size
    yield "digest", demonstrations.about.digest
    yield "size", f"{size:,} bytes, {size / len(demonstrations):.2f} a transition"
    yield "path", shown_path(path)


#: Columns shown in a trace; dots stand for the others.
_COLUMNS = 24
_LIMIT = 32
_HOME = "\x1b[H"
_CLEAR = "\x1b[2J"
_REST_OF_LINE, _REST_OF_SCREEN = "\x1b[K", "\x1b[J"


@dataclass(frozen=True)
class Step:
    """What was to be seen, what the teacher said, what was done and how it was judged."""

    number: int
    view: AbacusView
    label: Action
    taken: Action
    outcome: int
    reward: float


def steps_of(demonstrations: Demonstrations, operation: int) -> Iterator[Step]:
    """The steps of an operation, in the environment that they were recorded in."""
    check_operation(demonstrations, operation)
    columns, rows = demonstrations.operations, demonstrations.transitions
    episode = int(columns["episode"][operation])
    start, first = int(demonstrations.episodes["start"][episode]), int(columns["start"][operation])
    # Without a limit of operations: the abacus goes on where a file was cut.
    config = replace(demonstrations.config, max_operations=None)
    batch = AbacusBatch(config, 1, autoreset=False)
    batch.reset([int(demonstrations.episodes["seed"][episode])])
    rewards = demonstrations.rewards()
    for row in range(start, first + int(columns["length"][operation])):
        if row >= first:
            yield Step(
                number=row - first,
                view=view_of(batch, 0),
                label=Action(int(rows["action"][row])),
                taken=Action(int(rows["taken"][row])),
                outcome=int(rows["outcome"][row]),
                reward=float(rewards[row]),
            )
        batch.step(rows["taken"][row : row + 1].astype("int64"))


def check_operation(demonstrations: Demonstrations, operation: int) -> None:
    """Raises ValueError for an operation that there is not."""
    count = demonstrations.counts["operations"]
    if not 0 <= operation < count:
        raise ValueError(f"operation={operation} is not allowed: give 0 to {count - 1}")


def headline(demonstrations: Demonstrations, operation: int) -> str:
    """`operation 3 of episode 0: 1204 + 33 = 1242 in base 5 (179 + 18 = 197)`."""
    columns, base = demonstrations.operations, demonstrations.config.base
    sign = "-" if columns["operation"][operation] == SUBTRACT else "+"
    numbers = [columns[name][operation].tolist() for name in ("before", "operand", "after")]
    shown = [base_numeral(digits, _LIMIT).text for digits in numbers]
    decimal = [decimal_numeral(digits, base, _LIMIT).text for digits in numbers]
    text = f"{shown[0]} {sign} {shown[1]} = {shown[2]} in base {base}"
    if base != 10:
        text += f" ({decimal[0]} {sign} {decimal[1]} = {decimal[2]})"
    return f"operation {operation} of episode {columns['episode'][operation]}: {text}"


def trace(demonstrations: Demonstrations, operation: int) -> Iterator[str]:
    """A line for each step. The window's columns are in brackets, the signpost's has a flag."""
    yield headline(demonstrations, operation)
    yield "step  reads  row  abacus, least significant column first"
    for step in steps_of(demonstrations, operation):
        view = step.view
        yield (
            f"{step.number:>4}  {view.symbol_text:^5}  {view.finger_row:^3}  {_beads(view)}  "
            f"{_action_text(step)}  {step.reward:+.2f}"
        )


def _beads(view: AbacusView) -> str:
    """The digits of the columns: `[2⚑ 1 ]` are in the window, the signpost on the left one."""
    shown = visible_columns(view, _COLUMNS)
    cells = []
    for column in range(shown.first, shown.stop):
        left = "[" if column == max(0, view.finger_column - 1) else " "
        right = "]" if column == view.finger_column else " "
        flag = "⚑" if column == view.signpost else " "
        cells.append(f"{left}{view.digits[column]}{flag}{right}")
    return ("…" * bool(shown.hidden_left)) + "".join(cells) + ("…" * bool(shown.hidden_right))


def _action_text(step: Step) -> str:
    text = step.taken.name.lower().replace("_", " ")
    if step.taken != step.label:
        text += f" (a detour: the teacher says {step.label.name.lower().replace('_', ' ')})"
    return f"{text:<14}"


def animate(
    demonstrations: Demonstrations, operation: int, stream: TextIO, steps_per_second: float
) -> None:
    """Shows the abacus moving, in place on a terminal and one picture after the other elsewhere."""
    on_terminal = stream.isatty()
    if on_terminal:
        stream.write(_CLEAR)
    for step in steps_of(demonstrations, operation):
        lines = [
            headline(demonstrations, operation),
            "",
            *render_ansi(step.view, colour=on_terminal).splitlines(),
            "",
            f"step {step.number}: {_action_text(step).rstrip()}",
        ]
        if on_terminal:
            text = "".join(line + _REST_OF_LINE + "\n" for line in lines)
            stream.write(_HOME + text + _REST_OF_SCREEN)
            stream.flush()
            time.sleep(1 / steps_per_second)
        else:
            stream.write("\n".join(lines) + "\n\n")


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
