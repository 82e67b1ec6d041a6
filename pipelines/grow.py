"""Steps of `convert --add`, which adds images to a data set."""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, PCollection

from recordmill.pipelines.gathered import Gathered
from recordmill.pipelines.sets_options import set_names
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.image_records import split_images
from recordmill.schemas.inputs.image_options import StoredImageOptions
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.labels import ExistingLabels
from recordmill.schemas.inputs.options import DividedOptions, ImageOptions
from recordmill.schemas.sizes import number_text
from recordmill.transforms.dataset.dataset_folder import read_split_manifests
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.grow.grow_images import GrowImages, GrowJob, MadeRecords, list_files, list_tile_places
from recordmill.transforms.grow.rewrite_shards import RewriteShards
from recordmill.transforms.join.drop_images import DropCopies
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.shape.adopt_data_set import AdoptDataSet, RenumberImages
from recordmill.transforms.shape.join_sets import facts_of_set
from recordmill.transforms.shards.check_findings import JobLimits
from recordmill.transforms.shards.image_records import read_images
from recordmill.transforms.storage.resolve import join_path


def adds(options: ImageOptions) -> bool:
    """Return True if a job adds images to splits of a data set."""
    return isinstance(options, DividedOptions) and options.add


def first_shards(base: Manifest | None, splits: Sequence[str]) -> dict[str, int]:
    """Return the index of the first new shard of each split that the data set has.

    Args:
        base: Manifest of the data set; None without --add.
    """
    entries = base.splits if base else {}
    return {split: entries[split].next_shard for split in splits if split in entries}


def grow_job(base: Manifest, options: ImageOptions, splits: tuple[str, ...]) -> GrowJob:
    """Return the arguments of a job with --add."""
    assert isinstance(options, DividedOptions)
    drops_copies = getattr(options, "duplicates", "") == "drop"
    sets = options.set_options or ([options.add_as] if options.add_as else ())
    prefixes = tuple(f"{name}/" for name in sets) or ("",)
    return GrowJob(options.output, base, splits, options.sync, drops_copies, prefixes)


def adopt_images(job: GrowJob, options: ImageOptions, read: Callable[[], Gathered]) -> Gathered:
    """Return the images of a job with the classes, fields and features of the data set that they are added to.

    Args:
        read: Function that adds the steps of the source.
    """
    set_name = getattr(options, "add_as", "") or ""
    with facts_of_set(set_name) if set_name else nullcontext():
        gathered = read()
    existing = ExistingLabels(job.base.labels, job.output, job.base.table)
    adopt = AdoptDataSet(existing, job.splits, set_name, getattr(options, "categories", ()))
    blocks, labels, table = (gathered.blocks, gathered.labels, gathered.table) | "AdoptDataSet" >> adopt
    return gathered._replace(blocks=blocks, labels=labels, table=table)


def grow_images(job: GrowJob, gathered: Gathered, records: MadeRecords, threads: int | None) -> Gathered:
    """Return the images that the data set lacks, or that --sync writes again."""
    grow = GrowImages(job, records, gathered.labels, gathered.table, threads)
    blocks, changes, replaced = gathered.blocks | "GrowImages" >> grow
    entries = {split for split, entry in job.base.splits.items() if entry.images_sha256 is not msgspec.UNSET}
    files = [join_path(job.output, split_images(split)) for split in sorted(entries)]
    create = beam.Create(files).with_output_types(str)
    known = blocks.pipeline | "KnownFiles" >> create | "ReadKnown" >> beam.FlatMap(read_images)
    blocks = (blocks, known) | "RenumberImages" >> RenumberImages()
    if job.drops_copies:
        blocks = blocks | "DropCopies" >> DropCopies(job.splits)
    return gathered._replace(blocks=blocks, changes=changes, replaced=replaced)


def tile_places(job: GrowJob, p: beam.Pipeline) -> PCollection:
    """Return the names of images of the data set that look like tiles' names, for TileImages."""
    files = [file for file in list_files(job) if file.split < len(job.splits)]
    return p | "NamedFiles" >> beam.Create(files) | "TilePlaces" >> beam.FlatMap(list_tile_places)


def rewrite_shards(
    job: GrowJob, gathered: Gathered, written: PCollection, planned: PCollection, threads: int | None
) -> dict[str, Any]:
    """Copy the shards without images that --sync writes again. Return the arguments of WriteMetadata about them.

    Args:
        written: WrittenShards of the job.
        planned: Facts with the plan of the new shards.
    """
    if not job.sync:
        return {}
    rewrite = RewriteShards(job.output, job.base, job.splits, planned, gathered.labels, threads)
    copies, removed = (gathered.replaced, written) | "RewriteShards" >> rewrite
    return {"copies": copies, "removed": AsList(removed)}


def count_changes(listed: tuple[str, bytes], facts: FactsBuilder) -> None:
    """Warn of a plan's images that --sync writes again; `listed` is a split and the contents of its file of changes."""
    split, lines = listed
    changes = Counter(msgspec.json.decode(line)["change"] for line in lines.splitlines())
    if number := changes["labels"] + changes["image"]:
        facts.warn(
            split,
            f"--sync: {number_text(number, 'image')} of {split} would be written again: {changes['labels']:,} with "
            f"other labels, masks or fields, {changes['image']:,} with other bytes",
        )


def limits_with_base(limits: JobLimits, base: Manifest, options: ImageOptions) -> JobLimits:
    """Return the limits for the findings of a job that adds to a data set."""
    own = read_split_manifests(options.output)
    digests = {split: own[split].sha256 for split in limits.splits if split in own}
    return limits._replace(base=digests, other_images_cure=_other_images_cure(options, base))


def _other_images_cure(options: ImageOptions, base: Manifest) -> str:
    """Return the fix for images of `options` that the data set has with other bytes."""
    (name,) = set_names([{"data": getattr(options, "data", None), "images": options.images}])
    cure = (
        f"If they are other images, give them a folder of their own by --add-as {shlex.quote(name)}. If they are new "
        "versions, write them again by --sync"
    )
    if not isinstance(options, StoredImageOptions) or options.image_rules == ImageRules(options.image_rules.check):
        return cure
    made_by, versions = next(iter(base.splits.values())).made_by, library_versions(options.layout, options.container)
    if changed := sorted(key for key in {*made_by, *versions} if made_by.get(key) != versions.get(key)):
        cure += f". The data set's images were encoded by other versions of {', '.join(changed)}, which may be why"
    return cure
