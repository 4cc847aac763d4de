"""A moment as a picture: the abacus, and under it a card with what the player makes of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from abacus.render.formats import scene_pixels, scene_svg
from abacus.render.scene import (
    BACKGROUND,
    BEAD,
    CARD,
    DIMMING,
    FAINT,
    FINGER,
    INK,
    INLAY,
    MARGIN,
    OPERATIONS,
    PANEL,
    PANEL_LIT,
    PICTURE_COLUMNS,
    ROD,
    SIGNPOST,
    WINDOW,
    WOOD,
    WOOD_DARK,
    WOOD_LIGHT,
    Box,
    Scene,
    Shape,
    Sprite,
    Text,
    fitted,
    mixed,
    scene_of,
    text_width,
)
from abacus.rules import Action
from abacus.tasks import numeral
from oracle.files import atomic_write, atomic_write_text
from pipelines.showing.game import Game, Moment, Player, action_words, percent, verdict, watch

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


#: The last frame, with the verdict, stays for this long before a GIF starts over.
LAST_SECONDS = 3.0
#: One less than a GIF can have: the last is for pixels that stay as they are.
_COLOURS = 255
Pixels = npt.NDArray[np.uint8]


def write_gif(path: Path, frames: Iterable[Pixels], steps_a_second: float) -> None:
    """Writes a GIF that repeats; frames are drawn while it is written."""
    images = _with_one_palette(frames)
    first = next(images)
    # GIFs count in hundredths of a second, and browsers slow down what is below two.
    duration = max(20, 10 * round(100 / steps_a_second))

    def write(file: IO[bytes]) -> None:
        first.save(
            file, "GIF", save_all=True, append_images=images, duration=duration, loop=0,
            optimize=True, disposal=1,
        )  # fmt: skip

    atomic_write(path, write)


def _with_one_palette(frames: Iterable[Pixels]) -> Iterator[Image.Image]:
    """Frames that share their colours: only what moves is then stored."""
    palette = Image.new("P", (1, 1))
    palette.putpalette(palette_colours())
    for pixels in frames:
        yield Image.fromarray(pixels).quantize(palette=palette, dither=Image.Dither.NONE)


@lru_cache(maxsize=1)
def palette_colours() -> bytes:
    """The pictures' own colours, and those between each of them and what it is drawn on.

    A palette taken from a frame would lack what other frames show, a signpost or a minus.
    """
    dimmed = [mixed(colour, PANEL, DIMMING) for colour in (BEAD, ROD, mixed(BEAD, "#000000", 0.28))]
    drawn = [INK, FAINT, FINGER, SIGNPOST, WINDOW, BEAD, ROD, *OPERATIONS, *dimmed]
    edges = [WOOD_LIGHT, WOOD_DARK, mixed(BEAD, "#000000", 0.28), mixed(SIGNPOST, "#000000", 0.35)]
    grounds = [BACKGROUND, CARD, PANEL, WOOD]
    between = [
        mixed(colour, ground, share)
        for colour in drawn
        for ground in grounds
        for share in (0.25, 0.5, 0.75)
    ]
    on_wood = [mixed(INLAY, WOOD, share) for share in (0, 0.5)]
    colours = dict.fromkeys([*drawn, *grounds, *edges, PANEL_LIT, *on_wood, *between])
    return b"".join(bytes.fromhex(colour[1:]) for colour in list(colours)[:_COLOURS])


def find_encoder() -> str:
    """The program that makes MP4s; raises ValueError where there is none."""
    encoder = shutil.which("ffmpeg")
    if encoder is None:
        raise ValueError("--mp4 needs ffmpeg, and none is on the PATH: install it, or use --gif")
    return encoder


def write_mp4(path: Path, frames: Iterable[Pixels], steps_a_second: float) -> None:
    """Writes a film that every browser plays."""
    encoder = find_encoder()
    with tempfile.TemporaryDirectory() as folder:
        film = Path(folder) / "film.mp4"
        _encode(encoder, film, iter(frames), steps_a_second)
        atomic_write(path, lambda file: file.write(film.read_bytes()))


def _encode(encoder: str, film: Path, frames: Iterator[Pixels], rate: float) -> None:
    first = next(frames)
    height, width, _ = first.shape
    command = [
        encoder, "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24",
        "-s", f"{width}x{height}", "-r", f"{rate:g}", "-i", "-",
        # Even sides, and the colours that players expect; ten pictures a second or more, so that
        # seeking works.
        "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-r", f"{max(rate, 10):g}",
        "-movflags", "+faststart", str(film),
    ]  # fmt: skip
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=complaints) as process,
    ):
        assert process.stdin is not None
        try:
            process.stdin.write(first.tobytes())
            for frame in frames:
                process.stdin.write(frame.tobytes())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended, and says why below
        if process.wait() != 0:
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace").strip().splitlines()
            raise ValueError(f"ffmpeg failed: {said[-1] if said else 'without a word'}")


FORMAT, VERSION = "virtual-abacus-trace", 1


def write_trace(file: IO[bytes], game: Game, player: str, moments: Iterable[Moment]) -> None:
    """Writes the moments as they come, one on a line."""
    config = game.config
    head = {
        "format": FORMAT,
        "version": VERSION,
        "expression": config.expression,
        "base": config.base,
        "columns": config.columns,
        "frames": config.frames,
        "player": player,
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
    """One step in plain values."""
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


MIN_WIDTH, MAX_WIDTH = 160, 3840


@dataclass(frozen=True)
class Exports:
    """Which files to write, and how."""

    gif: Path | None
    mp4: Path | None
    svg: Path | None
    trace: Path | None
    frame: int | None
    width: int | None
    speed: float

    def __post_init__(self) -> None:
        if self.width is not None and not MIN_WIDTH <= self.width <= MAX_WIDTH:
            raise ValueError(f"width={self.width} is not allowed: give {MIN_WIDTH} to {MAX_WIDTH}")
        if self.frame is not None and self.frame < 0:
            raise ValueError(f"frame={self.frame} is not allowed: give a step of 0 or more")
        for path in self.paths:
            if path.is_dir():
                raise IsADirectoryError(21, "Is a directory: give a file's name", str(path))

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.gif, self.mp4, self.svg, self.trace) if path]


def export(new_game: Callable[[], Game], player: Player, exports: Exports) -> Game:
    """Plays once for each file, so that no game has to fit into memory; returns the last one."""
    if exports.mp4:
        find_encoder()
    if exports.trace:
        game = new_game()
        moments = _with_bar(watch(game, player), exports.trace)
        atomic_write(exports.trace, lambda file: write_trace(file, game, player.name, moments))
    if exports.svg:
        game = new_game()
        atomic_write_text(exports.svg, _one_frame(game, player, exports))
    for path, write in ((exports.gif, write_gif), (exports.mp4, write_mp4)):
        if path is not None:
            game = new_game()
            write(path, _frames(game, player, exports, path), exports.speed)
    return game


def _one_frame(game: Game, player: Player, exports: Exports) -> str:
    """The picture of one moment; the game goes on to its end, which is told."""
    chosen = None
    for moment in _with_bar(watch(game, player), exports.svg):
        if exports.frame in (None, moment.view.step):
            chosen = moment
    if chosen is None:
        raise ValueError(
            f"frame={exports.frame} is not allowed: the game has steps 0 to {game.steps}"
        )
    scene = moment_scene(chosen, player.name, verdict(game), game.solved)
    return moment_svg(scene, chosen)


def _frames(game: Game, player: Player, exports: Exports, path: Path) -> Iterator[Pixels]:
    for moment in _with_bar(watch(game, player), path):
        scene = moment_scene(moment, player.name, verdict(game), game.solved)
        pixels = moment_pixels(scene, exports.width)
        yield pixels
    for _ in range(round(LAST_SECONDS * exports.speed)):
        yield pixels


def _with_bar(moments: Iterable[Moment], path: Path | None) -> Iterable[Moment]:
    name = path.name if path else ""
    return tqdm(moments, desc=name, unit=" steps", disable=None, leave=False)
