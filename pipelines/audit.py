"""Audits observability: how often does what the agent sees not tell what to do?

For each order of signpost and write, and each number of frames: the observations that the
reference algorithm can meet at any width, how many of them have two right answers, and the share of
steps that no memory-less policy can get right. Writes the table with worked examples to
observability.md and observability.json in the output folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from tqdm import tqdm

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL
from abacus.observation import SIGNPOST_LEFT, SIGNPOST_RIGHT, decode_frame
from abacus.render import render_ansi, view_of
from abacus.render.text import BEAD, ENCODING, FLAG, GAP, PADDING
from abacus.rules import ENCODING_PERIOD, AbacusConfig, Action
from oracle.algorithm import VARIANTS, Variant
from oracle.exact.complete_set import MAX_FRAMES, collect, complete_width
from oracle.exact.exploration import Exploration, explore
from oracle.exact.observability import (
    Ambiguity,
    Kind,
    SampledCount,
    SampledSteps,
    abacus_of,
    count_sampled,
    find_ambiguities,
    sample_steps,
    worked_example,
)
from oracle.exact.witness import Witness
from oracle.expert import expert_actions
from oracle.files import atomic_write_text
from pipelines.job.command_line import option, run, shown_path


@dataclass(frozen=True)
class Example:
    """An ambiguous observation, and for each answer an operation that asks for it."""

    history: tuple[int, ...]
    symbol: int
    operation: int
    witnesses: dict[Action, Witness]


@dataclass(frozen=True)
class KindFound:
    """A kind of ambiguity: how many observations are of it, and the one that is met soonest."""

    kind: Kind
    observations: int
    example: Example


@dataclass(frozen=True)
class Row:
    """A row of the table: a variant, seen with so many frames."""

    variant: Variant
    frames: int
    observations: int
    ambiguous: int
    sampled: SampledCount
    kinds: tuple[KindFound, ...]
    #: Every ambiguous observation, if they are not too many to list.
    listed: tuple[Example, ...]


def measure(
    config: AbacusConfig,
    variants: Iterable[Variant],
    frames: Iterable[int],
    steps: int,
    seed: int,
    list_up_to: int,
) -> Iterator[Row]:
    """The rows, as they are found; `config` has the most frames."""
    for variant in variants:
        with tqdm(total=steps, desc=f"{variant}: steps", unit_scale=True, leave=False) as bar:
            sample = sample_steps(config, variant, steps, seed, bar.update)
        for number in frames:
            yield _row(config.base, variant, number, sample, list_up_to)


def _row(base: int, variant: Variant, frames: int, sample: SampledSteps, list_up_to: int) -> Row:
    exploration = _explored(base, variant, frames)
    complete = collect(exploration, variant)
    sampled = count_sampled(sample, complete)
    found = find_ambiguities(exploration, complete)
    listed = found if len(found) <= list_up_to else []
    return Row(
        variant,
        frames,
        len(complete),
        len(found),
        sampled,
        tuple(_kinds(exploration, variant, found)),
        tuple(_example(exploration, variant, ambiguity) for ambiguity in listed),
    )


def _explored(base: int, variant: Variant, frames: int) -> Exploration:
    described = f"{variant}, {frames} frame{'s' if frames > 1 else ''}: situations"
    with tqdm(desc=described, unit_scale=True, leave=False) as bar:

        def show(done: int, found: int) -> None:
            bar.total = found
            bar.update(done - bar.n)

        return explore(base, frames, complete_width(frames), variant, show)


def _kinds(
    exploration: Exploration, variant: Variant, found: list[Ambiguity]
) -> Iterator[KindFound]:
    """The kinds, the most frequent first."""
    by_kind = sorted(found, key=_order)
    groups = [(kind, list(group)) for kind, group in groupby(by_kind, lambda one: one.kind)]
    groups.sort(key=lambda group: -len(group[1]))
    for kind, group in groups:
        yield KindFound(kind, len(group), _example(exploration, variant, group[0]))


def _order(ambiguity: Ambiguity) -> tuple[object, ...]:
    kind = ambiguity.kind
    return kind.answers, kind.symbol, kind.signpost, ambiguity.distance


def _example(exploration: Exploration, variant: Variant, ambiguity: Ambiguity) -> Example:
    return Example(
        ambiguity.history,
        ambiguity.symbol,
        ambiguity.operation,
        worked_example(exploration, ambiguity, variant),
    )


ANSWERS = {
    Action.LEFT: "finger left",
    Action.RIGHT: "finger right",
    Action.UP: "finger up",
    Action.DOWN: "finger down",
    Action.SIGNPOST_LEFT: "signpost left",
    Action.SIGNPOST_RIGHT: "signpost right",
    Action.SLIDE: "slide",
    Action.SUBMIT: "submit",
}
#: Columns of an abacus that are drawn: those of the window and a few more.
DRAWN_COLUMNS = 5
_BETWEEN_FRAMES = "      "


def symbol_text(base: int, symbol: int) -> str:
    """A symbol as the agent reads it."""
    return str(symbol) if symbol < base else "+-"[symbol - base]


def draw_windows(base: int, history: tuple[int, ...]) -> str:
    """The frames side by side, oldest first: signpost, encoding, beads; the finger in brackets."""
    ages = [f"{k} ago" if k else "now" for k in range(len(history) - 1, -1, -1)]
    frames = [
        [age.ljust(8), *_frame_lines(base, code)] for age, code in zip(ages, history, strict=True)
    ]
    lines = zip(*frames, strict=True)
    return "\n".join(_BETWEEN_FRAMES.join(line).rstrip() for line in lines)


def _frame_lines(base: int, code: int) -> list[str]:
    left, right, row, phase, signpost = decode_frame(base, code)
    over_left = FLAG if signpost == SIGNPOST_LEFT else " "
    over_right = FLAG if signpost == SIGNPOST_RIGHT else " "
    before = ENCODING[(phase - 1) % ENCODING_PERIOD] if left < base else PADDING
    lines = [_pair(over_left, over_right), _pair(before, ENCODING[phase])]
    for place in range(base):
        in_left = PADDING if left == base else GAP if left == place else BEAD
        in_right = GAP if right == place else BEAD
        lines.append(_pair(in_left, in_right, finger=place == row))
    return lines


def _pair(left: str, right: str, finger: bool = False) -> str:
    return f" {left}  [{right}] " if finger else f" {left}   {right}  "


def told(witness: Witness, answer: Action, variant: Variant) -> list[str]:
    """An operation in words: how to get there, where things stand, what is right there."""
    way = ", ".join(ANSWERS[action] for action in _actions(witness, variant)) or "none yet"
    batch = abacus_of(witness, 1, variant)
    return [
        f'**{witness.in_base}** (`start={witness.start}`, `expression="{witness.expression}"`), '
        f"after {_steps(witness.step)} ({way}): **{ANSWERS[answer]}**.",
        _where_things_stand(batch),
    ]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _actions(witness: Witness, variant: Variant) -> list[Action]:
    batch = abacus_of(replace(witness, step=0), 1, variant)
    actions = []
    for _ in range(witness.step):
        answer = expert_actions(batch, variant)
        actions.append(Action(int(answer[0])))
        batch.step(answer)
    return actions


def _where_things_stand(batch: AbacusBatch) -> str:
    scalars = batch.scalars[0]
    if scalars["digit_index"] == ON_OPERATION_SYMBOL:
        return f"A reset is asked for; the signpost stands on column {scalars['signpost']}."
    j = int(scalars["digit_index"])
    shown = f"The digit for column {j} is shown"
    signpost = (
        "the signpost stands there"
        if scalars["signpost"] == j
        else f"the signpost stands on column {scalars['signpost']}"
    )
    if scalars["wrong_count"] == 0:
        return f"{shown}, {signpost}, and all is written."
    column = int(scalars["first_wrong"])
    return (
        f"{shown}, {signpost}, and column {column} has to show {batch.target[0, column]} instead "
        f"of {batch.digits[0, column]}."
    )


def draw_abaci(example: Example, variant: Variant) -> str:
    """The abaci of an example side by side, each under its operation."""
    blocks = []
    for answer, witness in example.witnesses.items():
        batch = abacus_of(witness, len(example.history), variant)
        picture = render_ansi(view_of(batch, 0), DRAWN_COLUMNS).splitlines()
        blocks.append([f"{witness.in_base}: {ANSWERS[answer]}", *picture])
    width = max(len(line) for block in blocks for line in block)
    lines = zip_longest(*blocks, fillvalue="")
    return "\n".join("  ".join(part.ljust(width) for part in line).rstrip() for line in lines)


ORDERS: dict[Variant, str] = {"before": "before the write", "printed": "after the write (printed)"}
HEADINGS = (
    "signpost moves",
    "frames",
    "observations",
    "ambiguous",
    "sampled",
    "of these ambiguous",
    "steps that cannot be learned",
)
#: Kinds that are drawn for a row of the table; the others are told in a line.
DRAWN_KINDS = 4


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table, as text."""
    sampled = row.sampled
    return (
        ORDERS[row.variant],
        str(row.frames),
        f"{row.observations:,}",
        f"{row.ambiguous:,}",
        f"{sampled.observations:,}",
        f"{sampled.ambiguous:,}",
        share(sampled.unlearnable_share),
    )


