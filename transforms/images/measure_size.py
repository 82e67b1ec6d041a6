"""Read the size of an image from the start of its file."""

import contextlib

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.images.load_images import fetch_file, is_rotated, open_usable_image, require_kind
from recordmill.transforms.images.open_image import LIES_ON_ITS_SIDE, exif_orientation, stored_size
from recordmill.transforms.storage.interface import ChangedFileError, FileTooLargeError, UnreadableFileError
from recordmill.transforms.storage.resolve import storage_for

_START_BYTES = 1 << 16
"""Bytes of a file that are read first. They include the headers of most JPEGs and PNGs."""


def measure_size(file: ImageFile, upright: bool) -> tuple[int, int] | None:
    """Return width and height of an image in pixels; None if it cannot be read, so that its record is a reject.

    Args:
        upright: True for the size after the EXIF rotation.

    Raises:
        OSError: Storage fails, for a reason other than the file.
    """
    try:
        # Pillow decodes all of a PNG to look for an orientation after its pixels.
        if not file.data and file.size_bytes > _START_BYTES:
            start = _read_start(file)
            if require_kind(start) == "jpeg" or (require_kind(start) and not upright):
                with contextlib.suppress(UnusableError):
                    return _size_of(start, upright)
        return _size_of(fetch_file(file), upright)
    except (ChangedFileError, FileNotFoundError, FileTooLargeError, UnreadableFileError, UnusableError):
        return None


def _read_start(file: ImageFile) -> bytes:
    return storage_for(file.path).read_range(file.path, max(file.offset, 0), _START_BYTES, file.version)


def _size_of(data: bytes, upright: bool) -> tuple[int, int]:
    kind = require_kind(data)
    with open_usable_image(data, kind) as image:
        width, height = stored_size(image)
        is_on_its_side = upright and is_rotated(image, data, kind) and exif_orientation(image) in LIES_ON_ITS_SIDE
    return (height, width) if is_on_its_side else (width, height)
