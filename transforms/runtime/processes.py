"""Processes that are forked from the job's own, each with an interpreter's lock for itself, do a shard at a time.

Only the process of one command forks them, before it has threads, see `recordmill.launch.local_engine.fork_writers`;
docs/decisions/0037-shards-in-forked-processes.md says what that brings.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn
from recordmill.transforms.runtime.threads import end_with_parent, usable_cores
from recordmill.transforms.storage.resolve import storage_for

_OF_PARENT = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Signals that interrupt a command; its process ends the others."""
_THREADS_A_CORE = 2
"""One fetches and checks images while another waits for a disk, or for a process that has no shard left."""

OfShard = Callable[..., Any]
"""A function at the top of a module. After its own arguments it takes an Executor of threads and their number."""


class Processes:
    """Processes that each do one shard at a time.

    Attributes:
        number: how many.
    """

    def __init__(self, number: int, executor: ProcessPoolExecutor):
        self.number = number
        self._executor = executor
        self._folders: set[str] = set()

    def submit(
        self, function: OfShard, arguments: tuple[Any, ...], threads: int | None, shards: int, folders: Iterable[str]
    ) -> Future:
        """Call a function in one of them.

        Args:
            threads: of all processes together; None for as many as there is work for.
            shards: how many shards the job has.
            folders: in which the function makes temporary files.
        """
        self._folders.update(folders)
        each = -(-(threads or _THREADS_A_CORE * usable_cores()) // min(self.number, shards))
        return self._executor.submit(_call, function, arguments, each)

    def end(self) -> None:
        """Kill them, wherever they are, and delete what they were writing."""
        children = multiprocessing.active_children()
        for process in children:
            process.kill()
        for process in children:
            process.join()
        self._executor.shutdown(cancel_futures=True)
        for folder in self._folders:
            with suppress(OSError):  # the error that ends the job is the one to be told; the next run deletes it
                storage_for(folder).delete_leftovers(folder)


class ShardDoFn(ThreadedDoFn):
    """Base of steps that do one thing a shard: in forked processes where there are some and more than one shard, or
    else here, with threads."""

    def start_bundle(self):
        self._waiting: deque[Future] = deque()

    def do(self, function: OfShard, *arguments: Any, shards: int, folders: Iterable[str] = ()) -> Iterator[Any]:
        """Yield what `function` returns for a shard, now or after a later one.

        Args:
            shards, folders: see Processes.submit.
        """
        processes = forked()
        if processes is None or shards == 1:
            yield function(*arguments, self.pool, self.threads)
            return
        self._waiting.append(processes.submit(function, arguments, self._given_threads, shards, folders))
        if len(self._waiting) > 2 * processes.number:  # the runner holds what is to come, in less memory
            yield self._waiting.popleft().result()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._waiting:
            yield GlobalWindows.windowed_value(self._waiting.popleft().result())


_forked: Processes | None = None


def forked() -> Processes | None:
    """Return the processes of this process, if it has some."""
    return _forked


@contextmanager
def forking(number: int) -> Iterator[None]:
    """While the block runs, there are so many, forked as it begins. No other thread may be alive then."""
    global _forked
    gc.freeze()  # or each process would copy what its collector looks at
    progress.expect_forked()
    executor = ProcessPoolExecutor(number, multiprocessing.get_context("fork"), _begin, (os.getpid(),))
    processes = Processes(number, executor)
    try:
        with _held_back(_OF_PARENT):  # in them for good; here, a fork must not be interrupted halfway
            executor.submit(os.getpid)  # all are forked with the first task, before the executor has a thread
        _forked = processes
        yield
    finally:
        _forked = None
        processes.end()


@contextmanager
def _held_back(signals: set[signal.Signals]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int) -> None:
    """A process begins, which ends with its parent, however that ends."""
    end_with_parent(parent)
    progress.is_forked()


def _call(function: OfShard, arguments: tuple[Any, ...], threads: int) -> Any:
    with ThreadPoolExecutor(threads) as pool:
        result = function(*arguments, pool, threads)
    ctypes.CDLL(None).malloc_trim(0)  # glibc would keep what is free for a next shard, which there may not be
    return result
