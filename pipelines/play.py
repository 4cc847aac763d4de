"""Show an agent computing an expression on the abacus, in the terminal or in a file.

The abacus starts at 0 and the first number is added to it. The policy is the folder of a run or of
a policy, a zip of Stable-Baselines3 (with --trust), a Python function as module:function, teacher
or random; by default the policy that comes with the project plays. The exit status is 1 if the
result is wrong.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from abacus.checks import check_integer, check_number
from abacus.rules import AbacusConfig
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, relative_path, run, stdout_for

if TYPE_CHECKING:
    from pipelines.showing.game import Agent, Game

EXAMPLE = 'python -m pipelines.play "1234+567-89"'
#: Steps per second; explanations take time to read.
DEFAULT_SPEED, EXPLAINING_SPEED = 4.0, 0.25


@dataclass(frozen=True)
class Options:
    """The command line."""

    expression: str = argument("decimal numbers joined by + and -, such as 1234+567-89", "")
    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    trust: bool = option(False, "load a zip, which can run code of its author")
    human: bool = option(False, "you play with the keyboard")
    explain: bool = option(False, "say why each move is made, and play slower")
    base: int | None = option(None, "base, from 2 to 10 (default: the policy's own, else 5)")
    frames: int | None = option(None, "frames of a policy that does not store them (default: 3)")
    seed: int = option(0, "seed of the random policy")
    columns: int | None = option(None, "columns (default: 10, or more if the expression needs it)")
    speed: float | None = option(
        None,
        "steps per second, from 0.25 to 1000 (default: 4, with --explain 0.25); a GIF plays at "
        "most 50",
    )
    plain: bool = option(False, "print lines of text instead of drawing in the terminal")
    gif: Path | None = option(None, "write an animation")
    mp4: Path | None = option(None, "write a film; needs ffmpeg")
    svg: Path | None = option(None, "write a vector graphic of one step, see --frame")
    trace: Path | None = option(None, "write every step as JSON")
    html: Path | None = option(
        None, "write a web page that plays networks offline: the policy, or all of the project's"
    )
    html_policies: tuple[str, ...] = option((), "policies for --html to choose from, first to last")
    frame: int | None = option(None, "step that --svg shows (default: the last)")
    width: int | None = option(None, "width of --gif and --mp4 in pixels (default: as drawn)")

    def __post_init__(self) -> None:
        if self.human and self.policy is not None:
            raise ValueError("--human plays without a policy: leave one of the two out")
        if self.human and (self.files or self.html):
            raise ValueError("--human writes no files: leave it out, or leave the files out")
        if self.html_policies and not self.html:
            raise ValueError("--html-policies are for a page: give --html as well")
        if self.speed is not None:
            from pipelines.showing import terminal

            check_number("speed", self.speed, terminal.SPEEDS[0], terminal.SPEEDS[-1])
        check_integer("seed", self.seed, 0)
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
    def steps_per_second(self) -> float:
        """The speed, by default a slower one for explanations."""
        if self.speed is not None:
            return self.speed
        return EXPLAINING_SPEED if self.explain else DEFAULT_SPEED

    @property
    def config(self) -> AbacusConfig:
        """The configuration, as far as the command line says; a policy may have another."""
        from pipelines.showing.game import DEFAULT_BASE, DEFAULT_FRAMES, config_for

        base = DEFAULT_BASE if self.base is None else self.base
        frames = DEFAULT_FRAMES if self.frames is None else self.frames
        return config_for(self.expression, base, frames, self.columns)


def main(options: Options) -> int:
    """Play, and print the result."""
    with stdout_for((*options.files.values(), options.html)):
        return _play(options)


def _play(options: Options) -> int:
    from pipelines.showing import films
    from pipelines.showing.game import Game, verdict

    if options.html is not None:
        _write_page(options, options.html)
        if not options.files:
            return 0
    if options.human:
        game = _play_by_hand(options)
    else:
        config, agent = _config_and_agent(options)
        if options.files:
            settings = (options.steps_per_second, options.width, options.frame)
            game = films.export(lambda: Game(config), agent, options.files, *settings)
            for path in options.files.values():
                print(f"wrote {relative_path(path)}")
        else:
            game = Game(config)
            _watch(game, agent, options)
    print(verdict(game))
    return 0 if game.solved else 1


def _config_and_agent(options: Options) -> tuple[AbacusConfig, Agent]:
    from pipelines.showing.game import config_for, find_agent

    config = options.config  # checks the expression before a policy is loaded, which is slow
    agent = find_agent(
        options.policy,
        trust=options.trust,
        base=options.base,
        frames=options.frames,
        seed=options.seed,
    )
    layout = {}
    for name, own in (("base", agent.base), ("frames", agent.frames)):
        given = getattr(options, name)
        if own is not None and given not in (None, own):
            raise ValueError(
                f"{name}={given} is not allowed: {agent.name} was trained with {name} {own}; "
                f"leave --{name} out, or give the policy teacher"
            )
        layout[name] = getattr(config, name) if own is None else own
    return config_for(options.expression, columns=options.columns, **layout), agent


def _write_page(options: Options, path: Path) -> None:
    from pipelines.showing import page

    page.check_expression(options.expression)
    given = ([] if options.policy is None else [options.policy]) + list(options.html_policies)
    networks = page.networks_of(given, options.trust) if given else page.published_networks()
    if options.base is not None:
        networks.sort(key=lambda network: bool(network["base"] != options.base))
    atomic_write_text(path, page.play_page(networks, options.expression))
    print(f"wrote {relative_path(path)}")


def _watch(game: Game, agent: Agent, options: Options) -> None:
    from pipelines.showing import terminal
    from pipelines.showing.game import bases_text, moments_of

    if terminal.is_interactive() and not options.plain:
        last = terminal.watch(game, agent, options.steps_per_second, options.explain)
        print("\n".join(terminal.picture(last)))
    else:
        print(bases_text(game.config))
        for line in terminal.plain_lines(moments_of(game, agent), options.explain):
            print(line)


def _play_by_hand(options: Options) -> Game:
    from pipelines.showing import terminal
    from pipelines.showing.game import Game

    game = Game(options.config, unlimited=True)
    if options.plain or not terminal.is_interactive():
        raise ValueError(
            "--human needs a terminal with a keyboard: watch the policy teacher instead"
        )
    print("\n".join(terminal.picture(terminal.play_by_hand(game))))
    return game


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
