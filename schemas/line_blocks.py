"""Lines that are many, sorted and compressed together."""

import msgspec


class LineBlock(msgspec.Struct, frozen=True, array_like=True):
    """Lines, in the order of their bytes: how many, the first and the last of them, and all compressed."""

    lines: int
    first: bytes
    last: bytes
    packed: bytes
