"""Processes that are forked from the job's process, each with its own interpreter lock. They write shard by shard.

Only the process of one command forks them, before it starts threads, see `recordmill.launch.local_engine.fork_writers`.
docs/decisions/0037-shards-in-forked-processes.md has the reasons and timings.
"""

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
from recordmill.transforms.runtime.threads import end_with_parent, return_memory, usable_cores
from recordmill.transforms.storage.resolve import storage_for

_PARENT_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Signals that interrupt a command. Its process ends the forked ones."""
_THREADS_A_CORE = 2
"""Number of threads per core, so that a core works while a thread waits for a disk."""

OfShard = Callable[..., Any]
"""A module-level function. After other arguments, it takes an Executor of threads and their number."""


class Processes:
    """Process pool; a process works on one shard at once.

    Attributes:
        number: Number of processes.
    """

    def __init__(self, number: int, executor: ProcessPoolExecutor):
        self.number = number
        self._executor = executor
        self._folders: set[str] = set()

    def submit(
        self, function: OfShard, arguments: tuple[Any, ...], threads: int | None, shards: int, folders: Iterable[str]
    ) -> Future:
        """Call a function in one of the processes.

        Args:
            threads: Number of threads of all processes together; None to choose it by the work.
            shards: Number of shards of the job.
            folders: Folders in which the function creates temporary files.
        """
        self._folders.update(folders)
        threads_per_process = -(-(threads or _THREADS_A_CORE * usable_cores()) // min(self.number, shards))
        return self._executor.submit(_call, function, arguments, threads_per_process)

    def end(self) -> None:
        """Kill the processes, and delete their temporary files."""
        children = multiprocessing.active_children()
        for process in children:
            process.kill()
        for process in children:
            process.join()
        self._executor.shutdown(cancel_futures=True)
        for folder in self._folders:
            with suppress(OSError):  # report the job's error; the next run deletes the leftovers
                storage_for(folder).delete_leftovers(folder)


class ShardDoFn(ThreadedDoFn):
    """Base of steps that process one shard per element: in forked processes if there are any and more than one shard,
    and otherwise in this process, with threads."""

    def start_bundle(self):
        self._waiting: deque[Future] = deque()

    def do(self, function: OfShard, *arguments: Any, shards: int, folders: Iterable[str] = ()) -> Iterator[Any]:
        """Yield the result of `function` for a shard, now or with a later one.

        Args:
            shards, folders: See Processes.submit.
        """
        processes = forked_processes()
        if processes is None or shards == 1:
            yield function(*arguments, self.pool, self.threads)
            return
        self._waiting.append(processes.submit(function, arguments, self._given_threads, shards, folders))
        if len(self._waiting) > 2 * processes.number:  # limits the memory of waiting tasks
            yield self._waiting.popleft().result()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._waiting:
            yield GlobalWindows.windowed_value(self._waiting.popleft().result())


class ListedShardDoFn(ShardDoFn):
    """Base of steps over shards that exist before the job.

    Args:
        threads: See ThreadedDoFn.
        shards: Number of all shards.
    """

    def __init__(self, threads: int | None, shards: int):
        super().__init__(threads)
        self._shards = shards


_forked: Processes | None = None


def forked_processes() -> Processes | None:
    """Return the forked processes of this process; None without any."""
    return _forked


@contextmanager
def fork_processes(number: int) -> Iterator[None]:
    """Context manager: fork `number` processes, and end them after the block. Needs a process without threads."""
    global _forked
    gc.freeze()  # otherwise garbage collection copies the pages of each process
    progress.expect_forked()
    executor = ProcessPoolExecutor(number, multiprocessing.get_context("fork"), _init_process, (os.getpid(),))
    processes = Processes(number, executor)
    try:
        with _block_signals(_PARENT_SIGNALS):  # permanently in the forked processes; here, until all are forked
            executor.submit(os.getpid)  # the first task forks all, before the executor starts a thread
        _forked = processes
        yield
    finally:
        _forked = None
        processes.end()


@contextmanager
def _block_signals(signals: set[signal.Signals]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _init_process(parent: int) -> None:
    """Initialise a forked process, so that it ends with its parent in any case."""
    end_with_parent(parent)
    progress.count_for_parent()


def _call(function: OfShard, arguments: tuple[Any, ...], threads: int) -> Any:
    with ThreadPoolExecutor(threads) as pool:
        result = function(*arguments, pool, threads)
    return_memory()
    return result
