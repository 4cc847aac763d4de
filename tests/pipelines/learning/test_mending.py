"""Mending: rounds that end exact and resume, and a network that holds every action of a table."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from abacus.rules import AbacusConfig, Action
from oracle.exact.concrete_runs import failing_situations, likely_failures
from oracle.exact.own_runs import certify_own_runs
from oracle.exact.policy_exploration import explore_policy
from pipelines.learning import cloning as cloning_module
from pipelines.learning import mending as mending_module
from pipelines.learning.cloning import takes
from pipelines.learning.exercises import Exercise, Exercises, hard_exercises
from pipelines.learning.mending import Mending, reachable_actions
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.policy_files import load_run
from pipelines.learning.practice import Practice
from pipelines.learning.settings import CloningSettings, MendingSettings
from pipelines.learning.value_table import TableTraining
from tests.pipelines.small_world import WORLD as SMALL
from tests.pipelines.small_world import shorten_tables

WORLD = AbacusConfig(reward="no_of", start="random")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer updates and exercises than in a run: the policies here are nearly the teacher's."""
    short = replace(cloning_module.EVERY_ACTION, updates=800)
    monkeypatch.setattr(cloning_module, "EVERY_ACTION", short)
    for name in ("RANDOM_EXERCISES", "VARIATIONS"):
        monkeypatch.setattr(mending_module, name, 20_000)
    monkeypatch.setattr(mending_module, "FEW_COLUMNS", 6)


@pytest.fixture(scope="module")
def exact() -> AbacusPolicy:
    return load_run()


@pytest.fixture(scope="module")
def spoilt(exact: AbacusPolicy) -> AbacusPolicy:
    """The exact policy with noise in its weights: it fails some operations."""
    policy = copy.deepcopy(exact)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.network.actor.parameters():  # type: ignore[union-attr]
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.35 * parameter.std() * noise)
    return policy


SETTINGS = MendingSettings(
    rounds=6, tried=2_000, exercises=60, cloning=CloningSettings(updates=600)
)


def spoilt_table(exact: AbacusPolicy) -> Mending:
    """Return the mending of an exact policy whose table submits too early in two observations."""
    mending = Mending(exact, WORLD, SETTINGS, 0)
    pair = Exercises.of([Exercise.parse("10: 3 + 1"), Exercise.parse("10: 30 - 4")])
    rows = mending.practice.play(pair, depth=50).trail[:, 0]
    mending.practice.table.prefer(rows, np.full(2, Action.SUBMIT))
    return mending


def test_a_round_ends_exact_also_after_an_interruption(exact: AbacusPolicy) -> None:
    resumed = Mending(exact, WORLD, SETTINGS, 0)
    resumed.load_state(spoilt_table(exact).state())
    assert resumed.run()
    (score,) = resumed.rounds
    assert score.verdict == "exact"
    assert score.failed > 0
    assert score.corrections > 0
    assert len(resumed.practised) > 0
    assert resumed.policy.network_name == "wide"
    assert certify_own_runs(resumed.policy, level="no_of").exact


def test_an_exact_policy_is_left_as_it_is(exact: AbacusPolicy) -> None:
    mending = Mending(exact, WORLD, SETTINGS, 0)
    assert mending.run()
    assert mending.policy is exact
    assert [each.corrections for each in mending.rounds] == [0]


def test_a_policy_that_solves_nothing_ends_at_once() -> None:
    mending = Mending(new_policy("onehot", 5, 3), WORLD, MendingSettings(rounds=5, tried=50), 0)
    assert not mending.run()
    (score,) = mending.rounds
    assert score.failed > 45
    assert score.corrections == 0


def test_all_actions_of_a_table_are_cloned(exact: AbacusPolicy) -> None:
    """Also one that is unlike all others, and a second choice."""
    mending = Mending(exact, WORLD, MendingSettings(), 0)
    table, run = mending.practice.table, Exercises.of([Exercise.parse("10: 3 + 1")])
    rows = mending.practice.play(run, depth=50).trail[0]
    codes = table.codes_of(rows[:2])
    table.prefer(rows[:1], np.array([Action.DOWN]))
    data = reachable_actions(mending.practice, "no_of")
    assert mending.clone_table(4, exact=True) == 0
    assert mending.policy.network_name == "wide"
    assert takes(mending.policy, data).all()
    cloned = Practice(mending.policy, WORLD).table.scores_of(codes)
    assert cloned[0].argmax() == Action.DOWN


def test_reachable_actions_have_masks_of_what_was_illegal(exact: AbacusPolicy) -> None:
    """An action is the best one that its mask allows."""
    data = reachable_actions(Practice(exact, WORLD), "no_of")
    assert len(data) >= 99_784
    assert takes(exact, data).all()
    assert bool(data.masks[torch.arange(len(data)), data.actions].all())


def test_likely_failures_are_found_without_a_search(spoilt: AbacusPolicy) -> None:
    practice = Practice(spoilt, WORLD)
    explored = explore_policy(practice.asked(), 5, 3, "no_of", stop_at_failures=2_000)
    failing = failing_situations(explored, 20)
    assert 0 < len(failing) <= 80
    assert len(set(explored.observation_of[failing].tolist())) >= 20
    likely = [Exercise(task, columns) for columns, task in likely_failures(explored, failing)]
    solved = practice.play(Exercises.of(likely)).solved
    assert (~solved).sum() > 10


def test_mending_needs_a_level(exact: AbacusPolicy) -> None:
    world = replace(WORLD, reward=("submit", "wrong_submit"))
    with pytest.raises(ValueError, match="reward level"):
        Mending(exact, world, MendingSettings(rounds=1), 0).run()


def test_a_table_of_values_is_what_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its network knows nothing here; a resumed mending has the same table."""
    shorten_tables(monkeypatch)
    monkeypatch.setattr(mending_module, "MOST_POOLS", 5)
    for name in ("RANDOM_EXERCISES", "VARIATIONS"):
        monkeypatch.setattr(mending_module, name, 2_000)
    world = replace(SMALL, reward="no_of")
    training = TableTraining(world, 300_000, 0.95, 0)
    for _ in training.rounds():
        pass
    network = new_policy("onehot", SMALL.base, SMALL.frames)
    settings = MendingSettings(rounds=1, tried=500)
    mending = Mending(network, world, settings, 0, training.table)
    exercises = hard_exercises(np.random.default_rng(1), 2_000, world)
    before = mending.practice.play(exercises).solved.mean()
    assert before > 0.3
    resumed = Mending(network, world, settings, 0, training.table)
    resumed.load_state(mending.state())
    assert resumed.practice.play(exercises).solved.mean() == before
    mending.run()
    assert mending.rounds[0].corrections > 0
    assert mending.policy.network_name == "wide"
    assert mending.practice.play(exercises).solved.mean() > before
    assert Practice(mending.policy, world).play(exercises).solved.mean() > 0.1
