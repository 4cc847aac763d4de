"""Certify a policy by its own runs: exact if none of them can go wrong, whomever it resembles.

The policy is explored from every start of an episode, with any value, operations and operands, at
any width (`oracle.exact.policy_exploration`). It is *exact* if no situation that it reaches leads
to a wrong action, and if it always reaches the next submit. A failure of the exploration is run in
the environment before it is called one: the policy is then *not exact*. In all other cases the
answer is *not proven*. `docs/exactness.md` has the proof.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from abacus.checks import check_choice, check_integer
from abacus.kernel import ACTIONS
from abacus.observation import observation_arrays, visibly_illegal_actions
from abacus.reward import LEVELS
from abacus.rules import AbacusConfig, Action
from oracle.exact import SITUATIONS_LIMIT
from oracle.exact.budget import Ways, longest_ways
from oracle.exact.certificate import CHUNK, Answers, answers_of, decide, digest_of
from oracle.exact.concrete_runs import KINDS, NEVER_ENDS, FailingRun, failing_runs
from oracle.exact.endless_runs import endless_parts
from oracle.exact.exploration import OPEN
from oracle.exact.policy_exploration import (
    DIGIT_INDEX,
    FINGER_COLUMN,
    FINGER_ROW,
    HEADER,
    LONG_RUN,
    OPERATION,
    SIGNPOST,
    SYMBOL,
    WIDTH,
    PolicyExploration,
    explore_policy,
)

FORMAT = "virtual-abacus-own-runs-certificate"
VERSION = 1
#: Situations with a mistake after which a policy is explored no further.
ENOUGH_FAILURES = 50_000
#: Explorations that are tried one after another, ever finer: lengths from which hidden runs are
#: shortened, how far from the view hidden columns keep their digits, and whether columns that
#: continue a held run of one digit keep theirs.
PRECISIONS = (
    (LONG_RUN, 0, False),
    (LONG_RUN, 0, True),
    (LONG_RUN, 1, True),
    (LONG_RUN, 2, True),
    # With a margin, opening a part of a run that stands for longer ones would split it.
    (LONG_RUN + 3, 0, True),
)

Verdict = Literal["exact", "not exact", "not proven"]
EXACT: Verdict = "exact"
NOT_EXACT: Verdict = "not exact"
NOT_PROVEN: Verdict = "not proven"


@dataclass(frozen=True)
class OwnRunsCertificate:
    """What the exploration of a policy's own runs has shown."""

    base: int
    frames: int
    level: str
    verdict: Verdict
    #: Why the verdict is "not proven"; empty otherwise.
    reason: str
    situations: int
    observations: int
    smallest_margin: float | None
    #: The longest way between two grants of the step budget; None where it is not known.
    longest_ways: Ways | None
    policy_digest: str | None
    #: The smallest operation for each kind of failure, as run in the environment.
    failures: tuple[FailingRun, ...] = ()

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, get_args(Verdict))
        if (self.verdict == NOT_EXACT) != bool(self.failures):
            raise ValueError(
                f"verdict={self.verdict!r} with {len(self.failures)} failures: a policy is not "
                "exact if a failure was run, and only then"
            )
        if (self.verdict == NOT_PROVEN) != bool(self.reason):
            raise ValueError(
                f"verdict={self.verdict!r} with reason={self.reason!r}: give a reason if nothing "
                "is proven, and only then"
            )

    @property
    def exact(self) -> bool:
        """Whether the policy is exact, at any width and operand length."""
        return self.verdict == EXACT

    def to_json(self) -> str:
        """Return the certificate as JSON text."""
        content = {"format": FORMAT, "version": VERSION, "exact": self.exact, **asdict(self)}
        return json.dumps(content, indent=2)

    @classmethod
    def from_json(cls, text: str) -> OwnRunsCertificate:
        """Read a certificate from JSON text; raise ValueError if it is not a valid one."""
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"not a certificate of own runs: its format is not {FORMAT!r}")
        if content.pop("version", None) != VERSION:
            raise ValueError(f"the certificate is of another version: give version {VERSION}")
        exact = content.pop("exact", None)
        try:
            ways = content.pop("longest_ways")
            failures = content.pop("failures")
            certificate = cls(
                longest_ways=None if ways is None else Ways.from_dict(ways),
                failures=tuple(
                    FailingRun(**{**failure, "frames": tuple(failure["frames"])})
                    for failure in failures
                ),
                **content,
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"the certificate is damaged: {error}") from error
        if certificate.exact != exact:
            raise ValueError("the certificate is damaged: `exact` contradicts its verdict")
        return certificate


