"""Index of a shard, for random access to its records.

It has a line per record, `offset length`, in bytes of the file, with the record's frame: the format of DALI's and
PyPI's tfrecord2idx. Indexes are in a separate folder, so that no pattern for shards, such as `coco-train.tfrecord-*`,
matches them. A shard without an index is scanned once.
"""

import logging
import shlex
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from io import SEEK_END, BytesIO
from itertools import accumulate, pairwise
from typing import TypeVar

import msgspec
import numpy as np

from recordmill.schemas.errors import ConfigError, IndexMismatchError, RecordError
from recordmill.transforms.records.tfrecord import HEADER_BYTES, framed_size, read_lengths, read_records
from recordmill.transforms.storage.resolve import GZIP, join_path, split_folder, storage_for

_LOGGER = logging.getLogger(__name__)

INDEX = ".index"
"""Folder of the indexes, next to the shards."""
ENDING = ".idx"
_EVERY = 1 << 12  # records

Item = TypeVar("Item")


def index_file(shard: str) -> str:
    """Return the path of a shard's index, relative to the folder of the shard.

    >>> index_file("coco-train.tfrecord-00000-of-00008")
    '.index/coco-train.tfrecord-00000-of-00008.idx'
    """
    return f"{INDEX}/{shard}{ENDING}"


