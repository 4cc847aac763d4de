"""A command in a pseudo-terminal: keys are sent to it and its screen is read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_SIZES = ("COLUMNS", "LINES")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _environment() -> dict[str, str]:
    """The environment without the size of the outer terminal, which would take precedence."""
    inherited = {name: value for name, value in os.environ.items() if name not in _SIZES}
    return {**inherited, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}


class TerminalSession:
    """Use it in a `with` block; every wait has a deadline."""

    def __init__(self, *arguments: str, columns: int = 100, rows: int = 50) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(columns, rows)
        self.modes_before = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=_environment(),
        )
        self.raw = ""

    def __enter__(self) -> TerminalSession:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    @property
    def modes(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def resize(self, columns: int, rows: int) -> None:
        """Resize the window, which signals the command."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, size)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Wait for a text; return the output since the last wait, without escape codes."""
        deadline = time.monotonic() + seconds
        while text not in (shown := _ESCAPES.sub("", self.raw)):
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come; the screen: {shown[-3000:]}"
            assert self._read(min(left, 0.2)) or self.process.poll() is None, shown[-3000:]
        self.raw = ""
        return shown

    def wait_for_raw(self, text: str, seconds: float = 30) -> None:
        """Wait for a text that contains escape codes."""
        deadline = time.monotonic() + seconds
        while text not in self.raw:
            assert time.monotonic() < deadline, f"{text!r} did not come"
            self._read(0.2)
        self.raw = ""

    def wait_for_end(self, seconds: float = 30) -> int:
        """Wait for the exit status; the output before it is in `raw`."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "the job does not end"
            self._read(0.1)
        while self._read(0.1):
            pass
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        self.raw += os.read(self._master, 65536).decode("utf-8", "replace")
        return True
