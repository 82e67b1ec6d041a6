"""Base classes of containers, the kinds of files that records are stored in.

Serialised tf.Examples cross this border in order, and come back byte for byte, see docs/decisions/0051-containers.md.
`recordmill.transforms.shards.shard_file.ShardFile` owns names, uploads, checksums and notes of shards. A container owns
the bytes of a file and its index."""

import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from threading import RLock
from typing import Any, BinaryIO, NamedTuple, TypeVar
from weakref import finalize

import numpy as np

from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import RecordError, missing_extra
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.paths import is_remote
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.records.example import Buffer
from recordmill.transforms.storage.interface import StoredFile
from recordmill.transforms.storage.resolve import storage_for

_Value = TypeVar("_Value")
_READ_BYTES = 1 << 20
CURE = "; recordmill verify lists all damage, and the same command writes the shard again"
"""End of a message about a damaged shard."""


class Contents(NamedTuple):
    """Contents of all records of a data set."""

    table: FeatureTable
    labels: LabelMap


class ShardWriter(ABC):
    """Writer of the bytes of one shard, which it passes to a function in order."""

    @abstractmethod
    def append(self, *record: bytes) -> None:
        """Add a serialised tf.Example, in one or several parts.

        Raises:
            ConfigError: The container would not return the same bytes.
        """

    @abstractmethod
    def close(self) -> bytes | None:
        """Write the rest. Return the contents of the shard's index file; None if the container has none."""


class ShardReader(ABC):
    """Reader of all records of a shard in order, with size and SHA-256 of the file.

    Attributes:
        examples: Number of records read so far.
        record_bytes: Size of their tf.Examples in bytes.
        size: Bytes of the file read so far; its size once `records` has ended.
        sha256: Hash of those bytes.
    """

    def __init__(self, path: str):
        self._path = path
        self.examples = 0
        self.record_bytes = 0
        self.size = 0
        self.sha256 = hashlib.sha256()

    @abstractmethod
    def records(self) -> Iterator[bytes]:
        """Yield each record after a check of its checksums.

        Raises:
            RecordError: A record is damaged, with its number, reason and detail.
            OSError: The file cannot be read.
        """

    @abstractmethod
    def index(self) -> bytes | None:
        """Return the contents that the shard's index file must have, once `records` has ended; None without one."""

    def count(self, record: bytes) -> bytes:
        """Count a record, and return it."""
        self.examples += 1
        self.record_bytes += len(record)
        return record

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file for reads in order, which add to `size` and `sha256`. What the block leaves is read at its end,
        unless it raises."""
        with storage_for(self._path).open(self._path) as file:
            stream = io.BufferedReader(_DigestedFile(file, self), _READ_BYTES)
            yield stream
            while stream.read(_READ_BYTES):
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


class lazy_value(cached_property[_Value]):  # noqa: N801 - a decorator
    """cached_property of a RecordFile with a lock per file. functools' has one lock for all files up to Python 3.11, so
    that indexes in a bucket would be read one after the other, and none since."""

    def __get__(self, file: Any, owner: type | None = None) -> Any:
        if file is None:
            return self
        values, name = vars(file), self.attrname
        with values["_locks"].setdefault(os.getpid(), RLock()):  # a lock that is held during a fork stays locked
            if name not in values:
                values[name] = self.func(file)
        return values[name]


class RecordFile(ABC):
    """File of a container, read by number and in order. All reads are of the same version of the file. It can be
    pickled (lazy values are dropped), and is thread-safe.

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
        return self._expected.examples if self._expected else self.count_records()

    @property
    def mean_bytes(self) -> float:
        """Mean size of a record in the file."""
        size = self._expected.bytes if self._expected else self._file.size_bytes
        return size / max(1, len(self))

    @abstractmethod
    def count_records(self) -> int:
        """Return the number of records in the file."""

    @abstractmethod
    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the records with the given numbers, counted from 0, after a check of their checksums.

        Raises:
            IndexError: There is no such record.
            RecordError: A record is damaged, or the file changed since it was opened.
            IndexMismatchError, ConfigError, OSError: The index cannot be read, or is not that of the file.
        """

    @abstractmethod
    def in_order(self) -> Iterator[bytes]:
        """Yield all records after a check of their checksums.

        Raises:
            RecordError: A record is damaged, or the file changed since it was opened.
            OSError: Storage fails.
        """

    def views_in_order(self) -> Iterator[Buffer]:
        """Yield all records. A record may change when the next one is read. Errors as for `in_order`."""
        return self.in_order()

    def read_view(self, number: int, memory: memoryview) -> Buffer:
        """Return a record, perhaps as a part of `memory`. Errors as for `read`."""
        return self.read([number])[0]

    def __getstate__(self) -> dict[str, Any]:
        values = dict(vars(self))  # one step: a thread may read a lazy value meanwhile
        cached = {name for name in values if isinstance(getattr(type(self), name, None), cached_property)}
        return {name: values[name] for name in values.keys() - (cached - {"_stat"})} | {"_locks": {}}

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

    @lazy_value
    def _stat(self) -> StoredFile | None:
        return storage_for(self.path).stat(self.path)

    @lazy_value
    def _file(self) -> StoredFile:
        """The file, after a comparison with the manifest. Its `version` is for reads."""
        file, expected = self._stat, self._expected
        if file is None:
            raise RecordError(f"{self.path}: no such file{CURE}")
        if expected and (file.size_bytes != expected.bytes or file.crc32c not in ("", expected.crc32c)):
            difference = f"{file.size_bytes:,} bytes, but its manifest says {expected.bytes:,}"
            if file.size_bytes == expected.bytes:
                difference = f"the CRC-32C {file.crc32c}, but its manifest says {expected.crc32c}"
            raise RecordError(
                f"{self.path} has {difference}: it is truncated, or was replaced after the data set was opened (then "
                f"open it again){CURE}"
            )
        # Unlike __del__, finalize does nothing at the exit of the interpreter, when a release would fail.
        finalize(self, storage_for(self.path).release, self.path, file.version).atexit = False
        return file

    def _checked(self, numbers: Sequence[int], count: int) -> np.ndarray:
        """Return record numbers as int64. Raise IndexError if one is not below `count`, the number of records."""
        wanted = np.asarray(numbers, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= count)]
        if outside.size:
            raise IndexError(f"{self.path} has {count:,} records, counted from 0; record {outside[0]:,} does not exist")
        return wanted

    def _read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return ranges (offset, length) of the file. Raise RecordError if it has changed."""
        version = self._file.version
        try:
            return storage_for(self.path).read_ranges(self.path, ranges, version)
        except FileNotFoundError as error:
            raise self._changed() from error

    def _located(self, error: RecordError) -> RecordError:
        """Return the error with the path of the file."""
        return RecordError(f"{self.path}: {error}{CURE}", None, error.reason)

    def _changed(self) -> RecordError:
        return RecordError(f"{self.path} has changed or was deleted since it was opened. Open the data set again")


