"""Interface of storages: local folders, buckets, and archives in either."""

import base64
import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, Protocol

import google_crc32c
import msgspec


class UnreadableFileError(OSError):
    """The storage works, but this one file cannot be read."""


class FileTooLargeError(UnreadableFileError):
    """The file has more bytes than its reader takes; they have not been read."""


class ChangedFileError(FileNotFoundError):
    """The file that was listed is gone: another one has its name."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file found by listing a folder.

    Attributes:
        name: relative to the folder, `/` between its parts.
        version: changes when the file does; `recordmill.schemas.inputs.images.NO_FILE` of what cannot be read.
        crc32c: see `Storage.checksum`; empty where knowing it would take reading the file.
        packed_bytes: size as compressed in an archive; None if it is not compressed there.
    """

    name: str
    path: str
    size_bytes: int
    version: str
    crc32c: str = ""
    packed_bytes: int | None = None


class NameRange(NamedTuple):
    """Full names of a bucket's objects from `start` on, and before `end`; empty for no bound."""

    start: str = ""
    end: str = ""


ALL_NAMES = NameRange()


class Upload(Protocol):
    """A file being written: it appears whole under its name at `commit`, or never."""

    def write(self, data: bytes) -> object: ...

    def commit(self, path: str | None = None) -> None:
        """Make the file visible; under `path`, where its last name was not known before."""
        ...

    def abandon(self) -> None:
        """Leave no trace of it; without effect after `commit`."""
        ...


class Storage(Protocol):
    """Base of places that keep files. Errors are OSErrors; a missing file is a FileNotFoundError.

    Attributes:
        caveat: What the storage does not check.
    """

    caveat: str = ""

    def __hash__(self) -> int:
        return object.__hash__(self)

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        """All files below `folder`, sub-folders included, in no particular order; of a range that `parts` gave."""
        ...

    def parts(self, folder: str) -> list[NameRange]:
        """Return ranges that `walk` may list concurrently, each file in one of them, in the order of names."""
        return [ALL_NAMES]

    def names(self, folder: str) -> list[str]:
        """Names of the files directly in `folder`, sorted; none where there is no such folder."""
        ...

    def is_folder(self, path: str) -> bool: ...

    def size(self, path: str) -> int | None:
        """Size in bytes, as stored; None where there is no such file."""
        file = self.stat(path)
        return None if file is None else file.size_bytes

    def stat(self, path: str) -> StoredFile | None:
        """Size and version; None where there is no such file."""
        ...

    def open(self, path: str, version: str = "") -> BinaryIO:
        """The file's bytes as a stream; `version` as of `read`, to the stream's end."""
        ...

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        """Return all bytes of a file.

        Args:
            version: as of `walk`; empty for any.
            most_bytes: no more are read.

        Raises:
            FileNotFoundError: no such file; a ChangedFileError, or FileNotFoundError, for another version.
            UnreadableFileError: only this file cannot be read; a FileTooLargeError, where it is larger than that.
        """
        ...

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        """So many of a file's bytes; fewer at its end. `version` as of `read`."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        """Several ranges of a file, each the offset of its first byte and its length, all of that version; as
        `read_range`, but quick also where there are many: the file may be kept open until `release`."""
        return [self.read_range(path, start, length, version) for start, length in ranges]

    def release(self, path: str, version: str) -> None:
        """Let go of what `read_ranges` keeps open."""
        return

    def checksum(self, path: str) -> tuple[int, str]:
        """Size in bytes, and CRC-32C as Cloud Storage writes it: big-endian, in base64."""
        with self.open(path) as file:
            return checksum_of(file)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, its folder made if need be: readers see the old bytes or the new ones."""
        with self.writing(path) as upload:
            upload.write(data)

    @contextmanager
    def writing(self, path: str, folder: str = "") -> Iterator[Upload]:
        """Write a file of many writes: it appears as the block ends, and not at all after an error; see `create`."""
        upload = self.create(path, folder)
        try:
            yield upload
            upload.commit()
        finally:
            upload.abandon()  # nothing to do after a commit

    def create(self, path: str, folder: str = "") -> Upload:
        """Start a file of many writes.

        Args:
            folder: where it may be meanwhile, under another name, if another run may delete the folder of `path`.
        """
        ...

    def move(self, path: str, target: str) -> None:
        """Give a file the name `target`, in place of what has that name.

        Raises:
            FileNotFoundError: no such file; as after a move that was made.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file; one that is already gone is no error."""
        ...

    def delete_folder(self, path: str) -> None:
        """Delete a folder and all that is below it."""
        ...

    def delete_leftovers(self, folder: str) -> None:
        """Delete what killed uploads left in `folder`; not what another run may be writing."""
        return

    def link(self, path: str, target: str) -> bool:
        """Make `path` a link to the file `target` in the same folder; False where this storage has no links."""
        return False

    def protection(self, path: str) -> str:
        """Return why a file that was written can be neither deleted nor replaced; "" if it can."""
        return ""

    def regions(self, path: str) -> tuple[str, ...]:
        """Return the region that holds `path`, its multi-region (`us`), or both its regions; none if unknown."""
        return ()


_CHUNK_BYTES = 1 << 22


def too_large(path: str, size_bytes: int | None, most_bytes: int) -> FileTooLargeError:
    """`size_bytes` is None where it is not known by how much the file is too large."""
    found = "more" if size_bytes is None else f"{size_bytes:,} bytes"
    return FileTooLargeError(errno.EFBIG, f"{found}, where at most {most_bytes:,} are read", path)


def is_remote(path: str) -> bool:
    """Whether each read of `path` is a request over a network."""
    return "://" in path


def checksum_of(file: BinaryIO) -> tuple[int, str]:
    """Return `Storage.checksum` of all bytes of a stream."""
    checksum, size = google_crc32c.Checksum(), 0
    while chunk := file.read(_CHUNK_BYTES):
        checksum.update(chunk)
        size += len(chunk)
    return size, crc32c_text(checksum)


def crc32c_text(checksum: google_crc32c.Checksum) -> str:
    """A checksum as Cloud Storage writes it: big-endian, in base64.

    >>> crc32c_text(google_crc32c.Checksum(b"123456789"))
    '4waSgw=='
    """
    return base64.b64encode(checksum.digest()).decode()


_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, the lowest power in the highest bit, as in all numbers here."""
_ONE = 1 << 31


def join_checksums(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC-32C of two parts together, as zlib's `crc32_combine`; the second has so many bytes.

    >>> import google_crc32c
    >>> first, second = google_crc32c.value(b"1234"), google_crc32c.value(b"56789")
    >>> join_checksums(first, second, 5) == google_crc32c.value(b"123456789")
    True
    """
    return _product(_power(8 * second_bytes), first) ^ second


def _power(bits: int) -> int:
    """x to the power of `bits`."""
    result, square = _ONE, _ONE >> 1
    while bits:
        if bits & 1:
            result = _product(square, result)
        square = _product(square, square)
        bits >>= 1
    return result


def _product(a: int, b: int) -> int:
    """Multiply two polynomials, modulo Castagnoli's."""
    product = 0
    for place in range(32):
        if a & (_ONE >> place):
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product
