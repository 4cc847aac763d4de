"""Scenes as SVG text that stands alone: vector pictures for documents and browsers."""

from __future__ import annotations

from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from abacus.render.scene import Box, Polygon, Scene, Shape, Sprite, Text, font, text_width

#: The pictures' own font is rarely installed; these are of about its width.
_FONTS = "Aileron, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


def scene_svg(scene: Scene, title: str) -> str:
    """The scene as an SVG document; the title is what screen readers say."""
    size = f'width="{scene.width}" height="{scene.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {scene.width} {scene.height}" font-family="{_FONTS}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect {size} fill="{scene.background}"/>',
    ]
    for x, y, sprite in scene.sprites:
        lines.append(f'<g transform="translate({x} {y})">')
        lines.extend(_element(shape) for shape in sprite.shapes)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _element(shape: Shape) -> str:
    match shape:
        case Box():
            return _box(shape)
        case Polygon():
            points = " ".join(f"{x:g},{y:g}" for x, y in shape.points)
            return f'<polygon points="{points}" fill="{shape.fill}"/>'
        case Text():
            return _text(shape)


def _box(box: Box) -> str:
    # SVG draws an outline half inside and half outside: half of it is taken off.
    inset = box.stroke / 2
    attributes = {
        "x": f"{box.x + inset:g}",
        "y": f"{box.y + inset:g}",
        "width": f"{box.width - box.stroke:g}",
        "height": f"{box.height - box.stroke:g}",
        "rx": f"{max(0.0, box.radius - inset):g}",
        "fill": box.fill or "none",
    }
    if box.outline:
        attributes |= {"stroke": box.outline, "stroke-width": f"{box.stroke:g}"}
    return f"<rect {_written(attributes)}/>"


def _text(text: Text) -> str:
    attributes = {
        "x": f"{text.x:g}",
        "y": f"{text.y:g}",
        "font-size": str(text.size),
        "fill": text.fill,
        "text-anchor": text.anchor,
    }
    if len(text.text) > 1:
        # Whatever font is found, the text takes the room that the layout gave it.
        attributes["textLength"] = f"{text_width(text.text, text.size):.1f}"
        attributes["lengthAdjust"] = "spacingAndGlyphs"
    if text.weight:
        attributes |= {"stroke": text.fill, "stroke-width": f"{text.weight:g}"}
    return f"<text {_written(attributes)}>{escape(text.text)}</text>"


def _written(attributes: dict[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items())


#: Pillow draws jagged edges: everything is drawn this many times larger and reduced.
_OVERSAMPLING = 4
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def scene_pixels(scene: Scene, scale: int = 1) -> npt.NDArray[np.uint8]:
    """The scene as (height, width, 3), with `scale` pixels to a unit."""
    image = Image.new("RGB", (scene.width * scale, scene.height * scale), scene.background)
    for x, y, sprite in scene.sprites:
        tile = _tile(sprite, scale)
        image.paste(tile, (x * scale, y * scale), tile)
    return np.array(image)


# Frames of an animation share nearly all their sprites: a frame is mostly copied together.
@lru_cache(maxsize=256)
def _tile(sprite: Sprite, scale: int) -> Image.Image:
    factor = scale * _OVERSAMPLING
    large = Image.new("RGBA", (sprite.width * factor, sprite.height * factor))
    draw = ImageDraw.Draw(large)
    for shape in sprite.shapes:
        _draw(draw, shape, factor)
    # Reduced with premultiplied alpha: the black of empty pixels must not darken the edges.
    return large.convert("RGBa").reduce(_OVERSAMPLING).convert("RGBA")


def _draw(draw: ImageDraw.ImageDraw, shape: Shape, factor: int) -> None:
    match shape:
        case Box():
            # Pillow counts the last row and column in.
            corners = (
                round(shape.x * factor),
                round(shape.y * factor),
                round((shape.x + shape.width) * factor) - 1,
                round((shape.y + shape.height) * factor) - 1,
            )
            draw.rounded_rectangle(
                corners,
                radius=shape.radius * factor,
                fill=shape.fill,
                outline=shape.outline,
                width=round(shape.stroke * factor),
            )
        case Polygon():
            draw.polygon([(x * factor, y * factor) for x, y in shape.points], fill=shape.fill)
        case Text():
            draw.text(
                (shape.x * factor, shape.y * factor),
                shape.text,
                fill=shape.fill,
                font=font(shape.size * factor),
                anchor=_ANCHORS[shape.anchor],
                stroke_width=round(shape.weight * factor / 2),
            )
