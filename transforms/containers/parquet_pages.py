"""Pages of a Parquet file: values of a row are read without those of its neighbours.

pyarrow reads whole column chunks, so one image of a row group of 100 would cost all 100. The page index at the end of
the file says where each page begins, and `recordmill.transforms.containers.parquet` writes a page per large value.
Format: https://github.com/apache/parquet-format (README.md, PageIndex.md, src/main/thrift/parquet.thrift).
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from isal import isal_zlib

from recordmill.schemas.errors import RecordError

_MAGIC = b"PAR1"
_FOOTER_BYTES = len(_MAGIC) + 4
_TAIL_BYTES = 1 << 17
"""First read of the end of a file: footer and page index of most files."""

ReadRanges = Callable[[Sequence[tuple[int, int]]], Sequence[Any]]
"""Function that reads ranges (offset, length) of a file, as bytes or memoryviews."""


class PageRange(NamedTuple):
    """Page of a column chunk: offset and size in bytes with its header, and its first row in the row group."""

    offset: int
    size: int
    first_row: int


class RowGroup(NamedTuple):
    """Row group of a file.

    Attributes:
        first: Number of its first row in the file.
        rows: Number of its rows.
        chunks: Offset and size in bytes of the column chunk of each leaf column.
        pages: Pages of each leaf column.
    """

    first: int
    rows: int
    chunks: list[tuple[int, int]]
    pages: list[list[PageRange]]


class FileIndex(NamedTuple):
    """Footer of a file, with its length and magic number, and the row groups."""

    footer: bytes
    groups: list[RowGroup]

    @property
    def rows(self) -> int:
        return self.groups[-1].first + self.groups[-1].rows if self.groups else 0


def read_file_index(read: ReadRanges, size: int) -> FileIndex:
    """Return the index of a Parquet file of `size` bytes from its last bytes.

    Raises:
        RecordError: The footer or the page index is missing or damaged.
    """
    start = max(0, size - _TAIL_BYTES)
    tail = _Tail(read, size, start, read([(start, size - start)])[0])
    if tail.data[-len(_MAGIC) :] != _MAGIC or size < _FOOTER_BYTES:
        raise RecordError(f"the file does not end in {_MAGIC.decode()}: it is truncated", None, "truncated")
    footer_bytes = int.from_bytes(tail.data[-_FOOTER_BYTES : -len(_MAGIC)], "little")
    if footer_bytes > size - _FOOTER_BYTES - len(_MAGIC):
        raise RecordError(f"its footer has {footer_bytes:,} bytes, more than the file", None, "truncated")
    footer = tail.range(size - _FOOTER_BYTES - footer_bytes, footer_bytes + _FOOTER_BYTES)
    try:
        return FileIndex(footer, _groups(footer, tail))
    except _FAULTS as error:
        raise RecordError(f"its footer is damaged ({error!r})", None, "unreadable") from error


class _Tail:
    """Last bytes of a file, from `start` on; more are read where they do not suffice."""

    def __init__(self, read: ReadRanges, size: int, start: int, data: bytes):
        self._read, self._size, self._start, self.data = read, size, start, data

    def checked(self, offset: int, length: int) -> tuple[int, int]:
        """Return a range. Raise ValueError if it is not in the file."""
        if not 0 <= offset <= offset + length <= self._size:
            raise ValueError(f"{length:,} bytes at byte {offset:,}, outside the file")
        return offset, length

    def range(self, offset: int, length: int) -> bytes:
        self.checked(offset, length)
        if offset < self._start:
            self.data = self._read([(offset, self._start - offset)])[0] + self.data
            self._start = offset
        return self.data[offset - self._start : offset - self._start + length]


def _groups(footer: bytes, tail: _Tail) -> list[RowGroup]:
    """Return the row groups of FileMetaData."""
    groups, first = [], 0
    for group in _read_struct(footer)[4]:
        chunks = [tail.checked(min(_offsets(column[3])), column[3][7]) for column in group[1]]
        pages = []
        for column in group[1]:
            locations = _read_struct(tail.range(column[4], column[5]))[1]
            pages.append([PageRange(*tail.checked(page[1], page[2]), page[3]) for page in locations])
        groups.append(RowGroup(first, group[3], chunks, pages))
        first += group[3]
    return groups


def _offsets(metadata: Mapping[int, Any]) -> list[int]:
    """Return the offsets of the first data page, and of the dictionary page if a column chunk has one."""
    return [metadata[field] for field in (9, 11) if field in metadata]


def page_values(page: bytes | memoryview) -> list[bytes]:
    """Return the values, without nulls, of an uncompressed page of byte strings in a column that is not repeated.

    Args:
        page: The page with its header.

    Raises:
        RecordError: The page is damaged. The error has no number of a record.
    """
    try:
        header, start = _read_struct_at(page, 0)
        body = memoryview(page)[start : start + header[3]]
        is_whole = header[1] == _DATA_PAGE and header[2] == header[3] == len(body) and header[5][2] == _PLAIN
        if not is_whole or isal_zlib.crc32(body) != header[4] & 0xFFFFFFFF:
            raise RecordError("the checksum of a page is wrong", None, "data_crc")
        place = 4 + int.from_bytes(body[:4], "little")  # after the definition levels
        values = []
        while place < len(body):
            end = place + 4 + int.from_bytes(body[place : place + 4], "little")
            values.append(bytes(body[place + 4 : end]))
            place = end
        return values
    except _FAULTS as error:
        raise RecordError(f"the header of a page is damaged ({error!r})", None, "data_crc") from error


_DATA_PAGE, _PLAIN = 0, 0
_FAULTS = (KeyError, IndexError, ValueError, TypeError, AttributeError, struct.error, RecursionError, MemoryError)
"""Errors of reading a damaged struct."""

# Types of Thrift's compact protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LISTS, _STRUCT = 1, 2, 3, 7, 8, (9, 10), 12


def _read_struct(data: bytes) -> dict[int, Any]:
    return _read_struct_at(data, 0)[0]


def _read_struct_at(data: bytes | memoryview, place: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct in Thrift's compact protocol, by number, and the offset of its end."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[place]:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            raw, place = _read_varint(data, place)
            number = raw >> 1 ^ -(raw & 1)
        fields[number], place = _read_value(data, place, head & 15)
    return fields, place + 1


def _read_value(data: bytes | memoryview, place: int, type_: int) -> tuple[Any, int]:
    if type_ in (_TRUE, _FALSE):
        return type_ == _TRUE, place
    if type_ == _BYTE:
        return data[place], place + 1
    if type_ < _DOUBLE:  # i16, i32, i64: zigzag
        raw, place = _read_varint(data, place)
        return raw >> 1 ^ -(raw & 1), place
    if type_ == _DOUBLE:
        return struct.unpack_from("<d", data, place)[0], place + 8
    if type_ == _BINARY:
        length, place = _read_varint(data, place)
        if length > len(data) - place:
            raise ValueError(f"{length:,} bytes of text")
        return data[place : place + length], place + length
    if type_ in _LISTS:
        return _read_list(data, place)
    if type_ == _STRUCT:
        return _read_struct_at(data, place)
    raise ValueError(f"type {type_} at byte {place:,}")


def _read_list(data: bytes | memoryview, place: int) -> tuple[list[Any], int]:
    head, place = data[place], place + 1
    length = head >> 4
    if length == 15:
        length, place = _read_varint(data, place)
    values = []
    for _ in range(length):
        if head & 15 in (_TRUE, _FALSE):  # in lists, booleans have a byte
            value, place = data[place] == _TRUE, place + 1
        else:
            value, place = _read_value(data, place, head & 15)
        values.append(value)
    return values, place


def _read_varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
