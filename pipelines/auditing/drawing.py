"""Worked examples as text: what is seen, and the abaci on which it is seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL
from abacus.observation import SIGNPOST_LEFT, SIGNPOST_RIGHT, decode_frame
from abacus.render import render_ansi, view_of
from abacus.render_text import BEAD, ENCODING, FLAG, GAP, PADDING
from abacus.rules import ENCODING_PERIOD, Action
from oracle.algorithm import Variant
from oracle.ambiguity import abacus_of
from oracle.expert import expert_actions
from oracle.witness import Witness
from pipelines.auditing.measure import Example

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
