"""ArrayRecord files: written by array_record's own writer, one record per group, and read in order or by number.

The library reads and writes local files only. A shard is written to a temporary file first, and a file in a bucket is
copied to one. Temporary files have no name: they vanish with the process, however it ends."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import Lock
from typing import IO
from weakref import finalize

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from recordmill.schemas.errors import JobError, RecordError
from recordmill.schemas.paths import is_remote
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers.container import (
    Container,
    Contents,
    RecordFile,
    ShardReader,
    ShardWriter,
    lazy_value,
)
from recordmill.transforms.storage.open_files import OpenFiles
from recordmill.transforms.storage.resolve import storage_for

_WRITER_OPTIONS = "group_size:1,uncompressed"
"""Grain wants one record per group. Images are compressed already."""
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""No threads: they do not survive forks."""
_COPY_BYTES = 1 << 17
"""Size of pieces of files. Writes of 256 kB and more took Linux three times the processor time (large folios)."""
_OPEN_FILES = 128
"""Maximum number of files that a process keeps open for reads by number."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ArrayRecordShardWriter(ShardWriter):
    """Writer of a temporary file, whose bytes are passed on when it is complete."""

    def __init__(self, write: Callable[[bytes], object]):
        self._write = write
        with _temporary_file_errors():
            self._file = TemporaryFile()  # noqa: SIM115  closed at the end, or by garbage collection
            self._records = ArrayRecordWriter(_descriptor_path(self._file), _WRITER_OPTIONS)

    def append(self, *record: bytes) -> None:
        with _temporary_file_errors():
            self._records.write(b"".join(record))

    def close(self) -> None:
        with self._file as file:
            with _temporary_file_errors():
                self._records.close()
            file.seek(0)
            while data := file.read(_COPY_BYTES):
                self._write(data)


@contextmanager
def _temporary_file_errors() -> Iterator[None]:
    """Raise JobError if a temporary file cannot be written."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        full = any(os.strerror(number) in str(error) for number in _FULL)
        folder = tempfile.tempdir or os.environ.get("TMPDIR", "the temporary folder")
        raise JobError(
            f"{folder}: an ArrayRecord shard cannot be written to a temporary file there "
            f"({'no space is left' if full else _first_cause(error)}). Set TMPDIR to a folder with room for one shard "
            "per process, and run the command again."
        ) from error


class ArrayRecordShardReader(ShardReader):
    def records(self) -> Iterator[bytes]:
        with self._readable_file() as path:
            yield from map(self.count, _read_in_order(_open_reader(path)))

    @contextmanager
    def _readable_file(self) -> Iterator[str]:
        """Read all bytes for the digest. Yield a local path of the file, or of a copy."""
        if not is_remote(self._path):
            with self.open():
                pass
            yield self._path
            return
        with self.open() as file:
            copy = _copy(file)
        with copy:
            yield _descriptor_path(copy)

    def index(self) -> None:
        return None


def _read_in_order(reader: ArrayRecordReader) -> Iterator[bytes]:
    for number in range(reader.num_records()):
        try:
            yield reader.read()
        except RuntimeError as error:
            raise _record_error(error, number) from error


def _open_reader(path: str) -> ArrayRecordReader:
    """Open a local file. Raise RecordError if its footer is damaged, which the library says only when asked."""
    try:
        reader = ArrayRecordReader(path, _READER_OPTIONS)
        if not reader.ok():
            reader.close()  # raises the error
    except RuntimeError as error:
        raise RecordError(f"array_record cannot open it: {_first_cause(error)}", None, "unreadable") from error
    return reader


def _record_error(error: RuntimeError, number: int) -> RecordError:
    cause = _first_cause(error)
    reason = "data_crc" if "hash mismatch" in cause else "unreadable"
    return RecordError(f"array_record cannot read it: {cause}", number, reason)


