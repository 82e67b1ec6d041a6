"""What is in a folder of images, where nothing but its files says which images there are."""

from collections.abc import Iterator

import google_crc32c

from recordmill.schemas.image_labels import is_image_name
from recordmill.schemas.manifest import LISTING, InputFile
from recordmill.transforms.storage.interface import StoredFile, crc32c_text, is_remote
from recordmill.transforms.storage.resolve import archive_of, storage_for


class Listing:
    """Names and sizes of a folder's images: a checksum of `SIZE NAME` lines in the order of names.

    A bucket is listed in that order, so nothing is held of it, however many files it has; of other folders, names and
    sizes are.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._is_sorted = is_remote(folder) and not archive_of(folder)
        self._checksum = google_crc32c.Checksum()
        self._bytes = 0
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
        self._checksum.update(f"{size_bytes} {name}\n".encode(errors="surrogateescape"))
        self._bytes += size_bytes

    def found(self) -> InputFile:
        """What was counted."""
        for name, size_bytes in sorted(self._held):
            self._add(name, size_bytes)
        self._held = []
        return InputFile(LISTING, self._folder, self._bytes, crc32c_text(self._checksum))


def listing_of(folder: str) -> InputFile:
    """The names and sizes of the images that are in a folder now."""
    listing = Listing(folder)
    for _ in listing.count(storage_for(folder).walk(folder)):
        pass
    return listing.found()
