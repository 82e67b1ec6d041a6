"""Non-standard JSON that Python writes, and objects with a key twice."""

import json
import re
from collections import Counter
from typing import Any

import msgspec

_ESCAPES = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.", re.DOTALL)
_NAN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|-?Infinity|NaN', re.DOTALL)
"""An unterminated string matches too. Otherwise the search would restart at each quote in that string."""


def without_lone_surrogates(data: bytes) -> bytes:
    """Replace lone surrogates by U+FFFD. Python's json writes lone surrogates, which UTF-8 cannot represent."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match[1] else match[0], data)


def quote_nan(data: bytes) -> bytes:
    """Quote NaN and Infinity, which Python's json writes but JSON does not have. A row that has the string in place of
    a number is then rejected, and the other rows are read."""
    return _NAN.sub(lambda match: match[0] if match[0].startswith(b'"') else b'"' + match[0] + b'"', data)


class _RepeatedKeyError(Exception):
    """Carries the key."""


_MAX_QUICK_BYTES = 1 << 20
"""Maximum length of JSON that is decoded as a whole to compare its colons."""


def repeated_key(data: bytes, value: Any = None) -> str | None:
    """Return a key that an object in JSON has twice; None if there is none, or the text is not JSON.

    Args:
        value: The value of the JSON; None if it is not decoded yet.

    >>> repeated_key(b'[{"a": 1, "b": {"a": 1}}]'), repeated_key(b'[{"a": {"b": 1, "b": 2}}]')
    (None, 'b')
    """
    if len(data) <= _MAX_QUICK_BYTES and _has_all_colons(data, value):
        return None
    try:
        # Numbers stay texts: Python does not read those of thousands of digits.
        json.loads(data, object_pairs_hook=_check_pairs, parse_int=str, parse_float=str)
    except _RepeatedKeyError as error:
        return str(error.args[0])
    except (ValueError, RecursionError):
        return None
    return None


def _has_all_colons(data: bytes, value: Any) -> bool:
    """Return True if the value of JSON has as many colons as the text: a dropped key would lack. Half the time
    of a look at each key."""
    if b"\\u003" in data:  # an escaped colon would count for the dropped one
        return False
    try:
        value = msgspec.json.decode(data) if value is None else value
        return msgspec.json.encode(value).count(b":") == data.count(b":")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise _RepeatedKeyError(key)
