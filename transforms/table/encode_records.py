"""Encode features of columns as records, a serialised tf.Example for each row."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.features import FeatureKind
from recordmill.transforms.records.example import Heads, varint, varints
from recordmill.transforms.rows.convert_columns import FeatureColumn

_FIELD_1 = b"\x0a"
_MOST_COUNTED = 1 << 16


def encode_records(features: Sequence[FeatureColumn], rows: int) -> pa.LargeBinaryArray:
    """Return a record for each row. The features are sorted by name, as the map of a serialised Example is."""
    pieces: list[pa.Array] = []
    for feature in sorted(features, key=lambda feature: feature.name):
        pieces += _map_entries(feature)
    body = _concatenate(pieces) if pieces else _constant(b"", rows)
    return _concatenate([_by_length(_lengths(body), lambda length: _FIELD_1 + varint(length)), body])


def _map_entries(feature: FeatureColumn) -> list[pa.Array]:
    """Return the bytes that a feature adds to each record: the map entry up to the values, and the values."""
    payload, heads = _payloads(feature), Heads(feature.name, feature.kind, feature.is_list)
    lengths = _lengths(payload)
    if feature.absent is None:
        return [_by_length(lengths, heads.__getitem__), payload]
    lengths = np.where(feature.absent, -1, lengths)
    return [_by_length(lengths, lambda length: heads[length] if length >= 0 else b""), payload]


def _payloads(feature: FeatureColumn) -> pa.LargeBinaryArray:
    """Values of each row, as stored in the record."""
    if feature.kind is FeatureKind.FLOAT:
        data, ends = np.asarray(feature.values, "<f4").tobytes(), feature.ends * 4
    elif feature.kind is FeatureKind.INT64:
        numbers = varints(np.asarray(feature.values, np.int64))
        data, ends = numbers.values.tobytes(), numbers.starts[feature.ends]
    else:
        items = pa.array(feature.values).cast(pa.large_binary())
        if feature.is_list:
            items = _concatenate([_by_length(_lengths(items), lambda length: _FIELD_1 + varint(length)), items])
        _, offsets, data = items.buffers()
        ends = np.frombuffer(offsets, np.int64, len(items) + 1, items.offset * 8)[feature.ends]
    offsets = pa.py_buffer(np.ascontiguousarray(ends, np.int64))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, [None, offsets, pa.py_buffer(data)])


def _by_length(lengths: np.ndarray, encode: Callable[[int], bytes]) -> pa.LargeBinaryArray:
    """Return `encode(length)` for each row. It is called once for each length."""
    if not len(lengths):
        return _constant(b"", 0)
    least = int(lengths.min())
    if int(lengths.max()) - least > _MOST_COUNTED:
        distinct, places = np.unique(lengths, return_inverse=True)
    else:  # three times as fast
        is_present = np.bincount(lengths - least) > 0
        distinct, places = np.flatnonzero(is_present) + least, (np.cumsum(is_present) - 1)[lengths - least]
    return pa.array([encode(length) for length in distinct.tolist()], pa.large_binary()).take(pa.array(places))


def _lengths(array: pa.LargeBinaryArray) -> np.ndarray:
    return pc.binary_length(array).to_numpy()


def _constant(data: bytes, rows: int) -> pa.LargeBinaryArray:
    return pa.array([data] * rows, pa.large_binary())


def _concatenate(pieces: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    """Return the bytes of each row, piece after piece."""
    return pc.binary_join_element_wise(*pieces, _EMPTY)


_EMPTY = pa.scalar(b"", pa.large_binary())
