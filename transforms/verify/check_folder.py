"""Compare the files of a data set with its manifest, and check the manifest."""

import os
from collections.abc import Iterator, Sequence

import msgspec

from recordmill.schemas.dataset.checks import Fault, Faults, ShardCheck
from recordmill.schemas.dataset.dataset_files import MANIFEST, split_changes, split_manifest, split_rejects
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_manifest
from recordmill.schemas.dataset.tfds import DATASET_INFO, is_dataset_info, is_readable, shard_links, tfds_files
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import RecordOf
from recordmill.schemas.image_records import split_images
from recordmill.schemas.inputs.labels import LABEL_FILES
from recordmill.schemas.inputs.tables import SCHEMA_FILES
from recordmill.schemas.paths import is_remote
from recordmill.schemas.problems import DUPLICATES, split_fingerprints, split_problems
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.statistics import STATISTICS, split_statistics
from recordmill.transforms.containers.container import container_of
from recordmill.transforms.containers.read_shards import FaultList
from recordmill.transforms.dataset.dataset_folder import (
    file_sha256,
    indexed_shards,
    is_as_written,
    read_file,
    read_split_manifests,
    require_manifest,
)
from recordmill.transforms.insight.across_splits import folder_statistics
from recordmill.transforms.records.shard_index import index_file
from recordmill.transforms.shards.commit_splits import companions, unfinished_files
from recordmill.transforms.storage.interface import Storage, UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for


def all_faults(folder: str, checks: Sequence[ShardCheck]) -> Faults:
    """Return the faults of a data set: of its folder, see `folder_faults`, then of its shards."""
    faults = FaultList()
    faults.add(folder_faults(folder, checks))
    for check in checks:
        faults.add_listed(check.faults)
    return faults.faults()


def folder_faults(folder: str, checks: Sequence[ShardCheck]) -> list[Fault]:
    """Return the faults of a data set outside its shards.

    Args:
        checks: Checks of all shards in the manifest, or of a sample, for which sums are not checked.

    Raises:
        ConfigError: The folder has no manifest.
    """
    manifest, storage = require_manifest(folder), storage_for(folder)
    names = set(storage.names(folder))
    shards = {shard.file: shard for split in manifest.splits.values() for shard in split.shards}
    links = {
        link: shards[file]
        for name, split in manifest.splits.items()
        for link, file in shard_links(manifest.shard_names(name), split).items()
    }
    faults = [
        *_manifest_faults(storage, folder, manifest),
        *(fault for name, split in manifest.splits.items() for fault in _count_faults(name, split, manifest, checks)),
        *_companion_faults(folder, manifest, links.keys() - names),
        *(fault for link in sorted(links.keys() & names) for fault in _link_faults(folder, link, links[link])),
        *(fault for name, split in manifest.splits.items() for fault in _split_faults(folder, name, split)),
        *_statistics_faults(folder, manifest),
        *(fault for file, digest in _listed_files(manifest) for fault in _digest_faults(folder, file, digest)),
        *_unlisted_faults(manifest, names - links.keys(), indexed_shards(folder)),
    ]
    unfinished = unfinished_files(folder, manifest) if faults else set()
    return [fault for fault in faults if fault.file not in unfinished]


def unaddable_faults(folder: str, manifest: Manifest) -> list[Fault]:
    """Return the faults of manifests, and of the lists of splits that a run of --add appends to."""
    faults = [
        *_manifest_faults(storage_for(folder), folder, manifest),
        *(fault for name, split in manifest.splits.items() for fault in _split_faults(folder, name, split)),
    ]
    rebuilt = {file for split in manifest.splits for file in (split_images(split), split_changes(split))}
    return [fault for fault in faults if fault.reason != "unlisted" and fault.file not in rebuilt]


_OTHER_CONTENT = "its content has changed since it was written: the SHA-256 differs"
_GONE = "it is missing, or cannot be read"


