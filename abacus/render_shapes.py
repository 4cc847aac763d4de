"""The few shapes that pictures are made of, and how wide a text is.

Two backends draw them, `render_raster` and `render_svg`; whatever both can draw alike is here,
and nothing else. Colours are `#rrggbb` and opaque, so that no backend has to blend.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from PIL import ImageFont

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Box:
    """A rectangle with round corners; with a radius of half its side, a circle or a pill.

    The outline is drawn inside. `fill=None` leaves the inside free.
    """

    x: float
    y: float
    width: float
    height: float
    fill: str | None
    radius: float = 0
    outline: str | None = None
    stroke: float = 0


@dataclass(frozen=True)
class Polygon:
    points: tuple[tuple[float, float], ...]
    fill: str


@dataclass(frozen=True)
class Text:
    """One line of text with its baseline at `y`; `weight` thickens the letters, in pixels."""

    x: float
    y: float
    text: str
    size: int
    fill: str
    anchor: Anchor = "start"
    weight: float = 0


Shape = Box | Polygon | Text


@dataclass(frozen=True)
class Sprite:
    """Shapes within a rectangle: the unit that is drawn once and placed often."""

    width: int
    height: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Scene:
    """Sprites with the places of their top left corners, from back to front."""

    width: int
    height: int
    background: str
    sprites: tuple[tuple[int, int, Sprite], ...]


@lru_cache(maxsize=64)
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font, so that pictures need no file and look the same everywhere."""
    loaded = ImageFont.load_default(size)
    if not isinstance(loaded, ImageFont.FreeTypeFont):
        raise RuntimeError("this Pillow has no FreeType, which pictures need: install one with it")
    return loaded


def text_width(text: str, size: int) -> float:
    # Measured large, because small sizes are rounded to whole pixels letter by letter.
    return font(8 * size).getlength(text) / 8


@lru_cache(maxsize=64)
def fitted(text: str, size: int, room: float) -> str:
    """The text, with its end left out where it is wider than `room`."""
    # A character is wider than a tenth of its size: of a text of any length, this much counts.
    most = int(10 * room / size)
    if len(text) <= most and text_width(text, size) <= room:
        return text
    kept = bisect.bisect_right(
        range(most), room, key=lambda length: text_width(f"{text[:length]}…", size)
    )
    return f"{text[: max(0, kept - 1)]}…"


def mixed(colour: str, other: str, share: float) -> str:
    """The colour with a share of another, from 0 (none) to 1 (only the other)."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + bytes(round(a + (b - a) * share) for a, b in pairs).hex()
