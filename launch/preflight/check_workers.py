"""Can Dataflow's workers be had as they are asked for?"""

import re
from collections.abc import Iterator

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, WorkerOptions

from recordmill.launch.runners.beam_options import is_prime

DISK_GB = 25
"""Of a worker, if nothing else is asked for: image and logs need it (cloud.google.com/dataflow/docs/guides/flexrs)."""
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
    if is_prime(options):
        if name:
            yield f"--machine_type={name}: Dataflow Prime chooses machines itself; leave it out, or Prime"
        if options.view_as(GoogleCloudOptions).flexrs_goal:
            yield "--flexrs_goal: Dataflow Prime has no FlexRS; leave out one of them"
