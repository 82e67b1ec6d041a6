"""Seekable streams over storages that read ranges, and over content that is decompressed from its start."""

import errno
import io
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

_BLOCK_BYTES = 8 << 20


def read_exactly(read_range: Callable[[int, int], bytes], path: str, start: int, length: int) -> bytes:
    """Read a range that the file is known to have.

    Raises:
        OSError: The file is shorter.
    """
    data = read_range(start, length)
    if len(data) != length:
        raise OSError(errno.EIO, f"{len(data)} bytes came where there are {length}", path)
    return data


class KeptBlocks:
    """A file that is read in blocks of 8 MB, each when it is first needed, and kept; used by several threads.

    Args:
        read_range: Reads a number of bytes from an offset.
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
        path: For messages.

    Raises:
        OSError: A position before the start is asked for.
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
            raise OSError(errno.EINVAL, "an offset before the file's start", self._path)
        self._go_to(position)
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._read_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _go_to(self, position: int) -> None:
        self._position = position

    def _read_some(self, most: int) -> bytes | memoryview:
        """Return the next bytes, at most `most`; none at the end."""
        raise NotImplementedError


class RangeStream(SizedStream):
    """A file, each read of which is a range.

    Args:
        read_range: Reads a number of bytes from an offset.
        most_bytes: The largest range to read.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], path: str, size_bytes: int, most_bytes: int):
        super().__init__(path, size_bytes)
        self._read_range = read_range
        self._most = most_bytes

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._read_some(self._most), b""))  # io's own would ask for 8 kB at a time

    def _read_some(self, most: int) -> bytes:
        length = max(0, min(most, self._most, self._size - self._position))
        data = read_exactly(self._read_range, self._path, self._position, length) if length else b""
        self._position += length
        return data


class PieceStream(SizedStream):
    """Content that is made piece by piece from its start; to go back is to make it again.

    Args:
        pieces: Starts making it.
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
            raise self._error  # again, or the content would seem to end
        try:
            self._piece = self._piece or memoryview(next(self._pieces, b""))
        except Exception as error:
            self._error = error
            raise
        data, self._piece = self._piece[:most], self._piece[most:]
        self._position += len(data)
        return data
