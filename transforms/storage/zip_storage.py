"""Storage of members of a .zip: `annotations/panoptic_val2017.zip/000000000139.png`, or `gs://…/train2017.zip/…`."""

import errno
import io
import logging
import threading
import zipfile
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import BinaryIO, NoReturn
from weakref import WeakSet

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.paths import is_remote
from recordmill.transforms.storage.interface import (
    ALL_NAMES,
    ChangedFileError,
    NameRange,
    Storage,
    StoredFile,
    UnreadableFileError,
    too_large,
)
from recordmill.transforms.storage.range_stream import CachedBlocks, PieceStream
from recordmill.transforms.storage.zip_archive import (
    HEADER_BYTES,
    DamagedMemberError,
    Directory,
    Member,
    content_start,
    unpack,
)

_LOGGER = logging.getLogger(__name__)

_TRIES = 3
WHOLE_BYTES = 8 << 20
"""Members up to this size are read completely, even as a stream, and read again if damaged in transfer."""
_LOCAL_BYTES, _REMOTE_BYTES = 1 << 20, 4 << 20
"""Number of bytes per read of a stream."""
_PIECE_BYTES = 1 << 20
CACHE_BYTES = 128 << 20
"""Maximum size of cached archives in buckets per process, such as 1,000 images of 100 kB. A cached archive is read 8 MB
at a time, because a request takes about 30 ms at any size."""


class ZipStorage(Storage):
    """Read-only storage of the members of one archive. Their paths start with the path of the archive.

    COCO's archives contain a folder with the name of the archive (`train2017.zip`: `train2017/`). Names of members are
    relative to this folder. If the only folder has another name, members and folders are found with and without its
    name.

    Attributes:
        archive: Path of the archive.
    """

    def __init__(self, archive: str, storage: Storage):
        """`storage` is the storage of the archive file."""
        self.archive = archive
        self._storage = storage

    def walk(self, folder: str, within: NameRange = ALL_NAMES) -> Iterator[StoredFile]:
        archive = self._open(again=True)
        prefix = archive.folder_prefix(self._member(folder))
        for member in archive.members.below(prefix):
            yield _stored_member(member, member.name[len(prefix) :], f"{self.archive}/{member.name}")

    def names(self, folder: str) -> list[str]:
        return sorted(file.name for file in self.walk(folder) if "/" not in file.name)

    def is_folder(self, path: str) -> bool:
        return path.rstrip("/") == self.archive or any(self.walk(path))

    def stat(self, path: str) -> StoredFile | None:
        """Return size and version. The path is that of `walk`: `path` may lack the only folder's name."""
        name = self._member(path)
        member = self._open().find(name)
        return None if member is None else _stored_member(member, name, f"{self.archive}/{member.name}")

    def open(self, path: str, version: str = "") -> BinaryIO:
        """Open a member as a stream. Members up to WHOLE_BYTES are read here, see `read`. Larger members are read from
        one version of the archive, and verified at the end of the stream."""
        archive = self._open()
        member = _find_member(archive, self._member(path), path, version)
        if max(member.size_bytes, member.packed_bytes) <= WHOLE_BYTES:
            return io.BytesIO(self.read(path, version))
        pieces = partial(self._pieces, path, member, archive.version)
        stream = io.BufferedReader(PieceStream(pieces, path, member.size_bytes), _PIECE_BYTES)
        stream.peek()  # raises the error of an unreadable member here
        return stream

    def _pieces(self, path: str, member: Member, version: str) -> Iterator[bytes]:
        step = _REMOTE_BYTES if is_remote(self.archive) else _LOCAL_BYTES
        end = member.start + member.length
        packed = (
            self._storage.read_range(self.archive, at, min(step, end - at), version)
            for at in range(member.start, end, step)
        )
        try:
            yield from unpack(member, packed, _PIECE_BYTES)
        except DamagedMemberError as damage:
            raise _damaged_member_error(path, damage) from damage

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        """Return the content of a member from one range read. Size and checksum are verified."""
        archive = self._open()
        member = _find_member(archive, self._member(path), path, version)
        size = max(member.size_bytes, member.packed_bytes)  # padding may make the stored content larger
        if most_bytes is not None and size > most_bytes:
            raise too_large(path, size, most_bytes)
        # Ranges carry no checksum, so the transfer may have damaged the bytes.
        for data in self._packed(archive, member):
            try:
                return b"".join(unpack(member, (data,), member.size_bytes + 1))
            except DamagedMemberError as error:
                damage = error
        raise _damaged_member_error(path, damage) from damage

    def _packed(self, archive: "_Archive", member: Member) -> Iterator[bytes]:
        """Yield the bytes of a member from the cache, then from further reads."""
        if archive.cache:
            yield archive.cache.read_range(member.start, member.length)
        for _ in range(_TRIES if is_remote(self.archive) else 1):
            yield self._storage.read_range(self.archive, member.start, member.length, archive.version)

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        """Return a range of a member. Large uncompressed members are not verified; others are read completely."""
        archive = self._open()
        member = _find_member(archive, self._member(path), path, version)
        if member.size_bytes <= WHOLE_BYTES or member.method != zipfile.ZIP_STORED:
            return self.read(path, version)[start : start + length]
        read_range = partial(self._storage.read_range, self.archive, version=archive.version)
        try:
            content = member.start + content_start(read_range(member.start, HEADER_BYTES), member)
        except DamagedMemberError as damage:
            raise _damaged_member_error(path, damage) from damage
        return read_range(content + start, max(0, min(length, member.size_bytes - start)))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        data = self.read(path, version)
        return [data[start : start + length] for start, length in ranges]

    def _open(self, again: bool = False) -> "_Archive":
        """Return the archive. An archive in a bucket has the version of the last listing."""
        known = None if again else _listed.get(self.archive)
        if known is None:
            file = self._storage.stat(self.archive)
            if file is None:
                raise FileNotFoundError(errno.ENOENT, "no such archive", self.archive)
            known = file.size_bytes, file.version
            if is_remote(self.archive):
                _listed[self.archive] = known
        with _opening:
            return open_archive(self._storage, self.archive, *known)

    def regions(self, path: str) -> tuple[str, ...]:
        return self._storage.regions(self.archive)

    def _member(self, path: str) -> str:
        return path[len(self.archive) :].lstrip("/")

    def _refuse(self, path: str, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "archives are read-only", path)

    write = create = move = delete = delete_folder = link = _refuse

    def delete_leftovers(self, folder: str) -> None:
        self._refuse(folder)


