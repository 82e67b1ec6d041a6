"""Faults of Beam's options are reported before anything is submitted: the runners find them late, or never."""

import os
import re
import shutil
import socket
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from uuid import uuid4

import grpc
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    WorkerOptions,
)
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from recordmill.launch.preflight.check_workers import worker_faults
from recordmill.launch.runners.beam_options import Runner, runner_of
from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.resolve import storage_for

_ENVIRONMENTS = ("LOOPBACK", "EXTERNAL", "DOCKER", "PROCESS")

_CONNECT_S = 5
_ANSWER_S = 20

_REGION = re.compile(r"[a-z]+(-[a-z]+)+\d+")
_ZONE = re.compile(r"([a-z]+(?:-[a-z]+)+\d+)-[a-z]")
_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_BUCKET_PATH = re.compile(r"gs://[a-z0-9][a-z0-9_.-]+[a-z0-9](/.*)?")
_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]{0,1022}[a-z0-9])?")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")
_ENDPOINT = re.compile(r"(?!\w+://)(.+):([0-9]{1,5})")


def check_runner(options: PipelineOptions, paths: Iterable[str]) -> None:
    """Refuse options with which the job could not run.

    Args:
        paths: all that the job reads and writes.

    Raises:
        ConfigError: with every fault.
    """
    runner = runner_of(options)
    faults: list[str] = []
    if runner is Runner.DATAFLOW:
        faults += _dataflow_faults(options)
        faults += _far_paths(paths)
    elif runner is Runner.PORTABLE:
        faults += _portable_faults(options, paths)
    elif options.view_as(DirectOptions).direct_num_workers < 0:
        faults.append("--direct_num_workers must be 1 or more, or 0 for one a core")
    faults += _package_faults(options)
    faults += _purpose_faults(options, runner)
    if faults:
        raise ConfigError("; ".join(faults))


def _purpose_faults(options: PipelineOptions, runner: Runner) -> Iterator[str]:
    if options.view_as(StandardOptions).streaming:
        yield "--streaming: there is an end to what is converted, so no stream"
    if runner is not Runner.DATAFLOW:
        if options.view_as(TestOptions).dry_run:
            yield "--dry_run is Dataflow's: --dry-run before the lone -- prints the plan"
        if options.view_as(GoogleCloudOptions).template_location:
            yield "--template_location is Dataflow's: name --runner=DataflowRunner"


def check_staging(options: PipelineOptions) -> None:
    """Refuse a bucket for Dataflow's files that may not be written: Beam tries for eight minutes before it says so.

    Raises:
        ConfigError: it may not be written, or is not there.
    """
    if runner_of(options) is not Runner.DATAFLOW:
        return
    cloud = options.view_as(GoogleCloudOptions)
    for name in ("temp_location", "staging_location"):
        if path := getattr(cloud, name):
            probe = f"{path.rstrip('/')}/recordmill-probe-{uuid4().hex}"
            storage = storage_for(path)
            try:
                storage.write(probe, b"")
                storage.stat(probe)
            except (OSError, ConfigError) as error:
                raise ConfigError(
                    f"--{name}={path} cannot be written and read, and the job's files go there: {error}"
                ) from error
            with suppress(OSError):  # who may only create leaves an empty object
                storage.delete(probe)


def require_local(options: PipelineOptions, verb: str) -> None:
    """Refuse another runner than the local one.

    Raises:
        ConfigError: another runner.
    """
    if runner_of(options) is not Runner.LOCAL:
        named = options.view_as(StandardOptions).runner
        raise ConfigError(
            f"{verb} runs on this machine, not on {named}: its files are written here (-- "
            "--direct_running_mode=multi_processing --direct_num_workers=N uses more processes)"
        )


def _dataflow_faults(options: PipelineOptions) -> Iterator[str]:
    cloud = options.view_as(GoogleCloudOptions)
    if not cloud.project:
        yield "--project is missing: the id of the Cloud project that runs and pays for the job"
    elif not _PROJECT.fullmatch(cloud.project):
        yield f"--project={cloud.project} is no project's id (its number or its title will not do)"
    yield from _region_faults(cloud.region)
    if not cloud.temp_location:
        yield "--temp_location is missing: a folder in a bucket of the region, gs://BUCKET/tmp"
    for name in ("temp_location", "staging_location"):
        path = getattr(cloud, name)
        if path and not _BUCKET_PATH.fullmatch(path):
            yield f"--{name}={path} must be in a bucket, whose name has 3 letters or more: gs://BUCKET/FOLDER"
    if cloud.job_name and not _JOB_NAME.fullmatch(cloud.job_name):
        yield (
            f"--job_name={cloud.job_name}: Dataflow takes small letters, digits and -, beginning with a letter and not "
            "ending with -"
        )
    for label in cloud.labels or ():
        if not label.startswith("{") and not _LABEL.fullmatch(label):
            yield f"--labels={label} must be KEY=VALUE of small letters, digits, _ and -, at most 63 of each"
    yield from worker_faults(options)
    if not (options.view_as(WorkerOptions).sdk_container_image or _ships_packages(options)):
        yield (
            "the workers would not have Recordmill: give --sdk_container_image=IMAGE of "
            "launch/dataflow/Dockerfile, or --setup_file=./setup.py in a clone of the project"
        )


def _region_faults(region: str | None) -> Iterator[str]:
    if not region:
        yield "--region is missing: where the buckets are, such as europe-west4"
    elif zone := _ZONE.fullmatch(region):
        yield f"--region={region} is a zone, in region {zone[1]}"
    elif not _REGION.fullmatch(region):
        yield f"--region={region} has not the form of a region, such as us-central1 or europe-west4"


