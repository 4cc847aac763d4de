"""The abacus for an expression: as wide as it takes, and bad expressions refused in a line."""

from __future__ import annotations

from abacus.rules import AbacusConfig
from abacus.tasks import EXAMPLE, Operation, digits_of, parse_expression

#: The width that agents are trained on; a narrower abacus would only look strange.
USUAL_COLUMNS = 10


def config_for(
    expression: str, base: int = 5, frames: int = 3, columns: int | None = None
) -> AbacusConfig:
    """The world in which an expression is computed from 0; raises ValueError for a bad one."""
    operations = parse_expression(expression)
    _check_never_negative(operations)
    return AbacusConfig(
        columns=columns or max(USUAL_COLUMNS, columns_needed(operations, base)),
        base=base,
        frames=frames,
        expression=expression,
        # A mistake must not end the show: what comes out is compared with the truth.
        on_error="continue",
    )


def columns_needed(operations: tuple[Operation, ...], base: int) -> int:
    """Columns on which every operand leaves one free, and every running value fits."""
    value, longest = 0, 1
    for operation in operations:
        value += operation.sign * operation.operand
        longest = max(
            longest, 1 + len(digits_of(operation.operand, base)), len(digits_of(value, base))
        )
    return max(2, longest)


def true_value(operations: tuple[Operation, ...]) -> int:
    """What the expression comes to."""
    return sum(operation.sign * operation.operand for operation in operations)


def _check_never_negative(operations: tuple[Operation, ...]) -> None:
    value = 0
    for number, operation in enumerate(operations, start=1):
        value += operation.sign * operation.operand
        if value < 0:
            raise ValueError(
                f"the expression goes below zero at number {number}, and an abacus shows no "
                f"negative value: give one that never does, such as {EXAMPLE}"
            )