def certify_own_runs(
    policy: Any,
    *,
    base: int = 5,
    frames: int = 3,
    level: str = "dense",
    limit: int = SITUATIONS_LIMIT,
    policy_digest: str | None = None,
    progress: Callable[[int, int], object] = lambda done, found: None,
) -> OwnRunsCertificate:
    """Return the certificate of a policy: an SB3 policy or algorithm, or a callable (`Answers`).

    It may also be `Asked`, which afterwards holds all observations that the exploration met.

    The policy takes the legal action with the highest score; if it returns actions, an illegal one
    is replaced by the lowest legal one. `level` decides whether wrong signpost moves are failures;
    slides and submits are judged at every level. A policy that cannot be asked (wrong shapes,
    values that are not finite), more than `limit` situations and a lack of memory are "not proven".
    """
    AbacusConfig(base=base, frames=frames)
    check_choice("level", level, list(LEVELS))
    check_integer("limit", limit, 1)
    asked = policy if isinstance(policy, Asked) else Asked(policy, base, frames)
    search = _Search(asked, base, frames, level, limit, progress)
    try:
        verdict, reason, failures = search.run()
    except ValueError as error:
        verdict, reason, failures = NOT_PROVEN, str(error), ()
    except MemoryError:
        verdict, reason, failures = NOT_PROVEN, "out of memory: give a lower limit", ()
    return OwnRunsCertificate(
        base=base,
        frames=frames,
        level=level,
        verdict=verdict,
        reason=reason,
        situations=search.situations,
        observations=search.observations,
        smallest_margin=search.asked.margin,
        longest_ways=search.ways,
        policy_digest=policy_digest or digest_of(asked.policy),
        failures=failures,
    )


