"""A member of an archive as a stream: however large it is, it takes the memory of a few reads."""

import errno
import zlib
from collections.abc import Callable, Iterator

from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.range_stream import SizedStream
from recordmill.transforms.storage.zip_members import (
    MOST_BESIDES,
    DamagedMemberError,
    Member,
    check_content,
    content_start,
    unpack_some,
    unpacker_of,
)

_PIECE_BYTES = 1 << 20


class MemberStream(SizedStream):
    """The content of a member. To go back means to unpack it from its beginning.

    It is held against the size and the checksum of the archive's directory when the last of it has been read, so that
    what has been read before may be wrong. No more than a piece is unpacked beyond that size.

    Args:
        read_range: reads so many of the archive's bytes from an offset on, all of one version.
        read_bytes: how many at once.
        path: for messages.

    Raises:
        UnreadableFileError: it is encrypted, or not what the directory says; here or when it is read.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], read_bytes: int, member: Member, path: str):
        super().__init__(path, member.size_bytes)
        self._read_range = read_range
        self._read_bytes = max(read_bytes, MOST_BESIDES)
        self._member = member
        self._error: Exception | None = None
        self._rewind()
        self._fill()  # so that it is told here what cannot be read at all

    def _rewind(self) -> None:
        self._pieces = self._checked()
        self._piece = memoryview(b"")
        self._position = 0

    def _go_to(self, position: int) -> None:
        if position < self._position:
            self._rewind()
        while self._position < position and self._read_some(position - self._position):
            pass

    def _read_some(self, most: int) -> memoryview:
        self._fill()
        data, self._piece = self._piece[:most], self._piece[most:]
        self._position += len(data)
        return data

    def _fill(self) -> None:
        if self._error:
            raise self._error  # again, or it would seem to end
        try:
            self._piece = self._piece or memoryview(next(self._pieces, b""))
        except DamagedMemberError as damage:
            self._error = unreadable(self._path, damage)
            raise self._error from damage
        except Exception as error:
            self._error = error
            raise

    def _checked(self) -> Iterator[bytes]:
        member, size, crc32 = self._member, 0, 0
        packed = self._packed()
        unpacker, data = unpacker_of(member, next(packed))
        while not unpacker.eof:
            piece = unpack_some(unpacker, data, _PIECE_BYTES)
            size += len(piece)
            if size > member.size_bytes:
                break
            crc32 = zlib.crc32(piece, crc32)
            if piece:
                yield piece
            data = memoryview(getattr(unpacker, "unconsumed_tail", b""))
            if not piece and not data and not (data := next(packed, data)):
                break
        check_content(member, unpacker, size, crc32)

    def _packed(self) -> Iterator[memoryview]:
        member = self._member
        data = memoryview(self._read_range(member.start, min(member.length, self._read_bytes)))
        data = data[content_start(bytes(data[:MOST_BESIDES]), member) :][: member.packed_bytes]
        left = member.packed_bytes - len(data)
        at = member.start + min(member.length, self._read_bytes)
        yield data
        while left and (data := memoryview(self._read_range(at, min(left, self._read_bytes)))):
            yield data
            left -= len(data)
            at += len(data)


def unreadable(path: str, damage: DamagedMemberError) -> UnreadableFileError:
    return UnreadableFileError(errno.EIO, f"damaged or encrypted ({damage})", path)
