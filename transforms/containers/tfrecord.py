"""TFRecord files: written, read in order, or by index."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from isal import igzip
from isal.isal_zlib import IsalError

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.paths import is_remote
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers.container import (
    CURE,
    Container,
    Contents,
    ShardReader,
    ShardWriter,
)
from recordmill.transforms.containers.indexed_file import IndexedFile, Place
from recordmill.transforms.records.example import Buffer
from recordmill.transforms.records.shard_index import (
    ShardIndex,
    build_index,
    decode_index,
    encode_index,
    index_lengths,
    read_shard_index,
)
from recordmill.transforms.records.tar import is_gzip_tar, is_tar
from recordmill.transforms.records.tfrecord import (
    CRC_BYTES,
    HEADER_BYTES,
    ByteStream,
    check_frame,
    framed_size,
    head,
    read_records,
    read_views,
    tail,
)
from recordmill.transforms.storage.resolve import GZIP, storage_for

_GZIP_FAULTS = (EOFError, IsalError, igzip.BadGzipFile)
"""Exceptions of damaged or truncated GZIP streams."""
_WRITE_BYTES = 1 << 20
"""Records are written and hashed in chunks of about this size, to take the interpreter's lock less often."""
_COPIED_BYTES = 16_384
"""Maximum size of parts of records that are joined before a write."""
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


def open_records(
    path: str,
    version: str = "",
    is_shard: bool = False,
    read: Callable[[ByteStream], Iterator[Any]] = read_records,
) -> Iterator[Any]:
    """Yield the records of a TFRecord file after a check of their checksums. The content determines GZIP.

    Args:
        version: See `Storage.open`.
        is_shard: True if a manifest lists the file: without the header of a record, it is damaged.
        read: `read_records` or `read_views`.

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
        number = 0
        try:
            for record in read(stream):
                yield record
                number += 1
        except RecordError as error:
            raise _located_error(path, error, "" if is_packed else repr(start), is_shard) from error
        except _GZIP_FAULTS as error:  # type: ignore[misc]
            fault = f"after {number:,} records its GZIP stream is damaged or truncated ({error})"
            raise RecordError(f"{path}: {fault}{CURE * is_shard}") from error


def _located_error(path: str, error: RecordError, start: str, is_shard: bool) -> Exception:
    """Return the error with its location; `start` has the first bytes of the file, empty for GZIP."""
    if error.reason == "length_crc" and not error.record and not is_shard:
        if is_tar(path) or is_gzip_tar(path):
            return ConfigError(
                f"{path} is a tar file, not a TFRecord file: tar -tf lists it and the library webdataset reads it, but "
                "Recordmill reads only the tar files that a manifest.json in their folder lists"
            )
        begins = f"it begins with {start}" if start else "unpacked from GZIP"
        return ConfigError(
            f"{path} is not a TFRecord file: its first {HEADER_BYTES} bytes are not the header of a record ({begins})"
        )
    where = f"at byte {error.offset:,}{'' if start else ' of the unpacked data'}"
    detail = f"{path}: record {error.record} {where}: {error.detail}{CURE * is_shard}"
    return RecordError(detail, None, error.reason, error.offset)


class TFRecordFile(IndexedFile):
    """TFRecord file with random access to its records. See IndexedFile."""

    def read_index(self) -> ShardIndex:
        records = self._expected.examples if self._expected else None
        return read_shard_index(self.path, self._file.size_bytes, records, decode_index, build_index)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return records by number, see RecordFile. Errors of the index are those of `read_shard_index`."""
        records = [b""] * len(numbers)
        for place, header, record, crc in self._read_places(self._spans(numbers)):
            self._check(header, record, crc, place.number, place.start)
            records[place.position] = record
        return records

    def read_view(self, number: int, memory: memoryview) -> Buffer:
        """Return a record of a local file as a part of `memory`, and as bytes if this is too small. Errors as for
        `read`."""
        self._checked([number], self.index.records)
        start, end = self.index.bounds[number : number + 2].tolist()
        size, version = end - start, self._file.version
        if size > len(memory) or is_remote(self.path):
            return self.read([number])[0]
        try:
            read = storage_for(self.path).read_into(self.path, start, memory[:size], version)
        except FileNotFoundError as error:
            raise self._changed() from error
        data = memory[:read]
        record, crc = data[HEADER_BYTES : size - CRC_BYTES], bytes(data[size - CRC_BYTES :])
        self._check(bytes(data[:HEADER_BYTES]), np.frombuffer(record, np.uint8), crc, number, start)
        return record

    def _check(self, header: bytes, record: bytes | np.ndarray, crc: bytes, number: int, start: int) -> None:
        try:
            check_frame(header, record, crc, number, start)
        except RecordError as error:
            raise self._damage(error) from error

    def _read_places(self, spans: Sequence[Sequence[Place]]) -> Iterator[tuple[Place, bytes, bytes, bytes]]:
        """Yield each place, header, record and checksum. A large record of a local file is read separately, which
        avoids a copy."""
        is_far = is_remote(self.path)
        alone = [not is_far and len(span) == 1 and span[0].end - span[0].start > _LARGE_BYTES for span in spans]
        ranges: list[tuple[int, int]] = []
        for span, is_alone in zip(spans, alone, strict=True):
            start, end = span[0].start, span[-1].end
            cuts = (start, start + HEADER_BYTES, end - CRC_BYTES, end) if is_alone else (start, end)
            ranges += [(first, last - first) for first, last in pairwise(cuts)]
        chunks = iter(self._read_ranges(ranges))
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
        return self._in_order(read_records)

    def views_in_order(self) -> Iterator[Buffer]:
        return self._in_order(read_views)

    def _in_order(self, read: Callable[[ByteStream], Iterator[Any]]) -> Iterator[Any]:
        version = self._file.version
        try:
            yield from open_records(self.path, version, self._expected is not None, read)
        except FileNotFoundError as error:
            raise self._changed() from error


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
