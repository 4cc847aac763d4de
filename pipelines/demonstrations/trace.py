"""One demonstration to read or to watch: an operation, replayed step by step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TextIO

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.numerals import base_numeral, decimal_numeral
from abacus.render import AbacusView, render_ansi, view_of
from abacus.rules import Action
from abacus.view import visible_columns
from oracle.demos import Demonstrations

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
