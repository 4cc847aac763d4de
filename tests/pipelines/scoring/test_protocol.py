"""The evaluation protocol: its parts, interruption, memory, and learning curves."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.logger import Logger

from abacus.batch import AbacusBatch
from pipelines.learning.named_policies import find_policy
from pipelines.learning.run_folder import CsvLog
from pipelines.scoring import operations
from pipelines.scoring.operations import drawn_operations
from pipelines.scoring.players import NamedPolicy, Outcome, Player, expert_player, random_player
from pipelines.scoring.protocol import Curve, evaluate_policy, read_curve
from pipelines.scoring.request import Request
from pipelines.scoring.scores import Failures, Score, measure

SMALL = Request(
    digits=(1, 3),
    n_operations=40,
    sets=("zeros", "full-borrows"),
    n_set_operations=30,
    set_digits=4,
    n_episodes=2,
    run_limit=3,
    certificate=False,
    replay=("12+30-5",),
)


class Interrupted:
    """A player whose user presses Ctrl-C after some chunks."""

    deterministic = True

    def __init__(self, player: Player, chunks: int) -> None:
        self._player, self._left = player, chunks

    def run(self, batch: AbacusBatch, max_steps: int) -> Outcome:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return self._player.run(batch, max_steps)

    def actions(self, batch: AbacusBatch) -> Any:
        return self._player.actions(batch)


@pytest.fixture
def expert() -> NamedPolicy:
    return find_policy("teacher")


def test_all_requested_parts_are_evaluated(expert: NamedPolicy) -> None:
    results = evaluate_policy(expert, SMALL)
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


@pytest.mark.parametrize("chunks", [0, 1, 3, 5])
def test_an_interrupted_evaluation_returns_the_finished_parts(
    expert: NamedPolicy, chunks: int
) -> None:
    player = Interrupted(expert_player(), chunks)
    results = evaluate_policy(replace(expert, player=player), SMALL)
    assert results.stopped
    done = len(results.generalisation) + len(results.adversarial) + len(results.runs)
    assert done == chunks
    assert results.replays


def test_wrong_operations_are_analysed_and_replayed() -> None:
    policy = replace(find_policy("random"), player=random_player(0))
    results = evaluate_policy(policy, replace(SMALL, n_errors=5, n_episodes=0))
    assert [analysis.name for analysis in results.errors][-1] == "adversarial sets"
    for analysis in results.errors[:-1]:
        assert analysis.analysed == 5 < analysis.failures
        assert sum(analysis.classes.values()) == sum(analysis.columns.values()) == 5
    assert sum(not replay.right for replay in results.replays) >= 5


def test_the_same_seed_draws_the_same_operations() -> None:
    def drawn(request: Request) -> list[tuple[str, int, int]]:
        policy = replace(find_policy("random"), player=random_player(0))
        results = evaluate_policy(policy, replace(request, sets=(), n_episodes=0))
        return [(s.name, s.errors, s.wrong_results) for s in results.generalisation]

    assert drawn(SMALL) == drawn(SMALL)


def test_memory_does_not_grow_with_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_AT_ONCE", 500)

    def peak(count: int) -> int:
        score, failures = Score.of_length(8, count), Failures(100)
        tracemalloc.start()
        sampler = partial(drawn_operations, digits=8, base=5)
        measure(random_player(0), score, sampler, 0, frames=3, failures=failures)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert score.complete
        return most

    peak(500)
    assert peak(5_000) < 1.2 * peak(1_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_operations": 0}, "n_operations=0 is not allowed: give an integer from 1 to"),
        ({"n_set_operations": 0}, "n_set_operations=0"),
        ({"n_long_operations": 0}, "n_long_operations=0"),
        ({"n_episodes": -1}, "n_episodes=-1"),
        ({"seed": -1}, "seed=-1 is not allowed: give an integer of 0 or more"),
        ({"sets": ("zeros", "ones")}, "set 'ones' is not known"),
        ({"columns": 3}, "operands of 3 digits do not fit on 3 columns"),
        ({"digits": (0,)}, "digits=0"),
        ({"replay": ("1+1",) * 11}, "11 replays: give at most 10"),
    ],
)
def test_bad_requests_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


def test_a_replay_below_zero_is_refused(expert: NamedPolicy) -> None:
    with pytest.raises(ValueError, match="goes below zero"):
        evaluate_policy(expert, replace(SMALL, replay=("3-5",)))


def test_longer_operands_get_fewer_operations() -> None:
    request = Request(digits=(1,), n_operations=100_000)
    asked = {digits: request.operations_of(digits) for digits in (1, 16, 32, 128, 1_000, 10_000)}
    assert asked == {1: 100_000, 16: 100_000, 32: 50_000, 128: 12_500, 1_000: 1_600, 10_000: 160}
    assert replace(request, n_long_operations=7).operations_of(32) == 7
    assert replace(request, n_operations=50).operations_of(10_000) == 50


def test_an_evaluation_of_adversarial_sets_alone_has_replays() -> None:
    """Short operations of a set with room for long operands."""
    request = replace(SMALL, digits=(), n_episodes=0, sets=("zeros",), set_digits=16)
    results = evaluate_policy(find_policy("random"), request)
    assert sum(not replay.right for replay in results.replays) >= 3


def test_the_curve_of_a_training_log(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    logger = Logger(None, [CsvLog(tmp_path / "first" / "progress.csv", [])])
    for step, accuracy in ((100, 0.2), (200, 0.95), (300, 0.9)):
        logger.record("rollout/accuracy", accuracy)
        logger.dump(step)
    logger.close()
    curve = read_curve(tmp_path / "first")
    assert curve == Curve("first", (100, 200, 300), (0.2, 0.95, 0.9))
    assert (curve.steps_to(0.2), curve.steps_to(0.9), curve.steps_to(0.99)) == (100, 200, None)


def test_lines_of_other_phases_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("time/total_timesteps,rollout/accuracy,bc/loss\n10,,0.3\n20,0.5,\n")
    assert read_curve(file) == Curve("log", (20,), (0.5,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no column time/total_timesteps"),
        ("time/total_timesteps,other\n1,2\n", "has no column rollout/accuracy"),
        ("time/total_timesteps,rollout/accuracy\n", "holds no line with rollout/accuracy"),
        ("time/total_timesteps,rollout/accuracy\n1,much\n", "is damaged"),
    ],
)
def test_a_bad_log_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "log.csv"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_curve(file)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"holds no log: give the folder of a run with a progress\.csv"
    ):
        read_curve(tmp_path)
