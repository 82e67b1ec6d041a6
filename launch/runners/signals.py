"""Signals. SIGTERM (of Kubernetes and Airflow) and SIGHUP (a closed terminal) end a command like Ctrl-C does, with the
worker processes of the local runner."""

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
    """KeyboardInterrupt of a TERMINATING signal; no user answers."""


@contextmanager
def interrupt_on_termination() -> Iterator[list[int]]:
    """Context manager: TERMINATING signals raise KeyboardInterrupt. The list has the received signals. nohup's ignored
    SIGHUP stays ignored."""
    signals: list[int] = []

    def interrupt(before: Any, number: int, frame: FrameType | None) -> None:
        signals.append(number)
        raise Terminated

    with _handle_signals(TERMINATING, interrupt, lambda before: before is not signal.SIG_IGN):
        yield signals


@contextmanager
def kill_workers_on_signal() -> Iterator[None]:
    """Context manager: an interrupting signal also kills the worker processes after a grace period. Beam would wait for
    ever for a worker that was just starting."""

    def interrupt(before: Any, number: int, frame: FrameType | None) -> None:
        timer = threading.Timer(_GRACE_S, kill_workers)
        timer.daemon = True
        timer.start()
        before(number, frame)

    with _handle_signals((signal.SIGINT, *TERMINATING), interrupt, callable):
        yield


@contextmanager
def _handle_signals(
    numbers: Iterable[int], handle: Callable[[Any, int, FrameType | None], None], replaces: Callable[[Any], bool]
) -> Iterator[None]:
    """Context manager: `handle` handles the signals whose earlier handler `replaces` accepts, and gets that
    handler."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    handlers = {number: signal.getsignal(number) for number in numbers}
    replaced = {number: handler for number, handler in handlers.items() if replaces(handler)}
    for number, handler in replaced.items():
        signal.signal(number, partial(handle, handler))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler or signal.SIG_DFL)


def end_with(code: int) -> None:
    """End the process with `code` on Ctrl-C and TERMINATING signals from now on, because all is reported. Signals are
    ignored at the interpreter's exit, which would otherwise end with the signal."""
    for number in (signal.SIGINT, *TERMINATING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))
            atexit.register(signal.signal, number, signal.SIG_IGN)


def kill_workers() -> None:
    """Kill the worker processes of this process, where /proc exists."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # the process has ended
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
