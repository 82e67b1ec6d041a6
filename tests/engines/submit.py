"""Jobs whose steps run in the workers of a pool; the job server is in the command's own process."""

from collections.abc import Sequence
from pathlib import Path

from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability.abstract_job_service import AbstractJobServiceServicer

from tests.engines.worker_pool import Pool
from tests.faults.warm_process import Command, Disturbance


def submit(arguments: Sequence[object], pool: Pool, log: Path, before: Disturbance | None = None) -> Command:
    """Start a command in a process of its own, which can be ended if it hangs: Beam waits for ever for a worker that
    does not come.

    Args:
        log: what it prints goes to files that begin so.
        before: called in that process.
    """
    flags = [
        "--runner=PortableRunner",
        "--job_endpoint=embed",
        "--environment_type=EXTERNAL",
        f"--environment_config={pool.endpoint}",
    ]
    return Command([*arguments, "--", *flags], log, disturbance=before)


def keep_request(file: str) -> None:
    """Before a command: write what it sends to the job server to `file`."""
    prepare = AbstractJobServiceServicer.Prepare

    def kept(self, request: beam_job_api_pb2.PrepareJobRequest, *arguments, **more):
        Path(file).write_bytes(request.SerializeToString())
        return prepare(self, request, *arguments, **more)

    AbstractJobServiceServicer.Prepare = kept


def read_request(file: Path) -> beam_job_api_pb2.PrepareJobRequest:
    return beam_job_api_pb2.PrepareJobRequest.FromString(file.read_bytes())


def staged_names(request: beam_job_api_pb2.PrepareJobRequest) -> set[str]:
    """Files that the job brings along for its workers."""
    payload = beam_runner_api_pb2.ArtifactStagingToRolePayload
    return {
        payload.FromString(dependency.role_payload).staged_name
        for environment in request.pipeline.components.environments.values()
        for dependency in environment.dependencies
    }
