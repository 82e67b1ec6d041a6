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


_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CRC.size
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
    while header := _read_up_to(stream, _HEADER_BYTES):
        if len(header) < _HEADER_BYTES:
            raise RecordError(f"the file ends {len(header)} bytes into the record's header", index, "truncated", offset)
        (length,) = _LENGTH.unpack_from(header)
        if _CRC.unpack_from(header, _LENGTH.size)[0] != masked_crc32c(header[: _LENGTH.size]):
            raise RecordError("the checksum of the record's length is wrong", index, "length_crc", offset)
        body = _read_up_to(stream, length + _CRC.size)
        if len(body) < length + _CRC.size:
            raise RecordError(
                f"the file ends {len(body)} bytes into a record of {length} bytes", index, "truncated", offset
            )
        record = body[:length]
        if _CRC.unpack_from(body, length)[0] != masked_crc32c(record):
            raise RecordError(f"the checksum of the record's {length} bytes is wrong", index, "data_crc", offset)
        yield record
        index += 1
        offset += length + FRAME_BYTES


def _read_up_to(stream: ByteStream, count: int) -> bytes:
    """`count` bytes, or as many as there are; read in pieces, so that a lie about `count` does not allocate it."""
    pieces = []
    while count and (piece := stream.read(min(count, _READ_BYTES))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
