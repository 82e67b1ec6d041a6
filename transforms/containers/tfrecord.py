"""TFRecord files: written, read in order, or by index."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from isal import igzip
from isal.isal_zlib import IsalError

from recordmill.schemas.errors import ConfigError, IndexMismatchError, RecordError
from recordmill.schemas.paths import is_remote
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers.container import (
    CURE,
    Container,
    Contents,
    RecordFile,
    ShardReader,
    ShardWriter,
)
from recordmill.transforms.records.shard_index import (
    ShardIndex,
    encode_index,
    index_lengths,
    locate_error,
    read_shard_index,
)
from recordmill.transforms.records.tfrecord import (
    CRC_BYTES,
    HEADER_BYTES,
    ByteStream,
    check_frame,
    framed_size,
    head,
    read_records,
    tail,
)
from recordmill.transforms.storage.resolve import GZIP, storage_for

_GZIP_FAULTS = (EOFError, IsalError, igzip.BadGzipFile)
"""Exceptions of damaged or truncated GZIP streams."""
_WRITE_BYTES = 1 << 20
"""Records are written and hashed in chunks of about this size, to take the interpreter's lock less often."""
_COPIED_BYTES = 16_384
"""Maximum size of parts of records that are joined before a write."""
_GAP_BYTES = 256 << 10
"""Maximum gap between records that are fetched with one request: its transfer takes as long as a request."""
_SPAN_BYTES = 8 << 20
"""Maximum size of a read, unless a record is larger."""
_LARGE_BYTES = 16 << 10
"""Size above which two more reads of a local file are cheaper than a copy of the record."""


class TFRecordWriter(ShardWriter):
    """Writer of the records of a TFRecord file, in chunks. Large parts of records are not copied."""

    def __init__(self, write: Callable[[bytes], object]):
        self._write = write
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._lengths = array("q")

    def append(self, *record: bytes) -> None:
        length = sum(map(len, record))
        size = framed_size(length)
        self._pending += (head(length), *record, tail(*record))
        self._pending_bytes += size
        self._lengths.append(size)
        if self._pending_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        small: list[bytes] = []
        for data in pending:
            if len(data) < _COPIED_BYTES:
                small.append(data)
                continue
            self._write(b"".join(small))
            self._write(data)
            small.clear()
        self._write(b"".join(small))

    def close(self) -> bytes:
        self._flush()
        return encode_index(index_lengths(self._lengths))


class TFRecordReader(ShardReader):
    """Reader of a TFRecord file's records. The file name determines GZIP.

    Attributes:
        lengths: Sizes of the records read so far, with their frames, in bytes.
    """

    def __init__(self, path: str):
        super().__init__(path)
        self.lengths = array("q")

    def records(self) -> Iterator[bytes]:
        """Yield each record, see ShardReader. The reason of a RecordError is `unreadable` if the GZIP stream is damaged
        or truncated."""
        with self.open() as file:
            stream = igzip.IGzipFile(fileobj=file, mode="rb") if self._path.endswith(".gz") else file
            try:
                for record in read_records(stream):
                    self.lengths.append(framed_size(len(record)))
                    self.examples += 1
                    self.record_bytes += len(record)
                    yield record
            except _GZIP_FAULTS as error:  # type: ignore[misc]
                fault = f"after {self.examples:,} records its GZIP stream is damaged or truncated ({error})"
                raise RecordError(fault, None, "unreadable") from error

    def index(self) -> bytes:
        return encode_index(index_lengths(self.lengths))


def open_records(path: str, version: str = "", is_shard: bool = False) -> Iterator[bytes]:
    """Yield the records of a TFRecord file after a check of their checksums. The content determines GZIP.

    Args:
        version: See `Storage.open`.
        is_shard: True if a manifest lists the file: without the header of a record, it is damaged.

    Raises:
        ConfigError: The file is not a TFRecord file.
        RecordError: A record is damaged. The error names the file, the record and its offset.
        OSError: The file cannot be read.
    """
    with storage_for(path).open(path, version) as file:
        start = file.read(HEADER_BYTES)
        file.seek(0)
        is_packed = start.startswith(GZIP)
        if start and len(start) < HEADER_BYTES and not is_packed:
            raise ConfigError(f"{path} is not a TFRecord file: it has {len(start)} bytes, but a record has at least 16")
        stream: ByteStream = file  # unbuffered: a buffer would copy each record
        if is_packed:
            stream = igzip.IGzipFile(fileobj=file, mode="rb")  # unbuffered: a buffer loses records before damage
        read = 0
        try:
            for record in read_records(stream):
                yield record
                read += 1
        except RecordError as error:
            raise _located_error(path, error, "" if is_packed else repr(start), is_shard) from error
        except _GZIP_FAULTS as error:  # type: ignore[misc]
            fault = f"after {read:,} records its GZIP stream is damaged or truncated ({error})"
            raise RecordError(f"{path}: {fault}{CURE * is_shard}") from error


