"""Shards are written by processes that are forked from the job's own, each with an interpreter's lock for itself.

Only the process of one command forks them, before it has threads, see `recordmill.launch.local_engine.fork_writers`;
docs/decisions/0037-shards-in-forked-processes.md says what that brings.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.threads import usable_cores
from recordmill.transforms.shards.shard_file import ShardRecipe, WrittenShard, folders_of
from recordmill.transforms.shards.shard_writer import write_shard
from recordmill.transforms.storage.resolve import storage_for

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_OF_PARENT = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""What interrupts a command: its process ends the others."""
_LARGE_BYTES = 8 << 20
"""What is known of a shard's images from which on memory that it leaves free is worth giving back."""
_THREADS_A_CORE = 2
"""One fetches and checks images while another waits for a disk, or for a process that has no shard left."""


class ShardProcesses:
    """Processes that each write one shard at a time.

    Attributes:
        number: how many.
    """

    def __init__(self, number: int, executor: ProcessPoolExecutor):
        self.number = number
        self._executor = executor
        self._folders: set[str] = set()

    def finish(
        self,
        recipe: ShardRecipe,
        labels: LabelMap,
        table: FeatureTable,
        threads: int | None,
        key: ShardKey,
        packed: list[bytes],
    ) -> "Future[WrittenShard]":
        """`write_shard` in one of them.

        Args:
            threads: that fetch and check images, in all; None for as many as there is work for.
        """
        at_once = min(self.number, key.count)
        self._folders |= folders_of(recipe, key.split)
        each = -(-(threads or _THREADS_A_CORE * usable_cores()) // at_once)
        return self._executor.submit(_finish, recipe, labels, table, each, key, packed)

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


_forked: ShardProcesses | None = None


def forked() -> ShardProcesses | None:
    """Those of the process that this is, if it has some."""
    return _forked


@contextmanager
def forking(number: int) -> Iterator[None]:
    """While the block runs, there are so many, forked as it begins. No other thread may be alive then."""
    global _forked
    gc.freeze()  # or each process would copy what its collector looks at
    progress.expect_forked()
    executor = ProcessPoolExecutor(number, multiprocessing.get_context("fork"), _begin, (os.getpid(),))
    processes = ShardProcesses(number, executor)
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
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    progress.is_forked()
    gc.enable()


def _finish(
    recipe: ShardRecipe, labels: LabelMap, table: FeatureTable, threads: int, key: ShardKey, packed: list[bytes]
) -> WrittenShard:
    with ThreadPoolExecutor(threads) as pool:
        written = write_shard(key, packed, recipe, RecordContext(labels, table, pool, threads, recipe.output))
    if sum(map(len, packed)) > _LARGE_BYTES:
        packed.clear()
        ctypes.CDLL(None).malloc_trim(0)  # glibc would keep it for a next shard, which there may not be
    return written
