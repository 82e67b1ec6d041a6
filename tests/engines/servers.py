"""Server processes, each on a free port of this machine and ended with all that it has started."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of machines that are busy with other tests: what waits so long has failed.
_START_S = 180
_STOP_S = 60


def free_port() -> int:
    """A port that nobody listens at, and that no connection is given by chance: the kernel hands out those from 32768
    on."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            return port


@contextlib.contextmanager
def port_without_server() -> Iterator[int]:
    """A port where connections are refused while the block runs: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        yield taken.getsockname()[1]


def listens(port: int) -> bool:
    """Whether somebody does."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(command: list[str], log: Path, is_up: Callable[[], bool], **how: Any) -> Iterator[subprocess.Popen]:
    """A server, once it is up and until the block ends; what it says is added to `log`. `how` goes to Popen."""
    how = {"cwd": log.parent, "stdin": subprocess.DEVNULL, "start_new_session": True} | how
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **how)
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
    """End a process that leads a session, and the processes that it started, which it may leave behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        last = time.monotonic() + _STOP_S
        while time.monotonic() < last:
            process.poll()
            if not any(each.group == process.pid for each in processes()):
                return
            time.sleep(0.02)
    raise AssertionError(f"processes of group {process.pid} do not end")


@dataclass(frozen=True)
class Process:
    pid: int
    group: int


def processes() -> Iterator[Process]:
    """Running processes, without those that ended and were not waited for."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        if state not in "ZX":
            yield Process(int(folder.name), int(group))
