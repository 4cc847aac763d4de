"""Films of a game: a GIF by Pillow, an MP4 by ffmpeg where there is one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from PIL import Image

from abacus.render_scene import (
    BACKGROUND,
    BEAD,
    CARD,
    DIMMING,
    FAINT,
    FINGER,
    INK,
    INLAY,
    OPERATIONS,
    PANEL,
    PANEL_LIT,
    ROD,
    SIGNPOST,
    WINDOW,
    WOOD,
    WOOD_DARK,
    WOOD_LIGHT,
)
from abacus.render_shapes import mixed
from pipelines.learning.files import write_whole

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

    write_whole(path, write)


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
        write_whole(path, lambda file: file.write(film.read_bytes()))


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
