"""A file as a seekable stream, each read of which is a range: a request, where it is in a bucket."""

import errno
import io
from collections.abc import Callable
from typing import Any


class RangeStream(io.RawIOBase):
    """A seekable stream over ranges of a file whose size is known.

    Args:
        read_range: reads so many bytes from an offset on.
        path: for messages.
        most_bytes: the largest range to read at once.
    """

    def __init__(
        self,
        read_range: Callable[[int, int], bytes],
        path: str,
        size_bytes: int,
        most_bytes: int,
    ):
        super().__init__()
        self._read_range = read_range
        self._path = path
        self._size = size_bytes
        self._most = most_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise OSError(errno.EINVAL, "an offset before the file's start", self._path)
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        data = self._read_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._read_some(self._most), b""))  # io's own would ask for 8 kB at a time

    def _read_some(self, most: int) -> bytes:
        length = max(0, min(most, self._most, self._size - self._position))
        data = self._whole_range(self._position, length) if length else b""
        self._position += length
        return data

    def _whole_range(self, start: int, length: int) -> bytes:
        data = self._read_range(start, length)
        if len(data) != length:
            raise OSError(errno.EIO, f"{len(data)} bytes came where there are {length}", self._path)
        return data
