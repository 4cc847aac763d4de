"""Shows an agent computing an expression on the abacus: in the terminal, or into a file.

The abacus starts at 0 and the first number is added to it. Without --run, --teacher or --human the
published policy plays. Ends with status 1 where what comes out is not the truth.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pipelines.command_line import argument, option, run
from pipelines.playing.game import Game, watch
from pipelines.playing.human import play_in_terminal
from pipelines.playing.plain import plain_lines
from pipelines.playing.players import Player, TeacherPlayer, network_player
from pipelines.playing.screen import picture
from pipelines.playing.task import config_for
from pipelines.playing.terminal import is_interactive
from pipelines.playing.watching import watch_in_terminal
from pipelines.playing.words import verdict

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

    def __post_init__(self) -> None:
        if sum((self.run is not None, self.teacher, self.human)) > 1:
            raise ValueError("--run, --teacher and --human exclude one another: give one of them")
        if not 0 < self.speed <= 1000:
            raise ValueError(f"speed={self.speed} is not allowed: give 0.5 to 1000")


def main(options: Options) -> int:
    """Plays, and tells how it came out."""
    if options.human:
        return _human(options)
    game, player = _game(options)
    if is_interactive() and not options.plain:
        print("\n".join(picture(watch_in_terminal(game, player, options.speed))))
    else:
        for line in plain_lines(watch(game, player)):
            print(line)
    return _tell(game)


def _game(options: Options) -> tuple[Game, Player]:
    # The expression is checked before anything slow is loaded.
    config = config_for(options.expression, options.base or 5, columns=options.columns)
    if options.teacher:
        return Game(config), TeacherPlayer()
    player = network_player(options.run, options.trust)
    layout = player.policy.layout
    if options.base not in (None, layout.base):
        raise ValueError(
            f"base={options.base} is not allowed: {player.name} knows base {layout.base}; leave "
            "--base out, or watch --teacher"
        )
    config = config_for(options.expression, layout.base, layout.frames, options.columns)
    return Game(config), player


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
