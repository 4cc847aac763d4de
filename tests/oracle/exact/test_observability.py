"""Ambiguous observations: counts by hand, and pairs of real abaci with the same observation."""

from __future__ import annotations

import numpy as np
import pytest

from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.exact.complete_set import ObservationSet, enumerate_observations
from oracle.exact.observability import (
    Ambiguity,
    SampledSteps,
    count_sampled,
    find_ambiguities,
    sample_steps,
)
from oracle.exact.witness import WitnessFinder
from oracle.expert import expert_actions

#: Ambiguous observations in base 5, by variant and frames.
AMBIGUOUS = {
    ("before", 1): 2_866,
    ("before", 2): 0,
    ("before", 3): 0,
    ("printed", 1): 2_380,
    ("printed", 2): 114,
    ("printed", 3): 54,
}


def finder_of(variant: Variant, frames: int) -> WitnessFinder:
    return WitnessFinder(enumerate_observations(5, frames, variant))


@pytest.mark.parametrize(("variant", "frames"), AMBIGUOUS)
def test_number_of_ambiguous_observations(variant: Variant, frames: int) -> None:
    found = find_ambiguities(finder_of(variant, frames))
    assert len(found) == AMBIGUOUS[variant, frames]
    assert all(len(ambiguity.nearest) >= 2 for ambiguity in found)
    distances = [ambiguity.distance for ambiguity in found]
    assert distances == sorted(distances)


@pytest.mark.parametrize(("variant", "frames"), [("before", 1), ("printed", 2), ("printed", 3)])
def test_witnesses_have_the_same_observation_and_different_actions(
    variant: Variant, frames: int
) -> None:
    """Compare pixels, symbol and operation of real abaci, not codes."""
    finder = finder_of(variant, frames)
    for ambiguity in one_of_each_kind(find_ambiguities(finder)):
        witnesses = [finder.find(ambiguity.row, action) for action in ambiguity.kind.answers]
        abaci = [witness.replay(frames, variant)[0] for witness in witnesses]
        for key in ("window", "symbol", "operation"):
            assert len({batch.observation[key].tobytes() for batch in abaci}) == 1
        answers = [expert_actions(batch, variant)[0] for batch in abaci]
        assert answers == list(ambiguity.kind.answers)
        assert len(set(answers)) == len(answers) >= 2


def one_of_each_kind(found: list[Ambiguity]) -> list[Ambiguity]:
    return list({ambiguity.kind: ambiguity for ambiguity in reversed(found)}.values())


def test_smallest_ambiguity_of_the_printed_order() -> None:
    """4 + 1 = 10 is finished; in 0 + 10 the 1 is written and the signpost still has to move."""
    finder = finder_of("printed", 3)
    actions = (Action.SIGNPOST_RIGHT, Action.SUBMIT)
    found = find_ambiguities(finder)
    first = next(ambiguity for ambiguity in found if ambiguity.kind.answers == actions)
    assert [finder.find(first.row, action).in_base for action in actions] == ["0 + 10", "4 + 1"]


def steps_on(complete: ObservationSet, rows: list[int], actions: list[Action]) -> SampledSteps:
    return SampledSteps(
        complete.histories[rows].astype(np.int16),
        complete.symbols[rows],
        complete.operations[rows],
        np.array(actions, np.uint8),
    )


def test_unlearnable_steps_are_those_with_a_rarer_action() -> None:
    """Row 3 occurs five times with three actions, row 8 twice with one, row 9 once."""
    complete = enumerate_observations(2, 2)
    up, down, slide = Action.UP, Action.DOWN, Action.SLIDE
    rows = [3, 3, 3, 3, 3, 8, 8, 9]
    count = count_sampled(
        steps_on(complete, rows, [up, up, up, down, slide, up, up, down]), complete
    )
    assert (count.steps, count.observations, count.ambiguous) == (8, 3, 1)
    assert count.unlearnable_steps == 2
    assert count.unlearnable_share == 0.25


def test_a_sampled_observation_outside_the_set_raises() -> None:
    complete = enumerate_observations(2, 2)
    steps = steps_on(complete, [0, 1], [Action.UP, Action.UP])
    steps.symbols[0] = 7
    with pytest.raises(AssertionError, match="1 sampled observations are not in the complete set"):
        count_sampled(steps, complete)


def test_a_sample_with_more_frames_serves_for_fewer() -> None:
    few, many = (sample_steps(AbacusConfig(frames=k), "printed", 5_000, 0) for k in (2, 6))
    assert np.array_equal(few.histories, many.histories[:, -2:])
    complete = enumerate_observations(5, 2, "printed")
    assert count_sampled(few, complete) == count_sampled(many, complete)


@pytest.mark.parametrize("steps", [1, 1_000, 5_000])
def test_a_sample_has_the_requested_size(steps: int) -> None:
    steps_reported: list[int] = []
    sample = sample_steps(AbacusConfig(), "before", steps, 0, steps_reported.append)
    assert len(sample) == steps
    assert sum(steps_reported) >= steps
    assert len(sample.histories) == len(sample.symbols) == len(sample.operations) == steps
