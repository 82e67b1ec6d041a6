"""What Python's json writes though it is no JSON, made JSON; and what is wrong with text that is none."""

import re

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


def fault_offset(error: msgspec.DecodeError, data: bytes) -> int:
    """Where the JSON is at fault; its end where msgspec does not say."""
    offset = re.search(r"byte (\d+)", str(error))
    return int(offset[1]) if offset else len(data)


def json_fault(data: bytes, offset: int, error: msgspec.DecodeError) -> str:
    """What is wrong with the JSON, and where."""
    line = data.count(b"\n", 0, offset) + 1
    column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
    near = data[max(0, offset - 30) : offset + 10].decode(errors="replace").replace("\n", " ")
    what = str(error).removeprefix("JSON is malformed: ").split(" (byte")[0]
    return f"{what} at line {line}, column {column} (byte {offset}), near {near!r}"
