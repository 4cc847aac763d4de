"""Shapes that pictures are made of, drawn as pixels by Pillow or written as SVG.

Only what both formats draw alike is here. Colours are `#rrggbb` and opaque, so that neither has to
blend.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

#: Pillow draws jagged edges: sprites are drawn larger by this factor and reduced.
_OVERSAMPLING = 4
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
#: Pillow's font is rarely installed; these have about its width.
_SVG_FONTS = "Aileron, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


@dataclass(frozen=True)
class Box:
    """A rectangle with round corners; with a radius of half its side, a circle or a pill.

    The outline is drawn inside. `fill=None` leaves the inside transparent.
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
    """A filled polygon."""

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
    anchor: Literal["start", "middle", "end"] = "start"
    weight: float = 0


Shape = Box | Polygon | Text


@dataclass(frozen=True)
class Sprite:
    """Shapes within a rectangle, drawn once and placed often."""

    width: int
    height: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Scene:
    """Sprites with the positions of their top left corners, from back to front."""

    width: int
    height: int
    background: str
    sprites: tuple[tuple[int, int, Sprite], ...]


def mixed(colour: str, other: str, share: float) -> str:
    """Return the colour with a share of another, from 0 (none) to 1 (only the other)."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + bytes(round(a + (b - a) * share) for a, b in pairs).hex()


@lru_cache(maxsize=64)
def font(size: int) -> ImageFont.FreeTypeFont:
    """Return Pillow's own font: no file is needed, and pictures look the same everywhere."""
    loaded = ImageFont.load_default(size)
    if not isinstance(loaded, ImageFont.FreeTypeFont):
        raise RuntimeError("pictures need a Pillow with FreeType: install one")
    return loaded


def text_width(text: str, size: int) -> float:
    """Return the width of a text in pixels."""
    # Measured at a large size: small ones are rounded to whole pixels letter by letter.
    return font(8 * size).getlength(text) / 8


@lru_cache(maxsize=64)
def fitted(text: str, size: int, room: float) -> str:
    """Return the text, cut off with an ellipsis where it is wider than `room`."""
    # A character is wider than a tenth of its size, which bounds the length to measure.
    most = int(10 * room / size)
    if len(text) <= most and text_width(text, size) <= room:
        return text
    kept = bisect.bisect_right(
        range(most), room, key=lambda length: text_width(f"{text[:length]}…", size)
    )
    return f"{text[: max(0, kept - 1)]}…"


def scene_pixels(scene: Scene, scale: int = 1) -> npt.NDArray[np.uint8]:
    """Draw a scene as (height, width, 3), with `scale` pixels per unit."""
    image = Image.new("RGB", (scene.width * scale, scene.height * scale), scene.background)
    for x, y, sprite in scene.sprites:
        tile = _tile(sprite, scale)
        image.paste(tile, (x * scale, y * scale), tile)
    return np.array(image)


# Consecutive frames share nearly all of their sprites: most of a frame is copied.
@lru_cache(maxsize=256)
def _tile(sprite: Sprite, scale: int) -> Image.Image:
    factor = scale * _OVERSAMPLING
    large = Image.new("RGBA", (sprite.width * factor, sprite.height * factor))
    draw = ImageDraw.Draw(large)
    for shape in sprite.shapes:
        _draw(draw, shape, factor)
    # Reduced with premultiplied alpha, or the black of empty pixels would darken the edges.
    return large.convert("RGBa").reduce(_OVERSAMPLING).convert("RGBA")


def _draw(draw: ImageDraw.ImageDraw, shape: Shape, factor: int) -> None:
    match shape:
        case Box(x, y, width, height):
            # Pillow includes the last row and column.
            right, bottom = round((x + width) * factor) - 1, round((y + height) * factor) - 1
            draw.rounded_rectangle(
                (round(x * factor), round(y * factor), right, bottom),
                radius=shape.radius * factor,
                fill=shape.fill,
                outline=shape.outline,
                width=round(shape.stroke * factor),
            )
        case Polygon(points, fill):
            draw.polygon([(x * factor, y * factor) for x, y in points], fill=fill)
        case Text(x, y, text):
            draw.text(
                (x * factor, y * factor),
                text,
                fill=shape.fill,
                font=font(shape.size * factor),
                anchor=_ANCHORS[shape.anchor],
                stroke_width=round(shape.weight * factor / 2),
            )


def scene_svg(scene: Scene, title: str) -> str:
    """Write a scene as a standalone SVG document; screen readers read the title."""
    size = f'width="{scene.width}" height="{scene.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {scene.width} {scene.height}" font-family="{_SVG_FONTS}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect {size} fill="{scene.background}"/>',
    ]
    for x, y, sprite in scene.sprites:
        lines.append(f'<g transform="translate({x} {y})">')
        lines.extend(_svg_element(shape) for shape in sprite.shapes)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _svg_element(shape: Shape) -> str:
    attributes: dict[str, object]
    match shape:
        case Polygon(points, fill):
            text = " ".join(f"{x:g},{y:g}" for x, y in points)
            return f'<polygon points="{text}" fill="{fill}"/>'
        case Box(x, y, width, height):
            # SVG centres an outline on the edge.
            inset = shape.stroke / 2
            attributes = {
                "x": f"{x + inset:g}",
                "y": f"{y + inset:g}",
                "width": f"{width - shape.stroke:g}",
                "height": f"{height - shape.stroke:g}",
                "rx": f"{max(0.0, shape.radius - inset):g}",
                "fill": shape.fill or "none",
            }
            if shape.outline:
                attributes |= {"stroke": shape.outline, "stroke-width": f"{shape.stroke:g}"}
            return f"<rect {_svg_attributes(attributes)}/>"
        case Text(x, y, text, size, fill, anchor, weight):
            attributes = {
                "x": f"{x:g}", "y": f"{y:g}",
                "font-size": size, "fill": fill, "text-anchor": anchor,
            }  # fmt: skip
            if len(text) > 1:
                # With any font, the text takes the width that the layout reserves for it.
                attributes["textLength"] = f"{text_width(text, size):.1f}"
                attributes["lengthAdjust"] = "spacingAndGlyphs"
            if weight:
                attributes |= {"stroke": fill, "stroke-width": f"{weight:g}"}
            return f"<text {_svg_attributes(attributes)}>{escape(text)}</text>"


def _svg_attributes(attributes: dict[str, object]) -> str:
    return " ".join(f"{name}={quoteattr(str(value))}" for name, value in attributes.items())
