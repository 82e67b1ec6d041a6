"""`recordmill repack`: write a finished data set in another container."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import msgspec
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.local_engine.fork_writers import WORTH_IT, fork_if_many
from recordmill.launch.preflight.check_folder import folder_fault, real_path
from recordmill.launch.preflight.check_runner import check_runner, check_staging
from recordmill.launch.preflight.claim_output import OutputState, claim_output
from recordmill.launch.runners.beam_options import job_purpose, local_mode
from recordmill.launch.runners.run import polling
from recordmill.launch.runners.run import run as run_job
from recordmill.launch.terminal.console import print_lines, print_times, terminal
from recordmill.launch.terminal.progress import expect_records, show_progress
from recordmill.pipelines import repack
from recordmill.pipelines.dataset_options import RepackOptions
from recordmill.schemas.containers import TFRECORD
from recordmill.schemas.dataset.manifest import Plan
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.sizes import number_text
from recordmill.transforms.dataset.dataset_folder import (
    delete_old_files,
    finished_shards,
    read_manifest,
    read_note,
    read_statistics,
    require_manifest,
    unfinished_splits,
)
from recordmill.transforms.dataset.fact_lines import data_set_lines, plan_lines
from recordmill.transforms.insight.across_splits import compare_splits
from recordmill.transforms.insight.write_report import has_report, try_to_report
from recordmill.transforms.repack.repack_metadata import is_repacked
from recordmill.transforms.runtime.progress import step_seconds, update_from_counters
from recordmill.transforms.shards.check_findings import check_space
from recordmill.transforms.storage.resolve import join_path, storage_for


def run(options: RepackOptions, progress_mode: str, beams: PipelineOptions) -> bool:
    """Write a data set in another container, and print its summary. A template is only built.

    Raises:
        ConfigError: The data set is not finished or damaged, the container cannot store it, or the new folder has
            other contents.
        RecordmillError: See `recordmill.launch.runners.run.run`.
    """
    check_runner(beams, options.paths)
    if job_purpose(beams) == "dry run":
        raise ConfigError("repack does not support a dry run of Beam. Put --dry-run before the lone --")
    manifest = require_manifest(options.folder)
    folder, output = real_path(options.folder), real_path(options.output)
    if output == folder or output.startswith(join_path(folder, "")):
        where = "the folder of the data set itself" if output == folder else "in the folder of the data set"
        raise ConfigError(f"{options.output} is {where}. Choose another one for the new files")
    if fault := folder_fault(options.output):
        raise ConfigError(fault)
    source = repack.read_source(options, manifest)
    _check_output(source)
    for text in repack.replan_doubts(source):
        terminal().print(text)
    if options.dry_run:
        _show_plan(source)
        return False
    check_staging(beams)
    _repack(source, progress_mode, beams)
    if job_purpose(beams) == "template":
        terminal().print("The template was written; launching it runs the job.")
        return False
    _print_summary(options.output, list(manifest.splits), beams)
    return False


def _check_output(source: repack.Repack) -> None:
    """Refuse a folder with anything but these splits, complete or unfinished."""
    options, recipes = source.options, source.recipes()
    output = options.output
    wanted = {recipe.split: recipe.unlisted for recipe in recipes}
    manifest = read_manifest(output)
    known = {split: read_note(output, split) for split in unfinished_splits(output)}
    known |= {split: entry.recipe for split, entry in manifest.splits.items()} if manifest else {}
    for split, recipe in known.items():
        if recipe is None or split not in wanted or recipe.unlisted != wanted[split]:
            differs = f" ({recipe.unlisted.changes(wanted[split])})" if recipe and split in wanted else ""
            raise ConfigError(f"{output} has another data set, with split {split}{differs}. Choose another folder")
    storage = storage_for(output)
    if not known and storage.is_folder(output) and (name := next(iter(storage.walk_names(output)), "")):
        raise ConfigError(
            f"{output} is not empty ({name}), and is not an unfinished repack of {options.folder}. Choose "
            "another folder"
        )
    for split, entry in manifest.splits.items() if manifest else ():
        if not is_repacked(source.manifest.splits[split], entry, source.plans[split]):
            raise ConfigError(
                f"{output} has another version of split {split} of {options.folder}, with other images or shards. "
                f"Delete {output}, or choose another folder"
            )


def _repack(source: repack.Repack, progress_mode: str, beams: PipelineOptions) -> None:
    """Write the splits that the new folder lacks."""
    options, recipes = source.options, source.recipes()
    output = options.output
    listings = {file.path: file for recipe in recipes for file in recipe.inputs}
    states = claim_output(output, [recipe.unlisted for recipe in recipes], False, listings)
    left = [recipe for recipe, state in zip(recipes, states, strict=True) if state is not OutputState.COMPLETE]
    if not left:
        terminal().print(f"{output} is already complete; nothing was written.")
        return
    if OutputState.UNFINISHED in states:
        finished = number_text(finished_shards(output, left), "finished shard")
        terminal().print(f"Resuming an unfinished run in {output}, which has {finished}")
    shards = source.shards([recipe.split for recipe in left])
    mode = local_mode(beams)
    is_large = sum(shard.examples for shard in shards) >= WORTH_IT

    def count_finished() -> None:
        update_from_counters("", {"shards_written": finished_shards(output, left)})

    polled = nullcontext() if mode == "in_memory" else polling(count_finished)
    with fork_if_many(lambda: is_large, options.workers, mode), show_progress(progress_mode), polled:
        expect_records(shards, in_this_process=mode == "in_memory")
        build = partial(repack.build, shards=shards, recipes=left, source=source)
        run_job(build, beams)


def _show_plan(source: repack.Repack) -> None:
    manifest, output = source.manifest, source.options.output
    entries = {
        recipe.split: msgspec.structs.replace(manifest.splits[recipe.split], recipe=recipe, shards=())
        for recipe in source.recipes()
    }
    sizes = {split: source.size(split) for split in manifest.splits}
    container = msgspec.UNSET if source.container == TFRECORD else source.container
    plan = Plan(msgspec.structs.replace(manifest, splits=entries, container_name=container), sizes)
    print_lines(terminal(), plan_lines(plan, output))
    check_space(output, sizes, is_exact=False)


def _print_summary(output: str, splits: Sequence[str], beams: PipelineOptions) -> None:
    manifest = require_manifest(output)
    for split in splits:
        delete_old_files(output, manifest.splits[split])  # a run that was killed at its end may have left files
    if not has_report(output):
        try_to_report(output)
    comparison = compare_splits(read_statistics(output, manifest.splits))
    print_lines(terminal(), data_set_lines(output, manifest, splits, comparison))
    seconds = step_seconds()
    print_times(terminal(), seconds if local_mode(beams) == "in_memory" else {"the job": sum(seconds.values())})
