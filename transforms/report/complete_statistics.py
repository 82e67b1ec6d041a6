"""Statistics and fingerprints of splits that have none, as an older program wrote them: their records are read."""

from collections.abc import Callable
from functools import reduce
from hashlib import sha256

import msgspec

from recordmill.schemas.duplicates import split_fingerprints
from recordmill.schemas.errors import JobError, RecordError
from recordmill.schemas.layouts import has_picture
from recordmill.schemas.manifest import Manifest, encode_json
from recordmill.schemas.shards import index_of
from recordmill.schemas.statistics import Statistics, split_statistics
from recordmill.transforms.metadata.commit_splits import publish
from recordmill.transforms.metadata.folder_duplicates import fingerprint_lines
from recordmill.transforms.metadata.folder_statistics import read_file, statistics_files
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
        JobError: a shard is damaged.
        OSError: a shard is gone; nothing can be written there.
    """
    lacking = [split for split in manifest.splits if not _is_counted(folder, manifest, split)]
    seen = 0
    for split in lacking:
        parts: list[Counted] = []
        is_measured = manifest.splits[split].recipe.is_measured
        for shard in sorted(manifest.splits[split].shards, key=lambda shard: index_of(shard.file)):
            after = parts[-1].last_image if parts else None
            parts.append(_of_shard(folder, shard.file, manifest, is_measured, after))
            seen += shard.examples
            read(seen)
        _write(folder, manifest, split, parts)
    # An older program may have written what is of all splits, too.
    if lacking or any(read_file(folder, name) != of for name, of in statistics_files(folder, manifest.splits).items()):
        publish(folder)
    return lacking


def _write(folder: str, manifest: Manifest, split: str, parts: list[Counted]) -> None:
    storage = storage_for(folder)
    counts = manifest.splits[split].class_counts
    whole = reduce(add_statistics, (part.statistics for part in parts), Statistics())
    found = describe_statistics(whole, manifest.labels, manifest.table, counts)
    storage.write(storage.join(folder, split_statistics(split)), encode_json(found))
    if has_picture(manifest.table):
        lines = fingerprint_lines(part.fingerprints for part in parts if part.fingerprints)
        storage.write(storage.join(folder, split_fingerprints(split)), lines)


def _is_counted(folder: str, manifest: Manifest, split: str) -> bool:
    entry = manifest.splits[split]
    files = {split_statistics(split): entry.statistics_sha256}
    if has_picture(manifest.table):
        files[split_fingerprints(split)] = entry.fingerprints_sha256
    return all(_is_there(folder, file, digest) for file, digest in files.items())


def _is_there(folder: str, file: str, digest: str | msgspec.UnsetType) -> bool:
    data = read_file(folder, file)
    return data is not None and digest in (msgspec.UNSET, sha256(data).hexdigest())


def _of_shard(folder: str, file: str, manifest: Manifest, is_measured: bool, after: int | None) -> Counted:
    path = storage_for(folder).join(folder, file)
    try:
        return count_records(ShardReader(path).records(), manifest.table, manifest.labels, file, is_measured, after)
    except (RecordError, RecordParseError) as error:
        raise JobError(f"{path}: {error}; recordmill verify finds all that is wrong") from error
