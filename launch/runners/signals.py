"""SIGTERM (what Kubernetes and Airflow send) and SIGHUP (a terminal that is closed) end a command as Ctrl-C does."""

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """One of the signals TERMINATING came; unlike after Ctrl-C, there is nobody who could be asked anything."""


@contextmanager
def terminated_as_by_ctrl_c() -> Iterator[list[int]]:
    """While the block runs, the signals TERMINATING raise a KeyboardInterrupt as Ctrl-C does. The list has those that
    came. (nohup sets SIGHUP to be ignored, and that is left so.)"""
    signals: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        signals.append(number)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield signals
        return
    before = {number: signal.getsignal(number) for number in TERMINATING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def end_with(code: int) -> None:
    """From here on Ctrl-C and the signals TERMINATING end the process with this exit code, as all is done and reported;
    once no thread is waited for any more, they do nothing: Python's end would let them kill the process."""
    for number in (signal.SIGINT, *TERMINATING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))
            atexit.register(signal.signal, number, signal.SIG_IGN)
