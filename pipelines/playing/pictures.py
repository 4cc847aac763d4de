"""A moment as a picture: the abacus, and under it a card with what the player makes of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from PIL import Image

from abacus.render_raster import scene_pixels
from abacus.render_scene import (
    CARD,
    FAINT,
    FINGER,
    INK,
    MARGIN,
    OPERATIONS,
    PANEL,
    PICTURE_COLUMNS,
    SIGNPOST,
    scene_of,
)
from abacus.render_shapes import Box, Scene, Shape, Sprite, Text, fitted, text_width
from abacus.render_svg import scene_svg
from abacus.rules import Action
from pipelines.playing.game import Moment
from pipelines.playing.words import action_words, percent

_ACROSS = 4
_TITLE, _LINE, _BAR, _EDGE = 44, 54, 10, 24
_CARD_HEIGHT = _TITLE + len(Action) // _ACROSS * _LINE + 6


def moment_scene(moment: Moment, player: str, verdict: str = "", right: bool = True) -> Scene:
    """The picture of a moment; in the last one the card holds the verdict."""
    scene = scene_of(moment.view, PICTURE_COLUMNS)
    width = scene.width - 2 * MARGIN
    if moment.probabilities is None:
        card = _verdict_card(width, verdict, right)
    else:
        card = _choices_card(width, moment, player)
    return dataclasses.replace(
        scene,
        height=scene.height + card.height + MARGIN // 2,
        # Half a margin under the values' card, which the abacus's picture ends with.
        sprites=(*scene.sprites, (MARGIN, scene.height - MARGIN // 2, card)),
    )


def moment_pixels(scene: Scene, width: int | None = None) -> npt.NDArray[np.uint8]:
    """(height, width, 3): as wide as its layout, or as asked for."""
    if width is None or width == scene.width:
        return scene_pixels(scene)
    # Drawn at the next larger whole scale, so that reducing it only ever loses pixels.
    scale = max(1, min(4, -(-width // scene.width)))
    height = round(scene.height * width / scene.width)
    image = Image.fromarray(scene_pixels(scene, scale))
    return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))


def moment_svg(scene: Scene, moment: Moment) -> str:
    view = moment.view
    doing = f"next action {action_words(moment.action)}" if moment.action is not None else "the end"
    title = (
        f"Abacus computing {view.expression or 'a value'}: step {view.step}, symbol "
        f"{view.symbol_text}, finger on column {view.finger_column} and row {view.finger_row}, "
        f"signpost on column {view.signpost}, {doing}"
    )
    return scene_svg(scene, title)


def _choices_card(width: int, moment: Moment, player: str) -> Sprite:
    assert moment.probabilities is not None
    shapes: list[Shape] = [
        Box(0, 0, width, _CARD_HEIGHT, CARD, 14),
        Text(_EDGE, 29, f"next action of {player}", 17, FAINT),
    ]
    cell = (width - 2 * _EDGE + _EDGE) / _ACROSS
    for action, probability in zip(Action, moment.probabilities, strict=True):
        line, slot = divmod(int(action), _ACROSS)
        left, top = _EDGE + slot * cell, _TITLE + line * _LINE
        shapes += _choice(left, top, cell - _EDGE, action, probability, action == moment.action)
    return Sprite(width, _CARD_HEIGHT, tuple(shapes))


def _choice(
    left: float, top: float, room: float, action: Action, probability: float, chosen: bool
) -> list[Shape]:
    ink, weight = (INK, 0.5) if chosen else (FAINT, 0)
    shapes: list[Shape] = [
        Text(left, top + 18, action_words(action), 19, ink, "start", weight),
        Text(left + room, top + 18, percent(probability), 17, ink, "end", weight),
        Box(left, top + 27, room, _BAR, PANEL, _BAR / 2),
    ]
    filled = room * probability
    if filled >= 1:
        # A sliver has no room for round corners.
        colour = FINGER if chosen else FAINT
        shapes.append(Box(left, top + 27, filled, _BAR, colour, min(_BAR, filled) / 2))
    return shapes


def _verdict_card(width: int, verdict: str, right: bool) -> Sprite:
    colour = OPERATIONS[0] if right else SIGNPOST
    head, _, rest = verdict.partition(": ")
    middle = _CARD_HEIGHT / 2
    pill = text_width(head, 24) + 40
    shapes = (
        Box(0, 0, width, _CARD_HEIGHT, CARD, 14),
        Box(_EDGE, middle - 46, pill, 42, colour, 21),
        Text(_EDGE + pill / 2, middle - 17, head, 24, "#ffffff", "middle", 0.3),
        Text(_EDGE, middle + 34, fitted(rest, 22, width - 2 * _EDGE), 22, INK),
    )
    return Sprite(width, _CARD_HEIGHT, shapes)
