"""Storage of buckets through fsspec, such as `s3://bucket/folder/file`."""

import errno
import io
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO
from weakref import finalize

from recordmill.transforms.storage.interface import ALL_NAMES, NameRange, Storage, StoredFile, too_large
from recordmill.transforms.storage.range_stream import RangeStream, read_exactly

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_RANGE_BYTES = 4 << 20
_REQUESTS = 16
"""Maximum number of concurrent deletions."""


class FsspecStorage(Storage):
    """Buckets of one scheme. The methods are those of `Storage`, with the exception in `caveat`.

    Args:
        cure: Advice for error messages when access fails.
        options: Arguments of fsspec's file system.
    """

    caveat = (
        "does not compare bytes with a checksum, and does not notice a file that is replaced while it is read. Run one "
        "job at a time on an output: two may mix their files."
    )

    def __init__(self, scheme: str, cure: str, **options: Any):
        self.scheme = scheme
        self.options = options
        self._cure = cure

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        prefix = f"{folder.rstrip('/')}/"
        with _translate_client_errors(folder, self._cure):
            infos = self._system().find(folder, detail=True)
        for name, info in sorted(infos.items()):
            path = f"{self.scheme}://{name}"
            if path.startswith(prefix) and not path.endswith("/"):  # skip markers that consoles make for empty folders
                yield _stored_object(path[len(prefix) :], path, info)

    def names(self, folder: str) -> list[str]:
        try:
            with _translate_client_errors(folder, self._cure):
                infos = self._system().ls(folder, detail=True)
        except FileNotFoundError:
            return []
        names = (info["name"].rpartition("/")[2] for info in infos if info["type"] == "file")
        return sorted(name for name in names if name)

    def is_folder(self, path: str) -> bool:
        with _translate_client_errors(path, self._cure):
            return self._system().isdir(path)

    def stat(self, path: str) -> StoredFile | None:
        if path.endswith("/"):
            return None
        try:
            with _translate_client_errors(path, self._cure):
                info = self._system().info(path)
        except FileNotFoundError:
            return None
        return _stored_object(path.rpartition("/")[2], path, info) if info["type"] == "file" else None

    def open(self, path: str, version: str = "") -> BinaryIO:
        read_range = partial(self.read_range, path)
        return io.BufferedReader(RangeStream(read_range, path, self._size(path), _RANGE_BYTES), _RANGE_BYTES)

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        if most_bytes is None:
            return read_exactly(partial(self.read_range, path), path, 0, self._size(path))
        data = self.read_range(path, 0, most_bytes + 1)
        if len(data) > most_bytes:
            raise too_large(path, None, most_bytes)
        return data

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        if length <= 0:
            return b""
        try:
            with _translate_client_errors(path, self._cure):
                return self._system().cat_file(path, start=start, end=start + length)
        except OSError as error:
            if error.errno == errno.EINVAL and self._size(path) <= start:  # S3 refuses a range after the end
                return b""
            raise

    def write(self, path: str, data: bytes) -> None:
        with _translate_client_errors(path, self._cure):
            self._system().pipe_file(path, data)

    def create(self, path: str, folder: str = "") -> "FsspecUpload":
        with _translate_client_errors(path, self._cure):
            return FsspecUpload(self, path, self._system().open(path, "wb", autocommit=False), self._cure)

    def move(self, path: str, target: str) -> None:
        """Copy on the server, then delete: buckets cannot rename atomically."""
        with _translate_client_errors(path, self._cure):
            self._system().cp_file(path, target)
        self.delete(path)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), _translate_client_errors(path, self._cure):
            self._system().rm_file(path)

    def delete_folder(self, path: str) -> None:
        with ThreadPoolExecutor(_REQUESTS) as pool:
            list(pool.map(self.delete, [file.path for file in self.walk(path)]))

    def _size(self, path: str) -> int:
        file = self.stat(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return file.size_bytes

    def _system(self) -> "AbstractFileSystem":
        return connect(os.getpid(), self)


@contextmanager
def _translate_client_errors(path: str, cure: str) -> Iterator[None]:
    """Convert errors of fsspec and its clients to OSErrors that name the file and the cure."""
    try:
        yield
    except Exception as error:  # any: each implementation raises the errors of its client
        words = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
        if isinstance(error, FileNotFoundError):  # the message of s3fs is only the path
            words = "no such object" if path.endswith(words) else words
            raise FileNotFoundError(errno.ENOENT, words, path) from error
        number = errno.EACCES if isinstance(error, PermissionError) else getattr(error, "errno", None) or errno.EIO
        raise OSError(number, f"{words.rstrip('.')}. {cure}", path) from error


@lru_cache(maxsize=8)
def connect(process: int, storage: FsspecStorage) -> "AbstractFileSystem":
    """Return the client of a process. Forked processes must not share connections. fsspec makes one per thread."""
    from fsspec import filesystem

    return filesystem(storage.scheme, skip_instance_cache=True, use_listings_cache=False, **storage.options)


def _stored_object(name: str, path: str, info: Mapping[str, Any]) -> StoredFile:
    version = info.get("ETag") or info.get("etag") or info.get("mtime") or info["size"]
    return StoredFile(path, info["size"], str(version).strip('"'), name)


class FsspecUpload:
    """Multipart upload of an object."""

    def __init__(self, storage: FsspecStorage, path: str, file: Any, cure: str):
        self._storage = storage
        self._path = path
        self._file = file
        self._cure = cure
        self._abandon = finalize(self, _abandon, file)

    def write(self, data: bytes) -> None:
        with _translate_client_errors(self._path, self._cure):
            self._file.write(data)

    def commit(self, path: str | None = None) -> None:
        with _translate_client_errors(self._path, self._cure):
            self._file.close()
            self._file.commit()
        self._abandon.detach()
        if path and path != self._path:
            self._storage.move(self._path, path)

    def abandon(self) -> None:
        self._abandon()


def _abandon(file: Any) -> None:
    file.closed = True  # else garbage collection would send the rest
    with suppress(Exception):  # an error here would hide the cause; the bucket's lifecycle rule deletes parts
        file.discard()
