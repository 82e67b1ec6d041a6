"""Files within a .zip, read in place: `annotations/panoptic_val2017.zip/000000000139.png`."""

import errno
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import BinaryIO, NoReturn

from schemas.errors import ConfigError
from transforms.storage import LocalStorage, StoredFile, UnreadableFileError

_OF_DAMAGE = (None, errno.EINVAL)
"""Of the OSErrors that reading a member ends in, those that tell of its bytes (bzip2's; a place before the file's
start) and not of the disk."""


class ZipStorage:
    """The members of one archive, by paths that begin with the archive's. Nothing can be written.

    COCO's archives hold a folder of the archive's own name (`train2017.zip`: `train2017/`); members are named as below
    that. Where a single folder has another name, a member is found by its name below it, too.
    """

    def __init__(self, archive: str):
        self._archive = archive

    def walk(self, folder: str) -> Iterator[StoredFile]:
        archive = self._open()
        prefix = self._member(folder).rstrip("/")
        prefix = f"{prefix}/" if prefix else archive.own_folder
        for name, info in archive.members.items():
            if name.startswith(prefix):
                short = name[len(prefix) :]
                yield StoredFile(short, f"{self._archive}/{name}", info.file_size, f"{info.CRC:08x}")

    def names(self, folder: str) -> list[str]:
        return sorted(file.name for file in self.walk(folder) if "/" not in file.name)

    def is_folder(self, path: str) -> bool:
        return any(self.walk(path))

    def size(self, path: str) -> int | None:
        info = self._open().find(self._member(path))
        return None if info is None else info.file_size

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def read(self, path: str) -> bytes:
        archive = self._open()
        info = archive.find(self._member(path))
        if info is None:
            raise FileNotFoundError(errno.ENOENT, "no such member", path)
        try:
            return archive.file.read(info)
        except Exception as error:  # whatever its way of compression raises on damage, or zipfile if it is encrypted
            if isinstance(error, OSError) and error.errno not in _OF_DAMAGE:
                raise
            raise UnreadableFileError(errno.EIO, f"damaged or encrypted ({error})", path) from error

    def join(self, folder: str, name: str) -> str:
        return f"{folder.rstrip('/')}/{name}"

    def _open(self) -> "_Archive":
        status = os.stat(self._archive)
        return _archive(self._archive, status.st_size, status.st_mtime_ns)

    def _member(self, path: str) -> str:
        return path[len(self._archive) :].lstrip("/")

    def _refuse(self, path: str, *_: object) -> NoReturn:
        raise OSError(errno.EROFS, "archives are only read", path)

    def write(self, path: str, data: bytes) -> None:
        self._refuse(path)

    def create(self, path: str) -> NoReturn:
        self._refuse(path)

    def delete(self, path: str) -> None:
        self._refuse(path)

    def delete_folder(self, path: str) -> None:
        self._refuse(path)

    def delete_leftovers(self, folder: str, is_ours: Callable[[str], bool]) -> None:
        self._refuse(folder)

    def link(self, path: str, target: str) -> bool:
        self._refuse(path)


class _Archive:
    """An open archive; zipfile lets several threads read at once. Size and time are of the file that is open."""

    def __init__(self, path: str, size_bytes: int, modified_ns: int):
        try:
            self.file = zipfile.ZipFile(LocalStorage().open(path))
        except Exception as error:  # zipfile raises several kinds on bytes that are no archive
            raise ConfigError(f"{path} is not a ZIP archive that can be read ({error})") from error
        self.members = {info.filename: info for info in self.file.infolist() if not info.is_dir()}
        folders = {PurePosixPath(name).parts[0] for name in self.members if "/" in name} - {"__MACOSX"}
        self._folder = f"{folders.pop()}/" if len(folders) == 1 else ""
        is_own = self._folder == f"{PurePosixPath(path).stem}/" and all(
            name.startswith((self._folder, "__MACOSX/")) for name in self.members
        )
        self.own_folder = self._folder if is_own else ""

    def find(self, name: str) -> zipfile.ZipInfo | None:
        return self.members.get(name) or self.members.get(self._folder + name)


_archive = lru_cache(maxsize=16)(_Archive)
