"""Read TFRecord files in order, or by index."""

import hashlib
import io
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from threading import RLock
from typing import Any, BinaryIO, NamedTuple, TypeVar
from weakref import finalize

import numpy as np
from isal import igzip
from isal.isal_zlib import IsalError

from recordmill.schemas.errors import ConfigError, IndexMismatchError, RecordError
from recordmill.schemas.paths import is_remote
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.records.example import Buffer
from recordmill.transforms.records.shard_index import ShardIndex, locate_error, read_shard_index
from recordmill.transforms.records.tfrecord import (
    CRC_BYTES,
    HEADER_BYTES,
    ByteStream,
    check_frame,
    framed_size,
    read_records,
)
from recordmill.transforms.storage.interface import StoredFile
from recordmill.transforms.storage.resolve import GZIP, storage_for

_Value = TypeVar("_Value")
_GZIP_FAULTS = (EOFError, IsalError, igzip.BadGzipFile)
"""Exceptions of damaged or truncated GZIP streams."""
_READ_BYTES = 1 << 20
_GAP_BYTES = 256 << 10
"""Maximum gap between records that are fetched with one request: its transfer takes as long as a request."""
_SPAN_BYTES = 8 << 20
"""Maximum size of a read, unless a record is larger."""
_LARGE_BYTES = 16 << 10
"""Size above which two more reads of a local file are cheaper than a copy of the record."""
_FILES = 32
"""Number of files that are read concurrently."""
_CURE = "; recordmill verify lists all damage, and the same command writes the shard again"
_BATCH_BYTES = 1 << 20
"""Minimum size of a concurrent read of local files; less is read before threads start."""


class ShardReader:
    """Reader of a TFRecord file's records, with the size and SHA-256 of the file.

    Attributes:
        lengths: Sizes of the records read so far, with their frames, in bytes.
        size: Bytes read so far; the file's size once `records` has ended.
        sha256: Hash of those bytes.
    """

    def __init__(self, path: str):
        self._path = path
        self.lengths = array("q")
        self.size = 0
        self.sha256 = hashlib.sha256()

    @property
    def examples(self) -> int:
        """Number of records read so far."""
        return len(self.lengths)

    def records(self) -> Iterator[bytes]:
        """Yield each record after a check of its checksums. The file name determines GZIP.

        Raises:
            RecordError: A record is damaged; the reason is `unreadable` if the GZIP stream is damaged or truncated.
            OSError: The file cannot be read.
        """
        with storage_for(self._path).open(self._path) as file:
            seen = io.BufferedReader(_DigestedFile(file, self), _READ_BYTES)
            stream = igzip.IGzipFile(fileobj=seen, mode="rb") if self._path.endswith(".gz") else seen
            try:
                for record in read_records(stream):
                    self.lengths.append(framed_size(len(record)))
                    yield record
            except _GZIP_FAULTS as error:  # type: ignore[misc]
                fault = f"after {self.examples:,} records its GZIP stream is damaged or truncated ({error})"
                raise RecordError(fault, None, "unreadable") from error
            while seen.read(_READ_BYTES):  # read the rest, so that the digest covers the complete file
                pass


class _DigestedFile(io.RawIOBase):
    """File that adds the bytes it returns to the reader's size and digest."""

    def __init__(self, file: BinaryIO, reader: ShardReader):
        self._file = file
        self._reader = reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._reader.sha256.update(data)
        self._reader.size += len(data)
        return len(data)


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
            raise RecordError(f"{path}: {fault}{_CURE * is_shard}") from error


def _located_error(path: str, error: RecordError, start: str, is_shard: bool) -> Exception:
    """Return the error with its location; `start` has the first bytes of the file, empty for GZIP."""
    if error.reason == "length_crc" and not error.record and not is_shard:
        begins = f"it begins with {start}" if start else "unpacked from GZIP"
        return ConfigError(
            f"{path} is not a TFRecord file: its first {HEADER_BYTES} bytes are not the header of a record ({begins})"
        )
    where = f"at byte {error.offset:,}{'' if start else ' of the unpacked data'}"
    detail = f"{path}: record {error.record} {where}: {error.detail}{_CURE * is_shard}"
    return RecordError(detail, None, error.reason, error.offset)


class _Place(NamedTuple):
    """Position of a record: first byte, end; its number, and its position in the request."""

    start: int
    end: int
    number: int
    position: int


class _LazyValue(cached_property[_Value]):
    """cached_property with a lock per file. functools' has one lock for all files up to Python 3.11, so that indexes in
    a bucket would be read one after the other, and none since."""

    def __get__(self, file: Any, owner: type | None = None) -> Any:
        if file is None:
            return self
        values, name = vars(file), self.attrname
        with values["_locks"].setdefault(os.getpid(), RLock()):  # a lock that is held during a fork stays locked
            if name not in values:
                values[name] = self.func(file)
        return values[name]


