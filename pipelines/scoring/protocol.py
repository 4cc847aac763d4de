"""The evaluation protocol behind a report: results, learning curves and replays."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, get_args

import numpy as np
from tqdm import tqdm

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.render.scene import PICTURE_COLUMNS
from abacus.render.view import view_of, visible_columns
from abacus.rules import AbacusConfig, End, Operations
from abacus.tasks import numeral, parse_expression, value_of
from oracle.exact import MAX_FRAMES
from oracle.exact.certificate import Certificate, certify
from oracle.exact.complete_set import complete_set
from oracle.expert import expert_actions
from pipelines.job.command_line import relative_path
from pipelines.scoring.errors import ErrorAnalysis, analyse
from pipelines.scoring.operations import (
    OperationSet,
    adversarial_operations,
    columns_for,
    drawn_operations,
    step_limit,
)
from pipelines.scoring.players import NamedPolicy, Player, mistakes_of
from pipelines.scoring.request import MOST_REPLAYS, Request
from pipelines.scoring.scores import Failures, Runs, Sampler, Score, measure, measure_runs

LOG_FILE = "progress.csv"
STEP_KEYS = ("time/total_timesteps", "total_timesteps", "step")
ACCURACY_KEYS = ("rollout/accuracy", "eval/accuracy", "accuracy")
WRONG_REPLAYS = 5
#: Longer replays are cut.
MOST_REPLAY_STEPS = 1_500
#: Errors are analysed step by step: few of those of long operands.
LONG_DIGITS, LONG_ANALYSED = 128, 20
#: Name of all adversarial sets together.
ADVERSARIAL = "adversarial sets"


@dataclass(frozen=True)
class Curve:
    """Learning curve of a training run."""

    name: str
    steps: tuple[int, ...]
    accuracies: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.accuracies) or not self.steps:
            raise ValueError(
                f"{self.name}: {len(self.steps)} steps and {len(self.accuracies)} accuracies: give "
                "as many of both, and at least one"
            )

    def steps_to(self, accuracy: float) -> int | None:
        """Return the first step with at least this accuracy."""
        for step, reached in zip(self.steps, self.accuracies, strict=True):
            if reached >= accuracy:
                return step
        return None


def read_curve(path: Path) -> Curve:
    """Read the learning curve from the folder of a run, or from a CSV file."""
    file = _log_of(path)
    name = (file.parent if file.name == LOG_FILE else file).stem
    with file.open(newline="") as lines:
        reader = csv.DictReader(lines)
        step_key, accuracy_key = (
            _present(wanted, list(reader.fieldnames or []), file)
            for wanted in (STEP_KEYS, ACCURACY_KEYS)
        )
        # Rows of other phases, such as cloning, have no accuracy of rollouts.
        rows = [row for row in reader if row[step_key] and row[accuracy_key]]
    if not rows:
        raise ValueError(f"{relative_path(file)} holds no line with {accuracy_key}")
    try:
        steps = tuple(int(float(row[step_key])) for row in rows)
        accuracies = tuple(float(row[accuracy_key]) for row in rows)
    except ValueError as error:
        raise ValueError(f"{relative_path(file)} is damaged: {error}") from error
    return Curve(name, steps, accuracies)


def _log_of(path: Path) -> Path:
    if path.is_file():
        return path
    logs = sorted(path.rglob(LOG_FILE)) if path.is_dir() else []
    if not logs:
        raise ValueError(
            f"{relative_path(path)} holds no log: give the folder of a run with a {LOG_FILE}, or "
            "a CSV file"
        )
    return logs[0]


def _present(wanted: tuple[str, ...], keys: list[str], file: Path) -> str:
    for key in wanted:
        if key in keys:
            return key
    raise ValueError(f"{relative_path(file)} has no column {' or '.join(wanted)}")


@dataclass(frozen=True)
class ReplayStep:
    """The abacus after an action; the first step of a replay has none."""

    action: int  # -1 at the start
    finger_column: int
    finger_row: int
    signpost: int
    symbol: int
    operation: int
    #: The column whose digit changed, or -1, and its new digit.
    changed: int
    digit: int
    #: The first column of the picture.
    first_shown: int
    wrong: bool
    #: The expert's action where the policy's was wrong; else -1.
    teacher: int


@dataclass(frozen=True)
class Replay:
    """A recorded operation, or expression, of a policy."""

    title: str
    base: int
    start: tuple[int, ...]
    steps: tuple[ReplayStep, ...]
    right: bool
    output: str
    truth: str
    cut: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; steps as numbers in the order of their fields."""
        return {
            "title": self.title,
            "base": self.base,
            "columns": len(self.start),
            "shown": min(len(self.start), PICTURE_COLUMNS),
            "start": list(self.start),
            "right": self.right,
            "output": self.output,
            "truth": self.truth,
            "cut": self.cut,
            "steps": [[int(value) for value in vars(step).values()] for step in self.steps],
        }


