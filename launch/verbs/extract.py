"""`recordmill extract`: convert a data set back to image files and labels."""

import os
import tempfile

import msgspec
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.preflight.check_runner import require_local
from recordmill.launch.runners.beam_options import local_mode
from recordmill.launch.runners.run import run as run_job
from recordmill.launch.terminal import progress
from recordmill.launch.terminal.console import terminal
from recordmill.launch.terminal.fault_summary import print_extracted
from recordmill.pipelines import extract
from recordmill.pipelines.dataset_options import ExtractOptions
from recordmill.schemas.errors import ConfigError
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.extract.claim_folder import claimed, extract_recipe
from recordmill.transforms.extract.extract_shards import ExtractedSplit


def run(options: ExtractOptions, progress_mode: str, beams: PipelineOptions) -> bool:
    """Extract a data set or a split, print the summary, and return True if there are errors.

    Raises:
        ConfigError: no data set there, no such split, its records do not fit the format, or the target is neither
            empty nor has an unfinished extraction of the same, or another process is extracting there.
        JobError: a file could not be written.
    """
    require_local(beams, "extract")
    manifest = require_manifest(options.folder)
    shards = extract.listed_shards(options.folder, manifest, options.split)
    extract.check_format(options.folder, manifest, options.format_)
    if fault := folder_fault(options.target):
        raise ConfigError(fault)
    with claimed(options.target, extract_recipe(shards, manifest.layout, options.format_)) as finished:
        if finished is not None:
            terminal().print(
                f"Going on with an unfinished extraction in {options.target}: {finished:,} shards were extracted"
            )
        with tempfile.TemporaryDirectory(prefix="recordmill-") as temporary:
            report = os.path.join(temporary, "extracted.json")
            with progress.shown(progress_mode):
                is_here = local_mode(beams) == "in_memory"
                progress.expect_records([shard.info for shard in shards], in_this_process=is_here)
                run_job(lambda p: extract.build(p, shards, manifest, options, report), beams)
            with open(report, "rb") as file:
                extracted = msgspec.json.decode(file.read(), type=list[ExtractedSplit])
        notes = extract.not_extracted(manifest, [each.split for each in extracted], options.format_)
        print_extracted(terminal(), options.target, extracted, list(notes))
    return any(each.faults for each in extracted)
