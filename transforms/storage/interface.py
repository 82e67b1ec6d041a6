"""Interface of storages: local folders, buckets, and archives in either."""

import base64
import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, Protocol

import google_crc32c

from recordmill.schemas.inputs.files import File


class UnreadableFileError(OSError):
    """The storage works, but this one file cannot be read."""


class FileTooLargeError(UnreadableFileError):
    """The file has more bytes than the limit of its reader. They have not been read."""


class ChangedFileError(FileNotFoundError):
    """The listed file is gone: another file has its name."""


class StoredFile(File, frozen=True, array_like=True, gc=False):
    """A file found by listing a folder.

    Attributes:
        name: Path relative to the folder, with `/` as separator.
        crc32c: See `Storage.checksum`; empty if it is unknown without reading the file.
        packed_bytes: Compressed size in an archive; None if not compressed.
    """

    name: str = ""
    crc32c: str = ""
    packed_bytes: int | None = None


class NameRange(NamedTuple):
    """Range of complete object names in a bucket: from `start` to before `end`. Empty means no bound."""

    start: str = ""
    end: str = ""


ALL_NAMES = NameRange()


class Upload(Protocol):
    """A file being written. `commit` makes it visible atomically; otherwise it never becomes visible."""

    def write(self, data: bytes) -> object: ...

    def commit(self, path: str | None = None) -> None:
        """Make the file visible, at `path` if given, else at its initial path."""
        ...

    def abandon(self) -> None:
        """Discard the file. No-op after `commit`."""
        ...