class Asked:
    """The policy's order of actions, asked in batches and once for each observation."""

    def __init__(self, policy: Any, base: int, frames: int) -> None:
        self.policy = policy
        self._answers: Answers = answers_of(policy)
        self._base, self._frames = base, frames
        self._orders: dict[bytes, npt.NDArray[np.uint8]] = {}
        self.margin: float | None = None

    def __len__(self) -> int:
        return len(self._orders)

    def observations(self) -> npt.NDArray[np.int32]:
        """Return the coded observations that it was asked about, (N, frames + 3)."""
        codes = np.frombuffer(b"".join(self._orders), np.int32)
        return codes.reshape(len(self), self._frames + 3)

    def __call__(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Return (N, 8) actions, the best first, for distinct coded observations."""
        keys = [row.tobytes() for row in codes]
        new = np.array([key not in self._orders for key in keys])
        orders = np.empty((len(codes), ACTIONS), np.uint8)
        for row in np.flatnonzero(~new):
            orders[row] = self._orders[keys[row]]
        rows = np.flatnonzero(new)
        for start in range(0, len(rows), CHUNK):
            chosen = rows[start : start + CHUNK]
            orders[chosen] = self._ask(codes[chosen])
            self._orders |= zip([keys[row] for row in chosen], orders[chosen], strict=True)
        return orders

    def _ask(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        history, (symbol, operation, previous) = codes[:, :-3], codes[:, -3:].T
        seen = observation_arrays(self._base, history, symbol, operation, previous)
        illegal = visibly_illegal_actions(self._base)[history[:, -1]]
        given = np.asarray(self._answers(seen))
        actions, margins = decide(given, illegal)
        if margins is None:
            scores = np.eye(ACTIONS)[actions]
        else:
            scores = np.where(illegal, -np.inf, given.astype(np.float64))
            self.margin = min(float(margins.min()), np.inf if self.margin is None else self.margin)
        return np.argsort(-scores, axis=1, kind="stable").astype(np.uint8)


class _Search:
    """The search for failures: on all widths first, then on few columns for small operations."""

    def __init__(
        self,
        asked: Asked,
        base: int,
        frames: int,
        level: str,
        limit: int,
        progress: Callable[[int, int], object],
    ) -> None:
        self.asked, self.base, self.frames, self.level = asked, base, frames, level
        self.limit, self.progress = limit, progress
        self.situations, self.observations = 0, 0
        self.ways: Ways | None = None

    def run(self) -> tuple[Verdict, str, tuple[FailingRun, ...]]:
        """Return the verdict, its reason and the failures."""
        reason = ""
        for number, (long_run, margin, keep_runs) in enumerate(PRECISIONS, 1):
            exploration = explore_policy(
                self.asked,
                self.base,
                self.frames,
                self.level,
                long_run=long_run,
                margin=margin,
                keep_runs=keep_runs,
                limit=self.limit,
                stop_at_failures=ENOUGH_FAILURES,
                progress=self.progress,
            )
            self.situations = len(exploration)
            self.observations = len(exploration.observations)
            kinds, where = _failures_of(exploration)
            if not kinds and exploration.incomplete is None:
                self.ways = longest_ways(exploration)
                return EXACT, "", ()
            # A failure that is real is mostly found soon; others vanish in a finer exploration.
            failures: tuple[FailingRun, ...] = ()
            if number in (1, len(PRECISIONS)) or not kinds:
                failures = failing_runs(
                    *(self.asked, self.base, self.frames, self.level, set(kinds), self.limit),
                    quick=bool(kinds) and number < len(PRECISIONS),
                )
            if failures:
                return NOT_EXACT, "", failures
            if not kinds:
                reason = f"{exploration.incomplete}: {len(exploration):,} without a failure"
                break
            situation = describe(exploration, where)
            reason = f"{kinds[0]} in a situation that no run was found for: {situation}"
        return NOT_PROVEN, reason, ()


def _failures_of(exploration: PolicyExploration) -> tuple[list[str], int]:
    """Return the kinds of failures, and the situation of the nearest one."""
    wrong = np.flatnonzero(exploration.failures)
    kinds = [KINDS[int(end)] for end in dict.fromkeys(exploration.failures[wrong].tolist())]
    where = int(wrong[0]) if len(wrong) else -1
    # A graph that was not explored to its end may lack the way out of a cycle, not a cycle.
    parts = endless_parts(exploration)
    if parts:
        kinds.append(NEVER_ENDS)
        where = int(parts[0][0]) if where < 0 else where
    return kinds, where


def describe(exploration: PolicyExploration, situation: int) -> str:
    """Return a situation in words, columns without a digit as dots."""
    row = exploration.situations[situation].astype(int)
    columns = row[HEADER : HEADER + row[WIDTH]]
    shown = "".join("." if digit == OPEN else str(digit) for digit in columns)
    on_digit = row[DIGIT_INDEX] > 0
    symbol = f"digit {row[SYMBOL]} of column {row[DIGIT_INDEX] - 1}" if on_digit else "a reset"
    return (
        f"{'subtraction' if row[OPERATION] else 'addition'}, {symbol}, columns {shown}, finger on "
        f"column {row[FINGER_COLUMN]} row {row[FINGER_ROW]}, signpost on column {row[SIGNPOST]}, "
        f"action {Action(int(exploration.actions[situation])).words}"
    )
