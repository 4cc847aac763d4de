"""Certificates: an exact policy gets one, another policy gets counterexamples."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from sb3_contrib import MaskablePPO

from abacus.env import AbacusEnv
from abacus.rules import Action
from abacus.sb3 import AbacusVecEnv
from oracle.algorithm import BatchWindow, reference_algorithm
from oracle.exact.certificate import Certificate, Counterexample, certify, digest_of
from oracle.exact.complete_set import ObservationSet, enumerate_observations

Observations = dict[str, npt.NDArray[np.float32]]


class TablePolicy:
    """Look the expert's actions up by pixels, as a policy that has learned everything."""

    def __init__(self, observations: ObservationSet) -> None:
        whole = observations.observations()
        self.answers = {
            self.key(whole, row): int(action) for row, action in enumerate(observations.actions)
        }

    @staticmethod
    def key(seen: Observations, row: int) -> bytes:
        return b"".join(seen[name][row].tobytes() for name in ("window", "symbol", "operation"))

    def __call__(self, seen: Observations) -> npt.NDArray[np.int64]:
        return np.array([self.answers[self.key(seen, row)] for row in range(len(seen["symbol"]))])


@pytest.fixture(scope="module")
def expert(observations: ObservationSet) -> TablePolicy:
    return TablePolicy(observations)


def test_the_expert_is_exact(observations: ObservationSet, expert: TablePolicy) -> None:
    certificate = certify(expert, observations)
    assert certificate.exact
    assert certificate.observations == 99_784
    assert certificate.disagreements == 0
    assert certificate.counterexamples == ()
    assert certificate.set_digest == observations.digest


def test_one_wrong_action_gives_a_counterexample(
    observations: ObservationSet, expert: TablePolicy
) -> None:
    """Run the counterexample again: the policy is right up to its step, and wrong there."""
    broken_row = 50_000
    broken_key = TablePolicy.key(observations.observations(), broken_row)

    def broken(seen: Observations) -> npt.NDArray[np.int64]:
        actions = expert(seen)
        for row in range(len(actions)):
            if TablePolicy.key(seen, row) == broken_key:
                actions[row] = (actions[row] + 1) % len(Action)
        return actions

    certificate = certify(broken, observations)
    assert not certificate.exact
    assert certificate.disagreements == 1
    (example,) = certificate.counterexamples
    assert example.frames == tuple(observations.histories[broken_row].tolist())
    env = gym.make(
        "Abacus-v0",
        columns=example.columns,
        max_digits=example.columns - 1,
        start=example.start,
        expression=example.expression,
    )
    seen, _ = env.reset(seed=0)
    assert isinstance(env.unwrapped, AbacusEnv)
    algorithm = reference_algorithm(BatchWindow(env.unwrapped.batch))
    for _ in range(example.step):
        action = next(algorithm)
        assert broken({key: value[None] for key, value in seen.items()})[0] == action
        seen, *_ = env.step(action)
    answer = broken({key: value[None] for key, value in seen.items()})[0]
    assert Action(int(answer)).name == example.policy_action
    assert next(algorithm).name == example.teacher_action
    assert example.policy_action != example.teacher_action


def test_margin_is_the_smallest_difference_of_scores(
    observations: ObservationSet, expert: TablePolicy
) -> None:
    def scores(seen: Observations) -> npt.NDArray[np.float64]:
        actions = expert(seen)
        table = np.zeros((len(actions), len(Action)))
        table[np.arange(len(actions)), actions] = 3.0
        first = TablePolicy.key(observations.observations(np.array([4])), 0)
        for row in range(len(actions)):
            if TablePolicy.key(seen, row) == first:
                table[row, actions[row]] = 0.25
        return table

    certificate = certify(scores, observations)
    assert certificate.exact
    assert certificate.smallest_margin == 0.25


