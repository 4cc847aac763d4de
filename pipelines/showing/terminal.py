"""Watching an agent, and playing by hand, in a terminal; plain lines of text elsewhere."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from abacus.render.text import TEXT_COLUMNS, render_ansi
from abacus.render.view import base_numeral, decimal_numeral
from abacus.rules import Action
from pipelines.showing.game import (
    ILLEGAL_REASONS,
    Agent,
    Game,
    Moment,
    moments_of,
    probability_text,
    verdict,
)

try:
    import termios
    import tty
except ImportError:  # not a POSIX system: plain output is used instead
    _HAS_TERMIOS = False
else:
    _HAS_TERMIOS = True

#: Speeds that the keys choose from, in steps per second; the last one does not wait.
SPEEDS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 1000)

#: Alternate screen, no line wrap, no cursor, cleared; and back.
_ENTER = "\x1b[?1049h\x1b[?7l\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?7h\x1b[?1049l"
_HOME, _CLEAR, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"
_BOLD, _FAINT, _CYAN, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"
#: The bytes of an arrow key arrive together; after a lone Escape nothing follows for this long.
_ESCAPE_SECONDS = 0.03
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_KEY_NAMES = {"\r": "enter", "\n": "enter", " ": "space", "\x7f": "backspace", "\x1b": "escape"}

#: Characters of `render_ansi` beside the columns: line names, padding, and the dots at the right.
_BESIDE_COLUMNS = 9 + 2 * 4 + 1
_CHARACTERS_PER_COLUMN = 4
_MIN_COLUMNS, _MAX_COLUMNS = 3, 40
_BAR_LENGTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MAX_DIGITS = 26
_PLAIN_LINE = "{:>6}  {:<6}  {:<14}  {:>11}  {:>9}  {:>8}  {:>26}  {}"
_PLAIN_HEADER = _PLAIN_LINE.format(
    "step", "symbol", "action", "probability", "finger", "signpost", "value", "decimal"
)

_QUIT_KEYS = ("q", "escape")
_PAUSE_KEYS, _STEP_KEYS = ("space", "p"), ("right", "n", ".")
_EXPLAIN_KEYS = ("e",)
_FASTER_KEYS, _SLOWER_KEYS = ("+", "=", "up"), ("-", "_", "down")
_WATCH_HELP = "space pause · → or n one step · + faster · - slower · e explain · q quit"
_END_HELP = "q or enter: back to the shell"
_ACTION_KEYS = {
    "left": Action.LEFT,
    "right": Action.RIGHT,
    "up": Action.UP,
    "down": Action.DOWN,
    ",": Action.SIGNPOST_LEFT,
    "<": Action.SIGNPOST_LEFT,
    ".": Action.SIGNPOST_RIGHT,
    ">": Action.SIGNPOST_RIGHT,
    "space": Action.SLIDE,
    "enter": Action.SUBMIT,
}
_ACTION_HELP = (
    "arrows move the finger · , and . move the signpost · space slides the gap to the finger",
    "enter submits and asks for the next symbol · h shows the teacher's action · q quit",
)


def is_interactive() -> bool:
    """Return whether the terminal can be drawn on and has a keyboard."""
    return (
        _HAS_TERMIOS
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "") not in ("", "dumb")
    )


class Terminal:
    """A screen drawn in place and read key by key; restored at the end of its `with` block."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._keys, self._screen = sys.stdin.fileno(), sys.stdout.fileno()
        self._pending: list[str] = []
        self._size = (0, 0)
        self._lines: list[str] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Terminal:
        self._modes = termios.tcgetattr(self._keys)
        handlers = {
            signal.SIGTERM: _exit,
            signal.SIGTSTP: self._suspend,
            signal.SIGWINCH: self._redraw,
        }
        for number, handler in handlers.items():
            self._handlers[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def width(self) -> int:
        return shutil.get_terminal_size().columns

    @property
    def height(self) -> int:
        return shutil.get_terminal_size().lines

    def draw(self, lines: list[str]) -> None:
        """Overwrite the screen line by line; clearing it first would flicker."""
        self._lines = lines
        size = shutil.get_terminal_size()
        clear = _CLEAR if size != self._size else ""
        self._size = size
        shown = f"{_REST_OF_LINE}\r\n".join(lines[: size.lines])
        self._write(f"{clear}{_HOME}{shown}{_REST_OF_LINE}{_REST_OF_SCREEN}")

    def key(self, seconds: float | None) -> str | None:
        """Return the name of the next key, or None after a timeout; None waits without limit."""
        if not self._pending and self._ready(seconds):
            self._pending = key_names(self._read())
        return self._pending.pop(0) if self._pending else None

    def wait_for_quit(self) -> None:
        """Wait until a key is pressed that leaves a finished game."""
        while self.key(None) not in (*_QUIT_KEYS, "enter"):
            pass

    def _take(self) -> None:
        tty.setcbreak(self._keys)
        self._write(_ENTER)
        self._size = (0, 0)

    def _restore(self) -> None:
        with contextlib.suppress(OSError):  # the window may be gone
            self._write(_LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-Z: restore the terminal, stop, and take it again when continued."""
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self.draw(self._lines)

    def _redraw(self, number: int, frame: FrameType | None) -> None:
        """Handle a new window size, which a paused game would not notice."""
        self.draw(self._lines)

    def _write(self, text: str) -> None:
        # Not through sys.stdout: a signal handler must not interrupt a write to it by another.
        data = text.encode()
        while data:
            data = data[os.write(self._screen, data) :]

    def _ready(self, seconds: float | None) -> bool:
        return bool(select.select([self._keys], [], [], seconds)[0])

    def _read(self) -> str:
        data = os.read(self._keys, 64)
        if not data:
            raise EOFError("the terminal was closed")
        if data == b"\x1b" and self._ready(_ESCAPE_SECONDS):
            data += os.read(self._keys, 64)
        return data.decode("utf-8", "replace")


def key_names(text: str) -> list[str]:
    """Return the names of the keys whose characters a terminal sent."""
    names = []
    while text:
        if text[:2] in ("\x1b[", "\x1bO") and len(text) > 2:
            names.append(_ARROWS.get(text[2], "unknown"))
            text = text[3:]
            continue
        names.append(_KEY_NAMES.get(text[0], text[0]))
        text = text[1:]
    return names


def _exit(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM by an exception, so that the terminal is restored."""
    sys.exit(128 + number)


def picture(moment: Moment, width: int | None = None, colour: bool = False) -> list[str]:
    """Return the lines of the abacus, and what the current symbol belongs to."""
    columns = TEXT_COLUMNS if width is None else columns_that_fit(width)
    lines = render_ansi(moment.view, columns, colour).split("\n")
    return [*lines, f"   reads {moment.reading}"]


def columns_that_fit(width: int) -> int:
    """Return how many columns of an abacus a terminal of this width shows."""
    fitting = (width - _BESIDE_COLUMNS) // _CHARACTERS_PER_COLUMN
    return max(_MIN_COLUMNS, min(_MAX_COLUMNS, fitting))


def bar(share: float, length: int = _BAR_LENGTH) -> str:
    """Draw a share as a bar of blocks, in eighths of a character."""
    full, part = divmod(round(share * length * 8), 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(length, "·")


def plain_lines(moments: Iterable[Moment], explain: bool = False) -> Iterator[str]:
    """Yield a line for each step, with its explanation, then the picture of the last moment."""
    yield _PLAIN_HEADER
    for moment in moments:
        view = moment.view
        if moment.action is not None and moment.probability is not None:
            yield _PLAIN_LINE.format(
                view.step,
                view.symbol_text,
                moment.action.words,
                probability_text(moment.probability),
                f"{view.finger_column},{view.finger_row}",
                view.signpost,
                base_numeral(view.digits, _MAX_DIGITS).text,
                decimal_numeral(view.digits, view.base, _MAX_DIGITS).text,
            )
            if explain:
                yield f"{'':>16}{moment.explanation}"
    yield ""
    yield from picture(moment)


class Pace:
    """The speed of a game, its pauses and explanations, and when its next step is due."""

    def __init__(self, speed: float, explaining: bool = False) -> None:
        self.speed = speed
        self.explaining = explaining
        self.paused = False
        self._due: float | None = None

    @property
    def text(self) -> str:
        if self.paused:
            return "paused"
        return "full speed" if self.speed >= SPEEDS[-1] else f"{self.speed:g} steps/s"

    @property
    def timeout(self) -> float | None:
        """Seconds until the next step is due; None while paused."""
        if self.paused or self._due is None:
            return None
        return max(0.0, self._due - time.monotonic())

    def start_step(self) -> None:
        """Set when the next step is due: the time that a step takes to draw is part of it."""
        if self._due is None:
            self.restart_step()
        else:
            self._due = max(self._due + 1 / self.speed, time.monotonic())

    def restart_step(self) -> None:
        """Count the time of the current step from now."""
        self._due = time.monotonic() + 1 / self.speed

    def faster(self) -> None:
        self.speed = min((speed for speed in SPEEDS if speed > self.speed), default=SPEEDS[-1])

    def slower(self) -> None:
        self.speed = max((speed for speed in SPEEDS if speed < self.speed), default=SPEEDS[0])


def watch(game: Game, agent: Agent, speed: float, explain: bool = False) -> Moment:
    """Show a game until it ends or the user quits; return the last moment."""
    pace = Pace(speed, explain)
    with Terminal() as terminal:
        for moment in moments_of(game, agent):
            if moment.action is None or not _show_moment(terminal, moment, agent.name, pace):
                break
        if game.over:
            _draw_moment(terminal, moment, verdict(game), _END_HELP)
            terminal.wait_for_quit()
    return moment


def _show_moment(terminal: Terminal, moment: Moment, agent: str, pace: Pace) -> bool:
    """Show a moment until the next step is due or asked for; return False to quit."""
    pace.start_step()
    while True:
        status = f"{agent} · {pace.text}"
        _draw_moment(terminal, moment, status, _WATCH_HELP, explain=pace.explaining)
        key = terminal.key(pace.timeout)
        if key is None:
            return True
        if key in _QUIT_KEYS:
            return False
        if key in _STEP_KEYS:
            pace.paused = True
            return True
        if key in _PAUSE_KEYS:
            pace.paused = not pace.paused
        elif key in _EXPLAIN_KEYS:
            pace.explaining = not pace.explaining
        elif key in _FASTER_KEYS:
            pace.faster()
        elif key in _SLOWER_KEYS:
            pace.slower()
        pace.restart_step()


def _draw_moment(
    terminal: Terminal, moment: Moment, status: str, keys: str, *, explain: bool = False
) -> None:
    """Draw the abacus, the probabilities as far as the terminal has lines, and two more lines."""
    abacus = picture(moment, terminal.width, colour=True)
    if explain:
        abacus += textwrap.wrap(moment.explanation, max(20, terminal.width - 1))
    below = ["", f"{_BOLD}{status}{_OFF}", f"{_FAINT}{keys}{_OFF}"]
    lines = [*abacus, "", *_probability_lines(moment), *below]
    if len(lines) > terminal.height:
        lines = [*abacus, _action_line(moment), *below]
    terminal.draw(lines)


def _probability_lines(moment: Moment) -> list[str]:
    """Return a bar for the probability of each action, with the chosen one marked."""
    if moment.probabilities is None:
        return [""] * (1 + len(Action))
    lines = ["    next action and its probability"]
    for action, probability in zip(Action, moment.probabilities, strict=True):
        style = f"{_BOLD}{_CYAN}" if action == moment.action else _FAINT
        shown = f"{bar(probability)} {probability_text(probability):>9}"
        lines.append(f"{style}{action.words:>17}  {shown}{_OFF}")
    return lines


def _action_line(moment: Moment) -> str:
    """Return the chosen action and its probability."""
    if moment.action is None or moment.probability is None:
        return ""
    text = f"{moment.action.words}, {probability_text(moment.probability)}"
    return f"    next {_BOLD}{_CYAN}{text}{_OFF}"


def play_by_hand(game: Game) -> Moment:
    """Let a person play until the game ends or they quit; return the last moment."""
    message = "Compute the expression: the first number is added to 0. Press h for a hint."
    with Terminal() as terminal:
        while not game.over:
            _draw_game(terminal, game, message, *_ACTION_HELP)
            key = terminal.key(None)
            if key in _QUIT_KEYS:
                return game.moment()
            message = _respond(game, key or "")
        _draw_game(terminal, game, verdict(game), _END_HELP)
        terminal.wait_for_quit()
    return game.moment()


def _draw_game(terminal: Terminal, game: Game, message: str, *help_lines: str) -> None:
    lines = picture(game.moment(), terminal.width, colour=True)
    helped = (f"{_FAINT}{line}{_OFF}" for line in help_lines)
    terminal.draw([*lines, "", f"{_BOLD}{message}{_OFF}", "", *helped])


def _respond(game: Game, key: str) -> str:
    """Take the action of a key, or give a hint; return a message about it."""
    if key in ("h", "?"):
        return f"The teacher's action: {game.expert_action().words}."
    if key not in _ACTION_KEYS:
        return f"No action has the key {key if key.isprintable() else repr(key)}."
    action = _ACTION_KEYS[key]
    if not game.masks[action]:
        return f"Illegal: {ILLEGAL_REASONS[action]}."
    game.step(action)
    if game.last_step_wrong:
        return f"Done, but wrong: {action.words}. Press h for the way back."
    return f"Done: {action.words}."
