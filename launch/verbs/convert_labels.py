"""`recordmill convert --labels-only`: write labels of another format, and link the images.

The labels become records without images in a folder of the target, as in other conversions, and are extracted from
them. Both steps resume."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.preflight.check_folder import real_path
from recordmill.launch.preflight.claim_output import OutputState, absent_folders, claim_output
from recordmill.launch.runners.beam_options import beam_options, job_purpose
from recordmill.launch.runners.run import run_for_report
from recordmill.launch.terminal.console import print_lines, terminal
from recordmill.launch.terminal.progress import Show, show_progress
from recordmill.launch.verbs.convert import BEFORE_SHARDS, run_job
from recordmill.launch.verbs.extract import print_extracted, run_extract
from recordmill.pipelines import extract
from recordmill.pipelines.convert import Job
from recordmill.pipelines.dataset_options import ExtractOptions
from recordmill.schemas.dataset.dataset_files import REJECTS, split_rejects, state_folder
from recordmill.schemas.dataset.manifest import Manifest, Plan
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.image_options import LabelsOnlyOptions
from recordmill.schemas.sizes import printable
from recordmill.transforms.dataset.dataset_folder import finished_shards, read_manifest, require_manifest
from recordmill.transforms.dataset.fact_lines import label_lines
from recordmill.transforms.extract.extract_pieces import STATE, claim_target
from recordmill.transforms.extract.write_documents import ExtractedSplit
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.storage.resolve import join_path, storage_for

_RECORDS = f"{STATE}/records"
"""Folder within the target of the labels as records, until the job is complete."""


def convert_labels(
    options: LabelsOnlyOptions,
    prepare: Callable[[LabelsOnlyOptions], Job],
    progress_mode: str | Show,
    beams: PipelineOptions,
) -> tuple[bool, tuple[str, ...]]:
    """Write labels beside linked images, and print the summary. Return True if there are faults, and the splits.

    Args:
        prepare: Function of a format that returns the job of options.

    Raises:
        ConfigError: The format cannot store the labels, or the output has other contents.
        RecordmillError: See `recordmill.launch.runners.run.run`.
    """
    _check_classes(options)
    _check_folder(options)
    if options.dry_run:
        return False, _show_plan(prepare(options), progress_mode)
    _check_runner(beams)
    records = join_path(options.output, _RECORDS)
    job = prepare(options.model_copy(update={"output": records}))
    recipes, absent = job.recipes(), absent_folders(options.output)
    digest, has_shards = _recipe_digest(recipes, options), partial(_has_shards, records, recipes)
    with claim_target(options.output, digest, "--output", has_shards) as finished:
        if finished is not None:
            terminal().print(f"Resuming an unfinished run in {options.output}")
        try:
            manifest = _write_records(options.output, job, recipes, progress_mode, beams)
        except BEFORE_SHARDS:
            if not has_shards():
                _release(options.output, absent)
            raise
        values: dict[str, Any] = {"as": options.as_, "workers": options.workers}
        target = ExtractOptions(folder=records, target=options.output, **values)
        shards = extract.shards_to_extract(records, manifest, "")
        extracted = run_extract(target, manifest, shards, progress_mode, beams)
        rejects = _write_rejects(options.output, manifest, extracted)
        _delete_records(options.output, job.splits)
    _print_summary(target, manifest, extracted, rejects)  # a closed pipe leaves no state
    return any(split.faults for split in extracted), job.splits


def _check_classes(options: LabelsOnlyOptions) -> None:
    """Raise ConfigError if images have one class each, and the format cannot store it."""
    has_objects = "objects.id" in options.layout_table.sources
    if not has_objects and options.as_ in extract.WITHOUT_CLASSES:
        formats = (f"--as {name}" for name in extract.LABEL_FORMATS if name not in extract.WITHOUT_CLASSES)
        raise ConfigError(
            f"--as {options.as_} stores objects, but the images of DATA have one class each and no objects. Give --as "
            f"coco, {', '.join(formats)}"
        )


def _check_folder(options: LabelsOnlyOptions) -> None:
    """Raise ConfigError if the output is in a folder that is read, whose next run would read the links, too."""
    output = real_path(options.output)
    inputs = {path for own in (options, *options.set_options.values()) for path in own.paths} - {options.output}
    for path in sorted(inputs):
        if output.startswith(f"{real_path(path)}/"):
            raise ConfigError(
                f"--output {options.output} is in {path}, where the next run would read its images again. Give a "
                "folder outside of it"
            )


def _check_runner(beams: PipelineOptions) -> None:
    if job_purpose(beams) != "run":
        raise ConfigError(
            "--labels-only runs two jobs, one after the other, so it has no template and no dry run of Beam"
        )


def _show_plan(job: Job, progress_mode: str | Show) -> tuple[str, ...]:
    """Print the plan, and return the splits."""
    recipes = job.recipes()
    with show_progress(progress_mode):
        plan = run_for_report(lambda p, path: job.report(p, recipes, path), beam_options([]), Plan)
    terminal().print(f"The plan for {printable(job.options.output)}; nothing is written")
    for name in plan.manifest.splits:
        print_lines(terminal(), [name, *label_lines(plan.manifest, name)])
    return job.splits


def _recipe_digest(recipes: Sequence[Recipe], options: LabelsOnlyOptions) -> bytes:
    """Return a hex digest of what determines the files that are written."""
    parts = msgspec.msgpack.encode((recipes, options.as_, library_versions(options.layout)), order="deterministic")
    return hashlib.sha256(parts).hexdigest().encode()


def _has_shards(records: str, recipes: Sequence[Recipe]) -> bool:
    """Return True if an unfinished run has written something that another run would delete."""
    return bool(finished_shards(records, recipes)) or read_manifest(records) is not None


def _release(target: str, absent: Sequence[str]) -> None:
    """Undo the claim of a target without finished shards."""
    storage_for(target).delete_folder(join_path(target, STATE))
    for folder in absent:
        with suppress(OSError):
            os.rmdir(folder)


def _write_records(
    target: str, job: Job, recipes: Sequence[Recipe], progress_mode: str | Show, beams: PipelineOptions
) -> Manifest:
    """Write the labels as records, unless an earlier run has, and return their manifest."""
    records = job.options.output
    try:
        states = claim_output(records, recipes, overwrite=False)
    except ConfigError as error:
        raise ConfigError(
            f"{target} has an unfinished run of images that have changed since. Delete it, or choose another --output"
        ) from error
    if set(states) != {OutputState.COMPLETE}:
        run_job(job, recipes, progress_mode, beams)
    manifest = require_manifest(records)
    if any(split.annotations.masks for split in manifest.splits.values()):
        return manifest
    table = manifest.table.with_parts(tuple(part for part in manifest.parts if part is not Part.MASK_RLE))
    return msgspec.structs.replace(manifest, parts=table.parts, features=table.features)


def _delete_records(target: str, splits: Sequence[str]) -> None:
    storage = storage_for(target)
    storage.delete_folder(join_path(target, _RECORDS))
    for split in splits:  # of several sets, which keep images of tables there
        storage.delete_folder(join_path(target, state_folder(split)))


def _write_rejects(target: str, manifest: Manifest, extracted: Sequence[ExtractedSplit]) -> str:
    """Write the rejects of all splits, and those of images that could not be written, and return the file; empty
    without rejects."""
    path = join_path(target, REJECTS)
    lines = chain(_reject_lines(target, manifest), _fault_lines(extracted))
    first = next(lines, None)
    if first is None:
        return ""
    with storage_for(path).writing(path) as upload:
        for line in chain([first], lines):
            upload.write(line)
    return path


def _reject_lines(target: str, manifest: Manifest) -> Iterator[bytes]:
    for name in manifest.splits:
        path = join_path(target, f"{_RECORDS}/{split_rejects(name)}")
        if storage_for(path).size(path):
            with storage_for(path).open(path) as file:
                yield from file


def _fault_lines(extracted: Sequence[ExtractedSplit]) -> Iterator[bytes]:
    for split in extracted:
        for fault in split.faults.listed:
            reject = {"split": split.split, "what": "image", "id": None, "reason": fault.reason, "detail": fault.detail}
            yield msgspec.json.encode(reject) + b"\n"


def _print_summary(
    target: ExtractOptions, manifest: Manifest, extracted: Sequence[ExtractedSplit], rejects: str
) -> None:
    notes = extract.missing_contents(manifest, [split.split for split in extracted], target.format_, target.target)
    warnings = {text for split in manifest.splits.values() for text in split.warnings}
    lines = chain(notes, (f"warning: {printable(text)}" for text in sorted(warnings)))
    read = {name: label_lines(manifest, name) for name in manifest.splits}
    print_extracted(target, extracted, dict.fromkeys(read, "image"), lines, read)
    if rejects:
        terminal().print(f"Rejects are listed in {printable(rejects)}")
