"""Ctrl-C, SIGTERM (what Airflow and Kubernetes send), and the death of a worker, in the middle of a job whose workers
are on this machine: finished shards stay, one line tells it, and the same command goes on."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from recordmill.schemas.sizes import number_text
from tests.engines.command import Command
from tests.engines.conftest import SHARDS
from tests.engines.output import files_of
from tests.faults.jobs import LocalPlace, assert_whole, finished_shards
from tests.gcs_stand_in import GcsStandIn

SLOW_S = 0.25
ENDS_WITHIN_S = 60


class Interrupted:
    """A job that something happens to when some of its shards are finished, and its rerun."""

    def __init__(self, job: list[object], engine: list[str], bucket: GcsStandIn, folder: Path):
        self._job = job
        self._engine = engine
        self._bucket = bucket
        self._folder = folder
        self.output = folder / "out"

    def run(self, happens: Callable[[Command], None]) -> Command:
        self._bucket.latency_s = SLOW_S
        command = self._start(self.output, self._engine)
        last = time.monotonic() + 180
        while not self._noted():
            assert command.code is None, command
            assert time.monotonic() < last, "no shard is finished"
            time.sleep(0.02)
        happens(command)
        begun = time.monotonic()
        command.end()
        assert time.monotonic() - begun < ENDS_WITHIN_S
        self._bucket.latency_s = 0.0
        return command

    def goes_on(self) -> None:
        """The same command keeps what is finished, and ends as if nothing had happened."""
        kept = self._finished()
        assert 0 < len(kept) < SHARDS
        again = self._start(self.output, self._engine).end()
        assert again.code == 0, again
        assert number_text(len(kept), "finished shard") in again.out
        assert {name: (self.output / name).stat().st_mtime_ns for name in kept} == kept
        whole = self._folder / "whole"
        assert self._start(whole, []).end().code == 0
        assert files_of(self.output) == files_of(whole)
        assert_whole(LocalPlace(self._folder).files(str(self.output)))

    def _start(self, output: Path, engine: list[str]) -> Command:
        environment = {"STORAGE_EMULATOR_HOST": self._bucket.url}
        beam = ["--progress", "none", *(["--", *engine] if engine else [])]
        says = self._folder / f"says-{time.monotonic_ns()}"
        return Command([*self._job, "--output", output, *beam], says, environment)

    def _finished(self) -> Mapping[str, int]:
        return {name: (self.output / place).stat().st_mtime_ns for name, place in self._noted().items()}

    def _noted(self) -> Mapping[str, str]:
        """Shards that are noted as finished, and where they were; a job at work may move them."""
        return finished_shards(LocalPlace(self._folder).files(str(self.output)))


@pytest.fixture
def job(slow_job, bucket, tmp_path) -> Callable[[list[str]], Interrupted]:
    return lambda engine: Interrupted(slow_job, engine, bucket, tmp_path)


@pytest.mark.parametrize("engine", ["processes", "prism", "flink_local"], indirect=True)
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_keeps_finished_shards(job, engine, number, code, word):
    interrupted = job(engine)
    command = interrupted.run(lambda command: os.kill(command.process.pid, number))
    assert command.code == code, command
    told = f"recordmill: {word}; finished shards stay, and the same command goes on from there"
    assert faults(command, engine) == [told]
    interrupted.goes_on()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("begun", [0, 1, 2])
def test_a_signal_while_worker_processes_start(sample, processes, tmp_path, number, begun):
    """Beam alone waits for ever for one that was being started when it gave up."""
    flags = ["--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2, "--progress", "none"]
    command = Command(["coco", *flags, "--output", tmp_path / "out", "--", *processes], tmp_path / "says")
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

    command = interrupted.run(kill)
    assert command.code == 1, command
    (told,) = faults(command, processes)
    assert told.startswith("recordmill: a worker process died in the middle of its work, killed perhaps because ")
    interrupted.goes_on()


def faults(command: Command, engine: list[str]) -> list[str]:
    """Lines of errors, before which Beam's processes are told to be slow."""
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
