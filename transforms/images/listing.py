"""What is in a folder of images, where nothing but its files says which images there are."""

import base64
from collections.abc import Iterable, Iterator

import google_crc32c
import msgspec

from recordmill.schemas.image_labels import is_image_name
from recordmill.schemas.recipes import LISTING, InputFile
from recordmill.transforms.storage.interface import StoredFile, is_remote, join_checksums
from recordmill.transforms.storage.resolve import archive_of, storage_for


class ListedPart(msgspec.Struct, frozen=True, array_like=True):
    """What was found in a range of a folder's names.

    Attributes:
        start: of the range.
        text_bytes, crc32c: of its `SIZE NAME` lines.
        file_bytes: of its images.
    """

    start: str
    text_bytes: int
    crc32c: int
    file_bytes: int


class Listing:
    """Names and sizes of a folder's images, or of a range of them: a checksum of `SIZE NAME` lines, sorted by name.

    A bucket is listed in that order, so nothing is held of it, however many files it has; of other folders, names and
    sizes are.
    """

    def __init__(self, folder: str, start: str = ""):
        self._start = start
        self._is_sorted = is_remote(folder) and not archive_of(folder)
        self._crc32c = self._text_bytes = self._file_bytes = 0
        self._held: list[tuple[str, int]] = []

    def count(self, files: Iterator[StoredFile]) -> Iterator[StoredFile]:
        """The files as they are; those that are images are counted."""
        for file in files:
            if is_image_name(file.name):
                if self._is_sorted:
                    self._add(file.name, file.size_bytes)
                else:
                    self._held.append((file.name, file.size_bytes))
            yield file

    def _add(self, name: str, size_bytes: int) -> None:
        line = f"{size_bytes} {name}\n".encode(errors="surrogateescape")
        self._crc32c = google_crc32c.extend(self._crc32c, line)
        self._text_bytes += len(line)
        self._file_bytes += size_bytes

    def found(self) -> ListedPart:
        """What was counted."""
        for name, size_bytes in sorted(self._held):
            self._add(name, size_bytes)
        self._held = []
        return ListedPart(self._start, self._text_bytes, self._crc32c, self._file_bytes)


def join_parts(folder: str, parts: Iterable[ListedPart]) -> InputFile:
    """What is in a folder, from its ranges in any order."""
    crc32c = file_bytes = 0
    for part in sorted(parts, key=lambda part: part.start):
        crc32c = join_checksums(crc32c, part.crc32c, part.text_bytes)
        file_bytes += part.file_bytes
    return InputFile(LISTING, folder, file_bytes, base64.b64encode(crc32c.to_bytes(4, "big")).decode())


def listing_of(folder: str) -> InputFile:
    """The names and sizes of the images that are in a folder now."""
    listing = Listing(folder)
    for _ in listing.count(storage_for(folder).walk(folder)):
        pass
    return join_parts(folder, [listing.found()])
