"""A whole evaluation: what is asked for, what was found so far, and the order of the work.

The results grow while it runs. Stopped by Ctrl-C at any moment they hold what was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, get_args

import numpy as np
from tqdm import tqdm

from abacus.rules import Operations
from oracle.certificate import Certificate, certify
from oracle.observations import MAX_FRAMES, complete_set
from pipelines.evaluation.adversarial import adversarial_operations, check_sets
from pipelines.evaluation.curves import Curve, read_curve
from pipelines.evaluation.errors import ErrorAnalysis, analyse
from pipelines.evaluation.measure import Failures, Maker, Score, measure
from pipelines.evaluation.operations import OperationSet, check_fit, drawn_operations
from pipelines.evaluation.policies import NamedPolicy
from pipelines.evaluation.replay import MOST_REPLAYS, Replay, expression_replay, operation_replay
from pipelines.evaluation.runs import Runs, measure_runs

#: Up to this length every interval gets the full number of operations, as in the paper.
FULL_DIGITS = 16
FEWEST_OPERATIONS = 100
#: The analysis of errors walks step by step: on longer operands only a few are looked at.
LONG_ANALYSED = 20
LONG_DIGITS = 128
#: Wrong operations among the replays, where there are so many.
WRONG_REPLAYS = 5
#: The name of all adversarial sets together.
ADVERSARIAL = "adversarial sets"


@dataclass(frozen=True)
class Request:
    """What is to be measured. Checks itself."""

    digits: tuple[int, ...]
    operations: int
    long_operations: int | None = None
    columns: int | None = None
    sets: tuple[str, ...] = ()
    set_operations: int = 10_000
    set_digits: int = 16
    episodes: int = 20
    run_limit: int = 2_000
    logs: tuple[Path, ...] = ()
    analysed: int = 2_000
    replays: tuple[str, ...] = ()
    certificate: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("operations", "long_operations", "set_operations", "run_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not allowed: give 1 or more")
        for name in ("episodes", "analysed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} is not allowed: give 0 or more")
        if len(self.replays) > MOST_REPLAYS:
            raise ValueError(f"{len(self.replays)} replays: give at most {MOST_REPLAYS}")
        check_sets(self.sets)
        for digits in self.digits:
            check_fit(digits, self.columns)
        if self.sets:
            check_fit(self.set_digits + 1, self.columns)

    def operations_of(self, digits: int) -> int:
        """How many operations an interval gets: beyond 16 digits fewer, for the same time."""
        if digits <= FULL_DIGITS:
            return self.operations
        if self.long_operations is not None:
            return self.long_operations
        return min(self.operations, max(FEWEST_OPERATIONS, self.operations * FULL_DIGITS // digits))


@dataclass
class Results:
    """What was found so far."""

    generalisation: list[Score] = field(default_factory=list)
    adversarial: list[Score] = field(default_factory=list)
    errors: list[ErrorAnalysis] = field(default_factory=list)
    runs: list[Runs] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    certificate: Certificate | None = None
    replays: list[Replay] = field(default_factory=list)
    stopped: bool = False


class Evaluation:
    """Measures a policy, part by part, with bars where there is a terminal.

    `tell` is given a line for each part that is done.
    """

    def __init__(
        self,
        policy: NamedPolicy,
        request: Request,
        tell: Callable[[str], object] = lambda line: None,
    ) -> None:
        self.policy = policy
        self.request = request
        self.results = Results()
        self._tell = tell
        self._failures: list[tuple[Score, Failures]] = []

    def run(self) -> Results:
        """Everything that is asked for; the first Ctrl-C skips to what explains the results."""
        self.results.curves = [read_curve(path) for path in self.request.logs]
        self._given_replays()
        try:
            self._certify()
            self._generalise()
            self._attack()
            self._run_episodes()
        except KeyboardInterrupt:
            self.results.stopped = True
        self._explain()
        return self.results

    def _bar(self, what: str, total: int) -> tqdm[NoReturn]:
        return tqdm(total=total, desc=f"{what:<20}", unit_scale=True, disable=None, leave=False)

    def _certify(self) -> None:
        if not self.request.certificate or self.policy.frames > MAX_FRAMES:
            return
        known = complete_set(self.policy.base, self.policy.frames)
        with self._bar("certificate", len(known)) as bar:
            self.results.certificate = certify(self.policy.answers, known, progress=bar.update)

    def _generalise(self) -> None:
        base = self.policy.base
        for digits in self.request.digits:

            def make(count: int, rng: np.random.Generator, digits: int = digits) -> OperationSet:
                return drawn_operations(count, digits, base, rng)

            name = f"{digits:,} digit{'s' if digits > 1 else ''}"
            score = Score(name, digits, self.request.operations_of(digits))
            self._measure(score, self.results.generalisation, make)

    def _attack(self) -> None:
        base, request = self.policy.base, self.request
        for name in request.sets:

            def make(count: int, rng: np.random.Generator, name: str = name) -> OperationSet:
                return adversarial_operations(name, count, request.set_digits, base, rng)

            score = Score(name, request.set_digits + 1, request.set_operations)
            self._measure(score, self.results.adversarial, make)

    def _measure(self, score: Score, scores: list[Score], make: Maker) -> None:
        """Operations of a kind have a stream of their own, whatever else is measured."""
        seed = [self.request.seed, *score.name.encode()]
        keep = self.request.analysed if score.digits <= LONG_DIGITS else LONG_ANALYSED
        failures = Failures(min(keep, self.request.analysed))
        scores.append(score)
        self._failures.append((score, failures))
        with self._bar(score.name, score.asked) as bar:
            measure(
                self.policy.player,
                score,
                make,
                np.random.default_rng(seed),
                self.policy.frames,
                self.request.columns,
                failures,
                bar.update,
            )
        self._tell(f"{score.name}: {score.errors:,} errors in {score.operations:,} operations")

    def _run_episodes(self) -> None:
        request = self.request
        for operations in get_args(Operations) if request.episodes else ():
            runs = Runs(operations, request.run_limit, request.episodes)
            self.results.runs.append(runs)
            with self._bar(f"runs, {operations}", request.episodes) as bar:
                measure_runs(
                    self.policy.player,
                    runs,
                    self.policy.base,
                    self.policy.frames,
                    request.seed,
                    progress=bar.update,
                )
            self._tell(f"runs, {operations}: longest {runs.longest:,}, median {runs.median:,.0f}")

    def _explain(self) -> None:
        """The errors that were met, and replays; drops what was not begun."""
        results = self.results
        for name in ("generalisation", "adversarial"):
            setattr(results, name, [score for score in getattr(results, name) if score.operations])
        results.runs = [runs for runs in results.runs if runs.episodes]
        failed = self._failed()
        with self._bar("analysis of errors", len(failed)) as bar:
            for name, total, failures in failed:
                results.errors.append(
                    analyse(
                        name,
                        self.policy.player,
                        failures,
                        total,
                        self.policy.frames,
                        self.request.columns,
                    )
                )
                bar.update(1)
        self._chosen_replays([failures for _, _, failures in failed])

    def _failed(self) -> list[tuple[str, int, Failures]]:
        """(name, errors, kept failures) of each length; all adversarial sets are one."""
        adversarial = Failures(0)
        failed = []
        for score, failures in self._failures:
            if any(score is other for other in self.results.adversarial):
                adversarial.parts += failures.parts
            elif len(failures):
                failed.append((score.name, score.errors, failures))
        if len(adversarial):
            errors = sum(score.errors for score in self.results.adversarial)
            failed.append((ADVERSARIAL, errors, adversarial))
        return failed

    def _given_replays(self) -> None:
        for expression in self.request.replays:
            self.results.replays.append(
                expression_replay(
                    self.policy.player, expression, self.policy.base, self.policy.frames
                )
            )

    def _chosen_replays(self, failed: list[Failures]) -> None:
        """Some of the shortest operations that went wrong, and some ordinary ones."""
        shortest = sorted(
            (part for failures in failed for part, _ in failures.parts),
            key=lambda part: part.digits,
        )
        wrong = [(part, row) for part in shortest[:3] for row in range(min(3, len(part)))]
        self._add_replays(wrong[:WRONG_REPLAYS])
        self._add_replays([(part, 0) for part in ordinary_operations(self.policy.base)])

    def _add_replays(self, chosen: list[tuple[OperationSet, int]]) -> None:
        for part, row in chosen[: MOST_REPLAYS - len(self.results.replays)]:
            self.results.replays.append(
                operation_replay(self.policy.player, part, row, self.policy.frames)
            )


def ordinary_operations(base: int) -> list[OperationSet]:
    """Short operations that show what there is to see: both kinds, a carry, a borrow."""
    rng = np.random.default_rng(0)
    return [
        drawn_operations(1, 2, base, rng),
        adversarial_operations("full-carries", 1, 4, base, rng),
        adversarial_operations("full-borrows", 1, 4, base, rng),
        adversarial_operations("leading-zeros", 1, 5, base, rng),
        drawn_operations(1, 6, base, rng),
    ]
