"""Anybody's TFRecord files are read, whatever they are called."""

from collections.abc import Iterator

from isal import igzip

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.tfrecord import ByteStream, read_records
from recordmill.transforms.records.shard_reader import GZIP_FAULTS
from recordmill.transforms.storage.read_unpacked import GZIP
from recordmill.transforms.storage.resolve import storage_for

_HEADER_BYTES = 12


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
