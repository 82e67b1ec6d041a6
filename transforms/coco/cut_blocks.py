"""A COCO file of any size becomes blocks of whole rows, in the memory of a few blocks.

A list is cut behind a `}` up to which its text parses once it is closed by `]`: a prefix of a JSON array that is an
array when it is closed can only have been cut between two elements. So the parser proves each cut, and strings and
nesting need no scanner of ours.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.transforms.coco.file_fields import LISTS, has_data

_ROWS = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_ENDS_TRIED = 4
"""Ends of objects that are tried as ends of rows before brackets are counted, which costs as much as two tries: those
within a row, or within a text, are tried in vain."""
_QUOTE = 2
_STEPS = np.zeros(256, np.int8)
"""Change of the nesting depth by a byte; a quote changes whether others count."""
_STEPS[list(b"[{")], _STEPS[list(b"]}")], _STEPS[ord('"')] = 1, -1, _QUOTE


class Cut(NamedTuple):
    """Offset where a text can be cut, and number of rows before it."""

    end: int
    rows: int = 0


class NotJsonError(Exception):
    """Error of a text: what it is, and its offset."""


# Errors of JSON, and JSON of Python that the standard does not have

_ESCAPES = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.", re.DOTALL)
_NAN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|-?Infinity|NaN', re.DOTALL)
"""A string that does not end is one, too: if it were none, it would be looked for again from each quote in it."""


def without_lone_surrogates(data: bytes) -> bytes:
    """Halves of a character, which Python's json writes though UTF-8 cannot, become the sign for an unknown one."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match[1] else match[0], data)


def quote_nan(data: bytes) -> bytes:
    """NaN and Infinity, which Python's json writes though JSON has no such words, become strings: a row that has one
    where a number should be is then rejected, and the others are read."""
    return _NAN.sub(lambda match: match[0] if match[0].startswith(b'"') else b'"' + match[0] + b'"', data)


def _unquoted_offset(data: bytes, quoted_offset: int) -> int:
    """The offset in `data` of an offset in `quote_nan(data)`."""
    added = 0
    for match in _NAN.finditer(data):
        if match.start() + added >= quoted_offset:
            break
        added += 0 if match[0].startswith(b'"') else 2
    return quoted_offset - added


def _is_truncated(error: msgspec.DecodeError) -> bool:
    return "truncated" in str(error)


def _is_trailing(error: msgspec.DecodeError) -> bool:
    return "trailing characters" in str(error)


def _fault_offset(error: msgspec.DecodeError, data: bytes) -> int:
    """Return the offset of a JSON error; the end if msgspec does not say."""
    offset = re.search(r"byte (\d+)", str(error))
    # The offset of trailing characters is counted from 1.
    return int(offset[1]) - _is_trailing(error) if offset else len(data)


def _not_json(error: msgspec.DecodeError, offset: int) -> NotJsonError:
    return NotJsonError(str(error).removeprefix("JSON is malformed: ").split(" (byte")[0], offset)


# Where a text can be cut


def whole_value(data: bytes) -> Cut | None:
    """Return the end of the value at the start of a text; None if it is incomplete.

    Raises:
        NotJsonError: it is not a value.
    """
    try:
        _VALUE.decode(data)
    except msgspec.DecodeError as error:
        if _is_truncated(error):
            return None
        if not _is_trailing(error):
            raise _not_json(error, _fault_offset(error, data)) from error
        data = data[: _fault_offset(error, data)]
    return Cut(len(data.rstrip()))


def whole_rows(border: bytes, data: bytes) -> Cut | None:
    """Return the end of the last complete row in the text of a list, after its bracket; None without.

    Args:
        border: from the `}` of a row on, what is between it and the next; where it is found again, the text is cut,
            though there may be a whole row behind. Empty if nothing is known.

    Raises:
        NotJsonError: it is not a list.
    """
    for end in _ends(data, border):
        closed = b"".join((b"[", memoryview(data)[:end], b"]"))
        try:
            rows = len(_ROWS.decode(closed))
            return Cut(end, rows) if closed[-2:] == b"}]" else None  # a number may go on
        except msgspec.DecodeError as error:
            offset = _fault_offset(error, closed)
            if _is_trailing(error):  # the list has ended before
                closed = closed[:offset].rstrip()
                return Cut(len(closed) - 2, len(_ROWS.decode(closed)))
            if not _is_truncated(error) and offset < len(closed) - 1:
                # The error is before the cut.
                raise _not_json(error, offset - 1) from error
    return None


def _ends(data: bytes, border: bytes) -> Iterator[int]:
    """Yield possible ends of the last row, likeliest first."""
    if border and (found := data.rfind(border)) >= 0:
        yield found + 1
    end = len(data)
    for _ in range(_ENDS_TRIED):
        end = data.rfind(b"}", 0, end)
        if end < 0:
            break
        yield end + 1
    else:
        yield from _last_object_end(data)
    yield len(data)  # of rows that are no objects


