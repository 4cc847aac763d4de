"""The bonus for rarely tried actions: what is counted, what is paid, and at which level."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action
from pipelines.learning.exploration import CountBonus

SIGNPOST = {Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT}


@pytest.mark.parametrize(
    ("reward", "paid"),
    [
        ("dense", {*SIGNPOST, Action.SLIDE, Action.SUBMIT}),
        ("no_of", {*SIGNPOST, Action.SLIDE, Action.SUBMIT}),
        ("no_of_sp", {Action.SLIDE, Action.SUBMIT}),
        ("no_of_sp_ms", {Action.SLIDE, Action.SUBMIT}),
        ("answer_only", {Action.SUBMIT}),
        ("step,slide", set()),
    ],
)
def test_actions_are_paid_that_the_level_judges(reward: str, paid: set[Action]) -> None:
    bonus = CountBonus(AbacusConfig(reward=reward), 1.0)
    assert {action for action in Action if bonus.paid[action]} == paid


def test_the_bonus_is_beta_by_the_root_of_the_visits() -> None:
    config = AbacusConfig(base=2, columns=3, max_digits=1, start="random")
    batch = AbacusBatch(config, 50)
    batch.reset(0)
    bonus = CountBonus(config, 0.5)
    rng = np.random.default_rng(0)
    visits: Counter[tuple[int, ...]] = Counter()
    for _ in range(40):
        actions = (rng.random(batch.masks.shape) * batch.masks).argmax(axis=1)
        keys = zip(
            batch.history[:, -1].tolist(),
            batch.scalars["symbol"].tolist(),
            batch.scalars["operation"].tolist(),
            actions.tolist(),
            strict=True,
        )
        expected = []
        for key in keys:
            visits[key] += 1
            expected.append(0.5 / visits[key] ** 0.5 if key[3] > Action.DOWN else 0.0)
        assert bonus.pay(batch, actions) == pytest.approx(expected)
        batch.step(actions)
    judged = {key: count for key, count in visits.items() if key[3] > Action.DOWN}
    assert {key: bonus.visits[key] for key in judged} == judged
    assert bonus.visits.sum() == sum(judged.values())
