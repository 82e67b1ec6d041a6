"""What a planned job costs on Dataflow."""

from collections.abc import Iterator

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, WorkerOptions

from recordmill.launch.preflight.check_regions import bucket_places
from recordmill.launch.preflight.check_workers import DISK_GB
from recordmill.launch.preflight.costs import Fleet, Work, cost_lines
from recordmill.launch.runners.machines import machine_of
from recordmill.pipelines.options.convert_options import ConvertOptions
from recordmill.pipelines.options.picture_options import PictureOptions
from recordmill.schemas.plan_report import PlanReport
from recordmill.transforms.storage.resolve import archive_of, storage_for

_WORKERS = 10
"""Where nothing says how many there may be."""


def plan_costs(plan: PlanReport, options: ConvertOptions, beams: PipelineOptions) -> Iterator[tuple[str, str]]:
    """Labels and texts for a person; of conversions of pictures, whose rate is known about."""
    if not (isinstance(options, PictureOptions) and options.holds_pictures):
        return
    workers = beams.view_as(WorkerOptions)
    machine = machine_of(workers.machine_type or "")
    if machine is None:
        yield "on Dataflow", f"what it costs on {workers.machine_type or 'Dataflow Prime'} is not known here"
        return
    number = workers.max_num_workers or workers.num_workers or _WORKERS
    work = Work(
        plan.images,
        plan.bytes,
        _annotation_bytes(plan),
        plan.shards,
        all(map(archive_of, options.images)),
        not getattr(options, "no_list", False),
    )
    region = beams.view_as(GoogleCloudOptions).region or ""
    places = bucket_places(options.images).values()
    yield from cost_lines(work, Fleet(number, machine, workers.disk_size_gb or DISK_GB), places, region)


def _annotation_bytes(plan: PlanReport) -> int:
    paths = {rows.path for rows in plan.inputs}  # a folder has no size
    return sum(storage_for(path).size(path) or 0 for path in paths)
