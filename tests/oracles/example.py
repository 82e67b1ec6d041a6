"""tf.train.Example on the wire, written without TensorFlow.

An Example is four nested protocol buffer messages (tensorflow/core/example/{example,feature}.proto):

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }
    Feature  { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
    *List    { repeated ... value = 1; }            packed, for numbers

Map entries are sorted by key, so that equal values give equal bytes. They are the bytes of
`tf.train.Example.SerializeToString(deterministic=True)` as long as no key is a prefix of another. Where one is, the
order depends on the implementation of protobuf: upb writes the longer key first, pure Python the shorter (see
docs/decisions/0011-example-and-tfrecord-by-hand.md). The order makes no difference to readers.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from recordmill.schemas.features import FeatureKind, FeatureTable

_LIST_TAG = {FeatureKind.BYTES: b"\x0a", FeatureKind.FLOAT: b"\x12", FeatureKind.INT64: b"\x1a"}
_FIELD_1 = b"\x0a"
_FIELD_2 = b"\x12"
_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def varint(value: int) -> bytes:
    """`value` as a base-128 varint; negative int64 as its two's complement, ten bytes.

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


def _packed(data: bytes) -> bytes:
    return _FIELD_1 + varint(len(data)) + data if data else b""


def _bytes_list(values: Sequence[bytes]) -> bytes:
    return b"".join([_FIELD_1 + varint(len(value)) + value for value in values])


def _float_list(values: Sequence[float]) -> bytes:
    if isinstance(values, np.ndarray):
        return _packed(values.astype("<f4", copy=False).tobytes())
    return _packed(struct.pack(f"<{len(values)}f", *values))


def _int64_list(values: Sequence[int]) -> bytes:
    if isinstance(values, list | tuple):
        with suppress(ValueError):  # of numbers beyond a byte
            data = bytes(values)
            if data.isascii():  # each is its own varint: flags, classes, most of COCO's ids
                return _packed(data)
    return _packed(b"".join([varint(value) for value in values]))


def _one_bytes(value: bytes) -> tuple[bytes, bytes]:
    """A list of one, in two parts: it may be a picture, which joining them would copy."""
    return _FIELD_1 + varint(len(value)), value


_WRITE_LIST: dict[FeatureKind, Callable[[Sequence[Any]], bytes]] = {
    FeatureKind.BYTES: _bytes_list,
    FeatureKind.FLOAT: _float_list,
    FeatureKind.INT64: _int64_list,
}


Record = tuple[bytes, ...]
"""A serialised tf.train.Example, in pieces to be written one after the other: a picture is not copied into it."""

_COPIED_BYTES = 4096
"""What is larger is a piece of its own."""


class ExampleWriter:
    """Serialises tf.train.Examples of one table.

    The table gives names, order and types; a type never depends on the values, so an empty list is one of its type.
    """

    def __init__(self, table: FeatureTable):
        self._features = [
            (
                feature.source,
                feature.is_list,
                feature.kind is FeatureKind.BYTES and not feature.is_list,
                _WRITE_LIST[feature.kind],
                _FIELD_1 + varint(len(feature.name.encode())) + feature.name.encode() + _FIELD_2,
                _LIST_TAG[feature.kind],
            )
            for feature in table.features
        ]

    def write(self, values: Mapping[str, Any]) -> bytes:
        """As `record`, in one piece."""
        return b"".join(self.record(values))

    def record(self, values: Mapping[str, Any]) -> Record:
        """A serialised tf.train.Example.

        Args:
            values: for each feature's source a single value (shape ()) or a sequence: bytes, float, or int within
                int64.

        Raises:
            KeyError: a source without a value.
            struct.error, OverflowError, TypeError: a value that is not of the feature's type.
        """
        entries: list[bytes] = []
        for source, is_list, is_one_bytes, write_list, key, list_tag in self._features:
            value = values[source]
            if is_one_bytes:
                before, data = _one_bytes(value)
                entries += (_entry_head(key, list_tag, len(before) + len(data)), before, data)
            else:
                items = write_list(value if is_list else (value,))
                entries += (_entry_head(key, list_tag, len(items)), items)
        entries[:0] = _FIELD_1, varint(sum(map(len, entries)))
        record: Record = ()
        begin = 0
        for index in [index for index, entry in enumerate(entries) if len(entry) > _COPIED_BYTES]:
            record += (b"".join(entries[begin:index]), entries[index])
            begin = index + 1
        return (*record, b"".join(entries[begin:]))


# Most lists are short, and of few lengths; those of pictures are not found, and do not hold on to them.
@lru_cache(maxsize=4096)
def _entry_head(key: bytes, list_tag: bytes, length: int) -> bytes:
    """What stands before the `length` bytes of a feature's list."""
    feature_head = list_tag + varint(length)
    entry = key + varint(len(feature_head) + length) + feature_head
    return _FIELD_1 + varint(len(entry) + length) + entry


def merge_examples(one: bytes, other: bytes) -> bytes:
    """The features of two serialised Examples, none of which both have, as one; sorted by name as theirs are."""
    entries = [entry for _, entry in sorted([*_entries(one), *_entries(other)], key=itemgetter(0))]
    return b"".join((_FIELD_1, varint(sum(map(len, entries))), *entries))


def _entries(example: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """The map entries of an Example of ours, each with its feature's name; not copied, as one may be a picture."""
    _, start = _read_varint(example, 1)
    while start < len(example):
        size, entry = _read_varint(example, start + 1)
        length, key = _read_varint(example, entry + 1)
        yield example[key : key + length], memoryview(example)[start : entry + size]
        start = entry + size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
