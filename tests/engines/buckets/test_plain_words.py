"""One line for each failure with buckets. Faults of requests are in tests/faults/test_gcs_faults.py."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.engines.buckets.jobs import ALWAYS, OUT, ROOT, is_one_line, objects_of, shards_of, upload
from tests.gcs_stand_in import ACCOUNT, REQUESTER_PAYS, Fault, GcsStandIn, Kind


def refuse(operation: str, name: str, **answer: object):
    def harm(gcs: GcsStandIn) -> None:
        gcs.faults.append(Fault(Kind.STATUS, operation, name, times=ALWAYS, **{"status": 403, **answer}))

    return harm


def nothing(gcs: GcsStandIn) -> None:
    pass


IMAGES, INSTANCES = f"{ROOT}/in/images", f"{ROOT}/in/annotations/instances.json"
# What is done to the server; flags that differ; exit code; what is named.
FAILURES = {
    "no bucket of images": (
        nothing,
        {"images": "gs://typo/images"},
        2,
        ["gs://typo/images", "the bucket typo does not exist"],
    ),
    "no bucket of output": (
        nothing,
        {"output": "gs://typo/out"},
        2,
        ["gs://typo/out", "the bucket typo does not exist"],
    ),
    "no right to list": (refuse("list", "*"), {}, 2, [OUT, ACCOUNT]),
    "no right to read annotations": (refuse("read", "*instances.json"), {}, 1, [INSTANCES, ACCOUNT]),
    "no right to write": (refuse("start", "*"), {}, 2, [f"{OUT}/", ACCOUNT]),
    "readers pay": (refuse("*", "*", status=400, message=REQUESTER_PAYS), {}, 2, ["--billing-project"]),
    "bad credentials": (refuse("*", "*", status=401, message="Invalid Credentials"), {}, 2, ["gcloud auth"]),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_named_in_one_line(gcs, sample, recordmill, name):
    harm, others, code, told = FAILURES[name]
    upload(gcs, Path(sample.images).parent, "in")
    harm(gcs)
    paths = {"images": IMAGES, "instances": INSTANCES, "output": OUT} | others
    began_s = time.monotonic()
    outcome = recordmill("convert", *(item for flag, path in paths.items() for item in (f"--{flag}", path)))
    assert (outcome.code, is_one_line(outcome.err)) == (code, True), outcome
    assert [part for part in told if part not in outcome.err] == []
    assert outcome.out == ""
    assert time.monotonic() - began_s < 60  # not the five minutes of what may pass
    assert shards_of(objects_of(gcs, "out")) == {}


def test_without_credentials_it_ends_soon(tmp_path):
    """The metadata server accepts the connection and says nothing; the command runs in a separate process, with all
    usual waits."""
    asked: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=take_connections, args=(silent, asked), daemon=True).start()
        hidden = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {"CLOUDSDK_CONFIG": str(tmp_path), "GCE_METADATA_IP": f"127.0.0.1:{silent.getsockname()[1]}"}
        command = [sys.executable, "-m", "recordmill.launch.cli", "convert", "--images", f"{ROOT}/images"]
        command += ["--instances", f"{ROOT}/a.json", "--output", OUT]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert len(asked) == 1  # and waited for two seconds; Beam's own client asks fifteen times
    assert run.returncode == 2
    assert is_one_line(run.stderr), run.stderr
    assert "gcloud auth application-default login" in run.stderr


def take_connections(server: socket.socket, taken: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):  # it is closed
        while True:
            taken.append(server.accept()[0])
