"""Values of flags, from text."""

import re
from decimal import Decimal
from fractions import Fraction

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SHARE = re.compile(r"([^=]*?)\s*=\s*(-?\d{0,9}\.?\d{1,18}(?:e-?\d)?|-?\d{1,9}/0*[1-9]\d{0,8})", re.IGNORECASE)
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


def split_shares(text: str) -> tuple[tuple[str, Fraction], ...]:
    """Names of splits with their shares, each a fraction of 1; a single name alone has all.

    Raises:
        ValueError: not that; the message says what it looks like.

    >>> split_shares("val"), split_shares("train=0.75,val=1/4")
    ((('val', Fraction(1, 1)),), (('train', Fraction(3, 4)), ('val', Fraction(1, 4))))
    """
    if not set("=,") & set(text):
        return ((text, Fraction(1)),)
    shares = []
    for part in text.split(","):
        match = _SHARE.fullmatch(part.strip())
        if not match:
            raise ValueError("a name, or shares like train=0.8,val=0.1,test=0.1, is expected")
        shares.append((match[1], Fraction(match[2])))
    return tuple(shares)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them.

    Raises:
        ValueError: there is none.

    >>> names("person, traffic light")
    ('person', 'traffic light')
    """
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise ValueError("names, with commas between them, are expected")
    return found
