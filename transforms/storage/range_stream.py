"""Files as seekable streams: one whose every read is a range, which is a request where the file is in a bucket."""

import errno
import io
from collections.abc import Callable
from typing import Any


class SizedStream(io.RawIOBase):
    """What streams share that can be read from any position, of a file whose size is known.

    Args:
        path: for messages.

    Raises:
        OSError: a position before the start was asked for.
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
        """What comes next, no more than so many bytes; empty at the end."""
        raise NotImplementedError


class RangeStream(SizedStream):
    """Ranges of a file.

    Args:
        read_range: reads so many bytes from an offset on.
        most_bytes: the largest range to read at once.
    """

    def __init__(
        self,
        read_range: Callable[[int, int], bytes],
        path: str,
        size_bytes: int,
        most_bytes: int,
    ):
        super().__init__(path, size_bytes)
        self._read_range = read_range
        self._most = most_bytes

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
