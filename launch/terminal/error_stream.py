"""Standard error is for what a person should read. Libraries, and worker processes that Beam starts, print their own
there; while they do, it can be hidden, and what we have to say still comes out."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_OURS = "recordmill"

_ours: TextIO | None = None


def error_stream() -> TextIO | None:
    """Where a person reads what we say; None if the caller has closed it."""
    return _ours or sys.stderr


class ErrorStreamHandler(logging.StreamHandler):
    """Logs to `error_stream` what our own modules log. Beam and its job servers log, under many names, the
    tracebacks of errors that are reported in one line; --debug shows them."""

    def emit(self, record: logging.LogRecord) -> None:
        stream = error_stream()
        if stream and record.name.partition(".")[0] == _OURS:
            self.stream = stream
            super().emit(record)


def silence() -> None:
    """From here on nothing is shown, whoever prints it."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)


@contextmanager
def others_hidden(for_good: bool = False) -> Iterator[None]:
    """While the block runs, and afterwards where that is to be `for_good`, standard error of libraries and child
    processes is dropped; only `error_stream` shows."""
    global _ours
    if sys.stderr is None or _ours is not None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        silence()
        encoding = sys.stderr.encoding or "utf-8"
        with open(kept, "w", 1, encoding, "backslashreplace", closefd=False) as _ours:  # 1: line by line
            yield
    finally:
        _ours = None
        sys.stderr.flush()
        if not for_good:
            os.dup2(kept, 2)
        os.close(kept)
