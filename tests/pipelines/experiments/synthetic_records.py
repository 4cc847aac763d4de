"""Records of a study that was never run: plausible numbers, by a generator that is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    if values["arm"] in ("cloning", "dagger"):
        values |= {"reward": "none", "steps": 0}
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
    return Record(
        cell=cell(labels=asked, **changed),
        clone=clone,
        final=final,
        last=last or final,
        curve=tuple(CurvePoint(step, step / 100, a, 1 - a, 5) for step, a in curve),
        longest_training_run=run,
        labels=labels,
        demonstrated=changed.get("demonstrations", 10),
        stage_steps={"ppo": changed["steps"]} if changed.get("steps") else {},
        rounds=tuple(TeachingRound(*each) for each in rounds),
        seconds={"cloning": 1.0, "reinforcement": 2.0, "all": 4.0},
    )


def seeds(accuracies: Sequence[float], **values: Any) -> list[Record]:
    """A record a seed."""
    return [record(accuracy, seed=k, **values) for k, accuracy in enumerate(accuracies)]


def study(
    demonstrations: Sequence[int] = (0, 1, 10, 100, 1000),
    seeds_of_each: int = 3,
    points: int = 6,
    steps: int = 1_000_000,
) -> list[Record]:
    """All comparisons, as a study has them when it is done."""
    generator = np.random.default_rng(7)
    single: tuple[Operations, ...] = ("add", "subtract")
    rewards: list[tuple[str, Operations]] = [(level, "both") for level in LEVELS]
    rewards += [("dense", operations) for operations in single]
    made: list[Record] = []
    for seed in range(seeds_of_each):
        for n in demonstrations:
            made += [
                _made(generator, "supervision", "cloning", n, "none", operations, seed)
                for operations in ("both", *single)
                if n
            ]
            made += [
                _made(generator, "supervision", "ppo", n, reward, operations, seed, steps, points)
                for reward, operations in rewards
            ]
        made += _others(generator, seed, demonstrations[len(demonstrations) // 2], steps, points)
    return made


def _others(
    generator: np.random.Generator, seed: int, n: int, steps: int, points: int
) -> Iterator[Record]:
    both: Operations = "both"
    for count in (0, n):
        for reward in list(LEVELS)[:3]:
            yield _made(generator, "curves", "ppo", count, reward, both, seed, 4 * steps, points)
        for alone in ("add", "subtract"):
            yield _made(generator, "curves", "ppo", count, "dense", alone, seed, 4 * steps, points)
    for labels in (300, 3_000, 30_000, 300_000):
        yield _made(
            generator, "teachers", "dagger", 0, "none", both, seed, points=points, labels=labels
        )
    arms: tuple[str, ...] = ("ppo", "dqn", "dqn_unmasked")
    for arm in arms:
        for reward in ("dense", "no_of"):
            yield _made(generator, "dqn", arm, 0, reward, both, seed, 2 * steps, points)


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
    slow = 40 if arm.startswith("dqn") else 1
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
        labels=labels or 60 * n,
        comparison=comparison,
        arm=arm,
        demonstrations=n,
        reward=reward,
        operations=operations,
        asked=labels,
        steps=steps,
        seed=seed,
    )
