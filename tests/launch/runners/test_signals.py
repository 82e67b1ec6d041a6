"""Signals end a command and its worker processes, and nobody else's; tests/engines has the rest."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from recordmill.launch.runners import signals
from recordmill.launch.runners.signals import (
    TERMINATING,
    Terminated,
    interrupt_on_termination,
    kill_workers,
    kill_workers_on_signal,
)

# Shells that go by the name of a worker, tell their number, and wait for the end of their input.
WORKER = """sh -c 'echo $$; read line' apache_beam.runners.worker.sdk_worker_main"""
CHILD = f"exec {WORKER}"
GRANDCHILD = f"{WORKER}; true"
ORPHAN = f"exec 3<&0; {WORKER} <&3 &"
OTHER_CHILD = "echo $$; read line"


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Starts a shell and gives the number of the process that tells one."""
    with ExitStack() as stack:

        def start(script: str) -> int:
            # From a file, so that the name is in the command line of the worker alone.
            given, handed = os.pipe()
            os.write(handed, script.encode())
            os.close(handed)
            shell = subprocess.Popen(
                ["sh", f"/dev/fd/{given}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[given]
            )
            os.close(given)
            stack.enter_context(shell)
            assert shell.stdout is not None
            number = int(shell.stdout.readline())
            if script == ORPHAN:
                shell.wait()
            return number

        yield start


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to find them by")
def test_only_workers_of_this_process_are_killed(start, monkeypatch):
    """Workers of other commands on the machine go on, also if their parents ended."""
    child, grandchild, _, _ = (start(script) for script in (CHILD, GRANDCHILD, ORPHAN, OTHER_CHILD))
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *process_and_signal: killed.append(process_and_signal))
    kill_workers()
    monkeypatch.undo()
    assert sorted(killed) == sorted([(child, signal.SIGKILL), (grandchild, signal.SIGKILL)])


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Signals that the handler outside of the block received."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_signal_ends_them_and_comes_to_whoever_had_it_before(heard, monkeypatch):
    killed = threading.Event()
    monkeypatch.setattr(signals, "_GRACE_S", 0.0)
    monkeypatch.setattr(signals, "kill_workers", killed.set)
    before = signal.getsignal(signal.SIGTERM)
    with kill_workers_on_signal():
        signal.raise_signal(signal.SIGTERM)
        assert killed.wait(60)
    assert heard == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("heard")
def test_thread_that_may_not_ask_for_signals_goes_without():
    def within() -> str:
        with kill_workers_on_signal():
            return "ran"

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(within).result() == "ran"


@pytest.fixture(params=TERMINATING)
def number(request) -> Iterator[int]:
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_signal_ends_block_and_is_named(number):
    signal.signal(number, signal.SIG_DFL)
    with interrupt_on_termination() as signals, pytest.raises(Terminated):
        signal.raise_signal(number)
    assert signals == [number]
    assert signal.getsignal(number) is signal.SIG_DFL


def test_signal_ignored_stays_so(number):
    """A command under nohup keeps ignoring the signal when the terminal is closed."""
    signal.signal(number, signal.SIG_IGN)
    with interrupt_on_termination():
        assert signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is signal.SIG_IGN
