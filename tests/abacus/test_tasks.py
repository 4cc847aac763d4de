"""Tasks: their text, and episodes of the batched world that are drawn from a list of them."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abacus import AbacusBatch, AbacusConfig, AbacusEnv, Operation, Task
from abacus.rules import End
from tests.abacus.players import right_action
from tests.abacus.slow_reference import SlowAbacus
from tests.abacus.test_against_reference import (
    PLAYERS,
    SETTINGS,
    Story,
    assert_same_view,
    configurations,
    expressions,
    play,
)

SMALL = AbacusConfig(columns=4, base=3, max_digits=2, start="random", max_operations=3)
TASKS = (Task.parse("4 + 5"), Task.parse("80 - 26 + 1"), Task.parse("0 + 0"))


def tasks_of(*texts: str) -> list[Task]:
    return [Task.parse(text) for text in texts]


def test_the_text_of_a_task() -> None:
    task = Task(12, (Operation(1, 34), Operation(-1, 5)))
    assert str(task) == "12 + 34 - 5"
    assert task.expression == "+ 34 - 5"
    assert Task.parse(" 012+34 -5 ") == task


@given(st.integers(0, 10**5000), st.lists(st.tuples(st.sampled_from([1, -1]), st.integers(0))))
@settings(max_examples=30, deadline=None)
def test_a_task_is_its_text(start: int, operations: list[tuple[int, int]]) -> None:
    task = Task(start, tuple(Operation(*pair) for pair in [*operations, (1, 10**4999)]))
    assert Task.parse(str(task)) == task


@pytest.mark.parametrize(
    "text", ["", "12", "+ 3 + 4", "12 + -3", "1: + 2", "1.5 + 2", "1 + 2 +", "x"]
)
def test_other_text_is_no_task(text: str) -> None:
    with pytest.raises(ValueError, match=r"task=.* is not allowed: give a value and operations"):
        Task.parse(text)


@pytest.mark.parametrize(("start", "operations"), [(-1, (Operation(1, 1),)), (1.5, ()), (1, ())])
def test_impossible_tasks_raise(start: Any, operations: Any) -> None:
    with pytest.raises(ValueError, match="give"):
        Task(start, operations)


Lists = tuple[list[tuple[int, str]], list[int], float]


@st.composite
def task_lists(draw: st.DrawFn, config: AbacusConfig) -> Lists:
    """Draw tasks, integer weights and a share; sometimes no tasks."""
    tasks = []
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, config.capacity - 1))
        tasks.append((start, draw(expressions(config.base, config.columns, start))))
    weights = draw(st.lists(st.integers(0, 3), min_size=len(tasks), max_size=len(tasks)))
    if not any(weights):
        weights = [1] * len(tasks)
    return tasks, weights, draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]))


def give(batch: AbacusBatch, references: Sequence[SlowAbacus], lists: Lists) -> None:
    tasks, weights, share = lists
    given_tasks = [
        Task.parse(f"{start} {text}" if text[0] == "-" else f"{start} + {text}")
        for start, text in tasks
    ]
    batch.set_tasks(given_tasks, weights, share)
    for reference in references:
        reference.give_tasks(*lists)


@settings(SETTINGS, max_examples=60)
@given(
    st.data(),
    configurations().filter(lambda config: config.expression is None),
    st.integers(0, 2**32 - 1),
    st.sampled_from(sorted(PLAYERS)),
)
def test_tasks_never_differ_from_the_reference(
    data: st.DataObject, config: AbacusConfig, seed: int, player: str
) -> None:
    """Compare autoreset abaci while their list is replaced again and again."""
    batch = AbacusBatch(config, 3)
    references = [SlowAbacus(config) for _ in range(3)]
    rng = random.Random(seed)
    story = Story(config, seed)
    if data.draw(st.booleans()):
        give(batch, references, data.draw(task_lists(config)))
    batch.reset(seed)
    for i, reference in enumerate(references):
        reference.reset(seed + i)
    for step in range(60):
        for i, reference in enumerate(references):
            assert_same_view(batch, i, reference, story)
        if step % 20 == 10:
            give(batch, references, data.draw(task_lists(config)))
            for reference in references:
                reference.task = None
        actions = [int(play(player, reference, rng)) for reference in references]
        story.episodes.append(actions)
        batch.step(np.array(actions))
        ended = {}
        for i, reference in enumerate(references):
            reference.step(actions[i])
            assert batch.ends[i] == reference.end, story
            if reference.end is not End.NONE:
                ended[i] = -1 if reference.task is None else reference.task
                reference.reset()
                # The kernel writes the end of the step, the reference that of the new episode.
                reference.end = End(int(batch.ends[i]))
        assert dict(zip(batch.ended.tolist(), batch.final_tasks.tolist(), strict=True)) == ended


def test_shares_and_weights() -> None:
    batch = AbacusBatch(SMALL, 20_000)
    batch.set_tasks(TASKS, np.array([1.0, 3.0, 0.0]), share=0.25)
    batch.reset(0)
    starts = np.bincount(batch.scalars["start_row"], minlength=4) / 20_000
    assert starts == pytest.approx([0.75, 0.0625, 0.1875, 0.0], abs=0.01)
    assert starts[3] == 0
    batch.set_tasks(TASKS, [1e308, 1e308, 1e308])
    batch.reset(0)
    starts = np.bincount(batch.scalars["start_row"], minlength=4) / 20_000
    assert starts == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=0.01)
    assert starts[0] == 0


def test_without_tasks_nothing_changes() -> None:
    """The random streams are those of a batch that never had a list."""
    plain, cleared = AbacusBatch(SMALL, 50), AbacusBatch(SMALL, 50)
    cleared.set_tasks(TASKS)
    cleared.set_tasks([])
    for batch in (plain, cleared):
        batch.reset(3)
        for _ in range(200):
            batch.step(np.array([right_action(batch, i) for i in range(50)]))
    assert np.array_equal(plain.digits, cleared.digits)
    assert np.array_equal(plain.scalars, cleared.scalars)


def play_on(batch: AbacusBatch, steps: int) -> list[Any]:
    """Step with right actions; return the states."""
    states = []
    for _ in range(steps):
        batch.step(np.array([right_action(batch, i) for i in range(batch.num_envs)]))
        states.append((batch.out.rows.tobytes(), batch.scalars.tolist(), batch.digits.tolist()))
    return states


def half_way() -> AbacusBatch:
    """Return a batch in the middle of tasks of a list that was replaced."""
    batch = AbacusBatch(SMALL, 8)
    batch.set_tasks(TASKS[1:], share=0.8)
    batch.reset(0)
    play_on(batch, 12)
    batch.set_tasks(tasks_of("1 + 1 + 26", "40 - 1"), [1, 2], share=0.6)
    play_on(batch, 2)
    assert (batch.scalars["program_first"] < 0).any()
    return batch


def test_copies_continue_in_the_same_way() -> None:
    batch = half_way()
    others = [copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))]
    expected = play_on(batch, 60)
    for other in others:
        assert play_on(other, 60) == expected


def test_a_new_batch_continues_from_saved_arrays() -> None:
    batch = half_way()
    saved = batch.tasks_state()
    world = [array.copy() for array in batch.world]
    expected = play_on(batch, 60)
    other = AbacusBatch(SMALL, 8)
    other.reset(99)
    other.load_tasks_state(saved)
    for array, values in zip(other.world, world, strict=True):
        array[...] = values
    assert play_on(other, 60) == expected


def test_load_ends_the_drawing_of_tasks() -> None:
    batch = AbacusBatch(SMALL, 2)
    batch.set_tasks(TASKS)
    one = np.array([1, 1], np.int32)
    batch.load(np.ones((2, 4), np.uint8), np.array([[1, 0], [2, 0]], np.uint8), one, one * 0)
    batch.reset(0)
    assert batch.digits.tolist() == [[1, 1, 1, 1]] * 2
    assert batch.scalars["symbol"].tolist() == [1, 2]


def test_long_operands_get_a_longer_step_budget() -> None:
    config = AbacusConfig(columns=20, max_digits=2)
    batch = AbacusBatch(config, 1)
    batch.set_tasks(tasks_of("3 + 24"))
    batch.reset(0)
    assert batch.scalars["budget"][0] == config.step_budget == 64
    batch.set_tasks(tasks_of(f"3 + {5**19 - 1}"))
    batch.reset(0)
    assert batch.scalars["budget"][0] == replace(config, max_digits=19).step_budget == 76
    assert batch.scalars["operand_length"][0] == 19


def test_a_single_environment_plays_tasks() -> None:
    env = AbacusEnv()
    env.batch.set_tasks(tasks_of("7 - 3"))
    env.reset(seed=0)
    end = False
    while not end:
        _, _, end, _, info = env.step(right_action(env.batch, 0))
    assert info["end"] == "EXPRESSION"
    assert env.batch.digits[0, :2].tolist() == [4, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": tasks_of("81 + 1")}, "task value 81 does not fit: give a value below"),
        ({"tasks": tasks_of("1 + 27")}, "task operand 27 has too many digits: give operands of"),
        ({"tasks": tasks_of("80 + 1")}, "task '80 [+] 1' reaches 81, which does not fit: give"),
        ({"tasks": tasks_of("1 - 2")}, "task '1 - 2' goes below zero at -2: give"),
        ({"tasks": TASKS, "share": 1.5}, "share=1.5 is not allowed: give"),
        ({"tasks": TASKS, "share": float("nan")}, "share=nan is not allowed: give"),
        ({"tasks": TASKS, "weights": [1, 2]}, r"weights have shape \(2,\): give one for each of 3"),
        ({"tasks": TASKS, "weights": [0, 0, 0]}, "weights are not allowed: give"),
        ({"tasks": TASKS, "weights": [1, 1, -1]}, "weights are not allowed: give"),
        ({"tasks": TASKS, "weights": [1, 1, float("inf")]}, "weights are not allowed: give"),
    ],
)
def test_impossible_lists_raise(arguments: dict[str, Any], message: str) -> None:
    batch = AbacusBatch(SMALL, 2)
    with pytest.raises(ValueError, match=message):
        batch.set_tasks(**arguments)
    assert not batch.rules["draw_tasks"][0]


def test_an_expression_excludes_tasks() -> None:
    with pytest.raises(ValueError, match="config has an expression"):
        AbacusBatch(AbacusConfig(expression="3+4"), 1).set_tasks(TASKS)
