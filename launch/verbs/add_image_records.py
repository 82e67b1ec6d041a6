"""Add digests of records to a data set without them, before `convert --add` compares images with it."""

from functools import partial

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.local_engine.fork_writers import WORTH_IT, fork_if_many
from recordmill.launch.runners.beam_options import job_purpose, local_mode
from recordmill.launch.runners.run import run
from recordmill.launch.terminal.console import terminal
from recordmill.launch.terminal.progress import Show, expect_records, show_progress
from recordmill.pipelines import image_records
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.sizes import number_text, printable
from recordmill.transforms.shards.read_image_records import shards_to_digest, splits_without_images


def add_image_records(
    output: str, beams: PipelineOptions, workers: int | None = None, progress_mode: str | Show = "none"
) -> None:
    """Read the shards of the splits without current digests of records, and add these to the data set. No-op if all
    splits have them, or their records have no images.

    Args:
        beams: Of `beam_options`.
        workers: Number of threads or processes; None for the number of cores.

    Raises:
        ConfigError: The job is a template, which cannot read the shards first.
        FaultyDatasetError: A shard is damaged.
        RecordmillError: See `recordmill.launch.runners.run.run`.
    """
    manifests = splits_without_images(output)
    if not manifests:
        return
    if job_purpose(beams) == "template":
        raise ConfigError(
            f"{output} has no digests of its records yet, which new images are compared with, and a template cannot "
            "add them before its job. Run the command once without --template_location"
        )
    shards, mode = shards_to_digest(output, manifests.values()), local_mode(beams)
    terminal().print(
        f"{printable(output)} has no digests of its records yet, which new images are compared with: one read "
        f"of {number_text(len(shards), 'shard')} of {' and '.join(manifests)} adds them."
    )
    infos = [shard.info for shard in shards]
    are_many = sum(info.examples for info in infos) >= WORTH_IT
    with fork_if_many(lambda: are_many, workers, mode), show_progress(progress_mode):
        expect_records(infos, in_this_process=mode == "in_memory")
        run(partial(image_records.build, shards=shards, output=output, manifests=manifests, workers=workers), beams)
