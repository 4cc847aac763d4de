"""Show the content of a demonstrations file: tree, attributes, statistics, one demonstration.

--verify also compares the file with its recipe and replays every episode through the environment
and the expert; the exit status is 1 if anything differs. The file of a trained policy is replayed
without the expert. A damaged file is refused in one line, with status 2.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm

from abacus.checks import check_integer, check_number, shorten
from abacus.render import AbacusView, render_ansi, view_of
from abacus.render.view import base_numeral, decimal_numeral, visible_columns
from abacus.rules import SUBTRACT, AbacusConfig, Action
from pipelines.job.command_line import argument, option, relative_path, run

if TYPE_CHECKING:
    from oracle.demos import Demonstrations
    from oracle.demos.statistics import ArithmeticStatistics

EXAMPLE = "python -m pipelines.inspect_demos datasets/sample.h5 --operation 7 --verify"
EXIT_DIFFERENT = 1
#: The most columns of a trace, and characters of a number.
_MAX_COLUMNS = 24
_MAX_CHARACTERS = 32
_HOME, _CLEAR, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"


@dataclass(frozen=True)
class Options:
    """The command line."""

    file: Path = argument("the demonstrations file")
    operation: int = option(0, "index of the operation to show step by step")
    animate: bool = option(False, "show that operation as an animation in the terminal")
    steps_per_second: float = option(4.0, "speed of the animation")
    verify: bool = option(False, "check the digest and the recipe, and replay every episode")


def main(options: Options) -> int:
    """Print the content, and verify it on request."""
    from oracle.demos import Demonstrations

    check_number("--steps-per-second", options.steps_per_second, 0, low_open=True)
    demonstrations = Demonstrations.open(options.file, verify=options.verify)
    check_integer("--operation", options.operation, 0, demonstrations.counts["operations"] - 1)
    if options.animate:
        animate(demonstrations, options.operation, sys.stdout, options.steps_per_second)
        return 0
    sections = (
        _tree(options.file, demonstrations.config),
        _attributes(demonstrations),
        summary(demonstrations, options.file).splitlines(),
        _trace(demonstrations, options.operation),
    )
    for lines in sections:
        print("\n".join(lines), end="\n\n")
    return _verify(demonstrations) if options.verify else 0


def _verify(demonstrations: Demonstrations) -> int:
    from oracle.demos.replay import first_difference, recipe_difference

    difference: object = recipe_difference(demonstrations)
    if difference is None:
        total = len(demonstrations)
        with tqdm(total=total, unit=" transitions", unit_scale=True, disable=None) as bar:
            difference = first_difference(demonstrations, bar.update)
    if difference is not None:
        print(f"differs: {difference}", file=sys.stderr)
        return EXIT_DIFFERENT
    given_by = "recipe gives" if demonstrations.recipe.policy is None else "recorded actions give"
    print(
        f"verified: the digest is right, the {given_by} these episodes, and all "
        f"{demonstrations.counts['episodes']:,} episodes replay as they were recorded"
    )
    if demonstrations.recipe.policy is not None:
        print("not verified: the actions, which are a policy's, with the expert or the policy")
    return 0


def _tree(path: Path, config: AbacusConfig) -> Iterator[str]:
    import h5py

    from oracle.demos.schema import DESCRIPTION, SCALE, attributes_of

    # Old files have no descriptions, and those of a stranger's file may hold control characters.
    attributes = attributes_of(config)
    # The file passed every check: h5py may walk through it.
    with h5py.File(str(path), "r") as file:
        groups: Any = file
        for name, group in groups.items():
            yield f"/{name}"
            for member, dataset in group.items():
                stored = dataset.id.get_storage_size()
                shape = "(" + ", ".join(f"{length:,}" for length in dataset.shape) + ")"
                of_member = attributes[f"{name}/{member}"]
                about = re.split("[.:;]", of_member[DESCRIPTION])[0]
                about += f", scale {of_member[SCALE]:g}" if SCALE in of_member else ""
                yield f"  {member:<16} {dataset.dtype!s:<7} {shape:<16} {stored:>9,} bytes  {about}"


def _attributes(demonstrations: Demonstrations) -> Iterator[str]:
    assert demonstrations.metadata is not None
    for name, value in demonstrations.metadata.attributes.items():
        yield f"@{name:<12} {json.dumps(value)}"


def summary(demonstrations: Demonstrations, path: Path) -> str:
    """Return the statistics of a file as lines of a name and a text."""
    from oracle.demos.statistics import statistics_of

    assert demonstrations.metadata is not None
    statistics, size = statistics_of(demonstrations), path.stat().st_size
    actions = (
        f"{name} {count:,} ({count / statistics.transitions:.1%})"
        for name, count in statistics.actions.items()
    )
    lines = {
        "transitions": f"{statistics.transitions:,}",
        "operations": f"{statistics.operations:,}, in {statistics.episodes:,} episodes, "
        f"{statistics.validation_episodes:,} of them for validation",
        "actions": ", ".join(actions),
    }
    tasks, policy = demonstrations.recipe.tasks, demonstrations.recipe.policy
    if policy is not None:
        lines["demonstrator"] = str(policy)
    if tasks is not None:
        lines["tasks"] = (
            f"{len(tasks):,} given, one an episode; the first is {shorten(str(tasks[0]))}"
        )
    if statistics.detours:
        share = statistics.detours / statistics.transitions
        lines["detours"] = f"{statistics.detours:,} ({share:.1%} of transitions)"
    returns = (f"{level} {value:.2f}" for level, value in statistics.returns.items())
    lines |= {
        "additions": _arithmetic(statistics.additions, "carry", "carries"),
        "subtractions": _arithmetic(statistics.subtractions, "borrow", "borrows"),
        "mean returns": ", ".join(returns),
        "covers": _coverage(demonstrations),
        "digest": demonstrations.metadata.digest,
        "size": f"{size:,} bytes, {size / len(demonstrations):.2f} a transition",
        "path": relative_path(path),
    }
    return "\n".join(f"{name:<13} {text}" for name, text in lines.items())


def _arithmetic(statistics: ArithmeticStatistics, singular: str, plural: str) -> str:
    if statistics.operations == 0:
        return "none"
    return (
        f"{statistics.operations:,}, {statistics.share_with_carry:.1%} with a {singular}, "
        f"{statistics.mean_carries:.2f} {plural} each, longest chain {statistics.longest_chain}"
    )


def _coverage(demonstrations: Demonstrations) -> str:
    from oracle.demos.statistics import coverage_of

    coverage = coverage_of(demonstrations)
    if coverage is None:
        config = demonstrations.config
        return (
            f"unknown: the observations in base {config.base} with {config.frames} frames are not "
            "enumerated on this machine, which takes minutes (oracle.exact.complete_set)"
        )
    return (
        f"{coverage.seen:,} of the {coverage.complete:,} observations that the algorithm can meet "
        f"at any length ({coverage.share:.2%})"
    )


@dataclass(frozen=True)
class Step:
    """A transition with the view of the abacus before it."""

    number: int
    view: AbacusView
    label: Action
    taken: Action
    reward: float

    @property
    def action_text(self) -> str:
        text = self.taken.words
        if self.taken != self.label:
            text += f" (a detour: the expert says {self.label.words})"
        return text


def steps_of(demonstrations: Demonstrations, operation: int) -> Iterator[Step]:
    """Yield the steps of an operation, replayed in the environment."""
    from abacus.batch import AbacusBatch

    columns, rows = demonstrations.operations, demonstrations.transitions
    episode = int(columns["episode"][operation])
    start, first = int(demonstrations.episodes["start"][episode]), int(columns["start"][operation])
    # Without a limit of operations: an episode may have been cut.
    config = replace(demonstrations.config, max_operations=None)
    if demonstrations.recipe.tasks is not None:
        task = demonstrations.recipe.tasks[episode]
        config = replace(config, start=task.start, expression=task.expression)
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
                reward=float(rewards[row]),
            )
        batch.step(rows["taken"][row : row + 1].astype("int64"))


def _headline(demonstrations: Demonstrations, operation: int) -> str:
    """Return `operation 3 of episode 0: 1204 + 33 = 1242 in base 5 (179 + 18 = 197)`."""
    columns, base = demonstrations.operations, demonstrations.config.base
    sign = "-" if columns["operation"][operation] == SUBTRACT else "+"
    numbers = [columns[name][operation].tolist() for name in ("before", "operand", "after")]
    first, second, result = (base_numeral(digits, _MAX_CHARACTERS).text for digits in numbers)
    text = f"{first} {sign} {second} = {result} in base {base}"
    if base != 10:
        first, second, result = (
            decimal_numeral(digits, base, _MAX_CHARACTERS).text for digits in numbers
        )
        text += f" ({first} {sign} {second} = {result})"
    return f"operation {operation} of episode {columns['episode'][operation]}: {text}"


def _trace(demonstrations: Demonstrations, operation: int) -> Iterator[str]:
    """Yield a line for each step: the window in brackets, the signpost's column with a flag."""
    yield _headline(demonstrations, operation)
    yield "step  reads  row  abacus, least significant column first"
    for step in steps_of(demonstrations, operation):
        view = step.view
        yield (
            f"{step.number:>4}  {view.symbol_text:^5}  {view.finger_row:^3}  {_beads(view)}  "
            f"{step.action_text:<14}  {step.reward:+.2f}"
        )


