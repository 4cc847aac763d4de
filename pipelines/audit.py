"""Audit observability: how often does an observation not determine the action?

For each order of signpost and write, and each number of frames: the observations that the reference
algorithm can meet at any width, how many of them have several right actions, and the share of steps
on which every memoryless policy is wrong. Writes the table with worked examples to observability.md
and observability.json in the output folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from abacus.checks import check_integer
from abacus.observation import SIGNPOST_LEFT, SIGNPOST_RIGHT, decode_frame
from abacus.render import render_ansi, view_of
from abacus.render.text import BEAD, ENCODING, FLAG, GAP, PADDING
from abacus.rules import ENCODING_PERIOD, AbacusConfig, Action
from oracle.algorithm import VARIANTS, Variant
from oracle.exact import MAX_FRAMES
from oracle.files import atomic_write_text
from pipelines.job.command_line import option, relative_path, run
from pipelines.job.tables import Table, counted, decimal_percent

if TYPE_CHECKING:
    from abacus.batch import AbacusBatch
    from oracle.exact.exploration import Exploration
    from oracle.exact.observability import Ambiguity, Kind, SampledCount, SampledSteps
    from oracle.exact.witness import Witness, WitnessFinder

EXAMPLE = "python -m pipelines.audit --frames 1 2 3 --steps 1e6"
ORDERS: dict[Variant, str] = {"before": "before the write", "printed": "after the write (printed)"}
HEADINGS = (
    "signpost moves",
    "frames",
    "observations",
    "ambiguous",
    "sampled",
    "ambiguous in sample",
    "unlearnable steps",
)
ACTION_NAMES = {
    action: f"finger {action.words}" if action <= Action.DOWN else action.words for action in Action
}
#: Kinds of ambiguity with a worked example, for each row of the table.
WORKED_KINDS = 4
#: Columns drawn of an abacus: those of the window and a few more.
DRAWN_COLUMNS = 5
_BETWEEN_FRAMES = "      "


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    base: int = option(5, "base of the abacus")
    columns: int = option(10, "columns of the abacus on which steps are sampled")
    max_digits: int = option(6, "digits of the longest operand sampled")
    frames: tuple[int, ...] = option(
        tuple(range(1, MAX_FRAMES + 1)), "numbers of frames to audit; 6 takes 2 GB and a minute"
    )
    variants: tuple[Variant, ...] = option(VARIANTS, "orders of signpost and write to audit")
    steps: int = option(4_000_000, "steps of the teacher to sample for each variant")
    list_up_to: int = option(200, "list all ambiguous observations of a row in the JSON up to here")
    seed: int = option(0, "seed of the operations sampled")
    output: Path = option(Path("results"), "folder to write to")

    def __post_init__(self) -> None:
        for number in self.frames:
            check_integer("frames", number, 1, MAX_FRAMES)
        check_integer("steps", self.steps, 1)
        check_integer("seed", self.seed, 0)
        check_integer("list_up_to", self.list_up_to, 0)
        AbacusConfig(base=self.base, columns=self.columns, max_digits=self.max_digits)
        if self.output.exists() and not self.output.is_dir():
            raise ValueError(f"output={relative_path(self.output)} is a file: give a folder")

    @property
    def config(self) -> AbacusConfig:
        """Configuration of the abaci on which steps are sampled, with the most frames."""
        return AbacusConfig(
            base=self.base,
            columns=self.columns,
            max_digits=self.max_digits,
            frames=max(self.frames),
        )


def main(options: Options) -> int:
    """Measure, print the table, write the pages."""
    options.output.mkdir(parents=True, exist_ok=True)  # fails now, not after the measurements
    rows = list(measure(options))
    print(_table(rows).text())
    settings = asdict(options)
    del settings["output"]
    content = {"settings": settings, "rows": [_row_json(row) for row in rows]}
    pages = {
        "observability.json": json.dumps(content, indent=1) + "\n",
        "observability.md": markdown(rows, options.base),
    }
    print()
    for name, text in pages.items():
        atomic_write_text(options.output / name, text)
        print(f"written  {relative_path(options.output / name)}")
    return 0


@dataclass(frozen=True)
class Example:
    """An ambiguous observation, and for each right action an operation that needs it."""

    ambiguity: Ambiguity
    witnesses: dict[Action, Witness]


@dataclass(frozen=True)
class KindCount:
    """A kind of ambiguity: its number of observations, and the nearest as an example."""

    kind: Kind
    observations: int
    example: Example


@dataclass(frozen=True)
class Row:
    """A row of the table: a variant with a number of frames."""

    base: int
    variant: Variant
    frames: int
    observations: int
    ambiguous: int
    sampled: SampledCount
    kinds: tuple[KindCount, ...]
    #: All ambiguous observations, if there are at most `list_up_to`.
    listed: tuple[Example, ...]


def measure(options: Options) -> Iterator[Row]:
    """Yield the rows of the table."""
    from oracle.exact.observability import sample_steps

    steps = options.steps
    for variant in options.variants:
        with tqdm(
            total=steps, desc=f"{variant}: steps", unit_scale=True, disable=None, leave=False
        ) as bar:
            sample = sample_steps(options.config, variant, steps, options.seed, bar.update)
        for frames in sorted(set(options.frames)):
            yield _row(_explore(options.base, variant, frames), sample, options.list_up_to)


def _explore(base: int, variant: Variant, frames: int) -> Exploration:
    from oracle.exact.complete_set import complete_width
    from oracle.exact.exploration import explore

    title = f"{variant}, {counted(frames, 'frame')}: situations"
    with tqdm(desc=title, unit_scale=True, disable=None, leave=False) as bar:

        def progress(done: int, found: int) -> None:
            bar.total = found
            bar.update(done - bar.n)

        return explore(base, frames, complete_width(frames), variant, progress)


def _row(exploration: Exploration, sample: SampledSteps, list_up_to: int) -> Row:
    from oracle.exact.complete_set import collect
    from oracle.exact.observability import count_sampled, find_ambiguities
    from oracle.exact.witness import WitnessFinder

    complete = collect(exploration)
    finder = WitnessFinder(complete, exploration)
    found = find_ambiguities(finder)
    return Row(
        exploration.base,
        exploration.variant,
        exploration.frames,
        len(complete),
        len(found),
        count_sampled(sample, complete),
        tuple(_count_kinds(finder, found)),
        tuple(_example(finder, one) for one in found if len(found) <= list_up_to),
    )


def _count_kinds(finder: WitnessFinder, found: list[Ambiguity]) -> Iterator[KindCount]:
    """Yield the kinds, the most frequent first."""
    groups: dict[Kind, list[Ambiguity]] = {}
    for ambiguity in found:
        groups.setdefault(ambiguity.kind, []).append(ambiguity)
    for kind in sorted(groups, key=lambda kind: (-len(groups[kind]), *asdict(kind).values())):
        yield KindCount(kind, len(groups[kind]), _example(finder, groups[kind][0]))


def _example(finder: WitnessFinder, ambiguity: Ambiguity) -> Example:
    witnesses = {action: finder.find(ambiguity.row, action) for action in ambiguity.kind.answers}
    return Example(ambiguity, witnesses)


def _table(rows: Sequence[Row]) -> Table:
    return Table(
        key="observability",
        title="",
        note="",
        header=HEADINGS,
        rows=tuple(
            (
                ORDERS[row.variant],
                str(row.frames),
                f"{row.observations:,}",
                f"{row.ambiguous:,}",
                f"{row.sampled.observations:,}",
                f"{row.sampled.ambiguous:,}",
                f"{decimal_percent(row.sampled.unlearnable_share)} %",
            )
            for row in rows
        ),
    )


def markdown(rows: Sequence[Row], base: int) -> str:
    """Return the page: the table, then the ambiguities of each row with worked examples."""
    sections = "\n".join(line for row in rows for line in _section(row))
    return f"""\
