"""Operations solved as colours and numbers, by demonstrations and kind of supervision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pipelines.evaluation.figures import INK
from pipelines.studying.drawing import Picture, drawn, said_range
from pipelines.studying.figures.captions import grid_alt, seeds_in
from pipelines.studying.groups import Grid
from pipelines.studying.records import Record
from pipelines.studying.statistics import iqm
from pipelines.studying.wording import percent

#: Errors below this share have one colour.
_FINEST = 1e-3
#: The luminance of the ink, with the 0.05 that contrasts are reckoned with.
_INK_LIGHT = 0.08


def heat_map(grid: Grid, folder: Path) -> Picture:
    """Demonstrations down, kinds of supervision across."""
    values = np.full((len(grid.demonstrations), len(grid.kinds)), np.nan)
    for y, n in enumerate(grid.demonstrations):
        for x, kind in enumerate(grid.kinds):
            if grid.seeds(kind, n):
                values[y, x] = iqm([record.final.accuracy for record in grid.seeds(kind, n)])
    known = values[~np.isnan(values)].tolist()
    title = (
        f"Operations solved, %: {said_range(known, percent)}, by demonstrations and supervision\n"
        f"Comparison {grid.comparison}. Interquartile mean of "
        f"{seeds_in(list(grid.parts.values()))}; "
        "below it, how many seeds were certified exact, if any"
    )

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shown = -np.log10(np.maximum(1 - values, _FINEST))
        finest = -math.log10(_FINEST)
        image = axes.imshow(shown, cmap="cividis", vmin=0, vmax=finest, aspect="auto")
        for (y, x), value in np.ndenumerate(values):
            seeds = grid.seeds(grid.kinds[x], grid.demonstrations[y])
            axes.text(
                x,
                y,
                _heat_text(seeds, value),
                ha="center",
                va="center",
                fontsize=7.5,
                color=_readable_on(image.to_rgba(shown[y, x])) if seeds else INK,
                linespacing=1.1,
            )
        names = [kind.name.replace(", ", ",\n").replace(" alone", "\nalone") for kind in grid.kinds]
        axes.set_xticks(range(len(names)), names, fontsize=7.5)
        axes.set_yticks(range(len(grid.demonstrations)), [f"{n:,}" for n in grid.demonstrations])
        axes.set_ylabel("demonstrated operations")
        axes.grid(visible=False)
        for edges, line in ((values.shape[0], axes.axhline), (values.shape[1], axes.axvline)):
            for edge in range(1, edges):
                line(edge - 0.5, color="white", linewidth=0.8)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        ticks = range(round(finest) + 1)
        bar = figure.colorbar(image, ax=axes, ticks=list(ticks), pad=0.01, fraction=0.04)
        labels = [percent(1 - 10.0**-tick).rstrip("0").rstrip(".") or "0" for tick in ticks]
        bar.ax.set_yticklabels([*labels[:-1], f"{labels[-1]}+"])
        bar.outline.set_visible(False)
        bar.set_label("operations solved, %")

    size = (2.0 + 0.72 * len(grid.kinds), 1.6 + 0.38 * len(grid.demonstrations))
    size = (max(size[0], 6.5), size[1])
    return drawn(folder, "heat_map", title, grid_alt(grid, grid.kinds), size, draw)


def _readable_on(colour: Any) -> str:
    """White or ink, whichever stands out more by the contrast of WCAG."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
    return "white" if 1.05 / light > light / _INK_LIGHT else INK


def _heat_text(seeds: Sequence[Record], value: float) -> str:
    if not seeds:
        return "-"
    exact = sum(record.final.exact for record in seeds)
    return percent(value) + (f"\n{exact}/{len(seeds)} exact" if exact else "")
