"""SIGTERM (what Kubernetes and Airflow send) and SIGHUP (a terminal that is closed) end a command as Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """One of TERMINATING came; other than after Ctrl-C, there is nobody to ask anything."""


@contextmanager
def terminated_as_by_ctrl_c() -> Iterator[list[int]]:
    """Within, TERMINATING raise a KeyboardInterrupt as Ctrl-C does; the list tells which came. (nohup has SIGHUP
    ignored, which stays.)"""
    signals: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        signals.append(number)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # which is the only one that may ask for signals
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
