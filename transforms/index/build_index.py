"""The index of anybody's TFRecord file, from its records' frames."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from io import SEEK_END, BytesIO
from typing import TypeVar

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.shard_index import ShardIndex, index_of
from recordmill.schemas.tfrecord import HEADER_BYTES, read_lengths
from recordmill.transforms.storage.read_unpacked import GZIP
from recordmill.transforms.storage.resolve import storage_for

_EVERY = 1 << 12


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
