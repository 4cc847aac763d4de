"""The expert compared with Python's integers, on random and adversarial operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pytest

from abacus.batch import AbacusBatch
from abacus.kernel import ADD, SUBTRACT
from abacus.rules import Action
from benchmarks.trials import (
    Expert,
    Tally,
    Trials,
    adversarial_trials,
    random_trials,
    run_trials,
    value,
)
from oracle.algorithm import VARIANTS, Variant
from oracle.expert import expert_actions

REQUIRED_OPERATIONS = 20_000
#: Trials on wide abaci, where a trial takes thousands of steps.
WIDE_TRIALS = 48


def expert_of(variant: Variant) -> Expert:
    return lambda batch: expert_actions(batch, variant)


def sizes() -> Iterable[tuple[int, int, Variant]]:
    """Yield (base, columns, variant): every base on narrow abaci, three on wide ones."""
    for number, base in enumerate(range(2, 11)):
        for columns in (2, 3, 6, 10):
            yield base, columns, VARIANTS[(number + columns) % 2]
    for number, base in enumerate((2, 5, 10)):
        yield base, 60, VARIANTS[number % 2]
    yield 7, 1_000, "before"


def trials_of(rng: np.random.Generator, base: int, columns: int) -> Trials:
    """Return trials, a fifth of them random, the others adversarial."""
    adversarial = adversarial_trials(rng, base, columns)
    if columns > 10:
        adversarial = adversarial[rng.permutation(len(adversarial))[:WIDE_TRIALS]]
    return adversarial + random_trials(rng, base, columns, len(adversarial) // 4)


def test_no_error_in_twenty_thousand_operations() -> None:
    rng = np.random.default_rng(3)
    total = Tally()
    for base, columns, variant in sizes():
        tally = run_trials(trials_of(rng, base, columns), expert_of(variant))
        assert tally.errors == 0, f"base {base}, {columns} columns, {variant}: {tally}"
        total += tally
    assert total.operations >= REQUIRED_OPERATIONS


#: By hand, in base 5 on four columns: start, operation, operand.
ADVERSARIAL_EXAMPLES = {
    "a carry over all columns": ("0444", ADD, "001"),
    "a borrow over all columns": ("1000", SUBTRACT, "001"),
    "a carry for every digit": ("0444", ADD, "444"),
    "zeros inside the operand": ("0444", ADD, "404"),
    "zeros inside the value": ("4004", SUBTRACT, "404"),
    "equal operands, subtracted": ("0444", SUBTRACT, "444"),
    "equal operands, added": ("0101", ADD, "101"),
    "operands of one digit": ("0004", ADD, "004"),
    "zero added to zero": ("0000", ADD, "000"),
    "the greatest value, and its greatest change": ("4444", SUBTRACT, "444"),
}


@pytest.mark.parametrize("name", ADVERSARIAL_EXAMPLES)
def test_adversarial_trials_include(name: str) -> None:
    start, operation, operand = ADVERSARIAL_EXAMPLES[name]
    trials = adversarial_trials(np.random.default_rng(0), 5, 4)
    held = {
        (value(trials.starts[row], 5), int(trials.operations[row]), value(trials.operands[row], 5))
        for row in range(len(trials))
    }
    assert (int(start, 5), operation, int(operand, 5)) in held


def test_random_trials_have_both_operations_and_every_length() -> None:
    trials = random_trials(np.random.default_rng(0), 5, 6, 2_000)
    assert set(trials.operations.tolist()) == {ADD, SUBTRACT}
    assert set(trials.lengths.tolist()) == {1, 2, 3, 4, 5}


def test_digits_are_read_least_significant_first() -> None:
    assert value(np.array([1, 4, 0], np.uint8), 5) == 21


Actions = npt.NDArray[np.int64]


def detours(batch: AbacusBatch, actions: Actions) -> Actions:
    """Make one wrong finger move at the start, and no other mistake."""
    astray = (batch.scalars["steps"] == 0) & (batch.scalars["first_wrong"] > 0)
    return np.where(astray, Action.DOWN, actions)


def slides_early(batch: AbacusBatch, actions: Actions) -> Actions:
    """Slide wherever it is legal, instead of moving to the row."""
    may = batch.masks[:, Action.SLIDE] & (actions <= Action.DOWN)
    return np.where(may, Action.SLIDE, actions)


def never_submits(batch: AbacusBatch, actions: Actions) -> Actions:
    """Move up instead of submitting, also at the edge."""
    return np.where(actions == Action.SUBMIT, Action.UP, actions)


@pytest.mark.parametrize(
    ("fault", "caught_as"),
    [(detours, "wrong_terms"), (slides_early, "wrong_actions"), (never_submits, "wrong_ends")],
)
def test_a_faulty_expert_is_detected(
    fault: Callable[[AbacusBatch, Actions], Actions], caught_as: str
) -> None:
    trials = random_trials(np.random.default_rng(0), 5, 6, 200)
    tally = run_trials(trials, lambda batch: fault(batch, expert_actions(batch)))
    assert getattr(tally, caught_as) > 0


def test_a_faulty_environment_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the abaci of other trials: the results differ from Python's."""
    rng = np.random.default_rng(0)
    trials, others = random_trials(rng, 5, 6, 50), random_trials(rng, 5, 6, 50)
    foreign = others.batch()
    monkeypatch.setattr(Trials, "batch", lambda _: foreign)
    tally = run_trials(trials, expert_actions)
    assert tally.wrong_results > 80
    assert tally.wrong_actions > 40


def test_trials_of_unequal_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"give \(2, 3\) and \(2,\)"):
        Trials(5, np.zeros((2, 4), np.uint8), np.zeros((2, 4), np.uint8), np.zeros(2, np.int32))
