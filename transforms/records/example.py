"""tf.train.Example on the wire, written without TensorFlow.

An Example is four nested protocol buffer messages (tensorflow/core/example/{example,feature}.proto):

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }
    Feature  { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
    *List    { repeated ... value = 1; }            packed, for numbers

Map entries are sorted by key, so that equal values give equal bytes. The bytes are those of
`tf.train.Example.SerializeToString(deterministic=True)` if no key is a prefix of another. Otherwise, the order depends
on the implementation of protobuf: upb writes the longer key first, pure Python the shorter (see
docs/decisions/0011-example-and-tfrecord-by-hand.md). The order makes no difference to readers.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

import numpy as np

from recordmill.schemas.block import Ragged, starts_of
from recordmill.schemas.features import Feature, FeatureKind, FeatureTable

_LIST_TAG = {FeatureKind.BYTES: b"\x0a", FeatureKind.FLOAT: b"\x12", FeatureKind.INT64: b"\x1a"}
_FIELD_1 = b"\x0a"
_FIELD_2 = b"\x12"
_TAG_1, _TAG_2 = 0x0A, 0x12
_LENGTH_BYTES = 5
"""Maximum size of a length, as in protobuf's parsers."""
_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def varint(value: int) -> bytes:
    """Return `value` as a base-128 varint. A negative int64 becomes its two's complement, ten bytes.

    >>> varint(300), len(varint(-1))
    (b'\\xac\\x02', 10)
    """
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} does not fit int64")
    value &= 0xFFFFFFFFFFFFFFFF
    septets = bytearray()
    while value > 127:
        septets.append(value & 127 | 128)
        value >>= 7
    septets.append(value)
    return bytes(septets)


def varints(values: np.ndarray) -> Ragged:
    """Return the `varint` of each value: uint8 [n, bytes].

    Args:
        values: int64 [n].

    >>> varints(np.array([1, 300])).rows()
    [b'\\x01', b'\\xac\\x02']
    """
    rest = values.astype(np.uint64)  # two's complement
    lengths = np.ones(len(rest), np.int64)
    for bits in range(7, 64, 7):
        is_longer = rest >= np.uint64(1 << bits)
        if not is_longer.any():
            break
        lengths += is_longer
    starts = starts_of(lengths)
    if len(rest) == starts[-1]:
        return Ragged(rest.astype(np.uint8), starts)
    septets = np.empty(int(starts[-1]), np.uint8)
    for index in range(int(lengths.max())):
        has_more = lengths > index
        septet = (rest[has_more] >> np.uint64(7 * index)).astype(np.uint8) & 127
        septets[starts[:-1][has_more] + index] = septet | (lengths[has_more] > index + 1) * np.uint8(128)
    return Ragged(septets, starts)


def bytes_items(values: Sequence[bytes]) -> list[bytes]:
    """Return values as items of a BytesList: tag, length, bytes."""
    return [_FIELD_1 + varint(len(value)) + value for value in values]


def item_values(data: bytes) -> Iterator[bytes]:
    """Yield the values of `bytes_items`.

    >>> list(item_values(b"".join(bytes_items([b"a", b"", b"b" * 300])))) == [b"a", b"", b"b" * 300]
    True
    """
    place = 0
    while place < len(data):
        size, start = read_varint(data, place + 1)
        place = start + size
        yield data[start:place]


def _float_list(values: Sequence[float]) -> bytes:
    if isinstance(values, np.ndarray):
        return values.astype("<f4", copy=False).tobytes()
    return struct.pack(f"<{len(values)}f", *values)


def _int64_list(values: Sequence[int]) -> bytes:
    if isinstance(values, list | tuple):
        with suppress(ValueError):  # raised for numbers beyond a byte
            data = bytes(values)
            if data.isascii():  # each is its own varint: flags, classes, most of COCO's ids
                return data
    return b"".join([varint(value) for value in values])


_WRITE_LIST: dict[FeatureKind, Callable[[Sequence[Any]], bytes]] = {
    FeatureKind.BYTES: lambda values: b"".join(bytes_items(values)),
    FeatureKind.FLOAT: _float_list,
    FeatureKind.INT64: _int64_list,
}


