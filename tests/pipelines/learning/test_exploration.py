"""The bonus for rarely tried actions, by level; retries resume what failed, where it failed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action
from pipelines.learning.exploration import RETRY_STEPS, CountBonus, Retries
from pipelines.learning.rollouts import MISTAKES

ABACI = 32
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


def states_of(batch: AbacusBatch) -> list[str]:
    """Return the state of each abacus as text, without its count of solved operations."""
    scalars = batch.scalars.copy()
    scalars["operations_solved"] = 0
    arrays = batch.state_arrays() | {"scalars": scalars}
    columns = [map(str, array.tolist()) for array in arrays.values()]
    return ["".join(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_retries_resume_the_share_of_failed_episodes_from_their_last_states(share: float) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    config = AbacusConfig(reward="no_of", start="random")
    batch = AbacusBatch(config, ABACI, autoreset=False)
    batch.reset(0)
    retries = Retries(batch, share)
    # States of each abacus since its last reset, the newest last.
    seen: list[list[str]] = [[] for _ in range(ABACI)]
    failed = resumed = spent = 0
    distances = Counter[int]()
    for _ in range(300):
        retries.remember(batch)
        for states, state in zip(seen, states_of(batch), strict=True):
            states.append(state)
        # Most actions are moves of the finger, so that some episodes run out of steps.
        scores = rng.random(batch.masks.shape) * np.array([3, 3, 3, 3, 1, 1, 1, 1])
        batch.step((scores * batch.masks).argmax(axis=1))
        ended = batch.ended.copy()
        mistakes = np.isin(batch.ends[ended], MISTAKES)
        before = states_of(batch)
        again = retries.resume(batch, ended)
        after, resumed_now = states_of(batch), np.setdiff1d(ended, again)
        assert all(after[i] == before[i] for i in range(ABACI) if i not in resumed_now)
        batch.reset(which=again)
        now = states_of(batch)
        for i, mistake in zip(ended.tolist(), mistakes.tolist(), strict=True):
            failed += mistake
            spent += not mistake
            if i in again:
                assert not retries.resumed[i]
                seen[i] = []
                continue
            assert mistake
            assert retries.resumed[i]
            resumed += 1
            assert batch.scalars["operations_solved"][i] == 0
            last = seen[i][-RETRY_STEPS:]
            assert now[i] in last
            distances[len(last) - last.index(now[i])] += 1
    assert spent > 0
    assert resumed / failed == pytest.approx(share, abs=0.08)
    assert set(distances) == set(range(1, RETRY_STEPS + 1))


def test_a_resumed_abacus_goes_on_as_it_would_have_from_there() -> None:
    torch.manual_seed(0)
    config = AbacusConfig(reward="no_of", start="random")
    compared = 0
    for seed in range(20):
        batch, twin = AbacusBatch(config, 1, autoreset=False), AbacusBatch(config, 1)
        retries = Retries(batch, 0.999)
        batch.reset(seed)
        retries.remember(batch)
        # A submit with nothing written is a mistake.
        batch.step(np.array([Action.SUBMIT]))
        if not (len(batch.ended) and batch.ends[0] in MISTAKES):
            continue
        assert len(retries.resume(batch, batch.ended.copy())) == 0
        twin.reset(seed)
        for action in (Action.RIGHT, Action.DOWN, Action.SLIDE):
            batch.step(np.array([action]))
            twin.step(np.array([action]))
            if len(twin.ended):
                break
            assert states_of(batch) == states_of(twin)
            compared += 1
    assert compared > 20


def test_nothing_is_resumed_that_was_forgotten() -> None:
    torch.manual_seed(0)
    batch = AbacusBatch(AbacusConfig(reward="no_of", start=1), 1, autoreset=False)
    batch.reset(0)
    retries = Retries(batch, 0.999)
    retries.remember(batch)
    batch.step(np.array([Action.RIGHT]))
    retries.forget()
    retries.remember(batch)
    state = states_of(batch)
    batch.step(np.array([Action.SIGNPOST_RIGHT]))
    assert batch.ends[0] in MISTAKES
    assert len(retries.resume(batch, batch.ended.copy())) == 0
    assert states_of(batch) == state
