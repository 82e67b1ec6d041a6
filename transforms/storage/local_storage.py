"""Storage of local folders."""

import errno
import itertools
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from hashlib import blake2b
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from recordmill.schemas.inputs.files import NO_FILE
from recordmill.transforms.storage.interface import (
    ALL_NAMES,
    ChangedFileError,
    NameRange,
    Storage,
    StoredFile,
    UnreadableFileError,
    too_large,
)
from recordmill.transforms.storage.open_files import OpenFiles

_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""Values of errno if a path does not lead to a file."""
_OPEN_FILES = 256
"""Maximum number of files kept open for range reads."""
_READ_AT_ONCE = 0x7FFF_F000
"""Maximum number of bytes that one read() of Linux returns. Other systems return more."""
_NOT_READABLE = (errno.EACCES, errno.EPERM, errno.EISDIR)
"""Values of errno if this file cannot be read, while other files in the folder may be readable."""


def _open_at_once(path: str, flags: int) -> int:
    """Open a file, without waiting for a pipe's writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _irregular_file_error(path: str) -> UnreadableFileError:
    return UnreadableFileError(errno.EINVAL, "a pipe or a device, not a file", path)


def _open_regular(path: str, flags: int) -> int:
    file = _open_at_once(path, flags)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise (
        UnreadableFileError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if os.path.isdir(path)
        else _irregular_file_error(path)
    )


class _VersionFile(FileIO):
    """Open file of one version. It is readable even after it is deleted or replaced, and closed by garbage
    collection."""

    def __init__(self, path: str, version: str):
        super().__init__(path)
        self._version = version
        self.check()

    def check(self) -> None:
        if str(os.fstat(self.fileno()).st_mtime_ns) != self._version:
            raise ChangedFileError(errno.ESTALE, "written to since it was opened", self.name)

    def readinto(self, buffer: Any) -> int | None:
        read = super().readinto(buffer)
        self.check()
        return read

    def __del__(self) -> None:
        self.close()


_OPEN: OpenFiles[tuple[str, str], _VersionFile] = OpenFiles(lambda key: _VersionFile(*key), _OPEN_FILES)
"""By path and version."""


def _read_bytes(descriptor: int, length: int) -> bytes:
    """Read `length` bytes; fewer only at the file's end."""
    data = os.read(descriptor, length)
    if not _READ_AT_ONCE <= len(data) < length:
        return data
    pieces, read = [data], len(data)
    while read < length and pieces[-1]:
        pieces.append(os.read(descriptor, length - read))
        read += len(pieces[-1])
    return b"".join(pieces)


def _read_file(descriptor: int, path: str, version: str, most_bytes: int | None) -> bytes:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise _irregular_file_error(path)
    if version and str(status.st_mtime_ns) != version:
        raise ChangedFileError(errno.ESTALE, "written to since it was listed", path)
    if most_bytes is not None and status.st_size > most_bytes:
        raise too_large(path, status.st_size, most_bytes)
    # At most one byte more: the file may grow, and some files in /proc have no end.
    data = _read_bytes(descriptor, status.st_size + 1)
    if len(data) != status.st_size:
        raise ChangedFileError(errno.ESTALE, "written to while it was read", path)
    return data


