"""The figures of a study, from its records alone; those for which there is something to draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.evaluation.tables import OPERATION_WORDS
from pipelines.studying.drawing import Picture
from pipelines.studying.figures.dqn_curves import dqn_curves
from pipelines.studying.figures.drawn_values import both_operations
from pipelines.studying.figures.error_by_demonstrations import error_by_demonstrations
from pipelines.studying.figures.error_by_labels import error_by_labels
from pipelines.studying.figures.heat_map import heat_map
from pipelines.studying.figures.learning_curves import curve_grid, learning_curves
from pipelines.studying.figures.what_ppo_added import what_ppo_added
from pipelines.studying.groups import checked, comparisons, main_grid
from pipelines.studying.records import Record


def draw_figures(records: Sequence[Record], folder: Path) -> list[Picture]:
    """Draws all figures into a folder."""
    return list(_figures(checked(records), folder))


def _figures(records: Sequence[Record], folder: Path) -> Iterator[Picture]:
    grid = main_grid(records)
    # With one number of demonstrations there is nothing to draw against.
    if grid and len(grid.demonstrations) > 1:
        yield error_by_demonstrations(grid, folder)
        yield heat_map(grid, folder)
    trained = curve_grid(records)
    if trained:
        kinds = both_operations(trained.kinds)
        yield learning_curves(trained, kinds, "curves_levels", lambda kind: kind.name, folder)
        single = [kind for kind in trained.kinds if kind.reward == "dense"]
        if any(kind.operations != "both" for kind in single):
            yield learning_curves(
                trained,
                single,
                "curves_operations",
                lambda kind: f"{OPERATION_WORDS[kind.operations]}, dense",
                folder,
            )
    tuned = main_grid([r for r in records if r.cell.arm == "ppo" and r.clone])
    if tuned:
        yield what_ppo_added(tuned, folder)
    if any(record.cell.arm == "dagger" for record in records):
        yield error_by_labels(records, folder)
    for name, part in comparisons(records).items():
        if any(r.cell.arm in ("dqn", "dqn_unmasked") and r.curve for r in part):
            yield dqn_curves(name, part, folder)