def share(value: float) -> str:
    """A share in percent, with as many decimals as it takes not to be a zero that is none."""
    if value == 0:
        return "0"
    decimals = 2
    while round(100 * value, decimals) == 0:
        decimals += 1
    return f"{100 * value:.{decimals}f} %"


def table_lines(rows: Sequence[Row]) -> list[str]:
    """The table for a terminal."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEADINGS))]
    return [
        "  ".join(
            text.ljust(width) if k == 0 else text.rjust(width)
            for k, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]


def markdown(rows: Sequence[Row], base: int, command: str) -> str:
    """The page: the table, then for each row its kinds of ambiguity with worked examples."""
    lines = [
        "# Observability: does what the agent sees tell what to do?",
        "",
        f"Written by `{command}`. Numbers are in base {base}.",
        "",
        *_introduction(rows),
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|---|{'---:|' * (len(HEADINGS) - 1)}",
        *(f"| {' | '.join(cells(row))} |" for row in rows),
        "",
        *_legend(),
    ]
    for row in rows:
        lines += ["", *_section(row, base)]
    return "\n".join(lines) + "\n"


def _introduction(rows: Sequence[Row]) -> list[str]:
    sampled = rows[0].sampled.steps
    return [
        "An observation is ambiguous if two states look the same and the reference algorithm does",
        "different things in them. An agent without a memory errs in one of the two, however it is",
        "trained. The left half of the table counts every observation that the algorithm can ever",
        "meet, at any width and operand length (`docs/exactness.md`); the right half what",
        f"{sampled:,} steps of the teacher met.",
    ]


def _legend() -> list[str]:
    return [
        "*Steps that cannot be learned*: sampled steps on which the best answer that a policy can",
        "give to the observation, the most frequent one, is not the right one.",
        "",
        "In the pictures, `⚑` is the signpost, `●` a bead, `┆` the gap, `[ ]` the finger, `░` the",
        "padding left of column 0; `¼`, `½` and `¾` are the encoding that the agent reads above a",
        "column. Column 0 is the least significant.",
    ]


def _section(row: Row, base: int) -> list[str]:
    plural = "frame" if row.frames == 1 else "frames"
    lines = [f"## Signpost moves {ORDERS[row.variant]}, {row.frames} {plural}", ""]
    if not row.kinds:
        return [*lines, "No observation is ambiguous."]
    lines += [
        f"{row.ambiguous:,} of {row.observations:,} observations are ambiguous, of "
        f"{len(row.kinds)} kind{'s' if len(row.kinds) > 1 else ''}:",
        "",
        "| observations | right answers | symbol | signpost | met by, after so many steps |",
        "|---:|---|---|---|---|",
        *(_kind_line(found) for found in row.kinds),
    ]
    for found in row.kinds[:DRAWN_KINDS] if row.frames > 1 else row.kinds[:1]:
        lines += ["", *_worked(found, row, base)]
    return lines


def _kind_line(found: KindFound) -> str:
    kind = found.kind
    met = "; ".join(
        f"{witness.in_base}, {witness.step}: {ANSWERS[answer]}"
        for answer, witness in found.example.witnesses.items()
    )
    answers = " or ".join(ANSWERS[answer] for answer in kind.answers)
    return f"| {found.observations:,} | {answers} | {kind.symbol} | {kind.signpost} | {met} |"


def _worked(found: KindFound, row: Row, base: int) -> list[str]:
    answers = " or ".join(ANSWERS[answer] for answer in found.kind.answers)
    example = found.example
    lines = [f"### {answers[0].upper()}{answers[1:]}?", ""]
    for answer, witness in example.witnesses.items():
        lines += [f"- {' '.join(told(witness, answer, row.variant))}"]
    who = "Both" if len(example.witnesses) == 2 else "All"
    return [
        *lines,
        "",
        f"{who} see the symbol {symbol_text(base, example.symbol)}, "
        f"{'subtracting' if example.operation else 'adding'}, and"
        f"{' this window' if row.frames == 1 else ' in their last windows this'}:",
        "",
        "```text",
        draw_windows(base, example.history),
        "```",
        "",
        "The abaci themselves:",
        "",
        "```text",
        draw_abaci(example, row.variant),
        "```",
    ]


def as_json(rows: Sequence[Row], base: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Everything, in plain values."""
    return {
        "settings": settings,
        "rows": [
            {
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
                "kinds": [_kind_json(found, base) for found in row.kinds],
                "ambiguous_observations": [_example_json(one, base) for one in row.listed],
            }
            for row in rows
        ],
    }


