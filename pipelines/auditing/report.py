"""The audit as a table for the terminal, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from abacus.rules import Action
from oracle.algorithm import Variant
from oracle.observations import complete_width
from oracle.witness import Witness
from pipelines.auditing.drawing import ANSWERS, draw_abaci, draw_windows, symbol_text, told
from pipelines.auditing.measure import Example, KindFound, Row

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
