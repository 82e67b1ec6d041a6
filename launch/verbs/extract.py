"""`recordmill extract`: write image files and labels again."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.local_engine.fork_writers import WORTH_IT, fork_if_many
from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.preflight.check_runner import require_local
from recordmill.launch.runners.beam_options import local_mode
from recordmill.launch.runners.run import run_for_report
from recordmill.launch.terminal import progress
from recordmill.launch.terminal.console import print_faults, print_lines, terminal
from recordmill.pipelines import extract
from recordmill.pipelines.dataset_options import ExtractOptions
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.sizes import number_text, size_text
from recordmill.transforms.containers.container import container_of
from recordmill.transforms.containers.read_shards import ManifestShard
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.extract.extract_pieces import STATE, claim_target, extract_recipe
from recordmill.transforms.extract.write_documents import ExtractedSplit
from recordmill.transforms.storage.resolve import join_path


def run(options: ExtractOptions, progress_mode: str, beams: PipelineOptions) -> bool:
    """Extract a data set or a split, print the summary, and return True if there are errors.

    Raises:
        ConfigError: There is no data set or no such split, its records do not fit the format, the target is neither
            empty nor has an unfinished extraction of the same data, or another process is extracting there.
        JobError: A file could not be written.
    """
    require_local(beams)
    manifest = require_manifest(options.folder)
    shards = extract.shards_to_extract(options.folder, manifest, options.split)
    extract.check_format(options.folder, manifest, options.format_)
    if fault := folder_fault(options.target):
        raise ConfigError(fault)
    container_of(manifest.container)  # raises ConfigError without its extra, before the target is claimed
    recipe = extract_recipe(shards, manifest.layout, options.format_, options.labels_only)
    with claim_target(options.target, recipe) as finished:
        if finished is not None:
            terminal().print(
                f"Resuming an unfinished extraction in {options.target}: {finished:,} shards were extracted"
            )
        extracted = run_extract(options, manifest, shards, progress_mode, beams)
    splits = [split.split for split in extracted]
    notes = [*extract.missing_contents(manifest, splits, options.format_, options.target)]
    if options.labels_only:
        notes += extract.convert_commands(options.target, manifest, splits, options.format_)
    units = {split: entry.images.unit for split, entry in manifest.splits.items()}
    print_extracted(options, extracted, units, notes)
    return any(split.faults for split in extracted)


def run_extract(
    options: ExtractOptions,
    manifest: Manifest,
    shards: list[ManifestShard],
    progress_mode: str | progress.Show,
    beams: PipelineOptions,
) -> list[ExtractedSplit]:
    """Extract shards to the target, which is claimed.

    Args:
        manifest: Manifest of the shards, with the features that are read.

    Raises:
        JobError: A file could not be written.
    """
    mode, infos = local_mode(beams), [shard.info for shard in shards]
    records = sum(info.examples for info in infos)
    with fork_if_many(lambda: records >= WORTH_IT, options.workers, mode), progress.show_progress(progress_mode):
        progress.expect_records(infos, in_this_process=mode == "in_memory")
        build = partial(extract.build, shards=shards, manifest=manifest, options=options)
        return run_for_report(build, beams, list[ExtractedSplit], join_path(options.target, STATE))


def print_extracted(
    options: ExtractOptions,
    splits: Sequence[ExtractedSplit],
    units: Mapping[str, str],
    notes: Iterable[str],
    read: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Print the result: files, absent contents, errors.

    Args:
        units: `image` or `tile` for each split.
        notes: Lines of `missing_contents`.
        read: Lines about what was read of each split, whose images are linked; None if they come from records.
    """
    console, folder = terminal(), options.target
    for split in splits:
        console.print(_images_line(options, split, units[split.split], is_linked=read is not None))
        print_lines(console, (read or {}).get(split.split, ()))
        print_lines(console, _document_lines(folder, split))
    print_lines(console, notes)
    for split in splits:
        print_faults(split.faults, "" if read is None else f"{split.split}: ")
    if number := sum(len(split.faults) for split in splits):
        where = (
            "in the records; everything readable was extracted" if read is None else "; all other images were written"
        )
        console.print(f"{folder}: {number_text(number, 'fault')}{' ' * (read is None)}{where}")


def _images_line(options: ExtractOptions, split: ExtractedSplit, unit: str, is_linked: bool) -> str:
    rows = f" for {split.rows:,} entries in the JSON, some of which share a file" if split.rows > split.images else ""
    images = f"{split.images:,} {unit}s"
    if options.labels_only:
        return f"{split.split}: labels of {images}{rows} are in {options.target}; no images were written"
    links = {"linked": split.linked, "copied": split.images - split.linked} if is_linked else {}
    ways = ", ".join(f"{number:,} {way}" for way, number in links.items() if number)
    size = size_text(split.image_bytes)
    return f"{split.split}: {images}{rows}, {size}, are in {options.target}{f' ({ways})' if ways else ''}"


def _document_lines(folder: str, split: ExtractedSplit) -> Iterator[str]:
    """Yield lines about the files of labels, and about what they do not have."""
    for document in split.documents:
        yield f"  {os.path.join(folder, document.file)}  {document.annotations:,} annotations"
        if document.shared_ids:
            yield (
                f"    {number_text(document.shared_ids, 'id')} shared by two or more annotations; tools that look "
                "up annotations by id, such as pycocotools, find only one of each. Renumber them before evaluation"
            )
    for counts, what in ((split.lost, "not written"), (split.notes, "note")):
        if counts:
            yield f"  {what}: {', '.join(f'{thing} {number:,}' for thing, number in sorted(counts.items()))}"
