"""HTML pages from the templates, scripts and styles in `pipelines/pages/`.

A page is one file that works offline: scripts and styles are written into it. A template that
includes `drawing.html` gets the drawing of an abacus, with the sizes and colours of
`abacus.render`.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from abacus.render import scene
from abacus.rules import ENCODING_PERIOD, Action

OPERATION_WORDS = ("adding", "subtracting")
_SIZES = (
    "CELL", "ROW", "POST", "BEAM", "SILL", "PANEL_EDGE", "FLAG", "LABELS", "DIGIT_LINE",
    "COLUMN_LINE", "PICTURE_COLUMNS",
)  # fmt: skip
_COLOURS = (
    "BACKGROUND", "CARD", "INK", "FAINT", "WOOD", "WOOD_DARK", "INLAY", "PANEL", "PANEL_LIT",
    "WINDOW", "ROD", "BEAD", "FINGER", "SIGNPOST",
)  # fmt: skip


def render_page(template: str, constants: dict[str, Any] | None = None, **context: Any) -> str:
    """Render a template of `pipelines/pages/` to HTML; values in `context` are escaped.

    `constants` are added to the JavaScript constants that `drawing.html` defines.
    """
    page = _environment().get_template(template)
    constants = drawing_constants() | (constants or {})
    return page.render(constants=constants, variables=style_variables(), **context)


def _asset(name: str) -> Markup:
    """Return a script or a style sheet unchanged; templates call `asset(name)`."""
    return Markup((files("pipelines") / "pages" / name).read_text(encoding="utf-8"))


def drawing_constants() -> dict[str, Any]:
    """Return the sizes of the drawing, and the words for actions, by their JavaScript names."""
    sizes = {name: getattr(scene, name) for name in _SIZES}
    return {
        **sizes,
        "ENCODING_PERIOD": ENCODING_PERIOD,
        "ACTION_WORDS": [action.words for action in Action],
        "OPERATION_WORDS": OPERATION_WORDS,
    }


def style_variables() -> dict[str, str]:
    """Return the colours of the drawing by the names of their CSS variables."""
    colours = {name.lower().replace("_", "-"): getattr(scene, name) for name in _COLOURS}
    colours |= dict(zip(OPERATION_WORDS, scene.OPERATIONS, strict=True))
    # The share of its colour that a shape outside the window keeps.
    return colours | {"undimmed": f"{100 * (1 - scene.DIMMING):g}%"}


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pipelines", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["asset"] = _asset
    return environment
