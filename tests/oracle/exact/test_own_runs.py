"""Certificates by own runs: what is exact is, what is not fails in the environment.

EXHAUSTIVE=1 runs more policies on wider abaci.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from abacus.batch import AbacusBatch
from abacus.env import AbacusEnv
from abacus.observation import window_codes
from abacus.rules import AbacusConfig, Action, End
from oracle.exact import own_runs
from oracle.exact.certificate import certify
from oracle.exact.complete_set import ObservationSet, enumerate_observations
from oracle.exact.concrete_runs import NEVER_ENDS, FailingRun
from oracle.exact.own_runs import (
    EXACT,
    NOT_EXACT,
    NOT_PROVEN,
    Asked,
    OwnRunsCertificate,
    certify_own_runs,
)
from oracle.exact.policy_exploration import explore_policy
from pipelines.learning.named_policies import find_policy
from pipelines.scoring.players import GreedyTable
from tests.oracle.exact.shortcut_policy import shortcut_policy

Observations = dict[str, npt.NDArray[np.float32]]
LONG = os.environ.get("EXHAUSTIVE") == "1"


class TablePolicy:
    """The expert's answers with some rows changed, and one answer where the expert never is."""

    def __init__(
        self, known: ObservationSet, changes: dict[int, int] | None = None, elsewhere: int = 7
    ) -> None:
        self.known, self.elsewhere = known, elsewhere
        self.actions = known.actions.copy()
        for row, action in (changes or {}).items():
            self.actions[row] = action

    def __call__(self, seen: Observations) -> npt.NDArray[np.int64]:
        rows = self.known.index(
            window_codes(self.known.base, seen["window"]),
            np.argmax(seen["symbol"], axis=1),
            seen["operation"][:, 0].astype(np.int64),
        )
        return np.where(rows >= 0, self.actions[rows], self.elsewhere)


@pytest.fixture(scope="module")
def small() -> ObservationSet:
    return enumerate_observations(2, 2)


@pytest.fixture(scope="module")
def medium() -> ObservationSet:
    return enumerate_observations(3, 3)


def assert_fails(policy: Any, run: FailingRun, frames: int, base: int, level: str) -> None:
    """Run a failure in the Gymnasium environment, with masks, from its first step."""
    env = AbacusEnv(
        columns=run.columns,
        base=base,
        frames=frames,
        max_digits=run.columns - 1,
        reward=level,
        start=run.start,
        expression=run.expression,
    )
    seen, info = env.reset(seed=0)
    terminated = truncated = False
    taken: list[int] = []
    while not (terminated or truncated):
        given = np.asarray(policy({key: value[None] for key, value in seen.items()}))[0]
        scores = np.eye(len(Action))[given] if given.ndim == 0 else given
        action = int(np.argmax(np.where(info["action_mask"], scores, -np.inf)))
        taken.append(action)
        seen, _, terminated, truncated, info = env.step(action)
    if run.kind == NEVER_ENDS:
        assert truncated
        assert not {Action.SLIDE, Action.SUBMIT} & set(taken[run.step :])
    else:
        assert terminated
        assert len(taken) == run.step + 1
        assert Action(taken[-1]).name == run.action
        assert info["end"] == run.kind.removesuffix(" move").replace(" ", "_").upper()


@pytest.mark.parametrize(("base", "frames"), [(2, 1), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3)])
def test_exploring_the_expert_gives_its_complete_set(base: int, frames: int) -> None:
    known = enumerate_observations(base, frames)
    if known.ambiguous.any():
        assert certify_own_runs(TablePolicy(known), base=base, frames=frames).verdict == NOT_EXACT
        return
    asked = Asked(TablePolicy(known), base, frames)
    explored = explore_policy(asked, base, frames)
    rows = known.index(
        explored.observations[:, :frames],
        explored.observations[:, frames],
        explored.observations[:, frames + 1],
    )
    assert np.array_equal(np.unique(rows), np.arange(len(known)))
    assert certify_own_runs(TablePolicy(known), base=base, frames=frames).exact