def _find_member(archive: "_Archive", name: str, path: str, version: str) -> Member:
    member = archive.find(name)
    if member is None:
        raise FileNotFoundError(errno.ENOENT, "no such member", path)
    if version and version != _member_version(member):
        raise ChangedFileError(errno.ESTALE, "not the member that was listed", path)
    return member


def _stored_member(member: Member, name: str, path: str) -> StoredFile:
    packed = None if member.method == zipfile.ZIP_STORED else min(member.packed_bytes, member.length)
    return StoredFile(path, member.size_bytes, _member_version(member), name, packed_bytes=packed)


def _member_version(member: Member) -> str:
    return f"{member.crc32:08x}"


def _damaged_member_error(path: str, damage: DamagedMemberError) -> UnreadableFileError:
    return UnreadableFileError(errno.EIO, f"damaged or encrypted ({damage})", path)


class _Archive:
    """Archive with its directory. Size and version are those of the file when the directory was read."""

    def __init__(self, storage: Storage, path: str, size_bytes: int, version: str):
        self.version = version
        read_range = partial(storage.read_range, path, version=version)
        self.cache = None
        if is_remote(path) and size_bytes + sum(cache.size_bytes for cache in _CACHES) <= CACHE_BYTES:
            self.cache = CachedBlocks(read_range, size_bytes)
            _CACHES.add(self.cache)
        try:
            self.members = members = Directory(read_range, path, size_bytes)
        except ValueError as error:
            raise ConfigError(f"{path} is not a ZIP archive that can be read ({error})") from error
        if members.repeated:
            message = "%s: %d members have the name of a later one, and are ignored"
            _LOGGER.warning(message, path, members.repeated)
        folders = members.tops - {"", "__MACOSX/"}
        self._folder = folders.pop() if len(folders) == 1 else ""
        is_own = self._folder == f"{PurePosixPath(path).stem}/" and "" not in members.tops
        self.own_folder = self._folder if is_own else ""

    def find(self, name: str) -> Member | None:
        return self.members.find(name) or self.members.find(self._folder + name)

    def folder_prefix(self, folder: str) -> str:
        """Return the beginning of the names of the members in a folder."""
        prefix = f"{folder.rstrip('/')}/"
        if prefix == "/":
            return self.own_folder
        return prefix if any(self.members.below(prefix)) else self._folder + prefix


open_archive = lru_cache(maxsize=16)(_Archive)
_listed: dict[str, tuple[int, str]] = {}
"""Size and version of archives in buckets, by path."""
_opening = threading.Lock()
"""Lock of reading a directory, so that concurrent threads read it once."""
_CACHES: WeakSet[CachedBlocks] = WeakSet()