def _manifest_faults(storage: Storage, folder: str, manifest: Manifest) -> Iterator[Fault]:
    if not is_as_written(folder, MANIFEST, manifest):
        yield Fault(MANIFEST, None, "edited", _OTHER_CONTENT)
    if not manifest.splits:
        yield Fault(MANIFEST, None, "count", "it has no splits")
    are_compared = any(split.fingerprints_sha256 is not msgspec.UNSET for split in manifest.splits.values())
    if are_compared and msgspec.UNSET in (manifest.duplicates, manifest.problems):
        yield Fault(MANIFEST, None, "edited", f"it lacks the numbers of {DUPLICATES} or of the lists of problems")
    try:
        split_manifests = read_split_manifests(folder)
    except ConfigError as error:
        yield Fault(MANIFEST, None, "split_manifest", str(error))
        return
    own = msgspec.structs.replace(manifest, duplicates=msgspec.UNSET, problems=msgspec.UNSET)
    for name, split in manifest.splits.items():
        expected = msgspec.structs.replace(own, splits={name: split})
        if name not in split_manifests:
            yield Fault(split_manifest(name), None, "missing", "it is missing; adding a split to this folder needs it")
        elif encode_manifest(_with_classes(split_manifests[name], manifest)) != encode_manifest(expected):
            yield Fault(split_manifest(name), None, "edited", f"it differs from {MANIFEST}")
        elif not is_as_written(folder, split_manifest(name), split_manifests[name]):
            yield Fault(split_manifest(name), None, "edited", _OTHER_CONTENT)
    for name in sorted(split_manifests.keys() - manifest.splits.keys()):
        yield Fault(
            split_manifest(name), None, "unlisted", f"{MANIFEST} does not have this split; the next run will add it"
        )


def _with_classes(split_manifest_: Manifest, manifest: Manifest) -> Manifest:
    """Return a split's manifest with the classes that other splits have gained since it was written."""
    labels = manifest.labels
    return split_manifest_.with_labels(labels) if labels.begins_with(split_manifest_.labels) else split_manifest_


def _count_faults(name: str, split: SplitManifest, manifest: Manifest, checks: Sequence[ShardCheck]) -> Iterator[Fault]:
    images, annotations = split.images, split.annotations
    split_checks = [check for check in checks if check.split == name]
    # Missing and damaged records are reported with their shard. Sums would only repeat that.
    is_all = len(split_checks) == len(split.shards) and sum(check.examples for check in split_checks) == split.examples
    records = annotations.objects if manifest.table.record_of is RecordOf.ANNOTATION else images.records
    for what, stated, counted in (
        ("records", records, split.examples),
        ("images", images.rows, images.accounted),
        ("annotations", annotations.rows, annotations.accounted),
        ("objects", annotations.objects, sum(check.objects for check in split_checks) if is_all else None),
        ("bytes of records", split.record_bytes, sum(check.record_bytes for check in split_checks) if is_all else None),
    ):
        if counted not in (stated, None):
            detail = f"split {name}: {what} {stated:,}, but its parts add up to {counted:,}"
            yield Fault(MANIFEST, None, "count", detail)


def _companion_faults(folder: str, manifest: Manifest, missing_links: set[str]) -> Iterator[Fault]:
    """Yield the faults of label maps and TFDS's files, which the manifest determines. Without the links that TFDS needs
    to find shards, TFDS's files are not expected, either."""
    expected = dict(companions(manifest))
    for_tfds = tfds_files(manifest)
    if not is_readable(manifest) or (missing_links and not any(read_file(folder, name) for name in for_tfds)):
        expected = {name: data for name, data in expected.items() if name not in for_tfds}
    elif missing_links:
        yield Fault(
            min(missing_links),
            None,
            "missing",
            f"TFDS needs this link to a shard, and {len(missing_links) - 1:,} others",
        )
    keep_edits = container_of(manifest.container).keep_edits
    for name, data in expected.items():
        stored = read_file(folder, name)
        if stored is None:
            yield Fault(name, None, "missing", _GONE)
        elif stored != keep_edits(name, data, stored) and not (name == DATASET_INFO and is_dataset_info(stored, data)):
            yield Fault(name, None, "edited", f"it differs from {MANIFEST}")
    for name in sorted({*LABEL_FILES, *SCHEMA_FILES, *for_tfds} - expected.keys()):
        if read_file(folder, name) is not None:
            yield Fault(
                name, None, "unlisted", "readers would use it, but it is not a file of this data set. Delete it"
            )


