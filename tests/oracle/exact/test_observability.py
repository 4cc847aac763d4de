"""How ambiguous observations are: counts by hand, and pairs that two real abaci show."""

from __future__ import annotations

import numpy as np
import pytest

from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.exact.complete_set import (
    ObservationSet,
    collect,
    complete_width,
    enumerate_observations,
)
from oracle.exact.exploration import Exploration, explore
from oracle.exact.observability import (
    Ambiguity,
    SampledSteps,
    abacus_of,
    count_sampled,
    find_ambiguities,
    sample_steps,
    worked_example,
)
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


def explored(variant: Variant, frames: int) -> tuple[Exploration, ObservationSet]:
    exploration = explore(5, frames, complete_width(frames), variant)
    return exploration, collect(exploration, variant)


@pytest.mark.parametrize(("variant", "frames"), AMBIGUOUS)
def test_number_of_ambiguous_observations(variant: Variant, frames: int) -> None:
    exploration, complete = explored(variant, frames)
    found = find_ambiguities(exploration, complete)
    assert len(found) == AMBIGUOUS[variant, frames]
    assert all(len(ambiguity.situations) >= 2 for ambiguity in found)
    distances = [ambiguity.distance for ambiguity in found]
    assert distances == sorted(distances)


@pytest.mark.parametrize(("variant", "frames"), [("before", 1), ("printed", 2), ("printed", 3)])
def test_worked_examples_look_the_same_and_ask_for_different_actions(
    variant: Variant, frames: int
) -> None:
    """On real abaci: the pixels, the symbol and the operation, not the codes."""
    exploration, complete = explored(variant, frames)
    for ambiguity in one_of_each_kind(find_ambiguities(exploration, complete)):
        witnesses = worked_example(exploration, ambiguity, variant)
        abaci = [abacus_of(witness, frames, variant) for witness in witnesses.values()]
        for key in ("window", "symbol", "operation"):
            assert len({batch.observation[key].tobytes() for batch in abaci}) == 1
        answers = [expert_actions(batch, variant)[0] for batch in abaci]
        assert answers == list(witnesses)
        assert len(set(answers)) == len(answers) >= 2


def one_of_each_kind(found: list[Ambiguity]) -> list[Ambiguity]:
    return list({ambiguity.kind: ambiguity for ambiguity in reversed(found)}.values())


def test_the_printed_orders_smallest_trap() -> None:
    """After 4 + 1 = 10 all is done; after the 1 of 0 + 10 is written, the signpost is still due."""
    exploration, complete = explored("printed", 3)
    traps = [
        ambiguity
        for ambiguity in find_ambiguities(exploration, complete)
        if ambiguity.kind.answers == (Action.SIGNPOST_RIGHT, Action.SUBMIT)
    ]
    witnesses = worked_example(exploration, traps[0], "printed")
    assert {answer: witness.in_base for answer, witness in witnesses.items()} == {
        Action.SIGNPOST_RIGHT: "0 + 10",
        Action.SUBMIT: "4 + 1",
    }


def steps_on(complete: ObservationSet, rows: list[int], actions: list[Action]) -> SampledSteps:
    return SampledSteps(
        complete.histories[rows].astype(np.int16),
        complete.symbols[rows],
        complete.operations[rows],
        np.array(actions, np.uint8),
    )


def test_the_share_that_cannot_be_learned_is_that_of_the_rarer_answers() -> None:
    """Row 3 is seen five times, with three answers; row 8 twice, with one; row 9 once."""
    complete = enumerate_observations(2, 2)
    up, down, slide = Action.UP, Action.DOWN, Action.SLIDE
    rows = [3, 3, 3, 3, 3, 8, 8, 9]
    count = count_sampled(
        steps_on(complete, rows, [up, up, up, down, slide, up, up, down]), complete
    )
    assert (count.steps, count.observations, count.ambiguous) == (8, 3, 1)
    assert count.unlearnable_steps == 2
    assert count.unlearnable_share == 0.25


def test_a_sampled_observation_outside_the_set_is_not_passed_over() -> None:
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
def test_a_sample_is_as_large_as_asked_for(steps: int) -> None:
    told: list[int] = []
    sample = sample_steps(AbacusConfig(), "before", steps, 0, told.append)
    assert len(sample) == steps
    assert sum(told) >= steps
    assert len(sample.histories) == len(sample.symbols) == len(sample.operations) == steps
