"""The directory of an archive (APPNOTE.TXT 4.3.12 to 4.3.16, https://support.pkware.com/pkzip/appnote) in 64 bytes and
its name a member: an entry of zipfile's takes 776."""

import errno
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.storage.zip_members import MOST_BESIDES, Member, member_name

_END = struct.Struct("<4s8xIIH")  # directory's size and offset, length of a comment
_END_SIGNATURE = b"PK\x05\x06"
_END_64 = struct.Struct("<4s36xQQ")
_END_64_SIGNATURE = b"PK\x06\x06"
_LOCATOR_64 = struct.Struct("<4sI8xI")  # the part that has the end, the number of parts
_LOCATOR_64_SIGNATURE = b"PK\x06\x07"
_TAIL_BYTES = 0xFFFF + _END.size + _LOCATOR_64.size + _END_64.size
"""The end with its longest comment, and what stands before it. Small directories come with it in one read."""
_STEP = 4 << 20
"""How much of a directory is read and held at once."""

_HEADER_BYTES = 46
_HEADER = np.dtype(
    {
        "names": ["signature", "flags", "method", "crc32", "packed", "size", "name", "extra", "start"],
        "formats": ["<u4", "<u2", "<u2", "<u4", "<u4", "<u4", "<u2", "<u2", "<u4"],
        "offsets": [0, 8, 10, 16, 20, 24, 28, 30, 42],
        "itemsize": _HEADER_BYTES,
    }
)
_LENGTHS = struct.Struct("<HHH")  # of the name, the extra field, and the comment
_LENGTHS_AT = 28
_SIGNATURE = int.from_bytes(b"PK\x01\x02", "little")
_EXTRA = struct.Struct("<HH")
_EXTRA_64 = 1
_IN_EXTRA = 0xFFFF_FFFF  # where 32 bits do not hold a number
_MOST = 1 << 62  # larger numbers are no offsets, and would overflow when added

_ROW = np.dtype(
    [
        *(("name_at", "<i8"), ("name_bytes", "<u4"), ("start", "<i8"), ("length", "<i8")),
        *(("packed", "<i8"), ("size", "<i8"), ("crc32", "<u4"), ("flags", "<u2"), ("method", "<u2")),
    ]
)
_UNPACK_ROW = struct.Struct("<qI4qIHH").unpack_from  # in a tenth of numpy's time
_Rows = npt.NDArray[np.void]


class Directory:
    """The members of an archive. Those that have the name of a later one are left out, and folders.

    Attributes:
        repeated: how many of all entries have the name of a later one.
        tops: the folders at the top that members are in, each with its `/`; empty for that of a member in none.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], path: str, size_bytes: int):
        """
        Args:
            read_range: reads so many of the archive's bytes from an offset on.
            path: for messages.

        Raises:
            ValueError: it has no directory, or a damaged one.
            OSError: it cannot be read, or has become shorter.
        """

        def read(start: int, length: int) -> bytes:
            data = read_range(start, length)
            if len(data) != length:
                raise OSError(errno.EIO, f"{len(data)} bytes came where there are {length}", path)
            return data

        tail_start = max(0, size_bytes - _TAIL_BYTES)
        tail = read(tail_start, size_bytes - tail_start)
        start, end, before = _place(tail, tail_start)
        if start >= tail_start:
            pieces = iter([tail[start - tail_start : end - tail_start]])
        else:
            pieces = (read(at, min(_STEP, end - at)) for at in range(start, end, _STEP))
        names, hashes, rows = bytearray(), bytearray(), bytearray()
        tops: set[bytes] = set()
        for data, places in _whole_headers(pieces):
            headers, found = _headers(data, places)
            rows += _rows(headers, found, len(names), before).tobytes()
            names += b"".join(found)
            hashes += np.fromiter(map(hash, found), np.int64, len(found)).tobytes()
            tops |= {name[: name.find(b"/") + 1] for name in found if name and not name.endswith(b"/")}
        self.tops = {top.decode() for top in tops}
        self._names, self._rows = names, rows
        _shorten(np.frombuffer(rows, _ROW), start)
        self._index(np.frombuffer(hashes, np.int64))

    def _index(self, hashes: npt.NDArray[np.int64]) -> None:
        """Rows in the order of their names' hashes, so that a name is found without a dictionary."""
        order = np.argsort(hashes, kind="stable").astype(np.uint32)  # of one name, later ones stand behind
        hashes = hashes[order]
        is_kept = np.ones(len(order), np.bool_)
        for at in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
            is_kept[at] = self._name(int(order[at])) != self._name(int(order[at + 1]))
        self.repeated = len(order) - int(is_kept.sum())
        is_kept &= self._are_files()[order]
        self._hashes, self._order = hashes[is_kept].data, order[is_kept].data

    def _are_files(self) -> npt.NDArray[np.bool_]:
        """Whether each row has a name that is no folder's."""
        rows = np.frombuffer(self._rows, _ROW)
        last = np.frombuffer(self._names + b"/", np.uint8)[rows["name_at"] + rows["name_bytes"] - 1]
        return (rows["name_bytes"] > 0) & (last != ord("/"))

    @property
    def kept_bytes(self) -> int:
        """What it takes in memory."""
        return len(self._names) + len(self._rows) + self._hashes.nbytes + self._order.nbytes

    def __iter__(self) -> Iterator[Member]:
        """All members, in the directory's order."""
        return map(self._member, np.sort(self._order).data)

    def find(self, name: str) -> Member | None:
        key = name.encode("utf-8", "surrogatepass")  # a name with half a pair is nobody's
        number = hash(key)
        at = bisect_left(self._hashes, number)
        while at < len(self._hashes) and self._hashes[at] == number:
            if self._name(self._order[at]) == key:
                return self._member(self._order[at])
            at += 1
        return None

    def _name(self, row: int) -> bytes:
        start, length, *_ = _UNPACK_ROW(self._rows, row * _ROW.itemsize)
        return bytes(self._names[start : start + length])

    def _member(self, row: int) -> Member:
        start, length, *rest = _UNPACK_ROW(self._rows, row * _ROW.itemsize)
        return Member(self._names[start : start + length].decode(), *rest)