# Observability: does an observation determine the action?

Written by `python -m pipelines.audit`. Numbers are in base {base}.

An observation is ambiguous if two states have this observation and the reference algorithm acts
differently in them. An agent without memory is wrong in one of the two, however it is trained. The
columns *observations* and *ambiguous* count all observations of the algorithm, at any width and
operand length (`docs/exactness.md`); the columns to their right count those in a sample of
{rows[0].sampled.steps:,} steps of the teacher.

{_table(rows).markdown()}
*Unlearnable steps*: sampled steps on which the best action that a policy can choose for the
observation, the most frequent one, is not the right one.

In the pictures, `{FLAG}` is the signpost, `{BEAD}` a bead, `{GAP}` the gap, `[ ]` the finger, \
`{PADDING}` the
padding left of column 0; `¼`, `½` and `¾` are the encoding that the agent sees above a column.
Column 0 is the least significant.
{sections}
"""


def _section(row: Row) -> Iterator[str]:
    yield f"\n## Signpost moves {ORDERS[row.variant]}, {counted(row.frames, 'frame')}\n"
    if not row.kinds:
        yield "No observation is ambiguous."
        return
    yield (
        f"{row.ambiguous:,} of {row.observations:,} observations are ambiguous, of "
        f"{counted(len(row.kinds), 'kind')}:\n"
    )
    yield "| observations | right actions | symbol | signpost | calculation, steps before: action |"
    yield "|---:|---|---|---|---|"
    for found in row.kinds:
        examples = "; ".join(
            f"{witness.in_base}, {witness.step}: {ACTION_NAMES[action]}"
            for action, witness in found.example.witnesses.items()
        )
        kind = found.kind
        cells = (f"{found.observations:,}", _join(kind.answers), kind.symbol, kind.signpost)
        yield f"| {' | '.join(cells)} | {examples} |"
    for found in row.kinds[: WORKED_KINDS if row.frames > 1 else 1]:
        yield from _worked_example(found.example, row)


def _join(actions: Sequence[Action]) -> str:
    return " or ".join(ACTION_NAMES[action] for action in actions)


def _worked_example(example: Example, row: Row) -> Iterator[str]:
    seen, answers = example.ambiguity, _join(example.ambiguity.kind.answers)
    yield f"\n### {answers[0].upper()}{answers[1:]}?\n"
    pictures = []
    for action, witness in example.witnesses.items():
        batch, actions = witness.replay(row.frames, row.variant)
        path = ", ".join(ACTION_NAMES[taken] for taken in actions) or "none yet"
        yield (
            f'- **{witness.in_base}** (`start={witness.start}`, `expression="{witness.expression}"'
            f"`), after {counted(witness.step, 'step')} ({path}): **{ACTION_NAMES[action]}**. "
            f"{_describe(batch)}"
        )
        picture = render_ansi(view_of(batch, 0), DRAWN_COLUMNS).splitlines()
        pictures.append([f"{witness.in_base}: {ACTION_NAMES[action]}", *picture])
    width = max(len(line) for picture in pictures for line in picture)
    lines = zip_longest(*pictures, fillvalue="")
    yield (
        f"\n{'Both' if len(pictures) == 2 else 'All'} have the symbol {seen.symbol}, the operation "
        f"{'subtraction' if seen.operation else 'addition'}, and "
        f"{'this frame' if row.frames == 1 else 'these frames'}:\n"
    )
    yield from ("```text", draw_frames(row.base, seen.history), "```")
    yield "\nThe whole abaci:\n\n```text"
    yield from ("  ".join(part.ljust(width) for part in line).rstrip() for line in lines)
    yield "```"


def _describe(batch: AbacusBatch) -> str:
    """Describe the signpost's position and the next column to change."""
    from abacus.kernel import ON_OPERATION_SYMBOL

    scalars = batch.scalars[0]
    j, signpost = int(scalars["digit_index"]), int(scalars["signpost"])
    if j == ON_OPERATION_SYMBOL:
        return f"The symbol asks for a reset; the signpost is on column {signpost}."
    there = "there" if signpost == j else f"on column {signpost}"
    begin = f"The symbol is the digit for column {j}, the signpost is {there}, and"
    if scalars["wrong_count"] == 0:
        return f"{begin} all columns are right."
    column = int(scalars["first_wrong"])
    return (
        f"{begin} column {column} has to change from {batch.digits[0, column]} to "
        f"{batch.target[0, column]}."
    )


