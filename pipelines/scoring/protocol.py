"""Learning curves, as in the paper's Figs. 2 and 3, from the logs of any number of runs.

A log is the CSV that training writes: its steps, and the fraction of operations solved.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, get_args

import numpy as np
from tqdm import tqdm

from abacus.batch import AbacusBatch
from abacus.kernel import SUBTRACT
from abacus.render.scene import PICTURE_COLUMNS
from abacus.render.view import view_of, visible_columns
from abacus.rules import AbacusConfig, Action, End, Operations
from abacus.tasks import numeral, parse_expression, value_of
from oracle.exact.certificate import Certificate, certify
from oracle.exact.complete_set import MAX_FRAMES, complete_set
from oracle.expert import expert_actions
from pipelines.job.command_line import shown_path
from pipelines.learning.named_policies import NamedPolicy
from pipelines.scoring.errors import ErrorAnalysis, analyse
from pipelines.scoring.operations import (
    OperationSet,
    adversarial_operations,
    check_fit,
    check_sets,
    columns_for,
    drawn_operations,
    step_limit,
)
from pipelines.scoring.players import Player, mistakes_of
from pipelines.scoring.scores import Failures, Maker, Runs, Score, measure, measure_runs

LOG_FILE = "progress.csv"
STEP_KEYS = ("time/total_timesteps", "total_timesteps", "step")
ACCURACY_KEYS = ("rollout/accuracy", "eval/accuracy", "accuracy")
#: What is told of a curve: the steps to these accuracies.
MILESTONES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Curve:
    """Accuracy over the steps of one run."""

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
        """The steps after which it was first reached."""
        for step, reached in zip(self.steps, self.accuracies, strict=True):
            if reached >= accuracy:
                return step
        return None


def read_curve(path: Path) -> Curve:
    """The curve of a run's folder, or of a CSV file."""
    file = _log_of(path)
    name = (file.parent if file.name == LOG_FILE else file).stem
    with file.open(newline="") as lines:
        reader = csv.DictReader(lines)
        keys = reader.fieldnames or []
        step_key = _present(STEP_KEYS, keys, file)
        accuracy_key = _present(ACCURACY_KEYS, keys, file)
        # Rows of other phases, such as cloning, have no accuracy of rollouts.
        rows = [row for row in reader if row[step_key] and row[accuracy_key]]
    if not rows:
        raise ValueError(f"{shown_path(file)} holds no line with {accuracy_key}")
    try:
        steps = tuple(int(float(row[step_key])) for row in rows)
        accuracies = tuple(float(row[accuracy_key]) for row in rows)
    except ValueError as error:
        raise ValueError(f"{shown_path(file)} is damaged: {error}") from error
    return Curve(name, steps, accuracies)


def _log_of(path: Path) -> Path:
    if path.is_file():
        return path
    logs = sorted(path.rglob(LOG_FILE)) if path.is_dir() else []
    if not logs:
        raise ValueError(
            f"{shown_path(path)} holds no log: give the folder of a run with a {LOG_FILE}, or a CSV"
        )
    return logs[0]


def _present(wanted: tuple[str, ...], keys: object, file: Path) -> str:
    assert isinstance(keys, list | tuple)
    for key in wanted:
        if key in keys:
            return key
    raise ValueError(f"{shown_path(file)} has no column {' or '.join(wanted)}")


MOST_REPLAYS = 10
#: Longer replays are cut: nobody watches more.
MOST_STEPS = 1_500


@dataclass(frozen=True)
class Step:
    """What there is to see after an action; the first step of a replay has none."""

    action: int  # -1 at the start
    finger_column: int
    finger_row: int
    signpost: int
    symbol: int
    operation: int
    #: The column whose digit changed, or -1, and what it shows now.
    changed: int
    digit: int
    #: The first column of the picture.
    first_shown: int
    wrong: bool
    #: What the teacher would have done, where the action was wrong; else -1.
    teacher: int

    def compact(self) -> list[int]:
        """As plain numbers, in the order of the fields."""
        return [int(value) for value in vars(self).values()]


@dataclass(frozen=True)
class Replay:
    """One operation, or one expression, as a policy worked on it."""

    title: str
    base: int
    start: tuple[int, ...]
    steps: tuple[Step, ...]
    right: bool
    output: str
    truth: str
    cut: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the page and the JSON."""
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
            "steps": [step.compact() for step in self.steps],
        }


def operation_replay(player: Player, operations: OperationSet, row: int, frames: int) -> Replay:
    """One operation of a set."""
    one = operations.chosen(np.array([row]))
    base = one.base
    start, operand = value_of(one.starts[0], base), value_of(one.operands[0], base)
    subtract = one.kinds[0] == SUBTRACT
    truth = start - operand if subtract else start + operand
    title = f"{numeral(start, base)} {'-' if subtract else '+'} {numeral(operand, base)}"
    width = max(len(numeral(value, base)) for value in (start, operand, truth))
    return _recorded(player, one.batch(frames, max(width + 2, 6)), title, truth, 1)


def expression_replay(player: Player, expression: str, base: int, frames: int) -> Replay:
    """An expression in decimal, from an abacus that shows 0."""
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
    return _recorded(player, batch, f"{expression} (decimal)", value, len(operations))


def _recorded(
    player: Player, batch: AbacusBatch, title: str, truth: int, operations: int
) -> Replay:
    base = batch.config.base
    start = tuple(batch.digits[0].tolist())
    limit = min(MOST_STEPS, step_limit(batch.config) * operations)
    steps = [_step(batch, np.array(start), -1, -1)]
    while batch.ends[0] == End.NONE and len(steps) <= limit:
        before = batch.digits[0].copy()
        teacher, action = int(expert_actions(batch)[0]), int(player.actions(batch)[0])
        batch.step(np.array([action]))
        wrong = mistakes_of(batch)[0] != End.NONE
        steps.append(_step(batch, before, action, teacher if wrong else -1))
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


def _step(batch: AbacusBatch, before: Any, action: int, teacher: int) -> Step:
    view = view_of(batch, 0)
    changed = np.flatnonzero(batch.digits[0] != before)
    column = int(changed[0]) if len(changed) else -1
    return Step(
        action=action,
        finger_column=view.finger_column,
        finger_row=view.finger_row,
        signpost=view.signpost,
        symbol=view.symbol,
        operation=view.operation,
        changed=column,
        digit=view.digits[column] if column >= 0 else 0,
        first_shown=visible_columns(view, PICTURE_COLUMNS).first,
        wrong=teacher >= 0,
        teacher=teacher,
    )


#: What the page calls the actions.
ACTION_WORDS = tuple(action.name.lower().replace("_", " ") for action in Action)


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