def _first_cause(error: Exception) -> str:
    """Return the first clause of an error of the library, which may be empty."""
    cause = str(error).split("; ")[0].removeprefix("Corrupted Riegeli/records file: ")
    return cause or "the file is damaged or truncated"


class _OpenFile:
    """A version of a file, or a copy of one in a bucket. It is opened with the first read, by one thread."""

    def __init__(self, path: str, version: str):
        self._path = path
        self._version = version
        self._lock = Lock()
        self._opened: tuple[IO[bytes], ArrayRecordReader] | None = None

    def get(self) -> tuple[IO[bytes], ArrayRecordReader]:
        """Return the file and its reader, which threads share for reads by number."""
        with self._lock:
            if self._opened is None:
                file: IO[bytes] = storage_for(self._path).open(self._path, self._version)
                if is_remote(self._path):
                    with file as stored:
                        file = _copy(stored)
                self._opened = file, _open_reader(_descriptor_path(file))
            return self._opened


_OPEN: OpenFiles[tuple[str, str, int], _OpenFile] = OpenFiles(lambda key: _OpenFile(*key[:2]), _OPEN_FILES)
"""By path, version and process: a lock that another thread has does not survive a fork."""


def _close(path: str, version: str) -> None:
    _OPEN.release((path, version, os.getpid()))


def _copy(file: IO[bytes]) -> IO[bytes]:
    """Return a temporary copy of an open file."""
    with _temporary_file_errors():
        copy = TemporaryFile()  # noqa: SIM115  returned
    while data := file.read(_COPY_BYTES):
        with _temporary_file_errors():
            copy.write(data)
    with _temporary_file_errors():
        copy.flush()
    return copy


def _descriptor_path(file: IO[bytes]) -> str:
    """Return a path that leads to an open file, also if it has no name."""
    return f"/dev/fd/{file.fileno()}"


class ArrayRecordFile(RecordFile):
    """ArrayRecord file with random access to its records. A file in a bucket is copied with the first read. See
    RecordFile."""

    def count_records(self) -> int:
        return self._open()[1].num_records()

    @lazy_value
    def _version(self) -> str:
        """Version of the file, which is closed when the last reader is deleted."""
        version = self._file.version
        finalize(self, _close, self.path, version).atexit = False
        return version

    def _open(self) -> tuple[IO[bytes], ArrayRecordReader]:
        version = self._version
        try:
            return _OPEN.get((self.path, version, os.getpid())).get()
        except RecordError as error:
            raise self._located(error) from error
        except FileNotFoundError as error:
            raise self._changed() from error

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        file, reader = self._open()
        records: list[bytes] = []
        # One at a time: the library reads several with threads.
        for number in self._checked(numbers, reader.num_records()).tolist():
            try:
                records += reader.read([number])
            except RuntimeError as error:
                self._check_version(file)
                raise self._located(_record_error(error, number)) from error
        self._check_version(file)
        return records

    def in_order(self) -> Iterator[bytes]:
        file, _ = self._open()
        try:
            # A reader of its own, because reads in order have a position.
            for record in _read_in_order(_open_reader(_descriptor_path(file))):
                self._check_version(file)
                yield record
        except RecordError as error:
            self._check_version(file)
            raise self._located(error) from error

    def _check_version(self, file: IO[bytes]) -> None:
        """Raise RecordError if a local file was written to since it was opened."""
        if not is_remote(self.path) and str(os.fstat(file.fileno()).st_mtime_ns) != self._version:
            raise self._changed()


class _ArrayRecords(Container):
    def create(self, contents: Contents, key: ShardKey, write: Callable[[bytes], object]) -> ArrayRecordShardWriter:
        return ArrayRecordShardWriter(write)

    def read(self, path: str, contents: Contents) -> ArrayRecordShardReader:
        return ArrayRecordShardReader(path)

    def open(self, path: str, contents: Contents, expected: ShardInfo | None) -> ArrayRecordFile:
        return ArrayRecordFile(path, expected)


CONTAINER = _ArrayRecords()
