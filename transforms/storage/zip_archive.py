"""The members of a .zip: its directory, read by zipfile and kept as arrays, and their content out of ranges of bytes.

zipfile's own reading of members shares one position between all threads, and makes all that a few bytes of bzip2 or
LZMA unpack to, gigabytes perhaps, before it looks how much there should be.
"""

import bz2
import lzma
import struct
import zipfile
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from itertools import chain, pairwise
from typing import Any, NamedTuple, Protocol

from recordmill.transforms.storage.range_stream import RangeStream, read_exactly

_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of the name and the extra field
_SIGNATURE = b"PK\x03\x04"
HEADER_BYTES = _HEADER.size
"""Bytes of a member's header; a name and an extra field follow, and then the content."""
_MOST_BESIDES = HEADER_BYTES + 2 * 0xFFFF
_ENCRYPTED = 1
_TAIL_BYTES = 0xFFFF + 98
"""The end of a directory with its longest comment, and the end of one of 64 bits before it."""
_STEP = 4 << 20
"""Bytes of a directory that are read together."""


class DamagedMemberError(ValueError):
    """The member is encrypted, compressed by an unsupported method, or not what the directory says."""


class Member(NamedTuple):
    """An entry of an archive's directory.

    Attributes:
        start, length: Offset of the member's header in the archive, and number of bytes from there to the next member,
            or to the last that the member can have.
        packed_bytes, size_bytes: Size of the content as stored, and decompressed.
        crc32: Checksum of the decompressed content.
        flags, method: See APPNOTE.TXT 4.4.4 and 4.4.5, https://support.pkware.com/pkzip/appnote.
    """

    name: str
    start: int
    length: int
    packed_bytes: int
    size_bytes: int
    crc32: int
    flags: int
    method: int


