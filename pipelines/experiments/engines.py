"""Engines that run cells: processes here, or the workers of a Dask cluster.

An engine yields every cell with its record, or with the reason why there is none. A worker that
dies takes its cell with it, which is run again by another.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.experiments.records import Cell, Record

#: How often a cell is started, if its workers die.
ATTEMPTS = 3
#: Seconds to wait for a scheduler before it counts as unreachable.
PATIENCE = 10.0
#: What workers of a cluster say when they take up a cell.
STARTED = "abacus-study-started"
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

#: What workers run: it has to be a function that they can import.
Work = Callable[[Cell], Record]


@dataclass(frozen=True)
class Done:
    """A cell that an engine is through with."""

    cell: Cell
    record: Record | None
    #: Why there is no record.
    error: str | None = None


class Engine(Protocol):
    """Runs cells, several at a time."""

    @property
    def workers(self) -> int:
        """Cells that are run at the same time."""
        ...

    def run(
        self, work: Work, cells: Sequence[Cell], started: Callable[[Cell], None]
    ) -> Iterator[Done]:
        """Every cell, as they get done; `started` is told of each when a worker takes it up."""
        ...


class LocalProcesses:
    """Processes of this machine, with one thread of torch each."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers={workers} is not allowed: give 1 or more")
        self.workers = workers

    def run(
        self, work: Work, cells: Sequence[Cell], started: Callable[[Cell], None]
    ) -> Iterator[Done]:
        """See `Engine`."""
        waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
        done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        stop = threading.Event()
        for cell in cells:
            waiting.put(cell)
        # A process pool dies as a whole when one process does, so each worker is a pool of its own.
        threads = [
            threading.Thread(target=_serve, args=(work, waiting, done, started, stop), daemon=True)
            for _ in range(min(self.workers, len(cells)))
        ]
        with _one_thread_each():
            for thread in threads:
                thread.start()
            try:
                for _ in cells:
                    yield done.get()
            finally:
                stop.set()
                for thread in threads:
                    thread.join()


def _serve(
    work: Work,
    waiting: queue.SimpleQueue[Cell],
    done: queue.SimpleQueue[Done],
    started: Callable[[Cell], None],
    stop: threading.Event,
) -> None:
    """One worker: takes cells until there are none."""
    pool = _new_pool()
    while not stop.is_set():
        try:
            cell = waiting.get_nowait()
        except queue.Empty:
            break
        try:
            started(cell)
            for _ in range(ATTEMPTS):
                result = _attempt(pool, work, cell, stop)
                if result is not None or stop.is_set():
                    break
                pool = _new_pool()
        except OSError as error:
            # No room to say that it started, no process to be had: the study must not wait for it.
            result = Done(cell, None, _line(error))
        done.put(result or Done(cell, None, f"its worker died {ATTEMPTS} times"))
    if stop.is_set():
        _break_off(pool)
    pool.shutdown()


def _attempt(
    pool: ProcessPoolExecutor, work: Work, cell: Cell, stop: threading.Event
) -> Done | None:
    """What came of the cell; None if the worker died, or has to stop."""
    try:
        future = pool.submit(work, cell)
        while not stop.is_set():
            if wait([future], timeout=0.2).done:
                return Done(cell, future.result())
    except (BrokenProcessPool, KeyboardInterrupt, SystemExit):
        return None
    except Exception as error:  # noqa: BLE001 - whatever a cell fails of, the others go on
        return Done(cell, None, _line(error))
    return None


def _new_pool() -> ProcessPoolExecutor:
    # Spawned and not forked: a fork would share the state of torch's threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_prepare_process)


def _prepare_process() -> None:
    """Ctrl-C reaches all processes of a terminal; the study alone decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """A study that is killed takes its workers along: nobody would take what they find."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _leave(number: int, frame: object) -> None:
    """Ends the cell, and with it the process, in an orderly way."""
    raise SystemExit


def _break_off(pool: ProcessPoolExecutor) -> None:
    """A pool has no public way to end what it runs, and would wait for it."""
    for process in list((pool._processes or {}).values()):
        process.terminate()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are started here compute with one thread."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class DaskCluster:
    """The workers of a Dask scheduler, each started as `dask worker ADDRESS --nthreads 1`.

    The project has to be installed where they run. A worker that dies is the scheduler's business:
    it gives the cell to another one.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise ValueError("--scheduler needs Dask: pip install 'virtual-abacus[dask]'") from None
        client: Any = Client
        try:
            self.client = client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise ValueError(
                f"no Dask scheduler answers at {address} ({_line(error)}): start one with "
                "'dask scheduler', or leave --scheduler out"
            ) from None

    @property
    def workers(self) -> int:
        """Threads of all workers there are now."""
        threads: dict[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))

    def run(
        self, work: Work, cells: Sequence[Cell], started: Callable[[Cell], None]
    ) -> Iterator[Done]:
        """See `Engine`."""
        from distributed import as_completed

        completed: Any = as_completed
        by_key = {cell.key: cell for cell in cells}

        def note(event: tuple[float, str]) -> None:
            # A scheduler may serve other studies too. Without room to say so, the cell goes on.
            if event[1] in by_key:
                with suppress(OSError):
                    started(by_key[event[1]])

        self.client.subscribe_topic(STARTED, note)
        # Earlier cells have a higher priority, as others build on them.
        futures = [
            self.client.submit(_announced, work, cell, key=cell.key, pure=False, priority=-number)
            for number, cell in enumerate(cells)
        ]
        try:
            for future in completed(futures, loop=self.client.loop):
                cell = by_key[future.key]
                if future.status == "finished":
                    yield Done(cell, future.result())
                else:
                    yield Done(cell, None, _line(future.exception()))
                future.release()
        finally:
            self.client.cancel(futures)
            self.client.close()


def _announced(work: Work, cell: Cell) -> Record:
    """The work of a cell on a worker of a cluster, which says that it has begun."""
    from distributed import get_worker

    worker: Any = get_worker()
    worker.log_event(STARTED, cell.key)
    return work(cell)


def _line(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
