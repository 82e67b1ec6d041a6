"""TFRecord framing (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).

A record is: length, uint64 little endian | masked CRC-32C of those 8 bytes | the bytes | masked CRC-32C of the bytes.
"""

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, Protocol, TypeVar

import google_crc32c
import numpy as np

from recordmill.schemas.errors import RecordError

Size = TypeVar("Size", int, np.ndarray)
Data = TypeVar("Data", bytes, np.ndarray)


class ByteStream(Protocol):
    """Source of records."""

    def read(self, size: int, /) -> bytes: ...


_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
CRC_BYTES = _CRC.size
HEADER_BYTES = _LENGTH.size + CRC_BYTES
_READ_BYTES = 1 << 20


def framed_size(size: Size) -> Size:
    """Return the size of a record of `size` bytes in a file, with its frame. Also for an array of sizes.

    >>> framed_size(100)
    116
    """
    return size + (HEADER_BYTES + CRC_BYTES)


def masked_crc32c(data: bytes | np.ndarray) -> int:
    """Return the CRC-32C of `data`, masked as in TensorFlow.

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    return mask_crc(google_crc32c.value(data))


def mask_crc(crc: Any) -> Any:
    """Return a CRC-32C, or an array of them as uint64, rotated and offset as in TensorFlow."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1 << 14)
def head(length: int) -> bytes:
    """Return the bytes before a record in a TFRecord file."""
    data = _LENGTH.pack(length)
    return data + _CRC.pack(masked_crc32c(data))


def tail(*record: bytes) -> bytes:
    """Return the bytes after a record in a TFRecord file. The record may be in parts."""
    crc = 0
    for piece in record:
        crc = google_crc32c.extend(crc, piece)
    return _CRC.pack(mask_crc(crc))


def frame(record: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a record in a TFRecord file."""
    return head(len(record)), tail(record)


def read_records(stream: ByteStream) -> Iterator[bytes]:
    """Yield a TFRecord file's records after checking both checksums.

    A wrong length with a valid checksum allocates no more memory than the rest of the file.

    Raises:
        RecordError: A record is truncated, or a checksum is wrong. The error has the number and offset of the
            record.
    """
    return _read_checked(stream, _read_up_to)


def read_views(stream: ByteStream) -> Iterator[memoryview]:
    """Yield the records of `read_records` as views. Each is valid until the next is read: they share their memory,
    because fresh memory for each costs page faults."""
    memory = np.empty(_READ_BYTES, np.uint8)
    readinto = stream.readinto  # type: ignore[attr-defined]  # the type BinaryIO does not have it

    def read(stream: ByteStream, count: int) -> np.ndarray:
        if count > len(memory):
            return np.frombuffer(_read_up_to(stream, count), np.uint8)
        size = 0
        while size < count and (piece := readinto(memory[size:count])):
            size += piece
        return memory[:size]

    yield from map(memoryview, _read_checked(stream, read))  # type: ignore[arg-type]


def _read_checked(stream: ByteStream, read: Callable[[ByteStream, int], Data]) -> Iterator[Data]:
    index = offset = 0
    while header := _read_up_to(stream, HEADER_BYTES):
        length = _decode_length(header, index, offset)
        record, crc = read(stream, length), _read_up_to(stream, _CRC.size)
        if len(crc) < _CRC.size:
            raise _truncated_error(len(header) + len(record) + len(crc), framed_size(length), index, offset)
        _check_record(record, crc, index, offset)
        yield record
        index += 1
        offset += framed_size(length)


def read_usable_records(stream: ByteStream) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yield the offset and the bytes of each record, or its error if the checksum of its bytes is wrong: the records
    after it follow.

    Raises:
        RecordError: A record is truncated, or the checksum of its length is wrong.
    """
    index = offset = 0
    while header := _read_up_to(stream, HEADER_BYTES):
        length = _decode_length(header, index, offset)
        record, crc = _read_up_to(stream, length), _read_up_to(stream, _CRC.size)
        if len(crc) < _CRC.size:
            raise _truncated_error(len(header) + len(record) + len(crc), framed_size(length), index, offset)
        try:
            _check_record(record, crc, index, offset)
        except RecordError as error:
            yield offset, error
        else:
            yield offset, record
        index += 1
        offset += framed_size(length)


def is_tfrecord(head_bytes: bytes) -> bool:
    """Return True for the first bytes of a file that begins with the header of a record.

    >>> is_tfrecord(head(100)), is_tfrecord(bytes(HEADER_BYTES))
    (True, False)
    """
    try:
        _decode_length(head_bytes[:HEADER_BYTES], 0, 0)
    except RecordError:
        return False
    return True


def read_lengths(stream: BinaryIO, size: int) -> Iterator[int]:
    """Yield the lengths of the records of a TFRecord file of `size` bytes, with their frames. Records are skipped.

    Raises:
        RecordError: A record is truncated, or the checksum of a length is wrong.
    """
    index = offset = 0
    while offset < size:
        length = framed_size(_decode_length(_read_up_to(stream, HEADER_BYTES), index, offset))
        if length > size - offset:
            raise _truncated_error(size - offset, length, index, offset)
        yield length
        index += 1
        offset += length
        stream.seek(offset)


def check_frame(header: bytes, record: bytes | np.ndarray, crc: bytes, index: int, offset: int) -> None:
    """Check a record against its header and its CRC.

    Args:
        index, offset: Number and offset of the record, for the error.
    Raises:
        RecordError: The record is damaged. The reason is `length` if the frame has another length.
    """
    length = _decode_length(header, index, offset)
    if length != len(record) or len(crc) < CRC_BYTES:
        detail = f"{len(record):,} bytes were read, but the record has {length:,}"
        raise RecordError(detail, index, "length", offset)
    _check_record(record, crc, index, offset)


def _decode_length(header: bytes, index: int, offset: int) -> int:
    if len(header) < HEADER_BYTES:
        raise RecordError(f"the file ends {len(header)} bytes into the record's header", index, "truncated", offset)
    if _CRC.unpack_from(header, _LENGTH.size)[0] != masked_crc32c(header[: _LENGTH.size]):
        raise RecordError("the checksum of the record's length is wrong", index, "length_crc", offset)
    return int(_LENGTH.unpack_from(header)[0])


def _truncated_error(read: int, length: int, index: int, offset: int) -> RecordError:
    """Return the error of a file that ends within a record. Both sizes are those with the frame."""
    detail = f"the file ends {read} bytes into a record of {length} bytes with its frame"
    return RecordError(detail, index, "truncated", offset)


def _check_record(record: bytes | np.ndarray, crc: bytes, index: int, offset: int) -> None:
    if _CRC.unpack(crc)[0] != masked_crc32c(record):
        detail = f"the checksum of the record's {len(record)} bytes is wrong"
        raise RecordError(detail, index, "data_crc", offset)


def _read_up_to(stream: ByteStream, count: int) -> bytes:
    """Return `count` bytes, or the rest of the stream. Reads are small, so that a wrong `count` allocates no memory."""
    piece = stream.read(min(count, _READ_BYTES))
    if len(piece) == count:
        return piece
    pieces = [piece]
    while (count := count - len(piece)) and (piece := stream.read(min(count, _READ_BYTES))):
        pieces.append(piece)
    return b"".join(pieces)
