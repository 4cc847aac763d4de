"""Read hostile files in a separate process, to notice a crash, a hang or excessive memory.

The process reads paths from its input and answers each with a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.demos import Demonstrations, DemonstrationsError, record_demonstrations
from oracle.demos.replay import first_difference, recipe_difference

SECONDS = 20.0
#: Memory that the reader may take beyond that of the idle process.
BYTES_BEYOND = 700 * 2**20


@dataclass(frozen=True)
class Answer:
    """The result for a file: `refused`, `caught`, `harmless`, or the kind of failure.

    A file is refused when it is opened, or else caught by `inspect_demos --verify`; what passes
    both must be harmless: the content is what the recipe in the file gives.
    """

    kind: str
    text: str

    @property
    def is_acceptable(self) -> bool:
        return self.kind in ("refused", "caught", "harmless")


def answer(path: Path, digest: str) -> Answer:
    """Read and verify a file as a user would."""
    try:
        demonstrations = Demonstrations.open(path)
        demonstrations.observations(slice(0, 100))
    except DemonstrationsError as error:
        return _refusal("refused", error)
    except Exception as error:  # noqa: BLE001 - any exception is reported
        return Answer("raised", repr(error))
    try:
        Demonstrations.open(path, verify=True)
        difference = recipe_difference(demonstrations) or first_difference(demonstrations)
    except DemonstrationsError as error:
        return _refusal("caught", error)
    except Exception as error:  # noqa: BLE001 - any exception is reported
        return Answer("raised", repr(error))
    if difference is not None:
        return Answer("caught", str(difference))
    found = demonstrations.content_digest()
    if found == digest:
        return Answer("harmless", found)
    # The settings were changed to others that give this very content.
    with tempfile.TemporaryDirectory() as folder:
        again = record_demonstrations(demonstrations.recipe, Path(folder) / "again.h5", workers=1)
    return Answer("harmless" if found == again.digest else "misread", found)


def _refusal(kind: str, error: DemonstrationsError) -> Answer:
    text = str(error)
    if isinstance(error.__cause__, MemoryError):
        return Answer("greedy", text)
    return Answer(kind if "\n" not in text and len(text) < 500 else "wordy", text)


class OpenWatch:
    """Notice when any process opens a file, by Linux's inotify."""

    _IN_OPEN = 0x20

    def __init__(self, path: Path) -> None:
        system: Any = ctypes.CDLL(None, use_errno=True)
        self._queue = system.inotify_init1(os.O_NONBLOCK)
        if system.inotify_add_watch(self._queue, os.fsencode(path), self._IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))

    def was_opened(self) -> bool:
        """Return whether it was opened since the last call."""
        try:
            return bool(os.read(self._queue, 65536))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._queue)


class HostileReader:
    """The reading process, restarted after a crash, and a watch over the file outside."""

    def __init__(self, digest: str, outside: Path) -> None:
        self._digest = digest
        self._process: subprocess.Popen[str] | None = None
        self._watch = OpenWatch(outside)

    def read(self, path: Path) -> Answer:
        """Read a file in the process."""
        self._watch.was_opened()
        answer = self._read(path)
        if self._watch.was_opened():
            return Answer("strayed", f"opened the file outside; {answer}")
        return answer

    def _read(self, path: Path) -> Answer:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        if not ready:
            self._stop()
            return Answer("hung", f"no answer after {SECONDS:.0f} s")
        line = process.stdout.readline()
        if not line:
            status = process.wait()
            self._process = None
            return Answer("crashed", f"exit status {status}")
        return Answer(**json.loads(line))

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.oracle.demos.hostile_reader", self._digest]
            self._process = subprocess.Popen(
                command,
                cwd=Path(__file__).parents[3],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert self._process.stdout is not None
            self._process.stdout.readline()
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        self._stop()
        self._watch.close()


def _used_address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def main(digest: str) -> None:
    sample = Path(__file__).parents[3] / "datasets" / "sample.h5"
    if sample.exists():
        # Compile before the memory is limited.
        answer(sample, digest)
    limit = _used_address_space() + BYTES_BEYOND
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print("ready", flush=True)
    for line in sys.stdin:
        found = answer(Path(line.rstrip("\n")), digest)
        print(json.dumps({"kind": found.kind, "text": found.text}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
