"""A shard's records, with what its manifest says of the file."""

import hashlib
import io
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO

from isal import igzip
from isal.isal_zlib import IsalError

from recordmill.schemas.errors import RecordError
from recordmill.schemas.tfrecord import FRAME_BYTES, ByteStream, read_records
from recordmill.transforms.storage.resolve import storage_for

GZIP_FAULTS = (EOFError, IsalError, igzip.BadGzipFile)
"""What reading raises where a GZIP stream is damaged or cut."""

_READ_BYTES = 1 << 20


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
            seen = io.BufferedReader(_Seen(file, self), _READ_BYTES)
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
            self.lengths.append(len(record) + FRAME_BYTES)
            yield record


class _Seen(io.RawIOBase):
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
