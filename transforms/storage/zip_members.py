"""A member out of the bytes of an archive (APPNOTE.TXT, https://support.pkware.com/pkzip/appnote), so that it takes one
read wherever the archive is. The directory is read by zipfile, and so are members compressed in rare ways."""

import struct
import zipfile
import zlib
from collections.abc import Sequence

_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"
_MAX_EXTRA = 65_535  # bytes of a local header's extra field, which may differ from the directory's
_ENCRYPTED = 1
_UNICODE = 1 << 11


class DamagedMemberError(ValueError):
    """What is wrong with a member."""


def spans(members: Sequence[zipfile.ZipInfo], directory_start: int) -> dict[str, tuple[int, int]]:
    """Where the bytes of each member, with its header, begin and how many there are at the most."""
    starts = sorted({info.header_offset for info in members})
    ends = dict(zip(starts, [*starts[1:], directory_start], strict=False))
    return {
        info.filename: (info.header_offset, max(0, min(ends[info.header_offset] - info.header_offset, _longest(info))))
        for info in members
    }


def _longest(info: zipfile.ZipInfo) -> int:
    return _HEADER.size + len(info.orig_filename.encode()) + _MAX_EXTRA + info.compress_size


def is_plain(info: zipfile.ZipInfo) -> bool:
    """Whether `unpack` knows the way in which a member is compressed."""
    return info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def unpack(data: bytes, info: zipfile.ZipInfo) -> bytes:
    """The content of a member, from its span. Never more than the directory says is made of it.

    Raises:
        DamagedMemberError: it is encrypted, or not what the directory says.
    """
    if info.flag_bits & _ENCRYPTED:
        raise DamagedMemberError("it is encrypted")
    if len(data) < _HEADER.size or not data.startswith(_SIGNATURE):
        raise DamagedMemberError("it has no header")
    _, name_length, extra_length = _HEADER.unpack_from(data)
    start = _HEADER.size + name_length + extra_length
    encoding = "utf-8" if info.flag_bits & _UNICODE else "cp437"
    if data[_HEADER.size : _HEADER.size + name_length] != info.orig_filename.encode(encoding, "replace"):
        raise DamagedMemberError("its header has another name than the directory")
    packed = memoryview(data)[start : start + info.compress_size]
    content = bytes(packed) if info.compress_type == zipfile.ZIP_STORED else _inflated(packed, info.file_size)
    if len(content) != info.file_size:
        raise DamagedMemberError(f"{len(content):,} bytes where the directory says {info.file_size:,}")
    if zlib.crc32(content) != info.CRC:
        raise DamagedMemberError("its checksum is not that of the directory")
    return content


def _inflated(packed: memoryview, size: int) -> bytes:
    inflate = zlib.decompressobj(-15)
    try:
        # A byte more than there should be: a limit of 0 would mean none.
        content = inflate.decompress(packed, size + 1)
    except zlib.error as error:
        raise DamagedMemberError(str(error)) from error
    if not inflate.eof:
        raise DamagedMemberError("it does not end where it should")
    return content