Buffer = bytes | memoryview

Record = tuple[bytes, ...]
"""A serialised tf.train.Example, in consecutive parts, so that images are not copied."""

Column = np.ndarray | Ragged | Sequence[Any]
"""Values of a feature, one row per record:

    ndarray [rows], [rows, n]   one number, or n numbers
    Ragged of numbers           lists of numbers
    Ragged of uint8             serialised lists of bytes: the `bytes_items` of each row
    a sequence                  one value, or a sequence of values, depending on the feature
"""

_COPIED_BYTES = 4096
"""Minimum size of a value that becomes a separate part."""
_MOST_HEADS = 4096


class Heads(dict[int, bytes]):
    """Header bytes of a feature, by length of data."""

    def __init__(self, name: str, kind: FeatureKind, is_list: bool):
        super().__init__()
        key = name.encode()
        self._key = _FIELD_1 + varint(len(key)) + key + _FIELD_2
        self._tag = _LIST_TAG[kind]
        self._is_one = kind is FeatureKind.BYTES and not is_list  # a list of one
        self._is_packed = kind is not FeatureKind.BYTES

    def __missing__(self, length: int) -> bytes:
        has_length = self._is_one or (self._is_packed and length)
        list_head = _FIELD_1 + varint(length) if has_length else b""
        feature_head = self._tag + varint(len(list_head) + length)
        entry = self._key + varint(len(feature_head) + len(list_head) + length) + feature_head + list_head
        head = _FIELD_1 + varint(len(entry) + length) + entry
        if len(self) < _MOST_HEADS:  # lists have few different lengths, images have many
            self[length] = head
        return head


class ExampleWriter:
    """Writer of serialised tf.train.Examples of one table.

    The table determines names, order and types. Types do not depend on values, so an empty list has its type, too.
    """

    def __init__(self, table: FeatureTable):
        self._features = [(feature, Heads(feature.name, feature.kind, feature.is_list)) for feature in table.features]

    def write(self, values: Mapping[str, Any]) -> bytes:
        """Return the result of `record` as one bytes object."""
        return b"".join(self.record(values))

    def record(self, values: Mapping[str, Any]) -> Record:
        """Return a serialised tf.train.Example.

        Args:
            values: Values by the feature's source: a single value if the shape is (), otherwise a sequence. A value is
                bytes, float, or int within int64.

        Raises:
            KeyError: A source has no value.
            struct.error, OverflowError, TypeError: A value does not have the feature's type.
        """
        return next(self.records({feature.source: [values[feature.source]] for feature, _ in self._features}, 1))

    def records(self, columns: Mapping[str, Column], rows: int) -> Iterator[Record]:
        """Serialise `rows` tf.train.Examples; each is assembled when it is consumed.

        Args:
            columns: Columns by the feature's source.

        Raises:
            KeyError, struct.error, TypeError: See `record`.
            OverflowError, FloatingPointError: A number is beyond the feature's type.
        """
        small: list[list[list[bytes]]] = [[]]  # entries by feature and row; a new group after each large feature
        large: list[list[bytes]] = []
        for feature, heads in self._features:
            payloads = feature_payloads(feature, columns[feature.source])
            if feature.kind is FeatureKind.BYTES and max(map(len, payloads), default=0) > _COPIED_BYTES:
                small[-1].append([heads[len(payload)] for payload in payloads])
                large.append(payloads)
                small.append([])
            else:
                small[-1].append([heads[len(payload)] + payload for payload in payloads])
        first, *rest = (map(b"".join, zip(*group, strict=True)) if group else repeat(b"", rows) for group in small)
        pieces = chain((first,), chain.from_iterable(zip(large, rest, strict=True)))
        return map(_with_length, *pieces)


def _with_length(first: bytes, *rest: bytes) -> Record:
    size = len(first) + sum(map(len, rest))
    return (b"".join((_FIELD_1, varint(size), first)), *rest)


