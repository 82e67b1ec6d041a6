"""The index of a TFRecord file is written where readers look for it."""

from collections.abc import Callable

from recordmill.schemas.errors import RecordError
from recordmill.schemas.shard_index import ShardIndex, encode_index
from recordmill.transforms.index.build_index import build_index
from recordmill.transforms.index.read_index import index_path
from recordmill.transforms.storage.resolve import storage_for


def index_shard(path: str, records: int | None, read: Callable[[int], object]) -> tuple[ShardIndex, bool]:
    """Write the index of a TFRecord file, unless it is there; it, and whether it was not.

    Args:
        records: how many are in the file, where a manifest says so.
        read: see `build_index`.

    Raises:
        ConfigError, RecordError, OSError: see `build_index`; or there are not so many records.
    """
    index = build_index(path, read)
    if records not in (index.records, None):
        raise RecordError(
            f"{path} has {index.records:,} records, where its manifest says {records:,}: it was replaced or cut; "
            "recordmill verify says more"
        )
    data, target, storage = encode_index(index), index_path(path), storage_for(path)
    is_new = storage.size(target) != len(data) or storage.read(target) != data
    if is_new:
        storage.write(target, data)
    return index, is_new
