"""The table of values: it learns from the reward alone, sees the observation alone, is cloned."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.observation import decode_frame, encode_frame, observation_arrays
from abacus.rules import ENCODING_PERIOD, Action
from pipelines.learning import value_table
from pipelines.learning.cloning import clone_every_action, takes
from pipelines.learning.policy import new_policy
from pipelines.learning.practice import Practice
from pipelines.learning.value_table import (
    ENTRIES,
    INGREDIENTS,
    ROUNDS_WITHOUT_SEARCH,
    SEGMENT,
    TableTraining,
    ValueTable,
    met_actions,
)
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import training_score
from tests.pipelines.small_world import FRAMES, TABLE_ROUNDS, WORLD, shorten_tables

LEVEL = replace(WORLD, reward="no_of")
STEPS = 2_000_000
GAMMA = 0.95


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_tables(monkeypatch)


def trained(level: Any = "no_of", seed: int = 0, steps: int = STEPS) -> ValueTable:
    training = TableTraining(replace(WORLD, reward=level), steps, GAMMA, seed)
    assert len(list(training.rounds())) == TABLE_ROUNDS
    return training.table


def accuracy_of(policy: Any) -> float:
    return training_score(GreedyTable(policy, WORLD.base, FRAMES), LEVEL, 200, 7).accuracy


def test_a_table_learns_from_the_reward_alone() -> None:
    assert accuracy_of(ValueTable(WORLD.base, FRAMES)) < 0.01
    assert accuracy_of(trained()) > 0.8
    assert accuracy_of(trained(level=("step",))) < 0.3


@pytest.mark.parametrize("level", ["no_of_sp", "no_of_sp_ms", "answer_only"])
def test_a_table_learns_where_little_is_rewarded(level: str) -> None:
    learned = trained(level)
    world = replace(WORLD, reward=level)
    greedy = GreedyTable(learned, WORLD.base, FRAMES)
    assert training_score(greedy, world, 200, 7).accuracy > 0.5


def random_codes(rng: np.random.Generator, count: int) -> Any:
    base, size = 5, (count, 3)
    codes = encode_frame(
        base,
        rng.integers(0, base + 1, size),
        rng.integers(0, base, size),
        rng.integers(0, base, size),
        rng.integers(0, ENCODING_PERIOD, size),
        rng.integers(0, 3, size),
    )
    return codes, rng.integers(0, base + 2, count), rng.integers(0, 2, count)


def moved(codes: Any, columns: Any) -> Any:
    """Return the frames as they would look a number of columns to the right."""
    left, right, row, phase, signpost = decode_frame(5, codes)
    return encode_frame(5, left, right, row, (phase + columns) % ENCODING_PERIOD, signpost)


def test_an_entry_holds_what_is_seen_but_for_the_phase_and_two_for_the_left_digit() -> None:
    """Values that are written for one observation are read for another."""
    rng = np.random.default_rng(0)
    codes, symbols, operations = random_codes(rng, 1)

    def values(codes: Any, symbols: Any = symbols, operations: Any = operations) -> Any:
        return table(observation_arrays(5, codes, symbols, operations))[0, Action.UP]

    table = ValueTable(5, 3)
    values(codes)
    table.values[table.keys >= 0, Action.UP] = 1.0
    assert values(codes) == ENTRIES
    assert values(moved(codes, 1)) == ENTRIES
    # Another direction of the last move.
    assert values(np.column_stack([codes[:, :2], moved(codes[:, 2:], 1)])) == 0
    # The oldest frame is part of two entries, the newest of all.
    left, right, row, phase, signpost = decode_frame(5, codes)
    other_row = encode_frame(5, left, right, (row + 1) % 5, phase, signpost)
    assert values(np.column_stack([other_row[:, :1], codes[:, 1:]])) == 2
    assert values(np.column_stack([codes[:, :2], other_row[:, 2:]])) == 0
    other_left = encode_frame(5, (left + 1) % 5, right, row, phase, signpost)
    assert values(np.where(left < 5, other_left, codes)) == 2
    assert values(codes, symbols=(symbols + 1) % 7) == 0
    assert values(codes, operations=1 - operations) == 0


def test_learning_equals_a_slow_implementation() -> None:
    """Returns up to the end of a segment, written once more, without exploration."""
    fast = ValueTable(WORLD.base, FRAMES)
    batches = [AbacusBatch(replace(LEVEL, max_operations=None), 5) for _ in range(2)]
    for batch in batches:
        batch.set_tasks([])
        batch.reset(3)
    fast.learn(batches[0], 4, GAMMA, 0.0, 0.05, np.ones(1, np.uint64))

    values: defaultdict[Any, float] = defaultdict(float)
    visits: defaultdict[Any, int] = defaultdict(int)
    batch = batches[1]

    def entries_of(i: int) -> list[Any]:
        frames = [decode_frame(2, int(code)) for code in batch.history[i]]
        s = batch.scalars[i]
        found = []
        for depth in (2, 1):
            seen = frames[-depth:]
            for with_left in (False, True):
                shown = [
                    (f[0] if with_left else f[0] == 2, f[1], f[2], f[4], (frames[-1][3] - f[3]) % 3)
                    for f in seen
                ]
                place = depth, with_left, int(s["symbol"]), int(s["operation"])
                found.append((place, tuple(shown)))
        return found

    def value(entries: list[Any], action: int) -> float:
        return sum(values[entry, action] for entry in entries)

    def best_of(entries: list[Any], i: int) -> int:
        legal = np.flatnonzero(batch.masks[i]).tolist()
        return max(legal, key=lambda action: value(entries, action))

    for _ in range(4):
        steps: list[Any] = []
        for _ in range(SEGMENT):
            entries = [entries_of(i) for i in range(5)]
            best = [best_of(entries[i], i) for i in range(5)]
            batch.step(np.array(best))
            result = batch.out.results
            steps.append(
                (
                    entries,
                    best,
                    result["reward"].tolist(),
                    result["terminated"].tolist(),
                    result["truncated"].tolist(),
                )
            )
        for i in range(5):
            last = entries_of(i)
            following = value(last, best_of(last, i))
            for entries, best, rewards, terminated, truncated in reversed(steps):
                own, action = entries[i], best[i]
                expected = value(own, action)
                if truncated[i]:
                    following = expected
                    continue
                following = rewards[i] + (0 if terminated[i] else GAMMA * following)
                for entry in own:
                    visits[entry, action] += 1
                    rate = max(0.05, 1 / visits[entry, action]) / ENTRIES
                    values[entry, action] += rate * (following - expected)
    learned = sorted(value for value in values.values() if value)
    assert len(learned) > 50
    assert np.allclose(np.sort(fast.values[fast.values != 0]), learned, atol=1e-4)


def test_exercises_that_fail_become_tasks() -> None:
    training = TableTraining(LEVEL, 200_000, GAMMA, 0)
    rounds = training.rounds()
    for number in range(ROUNDS_WITHOUT_SEARCH):
        assert next(rounds).failed is None
        assert all(len(batch.program.tasks) == 0 for batch in training.batches), number
    score = next(rounds)
    assert score.failed is not None
    assert 0 < score.failed <= len(training._pool)
    assert f"{score.failed:,} of 1,000 random exercises fail" in score.describe()
    assert all(len(batch.program.tasks) > 0 for batch in training.batches)
    # The table has not learned since: all of them still fail.
    assert not Practice(training.table, LEVEL).play(training._pool).solved.any()


def test_seeds_repeat_a_table_and_differ() -> None:
    first, again, other = (trained(seed=seed, steps=100_000) for seed in (0, 0, 1))
    assert np.array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)


def test_every_ingredient_can_be_left_out_and_matters() -> None:
    def values(ingredients: tuple[str, ...]) -> Any:
        training = TableTraining(LEVEL, 100_000, GAMMA, 0, ingredients)
        scores = [learned.failed for learned in training.rounds()]
        assert any(score is not None for score in scores) == ("own errors" in ingredients)
        widths = {batch.config.columns for batch in training.batches}
        assert (len(widths) > 1) == ("several widths" in ingredients)
        return training.table.values

    some = [tuple(name for name in INGREDIENTS if name != left_out) for left_out in INGREDIENTS]
    tables = [values(ingredients) for ingredients in (INGREDIENTS, *some)]
    for one, other in combinations(tables, 2):
        assert not np.array_equal(one, other)
    with pytest.raises(ValueError, match="ingredient='luck'"):
        TableTraining(LEVEL, 1, GAMMA, 0, ("luck",))


def test_a_full_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_table, "FULL", 0.0)
    with pytest.raises(ValueError, match="the table is full"):
        trained(steps=10_000)


def test_a_table_is_stored_and_damage_is_refused(tmp_path: Path) -> None:
    table, file = trained(steps=100_000), tmp_path / "table.npz"
    table.save(file)
    again = ValueTable(WORLD.base, FRAMES)
    again.load(file)
    assert len(again) == len(table)
    batch = AbacusBatch(LEVEL, 50)
    batch.reset(0)
    assert np.array_equal(table(batch.observation), again(batch.observation))
    content = file.read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"PK" + content[9:]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"table\.npz is not a table of values") as error:
            ValueTable(WORLD.base, FRAMES).load(file)
        assert "\n" not in str(error.value)


def test_all_actions_of_a_table_are_cloned() -> None:
    table = trained()
    torch.manual_seed(0)
    policy = new_policy("onehot", WORLD.base, FRAMES)
    data = met_actions(table, LEVEL, 0)
    assert clone_every_action(policy, data, lambda line: None, 4) == 0
    assert takes(policy, data).all()
    assert accuracy_of(policy) == pytest.approx(accuracy_of(table), abs=0.05)
