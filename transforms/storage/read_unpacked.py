"""Files that are read whole, be they compressed by gzip or not."""

import zlib

from recordmill.schemas.errors import AnnotationFileError
from recordmill.transforms.storage.resolve import storage_for

GZIP = b"\x1f\x8b"
_RATIO = 100
_ALWAYS = 256 << 20
"""JSON gets 3 to 30 times as small. What gets smaller still, and is not small, is made to fill a machine's memory."""
_STEP = 1 << 20


def read_unpacked(path: str) -> bytes:
    """All bytes of a file; of one that gzip made, of what it holds, whatever its name.

    Raises:
        AnnotationFileError: it is cut or damaged, or unpacks to more than 100 times its size.
        OSError: see `Storage.read`.
    """
    data = storage_for(path).read(path)
    return unpacked(path, data) if data.startswith(GZIP) else data


def unpacked(path: str, data: bytes) -> bytes:
    """What a gzip file's bytes hold; see `read_unpacked`."""
    most = max(_ALWAYS, _RATIO * len(data))
    pieces, size = [], 0
    while data.startswith(GZIP):  # there may be several, one after the other
        member = zlib.decompressobj(wbits=31)
        try:
            while not member.eof and (piece := member.decompress(data, _STEP)):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise AnnotationFileError(
                        f"{path} is compressed and unpacks to more than {most:,} bytes, too many for a file of its "
                        "size; if it is meant to, give it unpacked"
                    )
                data = member.unconsumed_tail
        except zlib.error as error:
            raise AnnotationFileError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
        if not member.eof:
            raise AnnotationFileError(f"{path} is a gzip file that has been cut short; fetch it again")
        data = member.unused_data
    return b"".join(pieces)
