"""JSON that Python writes and the standard does not have, and where a file is no JSON."""

import re
from typing import NamedTuple

import msgspec

_ESCAPES = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.", re.DOTALL)


def without_lone_surrogates(data: bytes) -> bytes:
    """Halves of a character, which Python's json writes though UTF-8 cannot, become the sign for an unknown one."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match[1] else match[0], data)


# A string that does not end is one, too: if it were none, it would be looked for again from each quote in it.
_NAN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|-?Infinity|NaN', re.DOTALL)


def quote_nan(data: bytes) -> bytes:
    """NaN and Infinity, which Python's json writes though JSON has no such words, become strings: a row that has one
    where a number should be is then rejected, and the others are read."""
    return _NAN.sub(lambda match: match[0] if match[0].startswith(b'"') else b'"' + match[0] + b'"', data)


def unquoted_offset(data: bytes, quoted_offset: int) -> int:
    """The offset in `data` of an offset in `quote_nan(data)`."""
    added = 0
    for match in _NAN.finditer(data):
        if match.start() + added >= quoted_offset:
            break
        added += 0 if match[0].startswith(b'"') else 2
    return quoted_offset - added


def is_truncated(error: msgspec.DecodeError) -> bool:
    """Whether there is nothing wrong but that the JSON has no end."""
    return "truncated" in str(error)


def is_trailing(error: msgspec.DecodeError) -> bool:
    """Whether something follows the JSON."""
    return "trailing characters" in str(error)


def fault_offset(error: msgspec.DecodeError, data: bytes) -> int:
    """Return the offset of a JSON error; the end if msgspec does not say."""
    offset = re.search(r"byte (\d+)", str(error))
    # That of what follows is counted from 1.
    return int(offset[1]) - is_trailing(error) if offset else len(data)


def fault_of(error: msgspec.DecodeError) -> str:
    """Return the JSON error."""
    return str(error).removeprefix("JSON is malformed: ").split(" (byte")[0]


class Position(NamedTuple):
    """A place in a file; the first line is 0, and so is the first byte of each.

    Attributes:
        column: bytes since the line's first.
    """

    offset: int = 0
    line: int = 0
    column: int = 0

    def after(self, data: bytes) -> "Position":
        """Behind `data`, which begins here."""
        lines = data.count(b"\n")
        column = len(data) - data.rfind(b"\n") - 1 if lines else self.column + len(data)
        return Position(self.offset + len(data), self.line + lines, column)


START = Position()


def json_fault(data: bytes, offset: int, what: str, start: Position) -> str:
    """Return the JSON error and its position.

    Args:
        offset: in `data`, which is at `start` in its file.
    """
    place = start.after(data[:offset])
    near = data[max(0, offset - 30) : offset + 10].decode(errors="replace").replace("\n", " ")
    return f"{what} at line {place.line + 1}, column {place.column + 1} (byte {place.offset}), near {near!r}"
