"""A temporary file that one thread reads while another still writes it."""

import errno
import io
import os
import tempfile
import threading
from contextlib import suppress


class GrowingFile:
    """Bytes to be read from the first on, and once more from the first on where that is needed; reading waits for what
    is not written yet. One thread writes, one reads."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by close
        self._changed = threading.Condition()
        self._size = 0
        self._is_whole = False
        self._position = 0

    def append(self, data: bytes) -> None:
        """Raises:
        OSError: the disk does not take it; the folder of temporary files is named.
        """
        with self._changed:
            try:
                self._file.write(data)
                self._file.flush()
            except OSError as error:
                raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from error
            self._size += len(data)
            self._changed.notify()

    def end(self) -> None:
        """Nothing more will be written."""
        with self._changed:
            self._is_whole = True
            self._changed.notify()

    def close(self) -> None:
        """Delete the file; reading it is an error from now on, also where it is being waited for."""
        with self._changed:
            with suppress(OSError):  # of a full disk, which will not take what is left to write either
                self._file.close()
            self._changed.notify()

    def read(self, length: int) -> bytes:
        """The next `length` bytes; fewer only where the file ends.

        Raises:
            OSError: the file was closed.
        """
        with self._changed:
            end = self._position + length
            self._changed.wait_for(lambda: self._file.closed or self._is_whole or self._size >= end)
            if self._file.closed:
                raise OSError(errno.ECANCELED, "the upload was abandoned")
            data = os.pread(self._file.fileno(), length, self._position)
            self._position += len(data)
        return data

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Go on reading at `position`, from the first byte on.

        Raises:
            ValueError: of another `whence`: where the end will be is not known.
        """
        if whence != io.SEEK_SET:
            raise ValueError(f"whence is {whence}")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position
