"""Records of a study that was never run: plausible numbers, by a generator that is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abacus.reward import LEVELS
from abacus.rules import Operations
from pipelines.experiments.records import Cell, CurvePoint, PolicyScore, Record, TeachingRound

#: How hard a level is, by which the made-up curves differ.
_HARDNESS = dict(zip(("none", *LEVELS), (3.0, 1.0, 0.7, 1.3, 4.0, 6.0), strict=True))


def score(
    accuracy: float, wrong: int | None = None, long_error_rate: float | None = None
) -> PolicyScore:
    """Return a consistent score: exact without wrong observations."""
    wrong = round(30_000 * (1 - accuracy)) if wrong is None else wrong
    errors = min(1.0, 3 * (1 - accuracy)) if long_error_rate is None else long_error_rate
    longest = round(1 / max(1 - accuracy, 0.001))
    return PolicyScore(accuracy, accuracy, errors, wrong, longest, wrong == 0)


def cell(**changed: Any) -> Cell:
    """A cell of the main grid, but for what is given."""
    values: dict[str, Any] = {
        "comparison": "supervision",
        "arm": "ppo",
        "demonstrations": 10,
        "reward": "dense",
        "operations": "both",
        "labels": 0,
        "steps": 1000,
        "seed": 0,
        "settings": {},
    }
    values |= changed
    if values["arm"] in ("cloning", "dagger", "teaching"):
        values |= {"reward": "none", "steps": 0}
    elif values["arm"] == "planning":
        # It takes the steps that it needs.
        values |= {"demonstrations": 0, "steps": 0}
    return Cell(**values)


def record(
    accuracy: float = 0.9,
    *,
    clone: PolicyScore | None = None,
    final: PolicyScore | None = None,
    last: PolicyScore | None = None,
    curve: Sequence[tuple[int, float]] = (),
    run: int = 10,
    labels: int = 0,
    asked: int = 0,
    rounds: Sequence[tuple[int, int, int]] = (),
    **changed: Any,
) -> Record:
    """A record; the curve is given as steps and accuracies, `asked` are the labels allowed."""
    final = final or score(accuracy)
    made = cell(labels=asked, **changed)
    return Record(
        cell=made,
        clone=clone,
        final=final,
        last=last or final,
        curve=tuple(CurvePoint(step, step / 100, a, 1 - a, 5) for step, a in curve),
        longest_training_run=run,
        labels=labels,
        demonstrated=made.demonstrations,
        stage_steps={made.arm: made.steps} if made.steps else {},
        rounds=tuple(TeachingRound(*each) for each in rounds),
        seconds={"cloning": 1.0, "reinforcement": 2.0, "all": 4.0},
    )


def seeds(accuracies: Sequence[float], **values: Any) -> list[Record]:
    """A record a seed."""
    return [record(accuracy, seed=k, **values) for k, accuracy in enumerate(accuracies)]


def study(
    demonstrations: Sequence[int] = (0, 10, 100, 1000),
    seeds_of_each: int = 3,
    points: int = 6,
    steps: int = 1_000_000,
) -> list[Record]:
    """All comparisons, as a study has them when it is done."""
    generator = np.random.default_rng(7)
    made: list[Record] = []
    for seed in range(seeds_of_each):
        for n in demonstrations:
            made += [_made(generator, "teacher", "cloning", n, "none", "both", seed)] if n else []
            made += [
                _made(generator, "reward", "ppo", n, level, "both", seed, steps, points)
                for level in LEVELS
            ]
        made += _others(generator, seed, demonstrations[len(demonstrations) // 2], steps, points)
    return made


def _others(
    generator: np.random.Generator, seed: int, n: int, steps: int, points: int
) -> Iterator[Record]:
    both: Operations = "both"
    for labels in (300, 3_000, 30_000):
        yield _made(generator, "teacher", "dagger", 0, "none", both, seed, labels=labels)
    yield taught(seed, n)
    for level in ("dense", "no_of"):
        yield _made(generator, "reward", "dqn", 0, level, both, seed, steps, points)
    yield _made(generator, "reward", "gail", n, "none", both, seed, steps, points)
    for level in list(LEVELS)[:3]:
        whole = _made(generator, "alone", "planning", 0, level, both, seed, 2 * steps, points)
        exact = replace(whole.final, own_runs="exact") if level == "dense" else whole.final
        stages = {"planning": steps // 2, "mending": 2 * steps}
        yield replace(whole, final=exact, stage_steps=stages)
    for operations in ("add", "subtract"):
        yield _made(generator, "reward", "ppo", 0, "dense", operations, seed, steps, points)


def taught(seed: int = 0, n: int = 100, *, wrong: Sequence[int] = (900, 80, 0)) -> Record:
    """A record of teaching, whose rounds leave these numbers of observations wrong."""
    rounds = [(n + 40 * k, 30 * (n + 40 * k), left) for k, left in enumerate(wrong)]
    operations, labels, left = rounds[-1]
    made = record(
        final=score(1 - left / 1e5, left),
        clone=score(0.6),
        rounds=rounds,
        labels=labels,
        arm="teaching",
        comparison="teacher",
        demonstrations=n,
        seed=seed,
    )
    return replace(made, demonstrated=operations)


def _made(
    generator: np.random.Generator,
    comparison: str,
    arm: str,
    n: int,
    reward: str,
    operations: Operations,
    seed: int,
    steps: int = 0,
    points: int = 0,
    labels: int = 0,
) -> Record:
    noise = float(np.exp(generator.normal(0, 0.4)))
    learned = labels / 4 if labels else 40 * n
    clone_error = min(1.0, noise * 12 / (learned + 1) ** 0.75)
    clone_error = 0.0 if clone_error < 0.004 else clone_error
    slow = 40 if arm == "dqn" else 1
    pace = _HARDNESS[reward] * slow * noise * (0.7 if operations != "both" else 1)
    curve = []
    for k in range(points + 1 if steps else 0):
        step = k * steps // points
        error = clone_error * float(np.exp(-step / (3e5 * pace))) * (1 + 0.1 * generator.normal())
        curve.append((step, 1 - min(max(error, 0), 1)))
    end = curve[-1][1] if curve else 1 - clone_error
    end = 1.0 if end > 0.9985 else end
    wrong = 0 if end == 1 else 1 + round(1500 * (1 - end) ** 0.5)
    clone = score(1 - clone_error, round(1800 * clone_error**0.5)) if n and steps else None
    return record(
        clone=clone,
        final=score(end, wrong),
        # Where there is little reward, it may spoil what was cloned.
        last=score(end * 0.99**pace, wrong + round(20 * pace)),
        curve=curve,
        run=round(900 * generator.uniform(0.3, 1)),
        labels=labels or 30 * n,
        comparison=comparison,
        arm=arm,
        demonstrations=n,
        reward=reward,
        operations=operations,
        asked=labels,
        steps=steps,
        seed=seed,
    )