def draw_frames(base: int, history: tuple[int, ...]) -> str:
    """Draw frames side by side, oldest first: signpost, encoding, beads; the finger in brackets."""
    ages = [f"{k} ago" if k else "now" for k in range(len(history) - 1, -1, -1)]
    frames = [
        [age.ljust(8), *_frame_lines(base, code)] for age, code in zip(ages, history, strict=True)
    ]
    lines = zip(*frames, strict=True)
    return "\n".join(_BETWEEN_FRAMES.join(line).rstrip() for line in lines)


def _frame_lines(base: int, code: int) -> Iterator[str]:
    left, right, row, phase, signpost = decode_frame(base, code)
    over_left = FLAG if signpost == SIGNPOST_LEFT else " "
    over_right = FLAG if signpost == SIGNPOST_RIGHT else " "
    before = ENCODING[(phase - 1) % ENCODING_PERIOD] if left < base else PADDING
    yield f" {over_left}   {over_right}  "
    yield f" {before}   {ENCODING[phase]}  "
    for place in range(base):
        in_left = PADDING if left == base else GAP if left == place else BEAD
        in_right = GAP if right == place else BEAD
        yield f" {in_left}  [{in_right}] " if place == row else f" {in_left}   {in_right}  "


def _row_json(row: Row) -> dict[str, Any]:
    from oracle.exact.complete_set import complete_width

    return {
        "variant": row.variant,
        "frames": row.frames,
        "explored_columns": complete_width(row.frames),
        "observations": row.observations,
        "ambiguous": row.ambiguous,
        "sampled_steps": row.sampled.steps,
        "sampled_observations": row.sampled.observations,
        "sampled_ambiguous": row.sampled.ambiguous,
        "unlearnable_steps": row.sampled.unlearnable_steps,
        "unlearnable_share": row.sampled.unlearnable_share,
        "kinds": [
            {
                "answers": [action.name for action in found.kind.answers],
                "symbol": found.kind.symbol,
                "signpost": found.kind.signpost,
                "observations": found.observations,
                "example": _example_json(found.example),
            }
            for found in row.kinds
        ],
        "ambiguous_observations": [_example_json(example) for example in row.listed],
    }


def _example_json(example: Example) -> dict[str, Any]:
    return {
        "frame_codes": list(example.ambiguity.history),
        "symbol": example.ambiguity.symbol,
        "operation": "subtract" if example.ambiguity.operation else "add",
        "met_by": [
            {
                "answer": action.name,
                "columns": witness.columns,
                "start": witness.start,
                "expression": witness.expression,
                "in_base": witness.in_base,
                "step": witness.step,
            }
            for action, witness in example.witnesses.items()
        ],
    }


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
