"""Standard error for users. It hides the output of libraries and of Beam's worker processes, and shows ours."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_OURS = "recordmill"

_ours: TextIO | None = None


def error_stream() -> TextIO | None:
    """Return the stream of our messages; None if the caller has closed it."""
    return _ours or sys.stderr


class ErrorStreamHandler(logging.StreamHandler):
    """Log handler that prints our log records to `error_stream`. Beam and its job servers log tracebacks of errors that
    are reported in one line; --debug shows them."""

    def emit(self, record: logging.LogRecord) -> None:
        stream = error_stream()
        if stream and record.name.partition(".")[0] == _OURS:
            self.stream = stream
            super().emit(record)


def silence() -> None:
    """Drop standard error from now on."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)


@contextmanager
def hide_other_output(for_good: bool = False) -> Iterator[None]:
    """Context manager: drop the standard error of libraries and child processes, and keep it dropped if `for_good`.
    `error_stream` stays."""
    global _ours
    if sys.stderr is None or _ours is not None:
        yield
        return
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    try:
        silence()
        encoding = sys.stderr.encoding or "utf-8"
        with open(stderr_copy, "w", 1, encoding, "backslashreplace", closefd=False) as _ours:  # 1: line by line
            yield
    finally:
        _ours = None
        sys.stderr.flush()
        if not for_good:
            os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