def _last_object_end(data: bytes) -> list[int]:
    """Return the end of the last top-level object in a text that starts outside an object; empty without.

    It is a guess by brackets outside of texts, which the parser verifies.
    """
    characters = np.frombuffer(data.replace(rb"\\", b"__").replace(rb"\"", b"__"), np.uint8)
    offsets = np.flatnonzero(_STEPS[characters])
    characters = characters[offsets]
    kinds = _STEPS[characters]
    is_quote = kinds == _QUOTE
    steps = np.where(is_quote | np.logical_xor.accumulate(is_quote), 0, kinds)
    ends = offsets[(steps < 0) & (characters == ord("}")) & (np.cumsum(steps, dtype=np.int32) == 0)]
    return [int(end) + 1 for end in ends[-1:]]


BLOCK_BYTES = 8 << 20

_KEY = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_BORDER = re.compile(rb'\s*,\s*\{\s*"[^"\\]*"\s*:')
"""Text between the `}` of a row and the value of the first field of the next, which is mostly the same."""
_WORD = 16
"""So many bytes before the end of what has been read, a word may have been cut that is one: -1, true, NaN."""


class JsonBlock(NamedTuple):
    """Some of a file's text.

    Attributes:
        list: whose rows these are; empty for an object of all else: the file without the rows of its lists, and true or
            false in place of what nobody reads.
        first_row: index of the first.
        start: offset of `text` in the file; of all else, 0.
    """

    list: str
    first_row: int
    start: int
    text: bytes


def cut_blocks(path: str, pieces: Iterable[bytes], block_bytes: int = BLOCK_BYTES) -> Iterator[JsonBlock]:
    """The blocks of a COCO file, in the order of the file; last the one of all else.

    Args:
        path: for messages.
        pieces: of the file, one after the other.
        block_bytes: of text, or as many as a single row has.

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or a list is there twice.
        OSError: the file cannot be read.
    """
    text = _Text(path, pieces, block_bytes)
    try:
        yield from _cut_file(text)
    except RecursionError as error:
        raise AnnotationFileError(f"{path} nests lists or objects too deeply to be a COCO file") from error


class _Text:
    """Unprocessed part of a file."""

    def __init__(self, path: str, pieces: Iterable[bytes], block_bytes: int):
        self.path = path
        self.block_bytes = block_bytes
        self.data = b""
        self.is_whole = False
        self._pieces = iter(pieces)
        self.offset = self._line = self._column = 0  # of `data` in the file, in bytes
        self.read(block_bytes)
        self._head = self.data
        if self.data.startswith(codecs.BOM_UTF8):
            self.drop(len(codecs.BOM_UTF8))
            self._column = 0

    def read(self, number: int) -> None:
        """Read so many bytes more, or a piece of the file."""
        pieces = [self.data]
        while number > 0 and not self.is_whole:
            piece = next(self._pieces, b"")
            self.is_whole = not piece
            number -= len(piece)
            pieces.append(piece)
        self.data = b"".join(pieces)

    def drop(self, number: int) -> None:
        dropped, self.data = self.data[:number], self.data[number:]
        self.offset += len(dropped)
        lines = dropped.count(b"\n")
        self._line += lines
        self._column = len(dropped) - dropped.rfind(b"\n") - 1 if lines else self._column + len(dropped)

    def skip_space(self) -> bytes:
        """The character after white space, which is dropped; empty at the file's end."""
        while True:
            found = _SPACE.match(self.data)
            self.drop(found.end() if found else 0)
            if self.data or self.is_whole:
                return self.data[:1]
            self.read(self.block_bytes)

    def fault(self, offset: int | None = None, what: str = "invalid character") -> AnnotationFileError:
        """Return an error for text that is not JSON at an offset in `data`; None for its end. Move there."""
        if kind := describe_content(self._head):
            return AnnotationFileError(f"{self.path} is {kind}")
        offset, what = (len(self.data), "the file ends here") if offset is None else (offset, what)
        near = self.data[max(0, offset - 30) : offset + 10].decode(errors="replace").replace("\n", " ")
        self.drop(offset)
        place = f"line {self._line + 1}, column {self._column + 1} (byte {self.offset})"
        return AnnotationFileError(
            f"{self.path} is not JSON: {what} at {place}, near {near!r}; expected a COCO file, one object with the "
            "lists images, annotations and categories"
        )