def test_the_committed_policy_is_exact(observations: ObservationSet) -> None:
    policy = find_policy(None)
    certificate = certify_own_runs(policy.answers, base=policy.base, frames=policy.frames)
    assert certificate.verdict == EXACT
    assert certificate.observations == len(observations)
    assert certificate.policy_digest == policy.digest
    assert certificate.smallest_margin is not None
    assert certificate.smallest_margin > 0.01


@pytest.mark.parametrize("level", ["dense", "no_of_sp"])
def test_a_correct_algorithm_that_is_not_the_experts_is_exact(level: str) -> None:
    policy = shortcut_policy(3)
    assert certify_own_runs(policy, base=3, frames=3, level=level).verdict == EXACT


def test_the_shortcut_disagrees_with_the_expert(medium: ObservationSet) -> None:
    certificate = certify(shortcut_policy(3), medium, counterexamples=0)
    assert certificate.disagreements > len(medium) // 4


def test_signpost_moves_count_where_the_level_judges_them() -> None:
    """Begin each reset with a signpost move to the right, which is undone at once."""
    shortcut = shortcut_policy(3)

    def playful(seen: Observations) -> npt.NDArray[np.float64]:
        scores = shortcut(seen)
        codes = window_codes(3, seen["window"])
        begins = (codes[:, 1] == codes[:, 2]) & (codes[:, 0] != codes[:, 1])
        scores[begins & seen["symbol"][:, 3:].any(axis=1), Action.SIGNPOST_RIGHT] = 9
        return scores

    assert certify_own_runs(playful, base=3, frames=3, level="no_of_sp").exact
    judged = certify_own_runs(playful, base=3, frames=3, level="no_of")
    assert judged.verdict == NOT_EXACT
    assert [run.kind for run in judged.failures] == ["wrong signpost move"]
    assert_fails(playful, judged.failures[0], 3, 3, "no_of")