class LocalStorage(Storage):
    """Storage of local folders. See `Storage` for the methods."""

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        for name, entry, kind in _walk_entries(folder):
            if kind is _Kind.OTHER:
                yield StoredFile(entry.path, 0, NO_FILE, name)
            else:
                status = entry.stat()
                yield StoredFile(entry.path, status.st_size, str(status.st_mtime_ns), name)

    def walk_names(self, folder: str) -> Iterator[str]:
        return (name for name, _, _ in _walk_entries(folder))

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if _entry_kind(entry) is _Kind.FILE)
        except FileNotFoundError:
            return []

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def stat(self, path: str) -> StoredFile | None:
        try:
            status = os.stat(path)
        except OSError as error:
            if error.errno in _NOWHERE:
                return None
            raise
        if not stat.S_ISREG(status.st_mode):
            return None
        return StoredFile(path, status.st_size, str(status.st_mtime_ns), os.path.basename(path))

    def open(self, path: str, version: str = "") -> BinaryIO:
        if version:
            return BufferedReader(_VersionFile(path, version))
        return open(path, "rb", opener=_open_regular)

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        try:
            file = _open_at_once(path, os.O_RDONLY | os.O_CLOEXEC)  # `open` takes twice as long
            try:
                return _read_file(file, path, version, most_bytes)
            finally:
                os.close(file)
        except (ChangedFileError, UnreadableFileError):
            raise
        except OSError as error:
            if error.errno in _NOWHERE:
                raise FileNotFoundError(error.errno, error.strerror, path) from error
            if error.errno in _NOT_READABLE:
                raise UnreadableFileError(error.errno, error.strerror, path) from error
            error.filename = path  # errors of reading have no file name, unlike errors of opening
            raise

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        with open(path, "rb", buffering=0) as file:
            if version and str(os.fstat(file.fileno()).st_mtime_ns) != version:
                raise ChangedFileError(errno.ESTALE, "written to since it was listed", path)
            os.lseek(file.fileno(), start, os.SEEK_SET)
            return _read_bytes(file.fileno(), length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        file = _OPEN.get((path, version))
        pieces = [
            os.pread(file.fileno(), length, start)
            if length <= _READ_AT_ONCE
            else self.read_range(path, start, length, version)
            for start, length in ranges
        ]
        file.check()
        return pieces

    def read_into(self, path: str, start: int, memory: memoryview, version: str) -> int:
        file = _OPEN.get((path, version))
        size = os.preadv(file.fileno(), [memory], start)
        file.check()
        return size

    def release(self, path: str, version: str) -> None:
        _OPEN.release((path, version))

    def write(self, path: str, data: bytes) -> None:
        # Another run may finish, and delete its state folder while this run writes to it.
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                super().write(path, data)
                return
        super().write(path, data)

    def create(self, path: str, folder: str = "") -> "LocalUpload":
        return LocalUpload(path, folder or os.path.dirname(path))

    def move(self, path: str, target: str) -> None:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        os.replace(path, target)

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        if os.path.islink(path):  # keep the target of the link
            self.delete(path)
            return
        for _ in range(_TRIES):  # another run may be writing to the folder
            try:
                for entry in list(os.scandir(path)):
                    if entry.is_dir(follow_symlinks=False):  # Beam's sink makes temporary sub-folders
                        self.delete_folder(entry.path)
                    else:
                        self.delete(entry.path)
                os.rmdir(path)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise

    def delete_leftovers(self, folder: str) -> None:
        for name in self.names(folder):
            temporary = TemporaryName.parse(name)
            if temporary and not temporary.may_be_written(os.path.join(folder, name)):
                self.delete(os.path.join(folder, name))

    def link_file(self, path: str, file: str) -> bool:
        folder, name = os.path.split(path)
        os.makedirs(folder or ".", exist_ok=True)
        temporary = os.path.join(folder, TemporaryName.make(name))
        try:
            os.link(os.path.realpath(file), temporary)
        except OSError:
            return False
        try:
            os.replace(temporary, path)
        finally:
            self.delete(temporary)  # os.replace leaves it if `path` is a name of the file already
        return True

    def link(self, path: str, target: str) -> bool:
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, TemporaryName.make(name))
        try:
            os.symlink(target, temporary)
        except OSError:  # some file systems have no links
            self.delete(path)
            return False
        os.replace(temporary, path)  # atomic: another run may make the same link
        return True


class _Kind(Enum):
    FOLDER = 1
    FILE = 2
    OTHER = 3  # pipes, devices, broken links


def _entry_kind(entry: os.DirEntry) -> _Kind:
    try:
        return _Kind.FOLDER if entry.is_dir() else _Kind.FILE if entry.is_file() else _Kind.OTHER
    except OSError:  # a link to itself
        return _Kind.OTHER


