"""Consoles on standard output and error."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.status import Status

from recordmill.launch.terminal.error_stream import error_stream
from recordmill.schemas.dataset.checks import Faults
from recordmill.schemas.sizes import printable

_WIDE = 1000
"""Width above that of any table, so that the terminal wraps lines and no number is cut."""
_FAULTS_SHOWN = 20


def terminal() -> Console:
    """Return a console of standard output. Names in a data set are not markup."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False, width=_WIDE)


def terminal_of_errors() -> Console:
    """Return a console of standard error. Names in a data set are not markup."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False, file=error_stream())


def print_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line)


def print_times(console: Console, seconds: Mapping[str, float]) -> None:
    """Print the duration of a job and its steps."""
    if not seconds:
        return
    steps = ", ".join(f"{step} {lasted:,.1f} s" for step, lasted in seconds.items())
    parts = f": {steps}" if len(seconds) > 1 else ""
    console.print(f"That took {sum(seconds.values()):,.1f} s{parts}")


def print_faults(faults: Faults, where: str = "") -> None:
    """Print the first faults.

    Args:
        where: Text in place of the file and the record of each; empty to print these.
    """
    console = terminal()
    for fault in faults.listed[:_FAULTS_SHOWN]:
        console.print(printable(f"{where}{fault.reason}: {fault.detail}" if where else str(fault)))
    if len(faults) > _FAULTS_SHOWN:
        console.print(f"… and {len(faults) - _FAULTS_SHOWN:,} more")


_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.2

Found = TypeVar("Found")


class Search:
    """Progress line of a search on standard error. It disappears for each result."""

    def __init__(self) -> None:
        console = terminal_of_errors()
        self._status = Status("", console=console) if console.is_terminal else None
        self._next = time.monotonic() + _QUIET_SECONDS

    def read(self, records: int) -> None:
        """Show the number of records read."""
        if self._status and (now := time.monotonic()) >= self._next:
            self._next = now + _EVERY_SECONDS
            self._status.update(f"{records:,} records read")
            self._status.start()

    def hide(self) -> None:
        if self._status:
            self._status.stop()

    def pausing(self, items: Iterable[Found]) -> Iterator[Found]:
        """Yield the same items, and hide the line meanwhile."""
        for item in items:
            self.hide()
            yield item


@contextmanager
def searching() -> Iterator[Search]:
    search = Search()
    try:
        yield search
    finally:
        search.hide()
