"""Files that may be compressed by gzip, read as what they hold."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from recordmill.schemas.errors import AnnotationFileError
from recordmill.transforms.storage.resolve import archive_of, storage_for

GZIP = b"\x1f\x8b"
_RATIO = 100
_ALWAYS = 256 << 20
"""JSON gets 3 to 30 times as small. What gets smaller still, and is not small, is made to fill a machine's memory."""
_STEP = 1 << 20


def read_unpacked(path: str) -> bytes:
    """Return all bytes of a file; of a gzip file with any name, its contents.

    Raises:
        AnnotationFileError: it is cut or damaged, or unpacks to more than 100 times its size, of a member
            of a .zip as of one of gzip's.
        OSError: see `Storage.read`.
    """
    _check_ratio(path)
    data = storage_for(path).read(path)
    return unpacked(path, data) if data.startswith(GZIP) else data


def unpacked(path: str, data: bytes) -> bytes:
    """Return the contents of a gzip file; see `read_unpacked`."""
    return b"".join(_unpack(path, [data], len(data)))


def open_unpacked(path: str, most_bytes: int = _STEP) -> tuple[bool, Iterator[bytes]]:
    """Whether a file is packed, by gzip or in its archive, so that it has no ranges; and the same as `read_unpacked`
    gives, in pieces of no more than so many bytes, or a megabyte of what is packed."""
    is_compressed = _check_ratio(path)
    pieces = _pieces(path, min(most_bytes, _STEP))
    first = next(pieces, b"")
    whole = chain((first,), pieces)
    if first.startswith(GZIP):
        return True, _unpack(path, whole, storage_for(path).size(path) or 0)
    return is_compressed, whole


def _check_ratio(path: str) -> bool:
    """Whether a file is a member that its archive has compressed; one that says it unpacks to too much is refused."""
    file = storage_for(path).stat(path) if archive_of(path) else None
    if file is None or file.packed_bytes is None:
        return False
    most = max(_ALWAYS, _RATIO * file.packed_bytes)
    if file.size_bytes > most:
        raise _too_large(path, most)
    return True


def _too_large(path: str, most_bytes: int) -> AnnotationFileError:
    return AnnotationFileError(
        f"{path} is compressed and unpacks to more than {most_bytes:,} bytes, too many for a file of its size; if it "
        "is meant to, give it unpacked"
    )


def _pieces(path: str, most_bytes: int) -> Iterator[bytes]:
    with storage_for(path).open(path) as file:
        yield from iter(lambda: file.read(max(len(GZIP), most_bytes)), b"")


def _unpack(path: str, packed: Iterable[bytes], packed_bytes: int) -> Iterator[bytes]:
    """Yield the contents of gzip's members; zeros may follow the last."""
    pieces, data = iter(packed), b""
    given, most = 0, max(_ALWAYS, _RATIO * packed_bytes)
    member = None
    while True:
        if len(data) < len(GZIP):
            data += next(pieces, b"")
        if member is None:
            if not data.startswith(GZIP):
                if any(piece.strip(b"\0") for piece in chain((data,), pieces)):
                    raise AnnotationFileError(
                        f"{path} goes on after what gzip packed, with other bytes; fetch it again"
                    )
                return
            member = zlib.decompressobj(wbits=31)
        try:
            unpacked = member.decompress(data, _STEP)
        except zlib.error as error:
            raise AnnotationFileError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
        given += len(unpacked)
        if given > most:
            raise _too_large(path, most)
        if unpacked:
            yield unpacked
        elif not data and not member.eof:
            raise AnnotationFileError(f"{path} is a gzip file that has been cut short; fetch it again")
        data = member.unused_data if member.eof else member.unconsumed_tail
        if member.eof:
            member = None
