"""A member out of the bytes of an archive (APPNOTE.TXT, https://support.pkware.com/pkzip/appnote), so that it takes one
read wherever the archive is. The directory is read by zipfile; its own reading of members makes all that a few bytes of
bzip2 or LZMA unpack to, gigabytes perhaps, before it looks how much there should be."""

import bz2
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence

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
    unpacker = _UNPACKERS.get(info.compress_type)
    if not unpacker:
        raise DamagedMemberError(f"it is compressed by method {info.compress_type}, which is not supported")
    try:
        content = unpacker(packed, info.file_size)
    except (OSError, ValueError, zlib.error, lzma.LZMAError, struct.error) as error:
        raise DamagedMemberError(str(error)) from error
    if len(content) != info.file_size:
        raise DamagedMemberError(f"{len(content):,} bytes where the directory says {info.file_size:,}")
    if zlib.crc32(content) != info.CRC:
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
