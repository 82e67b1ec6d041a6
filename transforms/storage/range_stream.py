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
        tail_bytes: how much of the file's end is read once and kept: zipfile looks for the directory there in steps.

    Raises:
        OSError: that end cannot be read. (zipfile would take this for an archive without a directory.)
    """

    def __init__(
        self,
        read_range: Callable[[int, int], bytes],
        path: str,
        size_bytes: int,
        most_bytes: int | None = None,
        tail_bytes: int = 0,
    ):
        super().__init__()
        self._read_range = read_range
        self._path = path
        self._size = size_bytes
        self._most = most_bytes or max(1, size_bytes)
        self._tail_start = max(0, size_bytes - tail_bytes)
        self._tail = self._whole_range(self._tail_start, size_bytes - self._tail_start) if tail_bytes else b""
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
        data = self._bytes(self._position, length) if length else b""
        self._position += length
        return data

    def _bytes(self, start: int, length: int) -> bytes:
        if start < self._tail_start:
            return self._whole_range(start, length)
        return self._tail[start - self._tail_start :][:length]

    def _whole_range(self, start: int, length: int) -> bytes:
        data = self._read_range(start, length)
        if len(data) != length:
            raise OSError(errno.EIO, f"{len(data)} bytes came where there are {length}", self._path)
        return data