def _walk_entries(folder: str) -> Iterator[tuple[str, os.DirEntry, _Kind]]:
    """Yield name, entry and kind of all files below a folder."""
    # Follow links to folders, such as classes, except links to a parent folder.
    pending: list[tuple[str, str, frozenset[str]]] = [("", folder, frozenset())]
    while pending:
        prefix, directory, above = pending.pop()
        real = os.path.realpath(directory)
        if real in above:
            continue
        with os.scandir(directory) as entries:
            for entry in entries:
                name, kind = prefix + entry.name, _entry_kind(entry)
                if kind is not _Kind.FOLDER:
                    yield name, entry, kind
                elif entry.name != "lost+found" or os.access(entry.path, os.R_OK | os.X_OK):
                    pending.append((name + "/", entry.path, above | {real}))
                # else it is at the root of a disk, and only root can read it


_TEMPORARY = re.compile(r"\.(.+)\.([0-9a-f]{6})-(\d+)-([0-9a-f]{6})\.[0-9a-f]{4}\.tmp")
_HOST = blake2b(socket.gethostname().encode(), digest_size=3).hexdigest()
_RUN = secrets.token_hex(3)
_NUMBERS = itertools.count()
_ABANDONED_S = 3600
_TRIES = 5
_ENDED = (b"Z", b"X")
_MAX_NAME_BYTES = 200  # most file systems allow 255; the rest is for the parts that a temporary name adds


class TemporaryName(NamedTuple):
    """Name of a temporary file: the final name, and the process that writes it."""

    name: str
    host: str
    process: int
    run: str

    @classmethod
    def parse(cls, file: str) -> "TemporaryName | None":
        match = _TEMPORARY.fullmatch(file)
        return cls(match[1], match[2], int(match[3]), match[4]) if match else None

    @classmethod
    def make(cls, name: str) -> str:
        """Return a unique hidden name, so that two runs never write to one file."""
        if len(os.fsencode(name)) > _MAX_NAME_BYTES:
            name = blake2b(os.fsencode(name), digest_size=8).hexdigest()
        return f".{name}.{_HOST}-{os.getpid()}-{_RUN}.{next(_NUMBERS) % 0x10000:04x}.tmp"

    def may_be_written(self, path: str) -> bool:
        """Return True if the process may still be alive. Processes of other hosts count as alive. A file without a
        write for an hour counts as abandoned."""
        try:
            if time.time() - os.stat(path).st_mtime > _ABANDONED_S:
                return False
        except FileNotFoundError:
            return False
        if self.host != _HOST:
            return True
        # Each run in a container may have the same process id.
        return self.run == _RUN if self.process == os.getpid() else _is_alive(self.process)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        # A zombie has ended. Many containers have no init process that reaps zombies.
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0] not in _ENDED
    except ProcessLookupError:
        return False
    except (PermissionError, FileNotFoundError):  # another user's process; not Linux
        return True


class LocalUpload:
    """Temporary file in `folder`. `commit` flushes it to the disk and renames it."""

    def __init__(self, path: str, folder: str):
        try:
            os.makedirs(folder or ".", exist_ok=True)
        except FileNotFoundError as error:  # in /proc, for example
            text = "the folder cannot be created. Give a folder on a disk"
            raise FileNotFoundError(errno.ENOENT, text, error.filename) from error
        self._path = path
        self._temporary = os.path.join(folder, TemporaryName.make(os.path.basename(path)))
        self._file = open(self._temporary, "xb")  # noqa: SIM115  closed by commit or abandon

    def write(self, data: bytes) -> None:
        with _name_errors(self._path):
            self._file.write(data)

    def commit(self, path: str | None = None) -> None:
        with _name_errors(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        path = path or self._path
        for _ in range(_TRIES - 1):  # another run may finish and delete the folder
            with suppress(FileNotFoundError):
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                os.replace(self._temporary, path)
                return
        os.replace(self._temporary, path)

    def abandon(self) -> None:
        with suppress(OSError):  # on a full disk, the flush in close() fails again
            self._file.close()
        Path(self._temporary).unlink(missing_ok=True)


@contextmanager
def _name_errors(path: str) -> Iterator[None]:
    """Add the file name to errors of writing. The system's `No space left on device` names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise
