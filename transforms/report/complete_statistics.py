"""Statistics and fingerprints of splits that have none, as an older program wrote them: their records are read."""

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256

import msgspec

from recordmill.schemas.dataset_files import MANIFEST, split_manifest
from recordmill.schemas.duplicates import DUPLICATES, Fingerprints, split_fingerprints
from recordmill.schemas.errors import ConfigError, JobError, RecordError
from recordmill.schemas.manifest import Manifest, SplitManifest, encode_json, encode_manifest
from recordmill.schemas.picture_features import has_picture
from recordmill.schemas.shards import ShardInfo, index_of
from recordmill.schemas.statistics import Statistics
from recordmill.schemas.statistics_file import STATISTICS, split_statistics
from recordmill.transforms.metadata.commit_splits import publish
from recordmill.transforms.metadata.dataset_folder import is_as_written, read_split_manifests
from recordmill.transforms.metadata.folder_duplicates import fingerprint_lines, read_fingerprints
from recordmill.transforms.metadata.folder_statistics import folder_statistics, read_file
from recordmill.transforms.records.record_values import RecordParseError
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.statistics.add_statistics import add_statistics
from recordmill.transforms.statistics.count_records import Counted, count_records
from recordmill.transforms.statistics.describe_statistics import describe_statistics
from recordmill.transforms.storage.resolve import storage_for


def complete_statistics(folder: str, manifest: Manifest, read: Callable[[int], None]) -> list[str]:
    """Count the splits whose statistics or fingerprints are not there, or not as they were written; which those are.

    Args:
        read: is told how many records have been read.

    Raises:
        ConfigError: something has to be written, and a manifest was edited.
        JobError: a shard is damaged.
        OSError: a shard is gone; nothing can be written there.
    """
    alone = read_split_manifests(folder)
    lacking = [split for split in manifest.splits if not _is_counted(folder, manifest, split)]
    is_published = not lacking and _is_published(folder, manifest)
    if manifest.splits.keys() - alone.keys() or not is_published:
        _check_unedited(folder, manifest, alone)
    _write_missing(folder, manifest, alone.keys())
    seen = 0
    for split in lacking:
        seen = _count(folder, manifest, split, seen, read)
    if not is_published:
        publish(folder)
    return lacking


def _count(folder: str, manifest: Manifest, split: str, seen: int, read: Callable[[int], None]) -> int:
    """Count a split and write what was counted; `seen` and its records."""
    whole, fingerprints, after = Statistics(), [], None
    is_measured = manifest.splits[split].recipe.is_measured
    for shard in sorted(manifest.splits[split].shards, key=lambda shard: index_of(shard.file)):
        part = _of_shard(folder, shard, manifest, is_measured, after)
        whole, after = add_statistics(whole, part.statistics), part.last_image
        if part.fingerprints:
            fingerprints.append(part.fingerprints)
        seen += shard.examples
        read(seen)
    _write(folder, manifest, split, whole, fingerprints)
    return seen


def _check_unedited(folder: str, manifest: Manifest, alone: Mapping[str, Manifest]) -> None:
    """Manifests are written anew, with their digest: one that was edited would no longer be found to be."""
    files = {MANIFEST: manifest} | {split_manifest(split): of_one for split, of_one in alone.items()}
    for file, of in files.items():
        if not is_as_written(folder, file, of):
            raise ConfigError(
                f"{storage_for(folder).join(folder, file)} is not as a job wrote it, and would be taken for that once "
                "it is written anew with the statistics that are missing; put the file back, or convert again with "
                "--overwrite"
            )


def _write_missing(folder: str, manifest: Manifest, there: Collection[str]) -> None:
    """Write manifests of single splits that are not there, as only a part of the folder was copied: the one of all
    splits is made of them."""
    for split in manifest.splits.keys() - there:
        _write_manifest(folder, manifest, manifest.splits[split])


def _write_manifest(folder: str, manifest: Manifest, entry: SplitManifest) -> None:
    storage, split = storage_for(folder), entry.recipe.split
    of_one = msgspec.structs.replace(manifest, splits={split: entry}, duplicates=msgspec.UNSET, sha256="")
    storage.write(storage.join(folder, split_manifest(split)), encode_manifest(of_one))


def _write(folder: str, manifest: Manifest, split: str, whole: Statistics, fingerprints: list[Fingerprints]) -> None:
    storage, entry = storage_for(folder), manifest.splits[split]
    found = encode_json(describe_statistics(whole, manifest.labels, manifest.table, entry.class_counts))
    storage.write(storage.join(folder, split_statistics(split)), found)
    now = msgspec.structs.replace(entry, statistics_sha256=sha256(found).hexdigest())
    if has_picture(manifest.table):
        lines = fingerprint_lines(fingerprints)
        storage.write(storage.join(folder, split_fingerprints(split)), lines)
        now = msgspec.structs.replace(now, fingerprints_sha256=sha256(lines).hexdigest())
    if now != entry:
        _write_manifest(folder, manifest, now)


def _is_counted(folder: str, manifest: Manifest, split: str) -> bool:
    data, digest = read_file(folder, split_statistics(split)), manifest.splits[split].statistics_sha256
    if data is None or digest not in (msgspec.UNSET, sha256(data).hexdigest()):
        return False
    return not has_picture(manifest.table) or split in read_fingerprints(folder, manifest, [split])


def _is_published(folder: str, manifest: Manifest) -> bool:
    """Whether what is of all splits is as it should be: it was not edited, and no older program has written it."""
    if read_file(folder, STATISTICS) != folder_statistics(folder, manifest.splits):
        return False
    data, noted = read_file(folder, DUPLICATES), manifest.duplicates
    if noted is msgspec.UNSET:
        return not has_picture(manifest.table)
    return data is not None and sha256(data).hexdigest() == noted.sha256


def _of_shard(folder: str, shard: ShardInfo, manifest: Manifest, is_measured: bool, after: int | None) -> Counted:
    path = storage_for(folder).join(folder, shard.file)
    reader = ShardReader(path)
    try:
        found = count_records(reader.records(), manifest.table, manifest.labels, shard.file, is_measured, after)
    except (RecordError, RecordParseError) as error:
        raise JobError(f"{path}: {error}; recordmill verify finds all that is wrong") from error
    if reader.examples != shard.examples:  # a file that is cut between two records is read to its end
        said = f"{reader.examples:,} records, the manifest says {shard.examples:,}"
        raise JobError(f"{path}: {said}; recordmill verify finds all that is wrong")
    return found
