"""What titles and alternative texts say of seeds and grids."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.studying.figures.drawn_values import ERROR, value_of
from pipelines.studying.groups import Grid, Kind, seeds_said
from pipelines.studying.records import Record
from pipelines.studying.statistics import FEWEST_SEEDS
from pipelines.studying.wording import percent


def seeds_in(parts: Sequence[Sequence[Record]]) -> str:
    """How many seeds the parts have, in words."""
    return seeds_said([len(part) for part in parts if part])


def averaged(parts: Sequence[Sequence[Record]]) -> str:
    """What a line and its band are, and of how many seeds."""
    counts = [len(part) for part in parts if part]
    if max(counts, default=0) < FEWEST_SEEDS:
        return f"Interquartile mean of {seeds_in(parts)}: too few for an interval"
    few = f" (none for fewer than {FEWEST_SEEDS})" if min(counts) < FEWEST_SEEDS else ""
    return f"Interquartile mean and 95 % interval{few} of {seeds_in(parts)}"


def grid_alt(grid: Grid, kinds: Sequence[Kind]) -> str:
    """The errors with the fewest and the most demonstrations, for those who see no picture."""
    parts = []
    for kind in kinds:
        run = [n for n in grid.demonstrations if grid.seeds(kind, n)]
        errors = (value_of(grid.seeds(kind, n), ERROR).value for n in (run[0], run[-1]))
        first, last = (percent(error) for error in errors)
        parts.append(f"{kind.name}: {first} % at {run[0]:,}, {last} % at {run[-1]:,}")
    return "Operations not solved, by demonstrations: " + "; ".join(parts)
