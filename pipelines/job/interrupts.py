"""Ctrl-C while a job imports its modules, which takes seconds: one line instead of a traceback."""

from __future__ import annotations

import os
import signal
import sys

EXIT_INTERRUPTED = 130


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process with one line; a shell that ignores Ctrl-C keeps its handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, once the job handles it."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    words = sys.orig_argv
    name = words[words.index("-m") + 1] if "-m" in words[:-1] else "abacus"
    os.write(2, f"{name}: interrupted\n".encode())
    os._exit(EXIT_INTERRUPTED)
