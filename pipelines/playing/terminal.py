"""A terminal that is drawn in place and read key by key, and is given back as it was."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
from types import FrameType, TracebackType
from typing import Any

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
