"""Threads work ahead of who reads, in order and within bounds."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], pool: Executor, threads: int
) -> Iterator[Result]:
    """What `function` makes of each item, in order; as many items are ahead as keep `threads` of the pool busy."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > 2 * threads:
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()
