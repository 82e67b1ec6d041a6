"""Convert Blocks to the bytes that Beam sends, and back."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from isal import isal_zlib
from msgspec import msgpack

from recordmill.schemas.block import Block, Ragged, starts_of
from recordmill.transforms.blocks.check_block import check_block

_ENCODE, _DECODE = msgpack.Encoder().encode, msgpack.Decoder().decode
_NARROW = ("<u1", "<u2", "<u4", "<i4")
_ZLIB = b"x"
"""First byte of compressed data. That of MessagePack's map is another."""
_HUNDREDTHS = 100
"""Divisor of decimals. Most numbers of JSON have two decimals, and k / 100 is exactly their double."""


class _Narrow(NamedTuple):
    """Compact column.

    Attributes:
        values: Numbers in the smallest exact dtype; a single row if all rows are equal.
        dtype: Dtype of the column.
        divisor: Divisor of the numbers; 0 for none.
        starts: int64, starts of the rows of a ragged column; None for other columns.
        lengths: Lengths of these rows in the smallest dtype; None for other columns.
        is_constant: True if all rows are equal.
    """

    values: np.ndarray
    dtype: str
    divisor: int
    starts: np.ndarray | None = None
    lengths: np.ndarray | None = None
    is_constant: bool = False


Keyed = tuple[int, bytes]
"""Number of a bucket of names or of a range of images, and a packed Block."""


def pack_block(block: Block, is_zipped: bool = False) -> bytes:
    """Return a Block as MessagePack, each column in the smallest dtype that is exact."""
    return next(pack_parts(block, np.zeros(len(block), np.int64), is_zipped))[1] if len(block) else b""


def pack_parts(block: Block, keys: np.ndarray, is_zipped: bool = False) -> Iterator[Keyed]:
    """Yield each key with the packed Block of its images, in the order of keys.

    Columns are narrowed once, before the split, because a part may be small.

    Args:
        keys: int64 [N], key of each image.
        is_zipped: True to compress parts: many parts of a few images take a third of their memory.

    Raises:
        StepError: See `check_block`.
    """
    check_block(block)
    order = np.argsort(keys, kind="stable")
    if (np.diff(keys) < 0).any():
        block = block.take(order)
    keys = keys[order]
    borders = np.flatnonzero(np.diff(keys)) + 1
    starts, ends = [0, *borders.tolist()], [*borders.tolist(), len(keys)]
    images = {name: _narrowed(column) for name, column in block.image_columns()}
    objects = {name: _narrowed(column) for name, column in block.object_columns()}
    firsts = block.first_object_of_image
    numbers = None if firsts is None else _narrow(np.diff(firsts))
    for start, end in zip(starts, ends, strict=True):
        if start == end:
            continue
        columns = {name: _encoded(column, start, end) for name, column in images.items()}
        if numbers is not None:
            first, last = int(firsts[start]), int(firsts[end])
            columns["first_object_of_image"] = _encoded(numbers, start, end)
            columns |= {name: _encoded(column, first, last) for name, column in objects.items()}
        packed = _ENCODE(columns)
        yield int(keys[start]), isal_zlib.compress(packed, 1) if is_zipped else packed


def unpack_block(data: bytes) -> Block:
    """Return the Block that `pack_block` or `pack_parts` packed."""
    data = isal_zlib.decompress(data) if data[:1] == _ZLIB else data
    columns = {name: _decoded(column) for name, column in _DECODE(data).items()}
    if "first_object_of_image" in columns:
        columns["first_object_of_image"] = starts_of(columns["first_object_of_image"])
    return Block(**columns)


def _narrowed(column: Any) -> _Narrow:
    if not isinstance(column, Ragged):
        return _narrow(column)
    narrow, lengths = _narrow(column.values, may_be_constant=False), column.lengths
    if len(lengths) > 1 and (lengths == lengths[0]).all():
        first, data = narrow.values[: lengths[0]], narrow.values.tobytes()
        if data == first.tobytes() * len(lengths):  # compares bytes, because -0.0 equals 0.0
            return narrow._replace(values=first, lengths=_narrow(lengths[:1]).values, is_constant=True)
    return narrow._replace(starts=column.starts, lengths=_narrow(lengths, may_be_constant=False).values)


def _narrow(values: np.ndarray, may_be_constant: bool = True) -> _Narrow:
    dtype, is_constant = values.dtype.str, False
    # Floats are excluded, because -0.0 and 0.0 are equal but have different bytes.
    if may_be_constant and len(values) > 1 and values.dtype.kind != "f" and (values == values[0]).all():
        values, is_constant = values[:1], True
    if values.dtype.kind == "f" and values.size:
        for by in (1, _HUNDREDTHS):
            whole = np.rint(values * by)
            fits = np.abs(whole).max() < 2**31  # False for NaN, too
            if fits and (whole / by == values).all() and not (np.signbit(values) & (values == 0)).any():
                return _Narrow(_small(whole.astype(np.int64)), dtype, by)
    return _Narrow(_small(values), dtype, 0, is_constant=is_constant)


def _small(values: np.ndarray) -> np.ndarray:
    """Return integers in the smallest exact dtype; other values unchanged."""
    if values.dtype.kind == "i" and values.dtype.itemsize > 1 and values.size:
        low, high = int(values.min()), int(values.max())
        for narrow in _NARROW:
            if np.iinfo(narrow).min <= low and high <= np.iinfo(narrow).max:
                return values.astype(narrow)
    return values


def _encoded(column: _Narrow, start: int, end: int) -> tuple:
    """Return the rows from `start` to `end`: their number if the column is constant, else -1; dtype, divisor, width,
    narrow dtype and bytes of the numbers; for a ragged column also narrow dtype and bytes of the lengths."""
    values, lengths = column.values, column.lengths
    if not column.is_constant:
        if column.starts is not None and lengths is not None:
            values, lengths = values[column.starts[start] : column.starts[end]], lengths[start:end]
        else:
            values = values[start:end]
    number = end - start if column.is_constant else -1
    width = values.shape[1] if values.ndim > 1 else 0
    encoded = number, column.dtype, column.divisor, width, values.dtype.str, values.tobytes()
    return encoded if lengths is None else (*encoded, lengths.dtype.str, lengths.tobytes())


def _decoded(column: list) -> Any:
    number, dtype, divisor, width, narrow, data, *encoded_lengths = column
    values = np.frombuffer(data, narrow).astype(dtype, copy=False)
    if divisor > 1:
        values = values / divisor
    if encoded_lengths:
        lengths = np.frombuffer(encoded_lengths[1], encoded_lengths[0]).astype(np.int64)
        if number >= 0:
            values, lengths = np.tile(values, number), np.repeat(lengths, number)
        return Ragged(values, starts_of(lengths))
    if width:
        values = values.reshape(-1, width)
    return np.repeat(values, number, axis=0) if number >= 0 else values
