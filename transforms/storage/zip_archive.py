"""Read a .zip: its directory, read by zipfile and stored as arrays, and members from ranges of bytes.

zipfile is not used for members: its threads share one file position, and it decompresses all of a bzip2 or LZMA member,
possibly gigabytes, before it checks the size.
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
"""Size of a member's header. Name, extra field and content follow."""
_MOST_BESIDES = HEADER_BYTES + 2 * 0xFFFF
_ENCRYPTED = 1
_TAIL_BYTES = 0xFFFF + 98
"""Maximum size of the end of central directory record with comment, and the Zip64 records before it."""
_STEP = 4 << 20
"""Number of bytes per read of the directory."""


class DamagedMemberError(ValueError):
    """The member is encrypted, compressed by an unsupported method, or does not match the directory."""


class Member(NamedTuple):
    """An entry of an archive's directory.

    Attributes:
        start: Offset of the member's header in the archive.
        length: Number of bytes from `start` to the next member, or the maximum length of the member if that is less.
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
    """Members of an archive, without folders. Of members with the same name only the last is kept.

    Attributes:
        repeated: Number of entries that have the name of a later entry.
        tops: Top-level folders of members, each with its `/`; "" for members without a folder.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], path: str, size_bytes: int):
        """
        Args:
            read_range: Function (offset, number of bytes) -> bytes of the archive.
            path: Path of the archive, for messages.

        Raises:
            ValueError: The archive has no directory, or a damaged one.
            OSError: Storage fails.
        """
        tail_start = max(0, size_bytes - _TAIL_BYTES)
        # Read the end once: zipfile makes several small reads, and takes an OSError for a file that is not an archive.
        tail = read_exactly(read_range, path, tail_start, size_bytes - tail_start)

        def read(start: int, length: int) -> bytes:
            at = start - tail_start
            return tail[at : at + length] if at >= 0 else read_range(start, length)

        try:
            with zipfile.ZipFile(BufferedReader(RangeStream(read, path, size_bytes, _STEP))) as archive:
                entries, end = archive.infolist(), archive.start_dir
        except (zipfile.BadZipFile, NotImplementedError, struct.error) as error:
            raise ValueError(str(error)) from error
        members = {member.name: member for member in _members(entries, end)}  # the last member of a name wins
        self.repeated = len(entries) - len(members)
        files = sorted(member for name, member in members.items() if name and not name.endswith("/"))
        self.tops = {name[: name.find("/") + 1] for name, *_ in files}
        names, *columns = zip(*files, strict=True) if files else [()] * len(Member._fields)
        self._names = list(names)
        try:
            self._columns = [array(code, column) for code, column in zip("qqqqIHH", columns, strict=True)]
        except OverflowError as error:
            raise ValueError("a member has an offset or a size that no file can have") from error

    def __iter__(self) -> Iterator[Member]:
        """Yield all members, sorted by name."""
        return map(Member, self._names, *self._columns)

    def below(self, prefix: str) -> Iterator[Member]:
        """Yield the members whose names begin with `prefix`, sorted by name."""
        start = bisect_left(self._names, prefix)
        for at in range(start, len(self._names)):
            if not self._names[at].startswith(prefix):
                break
            yield self._member(at)

    def find(self, name: str) -> Member | None:
        at = bisect_left(self._names, name)
        if at == len(self._names) or self._names[at] != name:
            return None
        return self._member(at)

    def _member(self, at: int) -> Member:
        return Member(self._names[at], *(column[at] for column in self._columns))


def _members(entries: list[zipfile.ZipInfo], end: int) -> Iterator[Member]:
    """Yield the entries in their order. A member ends where the next member or the directory (`end`) starts."""
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
    """Yield the content of a member, in pieces of at most `most_bytes`, and never more than its size in the directory.

    Args:
        pieces: Bytes of the archive from `member.start`. The first piece has the complete header.

    Raises:
        DamagedMemberError: See there. Raised after the last piece if size or checksum do not match.
    """
    packed = _packed_content(member, iter(pieces))
    unpacker, first = _start_unpacker(member, next(packed))
    size = crc32 = 0
    for data in chain((first,), packed):
        while not unpacker.eof:
            try:
                # One byte beyond the expected size shows that the content is too long. (0 would mean no limit.)
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
        raise DamagedMemberError("its compressed data does not end")
    if size != member.size_bytes:
        raise DamagedMemberError(f"{size:,} bytes instead of the directory's {member.size_bytes:,}")
    if crc32 != member.crc32:
        raise DamagedMemberError("its checksum differs from the directory's")


def _packed_content(member: Member, pieces: Iterator[bytes]) -> Iterator[memoryview]:
    """Yield the stored content from bytes from `member.start`, in at least one piece."""
    first = next(pieces, b"")
    data = memoryview(first)[content_start(first, member) :][: member.packed_bytes]
    left = member.packed_bytes - len(data)
    yield data
    while left and (data := memoryview(next(pieces, b""))[:left]):
        yield data
        left -= len(data)


class _Unpacker(Protocol):
    """Decompressor of bz2 or lzma. zlib's decompressor also has unused input in `unconsumed_tail`."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


class _Stored:
    eof = False

    def decompress(self, data: Any, max_length: int, /) -> bytes:
        return bytes(data)


def _start_unpacker(member: Member, content: memoryview) -> tuple[_Unpacker, memoryview]:
    """Return a decompressor of a member, and its first input: the start of the packed content, without headers."""
    match member.method:
        case zipfile.ZIP_STORED:
            return _Stored(), content
        case zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-15), content
        case zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor(), content
        case zipfile.ZIP_LZMA if len(content) > _LZMA.size:
            # The stream of a .lzma file, with another header (APPNOTE.TXT 5.8.8). A dictionary larger than the content
            # would waste memory.
            properties, dictionary = _LZMA.unpack_from(content)
            header = struct.pack("<BIq", properties, min(dictionary, member.size_bytes + 1), -1)
            return lzma.LZMADecompressor(lzma.FORMAT_ALONE), memoryview(header + content[_LZMA.size :])
    raise DamagedMemberError(f"it is compressed by method {member.method}, which is not supported")


_LZMA = struct.Struct("<4xBI")  # 4 bytes version and size of properties; then lc, lp, pb in 1 byte; dictionary size
