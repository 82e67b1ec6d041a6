"""Cut a COCO file of any size into blocks of complete rows, using the memory of a few blocks.

A list is cut after a `}` if its text up to there, closed by `]`, parses as JSON. Such a prefix of an array ends between
two elements. So the parser verifies each cut, and we need no scanner for strings and nesting.
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
from recordmill.schemas.inputs.json_text import _NAN, quote_nan, without_lone_surrogates
from recordmill.transforms.coco.file_fields import LISTS, has_data

_ROWS = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_ENDS_TRIED = 4
"""Number of `}` that are tried as ends of rows before brackets are counted. Counting costs as much as two tries. A `}`
inside a row or a string is a failed try."""
_QUOTE = 2
_STEPS = np.zeros(256, np.int8)
"""Change of the nesting depth by each byte. _QUOTE marks a quote, which starts or ends a string."""
_STEPS[list(b"[{")], _STEPS[list(b"]}")], _STEPS[ord('"')] = 1, -1, _QUOTE


class Cut(NamedTuple):
    """Offset at which a text can be cut, and number of rows before the offset."""

    end: int
    rows: int = 0


class NotJsonError(Exception):
    """JSON error; its args are message and offset in bytes."""


# JSON errors, and the non-standard JSON that Python writes


def _unquoted_offset(data: bytes, quoted_offset: int) -> int:
    """Return the offset in `data` of an offset in `quote_nan(data)`."""
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
    """Return the offset of a JSON error; the end of `data` if msgspec reports none."""
    offset = re.search(r"byte (\d+)", str(error))
    # The offset of trailing characters is counted from 1.
    return int(offset[1]) - _is_trailing(error) if offset else len(data)


def _json_error(error: msgspec.DecodeError, offset: int) -> NotJsonError:
    return NotJsonError(str(error).removeprefix("JSON is malformed: ").split(" (byte")[0], offset)


# Offsets at which a text can be cut


def whole_value(data: bytes) -> Cut | None:
    """Return the end of the value at the start of a text; None if it is incomplete.

    Raises:
        NotJsonError: The text does not start with a JSON value.
    """
    try:
        _VALUE.decode(data)
    except msgspec.DecodeError as error:
        if _is_truncated(error):
            return None
        if not _is_trailing(error):
            raise _json_error(error, _fault_offset(error, data)) from error
        data = data[: _fault_offset(error, data)]
    return Cut(len(data.rstrip()))


def whole_rows(border: bytes, data: bytes) -> Cut | None:
    """Return the end of the last complete row in the text of a list; None if no row is complete.

    Args:
        border: Text from the `}` of one row to the next row, as found before. The last match is tried first, even if a
            complete row follows it. Empty if unknown.
        data: Text after the opening bracket of the list.

    Raises:
        NotJsonError: The text is not a list.
    """
    for end in _candidate_ends(data, border):
        closed = b"".join((b"[", memoryview(data)[:end], b"]"))
        try:
            rows = len(_ROWS.decode(closed))
            return Cut(end, rows) if closed[-2:] == b"}]" else None  # a number may continue after the end
        except msgspec.DecodeError as error:
            offset = _fault_offset(error, closed)
            if _is_trailing(error):  # the list ends before `end`
                closed = closed[:offset].rstrip()
                return Cut(len(closed) - 2, len(_ROWS.decode(closed)))
            if not _is_truncated(error) and offset < len(closed) - 1:
                # The error is before the cut.
                raise _json_error(error, offset - 1) from error
    return None


def _candidate_ends(data: bytes, border: bytes) -> Iterator[int]:
    """Yield possible ends of the last row, most likely first."""
    if border and (border_start := data.rfind(border)) >= 0:
        yield border_start + 1
    end = len(data)
    for _ in range(_ENDS_TRIED):
        end = data.rfind(b"}", 0, end)
        if end < 0:
            break
        yield end + 1
    else:
        yield from _last_object_end(data)
    yield len(data)  # for rows that are not objects


def _last_object_end(data: bytes) -> list[int]:
    """Return the end of the last top-level object in a text that starts outside an object; [] if it has none.

    The end is a guess from brackets outside strings. The parser verifies the guess.
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
"""Text between the `}` of a row and the first value of the next row. Most rows of a file have the same text there."""
_WORD = 16
"""An error in this many last bytes may only mean that a literal (-1, true, NaN) has not been read completely."""


class JsonBlock(NamedTuple):
    """Part of a file's text.

    Attributes:
        list: Name of the list that has the rows. Empty for the rest of the file: an object without the rows of its
            lists, and with true or false in place of unused values.
        first_row: Index of the first row in the list.
        start: Offset of `text` in the file, in bytes; 0 for the rest of the file.
    """

    list: str
    first_row: int
    start: int
    text: bytes


def cut_blocks(path: str, pieces: Iterable[bytes], block_bytes: int = BLOCK_BYTES) -> Iterator[JsonBlock]:
    """Yield the blocks of a COCO file in the order of the file. The last block is the rest of the file.

    Args:
        path: Path of the file, for messages.
        pieces: Bytes of the file, in order.
        block_bytes: Size of a block's text. A row that is larger is a block by itself.

    Raises:
        AnnotationFileError: The file is not JSON (the message has line and column), or has a list twice.
        OSError: The file cannot be read.
    """
    text = _Text(path, pieces, block_bytes)
    try:
        yield from _cut_file(text)
    except RecursionError as error:
        raise AnnotationFileError(f"{path} nests lists or objects too deeply to be a COCO file") from error


