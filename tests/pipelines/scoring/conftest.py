"""Shared fixtures: single operations given in numbers, and the expert as a greedy policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from abacus.kernel import ADD, SUBTRACT
from abacus.rules import Action
from abacus.tasks import digits_of
from oracle.exact.certificate import Observations
from oracle.exact.complete_set import complete_set
from pipelines.scoring.operations import OperationSet
from pipelines.scoring.players import GreedyTable

KEYS = ("window", "symbol", "operation")


@pytest.fixture
def given_operation() -> Callable[[int, int], OperationSet]:
    """Return a function from a start and a signed operand to an operation in base 5."""

    def make(start: int, operand: int) -> OperationSet:
        numerals = digits_of(start, 5), digits_of(abs(operand), 5)
        starts, operands = np.zeros((2, 1, max(map(len, numerals))), np.uint8)
        starts[0, : len(numerals[0])], operands[0, : len(numerals[1])] = numerals
        kind = ADD if operand > 0 else SUBTRACT
        lengths = np.array([len(numerals[1])], np.int32)
        return OperationSet(5, starts, operands, lengths, np.array([kind], np.int32))

    return make


@pytest.fixture(scope="session")
def expert_answers() -> Callable[[Observations], Any]:
    """Return the expert's answers in base 2 with 2 frames; submits where it is never asked."""
    observations = complete_set(2, 2)
    arrays = observations.observations()
    rows = np.concatenate([arrays[key] for key in KEYS], axis=1)
    known = {row.tobytes(): action for row, action in zip(rows, observations.actions, strict=True)}

    def answers(seen: Observations) -> Any:
        rows = np.concatenate([seen[key] for key in KEYS], axis=1)
        return np.array([known.get(row.tobytes(), Action.SUBMIT) for row in rows])

    return answers


@pytest.fixture
def expert_table(expert_answers: Callable[[Observations], Any]) -> GreedyTable:
    """Return a table that answers as the expert does, in base 2 with 2 frames."""
    return GreedyTable(expert_answers, 2, 2)
