"""Read the files of images."""

from collections.abc import Callable

from recordmill.schemas.images import ImageRef
from recordmill.schemas.limits import MAX_FILE_BYTES
from recordmill.transforms.storage.resolve import storage_for

Fetch = Callable[[ImageRef], bytes]
"""Reads an image file; used by several threads.

Raises:
    FileNotFoundError: it is gone since it was listed, or (a ChangedFileError) another one is there.
    UnreadableFileError: only this file cannot be read; a FileTooLargeError where it has more than MAX_FILE_BYTES.
    OSError: storage fails.
"""


def fetch_file(file: ImageRef) -> bytes:
    """Read an image file by one request."""
    return storage_for(file.path).read(file.path, file.version, MAX_FILE_BYTES)