def test_visibly_illegal_actions_are_masked(
    observations: ObservationSet, expert: TablePolicy
) -> None:
    def prefers_illegal(seen: Observations) -> npt.NDArray[np.float64]:
        actions = expert(seen)
        table = np.zeros((len(actions), len(Action)))
        table[np.arange(len(actions)), actions] = 1.0
        window = seen["window"].reshape(-1, 3, 2, 2, 6)[:, -1]
        at_padding = window[:, 0, 0, 0] == 0.0
        table[at_padding, Action.LEFT] = 9.0
        return table

    assert certify(prefers_illegal, observations).exact


def test_an_sb3_policy_is_certified_by_its_logits(observations: ObservationSet) -> None:
    model = MaskablePPO("MultiInputPolicy", AbacusVecEnv(2), n_steps=8, batch_size=8, seed=0)
    certificate = certify(model, observations, counterexamples=3)
    assert not certificate.exact
    assert len(certificate.counterexamples) == 3
    assert certificate.policy_digest == digest_of(model.policy)
    assert certificate.smallest_margin is not None
    nearest = certificate.counterexamples[0]
    assert nearest.step <= certificate.counterexamples[-1].step + 1


def test_no_policy_is_exact_on_an_ambiguous_set() -> None:
    printed = enumerate_observations(2, 2, "printed")
    rows = iter(range(len(printed)))

    def best(seen: Observations) -> npt.NDArray[np.int64]:
        return np.array([printed.actions[next(rows)] for _ in seen["symbol"]])

    certificate = certify(best, printed, counterexamples=0)
    assert certificate.ambiguous > 0
    assert not certificate.exact


def test_json_round_trip(observations: ObservationSet) -> None:
    def always_submit(seen: Observations) -> npt.NDArray[np.int64]:
        return np.full(len(seen["symbol"]), int(Action.SUBMIT))

    certificate = certify(always_submit, observations, counterexamples=2)
    assert Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize(
    ("start", "expression", "calculation"),
    [
        (1, "1", "1 + 1"),
        (0, "25", "0 + 25"),
        (24, "-4+10", "24 - 4 + 10"),
        (3, "+2-5", "3 + 2 - 5"),
    ],
)
def test_a_counterexample_reads_as_a_calculation(
    start: int, expression: str, calculation: str
) -> None:
    example = Counterexample(
        columns=9,
        start=start,
        expression=expression,
        in_base="",
        step=0,
        frames=(0,),
        symbol="1",
        operation="+",
        policy_action="LEFT",
        teacher_action="RIGHT",
    )
    assert example.calculation == calculation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a certificate"),
        ({"version": 99}, "another version"),
        ({"exact": True}, "contradicts"),
        ({"disagreements": -1}, "disagreements=-1"),
        ({"surprise": 1}, "damaged"),
    ],
)
def test_a_changed_certificate_is_refused(
    change: dict[str, Any], message: str, observations: ObservationSet
) -> None:
    def always_submit(seen: Observations) -> npt.NDArray[np.int64]:
        return np.full(len(seen["symbol"]), int(Action.SUBMIT))

    content = json.loads(certify(always_submit, observations, counterexamples=0).to_json())
    with pytest.raises(ValueError, match=message):
        Certificate.from_json(json.dumps({**content, **change}))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda seen: np.zeros(3, int), "shape"),
        (lambda seen: np.zeros((len(seen["symbol"]), 7)), "shape"),
        (lambda seen: np.full(len(seen["symbol"]), 8), "outside 0 to 7"),
        (lambda seen: np.full((len(seen["symbol"]), 8), np.nan), "not finite"),
        (17, "policy=int"),
    ],
)
def test_a_policy_of_the_wrong_shape_is_refused(
    answer: Any, message: str, observations: ObservationSet
) -> None:
    with pytest.raises(ValueError, match=message):
        certify(answer, observations)


def test_a_set_with_other_frames_is_refused() -> None:
    model = MaskablePPO("MultiInputPolicy", AbacusVecEnv(2), n_steps=8, batch_size=8)
    with pytest.raises(ValueError, match="base and frames"):
        certify(model, enumerate_observations(5, 2))