def _located_error(path: str, error: RecordError, start: str, is_shard: bool) -> Exception:
    """Return the error with its location; `start` has the first bytes of the file, empty for GZIP."""
    if error.reason == "length_crc" and not error.record and not is_shard:
        begins = f"it begins with {start}" if start else "unpacked from GZIP"
        return ConfigError(
            f"{path} is not a TFRecord file: its first {HEADER_BYTES} bytes are not the header of a record ({begins})"
        )
    where = f"at byte {error.offset:,}{'' if start else ' of the unpacked data'}"
    detail = f"{path}: record {error.record} {where}: {error.detail}{CURE * is_shard}"
    return RecordError(detail, None, error.reason, error.offset)


class _Place(NamedTuple):
    """Position of a record: first byte, end; its number, and its position in the request."""

    start: int
    end: int
    number: int
    position: int


class TFRecordFile(RecordFile):
    """TFRecord file with random access to its records. The index is read with the first record. See RecordFile."""

    def count_records(self) -> int:
        return self.index.records

    @cached_property
    def index(self) -> ShardIndex:
        """Index of the file. Raises the errors of `read_shard_index`."""
        try:
            return read_shard_index(
                self.path, self._file.size_bytes, self._expected.examples if self._expected else None
            )
        except FileNotFoundError as error:
            raise RecordError(f"{self.path} was deleted after it was opened; open the data set again") from error
        except IndexMismatchError as error:
            now = storage_for(self.path).stat(self.path)
            if now is None or now.version != self._file.version:  # the index may match a newer file
                raise RecordError(f"{self.path} has changed since it was opened; open the data set again") from error
            raise

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return records by number, see RecordFile. Errors of the index are those of `read_shard_index`."""
        index = self.index
        wanted = self._checked(numbers, index.records)
        ends = index.bounds[wanted + 1].tolist()
        places = sorted(map(_Place, index.bounds[wanted].tolist(), ends, wanted.tolist(), range(len(ends))))
        records = [b""] * len(ends)
        for place, header, record, crc in self._read_places(places):
            try:
                check_frame(header, record, crc, place.number, place.start)
            except RecordError as error:
                cure = "; the file is damaged, or its index belongs to another file: recordmill verify tells which"
                raise locate_error(self.path, error, cure) from error
            records[place.position] = record
        return records

    def _read_places(self, places: Sequence[_Place]) -> Iterator[tuple[_Place, bytes, bytes, bytes]]:
        """Yield each place, header, record and checksum. Records that are close are read together from a bucket. A
        large record of a local file is read separately, which avoids a copy."""
        is_far = is_remote(self.path)
        spans = list(_spans(places, _GAP_BYTES if is_far else 0))
        alone = [not is_far and len(span) == 1 and span[0].end - span[0].start > _LARGE_BYTES for span in spans]
        ranges: list[tuple[int, int]] = []
        for span, is_alone in zip(spans, alone, strict=True):
            start, end = span[0].start, span[-1].end
            cuts = (start, start + HEADER_BYTES, end - CRC_BYTES, end) if is_alone else (start, end)
            ranges += [(first, last - first) for first, last in pairwise(cuts)]
        chunks = iter(self._read(ranges))
        for span, is_alone in zip(spans, alone, strict=True):
            data = next(chunks)
            if is_alone:
                yield span[0], data, next(chunks), next(chunks)
                continue
            for place in span:
                start, end = place.start - span[0].start, place.end - span[0].start
                body = data[start + HEADER_BYTES : end - CRC_BYTES]
                yield place, data[start : start + HEADER_BYTES], body, data[end - CRC_BYTES : end]

    def in_order(self) -> Iterator[bytes]:
        version = self._file.version
        try:
            yield from open_records(self.path, version, self._expected is not None)
        except FileNotFoundError as error:
            raise self._changed() from error

    def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        version = self._file.version
        try:
            return storage_for(self.path).read_ranges(self.path, ranges, version)
        except FileNotFoundError as error:
            raise self._changed() from error


def _spans(places: Iterable[_Place], gap: int) -> Iterator[list[_Place]]:
    """Group places, in order, into spans for one read: at most `gap` bytes are between two places."""
    span: list[_Place] = []
    for place in places:
        if span and (place.start - span[-1].end > gap or place.end - span[0].start > _SPAN_BYTES):
            yield span
            span = []
        span.append(place)
    if span:
        yield span


class _TFRecords(Container):
    def create(self, contents: Contents, key: ShardKey, write: Callable[[bytes], object]) -> TFRecordWriter:
        return TFRecordWriter(write)

    def read(self, path: str, contents: Contents) -> TFRecordReader:
        return TFRecordReader(path)

    def open(self, path: str, contents: Contents, expected: ShardInfo | None) -> TFRecordFile:
        return TFRecordFile(path, expected)

    def sizes_in_file(self, record_bytes: np.ndarray) -> np.ndarray:
        return framed_size(record_bytes)


CONTAINER = _TFRecords()
