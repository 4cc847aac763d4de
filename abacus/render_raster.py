"""Scenes as arrays of pixels, drawn by Pillow: no display, no font file."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from abacus.render_shapes import Box, Polygon, Scene, Shape, Sprite, Text, font

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
