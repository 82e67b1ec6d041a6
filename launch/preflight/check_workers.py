"""Can Dataflow's workers be had as they are asked for, and is there room on them for what they are to hold?"""

import logging
import math
import re
from collections.abc import Iterator

from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, PipelineOptions, WorkerOptions

from recordmill.launch.runners.beam_options import is_prime
from recordmill.launch.runners.machines import ARM, machine_of
from recordmill.pipelines.options.convert_options import ConvertOptions
from recordmill.schemas.errors import ConfigError

_LOGGER = logging.getLogger(__name__)

DISK_GB = 25
"""Of a worker, if nothing else is asked for: image and logs need it (cloud.google.com/dataflow/docs/guides/flexrs)."""
_SPARE = 1.2
"""Of shards in hand: they grow beyond the size that is aimed at, and logs need room."""
_GB = 10**9
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
_ZONE = re.compile(r"([a-z]+(?:-[a-z]+)+\d+)-[a-z]")


def worker_faults(options: PipelineOptions) -> Iterator[str]:
    """What the service would refuse of the workers, some minutes later; or what could not work."""
    workers, region = options.view_as(WorkerOptions), options.view_as(GoogleCloudOptions).region
    yield from _machine_faults(options)
    for name in ("num_workers", "max_num_workers"):
        number = getattr(workers, name)
        if number is not None and number < 1:
            yield f"--{name}={number} must be 1 or more"
    first, most = workers.num_workers, workers.max_num_workers
    if first and most and first > most >= 1:
        yield f"--num_workers={first} is more than --max_num_workers={most}: leave it out, or raise the limit"
    if workers.disk_size_gb and workers.disk_size_gb < DISK_GB:  # 0 is Dataflow's default
        yield f"--disk_size_gb={workers.disk_size_gb}: the image and the system alone need {DISK_GB}; leave it out"
    for name in ("zone", "worker_zone", "worker_region"):
        place = getattr(workers, name)
        zone = _ZONE.fullmatch(place) if place else None
        if place and region and (zone[1] if zone else place) != region:
            yield f"--{name}={place} is not in --region={region}, where the workers of a batch job must be"


def _machine_faults(options: PipelineOptions) -> Iterator[str]:
    name = options.view_as(WorkerOptions).machine_type
    if name and not _MACHINE.fullmatch(name):
        yield f"--machine_type={name} is no name of a machine type, such as e2-standard-2"
    elif name and name.startswith(ARM):
        yield f"--machine_type={name} is an ARM machine, and the image is for x86: give e2-standard-2, for example"
    if is_prime(options):
        if name:
            yield f"--machine_type={name}: Dataflow Prime chooses machines itself; leave it out, or Prime"
        if options.view_as(GoogleCloudOptions).flexrs_goal:
            yield "--flexrs_goal: Dataflow Prime has no FlexRS; leave out one of them"


def check_room(options: ConvertOptions, beams: PipelineOptions) -> None:
    """Refuse workers on whose disks there is no room for the shards that they have in hand at once. Of machines that
    are not known nothing is said.

    Raises:
        ConfigError: how much is needed.
    """
    name = beams.view_as(WorkerOptions).machine_type or ""
    machine = machine_of(name)
    if machine is None:
        return
    in_hand = machine.vcpus * (beams.view_as(DebugOptions).number_of_worker_harness_threads or 1)
    disk_gb = beams.view_as(WorkerOptions).disk_size_gb or DISK_GB
    shard_bytes = options.sizing.shard_bytes
    faults = list(_disk_faults(shard_bytes, in_hand, disk_gb)) if shard_bytes else []
    if faults:
        raise ConfigError("; ".join(faults))


def _disk_faults(shard_bytes: int, in_hand: int, disk_gb: int) -> Iterator[str]:
    needed = math.ceil(shard_bytes * in_hand * _SPARE / _GB)
    if needed > disk_gb:
        yield (
            f"a worker has {in_hand} shards of {shard_bytes / _GB:,.1f} GB in hand at once, {needed:,} GB with a fifth "
            f"to spare, and a disk of {disk_gb:,} GB: give --disk_size_gb={needed + DISK_GB} after --, a smaller "
            "--shard-size, or --number_of_worker_harness_threads=1"
        )
