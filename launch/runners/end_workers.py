"""Worker processes of the local runner end with the command, whatever they are at."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from recordmill.launch.runners.signals import TERMINATING

_GRACE_S = 2.0
_WORKER = b"apache_beam.runners.worker.sdk_worker_main"
_SIGNALS = (signal.SIGINT, *TERMINATING)


@contextlib.contextmanager
def workers_end_too() -> Iterator[None]:
    """While the block runs, a signal that interrupts the command also kills its worker processes, after a grace period:
    Beam would wait for ever for a worker that was just starting when it gave up."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def interrupt(number: int, frame: FrameType | None) -> None:
        timer = threading.Timer(_GRACE_S, kill_workers)
        timer.daemon = True
        timer.start()
        handler: Any = before[signal.Signals(number)]
        handler(number, frame)

    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)


def kill_workers() -> None:
    """Kill the worker processes that this one has started, where there is a /proc to find them by."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    for process in parents:
        with contextlib.suppress(OSError):
            is_worker = _WORKER in Path(f"/proc/{process}/cmdline").read_bytes()
            if is_worker and _is_below(process, os.getpid(), parents):
                os.kill(process, signal.SIGKILL)


def _is_below(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == ancestor:
            return True
    return False
