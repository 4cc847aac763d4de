"""What is said of a game, in words that the terminal, the files and the page share."""

from __future__ import annotations

from abacus.numerals import base_numeral, decimal_numeral
from abacus.rules import Action, End
from abacus.tasks import Operation, digits_of
from pipelines.playing.game import Game, Reading

#: Digits of a value that are written out; Python itself refuses a few thousand.
_WRITTEN_OUT = 1000
_OPERAND_LIMIT = 24

_ENDS = {
    End.EXPRESSION: "wrong",
    End.BUDGET: "ran out of steps",
    End.CAPACITY: "stopped: after a mistake, the next number does not fit",
    End.NONE: "stopped before the end",
}


def action_words(action: Action) -> str:
    return action.name.lower().replace("_", " ")


def percent(probability: float) -> str:
    """`99.98 %`; never 100 for what is not certain."""
    shown = min(100 * probability, 99.99) if probability < 1 else 100.0
    return f"{shown:.2f} %"


def decimal_text(value: int) -> str:
    """The value with separators, or about as much where it is very long."""
    if value < 10**_WRITTEN_OUT:
        return f"{value:,}"
    return f"about {decimal_numeral(digits_of(value, 10), 10, _WRITTEN_OUT).text}"


def base_text(value: int, base: int, limit: int = _WRITTEN_OUT) -> str:
    return base_numeral(digits_of(value, base), limit).text


def operation_text(operation: Operation, limit: int = _OPERAND_LIMIT) -> str:
    """`+567`, in decimal."""
    operand = decimal_numeral(digits_of(operation.operand, 5), 5, limit).text
    return f"{operation.symbol}{operand.replace(',', '')}"


def reading_text(reading: Reading) -> str:
    """What the symbol shown is a part of."""
    if reading.operation is None:
        return "reset, then the end"
    if reading.digit is None:
        return f"reset, then {operation_text(reading.operation)}"
    return f"{operation_text(reading.operation)}, its digit {reading.digit + 1} of {reading.digits}"


def verdict(game: Game) -> str:
    """How it came out, in a line."""
    base, steps = game.config.base, f"{game.steps:,} step{'s' if game.steps != 1 else ''}"
    shown = f"{decimal_text(game.value)} ({base_text(game.value, base)} in base {base})"
    truth = f"{decimal_text(game.truth)} ({base_text(game.truth, base)} in base {base})"
    if game.solved:
        return f"right in {steps}: the abacus shows {shown}, and that is the truth"
    how = _ENDS[game.end]
    return f"{how} after {steps}: the abacus shows {shown}, but the truth is {truth}"
