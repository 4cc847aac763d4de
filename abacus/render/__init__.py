"""Pictures of an abacus: text for a terminal, pixels for a film, vectors for a page.

All of them draw an `AbacusView`, which `view_of` takes out of a batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abacus.render.formats import scene_pixels, scene_svg
from abacus.render.scene import PICTURE_COLUMNS, scene_of
from abacus.render.text import render_ansi
from abacus.render.view import AbacusView, view_of

__all__ = ["AbacusView", "render_ansi", "render_rgb", "render_svg", "view_of"]

#: The largest picture: four pixels to a unit.
MAX_SCALE = 4


def render_rgb(
    view: AbacusView, max_columns: int = PICTURE_COLUMNS, scale: int = 1
) -> npt.NDArray[np.uint8]:
    """The abacus as (height, width, 3) pixels, with `scale` pixels to a unit of the layout.

    The size depends on the columns shown, the base and the scale alone: frames make a film.
    """
    if isinstance(scale, bool) or not isinstance(scale, int) or not 1 <= scale <= MAX_SCALE:
        raise ValueError(f"scale={scale!r} is not allowed: give an integer from 1 to {MAX_SCALE}")
    return scene_pixels(scene_of(view, max_columns), scale)


def render_svg(view: AbacusView, max_columns: int = PICTURE_COLUMNS) -> str:
    """The same picture as an SVG document that stands alone."""
    symbol = "reset" if view.resetting else f"digit {view.symbol_text} read"
    title = (
        f"Abacus of {view.columns:,} columns in base {view.base}: {symbol}, {view.operation_text}, "
        f"finger on column {view.finger_column} and row {view.finger_row}, "
        f"signpost on column {view.signpost}"
    )
    return scene_svg(scene_of(view, max_columns), title)
