"""A terminal that is drawn in place and read key by key, and is given back as it was."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

from abacus.render.text import TEXT_COLUMNS, base_numeral, decimal_numeral, render_ansi
from abacus.rules import Action
from pipelines.showing.game import (
    Game,
    Moment,
    Player,
    action_words,
    percent,
    reading_text,
    verdict,
    watch,
)

try:
    import termios
    import tty
except ImportError:  # not a POSIX system: plain output is used instead
    _HAS_TERMIOS = False
else:
    _HAS_TERMIOS = True

#: Other screen, no line wrap, no cursor; and all of it undone.
_ENTER = "\x1b[?1049h\x1b[?7l\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?7h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
#: The bytes of an arrow come at once; a lone Escape is followed by nothing for this long.
_ESCAPE_SECONDS = 0.03
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_NAMES = {"\r": "enter", "\n": "enter", " ": "space", "\x7f": "backspace", "\x1b": "escape"}


def is_interactive() -> bool:
    """Whether someone can watch and press keys here."""
    return (
        _HAS_TERMIOS
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "") not in ("", "dumb")
    )


class Terminal:
    """Use in a `with` block; whatever ends it, the terminal is restored."""

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
            signal.SIGTERM: _stop,
            signal.SIGTSTP: self._suspend,
            signal.SIGWINCH: self._redraw,
        }
        for number, handler in handlers.items():
            self._handlers[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _take(self) -> None:
        tty.setcbreak(self._keys)
        self._write(_ENTER)
        self._size = (0, 0)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):  # the terminal's window may be gone
            self._write(_LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: gives the terminal back, stops, and takes it again when continued."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self.draw(self._lines)

    def _redraw(self, number: int, frame: FrameType | None) -> None:
        """The window's size changed: a paused game would not be drawn again by itself."""
        self.draw(self._lines)

    def _write(self, text: str) -> None:
        # Not through sys.stdout, which must not be written to by a handler that interrupts a write.
        data = text.encode()
        while data:
            data = data[os.write(self._screen, data) :]

    @property
    def width(self) -> int:
        return shutil.get_terminal_size().columns

    @property
    def height(self) -> int:
        return shutil.get_terminal_size().lines

    def draw(self, lines: list[str]) -> None:
        """Draws over what is there, line by line: clearing first would flicker."""
        self._lines = lines
        size = shutil.get_terminal_size()
        clear = "\x1b[2J" if size != self._size else ""
        self._size = size
        shown = f"{_REST_OF_LINE}\r\n".join(lines[: size.lines])
        self._write(f"{clear}{_HOME}{shown}{_REST_OF_LINE}{_REST_OF_SCREEN}")

    def key(self, seconds: float | None) -> str | None:
        """The next key by its name, or None if none is pressed in time; None waits for ever."""
        if not self._pending and self._ready(seconds):
            self._pending = key_names(self._read())
        return self._pending.pop(0) if self._pending else None

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
    """The keys whose characters a terminal sent."""
    names = []
    while text:
        if text[:2] in ("\x1b[", "\x1bO") and len(text) > 2:
            names.append(_ARROWS.get(text[2], "unknown"))
            text = text[3:]
            continue
        names.append(_NAMES.get(text[0], text[0]))
        text = text[1:]
    return names


def _stop(number: int, frame: FrameType | None) -> None:
    """A polite request to end: as an exception, so that the terminal is given back."""
    sys.exit(128 + number)


#: What `render_ansi` writes beside the columns: names, the padding's slot, the other end's dots.
_BESIDE_COLUMNS = 9 + 2 * 4 + 1
_CHARACTERS_A_COLUMN = 4
_FEWEST_COLUMNS, _MOST_COLUMNS = 3, 40
_BAR = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BOLD, _FAINT, _BLUE, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"


def columns_that_fit(width: int) -> int:
    """Columns of an abacus that a terminal of this width shows."""
    fitting = (width - _BESIDE_COLUMNS) // _CHARACTERS_A_COLUMN
    return max(_FEWEST_COLUMNS, min(_MOST_COLUMNS, fitting))


def picture(moment: Moment, width: int | None = None, colour: bool = False) -> list[str]:
    """The abacus, and what the symbol shown belongs to."""
    columns = TEXT_COLUMNS if width is None else columns_that_fit(width)
    lines = render_ansi(moment.view, columns, colour).split("\n")
    return [*lines, f"   reads {reading_text(moment.reading)}"]