def _far_paths(paths: Iterable[str]) -> Iterator[str]:
    here = sorted({path for path in paths if not path.startswith("gs://")})
    if here:
        yield f"Dataflow's workers cannot see what is on this machine, so copy it to a bucket: {', '.join(here)}"


def _portable_faults(options: PipelineOptions, paths: Iterable[str]) -> Iterator[str]:
    portable = options.view_as(PortableOptions)
    name = (options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower().removesuffix("runner")
    if portable.job_endpoint:
        yield from _endpoint_faults(portable.job_endpoint)
    elif name == "portable":
        yield "--job_endpoint is missing: HOST:PORT of the job server (or name FlinkRunner, which starts one)"
    elif name == "flink":
        yield from _flink_faults(options)
    elif name == "prism":
        yield from _prism_faults(options.view_as(PrismRunnerOptions).prism_location)
    here = portable.environment_type == "LOOPBACK" or (
        not portable.environment_type and _starts_workers_here(options, name)
    )
    relative = sorted({path for path in paths if "://" not in path and not os.path.isabs(path)})
    if relative and not here:
        yield f"workers run in folders of their own, so give whole paths, not {', '.join(relative)}"
    yield from _environment_faults(portable)
    # Beam's default: a container of Beam's own image, which does not have Recordmill.
    needs_image = portable.environment_type in (None, "DOCKER") and not here
    if needs_image and not portable.environment_config and not _ships_packages(options):
        yield (
            "the workers would not have Recordmill: say how they are started, by --environment_type=EXTERNAL "
            "--environment_config=HOST:PORT of a worker pool, by --environment_type=DOCKER --environment_config=IMAGE, "
            "or by LOOPBACK for workers in this process"
        )


def _environment_faults(portable: PortableOptions) -> Iterator[str]:
    kind, config = portable.environment_type, portable.environment_config
    if kind and kind not in _ENVIRONMENTS and not kind.startswith("beam:env:"):
        yield f"--environment_type={kind} is none of {', '.join(_ENVIRONMENTS)}"
    elif kind == "EXTERNAL" and not _ENDPOINT.fullmatch(config or ""):
        yield f"--environment_config={config or ''} must be HOST:PORT of a worker pool, as EXTERNAL wants one"
    elif kind == "PROCESS" and not (config or portable.environment_options):
        yield "--environment_config is missing: what PROCESS starts for a worker"


def _starts_workers_here(options: PipelineOptions, name: str) -> bool:
    """Whether the runner chooses LOOPBACK where nothing was said."""
    master = options.view_as(FlinkRunnerOptions).flink_master
    return name == "prism" or (name == "flink" and master in ("[local]", "[auto]"))


def _flink_faults(options: PipelineOptions) -> Iterator[str]:
    jar = options.view_as(FlinkRunnerOptions).flink_job_server_jar
    if jar and "://" not in jar:
        if not os.path.isfile(jar):
            yield f"--flink_job_server_jar={jar} is not there"
        elif not zipfile.is_zipfile(jar):
            yield f"--flink_job_server_jar={jar} is no jar"
    master = options.view_as(FlinkRunnerOptions).flink_master or ""
    match = _ENDPOINT.fullmatch(re.sub(r"^https?://|/$", "", master))
    if match and (fault := _connection_fault(match)):
        yield f"no Flink listens at --flink_master={master} ({fault})"
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if not shutil.which(java):
        yield f"{java} is not on the PATH: FlinkRunner starts a job server in Java (--job_endpoint names one that runs)"


def _prism_faults(location: str | None) -> Iterator[str]:
    if not location or "://" in location:
        return
    if not os.path.isfile(location):
        yield f"--prism_location={location} is not there"
    elif not (os.access(location, os.X_OK) or zipfile.is_zipfile(location)):
        yield f"--prism_location={location} is no program"


def _endpoint_faults(endpoint: str) -> Iterator[str]:
    """Whether a job server answers: in a moment, or Beam would wait for it as long as for a job."""
    if endpoint == "embed":
        return
    match = _ENDPOINT.fullmatch(endpoint)
    if not match:
        yield f"--job_endpoint={endpoint} must be HOST:PORT"
        return
    if fault := _connection_fault(match):
        yield f"no job server listens at {endpoint} ({fault})"
        return
    with grpc.insecure_channel(endpoint) as channel:
        server = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        try:
            server.DescribePipelineOptions(request, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            yield (
                f"what listens at {endpoint} does not answer as a job server does, but {error.code().name} (Flink's "
                "own port, 8081, is for --flink_master)"
            )


def _connection_fault(endpoint: re.Match[str]) -> str:
    """Why nobody can be spoken to at an _ENDPOINT; empty if somebody can."""
    try:
        socket.create_connection((endpoint[1].strip("[]"), int(endpoint[2])), timeout=_CONNECT_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def _ships_packages(options: PipelineOptions) -> bool:
    setup = options.view_as(SetupOptions)
    return bool(setup.setup_file or setup.extra_packages)


def _package_faults(options: PipelineOptions) -> Iterator[str]:
    setup = options.view_as(SetupOptions)
    if setup.setup_file and not os.path.isfile(setup.setup_file):
        yield f"--setup_file={setup.setup_file} is not there"
    elif setup.setup_file and os.path.basename(setup.setup_file) != "setup.py":
        yield f"--setup_file={setup.setup_file} must be called setup.py"
    elif setup.setup_file and not os.path.dirname(setup.setup_file):
        yield f"--setup_file={setup.setup_file}: Beam wants a path: ./{setup.setup_file}"
    for package in setup.extra_packages or ():
        if "://" not in package and not os.path.isfile(package):
            yield f"--extra_package={package} is not there"