class RecordFile:
    """TFRecord file with random access to its records. The index is read with the first record. All reads are of the
    same version of the file. It can be pickled, and is thread-safe.

    Args:
        expected: Entry of the file in the manifest; None without one.
    """

    def __init__(self, path: str, expected: ShardInfo | None = None):
        self.path = path
        self._expected = expected
        self._locks: dict[int, RLock] = {}
        if not is_remote(path):
            _ = self._stat  # remember the version: the file may be replaced before the first read

    def __len__(self) -> int:
        return self._expected.examples if self._expected else self.index.records

    @property
    def mean_bytes(self) -> float:
        """Mean size of a record with its frame."""
        size = self._expected.bytes if self._expected else self.index.size
        return size / max(1, len(self))

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in ("index", "_file")}
        return state | {"_locks": {}}

    def check(self) -> None:
        """Check the file.

        Raises:
            RecordError: The file is missing, changed since it was opened, or differs from the manifest.
        """
        has_stat, version = "_stat" in vars(self), self._file.version
        if has_stat:
            now = storage_for(self.path).stat(self.path)
            if now is None or now.version != version:
                raise self._changed()

    @_LazyValue
    def _stat(self) -> StoredFile | None:
        return storage_for(self.path).stat(self.path)

    @_LazyValue
    def _file(self) -> StoredFile:
        file, expected = self._stat, self._expected
        if file is None:
            raise RecordError(f"{self.path}: no such file{_CURE}")
        if expected and (file.size_bytes != expected.bytes or file.crc32c not in ("", expected.crc32c)):
            difference = f"{file.size_bytes:,} bytes, but its manifest says {expected.bytes:,}"
            if file.size_bytes == expected.bytes:
                difference = f"the CRC-32C {file.crc32c}, but its manifest says {expected.crc32c}"
            raise RecordError(
                f"{self.path} has {difference}: it was replaced or truncated; open the data set again, or run "
                "recordmill verify"
            )
        # Unlike __del__, finalize does nothing at the exit of the interpreter, when a release would fail.
        finalize(self, storage_for(self.path).release, self.path, file.version).atexit = False
        return file

    @_LazyValue
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
        """Return the records with the given numbers, counted from 0, after a check of their checksums.

        Raises:
            IndexError: There is no such record.
            RecordError: A record is damaged, or the file changed since it was opened.
            IndexMismatchError, ConfigError, OSError: See `read_shard_index`.
        """
        index = self.index
        wanted = np.asarray(numbers, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= index.records)]
        if outside.size:
            raise IndexError(
                f"{self.path} has {index.records:,} records, counted from 0; record {outside[0]:,} does not exist"
            )
        ends = index.bounds[wanted + 1].tolist()
        places = sorted(map(_Place, index.bounds[wanted].tolist(), ends, wanted.tolist(), range(len(ends))))
        records = [b""] * len(ends)
        for place, header, record, crc in self._read_places(places):
            self._check(header, record, crc, place.number, place.start)
            records[place.position] = record
        return records

    def read_view(self, number: int, memory: memoryview) -> Buffer:
        """Return a record of a local file as a part of `memory`, and as bytes if this is too small. Errors as for
        `read`."""
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
            cure = "; the file is damaged, or its index belongs to another file: recordmill verify tells which"
            raise locate_error(self.path, error, cure) from error

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

    def in_order(self, read: Callable[[ByteStream], Iterator[Any]] = read_records) -> Iterator[Any]:
        """Yield all records after a check of their checksums.

        Args:
            read: See `open_records`.

        Raises:
            RecordError: A record is damaged, or the file changed since it was opened.
            OSError: Storage fails.
        """
        version = self._file.version
        try:
            yield from open_records(self.path, version, self._expected is not None, read)
        except FileNotFoundError as error:
            raise self._changed() from error

    def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        version = self._file.version
        try:
            return storage_for(self.path).read_ranges(self.path, ranges, version)
        except FileNotFoundError as error:
            raise self._changed() from error

    def _changed(self) -> RecordError:
        return RecordError(f"{self.path} has changed or was deleted since it was opened; open the data set again")


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


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    """Return threads for concurrent reads, which do not survive forks."""
    return ThreadPoolExecutor(_FILES, "records")


class RecordFiles:
    """Several files as one, with consecutive record numbers. See `RecordFile`."""

    def __init__(self, files: Sequence[RecordFile]):
        self.files = tuple(files)

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(file) for file in self.files], dtype=np.int64)

    def _is_worth_threads(self, records: int) -> bool:
        """Return True if concurrent reads of several files are faster for this number of records."""
        first = self.files[0]
        return is_remote(first.path) or records * first.mean_bytes > _BATCH_BYTES

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.files else 0

    def read_view(self, number: int, memory: memoryview) -> Buffer:
        """Return a record. See `RecordFile.read_view`."""
        index = int(np.searchsorted(self._ends, number, side="right"))
        return self.files[index].read_view(number - (int(self._ends[index - 1]) if index else 0), memory)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the records with the given numbers, with concurrent reads of files. See `RecordFile.read`."""
        wanted = np.asarray(numbers, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if outside.size:
            raise IndexError(f"there are {len(self):,} records, counted from 0; record {outside[0]:,} does not exist")
        file_index = np.searchsorted(self._ends, wanted, side="right")
        within = wanted - np.concatenate([[0], self._ends])[file_index]
        parts = [(self.files[index], np.flatnonzero(file_index == index)) for index in np.unique(file_index).tolist()]
        reads = [partial(file.read, within[positions]) for file, positions in parts]
        if len(parts) > 1 and self._is_worth_threads(len(wanted)):
            results = [future.result() for future in [_threads(os.getpid()).submit(read) for read in reads]]
        else:
            results = [read() for read in reads]
        records = [b""] * len(wanted)
        for (_, positions), read in zip(parts, results, strict=True):
            for position, record in zip(positions.tolist(), read, strict=True):
                records[position] = record
        return records