def _kind_json(found: KindFound, base: int) -> dict[str, Any]:
    return {
        "answers": [answer.name for answer in found.kind.answers],
        "symbol": found.kind.symbol,
        "signpost": found.kind.signpost,
        "observations": found.observations,
        "example": _example_json(found.example, base),
    }


def _example_json(example: Example, base: int) -> dict[str, Any]:
    return {
        "frame_codes": list(example.history),
        "symbol": symbol_text(base, example.symbol),
        "operation": "subtract" if example.operation else "add",
        "met_by": [dict(_witness_json(*pair)) for pair in example.witnesses.items()],
    }


def _witness_json(answer: Action, witness: Witness) -> Iterator[tuple[str, Any]]:
    yield "answer", answer.name
    yield "columns", witness.columns
    yield "start", witness.start
    yield "expression", witness.expression
    yield "in_base", witness.in_base
    yield "step", witness.step


EXAMPLE = "python -m pipelines.audit --frames 1 2 3 --steps 1e6"


@dataclass(frozen=True)
class Options:
    """The command line."""

    base: int = option(5, "base of the abacus")
    columns: int = option(10, "columns of the abacus on which steps are sampled")
    max_digits: int = option(6, "digits of the longest operand sampled")
    frames: tuple[int, ...] = option(
        tuple(range(1, MAX_FRAMES + 1)), "numbers of frames to audit; 6 takes 2 GB and a minute"
    )
    variants: tuple[Variant, ...] = option(VARIANTS, "orders of signpost and write to audit")
    steps: int = option(4_000_000, "the teacher's steps to sample for each variant")
    list_up_to: int = option(200, "ambiguous observations of a row to list one by one in the JSON")
    seed: int = option(0, "seed of the operations sampled")
    output: Path = option(Path("results"), "folder to write to")

    def __post_init__(self) -> None:
        for number in self.frames:
            if not 1 <= number <= MAX_FRAMES:
                raise ValueError(f"frames={number} is not allowed: give 1 to {MAX_FRAMES}")
        if self.steps < 1:
            raise ValueError(f"steps={self.steps} is not allowed: give 1 or more")
        if self.output.exists() and not self.output.is_dir():
            raise ValueError(f"output={shown_path(self.output)} is a file: give a folder")

    @property
    def config(self) -> AbacusConfig:
        """The world that is sampled, with the most frames asked for."""
        return AbacusConfig(
            base=self.base,
            columns=self.columns,
            max_digits=self.max_digits,
            frames=max(self.frames),
        )


def main(options: Options) -> int:
    """Measures, prints, writes."""
    rows = list(
        measure(
            options.config,
            options.variants,
            sorted(set(options.frames)),
            options.steps,
            options.seed,
            options.list_up_to,
        )
    )
    print("\n".join(table_lines(rows)))
    settings = asdict(options)
    del settings["output"]
    pages = {
        "observability.json": json.dumps(as_json(rows, options.base, settings), indent=1) + "\n",
        "observability.md": markdown(rows, options.base, "python -m pipelines.audit"),
    }
    print()
    for name, text in pages.items():
        atomic_write_text(options.output / name, text)
        print(f"written  {shown_path(options.output / name)}")
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
