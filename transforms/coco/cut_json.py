"""Where the text of JSON can be cut: behind a value, or between two rows of a list.

A list is cut behind a `}` up to which its text parses once it is closed by `]`: a prefix of a JSON array that is an
array when it is closed can only have been cut between two elements. So the parser proves each cut, and strings and
nesting need no scanner of ours.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.transforms.coco.odd_json import fault_of, fault_offset, is_trailing, is_truncated

_ROWS = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_TRIES = 4
"""Ends of objects that are tried as ends of rows before brackets are counted, which costs as much as two tries: those
within a row, or within a text, are tried in vain."""
_QUOTE = 2
_STEPS = np.zeros(256, np.int8)
"""What a byte does to the depth of nesting; a quote, to whether it does."""
_STEPS[list(b"[{")], _STEPS[list(b"]}")], _STEPS[ord('"')] = 1, -1, _QUOTE


class Cut(NamedTuple):
    """Where a text can be cut, and how many rows end there."""

    end: int
    rows: int = 0


class NotJsonError(Exception):
    """What is wrong with a text, and at which offset."""

    def __init__(self, what: str, offset: int):
        super().__init__(what)
        self.what = what
        self.offset = offset


def whole_value(data: bytes) -> Cut | None:
    """Where the value ends that the text begins with; None where it does not end.

    Raises:
        NotJsonError: it is no value, whatever follows.
    """
    try:
        _VALUE.decode(data)
    except msgspec.DecodeError as error:
        if is_truncated(error):
            return None
        if not is_trailing(error):
            raise NotJsonError(fault_of(error), fault_offset(error, data)) from error
        data = data[: fault_offset(error, data)]
    return Cut(len(data.rstrip()))


def whole_rows(border: bytes, data: bytes) -> Cut | None:
    """Where the last row ends that is whole, in the text of a list behind its bracket; None where not even one is.

    Args:
        border: from the `}` of a row on, what is between it and the next; where it is found again, the text is cut,
            though there may be a whole row behind. Empty if nothing is known.

    Raises:
        NotJsonError: it is no list, whatever follows.
    """
    for end in _ends(data, border):
        closed = b"".join((b"[", memoryview(data)[:end], b"]"))
        try:
            rows = len(_ROWS.decode(closed))
            return Cut(end, rows) if closed[-2:] == b"}]" else None  # a number may go on
        except msgspec.DecodeError as error:
            offset = fault_offset(error, closed)
            if is_trailing(error):  # the list has ended before
                closed = closed[:offset].rstrip()
                return Cut(len(closed) - 2, len(_ROWS.decode(closed)))
            if not is_truncated(error) and offset < len(closed) - 1:
                # What comes before the cut is at fault, whatever follows.
                raise NotJsonError(fault_of(error), offset - 1) from error
    return None


def _ends(data: bytes, border: bytes) -> Iterator[int]:
    """Where the last row may end, the likeliest first."""
    if border and (found := data.rfind(border)) >= 0:
        yield found + 1
    end = len(data)
    for _ in range(_TRIES):
        end = data.rfind(b"}", 0, end)
        if end < 0:
            break
        yield end + 1
    else:
        yield from _last_object_end(data)
    yield len(data)  # of rows that are no objects


def _last_object_end(data: bytes) -> list[int]:
    """Where the last object ends that is in no other, in a text that begins outside of one, if there is one.

    A guess by brackets outside of texts, whatever else the text is: the parser has to prove it.
    """
    characters = np.frombuffer(data.replace(rb"\\", b"__").replace(rb"\"", b"__"), np.uint8)
    offsets = np.flatnonzero(_STEPS[characters])
    characters = characters[offsets]
    kinds = _STEPS[characters]
    is_quote = kinds == _QUOTE
    steps = np.where(is_quote | np.logical_xor.accumulate(is_quote), 0, kinds)
    ends = offsets[(steps < 0) & (characters == ord("}")) & (np.cumsum(steps, dtype=np.int32) == 0)]
    return [int(end) + 1 for end in ends[-1:]]