def operation_replay(player: Player, operations: OperationSet, row: int, frames: int) -> Replay:
    """Record one operation of a set."""
    one = operations.subset(np.array([row]))
    base = one.base
    start, operand = value_of(one.starts[0], base), value_of(one.operands[0], base)
    subtract = one.kinds[0] == SUBTRACT
    truth = start - operand if subtract else start + operand
    title = f"{numeral(start, base)} {'-' if subtract else '+'} {numeral(operand, base)}"
    width = max(len(numeral(value, base)) for value in (start, operand, truth))
    return _record(player, one.batch(frames, max(width + 2, 6)), title, truth, 1)


def expression_replay(player: Player, expression: str, base: int, frames: int) -> Replay:
    """Record a decimal expression, from an abacus that shows 0."""
    operations = parse_expression(expression)
    value, largest = 0, 0
    for operation in operations:
        value += operation.sign * operation.operand
        largest = max(largest, value, operation.operand)
    width = len(numeral(largest, base)) + 2
    config = AbacusConfig(
        columns=min(columns_for(width), max(width, 6)),
        base=base,
        frames=frames,
        on_error="continue",
        expression=expression,
    )
    batch = AbacusBatch(config, 1, autoreset=False)
    batch.reset(0)
    return _record(player, batch, f"{expression} (decimal)", value, len(operations))


def _record(player: Player, batch: AbacusBatch, title: str, truth: int, operations: int) -> Replay:
    base = batch.config.base
    start = tuple(batch.digits[0].tolist())
    limit = min(MOST_REPLAY_STEPS, step_limit(batch.config, operations))
    steps = [_replay_step(batch, np.array(start), -1, -1)]
    while batch.ends[0] == End.NONE and len(steps) <= limit:
        before = batch.digits[0].copy()
        expert, action = int(expert_actions(batch)[0]), int(player.actions(batch)[0])
        batch.step(np.array([action]))
        wrong = mistakes_of(batch)[0] != End.NONE
        steps.append(_replay_step(batch, before, action, expert if wrong else -1))
    output = value_of(batch.digits[0], base)
    return Replay(
        title=title,
        base=base,
        start=start,
        steps=tuple(steps),
        right=int(batch.scalars["operations_solved"][0]) == operations and output == truth,
        output=numeral(output, base),
        truth=numeral(truth, base),
        cut=bool(batch.ends[0] == End.NONE),
    )


def _replay_step(batch: AbacusBatch, before: Any, action: int, expert: int) -> ReplayStep:
    view = view_of(batch, 0)
    changed = np.flatnonzero(batch.digits[0] != before)
    column = int(changed[0]) if len(changed) else -1
    return ReplayStep(
        action=action,
        finger_column=view.finger_column,
        finger_row=view.finger_row,
        signpost=view.signpost,
        symbol=view.symbol,
        operation=view.operation,
        changed=column,
        digit=view.digits[column] if column >= 0 else 0,
        first_shown=visible_columns(view, PICTURE_COLUMNS).first,
        wrong=expert >= 0,
        teacher=expert,
    )


@dataclass
class Results:
    """Results of an evaluation; of one that was stopped, those of the finished parts."""

    generalisation: list[Score] = field(default_factory=list)
    adversarial: list[Score] = field(default_factory=list)
    errors: list[ErrorAnalysis] = field(default_factory=list)
    runs: list[Runs] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    certificate: Certificate | None = None
    replays: list[Replay] = field(default_factory=list)
    stopped: bool = False


def evaluate_policy(
    policy: NamedPolicy, request: Request, log: Callable[[str], object] = lambda line: None
) -> Results:
    """Evaluate a policy part by part, with progress bars on a terminal.

    The first Ctrl-C skips to the analysis of the errors so far.

    Args:
        log: called with a line for each part that is done.
    """
    return _ProtocolRun(policy, request, log).run()