def choices(moment: Moment) -> list[str]:
    """A bar for the probability of each action, the one that is taken marked."""
    if moment.probabilities is None:
        return ["", *([""] * len(Action))]
    lines = ["    next action and its probability"]
    for action, probability in zip(Action, moment.probabilities, strict=True):
        chosen = action == moment.action
        text = f"{action_words(action):>17}  {bar(probability)} {percent(probability):>9}"
        lines.append(f"{_BOLD}{_BLUE}{text}{_OFF}" if chosen else f"{_FAINT}{text}{_OFF}")
    return lines


def choice_line(moment: Moment) -> str:
    """The same in a line: the action that is taken alone."""
    if moment.action is None or moment.probability is None:
        return ""
    text = f"{action_words(moment.action)}, {percent(moment.probability)}"
    return f"    next {_BOLD}{_BLUE}{text}{_OFF}"


def bar(share: float, length: int = _BAR) -> str:
    """A bar of blocks, exact to an eighth of a character."""
    eighths = round(share * length * 8)
    full, part = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[part] if part else "")
    return text.ljust(length, "·")


def emphasised(text: str) -> str:
    return f"{_BOLD}{text}{_OFF}"


def faint(text: str) -> str:
    return f"{_FAINT}{text}{_OFF}"


_VALUE = 26
_HEADER = (
    f"{'step':>6}  {'symbol':<6}  {'action':<14}  {'probability':>11}  {'finger':>9}  "
    f"{'signpost':>8}  {'value':>{_VALUE}}  decimal"
)


def plain_lines(moments: Iterable[Moment]) -> Iterator[str]:
    """A line for each step, then the picture of the last moment."""
    yield _HEADER
    for moment in moments:
        if moment.action is not None:
            yield _step_line(moment)
    yield ""
    yield from picture(moment)


def _step_line(moment: Moment) -> str:
    view, action = moment.view, moment.action
    assert action is not None
    probability = "" if moment.probability is None else percent(moment.probability)
    finger = f"{view.finger_column},{view.finger_row}"
    value = base_numeral(view.digits, _VALUE).text
    decimal = decimal_numeral(view.digits, view.base, _VALUE).text
    return (
        f"{view.step:>6}  {view.symbol_text:<6}  {action_words(action):<14}  {probability:>11}  "
        f"{finger:>9}  {view.signpost:>8}  {value:>{_VALUE}}  {decimal}"
    )


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


KEYS = {
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
_HELP = (
    "arrows move the finger · , and . move the signpost · space slides the gap to the finger",
    "enter submits: the next symbol, please · h the teacher's hint · q quit",
)
_ILLEGAL = {
    Action.LEFT: "the finger is on the first column",
    Action.RIGHT: "the finger is on the last column",
    Action.UP: "the finger is on the top row",
    Action.DOWN: "the finger is on the bottom row",
    Action.SIGNPOST_LEFT: "the signpost is on the first column",
    Action.SIGNPOST_RIGHT: "the signpost is on the last column",
    Action.SLIDE: "the gap is where the finger is already",
}
_QUIT_KEYS = ("q", "escape")


def play_in_terminal(game: Game) -> Moment:
    """Lets a person play until it is over or he quits; returns the last moment."""
    message = "Compute the expression: the first number is added to 0. Press h for a hint."
    with Terminal() as terminal:
        while not game.over:
            _draw(terminal, game.moment(), message, *_HELP)
            key = terminal.key(None)
            if key in _QUIT_KEYS:
                break
            message = _answer(game, key or "")
        else:
            _draw(terminal, game.moment(), verdict(game), "q or enter: back to the shell")
            while terminal.key(None) not in (*_QUIT_KEYS, "enter"):
                pass
    return game.moment()


def _draw(terminal: Terminal, moment: Moment, message: str, *help_lines: str) -> None:
    lines = picture(moment, terminal.width, colour=True)
    terminal.draw([*lines, "", emphasised(message), "", *map(faint, help_lines)])


def _answer(game: Game, key: str) -> str:
    """Does what the key asks for, and says how that went."""
    if key in ("h", "?"):
        return f"The teacher would: {action_words(game.hint())}."
    if key not in KEYS:
        shown = key if key.isprintable() else "that key"
        return f"No action is on {shown}."
    action = KEYS[key]
    if not game.masks[action]:
        return f"Illegal: {_ILLEGAL[action]}."
    game.do(action)
    if game.went_wrong:
        return f"Done, but wrong: {action_words(action)}. Press h to be led back."
    return f"Done: {action_words(action)}."
