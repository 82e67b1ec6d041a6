"""Run a conversion, and print its summary."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress

import msgspec
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from recordmill.launch.local_engine.fork_writers import are_many, fork_if_many, slower_processes
from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.preflight.check_runner import check_memory, check_staging, distant_buckets
from recordmill.launch.preflight.claim_addition import check_agreement, claim_addition
from recordmill.launch.preflight.claim_output import OutputState, absent_folders, claim_output, release_output
from recordmill.launch.runners.beam_options import Runner, beam_options, chosen_runner, job_purpose, local_mode
from recordmill.launch.runners.run import polling, run, run_for_report
from recordmill.launch.terminal.console import print_lines, print_times, terminal, terminal_of_errors
from recordmill.launch.terminal.progress import Show, show_progress
from recordmill.launch.verbs.add_image_records import add_image_records
from recordmill.pipelines.convert import Job, write_nothing
from recordmill.schemas.dataset.manifest import Manifest, Plan
from recordmill.schemas.dataset.recipes import LISTING, Recipe
from recordmill.schemas.errors import (
    AnnotationFileError,
    ConfigError,
    FaultyDatasetError,
    NoImageFoundError,
    RecordmillError,
    VocabularyError,
)
from recordmill.schemas.inputs.image_options import StoredImageOptions
from recordmill.schemas.inputs.options import ImageOptions
from recordmill.schemas.paths import is_remote
from recordmill.schemas.sizes import number_text, printable
from recordmill.transforms.dataset.dataset_folder import (
    delete_old_files,
    failure_path,
    finished_shards,
    is_written,
    read_statistics,
    require_manifest,
    unfinished_splits,
)
from recordmill.transforms.dataset.fact_lines import data_set_lines, part_shard_lines, plan_lines
from recordmill.transforms.insight.across_splits import check_complete_duplicates, compare_splits
from recordmill.transforms.insight.write_report import has_report, try_to_report
from recordmill.transforms.runtime.progress import step_seconds, update_from_counters
from recordmill.transforms.shards.check_findings import check_space
from recordmill.transforms.shards.commit_splits import prune_replaced
from recordmill.transforms.shards.job_parts import FinishedPart, part_path, read_part
from recordmill.transforms.shards.read_image_records import splits_without_images
from recordmill.transforms.storage.resolve import file_storage_for, storage_for

BEFORE_SHARDS = AnnotationFileError, ConfigError, FaultyDatasetError, NoImageFoundError, VocabularyError
"""Errors of a job before it writes a shard."""


def convert(job: Job, progress_mode: str | Show, beams: PipelineOptions, has_warnings: bool = True) -> None:
    """Write incomplete splits, and print the summary.

    Args:
        beams: Of `beam_options`.
        has_warnings: False for a caller that logs the warnings, for a summary without them.

    Raises:
        DuplicatesError: Everything is written already, and --duplicates refuses it.
        RecordmillError: See `recordmill.launch.runners.run.run`.
    """
    options, console, purpose = job.options, terminal(), job_purpose(beams)
    if purpose != "dry run":
        check_staging(beams)
    region = beams.view_as(GoogleCloudOptions).region
    for line in distant_buckets(options.paths, region) if region else ():
        terminal_of_errors().print(f"warning: {line}")
    recipes = job.recipes()
    part = options.job_part
    if purpose == "dry run":
        run_job(job, recipes, "none", beams)
        console.print("Beam's dry run: the job was built but not run, and nothing was written.")
        return
    absent = absent_folders(options.output)
    if job.base:
        states = claim_addition(options.output, job.base, recipes)
    else:
        states = claim_output(options.output, recipes, options.overwrite, has_parts=part is not None)
    is_run = set(states) != {OutputState.COMPLETE}
    if not is_run:
        _finish_complete(job, recipes, beams)
    else:
        if OutputState.UNFINISHED in states:
            finished = finished_shards(options.output, recipes, part)
            if finished or not part:  # the run may be that of other parts
                what, text = f"part {part}" if part else "an unfinished run", number_text(finished, "finished shard")
                console.print(f"Resuming {what} in {options.output}, which has {text}")
        before = _read_part(options, job.splits)
        try:
            if job.base:
                add_image_records(options.output, beams, options.workers, progress_mode)
                job = job._replace(base=require_manifest(options.output))
            run_job(job, recipes, progress_mode, beams)
        except BEFORE_SHARDS:
            if part:  # other parts may have written shards
                raise
            new = [recipe for recipe, state in zip(recipes, states, strict=True) if state is OutputState.NEW]
            release_output(options.output, new, absent)
            raise
        except RecordmillError:
            for split in {*unfinished_splits(options.output)} & {*job.splits} if job.base else ():
                storage_for(options.output).write(failure_path(options.output, split), b"")
            raise
        if purpose == "template":
            console.print("The template was written; launching it runs the job.")
            return
        if finished_part := _read_part(options, job.splits):
            print_lines(console, _part_lines(options.output, finished_part, before))
            return
    if getattr(options, "prune", False) and (pruned := prune_replaced(options.output, job.splits)):
        console.print(f"Deleted {number_text(pruned, 'replaced shard')}")
    print_splits(options.output, job.splits, beams, is_run, has_warnings)


def _finish_complete(job: Job, recipes: Sequence[Recipe], beams: PipelineOptions) -> None:
    """Print why a job has nothing to write, and check duplicates.

    Raises:
        DuplicatesError: --duplicates refuses the data set.
    """
    options, reason = job.options, _complete_reason(job, recipes)
    terminal().print(reason)
    if job_purpose(beams) == "template":
        run(lambda p: write_nothing(p, reason), beams)  # a template's launcher fails without a job
    if isinstance(options, StoredImageOptions) and options.refused_duplicates != "report":
        # the job that writes these splits makes the same check
        table = require_manifest(options.output).table
        check_complete_duplicates(options.output, job.splits, table, options.refused_duplicates)


def _complete_reason(job: Job, recipes: Sequence[Recipe]) -> str:
    """Return the line that a job has nothing to write."""
    are_listed = any(file.kind == LISTING for recipe in recipes for file in recipe.inputs)
    not_compared = bool(job.options.images) and not are_listed
    if job.base:
        text = f"{job.options.output} already has all that this command adds."
        return f"{text} Image files were not compared." if not_compared else text
    what = "the complete split" if len(recipes) == 1 else "all these splits"
    text = f"{job.options.output} already has {what}. Add --overwrite to write again."
    return f"{text} Image files were not compared. Add --overwrite if any of them changed." if not_compared else text


def print_splits(
    output: str, splits: Sequence[str], beams: PipelineOptions, is_run: bool = True, has_warnings: bool = True
) -> None:
    """Print the summary of complete splits, after the last files of a killed run are deleted and the page is written.

    Args:
        is_run: True to print the times of this process's steps.
        has_warnings: See `convert`.
    """
    manifest = require_manifest(output)
    for split in () if folder_fault(output) else splits:
        if not is_written(output, manifest.splits[split]):
            delete_old_files(output, manifest.splits[split])  # a run that was killed at its end may have left files
    if not has_report(output):  # a killed run may lack it, too
        try_to_report(output)
    comparison = compare_splits(read_statistics(output, manifest.splits))
    print_lines(terminal(), data_set_lines(output, manifest, splits, comparison, has_warnings))
    seconds = step_seconds() if is_run else {}
    is_here = not seconds or local_mode(beams) == "in_memory"
    print_times(terminal(), seconds if is_here else {"the job": sum(seconds.values())})


def _read_part(options: ImageOptions, splits: Sequence[str]) -> FinishedPart | None:
    """Return what the part of the options has written; None without a part, or if its file is missing or damaged."""
    with suppress(ConfigError):
        if options.job_part:
            return read_part(part_path(options.output, splits, options.job_part))
    return None


def _part_lines(output: str, part: FinishedPart, before: FinishedPart | None) -> Iterator[str]:
    """Yield the summary of a part; `before` is what an earlier run of it has written."""
    is_known = before is not None and (before.digest, before.notes) == (part.digest, part.notes)
    yield f"Part {part.part} in {printable(output)} {'was complete already' if is_known else 'is complete'}"
    yield from part_shard_lines(part.part, {split: size.shards for split, size in part.plan.facts.plans.items()})
    if rejects := sum(rejects.number for rejects in part.facts.rejects.values()):
        yield f"  rejected            {rejects:,} in these shards; seal lists them"
    yield f"When all {part.part.count} parts are complete: recordmill seal {shlex.quote(output)}"


def run_job(job: Job, recipes: Sequence[Recipe], progress_mode: str | Show, beams: PipelineOptions) -> None:
    """Print notes about parts and memory; run the job.

    Args:
        recipes: Recipes of all splits of the job, which are claimed.

    Raises:
        RecordmillError: See `recordmill.launch.runners.run.run`.
    """
    options, mode = job.options, local_mode(beams)
    _print_notes(job.notes)
    remote = {path.partition("://")[0]: file_storage_for(path) for path in options.paths if is_remote(path)}
    _print_notes(f"{scheme}:// {storage.caveat}" for scheme, storage in sorted(remote.items()) if storage.caveat)
    if chosen_runner(beams) is Runner.LOCAL:
        _print_notes([check_memory(options)])
    if options.images:
        _print_notes([slower_processes(mode)])

    def count_finished() -> None:
        update_from_counters("", {"shards_written": finished_shards(options.output, recipes, options.job_part)})

    # Workers in other processes have their own counts.
    polled = nullcontext() if mode == "in_memory" else polling(count_finished)
    with fork_if_many(lambda: are_many(options.images), options.workers, mode), show_progress(progress_mode), polled:
        run(lambda p: job.write(p, recipes), beams)


def _print_notes(notes: Iterable[str]) -> None:
    for note in filter(None, notes):
        terminal_of_errors().print(f"note: {note}")


def _without_lost_images(job: Job, base: Manifest) -> Job:
    """Return a job that compares no images of splits without digests of records. Print a note about them."""
    output = job.options.output
    if not (lacking := sorted(splits_without_images(output).keys() & set(job.splits))):
        return job
    _print_notes(
        [
            f"{output} has no digests of the records of {', '.join(lacking)}, so the plan counts all their images as "
            "new. Without --dry-run, its shards are read once for them"
        ]
    )
    entries = {split: msgspec.structs.replace(base.splits[split], images_sha256=msgspec.UNSET) for split in lacking}
    return job._replace(base=msgspec.structs.replace(base, splits=base.splits | entries))


def show_plan(job: Job, progress_mode: str) -> None:
    """Print the plan of a job. This process makes it, for every runner."""
    _print_notes(job.notes)
    _print_notes([check_memory(job.options, is_dry_run=True)])
    recipes = job.recipes()
    if job.base:
        check_agreement(job.options.output, job.base, recipes)
        job = _without_lost_images(job, job.base)
    with show_progress(progress_mode):
        plan = run_for_report(lambda p, path: job.report(p, recipes, path), beam_options([]), Plan)
    print_lines(terminal(), plan_lines(plan, job.options.output))
    if part := job.options.job_part:
        print_lines(terminal(), part_shard_lines(part, {split: size.shards for split, size in plan.sizes.items()}))
    check_space(job.options.output, plan.sizes, job.options.has_exact_sizes)
