"""Teaching by counterexamples: exact in the small world, limits, choices, resumed rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oracle.demos.dataset import Demonstrations
from oracle.exact.certificate import certify
from oracle.exact.complete_set import ObservationSet, complete_set
from oracle.exact.witness import WitnessFinder
from pipelines import teach
from pipelines.bc_then_ppo import Options
from pipelines.job.command_line import EXIT_MISTAKE, run
from pipelines.learning.cloning import copy_weights
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.settings import Choice, CloningSettings, StartWeights, TeachingSettings
from pipelines.learning.teaching import Round, Teaching
from tests.pipelines.small_world import FRAMES, WORLD, small_demonstrations

CLONING = CloningSettings(updates=150, batch_size=128)


@pytest.fixture(scope="module")
def observations() -> ObservationSet:
    return complete_set(WORLD.base, FRAMES)


def policy_of(seed: int = 0) -> AbacusPolicy:
    torch.manual_seed(seed)
    return new_policy("onehot", WORLD.base, FRAMES)


def teaching_of(
    observations: ObservationSet, demonstrations: Demonstrations | None = None, **settings: Any
) -> Teaching:
    teaching = TeachingSettings(**{"counterexamples": 10, **settings})
    return Teaching(policy_of(), observations, demonstrations, teaching, CLONING, seed=0)


def rows_met(teaching: Teaching) -> set[int]:
    asked = teaching.asked
    assert asked is not None
    columns = asked.transitions
    rows = teaching.observations.index(
        asked.histories(frames=FRAMES), columns["symbol"], columns["operation"]
    )
    return set(rows.tolist())


@pytest.mark.parametrize("operations", [0, 10])
def test_a_policy_is_taught_until_it_is_exact(
    observations: ObservationSet, operations: int
) -> None:
    demonstrations = small_demonstrations(operations) if operations else None
    teaching = teaching_of(observations, demonstrations)
    best = teaching.run()
    assert best.wrong == 0
    assert certify(teaching.policy, observations, counterexamples=0).exact
    assert best.operations == operations + sum(len(task.operations) for task in teaching.tasks)
    assert teaching.asked is not None
    assert best.answers == len(teaching.asked) + (
        0 if demonstrations is None else len(demonstrations)
    )
    assert [each.number for each in teaching.rounds] == list(range(len(teaching.rounds)))
    assert teaching.rounds[0].answers < best.answers


def test_the_tasks_of_a_round_meet_wrong_observations(observations: ObservationSet) -> None:
    teaching = teaching_of(observations, rounds=1)
    wrong = set(teaching._wrong_and_margins()[0].tolist())
    teaching.run()
    assert len(teaching.rounds) == 2
    assert len(teaching.tasks) == 10
    assert len(rows_met(teaching) & wrong) >= 10


def test_nearest_counterexamples_come_first(observations: ObservationSet) -> None:
    teaching = teaching_of(observations, choice="nearest", rounds=1, counterexamples=3)
    wrong = teaching._wrong_and_margins()[0]
    nearest = WitnessFinder(observations).nearest_first(wrong)[:3]
    teaching.run()
    assert set(nearest.tolist()) <= rows_met(teaching)


def test_covering_tasks_meet_more_wrong_observations_than_random_ones(
    observations: ObservationSet,
) -> None:
    def met(choice: Choice) -> int:
        teaching = teaching_of(observations, choice=choice, rounds=1)
        wrong = set(teaching._wrong_and_margins()[0].tolist())
        teaching.run()
        return len(rows_met(teaching) & wrong)

    assert met("cover") > met("random")


def test_longer_operations_meet_the_same_observation_and_more(
    observations: ObservationSet,
) -> None:
    teaching = teaching_of(observations, choice="longer")
    generator = np.random.default_rng(0)
    counts = np.zeros(2, np.int64)
    for row in range(0, len(observations), len(observations) // 20):
        (smallest,) = teaching._distinct(np.array([row]), 1)
        (longer,) = teaching._distinct(np.array([row]), 1, generator)
        met = teaching._rows_of([smallest, longer])
        assert row in met[0] & met[1]
        counts += [len(rows) for rows in met]
    assert counts[1] > 1.5 * counts[0]
    assert teaching._chosen_tasks() == teaching._chosen_tasks() != []


def test_the_smallest_margins_are_asked_for_without_the_comparison(
    observations: ObservationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tasks are chosen when the comparison with the teacher says something else."""
    teaching = teaching_of(observations, choice="margin", counterexamples=4)
    chosen = teaching._chosen_tasks()
    _, margins = teaching._wrong_and_margins()
    everything = np.arange(len(observations))
    monkeypatch.setattr(teaching, "_wrong_and_margins", lambda: (everything, margins))
    assert teaching._chosen_tasks() == chosen != []
    teaching._add(chosen)
    assert int(margins.argmin()) in rows_met(teaching)