def feature_payloads(feature: Feature, column: Column) -> list[bytes]:
    """Return the data of a feature in each row: packed numbers, bytes, or items of a BytesList."""
    if isinstance(column, np.ndarray):
        row_size = column[0].size if len(column) else 0
        column = Ragged(column.ravel(), np.arange(len(column) + 1) * row_size)
    if isinstance(column, Ragged):
        if feature.kind is FeatureKind.INT64:
            numbers = varints(column.values)
            column = Ragged(numbers.values, numbers.starts[column.starts])
        elif feature.kind is FeatureKind.FLOAT:
            with np.errstate(over="raise"):
                data = np.ascontiguousarray(column.values, "<f4").view(np.uint8)
            column = Ragged(data, 4 * column.starts)
        return column.rows()
    if not feature.is_list and feature.kind is FeatureKind.BYTES:
        return list(column)
    write: Callable[[Any], bytes] = _WRITE_LIST[feature.kind]
    return [write(row if feature.is_list else (row,)) for row in column]


def merge_examples(one: bytes, other: bytes) -> bytes:
    """Merge two serialised Examples without common features. Features are sorted by name, in the inputs, too."""
    entries = [entry for _, entry in sorted([*_entries(one), *_entries(other)], key=itemgetter(0))]
    return b"".join((_FIELD_1, varint(sum(map(len, entries))), *entries))


LARGE_BYTES = 4096
"""Minimum size of a value that `cut_large_values` cuts out."""


def cut_large_values(example: Buffer) -> tuple[Buffer, dict[str, memoryview]]:
    """Return an Example without its large values, and these by name of their feature: parts of `example`, not copied.

    A large value is the only value of its feature. An Example that is damaged, or has another form than those that
    ExampleWriter and TensorFlow write, is returned whole.
    """
    data, values, pieces = memoryview(example), dict[str, memoryview](), list[memoryview]()
    try:
        size, start = read_varint(data, 1)
        if data[0] != _TAG_1 or start + size != len(data):
            return example, {}
        end = piece_start = start
        while end < len(data):
            start = end
            size, entry = read_varint(data, start + 1)
            end = entry + size
            if data[start] != _TAG_1:
                return example, {}
            if size < LARGE_BYTES or not (value := _locate_bytes(data, entry, end)):
                continue
            name, offset = value
            if name in values:  # the last one counts
                return example, {}
            values[name] = data[offset:end]
            pieces.append(data[piece_start:start])
            piece_start = end
    except (IndexError, ValueError):
        return example, {}
    if not values or end != len(data):
        return example, {}
    pieces.append(data[piece_start:])
    return b"".join((_FIELD_1, varint(sum(map(len, pieces))), *pieces)), values


def _locate_bytes(data: memoryview, start: int, end: int) -> tuple[str, int] | None:
    """Return name and offset of the bytes of a map entry; None if it is not a name and a list of one bytes value."""
    if data[start] != _TAG_1:
        return None
    size, name = read_varint(data, start + 1)
    name_end = offset = name + size
    for tag in (_TAG_2, _TAG_1, _TAG_1):  # Feature, BytesList, value: each is all of the one around it
        if data[offset] != tag:
            return None
        size, offset = read_varint(data, offset + 1)
        if offset + size != end:
            return None
    return str(data[name:name_end], "utf-8"), offset


def _entries(example: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the feature name and map entry of each feature of our Examples. Entries may be images: not copied."""
    _, start = read_varint(example, 1)
    while start < len(example):
        size, entry = read_varint(example, start + 1)
        length, key = read_varint(example, entry + 1)
        yield example[key : key + length], memoryview(example)[start : entry + size]
        start = entry + size


def read_varint(data: Buffer, place: int) -> tuple[int, int]:
    """Return the varint of a length, and the offset of its end.

    Raises:
        ValueError: It has more than five bytes.
        IndexError: The data end within it.
    """
    value = 0
    for index in range(_LENGTH_BYTES):
        byte = data[place + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, place + index + 1
    raise ValueError(f"the length at byte {place:,} has more than {_LENGTH_BYTES} bytes")
