"""How far a search through records is, on a terminal, once it takes a while."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.status import Status

from recordmill.launch.terminal.summary import terminal_of_errors

_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.2

Found = TypeVar("Found")


class Search:
    """A line on standard error that is gone whenever something is found."""

    def __init__(self) -> None:
        console = terminal_of_errors()
        self._status = Status("", console=console) if console.is_terminal else None
        self._next = time.monotonic() + _QUIET_SECONDS

    def read(self, records: int) -> None:
        """So many have been read."""
        if self._status and (now := time.monotonic()) >= self._next:
            self._next = now + _EVERY_SECONDS
            self._status.update(f"{records:,} records read")
            self._status.start()

    def hide(self) -> None:
        if self._status:
            self._status.stop()

    def pausing(self, found: Iterable[Found]) -> Iterator[Found]:
        """The same; the line is gone while each is used."""
        for each in found:
            self.hide()
            yield each


@contextmanager
def searching() -> Iterator[Search]:
    search = Search()
    try:
        yield search
    finally:
        search.hide()
