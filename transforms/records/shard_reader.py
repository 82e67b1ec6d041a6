"""Read TFRecord files: shards with their manifest, and any others."""

import hashlib
import io
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO

from isal import igzip
from isal.isal_zlib import IsalError

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.records.tfrecord import ByteStream, framed, read_records
from recordmill.transforms.storage.resolve import GZIP, storage_for

GZIP_FAULTS = (EOFError, IsalError, igzip.BadGzipFile)
"""Exceptions of damaged or truncated GZIP streams."""

_READ_BYTES = 1 << 20
_HEADER_BYTES = 12


class ShardReader:
    """A TFRecord file's records, with the size and SHA-256 of the file they come from.

    Attributes:
        lengths: of the records read so far, with their frames.
        size: bytes read so far; the file's size once `records` has ended.
        sha256: of those bytes.
    """

    def __init__(self, path: str):
        self._path = path
        self.lengths = array("q")
        self.size = 0
        self.sha256 = hashlib.sha256()

    @property
    def examples(self) -> int:
        """Records read so far."""
        return len(self.lengths)

    def records(self) -> Iterator[bytes]:
        """Each record, checksums checked; GZIP by the file's name.

        Raises:
            RecordError: at the first damaged record; of reason `unreadable` where the GZIP stream is damaged or cut.
            OSError: the file cannot be read.
        """
        with storage_for(self._path).open(self._path) as file:
            seen = io.BufferedReader(_DigestedFile(file, self), _READ_BYTES)
            if self._path.endswith(".gz"):
                with igzip.IGzipFile(fileobj=seen, mode="rb") as unzipped:
                    try:
                        yield from self._counted(unzipped)
                    except GZIP_FAULTS as error:  # type: ignore[misc]
                        fault = f"after {self.examples:,} records its GZIP stream is damaged or cut ({error})"
                        raise RecordError(fault, None, "unreadable") from error
            else:
                yield from self._counted(seen)
            while seen.read(_READ_BYTES):  # what a gzip reader leaves, so that the digest is of the whole file
                pass

    def _counted(self, stream: ByteStream) -> Iterator[bytes]:
        for record in read_records(stream):
            self.lengths.append(framed(len(record)))
            yield record


class _DigestedFile(io.RawIOBase):
    """Passes a file's bytes on and adds them to the reader's size and digest."""

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


def open_records(path: str, version: str = "") -> Iterator[bytes]:
    """The records of a TFRecord file, checksums checked; GZIP by its content.

    Args:
        version: see `Storage.open`.

    Raises:
        ConfigError: it is no TFRecord file.
        RecordError: at the first damaged record; it names the file, the record and its offset.
        OSError: the file cannot be read.
    """
    with storage_for(path).open(path, version) as file:
        start = file.read(_HEADER_BYTES)
        file.seek(0)
        is_packed = start.startswith(GZIP)
        if start and len(start) < _HEADER_BYTES and not is_packed:
            raise ConfigError(f"{path} is no TFRecord file: it has {len(start)} bytes, and a record has 16 or more")
        stream: ByteStream = file  # without a larger buffer, out of which each record would be copied
        if is_packed:
            stream = igzip.IGzipFile(fileobj=file, mode="rb")  # a buffer around it would lose what comes before a fault
        read = 0
        try:
            for record in read_records(stream):
                yield record
                read += 1
        except RecordError as error:
            raise _located(path, error, "" if is_packed else repr(start)) from error
        except GZIP_FAULTS as error:  # type: ignore[misc]
            raise RecordError(f"{path}: after {read:,} records its GZIP stream is damaged or cut ({error})") from error


def _located(path: str, error: RecordError, start: str) -> Exception:
    """The error with where it is; `start` is how the file begins, empty where it is GZIP's."""
    if error.reason == "length_crc" and not error.record:
        begins = f"it begins with {start}" if start else "unpacked from GZIP"
        return ConfigError(
            f"{path} is no TFRecord file: its first {_HEADER_BYTES} bytes are not the header of a record ({begins})"
        )
    where = f"at byte {error.offset:,}{'' if start else ' of what it unpacks to'}"
    return RecordError(f"{path}: record {error.record} {where}: {error.detail}", None, error.reason, error.offset)
