"""Values of flags, from text."""

import re
from decimal import Decimal

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", re.IGNORECASE)


def size_bytes(text: str) -> int:
    """A size in bytes.

    Raises:
        ValueError: not a size; the message says what one looks like.

    >>> size_bytes("150MB"), size_bytes("1.5GiB"), size_bytes("4096")
    (150000000, 1610612736, 4096)
    """
    match = _SIZE.fullmatch(text.strip())
    if not match or len(match[1]) > 18:
        raise ValueError("a size like 150MB, 1.5GB, 100MiB or a number of bytes is expected")
    return int(Decimal(match[1]) * _UNITS[(match[2] or "").upper()])


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them.

    >>> names("person, traffic light")
    ('person', 'traffic light')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())
