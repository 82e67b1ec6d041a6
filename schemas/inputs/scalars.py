"""Numbers and booleans as labelling tools write them: as values of JSON, or as texts."""

import re
from typing import Annotated, Any

import msgspec

Bit = Annotated[int, msgspec.Meta(ge=0, le=1)]
_WHOLE = re.compile(r"(\d{1,10})(?:\.0*)?")
_FALSE, _TRUE = ("0", "0.0", "false", "no"), ("1", "1.0", "true", "yes")


class _BoolType(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, bool)


class Flag(metaclass=_BoolType):
    """Type of a boolean in JSON: `true`, 0, 1, or a text. msgspec decodes it by `strict_flag` or `lenient_flag`."""


def read_flag(value: Any) -> bool:
    """Return the boolean that a value stands for: a boolean, 0, 1, or a text.

    Raises:
        ValueError: The value is not a boolean.

    >>> read_flag("No"), read_flag(1.0)
    (False, True)
    """
    known = value.strip().lower() if isinstance(value, str) else value
    if known in (*_FALSE, *_TRUE, 0, 1):
        return known in (*_TRUE, 1)
    raise ValueError(f"Expected `bool`, got {str(value)[:20]!r}")


def lenient_flag(_: type, value: Any) -> bool:
    """`dec_hook` of msgspec for Flags, see `read_flag`."""
    return read_flag(value)


def strict_flag(_: type, value: Any) -> bool:
    """`dec_hook` of msgspec for Flags that are not texts. The error is like msgspec's own.

    Raises:
        ValueError: The value is a text, or not a boolean.
    """
    if isinstance(value, str):
        raise ValueError("Expected `bool`, got `str`")
    return read_flag(value)


def read_number(text: str) -> float:
    """Return the number that a text stands for; infinity and NaN for such texts, and for numbers beyond float64.

    Raises:
        ValueError: The text is not a number. `1_000` is not one, although Python reads it.
    """
    if "_" in text:
        raise ValueError(f"could not convert string to float: {text[:20]!r}")
    return float(text)


def whole_number(text: str) -> int | None:
    """Return the number from 0 to 10 ** 10 - 1 that a text stands for; None for other texts. pandas writes zeros after
    the point.

    >>> whole_number("640"), whole_number("640.0"), whole_number("-1")
    (640, 640, None)
    """
    match = _WHOLE.fullmatch(text)
    return int(match[1]) if match else None