@pytest.mark.parametrize("seed", range(12 if not LONG else 200))
def test_a_changed_answer_that_is_met_is_found_and_runs(medium: ObservationSet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # A slide instead of a submit, and so on: actions that end an episode are not undone later.
    row = int(rng.choice(np.flatnonzero(medium.actions >= Action.SIGNPOST_LEFT)))
    legal = np.flatnonzero(~medium.visibly_illegal[row][Action.SIGNPOST_LEFT :]) + 4
    others = legal[legal != medium.actions[row]]
    policy = TablePolicy(medium, {row: int(rng.choice(others))}, elsewhere=int(rng.integers(8)))
    certificate = certify_own_runs(policy, base=3, frames=3)
    assert certificate.verdict != NOT_PROVEN
    if certificate.verdict == EXACT:
        # The change has to be masked away: a signpost move at an edge out of view.
        assert policy.actions[row] in (Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT)
    for run in certificate.failures:
        assert_fails(policy, run, 3, 3, "dense")


def test_changed_answers_that_are_never_met_do_not_matter(medium: ObservationSet) -> None:
    for elsewhere in Action:
        policy = TablePolicy(medium, elsewhere=int(elsewhere))
        assert certify_own_runs(policy, base=3, frames=3).exact
    shortcut = shortcut_policy(3)
    met = Asked(shortcut, 3, 3)
    explored = explore_policy(met, 3, 3)
    seen = {tuple(row) for row in explored.observations[:, :-1].tolist()}

    def strange(batch: Observations) -> npt.NDArray[np.float64]:
        """Submit wherever the shortcut never is."""
        scores = shortcut(batch)
        codes = np.column_stack(
            [
                window_codes(3, batch["window"]),
                np.argmax(batch["symbol"], axis=1),
                batch["operation"][:, 0].astype(np.int64),
            ]
        )
        unmet = np.array([tuple(row) not in seen for row in codes.tolist()])
        scores[unmet] = np.eye(len(Action))[Action.SUBMIT]
        return scores

    assert certify_own_runs(strange, base=3, frames=3).exact


def test_a_policy_that_never_ends_is_caught() -> None:
    """Move the finger up and down in the first reset: no mistake, and no end."""
    shortcut = shortcut_policy(2)

    def restless(seen: Observations) -> npt.NDArray[np.float64]:
        scores = shortcut(seen)
        resets = seen["symbol"][:, 2:].any(axis=1)
        scores[resets] = [0, 0, 9, 9, 0, 0, 0, 1]
        return scores

    certificate = certify_own_runs(restless, base=2, frames=3)
    assert certificate.verdict == NOT_EXACT
    assert [run.kind for run in certificate.failures] == [NEVER_ENDS]
    assert_fails(restless, certificate.failures[0], 3, 2, "dense")


def operations_of(base: int, columns: int, length: int) -> list[tuple[int, list[int]]]:
    """Return all operations with operands of at most `length` digits."""
    found = []
    for value in range(base ** min(length, columns - 1)):
        digits = [value // base**place % base for place in range(columns - 1)]
        while len(digits) > 1 and digits[-1] == 0:
            digits.pop()
        found += [(sign, digits) for sign in (0, 1)]
    return found


def exhaustive_failures(player: GreedyTable, columns: int, count: int, length: int = 4) -> int:
    """Run all sequences of `count` operations on all values; return how many go wrong."""
    base, frames = player.base, player.frames
    operations = operations_of(base, columns, length)
    values = [sum(d * base**place for place, d in enumerate(digits)) for _, digits in operations]
    sequences = np.array(list(itertools.product(range(len(operations)), repeat=count)))
    change = np.array([-v if s else v for (s, _), v in zip(operations, values, strict=True)])
    starts = np.arange(base**columns)
    totals = starts[:, None, None] + np.cumsum(change[sequences], axis=1)[None]
    fits = ((totals >= 0) & (totals < base**columns)).all(axis=2)
    start, sequence = np.nonzero(fits)
    chosen = sequences[sequence].ravel()
    table = np.zeros((len(operations), columns - 1), np.uint8)
    for row, (_, digits) in zip(table, operations, strict=True):
        row[: len(digits)] = digits
    lengths = np.array([len(digits) for _, digits in operations], np.int32)
    signs = np.array([sign for sign, _ in operations], np.int32)
    config = AbacusConfig(columns=columns, base=base, frames=frames, max_digits=columns - 1)
    batch = AbacusBatch(config, len(start), autoreset=False)
    batch.rules["step_budget"] = 1 << 40
    batch.load(
        (starts[start][:, None] // base ** np.arange(columns) % base).astype(np.uint8),
        table[chosen],
        lengths[chosen],
        signs[chosen],
        np.full(len(start), count, np.int32),
    )
    batch.reset(0)
    outcome = player.run(batch, 300)
    return int((outcome.ends != End.EXPRESSION).sum())


@pytest.mark.parametrize("block", range(10))
def test_exhaustive_runs_on_small_abaci_agree(
    small: ObservationSet, medium: ObservationSet, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten blocks of ten random policies: exact ones never fail, and failures are found.

    In half of the blocks, the verdict is that of the finer explorations.
    """
    if block % 2:
        monkeypatch.setattr(own_runs, "PRECISIONS", own_runs.PRECISIONS[1:])
    shapes = [(2, 2, 2), (2, 3, 2), (2, 4, 2), (2, 5, 1), (3, 2, 2), (3, 3, 2)]
    if LONG:
        shapes += [(2, 5, 2), (2, 6, 2), (3, 4, 2), (3, 5, 1), (3, 6, 1)]
    verdicts = set()
    for number in range(10):
        rng = np.random.default_rng([block, number])
        known = small if number < 8 else medium
        rows = rng.choice(len(known), rng.integers(1, 3), replace=False)
        changes = {int(row): int(rng.integers(8)) for row in rows}
        policy = TablePolicy(known, changes, elsewhere=int(rng.integers(8)))
        base, frames = known.base, known.frames
        certificate = certify_own_runs(policy, base=base, frames=frames)
        verdicts.add(certificate.verdict)
        assert certificate.verdict != NOT_PROVEN
        player = GreedyTable(policy, base, frames)
        failing = [
            shape
            for shape in shapes
            if shape[0] == base and exhaustive_failures(player, *shape[1:])
        ]
        if certificate.exact:
            assert not failing
        for run in certificate.failures:
            assert_fails(policy, run, frames, base, "dense")
            # What the certificate shows on a small abacus, the exhaustive runs meet as well.
            sequence = len([sign for sign in run.expression if sign in "+-"]) + 1
            covered = [s for s in shapes if s[:2] == (base, run.columns) and s[2] >= sequence]
            assert not covered or failing
    assert NOT_EXACT in verdicts


@pytest.mark.parametrize(
    ("margin", "keep_runs", "long_run"), [(0, False, 1), (0, True, 1), (1, True, 1), (0, True, 4)]
)
def test_runs_on_wide_abaci_meet_nothing_new(margin: int, keep_runs: bool, long_run: int) -> None:
    """What the shortcut meets on up to 40 columns was found by every exploration."""
    policy = shortcut_policy(3)
    asked = Asked(policy, 3, 3)
    explored = explore_policy(asked, 3, 3, margin=margin, keep_runs=keep_runs, long_run=long_run)
    # The less is forgotten, the more situations there are.
    coarsest = explore_policy(asked, 3, 3)
    assert (len(explored) > len(coarsest)) == bool(margin or keep_runs)
    assert not explored.failures.any()
    known = {tuple(row) for row in explored.observations[:, :-1].tolist()}
    for columns in (2, 3, 5, 11, 17, 40):
        config = AbacusConfig(
            columns=columns, base=3, frames=3, max_digits=columns - 1, start="random"
        )
        batch = AbacusBatch(config, 64)
        batch.reset(columns)
        player = GreedyTable(policy, 3, 3)
        for _ in range(400):
            s = batch.scalars
            codes = np.column_stack([batch.history, s["symbol"], s["operation"]])
            assert {tuple(row) for row in np.unique(codes, axis=0).tolist()} <= known
            batch.step(player.actions(batch))
            assert not batch.terminated.any() or set(batch.ends[batch.terminated]) == {End.CAPACITY}


def test_json_round_trip(small: ObservationSet) -> None:
    exact = certify_own_runs(TablePolicy(small), base=2, frames=2, policy_digest="abc")
    broken = certify_own_runs(
        lambda seen: np.full(len(seen["symbol"]), int(Action.SUBMIT)), base=2, frames=2
    )
    for certificate in (exact, broken):
        assert OwnRunsCertificate.from_json(certificate.to_json()) == certificate
    content = json.loads(exact.to_json())
    for change in ({"exact": False}, {"format": "x"}, {"version": 9}, {"verdict": "maybe"}):
        with pytest.raises(ValueError, match=r"certificate|verdict"):
            OwnRunsCertificate.from_json(json.dumps({**content, **change}))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda seen: np.zeros((len(seen["symbol"]), 7)), "shape"),
        (lambda seen: np.full(len(seen["symbol"]), 8), "outside 0 to 7"),
        (lambda seen: np.full((len(seen["symbol"]), 8), np.nan), "not finite"),
    ],
)
def test_a_policy_that_cannot_be_asked_is_not_proven(answer: Any, reason: str) -> None:
    certificate = certify_own_runs(answer, base=2, frames=2)
    assert certificate.verdict == NOT_PROVEN
    assert reason in certificate.reason


def test_a_limit_that_is_reached_is_not_proven(small: ObservationSet) -> None:
    certificate = certify_own_runs(TablePolicy(small), base=2, frames=2, limit=500)
    assert certificate.verdict == NOT_PROVEN
    assert "too many situations" in certificate.reason


@pytest.mark.parametrize("arguments", [{"base": 1}, {"frames": 0}, {"level": "none"}, {"limit": 0}])
def test_impossible_arguments_raise(arguments: dict[str, Any], small: ObservationSet) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}="):
        certify_own_runs(TablePolicy(small), **{"base": 2, "frames": 2, **arguments})
