"""Server processes, each on a free port of this machine and ended with all that it has started."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_START_S = 60
_STOP_S = 20


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


def listens(port: int) -> bool:
    """Whether somebody does."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(command: list[str], log: Path, is_up: Callable[[], bool]) -> Iterator[subprocess.Popen]:
    """A server, once it is up and until the block ends; what it says is added to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent, start_new_session=True
        )
    try:
        wait_until(is_up, process, log)
        yield process
    finally:
        end(process)


def wait_until(is_true: Callable[[], bool], process: subprocess.Popen, log: Path, seconds: float = _START_S) -> None:
    """Wait for something that a server does, for as long as the server lives."""
    last = time.monotonic() + seconds
    while not is_true():
        assert process.poll() is None, f"{process.args[0]} ended with exit code {process.returncode}: {log.read_text()}"
        assert time.monotonic() < last, f"{process.args[0]} is not up after {seconds} s: {log.read_text()}"
        time.sleep(0.1)


def end(process: subprocess.Popen) -> None:
    """End a process of a session of its own, and those that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
