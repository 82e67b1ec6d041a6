"""Finished shards are read back."""

import hashlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
from isal import igzip

from recordmill.schemas.errors import RecordError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.plan_report import Fault
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.tfrecord import ByteStream, read_records
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.interface import UnreadableFileError, is_remote
from recordmill.transforms.storage.os_errors import explain_os_error
from recordmill.transforms.storage.resolve import storage_for

_READ_BYTES = 1 << 20


class ShardReader:
    """A TFRecord file's records, with the size and SHA-256 of the file they come from.

    Attributes:
        examples: records read so far.
        size: bytes read so far; the file's size once `records` has ended.
        sha256: of those bytes.
    """

    def __init__(self, path: str):
        self._path = path
        self.examples = 0
        self.size = 0
        self.sha256 = hashlib.sha256()

    def records(self) -> Iterator[bytes]:
        """Each record, checksums checked; GZIP by the file's name.

        Raises:
            recordmill.schemas.errors.RecordError: at the first damaged record.
            OSError, EOFError, isal.isal_zlib.IsalError: the file cannot be read, or its GZIP stream is damaged.
        """
        with storage_for(self._path).open(self._path) as file:
            seen = io.BufferedReader(_Seen(file, self), _READ_BYTES)
            if self._path.endswith(".gz"):
                with igzip.IGzipFile(fileobj=seen, mode="rb") as unzipped:
                    yield from self._counted(unzipped)
            else:
                yield from self._counted(seen)
            while seen.read(_READ_BYTES):  # what a gzip reader leaves, so that the digest is of the whole file
                pass

    def _counted(self, stream: ByteStream) -> Iterator[bytes]:
        for record in read_records(stream):
            self.examples += 1
            yield record


class ManifestShard(msgspec.Struct, frozen=True):
    """A shard as the manifest describes it.

    Attributes:
        path: of the file.
        table: what is in its records.
        labels: the data set's classes.
    """

    path: str
    split: str
    info: ShardInfo
    table: FeatureTable
    labels: LabelMap


def readable_records(shard: ManifestShard, reader: ShardReader, damage: list[Fault]) -> Iterator[bytes]:
    """The records of a shard up to the first that is damaged; what is wrong with the file joins `damage`.

    Args:
        reader: of the shard's path.
    """
    examples = size = 0
    try:
        for record in _undamaged(shard, reader, damage):
            examples += 1
            if examples <= shard.info.examples:
                progress.read_record(reader.size - size)
                size = reader.size
            yield record
    finally:
        progress.skipped_images(max(0, shard.info.examples - examples))
        progress.finished_shard()


def _undamaged(shard: ManifestShard, reader: ShardReader, damage: list[Fault]) -> Iterator[bytes]:
    file = shard.info.file
    if storage_for(shard.path).size(shard.path) is None:
        damage.append(Fault(file, None, "missing", "no such file"))
        return
    examples = 0
    records = reader.records()
    while True:
        try:
            record = next(records, None)
        except RecordError as error:
            damage.append(Fault(file, error.record, error.reason, error.detail))
            return
        except Exception as error:  # a damaged GZIP stream ends in one of several types; the file is named
            if is_remote(shard.path) and isinstance(error, OSError) and not isinstance(error, UnreadableFileError):
                raise  # a server that does not answer, or may not, says nothing of the shard
            detail = explain_os_error(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            damage.append(Fault(file, None, "unreadable", detail))
            return
        if record is None:
            break
        examples += 1
        yield record
    if examples != shard.info.examples:
        damage.append(Fault(file, None, "count", f"{examples} records, the manifest says {shard.info.examples}"))
    if reader.sha256.hexdigest() != shard.info.sha256:
        damage.append(Fault(file, None, "sha256", "the file's SHA-256 is not the manifest's"))


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