def _beads(view: AbacusView) -> str:
    """Return the digits of the columns, as `[2⚑ 1 ]`."""
    shown = visible_columns(view, _MAX_COLUMNS)
    cells = []
    for column in range(shown.first, shown.stop):
        left = "[" if column == max(0, view.finger_column - 1) else " "
        right = "]" if column == view.finger_column else " "
        flag = "⚑" if column == view.signpost else " "
        cells.append(f"{left}{view.digits[column]}{flag}{right}")
    return ("…" * bool(shown.hidden_left)) + "".join(cells) + ("…" * bool(shown.hidden_right))


def animate(
    demonstrations: Demonstrations, operation: int, stream: TextIO, steps_per_second: float
) -> None:
    """Animate an operation, in place on a terminal, one picture below the other elsewhere."""
    on_terminal = stream.isatty()
    if on_terminal:
        stream.write(_CLEAR)
    for step in steps_of(demonstrations, operation):
        lines = [
            _headline(demonstrations, operation),
            "",
            *render_ansi(step.view, colour=on_terminal).splitlines(),
            "",
            f"step {step.number}: {step.action_text}",
        ]
        if on_terminal:
            text = "".join(line + _REST_OF_LINE + "\n" for line in lines)
            stream.write(_HOME + text + _REST_OF_SCREEN)
            stream.flush()
            time.sleep(1 / steps_per_second)
        else:
            stream.write("\n".join(lines) + "\n\n")


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
