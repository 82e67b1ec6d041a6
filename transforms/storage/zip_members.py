"""A member out of the bytes of an archive (APPNOTE.TXT, https://support.pkware.com/pkzip/appnote), so that it takes one
read wherever the archive is. zipfile's own reading of members makes all that a few bytes of bzip2 or LZMA unpack to,
gigabytes perhaps, before it looks how much there should be."""

import bz2
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"
MOST_BESIDES = _HEADER.size + 65_535
"""Bytes of a member besides its name and content, at the most: its extra field may differ from the directory's."""
_ENCRYPTED = 1
_UNICODE = 1 << 11


class DamagedMemberError(ValueError):
    """What is wrong with a member."""


class Member(NamedTuple):
    """What an archive's directory says of a member.

    Attributes:
        name: its folders in it, `/` between its parts.
        start, length: where its bytes, with its header, begin in the archive, and how many there are at the most.
        packed_bytes, size_bytes: of its content, as it is stored and unpacked.
        crc32: of the unpacked content.
        flags, method: see APPNOTE.TXT 4.4.4 and 4.4.5.
    """

    name: str
    start: int
    length: int
    packed_bytes: int
    size_bytes: int
    crc32: int
    flags: int
    method: int


def member_name(data: bytes, flags: int, errors: str = "strict") -> str:
    """A member's name, out of the bytes that a header has of it; what is hidden behind a zero is none of it."""
    return data.decode("utf-8" if flags & _UNICODE else "cp437", errors).partition("\0")[0]


def unpack(data: bytes, member: Member) -> bytes:
    """The content of a member, from its span. Never more than the directory says is made of it.

    Raises:
        DamagedMemberError: it is encrypted, or not what the directory says.
    """
    if member.flags & _ENCRYPTED:
        raise DamagedMemberError("it is encrypted")
    if len(data) < _HEADER.size or not data.startswith(_SIGNATURE):
        raise DamagedMemberError("it has no header")
    _, name_length, extra_length = _HEADER.unpack_from(data)
    start = _HEADER.size + name_length + extra_length
    if member_name(data[_HEADER.size : _HEADER.size + name_length], member.flags, "replace") != member.name:
        raise DamagedMemberError("its header has another name than the directory")
    packed = memoryview(data)[start : start + member.packed_bytes]
    unpacker = _UNPACKERS.get(member.method)
    if not unpacker:
        raise DamagedMemberError(f"it is compressed by method {member.method}, which is not supported")
    try:
        content = unpacker(packed, member.size_bytes)
    except (OSError, ValueError, zlib.error, lzma.LZMAError, struct.error) as error:
        raise DamagedMemberError(str(error)) from error
    if len(content) != member.size_bytes:
        raise DamagedMemberError(f"{len(content):,} bytes where the directory says {member.size_bytes:,}")
    if zlib.crc32(content) != member.crc32:
        raise DamagedMemberError("its checksum is not that of the directory")
    return content


# Each makes a byte more than there should be, at the most, so that too many are seen. (A limit of 0 would mean none.)


def _inflated(packed: memoryview, size: int) -> bytes:
    inflate = zlib.decompressobj(-15)
    content = inflate.decompress(packed, size + 1)
    if not inflate.eof:
        raise DamagedMemberError("it does not end where it should")
    return content


def _from_bzip2(packed: memoryview, size: int) -> bytes:
    return bz2.BZ2Decompressor().decompress(packed, size + 1)


def _from_lzma(packed: memoryview, size: int) -> bytes:
    """After the packer's version and the size of the properties come these: lc, lp and pb in one byte, and the size of
    the dictionary (APPNOTE.TXT 5.8.8)."""
    properties_size, properties, dictionary = struct.unpack_from("<2xHBI", packed)
    rest, lc = divmod(properties, 9)
    pb, lp = divmod(rest, 5)
    # A larger dictionary than the content could not be used, and would be made all the same.
    filters = [
        {"id": lzma.FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb, "dict_size": max(4096, min(dictionary, size + 1))}
    ]
    unpack_lzma = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)
    return unpack_lzma.decompress(packed[4 + properties_size :], size + 1)


_UNPACKERS: dict[int, Callable[[memoryview, int], bytes]] = {
    zipfile.ZIP_STORED: lambda packed, _: bytes(packed),
    zipfile.ZIP_DEFLATED: _inflated,
    zipfile.ZIP_BZIP2: _from_bzip2,
    zipfile.ZIP_LZMA: _from_lzma,
}
