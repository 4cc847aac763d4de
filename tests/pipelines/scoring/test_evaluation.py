"""A whole evaluation: what it asks for, how it is stopped, what it keeps in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abacus.batch import AbacusBatch
from pipelines.learning.named_policies import NamedPolicy, find_policy
from pipelines.scoring import operations
from pipelines.scoring.operations import drawn_operations
from pipelines.scoring.players import Outcome, Player, random_player, teacher_player
from pipelines.scoring.protocol import Evaluation, Request
from pipelines.scoring.scores import Failures, Score, measure

SMALL = Request(
    digits=(1, 3),
    operations=40,
    sets=("zeros", "full-borrows"),
    set_operations=30,
    set_digits=4,
    episodes=2,
    run_limit=3,
    certificate=False,
    replays=("12+30-5",),
)


class Interrupted:
    """A player whose user presses Ctrl-C after some portions."""

    repeatable = True

    def __init__(self, player: Player, portions: int) -> None:
        self._player, self._left = player, portions

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return self._player.run(batch, max_steps)

    def actions(self, batch: AbacusBatch) -> Any:
        return self._player.actions(batch)


@pytest.fixture
def teacher() -> NamedPolicy:
    return find_policy("teacher")


def test_everything_that_is_asked_for_is_there(teacher: NamedPolicy) -> None:
    results = Evaluation(teacher, SMALL).run()
    assert [score.digits for score in results.generalisation] == [1, 3]
    assert [score.name for score in results.adversarial] == ["zeros", "full-borrows"]
    assert all(score.complete and score.errors == 0 for score in results.generalisation)
    assert all(score.additions == score.subtractions == 20 for score in results.generalisation)
    assert [runs.operations for runs in results.runs] == ["both", "add", "subtract"]
    assert results.errors == []
    assert not results.stopped
    assert results.replays[0].title == "12+30-5 (decimal)"
    assert results.replays[0].truth == "122"
    assert 2 < len(results.replays) <= 10
    assert all(replay.right for replay in results.replays)


@pytest.mark.parametrize("portions", [0, 1, 3, 5])
def test_stopped_it_gives_what_it_has(teacher: NamedPolicy, portions: int) -> None:
    player = Interrupted(teacher_player(), portions)
    results = Evaluation(replace(teacher, player=player), SMALL).run()
    assert results.stopped
    done = len(results.generalisation) + len(results.adversarial) + len(results.runs)
    assert done == portions
    assert results.replays


def test_wrong_operations_are_analysed_and_replayed() -> None:
    policy = replace(find_policy("random"), player=random_player(0))
    results = Evaluation(policy, replace(SMALL, analysed=5, episodes=0)).run()
    assert [analysis.name for analysis in results.errors][-1] == "adversarial sets"
    for analysis in results.errors[:-1]:
        assert analysis.analysed == 5 < analysis.failures
        assert sum(analysis.classes.values()) == sum(analysis.columns.values()) == 5
    assert sum(not replay.right for replay in results.replays) >= 5


def test_the_same_seed_draws_the_same_operations() -> None:
    def drawn(request: Request) -> list[tuple[str, int, int]]:
        policy = replace(find_policy("random"), player=random_player(0))
        results = Evaluation(policy, replace(request, sets=(), episodes=0)).run()
        return [(s.name, s.errors, s.wrong_results) for s in results.generalisation]

    assert drawn(SMALL) == drawn(SMALL)


def test_memory_does_not_grow_with_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_AT_ONCE", 500)

    def peak(count: int) -> int:
        score, failures = Score("8 digits", 8, count), Failures(100)
        tracemalloc.start()
        measure(
            random_player(0),
            score,
            lambda portion, rng: drawn_operations(portion, 8, 5, rng),
            np.random.default_rng(0),
            frames=3,
            failures=failures,
        )
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert score.complete
        return most

    peak(500)
    assert peak(5_000) < 1.2 * peak(1_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operations": 0}, "operations=0 is not allowed: give 1 or more"),
        ({"set_operations": 0}, "set_operations=0"),
        ({"long_operations": 0}, "long_operations=0"),
        ({"episodes": -1}, "episodes=-1"),
        ({"sets": ("zeros", "ones")}, "set 'ones' is not known"),
        ({"columns": 3}, "operands of 3 digits do not fit on 3 columns"),
        ({"digits": (0,)}, "digits=0"),
        ({"replays": ("1+1",) * 11}, "11 replays: give at most 10"),
    ],
)
def test_bad_requests_are_told_in_a_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


def test_a_replay_that_cannot_be(teacher: NamedPolicy) -> None:
    with pytest.raises(ValueError, match="goes below zero"):
        Evaluation(teacher, replace(SMALL, replays=("3-5",))).run()


def test_longer_operands_get_fewer_operations() -> None:
    request = Request(digits=(1,), operations=100_000)
    asked = {digits: request.operations_of(digits) for digits in (1, 16, 32, 128, 1_000, 10_000)}
    assert asked == {1: 100_000, 16: 100_000, 32: 50_000, 128: 12_500, 1_000: 1_600, 10_000: 160}
    assert replace(request, long_operations=7).operations_of(32) == 7
    assert replace(request, operations=50).operations_of(10_000) == 50
