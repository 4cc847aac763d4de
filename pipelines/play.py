"""Show an agent computing an expression on the abacus, in the terminal or in a file.

The abacus starts at 0 and the first number is added to it. Without --run, --teacher or --human the
published policy plays. The exit status is 1 if the result is wrong.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from abacus.checks import check_integer, check_number
from abacus.rules import AbacusConfig
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, relative_path, run, stdout_for
from pipelines.showing import films, page, terminal
from pipelines.showing.game import (
    DEFAULT_BASE,
    Agent,
    ExpertAgent,
    Game,
    NetworkAgent,
    config_for,
    moments_of,
    verdict,
)

EXAMPLE = 'python -m pipelines.play "1234+567-89"'


@dataclass(frozen=True)
class Options:
    """The command line."""

    expression: str = argument("decimal numbers joined by + and -, such as 1234+567-89", "")
    run: Path | None = option(None, "folder of the run or of the policy that plays")
    trust: bool = option(False, "allow a Stable-Baselines3 zip as --run, which can execute code")
    teacher: bool = option(False, "the teacher plays")
    human: bool = option(False, "you play with the keyboard")
    base: int | None = option(None, "base, from 2 to 10 (default: the policy's own, else 5)")
    columns: int | None = option(None, "columns (default: 10, or more if the expression needs it)")
    speed: float = option(4.0, "steps per second, from 0.5 to 1000; a GIF plays at most 50")
    plain: bool = option(False, "print lines of text instead of drawing in the terminal")
    gif: Path | None = option(None, "write an animation")
    mp4: Path | None = option(None, "write a film; needs ffmpeg")
    svg: Path | None = option(None, "write a vector graphic of one step, see --frame")
    trace: Path | None = option(None, "write every step as JSON")
    html: Path | None = option(None, "write a web page that plays the network offline")
    frame: int | None = option(None, "step that --svg shows (default: the last)")
    width: int | None = option(None, "width of --gif and --mp4 in pixels (default: as drawn)")

    def __post_init__(self) -> None:
        if sum((self.run is not None, self.teacher, self.human)) > 1:
            raise ValueError("--run, --teacher and --human exclude one another: give one of them")
        if self.human and (self.files or self.html):
            raise ValueError("--human writes no files: leave it out, or leave the files out")
        if self.teacher and self.html:
            raise ValueError("--html shows a network: leave --teacher out")
        check_number("speed", self.speed, terminal.SPEEDS[0], terminal.SPEEDS[-1])
        if self.width is not None:
            check_integer("width", self.width, 160, 3840)
        if self.frame is not None:
            check_integer("frame", self.frame, 0)
        for path in (*self.files.values(), self.html):
            if path is not None and path.is_dir():
                raise ValueError(f"{path} is a directory: give the name of a file")

    @property
    def files(self) -> dict[str, Path]:
        """The files of a game to write, by format."""
        paths = {"trace": self.trace, "svg": self.svg, "gif": self.gif, "mp4": self.mp4}
        return {kind: path for kind, path in paths.items() if path is not None}

    @property
    def config(self) -> AbacusConfig:
        """The configuration, as far as the command line says; a policy may have another."""
        base = DEFAULT_BASE if self.base is None else self.base
        return config_for(self.expression, base, columns=self.columns)


def main(options: Options) -> int:
    """Play, and print the result."""
    with stdout_for((*options.files.values(), options.html)):
        return _play(options)


def _play(options: Options) -> int:
    if options.html is not None:
        _write_page(options, options.html)
        if not options.files:
            return 0
    if options.human:
        game = _play_by_hand(options)
    else:
        config, agent = _config_and_agent(options)
        if options.files:
            settings = (options.speed, options.width, options.frame)
            game = films.export(lambda: Game(config), agent, options.files, *settings)
            for path in options.files.values():
                print(f"wrote {relative_path(path)}")
        else:
            game = Game(config)
            _watch(game, agent, options)
    print(verdict(game))
    return 0 if game.solved else 1


def _config_and_agent(options: Options) -> tuple[AbacusConfig, Agent]:
    config = options.config  # checks the expression before a policy is loaded, which is slow
    if options.teacher:
        return config, ExpertAgent()
    agent = NetworkAgent.load(options.run, options.trust, config.base)
    layout = agent.policy.layout
    if options.base not in (None, layout.base):
        raise ValueError(
            f"base={options.base} is not allowed: {agent.name} was trained in base {layout.base}; "
            "leave --base out, or give --teacher"
        )
    config = config_for(options.expression, layout.base, layout.frames, options.columns)
    return config, agent


def _write_page(options: Options, path: Path) -> None:
    page.check_expression(options.expression)
    policy = NetworkAgent.load(options.run, options.trust, options.config.base).policy
    atomic_write_text(
        path, page.play_page(policy, options.expression, page.certificate_text(policy))
    )
    print(f"wrote {relative_path(path)}")


def _watch(game: Game, agent: Agent, options: Options) -> None:
    if terminal.is_interactive() and not options.plain:
        print("\n".join(terminal.picture(terminal.watch(game, agent, options.speed))))
    else:
        for line in terminal.plain_lines(moments_of(game, agent)):
            print(line)


def _play_by_hand(options: Options) -> Game:
    game = Game(options.config, unlimited=True)
    if options.plain or not terminal.is_interactive():
        raise ValueError("--human needs a terminal with a keyboard: watch with --teacher instead")
    print("\n".join(terminal.picture(terminal.play_by_hand(game))))
    return game


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
