"""Threads work ahead of who reads, in order and within bounds."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

BYTES_AHEAD = 64_000_000
"""The most bytes of items, by `size_of`, that are worked on or wait to be taken (a single item may be larger)."""

_LOOK_S = 0.05
"""How long work is done before it is known whether it keeps a core busy; a multiple of what a scheduler takes."""
_BUSY = 0.75
"""Of that time, what a core at least has to do where threads would bring nothing."""


def look_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    pool: Executor,
    threads: int,
    size_of: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """What `function` makes of each item, in order.

    As many items are ahead as keep `threads` of the pool busy, but no more than BYTES_AHEAD by `size_of`. Where the
    reader stops, or an item fails, what is not begun is cancelled.
    """
    waiting: deque[tuple[int, Future[Result]]] = deque()
    bytes_ahead = 0
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
        for _, future in waiting:
            future.cancel()


def look_ahead_if_idle(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    pool: Executor,
    threads: int,
    size_of: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """As `look_ahead`, but nothing is ahead, and no thread begun, as long as the work keeps this thread busy: threads
    would only wait for each other at the interpreter's lock. From where it waits, for a disk or a network, they work
    ahead."""
    items = iter(items)
    lasted = worked = 0.0
    for item in items:
        began, began_work = time.perf_counter(), time.thread_time()
        result = function(item)
        worked += time.thread_time() - began_work
        lasted += time.perf_counter() - began
        yield result
        if lasted >= _LOOK_S:
            if worked < _BUSY * lasted:
                break
            lasted = worked = 0.0
    yield from look_ahead(function, items, pool, threads, size_of)
