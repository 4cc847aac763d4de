"""A game into files: each is whole or not there, and a bar shows how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from pipelines.learning.files import write_text, write_whole
from pipelines.playing.films import LAST_SECONDS, Pixels, find_encoder, write_gif, write_mp4
from pipelines.playing.game import Game, Moment, watch
from pipelines.playing.pictures import moment_pixels, moment_scene, moment_svg
from pipelines.playing.players import Player
from pipelines.playing.trace import write_trace
from pipelines.playing.words import verdict

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
        write_whole(exports.trace, lambda file: write_trace(file, game, player.name, moments))
    if exports.svg:
        game = new_game()
        write_text(exports.svg, _one_frame(game, player, exports))
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
