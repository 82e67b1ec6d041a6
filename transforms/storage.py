"""Where files are: one small interface over local folders, and the place where other stores join it."""

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from schemas.errors import ConfigError


class StoredFile(msgspec.Struct, frozen=True):
    """A file found by listing a folder.

    Attributes:
        name: relative to the folder, `/` between its parts.
        version: changes when the file does.
    """

    name: str
    path: str
    size_bytes: int
    version: str


class Upload(Protocol):
    """A file being written: it appears whole under its name at `commit`, or never."""

    def write(self, data: bytes) -> object: ...

    def commit(self, path: str | None = None) -> None:
        """Make the file visible; under `path`, in the same folder, where its name was not known before."""
        ...

    def abandon(self) -> None:
        """Leave no trace of it; without effect after `commit`."""
        ...


class Storage(Protocol):
    """What Recordmill asks of a place that keeps files. Errors are OSErrors; a missing file is a FileNotFoundError."""

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """All files below `folder`, sub-folders included, in no particular order."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names of the files directly in `folder`, sorted; none where there is no such folder."""
        ...

    def is_folder(self, path: str) -> bool: ...

    def size(self, path: str) -> int | None:
        """Size in bytes; None where there is no such file."""
        ...

    def open(self, path: str) -> BinaryIO:
        """The file's bytes as a stream."""
        ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, its folder made if need be: readers see the old bytes or the new ones."""
        ...

    def create(self, path: str) -> Upload:
        """Start a file of many writes."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; one that is already gone is no error."""
        ...

    def delete_folder(self, path: str) -> None:
        """Delete a folder of files, itself without sub-folders."""
        ...

    def delete_leftovers(self, folder: str, is_ours: Callable[[str], bool]) -> None:
        """Delete what killed uploads left in `folder`, of files whose names `is_ours` knows."""
        ...

    def link(self, path: str, target: str) -> bool:
        """Let `path` lead to the file `target` of the same folder; False where this storage has no links."""
        ...

    def join(self, folder: str, name: str) -> str: ...


def storage_for(path: str) -> Storage:
    """The storage that holds `path`.

    Raises:
        ConfigError: a scheme that no storage speaks.
    """
    scheme, separator, _ = path.partition("://")
    if not separator:
        archive = _archive_of(path)
        if archive:
            from transforms.zip_storage import ZipStorage  # which is made of the classes here

            return ZipStorage(archive)
        return LocalStorage()
    raise ConfigError(f"{path}: {scheme}:// is not supported yet; give a local path")


_ARCHIVE = re.compile(r"\.zip(?=/|$)", re.IGNORECASE)


def _archive_of(path: str) -> str:
    """The .zip that `path` is in, or is; empty where there is none. Folders may be called so, too."""
    candidates = (path[: match.end()] for match in _ARCHIVE.finditer(path))
    return next(filter(os.path.isfile, candidates), "")


class UnreadableFileError(OSError):
    """The storage works, but this one file cannot be read."""


_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""What is wrong with a path that leads to no file."""
_NOT_READABLE = (errno.EACCES, errno.EPERM, errno.EISDIR)
"""What is wrong with a file that others may be right beside."""


class LocalStorage:
    """Local folders. See `Storage` for what each method promises."""

    def walk(self, folder: str) -> Iterator[StoredFile]:
        # Folders reached by a link are listed like others, but last, so that real ones keep their names; one that has
        # been entered already is not entered again.
        entered = {os.path.realpath(folder)}
        pending: list[tuple[str, str]] = [("", folder)]
        links: list[tuple[str, str]] = []
        while pending or links:
            prefix, directory = pending.pop() if pending else links.pop()
            if prefix and os.path.realpath(directory) in entered:
                continue
            entered.add(os.path.realpath(directory))
            with os.scandir(directory) as entries:
                for entry in entries:
                    name = prefix + entry.name
                    kind = _kind(entry)
                    if kind is _Kind.FOLDER:
                        (links if entry.is_symlink() else pending).append((name + "/", entry.path))
                    elif kind is _Kind.FILE:
                        status = entry.stat()
                        yield StoredFile(name, entry.path, status.st_size, str(status.st_mtime_ns))

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except FileNotFoundError:
            return []

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(path)
        except OSError as error:
            if error.errno in _NOWHERE:
                return None
            raise
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def read(self, path: str) -> bytes:
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except OSError as error:
            if error.errno in _NOWHERE:
                raise FileNotFoundError(error.errno, error.strerror, path) from error
            if error.errno in _NOT_READABLE:
                raise UnreadableFileError(error.errno, error.strerror, path) from error
            raise

    def write(self, path: str, data: bytes) -> None:
        upload = self.create(path)
        try:
            upload.write(data)
            upload.commit()
        finally:
            upload.abandon()

    def create(self, path: str) -> "LocalUpload":
        return LocalUpload(path)

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        try:
            for entry in list(os.scandir(path)):
                self.delete(entry.path)
            os.rmdir(path)
        except FileNotFoundError:
            pass

    def delete_leftovers(self, folder: str, is_ours: Callable[[str], bool]) -> None:
        for name in self.names(folder):
            match = _TEMPORARY.fullmatch(name)
            if match and is_ours(match[1]):
                self.delete(os.path.join(folder, name))

    def link(self, path: str, target: str) -> bool:
        self.delete(path)
        try:
            os.symlink(target, path)
        except OSError:  # some file systems have none
            return False
        return True

    def join(self, folder: str, name: str) -> str:
        return os.path.join(folder, name)


class _Kind(Enum):
    FOLDER = 1
    FILE = 2
    OTHER = 3  # pipes and devices, and links that lead nowhere


def _kind(entry: os.DirEntry) -> _Kind:
    try:
        return _Kind.FOLDER if entry.is_dir() else _Kind.FILE if entry.is_file() else _Kind.OTHER
    except OSError:  # a link that leads to itself
        return _Kind.OTHER


_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")


class LocalUpload:
    """A temporary file beside its final name, flushed to the disk and renamed by `commit`."""

    def __init__(self, path: str):
        folder, name = os.path.split(path)
        os.makedirs(folder or ".", exist_ok=True)
        self._path = path
        # Hidden, and with a name of its own, so that two runs never write into one file.
        self._temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
        self._file = open(self._temporary, "xb")  # noqa: SIM115  closed by commit or abandon
        self.write = self._file.write

    def commit(self, path: str | None = None) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, path or self._path)

    def abandon(self) -> None:
        try:
            self._file.close()
        finally:
            Path(self._temporary).unlink(missing_ok=True)