class ShardIndex(msgspec.Struct, frozen=True):
    """Positions of the records of a shard.

    Attributes:
        bounds: int64 [N + 1]; record i is the bytes of the file from bounds[i] to bounds[i + 1], with its frame.
    """

    bounds: np.ndarray

    @property
    def records(self) -> int:
        return len(self.bounds) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Size of each framed record in bytes: int64 [N]."""
        return np.diff(self.bounds)

    @property
    def size(self) -> int:
        """Size of the shard in bytes."""
        return int(self.bounds[-1])


def index_lengths(lengths: Iterable[int]) -> ShardIndex:
    """Return the index of consecutive records with these sizes in bytes, with their frames."""
    return ShardIndex(np.fromiter(accumulate(lengths, initial=0), np.int64))


def encode_index(index: ShardIndex) -> bytes:
    """Return the index as text.

    >>> encode_index(index_lengths([20, 17]))
    b'0 20\\n20 17\\n'
    """
    return "".join([f"{start} {end - start}\n" for start, end in pairwise(index.bounds.tolist())]).encode()


def decode_index(data: bytes) -> ShardIndex:
    """Return the index in `data`.

    Raises:
        ValueError: `data` is not an index of consecutive records. The message says why.
    """
    lines = data.count(b"\n")
    if data.translate(None, b"0123456789") != b" \n" * lines:
        raise ValueError("its lines do not have two numbers each, or its last line is truncated")
    numbers = np.fromstring(data.decode(), np.int64, sep=" ")
    if len(numbers) != 2 * lines:
        raise ValueError("a line does not have two numbers")
    offsets, lengths = numbers.reshape(-1, 2).T
    if wrong := np.flatnonzero(lengths < framed_size(0)).tolist():
        raise ValueError(f"record {wrong[0]} has {lengths[wrong[0]]} bytes, but a frame alone has {framed_size(0)}")
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    if wrong := np.flatnonzero(offsets != bounds[:-1]).tolist():
        first = wrong[0]
        raise ValueError(
            f"record {first} begins at byte {offsets[first]:,}, but the previous record ends at {bounds[first]:,}"
        )
    if bounds[-1] < 0:  # the sum has overflowed
        raise ValueError(f"record {lines - 1} ends beyond the size of any file")
    return ShardIndex(bounds)


def index_path(path: str) -> str:
    """Return the path of the index of the shard `path`."""
    folder, name = split_folder(path)
    return join_path(folder, index_file(name))


def read_shard_index(
    path: str,
    size: int,
    records: int | None,
    decode: Callable[[bytes], ShardIndex],
    build: Callable[[str], ShardIndex],
) -> ShardIndex:
    """Return the index of the shard `path` from its file. Without a file, the shard is scanned, with one warning per
    folder.

    Args:
        size: Size of the records in the shard, with their frames, in bytes.
        records: Number of records; None if unknown.
        decode: Decoder of the file; it raises ValueError.
        build: Function that scans the shard.

    Raises:
        IndexMismatchError: The file is not an index, or not the index of this shard.
        ConfigError, RecordError: There is no index, and the shard is GZIP, or damaged.
        OSError: A file cannot be read.
    """
    cure = f"Write it again: recordmill index {shlex.quote(path)}"
    try:
        index = decode(storage_for(path).read(index_path(path)))
    except FileNotFoundError:
        index = build(path)
        _warn_once(split_folder(path)[0])
    except ValueError as error:
        raise IndexMismatchError(f"{index_path(path)}: {error}. {cure}") from error
    if index.size != size:
        what = f"for a shard of {index.size:,} bytes, but the shard has {size:,}"
    elif records not in (index.records, None):
        what = f"for {index.records:,} records, but the manifest says {records:,}"
    else:
        return index
    raise IndexMismatchError(f"{index_path(path)} is {what}. {cure}")


@lru_cache(maxsize=1024)
def _warn_once(folder: str) -> None:
    _LOGGER.warning(
        "%s has shards without an index, and each of them is scanned when it is first read; "
        "recordmill index %s writes the indexes",
        folder,
        shlex.quote(folder),
    )


def index_shard(path: str, records: int | None, read: Callable[[int], object]) -> tuple[ShardIndex, bool]:
    """Write the index of a TFRecord file, unless it exists. Return the index, and True if it was written.

    Args:
        records: Number of records in the manifest; None if unknown.
        read: See `build_index`.

    Raises:
        ConfigError, RecordError, OSError: See `build_index`; or the number of records differs.
    """
    index = build_index(path, read, checks_records=True)
    return index, store_index(path, encode_index(index), index.records, records)


def store_index(path: str, data: bytes, records: int, expected: int | None) -> bool:
    """Write the index of a shard, unless it exists. Return True if it was written.

    Args:
        records, expected: Number of records, in the shard and in the manifest; None if unknown.

    Raises:
        RecordError: The numbers differ.
        OSError: It cannot be written.
    """
    if expected not in (records, None):
        raise RecordError(
            f"{path} has {records:,} records, but its manifest says {expected:,}: it was replaced or truncated; "
            "recordmill verify has the details"
        )
    target, storage = index_path(path), storage_for(path)
    is_new = storage.size(target) != len(data) or storage.read(target) != data
    if is_new:
        storage.write(target, data)
    return is_new


def build_index(path: str, read: Callable[[int], object] = lambda _: None, checks_records: bool = False) -> ShardIndex:
    """Return the index of a TFRecord file. All lengths of records and their checksums are read. A local file is read
    only at these; a file in a bucket is read completely.

    Args:
        read: Progress callback; its argument is the number of records since the last call.
        checks_records: True to read the records, too, and check their checksums.

    Raises:
        ConfigError: The file is GZIP, or not a TFRecord file.
        RecordError: A record is truncated, or a checksum is wrong.
        OSError: The file cannot be read.
    """
    with storage_for(path).open(path) as file:
        size = file.seek(0, SEEK_END)
        file.seek(0)
        try:
            lengths = map(framed_size, map(len, read_records(file))) if checks_records else read_lengths(file, size)
            return index_lengths(array("q", with_progress(lengths, read)))
        except RecordError as error:
            file.seek(0)
            raise _explain_error(path, file.read(HEADER_BYTES), error) from error


def check_indexable(path: str) -> None:
    """Raise ConfigError if the first bytes of a file are GZIP, or not those of a TFRecord file."""
    storage = storage_for(path)
    start = storage.read_range(path, 0, HEADER_BYTES)
    try:
        next(read_lengths(BytesIO(start), storage.size(path) or 0), None)
    except RecordError as error:
        if isinstance(explained := _explain_error(path, start, error), ConfigError):
            raise explained from error


def with_progress(items: Iterable[Item], read: Callable[[int], object]) -> Iterator[Item]:
    """Yield items, and call `read` with the number of items since the last call."""
    number = 0
    for number, item in enumerate(items, 1):
        if number % _EVERY == 0:
            read(_EVERY)
        yield item
    read(number % _EVERY)


def _explain_error(path: str, start: bytes, error: RecordError) -> Exception:
    if error.record or (error.reason != "length_crc" and len(start) == HEADER_BYTES):
        return locate_error(path, error)
    if start.startswith(GZIP):
        return ConfigError(
            f"{path} is GZIP, which can only be read from its beginning, so it cannot have an index. Read it in order, "
            "or convert without --gzip"
        )
    return ConfigError(f"{path} is not a TFRecord file: it does not begin with the header of a record ({error.detail})")


def locate_error(path: str, error: RecordError, cure: str = "") -> RecordError:
    """Return the error with its location."""
    detail = f"{path}: record {error.record} at byte {error.offset:,}: {error.detail}{cure}"
    return RecordError(detail, None, error.reason, error.offset)
