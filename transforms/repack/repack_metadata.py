"""Write the metadata of a data set in another container. All of it stays but names of shards and byte ranges."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from shutil import copyfileobj
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.containers import TFRECORD
from recordmill.schemas.dataset.dataset_files import split_rejects
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import FaultyDatasetError, JobError
from recordmill.schemas.image_records import ShardImages, split_images
from recordmill.schemas.inputs.encoders import decode_encoder
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.shards import ShardKey
from recordmill.schemas.statistics import Example, split_statistics
from recordmill.transforms.containers.container import container_of
from recordmill.transforms.dataset.dataset_folder import delete_old_files, file_sha256, read_file, read_manifest
from recordmill.transforms.dataset.rejects import rejects_path
from recordmill.transforms.insight.across_splits import fingerprint_line, fingerprints_path, read_fingerprints
from recordmill.transforms.shards.commit_splits import commit_splits
from recordmill.transforms.shards.image_records import images_line, images_path, read_images
from recordmill.transforms.shards.line_file import LineFile
from recordmill.transforms.shards.moved_shard import MovedShard, record_starts
from recordmill.transforms.shards.shard_file import FinishedShards
from recordmill.transforms.storage.resolve import join_path, storage_for


def repacked_recipe(recipe: Recipe, container: str, gzip: bool) -> Recipe:
    """Return the recipe of a conversion to another container whose other options are the same."""
    options = {name: value for name, value in recipe.options.items() if name not in ("container", "gzip")}
    options |= {} if container == TFRECORD else {"container": container}
    return msgspec.structs.replace(recipe, options=options | ({"gzip": True} if gzip else {}))


def write_metadata(
    folder: str, manifest: Manifest, output: str, recipes: Sequence[Recipe], notes: Mapping[ShardKey, str]
) -> Manifest:
    """Commit repacked splits with their metadata, and return the manifest of the new folder.

    Args:
        folder: Folder of the source, which `manifest` describes.
        recipes: Recipes of the splits in the folder `output`.
        notes: SHA-256 of the note of each new shard.

    Raises:
        FaultyDatasetError: Metadata of the source have changed.
        JobError: See `commit_splits`; or a note is missing, and no other run has committed the splits.
    """
    statistics: dict[str, bytes] = {}
    splits = {}
    try:
        for recipe in recipes:
            splits[recipe.split] = _write_split(folder, manifest, output, recipe, notes, statistics)
    except JobError:
        if (committed := read_manifest(output)) and _has_all(committed, recipes, manifest):
            for recipe in recipes:
                delete_old_files(output, committed.splits[recipe.split])
            return committed
        raise
    paths = {info.file: join_path(folder, info.file) for info in manifest.encoders}
    encoders = [decode_encoder(storage_for(folder).read(path), path) for path in paths.values()]
    container = recipes[0].container
    repacked = msgspec.structs.replace(
        manifest,
        splits=dict(sorted(splits.items())),
        container_name=msgspec.UNSET if container == TFRECORD else container,
        duplicates=msgspec.UNSET,
        problems=msgspec.UNSET,
        sha256="",
    )
    return commit_splits(output, repacked, statistics, encoders)


_OF_CONTAINER = (
    "recipe",
    "made_by",
    "compression",
    "shards",
    "statistics_sha256",
    "fingerprints_sha256",
    "images_sha256",
)
"""Fields of SplitManifest that another container changes."""


def is_repacked(source: SplitManifest, target: SplitManifest) -> bool:
    """Return True if two entries of a split have the same records, as far as manifests tell."""
    fields = set(SplitManifest.__struct_fields__) - {*_OF_CONTAINER}
    is_same = all(getattr(source, field) == getattr(target, field) for field in fields)
    return is_same and [shard.examples for shard in source.shards] == [shard.examples for shard in target.shards]


def _has_all(committed: Manifest, recipes: Sequence[Recipe], source: Manifest) -> bool:
    entries = ((committed.splits.get(recipe.split), recipe) for recipe in recipes)
    return all(
        entry and entry.recipe == recipe and is_repacked(source.splits[recipe.split], entry)
        for entry, recipe in entries
    )


# Long list of arguments: two folders with their description, notes and statistics of all splits.
def _write_split(
    folder: str,
    manifest: Manifest,
    output: str,
    recipe: Recipe,
    notes: Mapping[ShardKey, str],
    statistics: dict[str, bytes],
) -> SplitManifest:
    """Write the lists of a split to its state folder, add its statistics, and return its entry."""
    split, entry = recipe.split, manifest.splits[recipe.split]
    with (
        storage_for(folder).open(join_path(folder, split_rejects(split))) as rejects,
        storage_for(output).writing(rejects_path(output, split), output) as upload,
    ):
        copyfileobj(rejects, upload)
    finished = FinishedShards(output, recipe.name, recipe.layout, recipe.container)
    names, containers = manifest.shard_names(split), (container_of(manifest.container), container_of(recipe.container))
    known = _SplitStatistics(folder, entry)
    infos, made_by = [], entry.made_by
    lines, images = _fingerprints(folder, entry), _images(folder, entry)
    with (
        LineFile(output, fingerprints_path(output, split)) as fingerprints_file,
        LineFile(output, images_path(output, split)) as images_file,
    ):
        for shard in sorted(entry.shards, key=lambda shard: names.key(shard.file, 0)):
            key = names.key(shard.file, len(entry.shards))
            result = finished.result(key, notes[key])
            sizes = np.frombuffer(result.record_sizes, np.int64)
            moved = MovedShard(shard.file, result.info.file, *(record_starts(sizes, one) for one in containers))
            known.move(moved)
            if lines is not None:
                fingerprints_file.write(fingerprint_line(moved.fingerprints(next(lines, None))))
            if images is not None:
                images_file.write(images_line(moved.images(next(images, None))))
            infos.append(result.info)
            made_by = result.made_by
    data = known.encode()
    if data is not None:
        statistics[split] = data
    return msgspec.structs.replace(
        entry,
        recipe=recipe,
        made_by=made_by,
        compression="GZIP" if recipe.options.get("gzip") else "",
        shards=tuple(sorted(infos, key=lambda info: info.file)),
        statistics_sha256=msgspec.UNSET if data is None else sha256(data).hexdigest(),
        fingerprints_sha256=fingerprints_file.sha256,
        images_sha256=images_file.sha256,
    )


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

    def move(self, shard: MovedShard) -> None:
        for example in self._examples[shard.file]:
            moved = shard.example(msgspec.convert(example, Example))
            example.clear()
            example.update(msgspec.to_builtins(moved))

    def encode(self) -> bytes | None:
        """Return the file; None if the split has no statistics."""
        return (
            None if self._values is None else msgspec.json.format(msgspec.json.encode(self._values), indent=2) + b"\n"
        )
