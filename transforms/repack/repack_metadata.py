"""Write the metadata of a repacked data set. Only names of shards and positions of records change."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from shutil import copyfileobj
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.containers import TFRECORD
from recordmill.schemas.dataset.dataset_files import split_rejects, state_folder
from recordmill.schemas.dataset.manifest import Addition, Manifest, SplitManifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError, FaultyDatasetError, JobError
from recordmill.schemas.features import Part
from recordmill.schemas.image_records import ShardImages, split_images
from recordmill.schemas.inputs.encoders import decode_encoder
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.schemas.statistics import Example, split_statistics
from recordmill.transforms.containers.container import Container, Contents, container_of
from recordmill.transforms.dataset.dataset_folder import delete_old_files, file_sha256, read_file, read_manifest
from recordmill.transforms.dataset.rejects import rejects_path
from recordmill.transforms.insight.across_splits import fingerprint_line, fingerprints_path, read_fingerprints
from recordmill.transforms.records.digest_record import RecordDigests
from recordmill.transforms.repack.replan_metadata import MovedRecords, ReplannedShard, digest_cut_images, moved_lists
from recordmill.transforms.repack.replan_split import Replan, UnorderedImagesError, replan_split
from recordmill.transforms.shards.commit_splits import commit_splits
from recordmill.transforms.shards.image_records import images_line, images_path, read_images
from recordmill.transforms.shards.line_file import LineFile
from recordmill.transforms.shards.moved_shard import MovedShard, record_starts
from recordmill.transforms.shards.plan_blocks import is_sizing_warning, sizing_warnings
from recordmill.transforms.shards.shard_file import FinishedShards
from recordmill.transforms.storage.resolve import join_path, storage_for


def repacked_recipe(recipe: Recipe, container: str, gzip: bool) -> Recipe:
    """Return the recipe of a conversion to another container whose other options are the same."""
    options = {name: value for name, value in recipe.options.items() if name not in ("container", "gzip")}
    options |= {} if container == TFRECORD else {"container": container}
    return msgspec.structs.replace(recipe, options=options | ({"gzip": True} if gzip else {}))


# Long list of arguments: two folders with their description, what was written, and how.
def write_metadata(
    folder: str,
    manifest: Manifest,
    output: str,
    recipes: Sequence[Recipe],
    notes: Mapping[ShardKey, str],
    replans: bool,
) -> Manifest:
    """Commit repacked splits with their metadata, and return the manifest of the new folder.

    Args:
        folder: Folder of the source, which `manifest` describes.
        recipes: Recipes of the splits in the folder `output`.
        notes: SHA-256 of the note of each new shard.
        replans: True if the shards are those of `read_replan`.

    Raises:
        FaultyDatasetError: Metadata of the source have changed.
        JobError: See `commit_splits`; or a note is missing, and no other run has committed the splits.
    """
    statistics: dict[str, bytes | None] = {}
    splits = {}
    plans = {recipe.split: read_replan(folder, manifest, recipe.split) if replans else None for recipe in recipes}
    try:
        for recipe in recipes:
            job = _Job(folder, manifest, output, recipe, plans[recipe.split])
            splits[recipe.split], statistics[recipe.split] = _write_split(job, notes)
    except JobError:
        if (committed := read_manifest(output)) and _has_all(committed, recipes, manifest, plans):
            for recipe in recipes:
                delete_old_files(output, committed.splits[recipe.split])
            return committed
        raise
    paths = [join_path(folder, info.file) for info in manifest.encoders]
    encoders = [decode_encoder(storage_for(folder).read(path), path) for path in paths]
    container = recipes[0].container
    repacked = msgspec.structs.replace(
        manifest,
        splits=dict(sorted(splits.items())),
        container_name=msgspec.UNSET if container == TFRECORD else container,
        duplicates=msgspec.UNSET,
        problems=msgspec.UNSET,
        sha256="",
    )
    return commit_splits(output, repacked, {name: data for name, data in statistics.items() if data}, encoders)


_OF_CONTAINER = (
    "recipe",
    "made_by",
    "compression",
    "shards",
    "statistics_sha256",
    "fingerprints_sha256",
    "images_sha256",
    "changes_sha256",
    "replaced_shards",
    "additions",
    "warnings",
)
"""Fields of SplitManifest that another folder changes."""


def is_repacked(source: SplitManifest, target: SplitManifest, plan: Replan | None) -> bool:
    """Return True if two entries of a split have the same records, as far as manifests tell.

    Args:
        plan: New shards of `target`; None if they are those of `source`.
    """
    fields = set(SplitManifest.__struct_fields__) - {*_OF_CONTAINER}
    is_same = all(getattr(source, field) == getattr(target, field) for field in fields)
    is_same &= _repacked_runs(source, plan) == target.additions
    examples = [shard.examples for shard in source.numbered_shards] if plan is None else plan.examples.tolist()
    return is_same and examples == [shard.examples for shard in target.numbered_shards]


def _repacked_runs(entry: SplitManifest, plan: Replan | None) -> tuple[Addition, ...] | msgspec.UnsetType:
    """Return the runs of --add of a repacked split. After a new plan, they have no shards."""
    if plan is None or not entry.runs:
        return entry.additions
    return tuple(msgspec.structs.replace(run, shards=0) for run in entry.runs)


def _has_all(
    committed: Manifest, recipes: Sequence[Recipe], source: Manifest, plans: Mapping[str, Replan | None]
) -> bool:
    entries = ((committed.splits.get(recipe.split), recipe) for recipe in recipes)
    return all(
        entry and entry.recipe == recipe and is_repacked(source.splits[recipe.split], entry, plans[recipe.split])
        for entry, recipe in entries
    )


class _Job(NamedTuple):
    """Repack of a split.

    Attributes:
        folder, manifest: The source.
        output, recipe: The new folder, and the recipe of the split there.
        plan: New shards; None if they are those of the source.
    """

    folder: str
    manifest: Manifest
    output: str
    recipe: Recipe
    plan: Replan | None

    @property
    def entry(self) -> SplitManifest:
        return self.manifest.splits[self.recipe.split]

    @property
    def container(self) -> Container:
        return container_of(self.recipe.container)


def _write_split(job: _Job, notes: Mapping[ShardKey, str]) -> tuple[SplitManifest, bytes | None]:
    """Write the lists of a split to its state folder, and return its entry and statistics."""
    split, entry, recipe, output = job.recipe.split, job.entry, job.recipe, job.output
    with (
        storage_for(job.folder).open(join_path(job.folder, split_rejects(split))) as rejects,
        storage_for(output).writing(rejects_path(output, split), output) as upload,
    ):
        copyfileobj(rejects, upload)
    finished = FinishedShards(output, recipe.name, recipe.layout, recipe.container)
    results = [finished.result(key, note) for key, note in sorted(notes.items()) if key.split == split]
    if len(results) != (len(entry.shards) if job.plan is None else job.plan.plan.shards):
        raise JobError(f"{output}: the shards of {split} are not those of its plan. Run again")
    known = _SplitStatistics(job.folder, entry)
    lists = _moved_lists(job, results, known) if job.plan is None else _replanned_lists(job, job.plan, results, known)
    with (
        LineFile(output, fingerprints_path(output, split)) as fingerprints_file,
        LineFile(output, images_path(output, split)) as images_file,
    ):
        for fingerprints, images in lists:
            if fingerprints is not None:
                fingerprints_file.write(fingerprint_line(fingerprints))
            if images is not None:
                images_file.write(images_line(images))
    warnings = entry.warnings
    if job.plan:
        unit = "tile" if Part.TILES in job.manifest.parts else "image"
        plan_warnings = sizing_warnings(split, job.plan.plan, recipe.sizing, unit)
        warnings = tuple(sorted({*plan_warnings, *(text for text in warnings if not is_sizing_warning(text))}))
    data = known.encode()
    repacked = msgspec.structs.replace(
        entry,
        recipe=recipe,
        made_by=results[-1].made_by if results else entry.made_by,
        compression="GZIP" if recipe.options.get("gzip") else "",
        shards=tuple(sorted((result.info for result in results), key=lambda info: info.file)),
        warnings=warnings,
        statistics_sha256=msgspec.UNSET if data is None else sha256(data).hexdigest(),
        fingerprints_sha256=fingerprints_file.sha256,
        images_sha256=images_file.sha256,
        additions=_repacked_runs(entry, job.plan),
        changes_sha256=msgspec.UNSET,
        replaced_shards=msgspec.UNSET,
    )
    return repacked, data


_Lists = Iterator[tuple[Fingerprints | None, ShardImages | None]]
"""Fingerprints and images of each new shard."""


def _moved_lists(job: _Job, results: Sequence[ShardResult], known: "_SplitStatistics") -> _Lists:
    """Yield the lists of new shards that have the records of the old ones, and move the examples."""
    lines, images = _fingerprints(job.folder, job.entry), _images(job.folder, job.entry)
    containers = container_of(job.manifest.container), job.container
    for shard, result in zip(job.entry.numbered_shards, results, strict=True):
        sizes = np.frombuffer(result.record_sizes, np.int64)
        starts, new_starts = (record_starts(sizes, container) for container in containers)
        moved = MovedShard(shard.file, result.info.file, starts, new_starts)
        known.move(moved)
        yield (
            None if lines is None else moved.fingerprints(next(lines, None)),
            None if images is None else moved.images(next(images, None)),
        )


def _replanned_lists(job: _Job, plan: Replan, results: Sequence[ShardResult], known: "_SplitStatistics") -> _Lists:
    """Yield the lists of the shards of a plan, and move the examples."""
    starts = [record_starts(np.frombuffer(result.record_sizes, np.int64), job.container) for result in results]
    moved = MovedRecords(plan, starts)
    shards, new_files = job.entry.numbered_shards, [result.info.file for result in results]
    for source, shard in enumerate(shards):
        known.move(ReplannedShard(shard.file, source, moved, new_files))
    _digest_cut_images(job, plan, results)
    lines, images = _fingerprints(job.folder, job.entry), _images(job.folder, job.entry)
    yield from moved_lists(plan, moved, lines, images or iter(()), [shard.file for shard in shards], new_files)


def _digest_cut_images(job: _Job, plan: Replan, results: Sequence[ShardResult]) -> None:
    """Read the records of images that lie in two new shards, whose digests are sums of these records."""
    contents = Contents(job.manifest.table, job.manifest.labels)
    for target in np.unique(plan.images.target[plan.images.is_cut]).tolist():
        info = results[target].info
        paths = (f"{state_folder(job.recipe.split)}/{info.file}", info.file)  # the latter after a stopped commit
        path = next(
            path for name in paths if storage_for(job.output).size(path := join_path(job.output, name)) is not None
        )
        digest_cut_images(plan, target, RecordDigests(contents.table), job.container.open(path, contents, info))


def read_replan(folder: str, manifest: Manifest, split: str) -> Replan:
    """Return the shards of one conversion of all images of a split.

    Raises:
        ConfigError: The order or the sizes of its images are unknown.
        FaultyDatasetError: The file of images has changed.
    """
    entry = manifest.splits[split]
    images = _images(folder, entry)
    if images is None:
        raise ConfigError(
            f"{folder} has no {split_images(split)}, by which --replan plans shards: an earlier version wrote it, "
            "or Beam's own writer. Convert the data set again, or leave out --replan"
        )
    by_file = {shard.shard: shard for shard in images}
    files = [shard.file for shard in entry.numbered_shards]
    if by_file.keys() != set(files):
        raise _changed(folder, split)
    try:
        shards, recipe = [by_file[file] for file in files], entry.recipe
        return replan_split(shards, recipe.sizing, recipe.seed, bool(entry.runs))
    except UnorderedImagesError as error:
        raise ConfigError(
            f"{join_path(folder, split_images(split))}: {error}. Convert all images again, or leave out --replan"
        ) from error


def _changed(folder: str, split: str) -> FaultyDatasetError:
    return FaultyDatasetError(
        f"{folder}: statistics, fingerprints or digests of images of {split} have changed while the data set was read. "
        "recordmill verify lists all damage"
    )


def _fingerprints(folder: str, entry: SplitManifest) -> Iterator[Fingerprints] | None:
    """Return the fingerprints of a split by shard; None if it has none."""
    if entry.fingerprints_sha256 is msgspec.UNSET:
        return None
    split = entry.recipe.split
    files = read_fingerprints(folder, {split: entry})
    if not files:
        raise _changed(folder, split)
    return iter(files[split])


def _images(folder: str, entry: SplitManifest) -> Iterator[ShardImages] | None:
    """Return the images of a split by shard; None if it has no digests of them."""
    if entry.images_sha256 is msgspec.UNSET:
        return None
    split = entry.recipe.split
    path = join_path(folder, split_images(split))
    if file_sha256(path) != entry.images_sha256:
        raise _changed(folder, split)
    return read_images(path)


class _SplitStatistics:
    """Statistics of a split, whose examples are moved shard by shard. Numbers stay as JSON has them: decoded as
    SplitStatistics, they would be encoded differently."""

    def __init__(self, folder: str, entry: SplitManifest):
        self._values: dict[str, Any] | None = None
        self._examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
        if entry.statistics_sha256 is msgspec.UNSET:
            return
        split = entry.recipe.split
        data = read_file(folder, split_statistics(split)) or b""
        if sha256(data).hexdigest() != entry.statistics_sha256:
            raise _changed(folder, split)
        values = self._values = msgspec.json.decode(data)
        findings = (finding["examples"] for finding in values["findings"].values())
        for examples in (*values["examples"].values(), *findings):
            for example in examples:
                self._examples[example["shard"]].append(example)

    def move(self, shard: MovedShard | ReplannedShard) -> None:
        for example in self._examples[shard.file]:
            moved = shard.example(msgspec.convert(example, Example))
            example.clear()
            example.update(msgspec.to_builtins(moved))

    def encode(self) -> bytes | None:
        """Return the file; None if the split has no statistics."""
        return (
            None if self._values is None else msgspec.json.format(msgspec.json.encode(self._values), indent=2) + b"\n"
        )
