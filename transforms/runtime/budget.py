"""A bound on what all threads together hold at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Budget:
    """A total that threads take parts of and wait for. A part larger than the total is granted alone."""

    def __init__(self, total: int):
        self._total = total
        self._taken = 0
        self._changed = threading.Condition()

    @contextmanager
    def part(self, amount: int) -> Iterator[None]:
        """Hold `amount` of the total; wait until there is so much left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + amount <= self._total)
            self._taken += amount
        try:
            yield
        finally:
            with self._changed:
                self._taken -= amount
                self._changed.notify_all()
