"""Ctrl-C while a command on a terminal waits for its job on Dataflow."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.dataflow_stand_in import JOB_ID, PROJECT, REGION, DataflowStandIn
from tests.engines.dataflow_job import coco

CANCEL = f"gcloud dataflow jobs cancel {JOB_ID} --project={PROJECT} --region={REGION}"


class Typed:
    """A command as a person types it."""

    def __init__(self, arguments: list[str]):
        self._person, inside = pty.openpty()
        command = [sys.executable, "-m", "recordmill.launch.cli", *arguments]
        self.process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
        self._shown: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        os.close(inside)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone with its last process
            while data := os.read(self._person, 4096):
                self._shown.append(data)

    @property
    def shown(self) -> str:
        return b"".join(self._shown).decode()

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 180
        while text not in self.shown:
            assert self.process.poll() is None, self.shown
            assert time.monotonic() < until, self.shown
            time.sleep(0.05)

    def types(self, text: str) -> None:
        os.write(self._person, text.encode())

    def end(self) -> int:
        try:
            self.process.wait(180)
        finally:
            self.process.kill()
        self._reader.join(60)
        os.close(self._person)
        return self.process.returncode


@contextlib.contextmanager
def held(dataflow: DataflowStandIn) -> Iterator[Typed]:
    """A command that waits for a job which does not end by itself."""
    dataflow.is_held = True
    typed = Typed(coco(dataflow, "--progress", "auto"))
    until = time.monotonic() + 180
    while ("GET", f"/v1b3/projects/{PROJECT}/locations/{REGION}/jobs/{JOB_ID}/messages") not in dataflow.requests:
        assert typed.process.poll() is None, typed.shown
        assert time.monotonic() < until, dataflow.requests
        time.sleep(0.1)
    yield typed
    dataflow.cancel()


QUESTION = f"Job {JOB_ID} runs on Dataflow. Cancel it (c), or leave it running and go (Enter)?"


@pytest.mark.parametrize(("answer", "state"), [("c\n", "CANCELLED"), ("\n", "RUNNING")])
def test_ctrl_c_asks_what_is_to_become_of_job(dataflow, answer, state):
    with held(dataflow) as typed:
        os.kill(typed.process.pid, signal.SIGINT)
        typed.wait_for(QUESTION)
        time.sleep(1)
        assert typed.shown.endswith(f"{QUESTION}\r\n"), "the live line does not wipe the question out"
        typed.types(answer)
        assert typed.end() == 130
        assert dataflow.state == f"JOB_STATE_{state}"
    last = typed.shown.splitlines()[-1]
    if state == "CANCELLED":
        assert f"Cancelled job {JOB_ID}" in typed.shown
        assert last.endswith("the same command goes on from there")
    else:
        assert last.endswith(f"goes on without this process; to stop it: {CANCEL}")
    assert "Traceback" not in typed.shown