class _ProtocolRun:
    def __init__(self, policy: NamedPolicy, request: Request, log: Callable[[str], object]) -> None:
        self.policy = policy
        self.request = request
        self.results = Results()
        self._log = log
        self._failures: list[tuple[Score, Failures]] = []

    def run(self) -> Results:
        results, request, policy = self.results, self.request, self.policy
        results.curves = [read_curve(path) for path in request.logs]
        results.replays = [
            expression_replay(policy.player, expression, policy.base, policy.frames)
            for expression in request.replay
        ]
        try:
            self._certify()
            self._measure_lengths()
            self._measure_sets()
            self._run_episodes()
        except KeyboardInterrupt:
            results.stopped = True
        results.generalisation = [score for score in results.generalisation if score.operations]
        results.adversarial = [score for score in results.adversarial if score.operations]
        results.runs = [runs for runs in results.runs if runs.episodes]
        self._analyse_errors()
        return results

    def _bar(self, name: str, total: int) -> tqdm[NoReturn]:
        return tqdm(total=total, desc=f"{name:<20}", unit_scale=True, disable=None, leave=False)

    def _certify(self) -> None:
        if not self.request.certificate or self.policy.frames > MAX_FRAMES:
            return
        observations = complete_set(self.policy.base, self.policy.frames)
        with self._bar("certificate", len(observations)) as bar:
            self.results.certificate = certify(
                self.policy.answers, observations, progress=bar.update
            )

    def _measure_lengths(self) -> None:
        for digits in self.request.digits:
            score = Score.of_length(digits, self.request.operations_of(digits))
            sampler = partial(drawn_operations, digits=digits, base=self.policy.base)
            self._measure(score, self.results.generalisation, sampler)

    def _measure_sets(self) -> None:
        digits, base = self.request.set_digits, self.policy.base
        for name in self.request.sets:
            score = Score(name, digits + 1, self.request.n_set_operations)
            sampler = partial(adversarial_operations, name, digits=digits, base=base)
            self._measure(score, self.results.adversarial, sampler)

    def _measure(self, score: Score, scores: list[Score], sampler: Sampler) -> None:
        most = self.request.n_errors
        failures = Failures(most if score.digits <= LONG_DIGITS else min(most, LONG_ANALYSED))
        scores.append(score)
        self._failures.append((score, failures))
        with self._bar(score.name, score.asked) as bar:
            measure(
                self.policy.player,
                score,
                sampler,
                self.request.seed,
                self.policy.frames,
                self.request.columns,
                failures,
                bar.update,
            )
        self._log(f"{score.name}: {score.errors:,} errors in {score.operations:,} operations")

    def _run_episodes(self) -> None:
        request = self.request
        world = AbacusConfig(base=self.policy.base, frames=self.policy.frames)
        for operations in get_args(Operations) if request.n_episodes else ():
            runs = Runs(operations, request.run_limit, request.n_episodes)
            self.results.runs.append(runs)
            with self._bar(f"runs, {operations}", request.n_episodes) as bar:
                measure_runs(self.policy.player, runs, world, request.seed, bar.update)
            self._log(f"runs, {operations}: longest {runs.longest:,}, median {runs.median:,.0f}")

    def _analyse_errors(self) -> None:
        """Analyse the errors, and replay some of the shortest and some ordinary operations."""
        policy, failed = self.policy, self._failed()
        with self._bar("analysis of errors", len(failed)) as bar:
            for name, total, failures in failed:
                self.results.errors.append(
                    analyse(
                        name, policy.player, failures, total, policy.frames, self.request.columns
                    )
                )
                bar.update(1)
        parts = [part for _, _, failures in failed for part, _ in failures.parts]
        shortest = sorted(parts, key=lambda part: part.digits)[:3]
        wrong = [(part, row) for part in shortest for row in range(min(3, len(part)))]
        ordinary = [(part, 0) for part in ordinary_operations(policy.base)]
        chosen = [*wrong[:WRONG_REPLAYS], *ordinary]
        for part, row in chosen[: MOST_REPLAYS - len(self.results.replays)]:
            replay = operation_replay(policy.player, part, row, policy.frames)
            self.results.replays.append(replay)

    def _failed(self) -> list[tuple[str, int, Failures]]:
        """Return (name, errors, kept failures) of each length, and of all sets together."""
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


def ordinary_operations(base: int) -> list[OperationSet]:
    """Return short operations of both kinds, with a carry and a borrow."""
    rng = np.random.default_rng(0)
    return [
        drawn_operations(1, 2, base, rng),
        adversarial_operations("full-carries", 1, 4, base, rng),
        adversarial_operations("full-borrows", 1, 4, base, rng),
        adversarial_operations("leading-zeros", 1, 5, base, rng),
        drawn_operations(1, 6, base, rng),
    ]
