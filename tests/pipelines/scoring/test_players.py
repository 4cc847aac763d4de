"""Players: a memory changes nothing but the time, and every one keeps to the rules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from abacus.rules import Action, End
from oracle.exact.certificate import Observations
from pipelines.scoring.operations import drawn_operations, step_limit
from pipelines.scoring.players import GreedyTable, asking_player, random_player, teacher_player


def scores_without_sense(observations: Observations) -> npt.NDArray[np.float32]:
    """Scores that look at everything a policy may look at, the same for the same observation."""
    seen = np.hstack([observations[key] for key in ("window", "symbol", "operation")])
    weights = np.random.default_rng(3).normal(size=(seen.shape[1], len(Action)))
    return (seen @ weights).astype(np.float32)


def test_a_memory_changes_nothing() -> None:
    operations = drawn_operations(60, 4, 5, np.random.default_rng(0))
    limit = 300
    with_memory = GreedyTable(scores_without_sense, 5, 3).run(operations.batch(3), limit)
    without = asking_player(scores_without_sense).run(operations.batch(3), limit)
    assert (with_memory.digits == without.digits).all()
    assert (with_memory.ends == without.ends).all()
    assert (with_memory.first_mistakes == without.first_mistakes).all()
    assert (with_memory.scalars["steps"] == without.scalars["steps"]).all()
    assert len(set(with_memory.ends.tolist())) > 1 or with_memory.first_mistakes.any()


def test_a_table_says_what_it_does() -> None:
    batch = drawn_operations(40, 3, 5, np.random.default_rng(1)).batch(3)
    table, asked = GreedyTable(scores_without_sense, 5, 3), asking_player(scores_without_sense)
    for _ in range(30):
        actions = table.actions(batch)
        assert (actions == asked.actions(batch)).all()
        batch.step(actions)


def test_the_teacher_solves_everything_and_makes_no_mistake() -> None:
    batch = drawn_operations(100, 12, 5, np.random.default_rng(0)).batch(3)
    outcome = teacher_player().run(batch, step_limit(batch.config))
    assert (outcome.solved == 1).all()
    assert not outcome.first_mistakes.any()
    assert (outcome.ends == End.EXPRESSION).all()


def test_the_random_player_keeps_to_the_rules_and_fails() -> None:
    batch = drawn_operations(100, 4, 5, np.random.default_rng(0)).batch(3)
    outcome = random_player(0).run(batch, step_limit(batch.config))
    assert outcome.illegal_actions == 0
    assert (outcome.solved == 1).mean() < 0.1
    assert outcome.first_mistakes.any()


def test_a_player_that_goes_in_circles_is_ended() -> None:
    def up_and_down(observations: Observations) -> npt.NDArray[np.float32]:
        scores = np.zeros((len(observations["symbol"]), len(Action)), np.float32)
        scores[:, [Action.UP, Action.DOWN]] = 1
        return scores

    batch = drawn_operations(3, 2, 5, np.random.default_rng(0)).batch(3)
    outcome = asking_player(up_and_down).run(batch, 40)
    assert (outcome.ends == End.BUDGET).all()
    assert (outcome.scalars["steps"] == 40).all()


def test_abaci_that_start_anew_are_refused() -> None:
    batch = drawn_operations(1, 2, 5, np.random.default_rng(0)).batch(3)
    batch.autoreset = True
    with pytest.raises(ValueError, match="autoreset"):
        teacher_player().run(batch, 10)
