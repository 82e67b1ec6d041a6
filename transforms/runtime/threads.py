"""Threads: their number, work ahead of a reader, and shared budgets. Also the end of forked processes."""

import ctypes
import math
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
"""Files with the CPU limit of a container: control groups version 2, and 1."""


def usable_cores() -> int:
    """Return the number of cores for this process: its CPU affinity, limited by its container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota()
    return cores if quota >= cores else max(1, math.ceil(quota))


def _quota() -> float:
    """Return the CPU quota of the container in cores; infinite without a limit."""
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota, period = (path.read_text() for path in _QUOTA_V1)
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


Item = TypeVar("Item")
Result = TypeVar("Result")

BYTES_AHEAD = 64_000_000
"""Maximum bytes, by `size_of`, of items in progress or waiting for the reader (a single item may be larger)."""


def look_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    pool: Executor,
    threads: int,
    size_of: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """Yield the result of `function` for each item, in order.

    Enough items are ahead to keep `threads` threads of the pool busy, but at most BYTES_AHEAD bytes by `size_of`. If
    the reader stops, or an item fails, pending items are cancelled.
    """
    waiting: deque[tuple[int, Future[Result]]] = deque()
    bytes_ahead, process = 0, os.getpid()
    try:
        for item in items:
            size = size_of(item)
            while waiting and (bytes_ahead + size > BYTES_AHEAD or len(waiting) >= 2 * threads):
                oldest, future = waiting.popleft()
                bytes_ahead -= oldest
                yield future.result()
            waiting.append((size, pool.submit(function, item)))
            bytes_ahead += size
        while waiting:
            yield waiting.popleft()[1].result()
    finally:
        if os.getpid() == process:  # a fork may copy a future's lock while a thread holds it: it is never released
            for _, future in waiting:
                future.cancel()


class Budget:
    """Total that is shared by threads, which wait for their parts. A part above the total is granted alone."""

    def __init__(self, total: int):
        self._total = total
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def part(self, amount: int) -> Iterator[None]:
        """Context manager: wait for `amount` of the total."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + amount <= self._total)
            self._used += amount
        try:
            yield
        finally:
            with self._changed:
                self._used -= amount
                self._changed.notify_all()


def return_memory() -> None:
    """Return free memory to the system. glibc keeps what a thread has freed, and another thread does not use it."""
    with suppress(AttributeError, OSError, TypeError):  # other C libraries
        ctypes.CDLL(None).malloc_trim(0)


_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def end_with_parent(parent: int) -> None:
    """Have Linux kill this process when its starting thread ends.

    Args:
        parent: Process id. This process ends at once if its parent is another one, because the first has ended.
    """
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
