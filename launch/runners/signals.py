"""SIGTERM (what Kubernetes and Airflow send) and SIGHUP (a terminal that is closed) end a command as Ctrl-C does, and
worker processes of the local runner end with it, whatever they are at."""

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

_GRACE_S = 2.0
_WORKER = b"apache_beam.runners.worker.sdk_worker_main"


class Terminated(KeyboardInterrupt):
    """One of the signals TERMINATING came; unlike after Ctrl-C, there is nobody who could be asked anything."""


@contextmanager
def terminated_as_by_ctrl_c() -> Iterator[list[int]]:
    """While the block runs, the signals TERMINATING raise a KeyboardInterrupt as Ctrl-C does. The list has those that
    came. (nohup sets SIGHUP to be ignored, and that is left so.)"""
    signals: list[int] = []

    def interrupt(before: Any, number: int, frame: FrameType | None) -> None:
        signals.append(number)
        raise Terminated

    with _handled(TERMINATING, interrupt, lambda before: before is not signal.SIG_IGN):
        yield signals


@contextmanager
def workers_end_too() -> Iterator[None]:
    """While the block runs, a signal that interrupts the command also kills its worker processes, after a grace period:
    Beam would wait for ever for a worker that was just starting when it gave up."""

    def interrupt(before: Any, number: int, frame: FrameType | None) -> None:
        timer = threading.Timer(_GRACE_S, kill_workers)
        timer.daemon = True
        timer.start()
        before(number, frame)

    with _handled((signal.SIGINT, *TERMINATING), interrupt, callable):
        yield


@contextmanager
def _handled(
    numbers: Iterable[int], handle: Callable[[Any, int, FrameType | None], None], replaces: Callable[[Any], bool]
) -> Iterator[None]:
    """While the block runs, `handle` handles the signals whose handler of before it `replaces`, and is given that."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    found = {number: signal.getsignal(number) for number in numbers}
    replaced = {number: handler for number, handler in found.items() if replaces(handler)}
    for number, handler in replaced.items():
        signal.signal(number, partial(handle, handler))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler or signal.SIG_DFL)


def end_with(code: int) -> None:
    """From here on Ctrl-C and the signals TERMINATING end the process with this exit code, as all is done and reported;
    once no thread is waited for any more, they do nothing: Python's end would let them kill the process."""
    for number in (signal.SIGINT, *TERMINATING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))
            atexit.register(signal.signal, number, signal.SIG_IGN)


def kill_workers() -> None:
    """Kill the worker processes that this one has started, where there is a /proc to find them by."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has ended
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    for process in parents:
        with suppress(OSError):
            is_worker = _WORKER in Path(f"/proc/{process}/cmdline").read_bytes()
            if is_worker and _is_below(process, os.getpid(), parents):
                os.kill(process, signal.SIGKILL)


def _is_below(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == ancestor:
            return True
    return False
