"""The exploration: it starts where episodes start, follows the expert, and keeps paths."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from abacus.kernel import ON_OPERATION_SYMBOL
from abacus.rules import Action
from oracle.algorithm import VARIANTS, Variant
from oracle.exact import exploration as module
from oracle.exact.exploration import (
    DIGIT_INDEX,
    FINGER_COLUMN,
    FINGER_ROW,
    NO_PARENT,
    OPEN,
    SIGNPOST,
    Exploration,
    Tree,
    explore,
    follow,
)

#: Situations by base, frames and width, of `before` and `printed`.
SITUATIONS = {(2, 1, 4): (430, 410), (2, 3, 8): (3_930, 3_822), (5, 2, 7): (153_398, 127_398)}


@pytest.mark.parametrize("size", SITUATIONS)
@pytest.mark.parametrize("number", range(len(VARIANTS)))
def test_number_of_situations(size: tuple[int, int, int], number: int) -> None:
    assert len(explore(*size, VARIANTS[number]).actions) == SITUATIONS[size][number]


@pytest.fixture(scope="module", params=VARIANTS)
def exploration(request: pytest.FixtureRequest) -> Exploration:
    variant: Variant = request.param
    return explore(3, 2, 7, variant)


def test_situations_are_distinct(exploration: Exploration) -> None:
    assert len(np.unique(exploration.situations, axis=0)) == len(exploration.situations)


def test_starts_are_those_of_episodes(exploration: Exploration) -> None:
    """On the first digit, before any move, with equal frames: any digit, any symbol."""
    starts = exploration.situations[exploration.parents == NO_PARENT]
    for place in (FINGER_COLUMN, FINGER_ROW, SIGNPOST):
        assert not starts[:, place].any()
    assert (starts[:, DIGIT_INDEX] == 1).all()
    frames = exploration.histories[exploration.parents == NO_PARENT]
    assert (frames == frames[:, :1]).all()
    shown = exploration.digits[exploration.parents == NO_PARENT, 0]
    operations = exploration.operations[exploration.parents == NO_PARENT]
    symbols = exploration.symbols[exploration.parents == NO_PARENT]
    met = set(zip(operations.tolist(), shown.tolist(), symbols.tolist(), strict=True))
    assert met == {(o, d, s) for o in range(2) for d in range(3) for s in range(3)}


def test_the_path_to_a_situation_consists_of_expert_actions(exploration: Exploration) -> None:
    last = len(exploration.actions) - 1
    for situation in (0, 17, last // 2, last):
        path = exploration.path_to(situation)
        numbers = [
            int(np.flatnonzero((exploration.situations == row).all(axis=1))[0]) for row in path
        ]
        assert exploration.parents[numbers[0]] == NO_PARENT
        assert numbers[-1] == situation
        for before, here in pairwise(numbers):
            assert exploration.parents[here] == before
            assert follows(exploration, before, here)


def follows(exploration: Exploration, before: int, here: int) -> bool:
    """Return whether finger and signpost moved as the expert's action does."""
    columns, rows, signposts = {
        Action.LEFT: (-1, 0, 0),
        Action.RIGHT: (1, 0, 0),
        Action.UP: (0, -1, 0),
        Action.DOWN: (0, 1, 0),
        Action.SIGNPOST_LEFT: (0, 0, -1),
        Action.SIGNPOST_RIGHT: (0, 0, 1),
    }.get(Action(int(exploration.actions[before])), (0, 0, 0))
    change = exploration.situations[here].astype(int) - exploration.situations[before]
    return (change[FINGER_COLUMN], change[FINGER_ROW], change[SIGNPOST]) == (
        columns,
        rows,
        signposts,
    )


def test_nearer_situations_come_first(exploration: Exploration) -> None:
    found = exploration.parents[exploration.parents != NO_PARENT]
    assert (np.diff(found) >= 0).all()


def test_columns_in_the_window_have_digits_and_most_others_are_open(
    exploration: Exploration,
) -> None:
    numbers = np.arange(len(exploration.actions))
    finger = exploration.situations[:, FINGER_COLUMN].astype(int)
    assert (exploration.digits[numbers, finger] != OPEN).all()
    beside = finger > 0
    assert (exploration.digits[numbers[beside], finger[beside] - 1] != OPEN).all()
    resetting = exploration.situations[:, DIGIT_INDEX].astype(int) - 1 == ON_OPERATION_SYMBOL
    assert (exploration.digits[resetting] != OPEN).sum(axis=1).max() <= 3


def test_a_tree_holds_the_paths_to_the_chosen_situations(exploration: Exploration) -> None:
    chosen = np.array([5, 17, len(exploration.actions) - 1])
    tree = exploration.tree_of(chosen)
    followed = follow(3, 2, 7, exploration.variant, tree)
    needed = {situation for one in chosen for situation in numbers_of_path(exploration, one)}
    for name in ("situations", "actions", "branches"):
        wanted = getattr(exploration, name)[sorted(needed)]
        assert np.array_equal(getattr(followed, name), wanted)
    last = len(needed) - 1
    assert np.array_equal(followed.path_to(last), exploration.path_to(int(chosen[-1])))


def test_all_situations_can_be_followed(exploration: Exploration) -> None:
    everything = np.arange(len(exploration.actions))
    followed = follow(3, 2, 7, exploration.variant, exploration.tree_of(everything))
    for name in ("situations", "parents", "actions", "branches"):
        assert np.array_equal(getattr(followed, name), getattr(exploration, name))


def numbers_of_path(exploration: Exploration, situation: int) -> list[int]:
    numbers = []
    while situation != NO_PARENT:
        numbers.append(int(situation))
        situation = exploration.parents[situation]
    return numbers


@pytest.mark.parametrize("name", ["parents", "branches"])
def test_paths_that_the_algorithm_does_not_take_are_refused(
    name: str, exploration: Exploration
) -> None:
    tree = exploration.tree_of(np.array([len(exploration.actions) - 1]))
    getattr(tree, name)[-1] += 500
    with pytest.raises(ValueError, match="paths of 1 situations are not those"):
        follow(3, 2, 7, exploration.variant, Tree(*tree))


def test_a_store_that_grows_keeps_its_situations(monkeypatch: pytest.MonkeyPatch) -> None:
    """From room for few situations to the default: many growths, the same arrays."""
    whole = explore(3, 2, 7)
    monkeypatch.setattr(module, "FIRST_CAPACITY", 512)
    grown = explore(3, 2, 7)
    for name in ("situations", "parents", "actions", "branches"):
        assert np.array_equal(getattr(grown, name), getattr(whole, name))


def test_progress_is_reported() -> None:
    calls: list[tuple[int, int]] = []
    found = explore(2, 1, 4, progress=lambda done, found: calls.append((done, found)))
    done, total = calls[-1]
    assert done == total >= len(found.actions)


def test_a_mistake_of_the_expert_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_expand", lambda *arguments: (0, -1))
    with pytest.raises(AssertionError, match="made a mistake"):
        explore(2, 1, 4)


@pytest.mark.parametrize(
    ("width", "message"),
    [(255, "width=255 is not allowed: give an integer from 2 to 254"), (1, "width=1")],
)
def test_an_impossible_width_is_refused(width: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explore(2, 1, width)
