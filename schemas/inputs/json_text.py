"""Non-standard JSON that Python writes."""

import re

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