def _cut_file(text: _Text) -> Iterator[JsonBlock]:
    first = text.skip_space()
    if not first:
        raise AnnotationFileError(f"{text.path} is empty; expected a COCO annotation file")
    if first != b"{":
        yield JsonBlock("", 0, 0, _value(text))  # its decoder reports errors
        if text.skip_space():
            raise text.fault(0, "trailing characters")
        return
    fields: dict[str, bytes] = {}
    text.drop(1)
    if is_end := text.skip_space() == b"}":
        text.drop(1)
    while not is_end:
        key = _key(text)
        if key in fields and key in LISTS:
            raise AnnotationFileError(
                f"{text.path} has two lists {key!r}, of which the first would be dropped; make them one list"
            )
        if key in LISTS[:2] and text.skip_space() == b"[":
            yield from _cut_list(text, key)
            fields[key] = b"[]"
        else:
            fields[key] = _value(text) if key in LISTS else _skip_value(text, key)
        if (after := text.skip_space()) not in (b",", b"}"):
            raise text.fault(0 if after else None)
        is_end = after == b"}"
        text.drop(1)
    if text.skip_space():
        raise text.fault(0, "trailing characters")
    rest = b",".join(b"%b:%b" % (msgspec.json.encode(key), value) for key, value in fields.items())
    yield JsonBlock("", 0, 0, b"{%b}" % rest)


def _key(text: _Text) -> str:
    while not (found := _KEY.match(text.data)):
        fault = _fault_of_key(text.data)
        if text.is_whole or fault is not None:
            raise text.fault(fault)
        text.read(text.block_bytes)
    try:
        key = msgspec.json.decode(without_lone_surrogates(found[1]), type=str)
    except msgspec.DecodeError as error:
        raise text.fault(found.start(1) + _fault_offset(error, found[1])) from error
    except UnicodeDecodeError as error:
        raise AnnotationFileError(f"{text.path} is not UTF-8, as JSON has to be: {error.reason}") from error
    text.drop(found.end())
    return key


def _fault_of_key(data: bytes) -> int | None:
    """Offset of what is no key; None where there is not enough."""
    try:
        msgspec.json.decode(b"{" + data, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        return None if _is_truncated(error) else _fault_offset(error, data) - 1
    return None


def _value(text: _Text) -> bytes:
    """Any value, which is dropped."""
    while True:
        cut = _cut_text(text, whole_value)
        if cut and (cut.end < len(text.data) or text.is_whole):
            value = text.data[: cut.end]
            text.drop(cut.end)
            return value
        if text.is_whole:
            raise text.fault()
        text.read(max(text.block_bytes, len(text.data)))


def _skip_value(text: _Text, key: str) -> bytes:
    """Return the placeholder of a value that nobody reads: true if it has data, else false. A list of objects is not
    read into memory as a whole."""
    is_list = text.skip_space() == b"["
    values = (b"[%b]" % block.text for block in _cut_list(text, key)) if is_list else iter([_value(text)])
    return b"true" if sum(has_data(msgspec.Raw(value)) for value in values) else b"false"


def _cut_list(text: _Text, name: str) -> Iterator[JsonBlock]:
    """The rows of a list, which is dropped."""
    text.drop(1)
    number, border = 0, b""
    while True:
        after = text.skip_space()
        if number and after == b",":
            text.drop(1)
            if text.skip_space() == b"]":
                raise text.fault(0, "trailing comma in array")
        elif after == b"]":
            text.drop(1)
            return
        elif number:
            raise text.fault(0 if after else None)
        text.read(text.block_bytes - len(text.data))
        while not (cut := _cut_text(text, partial(whole_rows, border))):
            if text.is_whole:
                raise text.fault()
            text.read(max(text.block_bytes, len(text.data)))
        yield JsonBlock(name, number, text.offset, text.data[: cut.end])
        if found := _BORDER.match(text.data, cut.end):
            border = text.data[cut.end - 1 : found.end()]
        text.drop(cut.end)
        number += cut.rows


def _cut_text(text: _Text, cut: Callable[[bytes], Cut | None]) -> Cut | None:
    """Return the result of `cut`, also after NaN and the like are made JSON; None if more must be read.

    Raises:
        AnnotationFileError: it is no JSON.
    """
    found, offset = None, 0
    try:
        # msgspec takes half a surrogate pair near the end for one that has been cut.
        if (whole := cut(text.data)) or not text.is_whole:
            return whole
    except NotJsonError as error:
        found, offset = error, error.args[1]
    odd = quote_nan(without_lone_surrogates(text.data))
    if odd != text.data:
        try:
            in_odd = cut(odd)
        except NotJsonError as error:
            found, offset = error, _unquoted_offset(text.data, error.args[1])
        else:
            return in_odd and in_odd._replace(end=_unquoted_offset(text.data, in_odd.end))
    if not found or (offset >= len(text.data) - _WORD and not text.is_whole):
        return None
    raise text.fault(offset, found.args[0]) from found
