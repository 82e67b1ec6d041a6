"""Seekable streams over range reads, and over content that is decompressed from its start."""

import errno
import io
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

_BLOCK_BYTES = 8 << 20


def read_exactly(read_range: Callable[[int, int], bytes], path: str, start: int, length: int) -> bytes:
    """Read a range within the known size of a file.

    Raises:
        OSError: Fewer bytes were read.
    """
    data = read_range(start, length)
    if len(data) != length:
        raise OSError(errno.EIO, f"{len(data)} bytes were read instead of {length}", path)
    return data


class CachedBlocks:
    """Thread-safe cache of a file in blocks of 8 MB. A block is read when it is first needed.

    Args:
        read_range: Function (offset, number of bytes) -> bytes.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], size_bytes: int):
        self.size_bytes = size_bytes
        self._read_range = read_range
        self._blocks = [b""] * -(-size_bytes // _BLOCK_BYTES)
        self._locks = [Lock() for _ in self._blocks]

    def read_range(self, start: int, length: int) -> bytes:
        first, end = start // _BLOCK_BYTES, min(len(self._blocks), -(-(start + length) // _BLOCK_BYTES))
        blocks = b"".join(map(self._block, range(first, end)))
        return blocks[start - first * _BLOCK_BYTES : start - first * _BLOCK_BYTES + length]

    def _block(self, number: int) -> bytes:
        with self._locks[number]:
            if not self._blocks[number]:
                self._blocks[number] = self._read_range(number * _BLOCK_BYTES, _BLOCK_BYTES)
            return self._blocks[number]


class SizedStream(io.RawIOBase):
    """Base of seekable streams of a known size.

    Args:
        path: Path of the file, for messages.

    Raises:
        OSError: seek() to a position before the start.
    """

    def __init__(self, path: str, size_bytes: int):
        super().__init__()
        self._path = path
        self._size = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise OSError(errno.EINVAL, "the offset is before the start of the file", self._path)
        self._go_to(position)
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._read_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _go_to(self, position: int) -> None:
        self._position = position

    def _read_some(self, most: int) -> bytes | memoryview:
        """Return at most `most` next bytes; b"" at the end."""
        raise NotImplementedError


class RangeStream(SizedStream):
    """Stream that reads a file by ranges.

    Args:
        read_range: Function (offset, number of bytes) -> bytes.
        most_bytes: Maximum length of a range.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], path: str, size_bytes: int, most_bytes: int):
        super().__init__(path, size_bytes)
        self._read_range = read_range
        self._most = most_bytes

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._read_some(self._most), b""))  # the base class would read 8 kB at a time

    def _read_some(self, most: int) -> bytes:
        length = max(0, min(most, self._most, self._size - self._position))
        data = read_exactly(self._read_range, self._path, self._position, length) if length else b""
        self._position += length
        return data


class PieceStream(SizedStream):
    """Stream of content that is generated from its start, such as decompressed bytes. Seeking back restarts it.

    Args:
        pieces: Function that starts the content, and returns its pieces.
    """

    def __init__(self, pieces: Callable[[], Iterator[bytes]], path: str, size_bytes: int):
        super().__init__(path, size_bytes)
        self._start = pieces
        self._error: Exception | None = None
        self._rewind()

    def _rewind(self) -> None:
        self._pieces = self._start()
        self._piece = memoryview(b"")
        self._position = 0

    def _go_to(self, position: int) -> None:
        if position < self._position:
            self._rewind()
        while self._position < position and self._read_some(position - self._position):
            pass

    def _read_some(self, most: int) -> memoryview:
        if self._error:
            raise self._error  # repeat the error: the content must not seem to end here
        try:
            self._piece = self._piece or memoryview(next(self._pieces, b""))
        except Exception as error:
            self._error = error
            raise
        data, self._piece = self._piece[:most], self._piece[most:]
        self._position += len(data)
        return data
