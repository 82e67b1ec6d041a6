"""The summary that a conversion prints when it is done, or of what it would do."""

from collections.abc import Iterable, Mapping

from rich.console import Console

from recordmill.launch.terminal.error_stream import error_stream

_WIDE = 1000
"""Columns that no table needs: a terminal that is too narrow wraps lines, and no number is cut."""


def terminal() -> Console:
    """Standard output; names in a data set are no markup."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False, width=_WIDE)


def terminal_of_errors() -> Console:
    """Standard error; names in a data set are no markup."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False, file=error_stream())


def print_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line)


def print_times(console: Console, seconds: Mapping[str, float]) -> None:
    """Print how long a job took, and each of its steps."""
    if not seconds:
        return
    steps = ", ".join(f"{step} {lasted:,.1f} s" for step, lasted in seconds.items())
    parts = f": {steps}" if len(seconds) > 1 else ""
    console.print(f"That took {sum(seconds.values()):,.1f} s{parts}")
