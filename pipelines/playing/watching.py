"""Watching a player in the terminal: pause, single steps, speed."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pipelines.playing.game import Game, Moment, watch
from pipelines.playing.players import Player
from pipelines.playing.screen import choice_line, choices, emphasised, faint, picture
from pipelines.playing.terminal import Terminal
from pipelines.playing.words import verdict

#: Steps a second; the last one goes as fast as the terminal takes it.
SPEEDS = (0.5, 1, 2, 4, 8, 16, 32, 64, 1000)
_KEYS = "space pause · → or n one step · + faster · - slower · q quit"
#: The status or the verdict, and the keys.
_LINES_BELOW = 2
_KEYS_AT_END = "q or enter: back to the shell"
_PAUSES, _STEPS, _QUITS = ("space", "p"), ("right", "n", "."), ("q", "escape")
_FASTER, _SLOWER = ("+", "=", "up"), ("-", "_", "down")


class Pace:
    """How fast it goes, and whether it goes at all."""

    def __init__(self, steps_a_second: float) -> None:
        self._level = min(range(len(SPEEDS)), key=lambda k: abs(SPEEDS[k] - steps_a_second))
        self.paused = False

    @property
    def seconds(self) -> float:
        return 1 / SPEEDS[self._level]

    @property
    def text(self) -> str:
        if self.paused:
            return "paused"
        fastest = self._level == len(SPEEDS) - 1
        return "full speed" if fastest else f"{SPEEDS[self._level]:g} steps a second"

    def change(self, levels: int) -> None:
        self._level = max(0, min(len(SPEEDS) - 1, self._level + levels))


def watch_in_terminal(game: Game, player: Player, speed: float) -> Moment:
    """Plays until it is over or the watcher quits; returns the last moment shown."""
    moments, pace = watch(game, player), Pace(speed)
    with Terminal() as terminal:
        last = _play(terminal, moments, player, pace)
        if game.over:
            terminal.draw([*_lines(terminal, last), emphasised(verdict(game)), faint(_KEYS_AT_END)])
            while terminal.key(None) not in (*_QUITS, "enter"):
                pass
    return last


def _play(terminal: Terminal, moments: Iterator[Moment], player: Player, pace: Pace) -> Moment:
    for moment in moments:
        if moment.action is None or not _show(terminal, moment, player, pace):
            break
    return moment


def _show(terminal: Terminal, moment: Moment, player: Player, pace: Pace) -> bool:
    """Shows a moment until its time is over or a step is asked for; False to quit."""
    due = time.monotonic() + pace.seconds
    while True:
        status = f"{player.name} · {pace.text}"
        terminal.draw([*_lines(terminal, moment), emphasised(status), faint(_KEYS)])
        key = terminal.key(None if pace.paused else max(0.0, due - time.monotonic()))
        if key is None:
            return True
        if key in _QUITS:
            return False
        if key in _STEPS:
            pace.paused = True
            return True
        if key in _PAUSES:
            pace.paused = not pace.paused
        elif key in _FASTER or key in _SLOWER:
            pace.change(1 if key in _FASTER else -1)
        due = time.monotonic() + pace.seconds


def _lines(terminal: Terminal, moment: Moment) -> list[str]:
    """As much as leaves room for two more lines."""
    lines = picture(moment, terminal.width, colour=True)
    everything = [*lines, "", *choices(moment), ""]
    if len(everything) + _LINES_BELOW <= terminal.height:
        return everything
    return [*lines, choice_line(moment), ""]
