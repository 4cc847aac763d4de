"""Shows an agent computing an expression on the abacus: in the terminal, or into a file.

The abacus starts at 0 and the first number is added to it. Without --run, --teacher or --human the
published policy plays. Ends with status 1 where what comes out is not the truth.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from abacus.rules import AbacusConfig
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, run, shown_path
from pipelines.showing.films import Exports, export
from pipelines.showing.game import (
    Game,
    Player,
    TeacherPlayer,
    config_for,
    network_player,
    verdict,
    watch,
)
from pipelines.showing.page import checked_expression, exactness, page
from pipelines.showing.terminal import (
    is_interactive,
    picture,
    plain_lines,
    play_in_terminal,
    watch_in_terminal,
)

EXAMPLE = 'python -m pipelines.play "1234+567-89"'


@dataclass(frozen=True)
class Options:
    """The command line."""

    expression: str = argument("decimal numbers joined by + and -, such as 1234+567-89", "")
    run: Path | None = option(None, "folder of a run, or of a policy, that plays")
    trust: bool = option(False, "load a run that is a zip, which can run code of its maker")
    teacher: bool = option(False, "the teacher plays")
    human: bool = option(False, "you play: the keyboard moves the finger")
    base: int | None = option(None, "base, from 2 to 10 (default: the policy's own, else 5)")
    columns: int | None = option(None, "columns (default: 10, or as many as it takes)")
    speed: float = option(4.0, "steps a second at first")
    plain: bool = option(False, "lines of text, also where the terminal could be drawn on")
    gif: Path | None = option(None, "write an animation")
    mp4: Path | None = option(None, "write a film; needs ffmpeg")
    svg: Path | None = option(None, "write one picture of vectors: --frame chooses which")
    trace: Path | None = option(None, "write every step as JSON")
    html: Path | None = option(None, "write a page in which visitors watch the network, offline")
    frame: int | None = option(None, "step that --svg shows (default: the last)")
    width: int | None = option(None, "pixels across a --gif or --mp4 (default: as drawn)")

    def __post_init__(self) -> None:
        if sum((self.run is not None, self.teacher, self.human)) > 1:
            raise ValueError("--run, --teacher and --human exclude one another: give one of them")
        if self.human and (self.exports.paths or self.html):
            raise ValueError("--human writes no files: leave it out, or leave the files out")
        if not 0 < self.speed <= 1000:
            raise ValueError(f"speed={self.speed} is not allowed: give 0.5 to 1000")

    @property
    def exports(self) -> Exports:
        return Exports(self.gif, self.mp4, self.svg, self.trace, self.frame, self.width, self.speed)


def main(options: Options) -> int:
    """Plays, and tells how it came out."""
    exports = options.exports
    if options.human:
        return _human(options)
    if options.html is not None:
        _write_page(options, options.html)
        if not exports.paths:
            return 0
    config, player = _config_and_player(options)
    if exports.paths:
        game = export(lambda: Game(config), player, exports)
        for path in exports.paths:
            print(f"wrote {shown_path(path)}")
        return _tell(game)
    game = Game(config)
    if is_interactive() and not options.plain:
        print("\n".join(picture(watch_in_terminal(game, player, options.speed))))
    else:
        for line in plain_lines(watch(game, player)):
            print(line)
    return _tell(game)


def _config_and_player(options: Options) -> tuple[AbacusConfig, Player]:
    # The expression is checked before anything slow is loaded.
    config = config_for(options.expression, options.base or 5, columns=options.columns)
    if options.teacher:
        return config, TeacherPlayer()
    player = network_player(options.run, options.trust)
    layout = player.policy.layout
    if options.base not in (None, layout.base):
        raise ValueError(
            f"base={options.base} is not allowed: {player.name} knows base {layout.base}; leave "
            "--base out, or watch --teacher"
        )
    config = config_for(options.expression, layout.base, layout.frames, options.columns)
    return config, player


def _write_page(options: Options, path: Path) -> None:
    if options.teacher:
        raise ValueError("--html shows a network: leave --teacher out")
    if path.is_dir():
        raise IsADirectoryError(21, "Is a directory: give a file's name", str(path))
    checked_expression(options.expression)
    player = network_player(options.run, options.trust)
    atomic_write_text(path, page(player.policy, options.expression, exactness(player.policy)))
    print(f"wrote {shown_path(path)}")


def _human(options: Options) -> int:
    config = config_for(options.expression, options.base or 5, columns=options.columns)
    if options.plain or not is_interactive():
        raise ValueError("--human needs a terminal with a keyboard: watch with --teacher instead")
    game = Game(config, patient=True)
    print("\n".join(picture(play_in_terminal(game))))
    return _tell(game)


def _tell(game: Game) -> int:
    print(verdict(game))
    return 0 if game.solved else 1


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