def _place(tail: bytes, tail_start: int) -> tuple[int, int, int]:
    """Where the directory begins and ends, and how many bytes are before those that its offsets are counted from: a
    self-extracting archive begins with a program."""
    at = tail.rfind(_END_SIGNATURE, 0, max(0, len(tail) - _END.size + len(_END_SIGNATURE)))
    if at < 0:
        raise ValueError("it has no directory at its end")
    _, size, offset, _ = _END.unpack_from(tail, at)
    locator, end_64 = at - _LOCATOR_64.size, at - _LOCATOR_64.size - _END_64.size
    if end_64 >= 0 and tail.startswith(_LOCATOR_64_SIGNATURE, locator):
        _, part, parts = _LOCATOR_64.unpack_from(tail, locator)
        if part or parts > 1:
            raise ValueError("it is one of several parts")
        if tail.startswith(_END_64_SIGNATURE, end_64):
            at = end_64
            _, size, offset = _END_64.unpack_from(tail, at)
    end = tail_start + at
    start = end - size
    if start < 0 or offset > _MOST:
        raise ValueError("its directory is not where its end says")
    return start, end, start - offset


def _whole_headers(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, list[int]]]:
    """A directory's bytes in steps, and where headers begin in each, all of which are whole."""
    data = b""
    for piece in pieces:
        data += piece
        at, places = 0, []
        while len(data) - at >= _HEADER_BYTES:
            name, extra, comment = _LENGTHS.unpack_from(data, at + _LENGTHS_AT)
            end = at + _HEADER_BYTES + name + extra + comment
            if end > len(data):
                break
            places.append(at)
            at = end
        yield data, places
        data = data[at:]
    if data:
        raise ValueError("its directory is cut short or damaged")


def _headers(data: bytes, places: list[int]) -> tuple[_Rows, list[bytes]]:
    """The fixed part of each header, numbers of more than 32 bits from the extra fields; and the names, in UTF-8."""
    fixed = np.frombuffer(b"".join([data[at : at + _HEADER_BYTES] for at in places]), _HEADER)
    if (fixed["signature"] != _SIGNATURE).any():
        raise ValueError("its directory is damaged")
    wide = np.dtype([(name, "<u8" if name in ("packed", "size", "start") else "<u4") for name in _HEADER.names or ()])
    headers = fixed.astype(wide)
    ends = np.array(places, np.int64) + _HEADER_BYTES + headers["name"]
    names = [data[start + _HEADER_BYTES : end] for start, end in zip(places, ends.tolist(), strict=True)]
    if not (text := b"".join(names)).isascii() or b"\0" in text:
        names = [
            member_name(name, flags).encode() for name, flags in zip(names, headers["flags"].tolist(), strict=True)
        ]
    is_wide = (headers["size"] == _IN_EXTRA) | (headers["packed"] == _IN_EXTRA) | (headers["start"] == _IN_EXTRA)
    for row in np.flatnonzero(is_wide).tolist():
        _widen(headers[row], data[ends[row] : ends[row] + headers["extra"][row]])
    return headers, names


def _widen(header: Any, extra: bytes) -> None:
    """Take the numbers that 32 bits do not hold from the extra field that has them (APPNOTE.TXT 4.5.3)."""
    while len(extra) >= _EXTRA.size:
        kind, length = _EXTRA.unpack_from(extra)
        if kind == _EXTRA_64:
            at = _EXTRA.size
            for field in ("size", "packed", "start"):
                if header[field] == _IN_EXTRA:
                    if at + 8 > min(len(extra), _EXTRA.size + length):
                        raise ValueError("its directory is damaged: a member's numbers of 64 bits are missing")
                    header[field] = int.from_bytes(extra[at : at + 8], "little")
                    at += 8
        extra = extra[_EXTRA.size + length :]


def _rows(headers: _Rows, names: list[bytes], names_at: int, before: int) -> _Rows:
    rows = np.empty(len(headers), _ROW)
    rows["name_bytes"] = lengths = np.fromiter(map(len, names), np.int64, len(names))
    rows["name_at"] = np.cumsum(lengths) - lengths + names_at
    for field in ("packed", "size"):
        rows[field] = np.minimum(headers[field], _MOST)
    rows["start"] = np.maximum(np.minimum(headers["start"], _MOST).astype(np.int64) + before, 0)
    rows["length"] = rows["packed"] + headers["name"] + MOST_BESIDES
    for field in ("crc32", "flags", "method"):
        rows[field] = headers[field]
    return rows


def _shorten(rows: _Rows, directory_start: int) -> None:
    """End each member where the next one or the directory begins."""
    starts = np.append(np.sort(rows["start"]), directory_start)
    for some in np.array_split(rows, 1 + len(rows) // 65_536):  # what is made of all at once would be held at once
        ends = starts[np.searchsorted(starts[:-1], some["start"], "right")]
        some["length"] = np.maximum(np.minimum(ends - some["start"], some["length"]), 0)