class Storage(Protocol):
    """Base class of storages. Errors are OSErrors. A missing file is a FileNotFoundError.

    Attributes:
        caveat: Checks that the storage lacks, for the user; "" if none.
    """

    caveat: str = ""

    def __hash__(self) -> int:
        return object.__hash__(self)

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        """Yield all files below `folder` and its sub-folders, in any order. `within` is a range from `parts`."""
        ...

    def walk_names(self, folder: str) -> Iterator[str]:
        """Yield the names of the files that `walk` yields; local files are not looked up one by one."""
        return (file.name for file in self.walk(folder))

    def parts(self, folder: str) -> list[NameRange]:
        """Return disjoint ranges for concurrent `walk` calls, which together have all files, ordered by name."""
        return [ALL_NAMES]

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files directly in `folder`; [] if the folder does not exist."""
        ...

    def is_folder(self, path: str) -> bool: ...

    def size(self, path: str) -> int | None:
        """Return the stored size in bytes; None if the file does not exist."""
        file = self.stat(path)
        return None if file is None else file.size_bytes

    def stat(self, path: str) -> StoredFile | None:
        """Return size and version; None if the file is missing."""
        ...

    def open(self, path: str, version: str = "") -> BinaryIO:
        """Open a file as a stream. `version` (see `read`) is checked up to the end of the stream."""
        ...

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        """Return all bytes of a file.

        Args:
            version: Expected version, as from `walk`; empty for any.
            most_bytes: Maximum number of bytes; None for no limit.

        Raises:
            FileNotFoundError: The file does not exist. For another version it may be a ChangedFileError.
            UnreadableFileError: Only this file cannot be read. It is a FileTooLargeError beyond `most_bytes`.
        """
        ...

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        """Return `length` bytes from the offset `start`; fewer at the end of the file. See `read` for `version`."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        """Read several ranges (offset, length) of one version of a file. Many ranges are faster than with `read_range`,
        because the file may stay open until `release`."""
        return [self.read_range(path, start, length, version) for start, length in ranges]

    def read_into(self, path: str, start: int, memory: memoryview, version: str) -> int:
        """Read a range of one version of a file into `memory`, and return the number of bytes: fewer at the end of the
        file. Errors as for `read_ranges`."""
        (data,) = self.read_ranges(path, [(start, len(memory))], version)
        memory[: len(data)] = data
        return len(data)

    def release(self, path: str, version: str) -> None:
        """Close a file that `read_ranges` or `read_into` keeps open."""
        return

    def checksum(self, path: str) -> tuple[int, str]:
        """Return the size in bytes, and the CRC-32C in the format of Cloud Storage: big-endian, base64."""
        with self.open(path) as file:
            return compute_checksum(file)

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically: readers see the old or the new bytes. Missing folders are created."""
        with self.writing(path) as upload:
            upload.write(data)

    @contextmanager
    def writing(self, path: str, folder: str = "") -> Iterator[Upload]:
        """Context manager of an Upload: commit at the end of the block, abandon after an error. See `create`."""
        upload = self.create(path, folder)
        try:
            yield upload
            upload.commit()
        finally:
            upload.abandon()  # no-op after commit

    def create(self, path: str, folder: str = "") -> Upload:
        """Start to write a file in several writes.

        Args:
            folder: Folder for a temporary file; needed if another run may delete the folder of `path`.
        """
        ...

    def move(self, path: str, target: str) -> None:
        """Rename a file to `target`. An existing `target` is replaced.

        Raises:
            FileNotFoundError: The file does not exist, for example because an earlier try has moved it.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file. A missing file is not an error."""
        ...

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all its contents."""
        ...

    def delete_leftovers(self, folder: str) -> None:
        """Delete temporary files of killed uploads in `folder`. Files that another run may be writing are kept."""
        return

    def link_file(self, path: str, file: str) -> bool:
        """Make `path` another name of the local file `file`. Return False if that is not possible: on another disk, in
        a bucket, or without the right to. Missing folders are created; an existing `path` is replaced."""
        return False

    def link(self, path: str, target: str) -> bool:
        """Make `path` a link to the file `target` in the same folder. Return False if the storage has no links."""
        return False

    def protection(self, path: str) -> str:
        """Return the reason why a written file can be neither deleted nor replaced; "" if it can."""
        return ""

    def regions(self, path: str) -> tuple[str, ...]:
        """Return the region of `path`, its multi-region (`us`), or both its regions; () if unknown."""
        return ()


_CHUNK_BYTES = 1 << 22


def too_large(path: str, size_bytes: int | None, most_bytes: int) -> FileTooLargeError:
    """Return the error of a file larger than `most_bytes`. `size_bytes` is None if unknown."""
    size = f"more than {most_bytes:,} bytes" if size_bytes is None else f"{size_bytes:,} bytes"
    return FileTooLargeError(errno.EFBIG, f"{size}; the limit is {most_bytes:,}", path)


def compute_checksum(file: BinaryIO) -> tuple[int, str]:
    """Return `Storage.checksum` of all bytes of a stream."""
    checksum, size = google_crc32c.Checksum(), 0
    while chunk := file.read(_CHUNK_BYTES):
        checksum.update(chunk)
        size += len(chunk)
    return size, crc32c_text(checksum)


def crc32c_text(checksum: google_crc32c.Checksum) -> str:
    """Return a checksum in Cloud Storage's format: big-endian, base64.

    >>> crc32c_text(google_crc32c.Checksum(b"123456789"))
    '4waSgw=='
    """
    return base64.b64encode(checksum.digest()).decode()


_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial. In all polynomials here the highest bit is the lowest power."""
_ONE = 1 << 31


def join_checksums(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC-32C of two concatenated parts, like zlib's `crc32_combine`. The second has `second_bytes`.

    >>> import google_crc32c
    >>> first, second = google_crc32c.value(b"1234"), google_crc32c.value(b"56789")
    >>> join_checksums(first, second, 5) == google_crc32c.value(b"123456789")
    True
    """
    return _product(_power(8 * second_bytes), first) ^ second


def _power(bits: int) -> int:
    """Return x to the power of `bits`, modulo Castagnoli's polynomial."""
    result, square = _ONE, _ONE >> 1
    while bits:
        if bits & 1:
            result = _product(square, result)
        square = _product(square, square)
        bits >>= 1
    return result


def _product(a: int, b: int) -> int:
    """Multiply two polynomials, modulo Castagnoli's polynomial."""
    product = 0
    for place in range(32):
        if a & (_ONE >> place):
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product
