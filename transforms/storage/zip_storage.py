"""Files within a .zip, read in place: `annotations/panoptic_val2017.zip/000000000139.png`, or `gs://…/train2017.zip/…`."""

import errno
import io
import logging
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.interface import (
    ALL_NAMES,
    ChangedFileError,
    NameRange,
    Storage,
    StoredFile,
    checksum_of,
    is_remote,
    too_large,
)
from recordmill.transforms.storage.member_stream import MemberStream, unreadable
from recordmill.transforms.storage.zip_members import MOST_BESIDES, DamagedMemberError, Member, content_start, unpack

if TYPE_CHECKING:
    from recordmill.transforms.storage.zip_directory import Directory

_LOGGER = logging.getLogger(__name__)

_TRIES = 3
_KEPT_BYTES = 256 << 20
"""Of directories of archives in buckets, which have some 100 bytes a member."""
WHOLE_BYTES = 8 << 20
"""Of a member that is read as a whole, and again where it was damaged on its way, also where a stream is wanted."""
_LOCAL_BYTES, _REMOTE_BYTES = 1 << 20, 4 << 20
"""How much of an archive a stream reads at once."""


class ZipStorage:
    """The members of one archive, by paths that begin with the archive's. Nothing can be written.

    COCO's archives hold a folder of the archive's own name (`train2017.zip`: `train2017/`); members are named as below
    that. Where a single folder has another name, a member is found by its name below it, too.

    Attributes:
        archive: its path.
    """

    def __init__(self, archive: str, storage: Storage):
        """`storage` holds the archive's file."""
        self.archive = archive
        self._storage = storage

    def parts(self, folder: str) -> list[NameRange]:
        return [ALL_NAMES]

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        archive = self._open(again=True)
        prefix = self._member(folder).rstrip("/")
        prefix = f"{prefix}/" if prefix else archive.own_folder
        for member in archive.members:
            if member.name.startswith(prefix):
                path = f"{self.archive}/{member.name}"
                yield StoredFile(member.name[len(prefix) :], path, member.size_bytes, _version(member))

    def names(self, folder: str) -> list[str]:
        return sorted(file.name for file in self.walk(folder) if "/" not in file.name)

    def is_folder(self, path: str) -> bool:
        return path.rstrip("/") == self.archive or any(self.walk(path))

    def size(self, path: str) -> int | None:
        file = self.stat(path)
        return None if file is None else file.size_bytes

    def stat(self, path: str) -> StoredFile | None:
        name = self._member(path)
        member = self._open().find(name)
        return None if member is None else StoredFile(name, path, member.size_bytes, _version(member))

    def open(self, path: str, version: str = "") -> BinaryIO:
        """The member as a stream; one of WHOLE_BYTES is read here, as `read` does. One of more is of one version of the
        archive, and is known to be undamaged when all of it has been read."""
        archive = self._open()
        member = _found(archive, self._member(path), path, version)
        if max(member.size_bytes, member.packed_bytes) <= WHOLE_BYTES:
            return io.BytesIO(self.read(path, version))
        read_range = partial(self._storage.read_range, self.archive, version=archive.version)
        stream = MemberStream(read_range, _REMOTE_BYTES if is_remote(self.archive) else _LOCAL_BYTES, member, path)
        return io.BufferedReader(stream, _LOCAL_BYTES)

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        member = _found(self._open(), self._member(path), path, version)
        size = max(member.size_bytes, member.packed_bytes)  # what is stored may be padded with what unpacks to nothing
        if most_bytes is not None and size > most_bytes:
            raise too_large(path, size, most_bytes)
        # A range comes without a checksum, so what is damaged may be so on its way only.
        for _ in range(_TRIES if is_remote(self.archive) else 1):
            try:
                return unpack(self.read_span(member.start, member.length), member)
            except DamagedMemberError as error:
                damage = error
        raise unreadable(path, damage) from damage

    def member(self, path: str) -> Member | None:
        """What the archive's directory says of a member; None where there is no such member."""
        return self._open().find(self._member(path))

    def span(self, path: str) -> tuple[int, int] | None:
        """Where the bytes of a member with its header begin in the archive, and how many there are at the most; None
        where there is no such member."""
        member = self.member(path)
        return None if member is None else (member.start, member.length)

    def read_span(self, start: int, length: int) -> bytes:
        """So many bytes of the archive."""
        return self._storage.read_range(self.archive, start, length, self._open().version)

    def unpack(self, path: str, data: bytes, version: str = "") -> bytes:
        """A member out of the bytes of its span.

        Raises:
            DamagedMemberError: it cannot be had from them.
            OSError: see `read`.
        """
        return unpack(data, _found(self._open(), self._member(path), path, version))

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        """Of a large member that is stored as it is, a range of the archive, which has no checksum; of others, all is
        read."""
        archive = self._open()
        member = _found(archive, self._member(path), path, version)
        if member.size_bytes <= WHOLE_BYTES:
            return self.read(path, version)[start : start + length]
        read_range = partial(self._storage.read_range, self.archive, version=archive.version)
        try:
            content = member.start + content_start(read_range(member.start, min(member.length, MOST_BESIDES)), member)
        except DamagedMemberError as damage:
            raise unreadable(path, damage) from damage
        return read_range(content + start, max(0, min(length, member.size_bytes - start)))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        data = self.read(path, version)
        return [data[start : start + length] for start, length in ranges]

    def release(self, path: str, version: str) -> None:
        pass

    def checksum(self, path: str) -> tuple[int, str]:
        with self.open(path) as file:
            return checksum_of(file)

    def join(self, folder: str, name: str) -> str:
        return f"{folder.rstrip('/')}/{name}"

    def _open(self, again: bool = False) -> "_Archive":
        """The archive as it is; one of a bucket as it was when its members were last listed."""
        if not again and (known := _opened.get(self.archive)):
            return known
        found = self._storage.stat(self.archive)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such archive", self.archive)
        with _opening:
            archive = _archive(self._storage, self.archive, found.size_bytes, found.version)
            if is_remote(self.archive):
                _opened.keep(self.archive, archive)
        return archive

    def _member(self, path: str) -> str:
        return path[len(self.archive) :].lstrip("/")

    def _refuse(self, path: str, *_: object) -> NoReturn:
        raise OSError(errno.EROFS, "archives are only read", path)

    def write(self, path: str, data: bytes) -> None:
        self._refuse(path)

    def create(self, path: str, folder: str = "") -> NoReturn:
        self._refuse(path)

    def move(self, path: str, target: str) -> None:
        self._refuse(path)

    def delete(self, path: str) -> None:
        self._refuse(path)

    def delete_folder(self, path: str) -> None:
        self._refuse(path)

    def delete_leftovers(self, folder: str) -> None:
        self._refuse(folder)

    def link(self, path: str, target: str) -> bool:
        self._refuse(path)


