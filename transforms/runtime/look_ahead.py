"""Threads work ahead of who reads, in order and within bounds."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

BYTES_AHEAD = 64_000_000
"""The most bytes of items, by `size_of`, that are worked on or wait to be taken (a single item may be larger)."""


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
