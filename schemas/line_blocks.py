"""Lines that are many, sorted and compressed together."""

import msgspec


class BlockPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a block is in a file."""

    path: str
    start: int
    length: int


class LineBlock(msgspec.Struct, frozen=True, array_like=True):
    """Lines, in the order of their bytes.

    Attributes:
        size: bytes that they take in memory, about.
        first, last: how the first and the last of them begin.
        packed: all, compressed; or where that is.
    """

    lines: int
    size: int
    first: bytes
    last: bytes
    packed: bytes | BlockPlace
