"""A real Dask cluster on loopback: processes of a scheduler and of two workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def dask(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Dask command as a process, and kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int, patience: float = 120.0) -> None:
    """Wait until something listens on a port: on a busy machine, imports take long."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and two workers; yield its address and the processes, it last."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = ("scheduler", "--host", "127.0.0.1", "--port", str(port))
    alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
    worker = ("worker", address, *alone, "--local-directory", str(folder))
    scheduling = dask(*scheduler, "--no-dashboard")
    with scheduling as last, dask(*worker) as one, dask(*worker) as two:
        wait_for(port)
        yield address, [one, two, last]