def _link_faults(folder: str, link: str, shard: ShardInfo) -> Iterator[Fault]:
    """Yield the fault of a link that TFDS reads as a shard. A copy of a data set may have a file in place of it."""
    path = join_path(folder, link)
    if not is_remote(folder) and os.path.realpath(path) == os.path.realpath(join_path(folder, shard.file)):
        return
    try:
        is_copy = storage_for(path).checksum(path) == (shard.bytes, shard.crc32c)
    except (FileNotFoundError, UnreadableFileError):
        is_copy = False
    if not is_copy:
        yield Fault(link, None, "edited", f"TFDS reads it as the shard {shard.file}, but it leads to other content")


def _split_faults(folder: str, name: str, split: SplitManifest) -> Iterator[Fault]:
    file = split_rejects(name)
    if faults := list(_digest_faults(folder, file, split.rejects_sha256)):
        yield from faults
    elif (lines := (read_file(folder, file) or b"").count(b"\n")) != split.listed_rejects:
        expected = f"{split.listed_rejects:,}, for {split.rejects:,} rejects"
        yield Fault(file, None, "count", f"it has {lines:,} lines, not {expected}")
    if split.statistics_sha256 is not msgspec.UNSET:
        yield from _digest_faults(folder, split_statistics(name), split.statistics_sha256)
    if split.fingerprints_sha256 is not msgspec.UNSET:
        yield from _digest_faults(folder, split_fingerprints(name), split.fingerprints_sha256)
    if split.images_sha256 is not msgspec.UNSET:
        yield from _digest_faults(folder, split_images(name), split.images_sha256)
    if split.changes_sha256 is not msgspec.UNSET:
        yield from _digest_faults(folder, split_changes(name), split.changes_sha256)


def _statistics_faults(folder: str, manifest: Manifest) -> Iterator[Fault]:
    """Yield faults of the files of all splits. The files of single splits determine them."""
    expected, stored = folder_statistics(folder, manifest.splits), read_file(folder, STATISTICS)
    if expected is not None and stored is None:
        yield Fault(STATISTICS, None, "missing", _GONE)
    elif expected != stored:
        yield Fault(STATISTICS, None, "edited", "it differs from the statistics of the splits")


def _listed_files(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the files that the manifest has digests of."""
    for encoder in manifest.encoders:
        yield encoder.file, encoder.sha256
    if manifest.duplicates is not msgspec.UNSET:
        yield DUPLICATES, manifest.duplicates.sha256
    for split, problems in (manifest.problems or {}).items():
        yield split_problems(split), problems.sha256


def _digest_faults(folder: str, file: str, digest: str) -> Iterator[Fault]:
    try:
        actual = file_sha256(join_path(folder, file))
    except (FileNotFoundError, UnreadableFileError):
        yield Fault(file, None, "missing", _GONE)
        return
    if actual != digest:
        yield Fault(file, None, "edited", _OTHER_CONTENT)


def _unlisted_faults(manifest: Manifest, names: set[str], indexed: Sequence[str]) -> Iterator[Fault]:
    listed = {shard.file for split in manifest.splits.values() for shard in split.shards}
    listed |= {file for split in manifest.splits.values() for file in split.replaced_shards or ()}
    is_shard = manifest.shard_names("").is_one_of_any_split
    for file in sorted(names - listed):
        if is_shard(file):
            yield Fault(file, None, "unlisted", "named as a shard of this data set, but not in its manifest")
    for shard in indexed:
        if shard not in listed and is_shard(shard):
            yield Fault(index_file(shard), None, "unlisted", "the index of a shard that is not in the manifest")
