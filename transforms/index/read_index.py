"""The index of a shard: from its file, or made of the shard where there is none; and written where it is looked for."""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from io import SEEK_END, BytesIO
from typing import TypeVar

from recordmill.schemas.errors import ConfigError, IndexMismatchError, RecordError
from recordmill.schemas.shard_index import ShardIndex, decode_index, encode_index, index_file, index_of
from recordmill.schemas.tfrecord import HEADER_BYTES, read_lengths
from recordmill.transforms.storage.interface import Storage
from recordmill.transforms.storage.read_unpacked import GZIP
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_EVERY = 1 << 12


def index_path(path: str) -> str:
    """The path of the index of the shard `path`."""
    folder, name = split_folder(path)
    return join_path(folder, index_file(name))


def split_folder(path: str) -> tuple[str, str]:
    """The folder that a file is in, and its name there.

    >>> split_folder("gs://bucket/out/a.tfrecord"), split_folder("a.tfrecord")
    (('gs://bucket/out', 'a.tfrecord'), ('.', 'a.tfrecord'))
    """
    folder, slash, name = path.rpartition("/")
    return folder or slash or ".", name


def read_index(path: str, size: int, records: int | None = None) -> ShardIndex:
    """The index of the shard `path`, from its file; of a shard without, by one pass over it, which is said once a
    folder.

    Args:
        size: of the shard, in bytes.
        records: how many are in it, where that is known.

    Raises:
        IndexMismatchError: the file is no index, or not of this shard.
        ConfigError, RecordError: there is none, and the shard is GZIP, or damaged.
        OSError: a file cannot be read.
    """
    index = _stored(storage_for(path), path)
    if index is None:
        index = build_index(path)
        _say_once(split_folder(path)[0])
    if index.size != size:
        what = f"of a shard of {index.size:,} bytes, where it has {size:,}"
    elif records not in (index.records, None):
        what = f"of {index.records:,} records, where the manifest says {records:,}"
    else:
        return index
    raise IndexMismatchError(f"{index_path(path)} is {what}; recordmill index {path} makes it anew")


def _stored(storage: Storage, path: str) -> ShardIndex | None:
    file = index_path(path)
    try:
        return decode_index(storage.read(file))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise IndexMismatchError(f"{file}: {error}; recordmill index {path} makes it anew") from error


@lru_cache(maxsize=1024)
def _say_once(folder: str) -> None:
    _LOGGER.warning(
        "%s has no index for all its shards, so each is passed over once when it is first read; "
        "recordmill index %s writes them",
        folder,
        folder,
    )


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


def build_index(path: str, read: Callable[[int], object] = lambda _: None) -> ShardIndex:
    """The index of a TFRecord file: the lengths of its records, whose checksums are checked, from the first to the
    last. Of a local file hardly more than these is read; one in a bucket comes whole.

    Args:
        read: is called now and then, with how many records have been passed since.

    Raises:
        ConfigError: it is GZIP, or no TFRecord file.
        RecordError: at the first record that is cut short, or the checksum of whose length is wrong.
        OSError: the file cannot be read, or is none.
    """
    with storage_for(path).open(path) as file:
        size = file.seek(0, SEEK_END)
        file.seek(0)
        try:
            return index_of(array("q", _counted(read_lengths(file, size), read)))
        except RecordError as error:
            file.seek(0)
            raise _explained(path, file.read(HEADER_BYTES), error) from error


def check_indexable(path: str) -> None:
    """Raises ConfigError where a file is GZIP, or no TFRecord file, as far as its first bytes say."""
    storage = storage_for(path)
    start = storage.read_range(path, 0, HEADER_BYTES)
    try:
        next(read_lengths(BytesIO(start), storage.size(path) or 0), None)
    except RecordError as error:
        if isinstance(explained := _explained(path, start, error), ConfigError):
            raise explained from error


Item = TypeVar("Item")


def _counted(items: Iterable[Item], read: Callable[[int], object]) -> Iterator[Item]:
    number = 0
    for number, item in enumerate(items, 1):
        if number % _EVERY == 0:
            read(_EVERY)
        yield item
    read(number % _EVERY)


def _explained(path: str, start: bytes, error: RecordError) -> Exception:
    if error.record or (error.reason != "length_crc" and len(start) == HEADER_BYTES):
        return located(path, error)
    if start.startswith(GZIP):
        return ConfigError(
            f"{path} is GZIP, which can be read from its beginning only, so no index serves it; read it in order, or "
            "convert without --gzip"
        )
    return ConfigError(f"{path} is no TFRecord file: it does not begin with the header of a record ({error.detail})")


def located(path: str, error: RecordError, cure: str = "") -> RecordError:
    """The error with where it is."""
    detail = f"{path}: record {error.record} at byte {error.offset:,}: {error.detail}{cure}"
    return RecordError(detail, None, error.reason, error.offset)
