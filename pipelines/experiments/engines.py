"""Engines that run cells: processes of this machine, or the workers of a Dask cluster.

An engine yields every cell with its record, or with an error. The cell of a worker that dies is
run again by another worker.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    CancelledError,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from abacus.checks import check_integer
from pipelines.experiments.records import Cell, Record

#: How often a cell is started if its workers die.
ATTEMPTS = 3
#: Seconds to wait for a connection to a scheduler.
PATIENCE = 10.0
#: Topic of the events by which workers of a cluster report that they start a cell.
STARTED = "abacus-study-started"
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

#: Runs a cell on a worker, which must be able to import it.
Work = Callable[[Cell], Record]


@dataclass(frozen=True)
class Done:
    """A cell that has ended, with its record or its error."""

    cell: Cell
    record: Record | None
    error: str | None = None


class LocalProcesses:
    """Engine of processes on this machine, each with one thread."""

    def __init__(self, workers: int) -> None:
        self.workers = check_integer("workers", workers, 1)

    def run(
        self, work: Work, cells: Sequence[Cell], started: Callable[[Cell], None]
    ) -> Iterator[Done]:
        """Yield every cell when it ends; call `started` when a worker begins it."""
        stop = threading.Event()
        # A process pool breaks as a whole when one process dies, so each worker has its own.
        pools: queue.SimpleQueue[ProcessPoolExecutor] = queue.SimpleQueue()

        def run_one(cell: Cell) -> Done:
            pool = pools.get()
            try:
                started(cell)
                for _ in range(ATTEMPTS):
                    done = _attempt(pool, work, cell, stop)
                    if done is not None or stop.is_set():
                        break
                    pool = _new_pool()
            except OSError as error:
                # A full disk in `started`, or no new process: report it and go on.
                return Done(cell, None, _one_line(error))
            finally:
                pools.put(pool)
            return done or Done(cell, None, f"its worker died {ATTEMPTS} times")

        with _one_thread():
            for _ in range(self.workers):
                pools.put(_new_pool())
            threads = ThreadPoolExecutor(self.workers)
            try:
                for future in as_completed([threads.submit(run_one, cell) for cell in cells]):
                    yield future.result()
            finally:
                stop.set()
                threads.shutdown(cancel_futures=True)
                for _ in range(self.workers):
                    _shut_down(pools.get())


def _attempt(
    pool: ProcessPoolExecutor, work: Work, cell: Cell, stop: threading.Event
) -> Done | None:
    """Run a cell once; return None if the worker died or has to stop."""
    try:
        future = pool.submit(work, cell)
        while not stop.is_set():
            if wait([future], timeout=0.2).done:
                return Done(cell, future.result())
    except (BrokenProcessPool, KeyboardInterrupt, SystemExit):
        return None
    except Exception as error:  # noqa: BLE001 - an error of one cell must not stop the others
        return Done(cell, None, _one_line(error))
    return None


def _new_pool() -> ProcessPoolExecutor:
    # Spawn: a fork would share the state of torch's threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_prepare_process)


def _prepare_process() -> None:
    """Ignore Ctrl-C, which the main process handles, and end with the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """End this process when the study is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _leave(number: int, frame: object) -> None:
    """Unwind the cell and end the process."""
    raise SystemExit


def _shut_down(pool: ProcessPoolExecutor) -> None:
    """End a pool and its process, which may still run a cell."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit processes that are started inside to one thread."""
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
    """Engine of the workers of a Dask scheduler, each `dask worker ADDRESS --nthreads 1`.

    The project has to be installed there. The scheduler moves the cell of a dead worker to another.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise ValueError("--scheduler needs Dask: pip install 'virtual-abacus[dask]'") from None
        # Its log has a traceback where a scheduler dies; `run` reports that in one line.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        client: Any = Client
        self.address = address
        try:
            self.client = client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise ValueError(
                f"no Dask scheduler answers at {address} ({_one_line(error)}): start one with "
                "'dask scheduler', or leave --scheduler out"
            ) from None

    @property
    def workers(self) -> int:
        """Number of threads of all current workers."""
        threads: dict[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))

    def _done(self, cell: Cell, future: Any) -> Done:
        """Return the end of a cell; raise ValueError if the scheduler has gone, not the cell."""
        # A result is fetched now, and the scheduler may have died since the cell ended.
        with suppress(OSError, CancelledError):
            if future.status == "finished":
                return Done(cell, future.result())
            if future.status == "error":
                return Done(cell, None, _one_line(future.exception()))
        raise ValueError(
            f"the Dask scheduler at {self.address} is gone: records are kept, and the same command "
            "continues once it runs again"
        )

    def run(
        self, work: Work, cells: Sequence[Cell], started: Callable[[Cell], None]
    ) -> Iterator[Done]:
        """Yield every cell when it ends; call `started` when a worker begins it."""
        import distributed

        completed: Any = distributed.as_completed
        by_key = {cell.key: cell for cell in cells}

        def on_event(event: tuple[float, str]) -> None:
            # Other studies may use the scheduler too. A full disk must not end the cell.
            if event[1] in by_key:
                with suppress(OSError):
                    started(by_key[event[1]])

        self.client.subscribe_topic(STARTED, on_event)
        # Earlier cells have a higher priority: later ones start from their clones.
        futures = [
            self.client.submit(_reported, work, cell, key=cell.key, pure=False, priority=-number)
            for number, cell in enumerate(cells)
        ]
        try:
            for future in completed(futures, loop=self.client.loop):
                yield self._done(by_key[future.key], future)
                future.release()
        finally:
            # Both need the scheduler.
            with suppress(OSError, TimeoutError, CancelledError):
                self.client.cancel(futures)
                self.client.close()


#: Both have `workers`, the number of cells that are run at the same time, and `run`.
Engine = LocalProcesses | DaskCluster


def _reported(work: Work, cell: Cell) -> Record:
    """Report the start of a cell from a worker of a cluster, and run it."""
    from distributed import get_worker

    worker: Any = get_worker()
    worker.log_event(STARTED, cell.key)
    return work(cell)


def _one_line(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
