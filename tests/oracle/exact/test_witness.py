"""Every observation of the set has a witness: a concrete operation that leads to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from abacus import AbacusEnv
from abacus.kernel import ADD, SUBTRACT
from oracle.algorithm import BatchWindow, Variant, reference_algorithm
from oracle.exact import witness as module
from oracle.exact.complete_set import (
    ObservationSet,
    complete_set,
    complete_width,
    enumerate_observations,
)
from oracle.exact.exploration import Exploration, explore
from oracle.exact.witness import WitnessFinder, witness_width


@pytest.mark.parametrize(
    ("base", "frames", "variant"), [(2, 3, "before"), (2, 2, "printed"), (3, 1, "before")]
)
def test_every_observation_of_a_small_set_has_a_witness(
    base: int, frames: int, variant: Variant
) -> None:
    finder = WitnessFinder(enumerate_observations(base, frames, variant))
    for row in range(len(finder.observations)):
        witness = finder.find(row)
        assert finder.confirms(witness, row)
        assert witness.columns <= witness_width(frames)


@pytest.mark.parametrize("operation", [ADD, SUBTRACT])
def test_every_observation_of_one_operation_has_a_witness(operation: int) -> None:
    whole = enumerate_observations(2, 2)
    finder = WitnessFinder(whole.of_operation(operation))
    assert 0 < len(finder.observations) < len(whole)
    for row in range(len(finder.observations)):
        assert finder.confirms(finder.find(row), row)


def test_a_set_that_was_not_explored_is_refused() -> None:
    whole = enumerate_observations(2, 2)
    changed = replace(whole, histories=whole.histories + 1)
    with pytest.raises(ValueError, match="that its exploration does not"):
        WitnessFinder(changed).find(0)


def test_a_sample_of_the_default_set_has_witnesses(observations: ObservationSet) -> None:
    """`python -m benchmarks.reachability` checks all 99,784."""
    finder = WitnessFinder(observations)
    rows = np.random.default_rng(0).choice(len(finder.observations), 300, replace=False)
    for row in rows:
        finder.find(int(row))


def test_cached_paths_give_the_witnesses_of_the_exploration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = complete_set(3, 3, cache_folder=tmp_path)
    slow = WitnessFinder(known, explore(3, 3, complete_width(3)))
    wanted = {row: slow.find(row) for row in range(0, len(known), 97)}
    order = slow.nearest_first(np.arange(len(known)))

    explored: list[tuple[int, int, int, Variant]] = []

    def counted(base: int, frames: int, width: int, variant: Variant) -> Exploration:
        explored.append((base, frames, width, variant))
        return explore(base, frames, width, variant)

    monkeypatch.setattr(module, "explore", counted)
    quick = WitnessFinder(known, cache_folder=tmp_path)
    assert np.array_equal(quick.nearest_first(np.arange(len(known))), order)
    assert quick.find(0) == wanted[0]
    assert not explored
    for row, witness in wanted.items():
        assert quick.find(row) == witness
    # Few rows need more than their shortest path.
    assert len(explored) <= 1


def test_a_row_without_a_witness_on_its_shortest_path_takes_an_exploration() -> None:
    finder = WitnessFinder(enumerate_observations(5, 3))
    assert not any(candidate_confirmed(finder, 49_324))
    assert finder.confirms(finder.find(49_324), 49_324)


def candidate_confirmed(finder: WitnessFinder, row: int) -> list[bool]:
    exploration = finder.exploration
    path = exploration.path_to(int(finder.situations(row)[0]))
    found = module._candidates(exploration, path)
    return [witness is not None and finder.confirms(witness, row) for witness in found]


def test_a_witness_runs_in_the_environment_with_the_reference_algorithm(
    observations: ObservationSet,
) -> None:
    """Without code of the finder: `gymnasium.make`, the generator, the pixels."""
    finder = WitnessFinder(observations)
    for row in (0, 31_415, 99_783):
        witness = finder.find(row)
        env = gym.make("Abacus-v0", **witness.config(3).to_dict())
        seen, _ = env.reset(seed=0)
        assert isinstance(env.unwrapped, AbacusEnv)
        algorithm = reference_algorithm(BatchWindow(env.unwrapped.batch))
        for _ in range(witness.step):
            seen, _, terminated, truncated, _ = env.step(next(algorithm))
            assert not terminated
            assert not truncated
        wanted = finder.observations.observations(np.array([row]))
        for key, values in wanted.items():
            assert np.array_equal(values[0], seen[key])


def test_a_witness_that_leads_elsewhere_is_not_confirmed() -> None:
    finder = WitnessFinder(enumerate_observations(2, 3))
    witness = finder.find(5)
    assert not finder.confirms(witness, 6)


def test_nearest_first_orders_by_distance() -> None:
    finder = WitnessFinder(enumerate_observations(3, 2))
    rows = finder.nearest_first(np.arange(len(finder.observations)))
    distances = [finder.situations(int(row))[0] for row in rows]
    assert distances == sorted(distances)
    assert finder.find(int(rows[0])).step == 0
