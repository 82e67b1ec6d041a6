"""Stands in for `/opt/apache/beam/boot`, which starts a worker in Beam's images: what the job staged is fetched and
installed, then the worker runs in its place.

It installs into the environment of the python that runs it, as boot does into that of the image; so each environment is
for one worker. There is no network: a package's dependencies, and what builds it, must be there.

    running_pool(python, log, boot=boot_program(folder, python))

What goes wrong is told on standard error in a line that begins with `FAILED`. The pool does not look after what it has
started, and the job would wait for ever: `submit.finished` watches for that line.
"""

import argparse
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from google.protobuf import json_format, text_format

FAILED = "boot stand-in failed: "

_CALL_S = 120
_PIP_S = 240
_NO_LIMIT = [("grpc.max_receive_message_length", -1)]


def boot_program(folder: Path, python: Path) -> Path:
    """A program in `folder` that runs this file by that python; a pool starts it with a worker's endpoints."""
    program = folder / "boot"
    program.write_text(f'#!/bin/sh\nexec "{python}" "{Path(__file__).resolve()}" "--folder={folder}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def main(arguments: Sequence[str]) -> None:
    """Does not return: this process becomes the worker.

    Raises:
        RuntimeError: something cannot be installed.
        grpc.RpcError: the runner does not answer.
    """
    parser = argparse.ArgumentParser()
    for flag in ("folder", "id", "provision_endpoint", "artifact_endpoint", "logging_endpoint", "control_endpoint"):
        parser.add_argument(f"--{flag}", required=True)
    asked, _ = parser.parse_known_args(arguments)
    caller = (("worker_id", asked.id),)
    with grpc.insecure_channel(asked.provision_endpoint) as channel:
        info = (
            beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            .GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest(), metadata=caller, timeout=_CALL_S)
            .info
        )
    staged = Path(asked.folder, "staged")
    staged.mkdir()
    with grpc.insecure_channel(asked.artifact_endpoint, options=_NO_LIMIT) as channel:
        stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        names = list(_fetched(stub, info.dependencies, staged, caller))
    print(f"boot stand-in: staged {' '.join(sorted(names))}", file=sys.stderr, flush=True)
    _install(staged)
    variables = {
        **os.environ,
        "WORKER_ID": asked.id,
        "SEMI_PERSISTENT_DIRECTORY": asked.folder,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": _descriptor(asked.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": _descriptor(asked.control_endpoint),
    }
    worker = [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"]
    os.execve(sys.executable, worker, variables)


def _fetched(stub, dependencies: Sequence, folder: Path, caller: tuple) -> Iterator[str]:
    """Write every dependency into the folder; their names there."""
    request = beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=dependencies)
    for artifact in stub.ResolveArtifacts(request, metadata=caller, timeout=_CALL_S).replacements:
        name = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload).staged_name
        pieces = stub.GetArtifact(
            beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact), metadata=caller, timeout=_CALL_S
        )
        with (folder / name).open("wb") as file:
            for piece in pieces:
                file.write(piece.data)
        yield name


def _install(staged: Path) -> None:
    """What boot installs, in its order: packages of --extra_package, which replace those that are there, and the one of
    --setup_file."""
    extra = staged / "extra_packages.txt"
    for name in extra.read_text().split() if extra.exists() else ():
        _pip("--force-reinstall", staged / name)
    if (staged / "workflow.tar.gz").exists():
        _pip(staged / "workflow.tar.gz")


def _pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    # Whether all that a package needs is there is asked by test_wheel.py, once; here it would take 5 s each time.
    offline = ["--no-index", "--no-build-isolation", "--no-cache-dir", "--no-deps"]
    variables = {name: os.environ[name] for name in ("HOME", "PATH")}
    ended = subprocess.run(
        [*command, *offline, *map(str, arguments)],
        check=False,
        env=variables,
        timeout=_PIP_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if ended.returncode:
        raise RuntimeError(f"pip install {' '.join(map(str, arguments))}\n{ended.stdout}")


def _descriptor(url: str) -> str:
    return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:  # whatever it is, the test is to hear of it rather than wait
        sys.exit(f"{FAILED}{type(error).__name__}: {error}")
