"""Ctrl-C, SIGTERM (what Airflow and Kubernetes send), and the death of a worker, in the middle of a job whose workers
are on this machine: finished shards stay, one line tells it, and the same command goes on."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.schemas.sizes import number_text
from tests.engines.command import Command
from tests.engines.disturbed_job import DisturbedJob

ENDS_WITHIN_S = 60


@pytest.fixture
def job(disturbed_job, tmp_path) -> Callable[[list[str]], DisturbedJob]:
    return lambda engine: disturbed_job(engine, tmp_path)


def goes_on(interrupted: DisturbedJob) -> None:
    number = number_text(len(interrupted.finished()), "finished shard")
    assert number in interrupted.goes_on().out


@pytest.mark.parametrize(
    ("engine", "number", "code", "word"),
    [
        ("processes", signal.SIGINT, 130, "interrupted"),
        ("processes", signal.SIGTERM, 143, "terminated"),
        ("prism", signal.SIGTERM, 143, "terminated"),
        ("flink_local", signal.SIGINT, 130, "interrupted"),
    ],
    indirect=["engine"],
)
def test_signal_keeps_finished_shards(job, engine, number, code, word):
    interrupted = job(engine)

    def send(command: Command) -> None:
        os.kill(command.process.pid, number)
        command.process.wait(ENDS_WITHIN_S)

    command = interrupted.run(send)
    assert command.code == code, command
    told = f"recordmill: {word}. Finished shards are kept. Run the same command again to resume"
    assert faults(command, engine) == [told]
    goes_on(interrupted)


@pytest.mark.parametrize(
    ("number", "begun"), [(signal.SIGINT, 0), (signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGHUP, 2)]
)
def test_signal_while_worker_processes_start(sample, processes, tmp_path, number, begun):
    """Beam alone waits for ever for one that was being started when it gave up."""
    flags = ["--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2, "--progress", "none"]
    command = Command(["convert", *flags, "--output", tmp_path / "out", "--", *processes], tmp_path / "says")
    last = time.monotonic() + 180
    while len(workers(command)) < begun or not (tmp_path / "out").exists():
        assert command.code is None, command
        assert time.monotonic() < last
        time.sleep(0.01)
    os.kill(command.process.pid, number)
    command.process.wait(ENDS_WITHIN_S)
    assert not workers(command)
    assert command.end().code == (130 if number == signal.SIGINT else 128 + number)


def test_a_killed_process_of_several(job, processes):
    """One that memory ran out for, as the kernel would choose it."""
    interrupted = job(processes)

    def kill(command: Command) -> None:
        os.kill(workers(command)[0], signal.SIGKILL)
        command.process.wait(ENDS_WITHIN_S)

    command = interrupted.run(kill)
    assert command.code == 1, command
    (told,) = faults(command, processes)
    assert told.startswith("recordmill: a worker process died, perhaps because ")
    goes_on(interrupted)


def faults(command: Command, engine: list[str]) -> list[str]:
    """Lines of errors, after the note that Beam's processes are slow."""
    lines = command.err.splitlines()
    if "--direct_running_mode=multi_processing" in engine:
        assert lines.pop(0).startswith("note: --direct_running_mode=multi_processing starts Beam again in each process")
    return lines


def workers(command: Command) -> list[int]:
    """Processes that the local runner has started, without the shells between."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            line = (folder / "cmdline").read_bytes()
            of_command = os.getpgid(int(folder.name)) == command.process.pid
            if of_command and b"sdk_worker_main" in line and not line.startswith(b"/bin/sh"):
                found.append(int(folder.name))
    return found