class Container(ABC):
    """A kind of files that records are stored in. Its module has the only instance, `CONTAINER`."""

    @abstractmethod
    def create(self, contents: Contents, key: ShardKey, write: Callable[[bytes], object]) -> ShardWriter:
        """Return the writer of a shard.

        Args:
            write: Takes the bytes of the file in order.

        Raises:
            ConfigError: The container has no place for a value of the records.
            JobError: A temporary file cannot be written.
        """

    @abstractmethod
    def read(self, path: str, contents: Contents) -> ShardReader:
        """Return a reader of a complete shard, for verify, extract and copies."""

    @abstractmethod
    def open(self, path: str, contents: Contents, expected: ShardInfo | None) -> RecordFile:
        """Return a file for reads by number, and in order."""

    def sizes_in_file(self, record_bytes: np.ndarray) -> np.ndarray | None:
        """Return the bytes of the file that each record takes, of records that lie one after the other: int64 [N].
        None if records have no byte ranges.

        Args:
            record_bytes: Sizes of the tf.Examples: int64 [N].
        """
        return None

    def folder_files(self, manifest: Manifest) -> Mapping[str, bytes]:
        """Return the files beside the shards that the manifest determines, by name. They are written at the commit, and
        verify compares them."""
        return {}

    def keep_edits(self, name: str, data: bytes, stored: bytes | None) -> bytes:
        """Return a file beside the shards with what a user may add to it.

        Args:
            data: The file as the manifest determines it.
            stored: The file in the folder; None if there is none.
        """
        return data


def container_of(name: str) -> Container:
    """Return the container of a row of CONTAINERS.

    Raises:
        ConfigError: Its extra is not installed.
    """
    row = CONTAINERS[name]
    if not row.is_installed:
        raise missing_extra(f"Container {name}", row.extra)
    container: Container = import_module(row.module).CONTAINER
    return container
