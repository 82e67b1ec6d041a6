"""A member out of the bytes of an archive (APPNOTE.TXT, https://support.pkware.com/pkzip/appnote), so that it takes one
read wherever the archive is. zipfile's own reading of members makes all that a few bytes of bzip2 or LZMA unpack to,
gigabytes perhaps, before it looks how much there should be."""

import bz2
import lzma
import struct
import zipfile
import zlib
from typing import Any, NamedTuple, Protocol

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


def content_start(data: bytes, member: Member) -> int:
    """Where a member's content begins in its span, of which `data` is the beginning, with all of the header.

    Raises:
        DamagedMemberError: it is encrypted, or not what the directory says.
    """
    if member.flags & _ENCRYPTED:
        raise DamagedMemberError("it is encrypted")
    if len(data) < _HEADER.size or not data.startswith(_SIGNATURE):
        raise DamagedMemberError("it has no header")
    _, name_length, extra_length = _HEADER.unpack_from(data)
    name_end = _HEADER.size + name_length
    if member_name(data[_HEADER.size : name_end], member.flags, "replace") != member.name:
        raise DamagedMemberError("its header has another name than the directory")
    return name_end + extra_length


def unpack(data: bytes, member: Member) -> bytes:
    """The content of a member, from its span. Never more than the directory says is made of it.

    Raises:
        DamagedMemberError: it is encrypted, or not what the directory says.
    """
    start = content_start(data, member)
    unpacker, packed = unpacker_of(member, memoryview(data)[start : start + member.packed_bytes])
    # A byte more than there should be, at the most, so that too many are seen. (A limit of 0 would mean none.)
    content = unpack_some(unpacker, packed, member.size_bytes + 1)
    check_content(member, unpacker, len(content), zlib.crc32(content))
    return content


class Unpacker(Protocol):
    """What takes packed bytes and gives what they hold, no more than is asked for; as those of bz2 and lzma. One of
    zlib's has what it has not used in `unconsumed_tail`."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


class _Stored:
    eof = False

    def decompress(self, data: Any, max_length: int, /) -> bytes:
        return bytes(data)


def unpacker_of(member: Member, packed: memoryview) -> tuple[Unpacker, memoryview]:
    """What unpacks a member, and what it begins with out of the first of the member's packed bytes.

    Raises:
        DamagedMemberError: it is compressed in a way that is not supported, or damaged.
    """
    match member.method:
        case zipfile.ZIP_STORED:
            return _Stored(), packed
        case zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-15), packed
        case zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor(), packed
        case zipfile.ZIP_LZMA:
            return _lzma_unpacker(packed, member.size_bytes)
    raise DamagedMemberError(f"it is compressed by method {member.method}, which is not supported")


def unpack_some(unpacker: Unpacker, packed: memoryview, most_bytes: int) -> bytes:
    """What bytes unpack to, as far as that is not too much.

    Raises:
        DamagedMemberError: they are damaged.
    """
    try:
        return unpacker.decompress(packed, most_bytes)
    except (OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise DamagedMemberError(str(error)) from error


def check_content(member: Member, unpacker: Unpacker, size_bytes: int, crc32: int) -> None:
    """Raise a DamagedMemberError where what has been unpacked is not what the directory says."""
    if member.method == zipfile.ZIP_DEFLATED and not unpacker.eof:
        raise DamagedMemberError("it does not end where it should")
    if size_bytes != member.size_bytes:
        raise DamagedMemberError(f"{size_bytes:,} bytes where the directory says {member.size_bytes:,}")
    if crc32 != member.crc32:
        raise DamagedMemberError("its checksum is not that of the directory")


def _lzma_unpacker(packed: memoryview, size: int) -> tuple[Unpacker, memoryview]:
    """After the packer's version and the size of the properties come these: lc, lp and pb in one byte, and the size of
    the dictionary (APPNOTE.TXT 5.8.8)."""
    try:
        properties_size, properties, dictionary = struct.unpack_from("<2xHBI", packed)
        rest, lc = divmod(properties, 9)
        pb, lp = divmod(rest, 5)
        # A larger dictionary than the content could not be used, and would be made all the same.
        dictionary = max(4096, min(dictionary, size + 1))
        filters = [{"id": lzma.FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb, "dict_size": dictionary}]
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters), packed[4 + properties_size :]
    except (ValueError, lzma.LZMAError, struct.error) as error:
        raise DamagedMemberError(str(error)) from error
