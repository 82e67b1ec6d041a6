"""TFRecord framing (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).

A record is: length, uint64 little endian | masked CRC-32C of those 8 bytes | the bytes | masked CRC-32C of the bytes.
"""

import struct
from collections.abc import Iterator
from typing import Any, Protocol

import google_crc32c

from recordmill.schemas.errors import RecordError

FRAME_BYTES = 16
"""How many bytes framing adds to each record."""


class ByteStream(Protocol):
    """What records are read from."""

    def read(self, size: int, /) -> bytes: ...


class SeekableStream(ByteStream, Protocol):
    """Whose records may be passed over."""

    def seek(self, offset: int, /) -> object: ...


_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
HEADER_BYTES = _LENGTH.size + _CRC.size
_READ_BYTES = 1 << 20


def masked_crc32c(data: bytes) -> int:
    """CRC-32C of `data`, rotated and offset as TensorFlow stores it.

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    return masked(google_crc32c.value(data))


def masked(crc: Any) -> Any:
    """A CRC-32C as TensorFlow stores it; also a whole array of uint64."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def head(length: int) -> bytes:
    """The bytes before a record of `length` bytes in a TFRecord file."""
    data = _LENGTH.pack(length)
    return data + _CRC.pack(masked_crc32c(data))


def frame(record: bytes) -> tuple[bytes, bytes]:
    """The bytes before and after `record` in a TFRecord file."""
    return head(len(record)), _CRC.pack(masked_crc32c(record))


def read_records(stream: ByteStream) -> Iterator[bytes]:
    """Records of a TFRecord file, both checksums checked.

    A length whose checksum is right but that runs past the end of the file costs no more memory than the file has left.

    Raises:
        RecordError: at the first record that is cut short or whose checksum is wrong; it says which, and
            where that begins.
    """
    index = offset = 0
    while header := _read_up_to(stream, HEADER_BYTES):
        length = _checked_length(header, index, offset)
        body = _read_up_to(stream, length + _CRC.size)
        if len(body) < length + _CRC.size:
            raise RecordError(
                f"the file ends {len(body)} bytes into a record of {length} bytes", index, "truncated", offset
            )
        yield _checked_record(body, length, index, offset)
        index += 1
        offset += length + FRAME_BYTES


def read_lengths(stream: SeekableStream, size: int) -> Iterator[int]:
    """Lengths of the records of a TFRecord file of `size` bytes, with their frames; the records are passed over.

    Raises:
        RecordError: at the first record that is cut short or the checksum of whose length is wrong.
    """
    index = offset = 0
    while offset < size:
        length = _checked_length(_read_up_to(stream, HEADER_BYTES), index, offset) + FRAME_BYTES
        if length > size - offset:
            detail = f"the file ends {size - offset} bytes into a record that has {length} with its frame"
            raise RecordError(detail, index, "truncated", offset)
        yield length
        index += 1
        offset += length
        stream.seek(offset)


def unframe(framed: bytes, index: int, offset: int) -> bytes:
    """The record in `framed`, which is as long as it is with its frame; both checksums checked.

    Args:
        index, offset: which it is and where it begins, for the error.

    Raises:
        RecordError: it is damaged; with the reason `length`, where the frame is that of a record of another length.
    """
    length = _checked_length(framed[:HEADER_BYTES], index, offset)
    if length + FRAME_BYTES != len(framed):
        detail = f"{len(framed):,} bytes are read, and the record has {length + FRAME_BYTES:,} with its frame"
        raise RecordError(detail, index, "length", offset)
    return _checked_record(framed[HEADER_BYTES:], length, index, offset)


def _checked_length(header: bytes, index: int, offset: int) -> int:
    if len(header) < HEADER_BYTES:
        raise RecordError(f"the file ends {len(header)} bytes into the record's header", index, "truncated", offset)
    if _CRC.unpack_from(header, _LENGTH.size)[0] != masked_crc32c(header[: _LENGTH.size]):
        raise RecordError("the checksum of the record's length is wrong", index, "length_crc", offset)
    return int(_LENGTH.unpack_from(header)[0])


def _checked_record(body: bytes, length: int, index: int, offset: int) -> bytes:
    record = body[:length]
    if _CRC.unpack_from(body, length)[0] != masked_crc32c(record):
        raise RecordError(f"the checksum of the record's {length} bytes is wrong", index, "data_crc", offset)
    return record


def _read_up_to(stream: ByteStream, count: int) -> bytes:
    """`count` bytes, or as many as there are; read in pieces, so that a lie about `count` does not allocate it."""
    pieces = []
    while count and (piece := stream.read(min(count, _READ_BYTES))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
