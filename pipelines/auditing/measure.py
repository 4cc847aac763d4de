"""The audit's numbers: every variant with every number of frames, exact and sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from tqdm import tqdm

from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.ambiguity import Ambiguity, Kind, find_ambiguities, worked_example
from oracle.explore import Exploration, explore
from oracle.observability import SampledCount, SampledSteps, count_sampled, sample_steps
from oracle.observations import collect, complete_width
from oracle.witness import Witness


@dataclass(frozen=True)
class Example:
    """An ambiguous observation, and for each answer an operation that asks for it."""

    history: tuple[int, ...]
    symbol: int
    operation: int
    witnesses: dict[Action, Witness]


@dataclass(frozen=True)
class KindFound:
    """A kind of ambiguity: how many observations are of it, and the one that is met soonest."""

    kind: Kind
    observations: int
    example: Example


@dataclass(frozen=True)
class Row:
    """A row of the table: a variant, seen with so many frames."""

    variant: Variant
    frames: int
    observations: int
    ambiguous: int
    sampled: SampledCount
    kinds: tuple[KindFound, ...]
    #: Every ambiguous observation, if they are not too many to list.
    listed: tuple[Example, ...]


def measure(
    config: AbacusConfig,
    variants: Iterable[Variant],
    frames: Iterable[int],
    steps: int,
    seed: int,
    list_up_to: int,
) -> Iterator[Row]:
    """The rows, as they are found; `config` has the most frames."""
    for variant in variants:
        with tqdm(total=steps, desc=f"{variant}: steps", unit_scale=True, leave=False) as bar:
            sample = sample_steps(config, variant, steps, seed, bar.update)
        for number in frames:
            yield _row(config.base, variant, number, sample, list_up_to)


def _row(base: int, variant: Variant, frames: int, sample: SampledSteps, list_up_to: int) -> Row:
    exploration = _explored(base, variant, frames)
    complete = collect(exploration, variant)
    sampled = count_sampled(sample, complete)
    found = find_ambiguities(exploration, complete)
    listed = found if len(found) <= list_up_to else []
    return Row(
        variant,
        frames,
        len(complete),
        len(found),
        sampled,
        tuple(_kinds(exploration, variant, found)),
        tuple(_example(exploration, variant, ambiguity) for ambiguity in listed),
    )


def _explored(base: int, variant: Variant, frames: int) -> Exploration:
    described = f"{variant}, {frames} frame{'s' if frames > 1 else ''}: situations"
    with tqdm(desc=described, unit_scale=True, leave=False) as bar:

        def show(done: int, found: int) -> None:
            bar.total = found
            bar.update(done - bar.n)

        return explore(base, frames, complete_width(frames), variant, show)


def _kinds(
    exploration: Exploration, variant: Variant, found: list[Ambiguity]
) -> Iterator[KindFound]:
    """The kinds, the most frequent first."""
    by_kind = sorted(found, key=_order)
    groups = [(kind, list(group)) for kind, group in groupby(by_kind, lambda one: one.kind)]
    groups.sort(key=lambda group: -len(group[1]))
    for kind, group in groups:
        yield KindFound(kind, len(group), _example(exploration, variant, group[0]))


def _order(ambiguity: Ambiguity) -> tuple[object, ...]:
    kind = ambiguity.kind
    return kind.answers, kind.symbol, kind.signpost, ambiguity.distance


def _example(exploration: Exploration, variant: Variant, ambiguity: Ambiguity) -> Example:
    return Example(
        ambiguity.history,
        ambiguity.symbol,
        ambiguity.operation,
        worked_example(exploration, ambiguity, variant),
    )
