"""The reference algorithm: examples worked by hand, and agreement with the compiled expert."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.observation import SIGNPOST_LEFT, SIGNPOST_RIGHT, decode_frame
from abacus.rules import AbacusConfig, Action, End
from oracle.algorithm import VARIANTS, BatchWindow, Variant, Window, reference_algorithm
from oracle.expert import expert_actions

LEFT, RIGHT, UP, DOWN = Action.LEFT, Action.RIGHT, Action.UP, Action.DOWN
SLIDE, SUBMIT = Action.SLIDE, Action.SUBMIT
TO_LEFT, TO_RIGHT = Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT

both_variants = pytest.mark.parametrize("variant", VARIANTS)


class ObservedWindow:
    """The window decoded from the newest frame: only what an agent sees."""

    def __init__(self, batch: AbacusBatch) -> None:
        self._batch = batch
        self.base = batch.config.base

    def _frame(self) -> tuple[int, int, int, int, int]:
        return decode_frame(self.base, int(self._batch.history[0, -1]))

    @property
    def symbol(self) -> int:
        return int(np.argmax(self._batch.observation["symbol"][0]))

    @property
    def subtracting(self) -> bool:
        return bool(self._batch.observation["operation"][0, 0] == SUBTRACT)

    @property
    def right_digit(self) -> int:
        return self._frame()[1]

    @property
    def finger_row(self) -> int:
        return self._frame()[2]

    @property
    def left_is_padding(self) -> bool:
        return self._frame()[0] == self.base

    @property
    def signpost_in_left(self) -> bool:
        return self._frame()[4] == SIGNPOST_LEFT

    @property
    def signpost_in_right(self) -> bool:
        return self._frame()[4] == SIGNPOST_RIGHT


def new_abacus(config: AbacusConfig, seed: int = 0) -> AbacusBatch:
    batch = AbacusBatch(config, num_envs=1, autoreset=False)
    batch.reset(seed)
    return batch


def actions_on(expression: str, start: int, variant: Variant, base: int = 5) -> list[Action]:
    """Return the actions of the generator for an expression; it must end without a mistake."""
    config = AbacusConfig(base=base, columns=5, start=start, expression=expression)
    batch = new_abacus(config)
    actions = []
    for action in reference_algorithm(BatchWindow(batch), variant):
        batch.step(np.array([action]))
        actions.append(action)
        if batch.ends[0] != End.NONE:
            break
    assert End(batch.ends[0]) is End.EXPRESSION
    return actions


@both_variants
def test_3_plus_4_in_base_5(variant: Variant) -> None:
    """Column 0 shows 3; 3 + 4 is 2 with a carry into column 1."""
    assert actions_on("4", start=3, variant=variant) == [
        *(DOWN, DOWN, SLIDE, RIGHT),
        *(UP, SLIDE, SUBMIT),
        *(LEFT, SUBMIT),
    ]


@both_variants
def test_21_minus_2_borrows(variant: Variant) -> None:
    """21 has the digits 1, 4; 1 - 2 is 4 with a borrow, which changes column 1 to 3."""
    assert actions_on("-2", start=21, variant=variant) == [
        *(DOWN, DOWN, DOWN, DOWN, SLIDE, RIGHT),
        *(UP, SLIDE, SUBMIT),
        *(LEFT, SUBMIT),
    ]


@both_variants
def test_44_plus_1_returns_from_the_carry(variant: Variant) -> None:
    """24 has the digits 4, 4: the carry ends on column 2; on column 1 the signpost is left."""
    assert actions_on("1", start=24, variant=variant) == [
        *(SLIDE, RIGHT, SLIDE, RIGHT, DOWN, SLIDE),
        *(LEFT, SUBMIT),
        *(LEFT, SUBMIT),
    ]


@both_variants
def test_nothing_to_write(variant: Variant) -> None:
    assert actions_on("0", start=3, variant=variant) == [RIGHT, SUBMIT, LEFT, SUBMIT]


@pytest.mark.parametrize(
    ("variant", "second_digit"),
    [("before", [TO_RIGHT, SLIDE]), ("printed", [SLIDE, TO_RIGHT])],
)
def test_variants_differ_only_in_the_order_of_signpost_and_write(
    variant: Variant, second_digit: list[Action]
) -> None:
    """6 has the digits 1, 1; at the second one the finger is already on row 1."""
    assert actions_on("6", start=0, variant=variant) == [
        *(DOWN, SLIDE, RIGHT, SUBMIT),
        *(*second_digit, RIGHT, SUBMIT),
        *(LEFT, LEFT, TO_LEFT, SUBMIT),
    ]


def test_printed_order_with_a_carry_on_the_second_digit() -> None:
    """A carry is not ignored when the signpost moves, unlike in print. 20 has the digits 0, 4."""
    assert actions_on("5", start=20, variant="printed") == [
        *(RIGHT, SUBMIT),
        *(SLIDE, TO_RIGHT, RIGHT, DOWN, SLIDE, SUBMIT),
        *(LEFT, LEFT, TO_LEFT, SUBMIT),
    ]


@both_variants
def test_base_2_carries_through(variant: Variant) -> None:
    """7 has the digits 1, 1, 1: the carry goes up to column 3."""
    assert actions_on("1", start=7, variant=variant, base=2) == [
        *(SLIDE, RIGHT, SLIDE, RIGHT, SLIDE, RIGHT, DOWN, SLIDE),
        *(LEFT, LEFT, SUBMIT),
        *(LEFT, SUBMIT),
    ]


def assert_agreement(batch: AbacusBatch, window: Window, variant: Variant, steps: int) -> None:
    for number, action in enumerate(islice(reference_algorithm(window, variant), steps)):
        context = f"step {number} of {batch.config}, {variant}"
        assert expert_actions(batch, variant)[0] == action, context
        batch.step(np.array([action]))
        assert not batch.illegal[0], context
        assert (batch.outcomes[0] >= 0).all(), context
        if batch.ends[0] != End.NONE:
            assert End(batch.ends[0]) is End.CAPACITY, context
            batch.reset()


@both_variants
@pytest.mark.parametrize("base", range(2, 11))
@pytest.mark.parametrize("columns", [2, 3, 10, 21])
def test_the_expert_agrees_with_the_generator(variant: Variant, base: int, columns: int) -> None:
    config = AbacusConfig(base=base, columns=columns, max_digits=columns - 1, start="random")
    batch = new_abacus(config, seed=base)
    assert_agreement(batch, BatchWindow(batch), variant, steps=250)


@both_variants
@pytest.mark.parametrize("operations", ["add", "subtract"])
def test_the_expert_agrees_with_the_generator_on_a_single_operation(
    variant: Variant, operations: str
) -> None:
    """With subtraction only, abaci are reloaded."""
    config = AbacusConfig.from_dict({"columns": 6, "max_digits": 5, "operations": operations})
    batch = new_abacus(config)
    assert_agreement(batch, BatchWindow(batch), variant, steps=600)


@both_variants
def test_the_generator_needs_only_the_observation(variant: Variant) -> None:
    batch = new_abacus(AbacusConfig(start="random"))
    assert_agreement(batch, ObservedWindow(batch), variant, steps=600)


def test_an_unknown_variant_is_refused() -> None:
    batch = new_abacus(AbacusConfig())
    unknown: Variant = "after"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="'after' is not allowed: give one of before, printed"):
        next(reference_algorithm(BatchWindow(batch), unknown))
    with pytest.raises(ValueError, match="'after' is not allowed"):
        expert_actions(batch, unknown)