class _Text:
    """Part of a file that was read and not processed."""

    def __init__(self, path: str, pieces: Iterable[bytes], block_bytes: int):
        self.path = path
        self.block_bytes = block_bytes
        self.data = b""
        self.is_whole = False
        self._pieces = iter(pieces)
        self.offset = self._line = self._column = 0  # start of `data` in the file; columns in bytes
        self.read(block_bytes)
        self._head = self.data
        if self.data.startswith(codecs.BOM_UTF8):
            self.drop(len(codecs.BOM_UTF8))
            self._column = 0

    def read(self, number: int) -> None:
        """Read at least this number of further bytes, or up to the end of the file."""
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
        """Drop white space. Return the next byte; empty at the end of the file."""
        while True:
            space = _SPACE.match(self.data)
            self.drop(space.end() if space else 0)
            if self.data or self.is_whole:
                return self.data[:1]
            self.read(self.block_bytes)

    def fault(self, offset: int | None = None, what: str = "invalid character") -> AnnotationFileError:
        """Drop the text before an offset in `data`, and return the error of that offset. None is the end of `data`."""
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
        yield JsonBlock("", 0, 0, _cut_value(text))  # its decoder reports errors
        if text.skip_space():
            raise text.fault(0, "trailing characters")
        return
    fields: dict[str, bytes] = {}
    text.drop(1)
    if is_end := text.skip_space() == b"}":
        text.drop(1)
    while not is_end:
        key = _cut_key(text)
        if key in fields and key in LISTS:
            raise AnnotationFileError(
                f"{text.path} has two lists {key!r}, of which the first would be dropped. Make them one list"
            )
        if key in LISTS[:2] and text.skip_space() == b"[":
            yield from _cut_list(text, key)
            fields[key] = b"[]"
        else:
            fields[key] = _cut_value(text) if key in LISTS else _skip_value(text, key)
        if (after := text.skip_space()) not in (b",", b"}"):
            raise text.fault(0 if after else None)
        is_end = after == b"}"
        text.drop(1)
    if text.skip_space():
        raise text.fault(0, "trailing characters")
    rest = b",".join(b"%b:%b" % (msgspec.json.encode(key), value) for key, value in fields.items())
    yield JsonBlock("", 0, 0, b"{%b}" % rest)


def _cut_key(text: _Text) -> str:
    while not (key_match := _KEY.match(text.data)):
        fault = _key_fault_offset(text.data)
        if text.is_whole or fault is not None:
            raise text.fault(fault)
        text.read(text.block_bytes)
    try:
        key = msgspec.json.decode(without_lone_surrogates(key_match[1]), type=str)
    except msgspec.DecodeError as error:
        raise text.fault(key_match.start(1) + _fault_offset(error, key_match[1])) from error
    except UnicodeDecodeError as error:
        raise AnnotationFileError(f"{text.path} is not UTF-8, as JSON has to be: {error.reason}") from error
    text.drop(key_match.end())
    return key


def _key_fault_offset(data: bytes) -> int | None:
    """Return the offset of an invalid key; None if the text ends too early to tell."""
    try:
        msgspec.json.decode(b"{" + data, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        return None if _is_truncated(error) else _fault_offset(error, data) - 1
    except UnicodeDecodeError:
        return 0
    return None


def _cut_value(text: _Text) -> bytes:
    """Return the next value, and drop it from the text."""
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
    """Drop an unused value. Return true if the value has data, else false. A list of objects is never in memory as a
    whole."""
    is_list = text.skip_space() == b"["
    values = (b"[%b]" % block.text for block in _cut_list(text, key)) if is_list else iter([_cut_value(text)])
    return b"true" if sum(has_data(msgspec.Raw(value)) for value in values) else b"false"


def _cut_list(text: _Text, name: str) -> Iterator[JsonBlock]:
    """Yield the rows of a list as blocks, and drop the list from the text."""
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
        if border_match := _BORDER.match(text.data, cut.end):
            border = text.data[cut.end - 1 : border_match.end()]
        text.drop(cut.end)
        number += cut.rows


def _cut_text(text: _Text, cut: Callable[[bytes], Cut | None]) -> Cut | None:
    """Return the result of `cut`, without NaN and lone surrogates if it fails else; None if more text must be read.

    Raises:
        AnnotationFileError: The text is not JSON.
    """
    json_error, offset = None, 0
    try:
        # msgspec takes a lone surrogate near the end for a truncated pair.
        if (whole := cut(text.data)) or not text.is_whole:
            return whole
    except NotJsonError as error:
        json_error, offset = error, error.args[1]
    cleaned = quote_nan(without_lone_surrogates(text.data))
    if cleaned != text.data:
        try:
            cleaned_cut = cut(cleaned)
        except NotJsonError as error:
            json_error, offset = error, _unquoted_offset(text.data, error.args[1])
        else:
            return cleaned_cut and cleaned_cut._replace(end=_unquoted_offset(text.data, cleaned_cut.end))
    if not json_error or (offset >= len(text.data) - _WORD and not text.is_whole):
        return None
    raise text.fault(offset, json_error.args[0]) from json_error
