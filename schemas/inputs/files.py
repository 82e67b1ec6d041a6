"""Files by path, size and version, as a folder was listed."""

import msgspec

NO_FILE = "no file"
"""Version of a directory entry that is not a file."""
NOT_A_FILE = "a link that leads nowhere, a pipe or a device"


class File(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file.

    Attributes:
        path: Local path or URI.
        size_bytes: Size when the folder was listed; 0 if it was not listed.
        version: Changes with the file (modification time, generation); empty for any version. NO_FILE for pipes,
            devices and broken links. Resume compares it; records do not depend on it.
    """

    path: str
    size_bytes: int = 0
    version: str = ""


class ImageFile(File, frozen=True, array_like=True, gc=False):
    """An image.

    Attributes:
        data: Bytes of the file, if they came with the image.
        offset: Offset of the image in a file of several images; -1 if the file is the image.
    """

    data: bytes = b""
    offset: int = -1
