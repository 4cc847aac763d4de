"""A game in files: as pictures (GIF, MP4, SVG) and as a trace (JSON).

A picture shows the abacus and, on a card below it, the agent's probabilities; the last one shows
the verdict instead.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from abacus.render import scene as look
from abacus.render.shapes import (
    Box,
    Scene,
    Shape,
    Sprite,
    Text,
    fitted,
    mixed,
    scene_pixels,
    scene_svg,
    text_width,
)
from abacus.rules import Action
from abacus.tasks import numeral
from oracle.files import atomic_path, atomic_write, atomic_write_text
from pipelines.showing.game import (
    Agent,
    Game,
    Moment,
    moments_of,
    probability_text,
    verdict,
)

Pixels = npt.NDArray[np.uint8]

FORMAT, VERSION = "virtual-abacus-trace", 1
#: The last picture is shown for this long before an animation repeats.
LAST_SECONDS = 3.0
#: GIFs count time in hundredths of a second, and browsers slow down frames below two.
_GIF_TICK, _MIN_GIF_TICKS = 10, 2
#: One less than a GIF can have: the last one is for unchanged pixels.
_MAX_COLOURS = 255
#: The card: actions per line, and sizes in units of the layout.
_PER_LINE = 4
_TITLE, _LINE, _BAR, _EDGE = 44, 54, 10, 24
_CARD_HEIGHT = _TITLE + len(Action) // _PER_LINE * _LINE + 6


def export(
    new_game: Callable[[], Game],
    agent: Agent,
    files: dict[str, Path],
    speed: float,
    width: int | None = None,
    frame: int | None = None,
) -> Game:
    """Play a game for each file, so that no game is held in memory; return the last one.

    Args:
        files: the paths of the formats to write: `trace`, `svg`, `gif`, `mp4`.
        speed: steps per second of GIF and MP4.
        width: width of GIF and MP4 in pixels.
        frame: step that the SVG shows, by default the last.
    """
    if "mp4" in files:
        find_encoder()
    for kind, path in files.items():
        game = new_game()
        moments = tqdm(
            moments_of(game, agent), desc=path.name, unit=" steps", disable=None, leave=False
        )
        match kind:
            case "trace":
                write = partial(write_trace, game=game, agent=agent.name, moments=moments)
                atomic_write(path, write)
            case "svg":
                atomic_write_text(path, _svg(game, agent, moments, frame))
            case "gif":
                write_gif(path, _pictures(game, agent, moments, speed, width), speed)
            case "mp4":
                write_mp4(path, _pictures(game, agent, moments, speed, width), speed)
    return game


def _svg(game: Game, agent: Agent, moments: Iterable[Moment], frame: int | None) -> str:
    """Play to the end; return the picture of one step, or of the last."""
    chosen = None
    for moment in moments:
        if frame in (None, moment.view.step):
            chosen = moment
    if chosen is None:
        raise ValueError(f"frame={frame} is not allowed: the game has steps 0 to {game.steps}")
    view, action = chosen.view, chosen.action
    title = (
        f"Abacus computing {view.expression}: step {view.step}, symbol {view.symbol_text}, "
        f"finger on column {view.finger_column} and row {view.finger_row}, "
        f"signpost on column {view.signpost}, "
        + ("end" if action is None else f"next action {action.words}")
    )
    return scene_svg(moment_scene(chosen, agent.name, verdict(game), game.solved), title)


def _pictures(
    game: Game, agent: Agent, moments: Iterable[Moment], speed: float, width: int | None
) -> Iterator[Pixels]:
    for moment in moments:
        scene = moment_scene(moment, agent.name, verdict(game), game.solved)
        pixels = moment_pixels(scene, width)
        yield pixels
    for _ in range(round(LAST_SECONDS * speed)):
        yield pixels


def moment_scene(moment: Moment, agent: str, verdict: str = "", correct: bool = True) -> Scene:
    """Draw a moment; the last one, which has no probabilities, shows the verdict."""
    scene = look.scene_of(moment.view, look.PICTURE_COLUMNS)
    width = scene.width - 2 * look.MARGIN
    if moment.probabilities is None:
        card = _verdict_card(width, verdict, correct)
    else:
        card = _probability_card(width, moment, moment.probabilities, agent)
    return dataclasses.replace(
        scene,
        height=scene.height + card.height + look.MARGIN // 2,
        # Half a margin below the card with the values, where the picture of the abacus ends.
        sprites=(*scene.sprites, (look.MARGIN, scene.height - look.MARGIN // 2, card)),
    )


def _probability_card(
    width: int, moment: Moment, probabilities: tuple[float, ...], agent: str
) -> Sprite:
    shapes: list[Shape] = [
        Box(0, 0, width, _CARD_HEIGHT, look.CARD, 14),
        Text(_EDGE, 29, f"next action of {agent}", 17, look.FAINT),
    ]
    cell = (width - _EDGE) / _PER_LINE
    room = cell - _EDGE
    for action, probability in zip(Action, probabilities, strict=True):
        line, slot = divmod(int(action), _PER_LINE)
        left, top = _EDGE + slot * cell, _TITLE + line * _LINE
        chosen = action == moment.action
        ink, weight = (look.INK, 0.5) if chosen else (look.FAINT, 0)
        shapes += [
            Text(left, top + 18, action.words, 19, ink, "start", weight),
            Text(left + room, top + 18, probability_text(probability), 17, ink, "end", weight),
            Box(left, top + 27, room, _BAR, look.PANEL, _BAR / 2),
        ]
        filled = room * probability
        if filled >= 1:
            # A narrow bar has no room for full corners.
            fill = look.FINGER if chosen else look.FAINT
            shapes.append(Box(left, top + 27, filled, _BAR, fill, min(_BAR, filled) / 2))
    return Sprite(width, _CARD_HEIGHT, tuple(shapes))


def _verdict_card(width: int, verdict: str, correct: bool) -> Sprite:
    head, _, rest = verdict.partition(": ")
    middle = _CARD_HEIGHT / 2
    pill = text_width(head, 24) + 40
    fill = look.OPERATIONS[0] if correct else look.SIGNPOST
    shapes = (
        Box(0, 0, width, _CARD_HEIGHT, look.CARD, 14),
        Box(_EDGE, middle - 46, pill, 42, fill, 21),
        Text(_EDGE + pill / 2, middle - 17, head, 24, "#ffffff", "middle", 0.3),
        Text(_EDGE, middle + 34, fitted(rest, 22, width - 2 * _EDGE), 22, look.INK),
    )
    return Sprite(width, _CARD_HEIGHT, shapes)


def moment_pixels(scene: Scene, width: int | None = None) -> Pixels:
    """Return the scene as (height, width, 3), by default one pixel per unit of its layout."""
    if width is None or width == scene.width:
        return scene_pixels(scene)
    # Drawn at the next larger integer scale and reduced: enlarging would blur it.
    scale = max(1, min(4, -(-width // scene.width)))
    height = round(scene.height * width / scene.width)
    image = Image.fromarray(scene_pixels(scene, scale))
    return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))


def write_gif(path: Path, frames: Iterable[Pixels], speed: float) -> None:
    """Write a GIF that repeats, with `speed` frames per second; it is written while drawing."""
    images = _gif_frames(frames, speed)
    first = next(images)

    def write(file: IO[bytes]) -> None:
        first.save(
            file, "GIF", save_all=True, append_images=images, loop=0, optimize=True, disposal=1
        )

    atomic_write(path, write)


def _gif_frames(frames: Iterable[Pixels], speed: float) -> Iterator[Image.Image]:
    """Yield frames with one palette, so that only changed pixels are stored."""
    palette = Image.new("P", (1, 1))
    palette.putpalette(palette_colours())
    ticks = 1000 / _GIF_TICK / speed
    for number, pixels in enumerate(frames):
        image = Image.fromarray(pixels).quantize(palette=palette, dither=Image.Dither.NONE)
        # Rounding the times of frames, not their durations, keeps the speed exact on average.
        duration = round((number + 1) * ticks) - round(number * ticks)
        image.info["duration"] = _GIF_TICK * max(_MIN_GIF_TICKS, duration)
        yield image


@lru_cache(maxsize=1)
def palette_colours() -> bytes:
    """Return the colours of all pictures, and mixtures of each with its backgrounds.

    A palette taken from one frame would lack the colours that only other frames show.
    """
    bead, rod, panel, wood = look.BEAD, look.ROD, look.PANEL, look.WOOD
    shadow, pole = mixed(bead, "#000000", 0.28), mixed(look.SIGNPOST, "#000000", 0.35)
    dimmed = [mixed(colour, panel, look.DIMMING) for colour in (bead, rod, shadow)]
    moving = [look.FINGER, look.SIGNPOST, look.WINDOW, bead, rod]
    drawn = [look.INK, look.FAINT, *moving, *look.OPERATIONS, *dimmed]
    edges = [look.WOOD_LIGHT, look.WOOD_DARK, shadow, pole]
    grounds = [look.BACKGROUND, look.CARD, panel, wood]
    between = [
        mixed(colour, ground, share)
        for colour in drawn
        for ground in grounds
        for share in (0.25, 0.5, 0.75)
    ]
    on_wood = [mixed(look.INLAY, wood, share) for share in (0, 0.5)]
    colours = dict.fromkeys([*drawn, *grounds, *edges, look.PANEL_LIT, *on_wood, *between])
    return b"".join(bytes.fromhex(colour[1:]) for colour in list(colours)[:_MAX_COLOURS])


def find_encoder() -> str:
    """Return the path of ffmpeg, or raise ValueError if it is not installed."""
    encoder = shutil.which("ffmpeg")
    if encoder is None:
        raise ValueError("--mp4 needs ffmpeg, and none is on the PATH: install it, or use --gif")
    return encoder


def write_mp4(path: Path, frames: Iterable[Pixels], speed: float) -> None:
    """Write an H.264 film that browsers play, with `speed` frames per second."""
    frames = iter(frames)
    first = next(frames)
    height, width, _ = first.shape
    with atomic_path(path) as film, tempfile.TemporaryFile() as errors:
        command = [
            find_encoder(), "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24",
            "-s", f"{width}x{height}", "-r", f"{speed:g}", "-i", "-",
            # Players expect even sides and yuv420p; seeking needs ten frames per second or more.
            "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p",
            "-r", f"{max(speed, 10):g}", "-movflags", "+faststart", "-f", "mp4", str(film),
        ]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors) as process:
            assert process.stdin is not None
            try:
                process.stdin.write(first.tobytes())
                for frame in frames:
                    process.stdin.write(frame.tobytes())
                process.stdin.close()
            except BrokenPipeError:
                pass  # ffmpeg has ended; its message is read below
            if process.wait() != 0:
                errors.seek(0)
                lines = errors.read().decode("utf-8", "replace").strip().splitlines()
                raise ValueError(f"ffmpeg failed: {lines[-1] if lines else 'without a message'}")


def write_trace(file: IO[bytes], game: Game, agent: str, moments: Iterable[Moment]) -> None:
    """Write the moments as JSON while they are played, one on a line."""
    config = game.config
    head = {
        "format": FORMAT,
        "version": VERSION,
        "expression": config.expression,
        "base": config.base,
        "columns": config.columns,
        "frames": config.frames,
        "player": agent,
    }
    file.write(f'{json.dumps(head)[:-1]}, "steps": [\n'.encode())
    for number, moment in enumerate(moments):
        separator = ",\n" if number else ""
        file.write(f"{separator}{json.dumps(step_record(moment))}".encode())
    tail = {
        "end": game.end.name,
        "value": numeral(game.value, 10),
        "truth": numeral(game.truth, 10),
        "right": game.solved,
    }
    file.write(f"\n], {json.dumps(tail)[1:]}\n".encode())


def step_record(moment: Moment) -> dict[str, Any]:
    """Return one step of a trace as plain values."""
    view, action = moment.view, moment.action
    return {
        "step": view.step,
        "digits": "".join(map(str, view.digits)),
        "finger": [view.finger_column, view.finger_row],
        "signpost": view.signpost,
        "symbol": view.symbol_text,
        "operation": "+-"[view.operation],
        "frame_codes": list(moment.frames),
        "action": None if action is None else action.name,
        "probability": moment.probability,
        "probabilities": moment.probabilities and list(moment.probabilities),
    }
