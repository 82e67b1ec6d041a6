"""Statistics of splits that have none, as an older program wrote them: their records are read."""

from collections.abc import Callable
from functools import reduce
from hashlib import sha256

import msgspec

from recordmill.schemas.errors import JobError, RecordError
from recordmill.schemas.manifest import Manifest, encode_json
from recordmill.schemas.statistics import Statistics, split_statistics
from recordmill.transforms.metadata.folder_statistics import read_file, statistics_files
from recordmill.transforms.records.record_values import RecordParseError
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.statistics.add_statistics import add_statistics
from recordmill.transforms.statistics.count_records import count_records
from recordmill.transforms.statistics.describe_statistics import describe_statistics
from recordmill.transforms.storage.resolve import storage_for


def complete_statistics(folder: str, manifest: Manifest, read: Callable[[int], None]) -> list[str]:
    """Count the splits whose statistics are not there, or not as they were written; which those are.

    Args:
        read: is told how many records have been read.

    Raises:
        JobError: a shard is damaged.
        OSError: a shard is gone; nothing can be written there.
    """
    storage = storage_for(folder)
    lacking = [split for split in manifest.splits if not _has_statistics(folder, manifest, split)]
    seen = 0
    for split in lacking:
        parts = []
        for shard in manifest.splits[split].shards:
            path = storage.join(folder, shard.file)
            parts.append(_of_shard(path, shard.file, manifest, manifest.splits[split].recipe.is_measured))
            seen += shard.examples
            read(seen)
        counts = manifest.splits[split].class_counts
        found = describe_statistics(
            reduce(add_statistics, parts, Statistics()), manifest.labels, manifest.table, counts
        )
        storage.write(storage.join(folder, split_statistics(split)), encode_json(found))
    for name, data in statistics_files(folder, manifest.splits).items():
        if read_file(folder, name) != data:  # an older program may have written it, too
            storage.write(storage.join(folder, name), data)
    return lacking


def _has_statistics(folder: str, manifest: Manifest, split: str) -> bool:
    data, digest = read_file(folder, split_statistics(split)), manifest.splits[split].statistics_sha256
    return data is not None and digest in (msgspec.UNSET, sha256(data).hexdigest())


def _of_shard(path: str, file: str, manifest: Manifest, is_measured: bool) -> Statistics:
    try:
        return count_records(ShardReader(path).records(), manifest.table, manifest.labels, file, is_measured)
    except (RecordError, RecordParseError) as error:
        raise JobError(f"{path}: {error}; recordmill verify finds all that is wrong") from error
