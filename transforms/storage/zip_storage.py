"""Files within a .zip, read in place: `annotations/panoptic_val2017.zip/000000000139.png`, or `gs://…/train2017.zip/…`."""

import errno
import io
import logging
import zipfile
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import BinaryIO, NoReturn

import google_crc32c

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.interface import (
    ALL_NAMES,
    ChangedFileError,
    NameRange,
    Storage,
    StoredFile,
    UnreadableFileError,
    crc32c_text,
    is_remote,
    too_large,
)
from recordmill.transforms.storage.range_stream import RangeStream
from recordmill.transforms.storage.zip_members import DamagedMemberError, spans, unpack

_LOGGER = logging.getLogger(__name__)

_OF_DAMAGE = (None, errno.EINVAL)
"""The errno of those OSErrors on reading a member that mean damaged bytes (bzip2's; an offset before the file's start)
and not a fault of the disk."""
_TRIES = 3
_TAIL_BYTES = 64 << 10


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
        for name, info in archive.members.items():
            if name.startswith(prefix):
                short = name[len(prefix) :]
                yield StoredFile(short, f"{self.archive}/{name}", info.file_size, _version(info))

    def names(self, folder: str) -> list[str]:
        return sorted(file.name for file in self.walk(folder) if "/" not in file.name)

    def is_folder(self, path: str) -> bool:
        return path.rstrip("/") == self.archive or any(self.walk(path))

    def size(self, path: str) -> int | None:
        file = self.stat(path)
        return None if file is None else file.size_bytes

    def stat(self, path: str) -> StoredFile | None:
        name = self._member(path)
        info = self._open().find(name)
        return None if info is None else StoredFile(name, path, info.file_size, _version(info))

    def open(self, path: str, version: str = "") -> BinaryIO:
        return io.BytesIO(self.read(path, version))

    def read(self, path: str, version: str = "", most_bytes: int | None = None) -> bytes:
        archive = self._open()
        info = self._found(archive, path, version)
        size = max(info.file_size, info.compress_size)  # what is stored may be padded with what unpacks to nothing
        if most_bytes is not None and size > most_bytes:
            raise too_large(path, size, most_bytes)
        # A range comes without a checksum, so what is damaged may be so on its way only.
        for _ in range(_TRIES if is_remote(self.archive) else 1):
            try:
                return unpack(self.read_span(*archive.spans[info.filename]), info)
            except DamagedMemberError as error:
                damage = error
        raise UnreadableFileError(errno.EIO, f"damaged or encrypted ({damage})", path) from damage

    def span(self, path: str) -> tuple[int, int] | None:
        """Where the bytes of a member with its header begin in the archive, and how many there are at the most; None
        where there is no such member."""
        archive = self._open()
        info = archive.find(self._member(path))
        return None if info is None else archive.spans[info.filename]

    def read_span(self, start: int, length: int) -> bytes:
        """So many bytes of the archive."""
        return self._storage.read_range(self.archive, start, length, self._open().version)

    def unpack(self, path: str, data: bytes, version: str = "") -> bytes:
        """A member out of the bytes of its span.

        Raises:
            DamagedMemberError: it cannot be had from them.
            OSError: see `read`.
        """
        return unpack(data, self._found(self._open(), path, version))

    def read_range(self, path: str, start: int, length: int, version: str = "") -> bytes:
        return self.read(path, version)[start : start + length]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        data = self.read(path, version)
        return [data[start : start + length] for start, length in ranges]

    def release(self, path: str, version: str) -> None:
        pass

    def checksum(self, path: str) -> tuple[int, str]:
        data = self.read(path)
        return len(data), crc32c_text(google_crc32c.Checksum(data))

    def join(self, folder: str, name: str) -> str:
        return f"{folder.rstrip('/')}/{name}"

    def _open(self, again: bool = False) -> "_Archive":
        """The archive as it is; one of a bucket as it was when its members were last listed."""
        if is_remote(self.archive) and not again and self.archive in _opened:
            return _opened[self.archive]
        found = self._storage.stat(self.archive)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such archive", self.archive)
        _opened[self.archive] = archive = _archive(self._storage, self.archive, found.size_bytes, found.version)
        return archive

    def _found(self, archive: "_Archive", path: str, version: str) -> zipfile.ZipInfo:
        info = archive.find(self._member(path))
        if info is None:
            raise FileNotFoundError(errno.ENOENT, "no such member", path)
        if version and version != _version(info):
            raise ChangedFileError(errno.ESTALE, "another member than was listed", path)
        return info

    def _member(self, path: str) -> str:
        return path[len(self.archive) :].lstrip("/")

    def _refuse(self, path: str, *_: object) -> NoReturn:
        raise OSError(errno.EROFS, "archives are only read", path)

    def write(self, path: str, data: bytes) -> None:
        self._refuse(path)

    def create(self, path: str) -> NoReturn:
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


def _version(info: zipfile.ZipInfo) -> str:
    return f"{info.CRC:08x}"


class _Archive:
    """An open archive; zipfile lets several threads read at once. Size and version are of the file that is open.

    Attributes:
        members: by name, without folders; of two that have one name, the last.
        spans: see `recordmill.transforms.storage.zip_members.spans`.
    """

    def __init__(self, storage: Storage, path: str, size_bytes: int, version: str):
        self.version = version
        try:
            ranges = partial(storage.read_range, path, version=version)
            self.file = zipfile.ZipFile(RangeStream(ranges, path, size_bytes, tail_bytes=_TAIL_BYTES))
        except Exception as error:  # zipfile raises several kinds on bytes that are no archive
            if isinstance(error, OSError) and error.errno not in _OF_DAMAGE:
                raise
            raise ConfigError(f"{path} is not a ZIP archive that can be read ({error})") from error
        self.members = {info.filename: info for info in self.file.infolist() if not info.is_dir()}
        self.spans = spans(self.file.infolist(), self.file.start_dir)
        doubles = len(self.file.infolist()) - len({info.filename for info in self.file.infolist()})
        if doubles:
            _LOGGER.warning("%s: %d of its members have the name of a later one, and are passed over", path, doubles)
        folders = {PurePosixPath(name).parts[0] for name in self.members if "/" in name} - {"__MACOSX"}
        self._folder = f"{folders.pop()}/" if len(folders) == 1 else ""
        is_own = self._folder == f"{PurePosixPath(path).stem}/" and all(
            name.startswith((self._folder, "__MACOSX/")) for name in self.members
        )
        self.own_folder = self._folder if is_own else ""

    def find(self, name: str) -> zipfile.ZipInfo | None:
        return self.members.get(name) or self.members.get(self._folder + name)


_archive = lru_cache(maxsize=16)(_Archive)
_opened: dict[str, _Archive] = {}
