"""Pictures of an abacus: text for a terminal, pixels for a film, vectors for a page.

All of them draw an `AbacusView`; `view_of` makes one from a batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abacus.checks import check_integer
from abacus.render.scene import PICTURE_COLUMNS, scene_of
from abacus.render.shapes import scene_pixels, scene_svg
from abacus.render.text import render_ansi
from abacus.render.view import AbacusView, view_of

__all__ = ["AbacusView", "render_ansi", "render_rgb", "render_svg", "view_of"]

#: Most pixels per unit of the layout.
MAX_SCALE = 4


def render_rgb(
    view: AbacusView, max_columns: int = PICTURE_COLUMNS, scale: int = 1
) -> npt.NDArray[np.uint8]:
    """Draw the abacus as (height, width, 3) pixels, `scale` of them per unit of the layout.

    The size depends only on the columns shown, the base and the scale, as a film needs it.
    """
    check_integer("scale", scale, 1, MAX_SCALE)
    return scene_pixels(scene_of(view, max_columns), scale)


def render_svg(view: AbacusView, max_columns: int = PICTURE_COLUMNS) -> str:
    """Draw the same picture as a standalone SVG document."""
    symbol = "reset" if view.resetting else f"digit {view.symbol_text} read"
    title = (
        f"Abacus of {view.columns:,} columns in base {view.base}: {symbol}, {view.operation_text}, "
        f"finger on column {view.finger_column} and row {view.finger_row}, "
        f"signpost on column {view.signpost}"
    )
    return scene_svg(scene_of(view, max_columns), title)
