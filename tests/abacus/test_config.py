"""Configurations, their error messages, the step budget, and conversions of numbers."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abacus.reward import LEVELS, MODULES, modules_of
from abacus.rules import AbacusConfig
from abacus.tasks import (
    Operation,
    digit_count,
    digits_of,
    numeral,
    parse_expression,
    value_of,
)

BASES = st.integers(2, 10)

IMPOSSIBLE: list[tuple[dict[str, Any], str, str]] = [
    # settings, start of the message, and what it allows
    ({"columns": 1}, "columns=1 ", "from 2 to 1000000"),
    ({"columns": 1_000_001}, "columns=1000001 ", "from 2 to 1000000"),
    ({"columns": 10**5000}, "columns=a number of 16610 bits ", "from 2 to 1000000"),
    ({"columns": 10.0}, "columns=10.0 ", "integer"),
    ({"columns": "10"}, "columns='10' ", "integer"),
    ({"columns": None}, "columns=None ", "integer"),
    ({"columns": True}, "columns=True ", "integer"),
    ({"columns": np.True_}, "columns=np.True_ ", "integer"),
    ({"columns": np.array([10, 20])}, "columns=array([10, 20]) ", "integer"),
    ({"columns": np.arange(99)}, "columns=array([ 0, 1,", "integer"),
    ({"base": 1}, "base=1 ", "from 2 to 10"),
    ({"base": 11}, "base=11 ", "from 2 to 10"),
    ({"base": False}, "base=False ", "from 2 to 10"),
    ({"max_digits": 0}, "max_digits=0 ", "from 1 to 9 (below columns=10)"),
    ({"max_digits": 10}, "max_digits=10 ", "from 1 to 9 (below columns=10)"),
    ({"columns": 6}, "max_digits=6 ", "from 1 to 5 (below columns=6)"),
    ({"max_digits": True}, "max_digits=True ", "integer"),
    ({"max_digits": "many", "expression": "3+4"}, "max_digits='many' ", "integer"),
    ({"frames": 0}, "frames=0 ", "from 1 to 16"),
    ({"frames": 17}, "frames=17 ", "from 1 to 16"),
    ({"frames": 3.0}, "frames=3.0 ", "from 1 to 16"),
    ({"operations": "multiply"}, "operations='multiply' ", "both, add, subtract"),
    ({"operations": None}, "operations=None ", "both, add, subtract"),
    ({"operations": ["add"]}, "operations=['add'] ", "both, add, subtract"),
    ({"operations": np.array(["add", "both"])}, "operations=array(", "both, add, subtract"),
    ({"on_error": "ignore"}, "on_error='ignore' ", "terminate, continue"),
    ({"on_error": True}, "on_error=True ", "terminate, continue"),
    ({"reward": "sparse"}, "reward='sparse' ", "dense, no_of, no_of_sp, no_of_sp_ms, answer_only"),
    ({"reward": "step,sparse"}, "reward='step,sparse' ", "wrong_signpost"),
    ({"reward": ""}, "reward='' ", "answer_only"),
    ({"reward": ("step", "dense")}, "reward=('step', 'dense') ", "wrong_slide"),
    ({"reward": ("step", ["slide"])}, "reward=('step', ['slide']) ", "wrong_slide"),
    ({"reward": 5}, "reward=5 ", "answer_only"),
    ({"reward": None}, "reward=None ", "answer_only"),
    ({"start": -1}, "start=-1 ", "0 or more, or 'random'"),
    ({"start": -(10**5000)}, "start=a number of 16610 bits ", "0 or more, or 'random'"),
    ({"start": 2.0}, "start=2.0 ", "0 or more, or 'random'"),
    ({"start": True}, "start=True ", "0 or more, or 'random'"),
    ({"start": None}, "start=None ", "0 or more, or 'random'"),
    ({"start": "7"}, "start='7' ", "0 or more, or 'random'"),
    ({"start": 5**10}, "start=9765625 ", "below 5**10"),
    ({"start": 10**5000}, "start=a number of 16610 bits ", "below 5**10"),
    ({"start": 5**10 - 1, "operations": "add"}, "start=9765624 ", "at most 5**10 - 5**6"),
    ({"start": 5**10 - 5**6 + 1, "operations": "add"}, "start=9750001 ", "at most 5**10 - 5**6"),
    ({"start": "random", "expression": "3+4"}, "start='random' ", "its starting value"),
    ({"max_operations": 0}, "max_operations=0 ", "from 1 to"),
    ({"max_operations": True}, "max_operations=True ", "from 1 to"),
    ({"max_operations": 2.5}, "max_operations=2.5 ", "from 1 to"),
    ({"expression": 7}, "expression=7 ", "text such as '3+4-2'"),
    ({"expression": 7.5}, "expression=7.5 ", "text such as '3+4-2'"),
    ({"expression": False}, "expression=False ", "text such as '3+4-2'"),
    ({"expression": b"3+4"}, "expression=b'3+4' ", "text such as '3+4-2'"),
    ({"expression": ["3+4"]}, "expression=['3+4'] ", "text such as '3+4-2'"),
    ({"expression": "3-4"}, "expression '3-4' goes below zero at -4", "at 0 or more"),
    ({"expression": "-1"}, "expression '-1' goes below zero at -1", "at 0 or more"),
    ({"expression": "1-9", "start": 7}, "expression '1-9' goes below zero", "from start=7"),
    (
        {"columns": 3, "expression": "24+24+24+24+24+24"},
        "expression '24+24+24+24+24+24' reaches 144",
        "below 5**3",
    ),
    ({"columns": 3, "expression": "5", "start": 120}, "expression '5' reaches 125", "below 5**3"),
    ({"columns": 3, "expression": "25"}, "expression operand 25 ", "at most 2 digits in base 5"),
    ({"expression": "9" * 5000}, "expression operand a number of 16610 bits ", "at most 9 digits"),
]

MALFORMED = [
    *("", " ", "+", "-", "3+", "3-", "a+b", "3+b", "3++4", "3+-4", "--3", "+-3", "3*4", "3/4"),
    *("3.5", "3,5", "3_000", "1e3", "0x10", "(3)", "3=3", "3 4", "1 000+2", "None", "nan", "inf"),
    *("٣+٤", "３+４", "²", "3−4", "3+4;", "3+4\x00", "3\n4"),  # noqa: RUF001
]


@pytest.mark.parametrize(("settings", "names", "allowed"), IMPOSSIBLE)
def test_impossible_configurations_raise_one_line(
    settings: dict[str, Any], names: str, allowed: str
) -> None:
    with pytest.raises(ValueError, match=r"\bgive\b") as raised:
        AbacusConfig(**settings)
    message = str(raised.value)
    assert message.startswith(names)
    assert allowed in message.partition(": give ")[2]
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_expressions_raise_with_an_example(text: str) -> None:
    for read in (parse_expression, lambda text: AbacusConfig(expression=text)):
        with pytest.raises(ValueError, match="give decimal numbers") as raised:
            read(text)
        message = str(raised.value)
        assert message.startswith(f"expression={text!r} ")
        assert "'1234+567-89'" in message
        assert "\n" not in message


def test_long_malformed_expressions_are_shortened() -> None:
    with pytest.raises(ValueError, match="expression='33333") as raised:
        parse_expression("3" * 10_000 + "+")
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "settings",
    [
        {"columns": 2, "max_digits": 1},
        {"columns": 1_000_000, "max_digits": 999_999},
        {"base": 2},
        {"base": 10},
        {"start": 5**10 - 1},
        {"start": 5**10 - 5**6, "operations": "add"},
        {"start": 5**10 - 1, "operations": "add", "expression": "0"},
        {"columns": 3, "expression": "3+4"},
        {"columns": 3, "expression": "24+24+24+24+24+4-24-24-24-24-24-4"},
        {"reward": ()},
        {"max_operations": 2**31 - 1},
    ],
)
def test_extreme_values_are_allowed(settings: dict[str, Any]) -> None:
    AbacusConfig(**settings)


def test_unknown_settings_raise() -> None:
    with pytest.raises(ValueError, match="'colums' is not a setting: give some of columns, base"):
        AbacusConfig.from_dict({"colums": 10})


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.array])
def test_numpy_integers_become_plain(kind: Any) -> None:
    names = ("columns", "base", "max_digits", "frames", "start", "max_operations")
    plain = AbacusConfig(columns=7, base=7, max_digits=6, frames=7, start=7, max_operations=7)
    given_by_numpy = AbacusConfig(**{name: kind(getattr(plain, name)) for name in names})
    assert given_by_numpy == plain
    assert hash(given_by_numpy) == hash(plain)
    assert all(type(getattr(given_by_numpy, name)) is int for name in names)


@pytest.mark.parametrize(
    "reward",
    [
        "submit,step",
        " step, submit ",
        ("submit", "step", "submit"),
        ["submit", "step"],
        {"submit", "step"},
        frozenset({"submit", "step"}),
        dict.fromkeys(["submit", "step"]),
        (name for name in ("submit", "step")),
    ],
)
def test_modules_are_normalised(reward: Any) -> None:
    config = AbacusConfig(reward=reward)
    assert config.reward == ("step", "submit")
    assert config.modules == {"step", "submit"}
    assert config == AbacusConfig(reward=("step", "submit"))


def test_each_level_is_a_subset_of_the_previous() -> None:
    levels = [modules_of(name) for name in LEVELS]
    assert levels[0] == set(MODULES)
    assert all(less < more for more, less in pairwise(levels))


@st.composite
def expressions(draw: st.DrawFn, base: int, columns: int, start: int) -> str:
    """Draw operations whose running value stays on the abacus."""
    value, text = start, ""
    for _ in range(draw(st.integers(1, 6))):
        largest = base ** (columns - 1) - 1
        signs = [sign for sign, room in (("+", base**columns - 1 - value), ("-", value)) if room]
        sign = draw(st.sampled_from(signs))
        room = value if sign == "-" else base**columns - 1 - value
        operand = draw(st.integers(0, min(largest, room)))
        value += operand if sign == "+" else -operand
        text += f"{sign}{operand}"
    return text


@st.composite
def configurations(draw: st.DrawFn) -> AbacusConfig:
    base, columns = draw(BASES), draw(st.integers(2, 30))
    max_digits = draw(st.integers(1, columns - 1))
    operations: Literal["both", "add", "subtract"] = draw(
        st.sampled_from(("both", "add", "subtract"))
    )
    room = base**max_digits if operations == "add" else 1
    start = draw(st.integers(0, base**columns - room))
    modules = st.sets(st.sampled_from(MODULES)).map(tuple)
    return AbacusConfig(
        columns=columns,
        base=base,
        max_digits=max_digits,
        frames=draw(st.integers(1, 16)),
        operations=operations,
        reward=draw(st.sampled_from(tuple(LEVELS)) | modules),
        on_error=draw(st.sampled_from(("terminate", "continue"))),
        **draw(
            st.just({"start": start})
            | st.just({"start": "random"})
            | expressions(base, columns, start).map(
                lambda text: {"start": start, "expression": text}
            )
        ),
        max_operations=draw(st.none() | st.integers(1, 2**31 - 1)),
    )


@given(configurations())
def test_configurations_round_trip(config: AbacusConfig) -> None:
    assert AbacusConfig.from_dict(config.to_dict()) == config
    assert AbacusConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert dataclasses.replace(config) == config
    assert len({config, AbacusConfig.from_dict(config.to_dict())}) == 1
    assert set(config.to_dict()) == {field.name for field in dataclasses.fields(AbacusConfig)}


@given(configurations())
def test_derived_properties(config: AbacusConfig) -> None:
    assert config.capacity == config.base**config.columns
    assert config.symbols == config.base + 2
    assert config.window_shape == (config.frames, 2, 2, config.base + 1)
    assert config.modules <= set(MODULES)
    assert config.longest_operand < config.columns
    value = 0 if config.start == "random" else config.start
    for operation in config.program:
        value += operation.sign * operation.operand
        assert 0 <= value < config.capacity


def test_configurations_are_frozen() -> None:
    config = AbacusConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.columns = 20  # type: ignore[misc]


@contextmanager
def decimal_text_of_any_length() -> Iterator[None]:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def operations_of(pairs: list[tuple[int, int]]) -> tuple[Operation, ...]:
    return tuple(Operation(sign, operand) for sign, operand in pairs)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from((1, -1)), st.integers(0, 10**60)), min_size=1, max_size=8
)


@given(OPERATIONS, st.sampled_from(("", " ", "\t")), st.integers(0, 3))
def test_expressions_are_parsed(pairs: list[tuple[int, int]], space: str, zeros: int) -> None:
    terms = [f"{'+' if sign > 0 else '-'}{space}{'0' * zeros}{operand}" for sign, operand in pairs]
    text = space.join(terms)
    assert parse_expression(text) == operations_of(pairs)
    if pairs[0][0] > 0:
        assert parse_expression(text.removeprefix("+")) == operations_of(pairs)


def test_operations_have_a_symbol() -> None:
    assert [operation.symbol for operation in parse_expression("1-2+3")] == ["+", "-", "+"]


@pytest.mark.parametrize("settings", [(0, 3), (2, 3), (1, -3)])
def test_impossible_operations_raise(settings: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is not allowed: give"):
        Operation(*settings)


# Python refuses to convert more than 4300 decimal digits.
@pytest.mark.parametrize("length", [3999, 4000, 4001, 4300, 4301, 8000, 12_345])
def test_long_numbers_are_parsed_and_fit_on_a_wide_abacus(length: int) -> None:
    text = "".join(random.Random(length).choices("0123456789", k=length - 1))
    with decimal_text_of_any_length():
        value = int("7" + text)
    assert parse_expression(f"7{text}-0{text}") == operations_of(
        [(1, value), (-1, value - 7 * 10 ** (length - 1))]
    )
    config = AbacusConfig(columns=2 * length, expression="7" + text)
    assert config.program == operations_of([(1, value)])
    assert config.longest_operand == len(digits_of(value, 5))
    assert numeral(value, 10) == "7" + text
    assert value_of(digits_of(value, 5), 5) == value


@given(st.integers(0, 10**300) | st.integers(0, 1000), BASES)
def test_digits_agree_with_python(value: int, base: int) -> None:
    digits = digits_of(value, base)
    assert sum(digit * base**index for index, digit in enumerate(digits)) == value
    assert all(0 <= digit < base for digit in digits)
    assert len(digits) == 1 or digits[-1] != 0
    assert int(numeral(value, base), base) == value
    assert value_of(digits, base) == value
    assert value_of(np.array([*digits, 0, 0], dtype=np.int8), base) == value


@pytest.mark.parametrize("base", [2, 3, 5, 10])
@pytest.mark.parametrize("length", [1, 499, 500, 501, 999, 1000, 1001, 2000, 4321])
def test_long_numbers_around_powers_of_the_base(base: int, length: int) -> None:
    for value, count in ((base**length - 1, length), (base**length, length + 1)):
        digits = digits_of(value, base)
        assert len(digits) == digit_count(value, base) == count
        assert value_of(digits, base) == value
    assert digit_count(0, base) == 1


def test_long_numbers_are_converted_in_less_than_quadratic_time() -> None:
    """300,000 digits took 18 s when every conversion walked over all of the number."""
    began = time.process_time()
    (operation,) = parse_expression("7" * 300_000)
    assert value_of(digits_of(operation.operand, 5), 5) == operation.operand
    assert time.process_time() - began < 6


@pytest.mark.parametrize("base", [-1, 0, 1])
def test_digits_need_base_two_or_more(base: int) -> None:
    with pytest.raises(
        ValueError, match=f"base={base} is not allowed: give an integer of 2 or more"
    ):
        digits_of(5, base)


def test_negative_values_and_large_bases_raise() -> None:
    with pytest.raises(ValueError, match="value=-1 is not allowed"):
        digits_of(-1, 5)
    with pytest.raises(ValueError, match="base=11 is not allowed"):
        numeral(5, 11)


def walk(config: AbacusConfig, program: tuple[Operation, ...]) -> list[tuple[str, int]]:
    """The steps at which the reference algorithm slides and resets, counted and not acted out.

    For each digit: signpost to the finger's column, write, step right, carry on while there is a
    carry, walk back until the signpost is in the left column, submit. For an operation symbol:
    walk to column 0, bring the signpost there, submit.
    """
    digits = [*digits_of(int(config.start), config.base), *[0] * config.columns][: config.columns]
    step = column = row = signpost = 0
    grants = []
    for operation in program:
        for index, digit in enumerate(digits_of(operation.operand, config.base)):
            step, signpost, amount = step + index - signpost, index, digit
            while True:
                carry, wanted = divmod(digits[column] + operation.sign * amount, config.base)
                if wanted != digits[column]:
                    step, row = step + abs(wanted - row) + 1, wanted
                    digits[column] = wanted
                    grants.append(("slide", step))
                if column == index or carry:
                    column, step = column + 1, step + 1
                if not carry:
                    break
                amount = 1
            step, column = step + column - (index + 1) + 1, index + 1
        step, column, signpost = step + column + signpost + 1, 0, 0
        grants.append(("reset", step))
    return grants


def test_budget_is_the_papers_on_ten_columns_and_grows_with_the_width() -> None:
    assert AbacusConfig().step_budget == 32
    assert AbacusConfig(columns=20).step_budget == 64
    assert AbacusConfig(max_digits=9).step_budget == 36
    assert AbacusConfig(expression="1").step_budget == 32


def test_budget_from_slides_only_would_be_too_small() -> None:
    """Resets extend the budget because each of these operations takes 34 steps and one slide."""
    program = parse_expression("+12500-12500" * 4)
    grants = walk(AbacusConfig(), program)
    assert [step for kind, step in grants if kind == "reset"] == [34 * n for n in range(1, 9)]
    slides = [step for kind, step in grants if kind == "slide"]
    assert len(slides) == 8
    assert [step <= 32 * (n + 1) for n, step in enumerate(slides)] == [True] * 7 + [False]


@pytest.mark.parametrize("base", [2, 3, 5, 10])
@pytest.mark.parametrize(("columns", "max_digits"), [(2, 1), (10, 6), (10, 9), (20, 19), (40, 3)])
def test_budget_suffices_for_the_reference_algorithm(
    base: int, columns: int, max_digits: int
) -> None:
    rng = random.Random(columns * base)
    for _ in range(200):
        # Long carries and long runs of zeros take the most steps.
        value = start = base ** (columns - 1) - rng.randrange(1, base)
        program = []
        for _ in range(6):
            leading = rng.randrange(1, base) * base ** (rng.randint(1, max_digits) - 1)
            operand = leading + (rng.randrange(base) if leading >= base else 0)
            sign = rng.choice([1, -1]) if value >= operand else 1
            if value + sign * operand >= base**columns:
                break
            program.append(Operation(sign, operand))
            value += sign * operand
        config = AbacusConfig(columns=columns, base=base, max_digits=max_digits, start=start)
        steps = [0, *(step for _, step in walk(config, tuple(program)))]
        gaps = [after - before for before, after in pairwise(steps)]
        assert max(gaps, default=0) <= config.step_budget