class Directory:
    """The members of an archive, without folders, and without those that have the name of a later one.

    Attributes:
        repeated: Number of entries that have the name of a later one.
        tops: Folders at the top that members are in, each with its `/`; "" stands for a member in no folder.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], path: str, size_bytes: int):
        """
        Args:
            read_range: Reads a number of the archive's bytes from an offset.
            path: For messages.

        Raises:
            ValueError: The archive has no directory, or a damaged one.
            OSError: Storage fails.
        """
        tail_start = max(0, size_bytes - _TAIL_BYTES)
        # zipfile takes an OSError here for a file that is no archive, and reads the end by several small reads.
        tail = read_exactly(read_range, path, tail_start, size_bytes - tail_start)

        def read(start: int, length: int) -> bytes:
            at = start - tail_start
            return tail[at : at + length] if at >= 0 else read_range(start, length)

        try:
            with zipfile.ZipFile(BufferedReader(RangeStream(read, path, size_bytes, _STEP))) as archive:
                entries, end = archive.infolist(), archive.start_dir
        except (zipfile.BadZipFile, NotImplementedError, struct.error) as error:
            raise ValueError(str(error)) from error
        members = {member.name: member for member in _members(entries, end)}  # of one name, the last
        self.repeated = len(entries) - len(members)
        files = sorted(member for name, member in members.items() if name and not name.endswith("/"))
        self.tops = {name[: name.find("/") + 1] for name, *_ in files}
        names, *columns = zip(*files, strict=True) if files else [()] * len(Member._fields)
        self._names = list(names)
        try:
            self._columns = [array(code, column) for code, column in zip("qqqqIHH", columns, strict=True)]
        except OverflowError as error:
            raise ValueError("a member begins or ends beyond any file's end") from error

    def __iter__(self) -> Iterator[Member]:
        """All members, sorted by name."""
        return map(Member, self._names, *self._columns)

    def find(self, name: str) -> Member | None:
        at = bisect_left(self._names, name)
        if at == len(self._names) or self._names[at] != name:
            return None
        return Member(name, *(column[at] for column in self._columns))


def _members(entries: list[zipfile.ZipInfo], end: int) -> Iterator[Member]:
    """Yield the entries in their order; each member ends where the next one or the directory (`end`) starts."""
    starts = sorted({max(0, entry.header_offset) for entry in entries})
    ends = dict(pairwise([*starts, end]))
    for entry in entries:
        start, packed = max(0, entry.header_offset), entry.compress_size
        length = max(0, min(ends[start] - start, packed + _MOST_BESIDES))
        numbers = length, packed, entry.file_size, entry.CRC, entry.flag_bits, entry.compress_type
        yield Member(entry.filename, start, *numbers)


def content_start(data: bytes, member: Member) -> int:
    """Return the offset of a member's content in `data`, the bytes from `member.start`.

    Raises:
        DamagedMemberError: The member is encrypted, or has no header there.
    """
    if member.flags & _ENCRYPTED:
        raise DamagedMemberError("it is encrypted")
    if len(data) < HEADER_BYTES or not data.startswith(_SIGNATURE):
        raise DamagedMemberError("it has no header")
    _, name_bytes, extra_bytes = _HEADER.unpack_from(data)
    return HEADER_BYTES + name_bytes + extra_bytes


def unpack(member: Member, pieces: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Yield the content of a member, in pieces of at most `most_bytes`, and never more than the directory says.

    Args:
        pieces: The archive's bytes from `member.start`; the first has all of the header.

    Raises:
        DamagedMemberError: See there; after the last piece, if the content's size or checksum is another.
    """
    packed = _packed(member, iter(pieces))
    unpacker, first = _start(member, next(packed))
    size = crc32 = 0
    for data in chain((first,), packed):
        while not unpacker.eof:
            try:
                # One byte more than there should be shows that there are too many. (A limit of 0 would mean none.)
                unpacked = unpacker.decompress(data, min(most_bytes, member.size_bytes - size + 1))
            except (OSError, ValueError, zlib.error, lzma.LZMAError) as error:
                raise DamagedMemberError(str(error)) from error
            size += len(unpacked)
            if size > member.size_bytes:
                break
            crc32 = zlib.crc32(unpacked, crc32)
            if unpacked:
                yield unpacked
            data = memoryview(getattr(unpacker, "unconsumed_tail", b""))
            if not unpacked and not data:
                break
        if size > member.size_bytes:
            break
    if member.method == zipfile.ZIP_DEFLATED and not unpacker.eof:
        raise DamagedMemberError("it does not end where it should")
    if size != member.size_bytes:
        raise DamagedMemberError(f"{size:,} bytes where the directory says {member.size_bytes:,}")
    if crc32 != member.crc32:
        raise DamagedMemberError("its checksum is not that of the directory")


def _packed(member: Member, pieces: Iterator[bytes]) -> Iterator[memoryview]:
    """Yield the stored content out of the bytes from `member.start`; once at least."""
    first = next(pieces, b"")
    data = memoryview(first)[content_start(first, member) :][: member.packed_bytes]
    left = member.packed_bytes - len(data)
    yield data
    while left and (data := memoryview(next(pieces, b""))[:left]):
        yield data
        left -= len(data)


class _Unpacker(Protocol):
    """A decompressor of bz2 or lzma; zlib's has the bytes that it has not used in `unconsumed_tail`."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


class _Stored:
    eof = False

    def decompress(self, data: Any, max_length: int, /) -> bytes:
        return bytes(data)


def _start(member: Member, content: memoryview) -> tuple[_Unpacker, memoryview]:
    """Return a decompressor of a member, and its first input: the start of the packed content, without headers."""
    match member.method:
        case zipfile.ZIP_STORED:
            return _Stored(), content
        case zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-15), content
        case zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor(), content
        case zipfile.ZIP_LZMA if len(content) > _LZMA.size:
            # The same stream as of a .lzma file, which begins with another header (APPNOTE.TXT 5.8.8). A dictionary
            # larger than the content is of no use, and would take memory.
            properties, dictionary = _LZMA.unpack_from(content)
            header = struct.pack("<BIq", properties, min(dictionary, member.size_bytes + 1), -1)
            return lzma.LZMADecompressor(lzma.FORMAT_ALONE), memoryview(header + content[_LZMA.size :])
    raise DamagedMemberError(f"it is compressed by method {member.method}, which is not supported")


_LZMA = struct.Struct("<4xBI")  # after the packer's version and the size of these: lc, lp and pb, and the dictionary