def _found(archive: "_Archive", name: str, path: str, version: str) -> Member:
    member = archive.find(name)
    if member is None:
        raise FileNotFoundError(errno.ENOENT, "no such member", path)
    if version and version != _version(member):
        raise ChangedFileError(errno.ESTALE, "another member than was listed", path)
    return member


def _version(member: Member) -> str:
    return f"{member.crc32:08x}"


class _Archive:
    """An archive whose directory has been read; size and version are of the file then."""

    def __init__(self, storage: Storage, path: str, size_bytes: int, version: str):
        self.version = version
        self.members = members = _directory(storage, path, size_bytes, version)
        if members.repeated:
            message = "%s: %d of its members have the name of a later one, and are passed over"
            _LOGGER.warning(message, path, members.repeated)
        folders = members.tops - {"", "__MACOSX/"}
        self._folder = folders.pop() if len(folders) == 1 else ""
        is_own = self._folder == f"{PurePosixPath(path).stem}/" and "" not in members.tops
        self.own_folder = self._folder if is_own else ""

    def find(self, name: str) -> Member | None:
        return self.members.find(name) or self.members.find(self._folder + name)


def _directory(storage: Storage, path: str, size_bytes: int, version: str) -> "Directory":
    from recordmill.transforms.storage.zip_directory import Directory  # numpy takes longer than all of this room

    try:
        return Directory(partial(storage.read_range, path, version=version), path, size_bytes)
    except ValueError as error:
        raise ConfigError(f"{path} is not a ZIP archive that can be read ({error})") from error


class _Opened:
    """Archives of buckets by path. Those that were opened first are forgotten where directories have more than
    _KEPT_BYTES together, and opened anew where they are wanted; of files that were listed, versions tell whether the
    archive is another by then."""

    def __init__(self) -> None:
        self._archives: dict[str, _Archive] = {}
        self._bytes = 0

    def get(self, path: str) -> _Archive | None:
        return self._archives.get(path)

    def keep(self, path: str, archive: _Archive) -> None:
        self._forget(path)
        self._archives[path] = archive
        self._bytes += archive.members.kept_bytes
        while self._bytes > _KEPT_BYTES and len(self._archives) > 1:
            self._forget(next(iter(self._archives)))

    def _forget(self, path: str) -> None:
        if archive := self._archives.pop(path, None):
            self._bytes -= archive.members.kept_bytes


_archive = lru_cache(maxsize=16)(_Archive)
_opened = _Opened()
_opening = threading.Lock()
"""Held while a directory is read: threads that begin at once would all read it."""