@pytest.mark.parametrize(("limit", "value"), [("operations", 12), ("answers", 150), ("rounds", 1)])
def test_a_limit_ends_the_rounds_and_the_best_weights_are_kept(
    observations: ObservationSet, limit: str, value: int
) -> None:
    teaching = teaching_of(observations, None, **{limit: value, "counterexamples": 5})
    best = teaching.run()
    used = {"operations": best.operations, "answers": best.answers, "rounds": best.number}
    assert 0 < used[limit] <= value
    assert not teaching.exact
    wrong, _ = teaching._wrong_and_margins()
    assert len(wrong) == best.wrong == min(each.wrong for each in teaching.rounds)


def test_resumed_rounds_give_the_same_weights_and_tasks(observations: ObservationSet) -> None:
    whole = teaching_of(observations, small_demonstrations(5))
    whole.run()

    class Stop(Exception):  # noqa: N818 - not an error
        pass

    def stop(score: Round) -> None:
        if score.number == 2:
            raise Stop

    first = teaching_of(observations, small_demonstrations(5))
    with pytest.raises(Stop):
        first.run(stop)
    second = teaching_of(observations, small_demonstrations(5))
    second.load_state(first.state())
    second.run()
    assert second.tasks == whole.tasks
    without_times = [replace(each, seconds=0.0) for each in whole.rounds]
    assert [replace(each, seconds=0.0) for each in second.rounds] == without_times
    for name, tensor in whole.policy.state_dict().items():
        assert torch.equal(tensor, second.policy.state_dict()[name])


def test_kept_weights_are_those_of_the_round_before(observations: ObservationSet) -> None:
    """With a vanishing learning rate, kept weights stay and new ones do not."""
    cloning = CloningSettings(updates=1, learning_rate=1e-12)

    def distance(weights: StartWeights) -> float:
        policy = policy_of()
        before = copy_weights(policy)
        settings = TeachingSettings(rounds=1, counterexamples=2, weights=weights)
        teaching = Teaching(policy, observations, None, settings, cloning, seed=0)
        teaching._add(teaching._chosen_tasks())
        teaching._clone()
        name = "network.actor.0.weight"
        return float((policy.state_dict()[name] - before[name]).abs().max())

    assert distance("kept") < 1e-6 < distance("new")


def test_no_task_is_asked_for_twice(observations: ObservationSet) -> None:
    teaching = teaching_of(observations, counterexamples=30)
    teaching.run()
    assert len(set(teaching.tasks)) == len(teaching.tasks)
    assert np.array_equal(
        np.diff([each.operations for each in teaching.rounds]) > 0,
        np.ones(len(teaching.rounds) - 1, bool),
    )


def test_a_network_that_is_too_slow_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--network", "paper"]
    assert run(teach.main, Options, teach.__doc__, teach.EXAMPLE, argv) == EXIT_MISTAKE
    error = capsys.readouterr().err
    assert "network='paper' is too slow" in error
    assert error.count("\n") == 1
