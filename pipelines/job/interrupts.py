"""Ctrl-C while a job imports its modules, which takes seconds: one line instead of a traceback."""

from __future__ import annotations

import os
import signal
import sys

EXIT_INTERRUPTED = 130


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process with one line, if it runs `python -m` and imports a job.

    `sys.argv[0]` is `-m` while Python looks for the module. A library that imports the package, and
    a shell that ignores Ctrl-C, keep their handler.
    """
    if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, once the job handles it."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    words = sys.orig_argv
    name = words[words.index("-m") + 1] if "-m" in words[:-1] else "pipelines"
    os.write(2, f"{name}: interrupted\n".encode())
    os._exit(EXIT_INTERRUPTED)
