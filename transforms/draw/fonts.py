"""Texts as the font of drawings has them. It is the one that comes with Pillow, so that drawings are the same on every
machine; it scales, and has little more than ASCII."""

import unicodedata
from functools import lru_cache

from PIL import ImageFont

_NO_CHARACTER = "\uffff"
_LIKE = str.maketrans(
    {"‐": "-", "–": "-", "—": "-", "‘": "'", "’": "'", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d"}
)
"""What Unicode does not take apart."""


@lru_cache(maxsize=16)
def font(size_px: int) -> ImageFont.FreeTypeFont:
    """The font in a size."""
    found = ImageFont.load_default(size_px)
    assert isinstance(found, ImageFont.FreeTypeFont)  # Pillow gives another where it was built without FreeType
    return found


def in_font(text: str) -> str:
    r"""A text with what the font has: letters without their accents where it lacks those, and what it has nothing for
    as code points.

    >>> in_font("Bär – 猫"), in_font("\x1b[2J")
    ('Bar - \\u732b', '\\x1b[2J')
    """
    return "".join(map(_in_font, text.translate(_LIKE)))


@lru_cache(maxsize=4096)
def _in_font(char: str) -> str:
    if _has(char):
        return char
    bare = "".join(part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part))
    return bare if bare and all(map(_has, bare)) else char.encode("unicode_escape").decode()


def _has(char: str) -> bool:
    known = font(16)
    return char.isprintable() and bytes(known.getmask(char)) != bytes(known.getmask(_NO_CHARACTER))
