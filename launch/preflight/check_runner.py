"""Refuse jobs that would fail late or silently, because of Beam's options or of the memory that they need.

Beam or the service checks names, labels, machines and package files."""

import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import grpc
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    WorkerOptions,
)
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from recordmill.launch.runners.beam_options import Runner, chosen_runner
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.options import ConvertOptions
from recordmill.schemas.paths import GCS, is_remote
from recordmill.transforms.storage.resolve import storage_for

_CONNECT_S = 5
_ANSWER_S = 20
_FLINK = re.compile(r"(?:https?://)?(.+:[0-9]+)/?")
_LOCATIONS = "temp_location", "staging_location", "template_location"
_LOCATION = re.compile(rf"{GCS}://[^/]+/.*")

_DATAFLOW_NEEDS = {
    "project": "the id of the Cloud project that runs and pays for the job",
    "region": "where the buckets are, such as europe-west4",
    "temp_location": "a folder in a bucket of the region",
}

_PROGRAM_BYTES = 300_000_000
_UNPACKED = 8
"""Ratio of JSON to its gzip."""
_NOTE_FROM_BYTES = 2_000_000_000
_GB = 10**9

_LIMITS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a container: control groups version 2, and 1."""


def check_runner(options: PipelineOptions, paths: Iterable[str]) -> None:
    """Refuse options with which the job cannot run.

    Args:
        paths: All paths that the job reads and writes.

    Raises:
        ConfigError: With all errors.
    """
    runner = chosen_runner(options)
    faults = list(_purpose_faults(options, runner))
    if runner is Runner.DATAFLOW:
        faults += _dataflow_faults(options, paths)
    elif runner is Runner.PORTABLE:
        faults += _portable_faults(options, paths)
    if faults:
        raise ConfigError("; ".join(faults))


def check_staging(options: PipelineOptions) -> None:
    """Refuse a bucket for Dataflow's files that cannot be written. Beam retries for eight minutes before its error.

    Raises:
        ConfigError: The bucket cannot be written, or does not exist.
    """
    if chosen_runner(options) is not Runner.DATAFLOW:
        return
    cloud = options.view_as(GoogleCloudOptions)
    for name in _LOCATIONS:
        if (path := getattr(cloud, name)) and is_remote(path):
            probe = f"{path.rstrip('/')}/recordmill-probe-{uuid4().hex}"
            storage = storage_for(path)
            try:
                storage.write(probe, b"")
                storage.stat(probe)
            except (OSError, ConfigError) as error:
                raise ConfigError(
                    f"--{name}={path} cannot be written and read, but the job's files go there: {error}"
                ) from error
            with suppress(OSError):  # without permission to delete, an empty object stays
                storage.delete(probe)


def distant_buckets(paths: Iterable[str], region: str) -> Iterator[str]:
    """Yield a warning for each bucket of `paths` that is not in `region`, such as `europe-west4`.

    A bucket whose metadata the account may not read is skipped: the job itself does not need that permission.
    """
    for bucket in sorted({"/".join(path.split("/")[:3]) for path in paths if is_remote(path)}):
        with suppress(OSError, ConfigError):
            regions = storage_for(bucket).regions(bucket)
            if regions and region.lower() not in regions:
                yield (
                    f"{bucket} is in {' and '.join(regions)}, but the job runs in {region}: all data crosses "
                    "regions, which is slow and costs money"
                )


def require_local(options: PipelineOptions) -> None:
    """Refuse another runner than the local one, on which `extract` would write files elsewhere.

    Raises:
        ConfigError: Another runner is requested.
    """
    if chosen_runner(options) is not Runner.LOCAL:
        named = options.view_as(StandardOptions).runner
        raise ConfigError(
            f"extract runs on this machine, not on {named}: its files are written here (-- "
            "--direct_running_mode=multi_processing --direct_num_workers=N uses more processes)"
        )


def _purpose_faults(options: PipelineOptions, runner: Runner) -> Iterator[str]:
    if options.view_as(StandardOptions).streaming:
        yield "--streaming: a conversion is a batch job, so leave this flag out"
    if options.view_as(DirectOptions).direct_num_workers < 0:
        yield "--direct_num_workers is negative. Give a number of processes, or 0 for one per core"
    if runner is not Runner.DATAFLOW:
        if options.view_as(TestOptions).dry_run:
            yield "--dry_run is an option of Dataflow. To print the plan, put --dry-run before the lone --"
        if options.view_as(GoogleCloudOptions).template_location:
            yield "--template_location is an option of Dataflow. Add --runner=DataflowRunner"


def _dataflow_faults(options: PipelineOptions, paths: Iterable[str]) -> Iterator[str]:
    cloud = options.view_as(GoogleCloudOptions)
    yield from (f"--{name} is missing: {what}" for name, what in _DATAFLOW_NEEDS.items() if not getattr(cloud, name))
    if not (options.view_as(WorkerOptions).sdk_container_image or _ships_packages(options)):
        yield (
            "the workers would not have Recordmill. Give --sdk_container_image=IMAGE of launch/dataflow/Dockerfile, or "
            "--setup_file=./setup.py in a clone of the project"
        )
    for name in _LOCATIONS:  # in place of another path, Beam makes a bucket, or retries for eight minutes
        path = getattr(cloud, name)
        if path and not _LOCATION.fullmatch(path) and not (name == "template_location" and _is_in_folder(path)):
            yield f"--{name}={path} must be like gs://bucket/folder"
    here = sorted({path for path in paths if not is_remote(path)})
    if here:
        yield f"Dataflow's workers cannot access paths of this machine, so use a bucket for {', '.join(here)}"


def _is_in_folder(path: str) -> bool:
    """Return True if a file can be created at a local path. Beam writes a template there, too."""
    return os.path.isdir(os.path.dirname(os.path.abspath(path)))


def _portable_faults(options: PipelineOptions, paths: Iterable[str]) -> Iterator[str]:
    portable = options.view_as(PortableOptions)
    name = (options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower().removesuffix("runner")
    master = options.view_as(FlinkRunnerOptions).flink_master
    is_embedded = name == "prism" or (name == "flink" and master in ("[local]", "[auto]"))
    if portable.job_endpoint:
        yield from _endpoint_faults(portable.job_endpoint)
    elif name == "portable":
        yield "--job_endpoint is missing: HOST:PORT of the job server (or name FlinkRunner, which starts one)"
    elif name == "flink" and (match := _FLINK.fullmatch(master)) and (fault := _connection_fault(match[1])):
        yield f"Flink is not listening at --flink_master={master} ({fault})"
    kind, config = portable.environment_type, portable.environment_config
    here = kind == "LOOPBACK" or (not kind and is_embedded)  # these runners use LOOPBACK by default
    relative = sorted({path for path in paths if "://" not in path and not os.path.isabs(path)})
    if relative and not here:
        yield f"workers run in other folders, so give absolute paths, not {', '.join(relative)}"
    if kind in ("EXTERNAL", "PROCESS") and not (config or portable.environment_options):
        yield f"--environment_config is missing: {kind} needs a worker pool's HOST:PORT, or the worker's command"
    # Beam's default is a container of Beam's image, which lacks Recordmill.
    if kind in (None, "DOCKER") and not (here or config or _ships_packages(options)):
        yield (
            "the workers would not have Recordmill. Choose how they are started: --environment_type=EXTERNAL "
            "--environment_config=HOST:PORT of a worker pool, --environment_type=DOCKER --environment_config=IMAGE, "
            "or --environment_type=LOOPBACK for workers in this process"
        )


def _endpoint_faults(endpoint: str) -> Iterator[str]:
    """Yield an error if no job server answers. Beam would wait for it very long."""
    if endpoint == "embed":
        return
    if fault := _connection_fault(endpoint):
        yield f"no job server is listening at {endpoint} ({fault})"
        return
    with grpc.insecure_channel(endpoint) as channel:
        server = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        try:
            server.DescribePipelineOptions(request, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            yield (
                f"{endpoint} is not a job server: it answered {error.code().name} (Flink's own port, 8081, belongs in "
                "--flink_master)"
            )


def _connection_fault(endpoint: str) -> str:
    """Return the reason why HOST:PORT does not accept a connection; empty if it does."""
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        return "it must be HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def _ships_packages(options: PipelineOptions) -> bool:
    setup = options.view_as(SetupOptions)
    return bool(setup.setup_file or setup.extra_packages)


def check_memory(options: ConvertOptions, is_dry_run: bool = False) -> str:
    """Return a note on the memory of a local job or plan, and of the machine; empty if the job needs little.

    The local runner keeps grouped data in memory, so its memory grows with the annotation files. Other runners use
    disks, or many machines.

    Raises:
        ConfigError: The job needs more than this machine, or the container, has.
    """
    (least, most), memory = memory_needed(options), memory_bytes()
    what = "a dry run on this machine" if is_dry_run else "a job on this machine"
    takes = f"{what} takes {least / _GB:,.1f} to {most / _GB:,.1f} GB of memory for its annotation files"
    elsewhere = "" if is_dry_run else "on Flink or Dataflow, which do not hold metadata in memory (docs/flink.md), "
    where = f"{elsewhere}on a larger machine, or with fewer kinds of annotations"
    if least > memory:
        raise ConfigError(f"{takes}, but {memory / _GB:,.1f} GB are available. Run it {where}")
    if most > memory:
        return f"{takes}, and {memory / _GB:,.1f} GB are available. If that is not enough, run it {where}"
    return f"{takes}; {memory / _GB:,.1f} GB are available" if most > _NOTE_FROM_BYTES else ""


def memory_needed(options: ConvertOptions) -> tuple[int, int]:
    """Return the minimum and maximum bytes of memory of the local runner, with those of the program."""
    size = 0
    for path in options.held_files:
        with suppress(OSError):  # reported elsewhere
            size += (storage_for(path).size(path) or 0) * (_UNPACKED if path.endswith(".gz") else 1)
    least, most = options.held_per_byte
    return _PROGRAM_BYTES + round(least * size), _PROGRAM_BYTES + round(most * size)


def memory_bytes() -> int:
    """Return the memory of the machine or container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # "max" if there is no limit
            limits.append(int(path.read_text()))
    return min(limits)
