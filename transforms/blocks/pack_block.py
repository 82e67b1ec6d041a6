"""Blocks as bytes: what Beam sends between steps."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import msgpack

from recordmill.schemas.block import Block, Ragged, starts_of

_ENCODE, _DECODE = msgpack.Encoder().encode, msgpack.Decoder().decode
_NARROW = ("<u1", "<u2", "<u4", "<i4")
_HUNDREDTHS = 100
"""Numbers of JSON mostly have two decimals at most: k / 100 is the very double that such a text is."""

_Narrow = tuple[np.ndarray, str, int]
"""A column's values in fewer bytes, their own dtype, and what to divide by; 0 for nothing."""


def pack_block(block: Block) -> bytes:
    """A Block as MessagePack, each column in the smallest dtype that is exact."""
    return next(iter(pack_parts(block, np.zeros(len(block), np.int64))))[1] if len(block) else b""


def pack_parts(block: Block, keys: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Yield each key and the Block of the images that have it, packed, in the order of keys.

    Columns are narrowed once, not once a part: a part may be small.

    Args:
        keys: int64 [N], of each image.
    """
    order = np.argsort(keys, kind="stable")
    if (np.diff(keys) < 0).any():
        block = block.take(order)
    keys = keys[order]
    borders = np.flatnonzero(np.diff(keys)) + 1
    starts, ends = [0, *borders.tolist()], [*borders.tolist(), len(keys)]
    images = {name: _narrowed(column) for name, column in block.image_columns()}
    objects = {name: _narrowed(column) for name, column in block.object_columns()}
    firsts = block.first_object_of_image
    for start, end in zip(starts, ends, strict=True):
        if start == end:
            continue
        columns = {name: _cut(column, start, end) for name, column in images.items()}
        if firsts is not None:
            columns["first_object_of_image"] = _encoded(_narrow(np.diff(firsts[start : end + 1])))
            first, last = int(firsts[start]), int(firsts[end])
            columns |= {name: _cut(column, first, last) for name, column in objects.items()}
        yield int(keys[start]), _ENCODE(columns)


def unpack_block(data: bytes) -> Block:
    """The Block that `pack_block` packed."""
    columns = {name: _decoded(column) for name, column in _DECODE(data).items()}
    if "first_object_of_image" in columns:
        columns["first_object_of_image"] = starts_of(columns["first_object_of_image"])
    return Block(**columns)


def _narrowed(column: Any) -> tuple[_Narrow, np.ndarray | None]:
    return (_narrow(column.values), column.starts) if isinstance(column, Ragged) else (_narrow(column), None)


def _narrow(values: np.ndarray) -> _Narrow:
    kind = values.dtype.str
    if values.dtype.kind == "f" and values.size:
        for by in (1, _HUNDREDTHS):
            whole = np.rint(values * by)
            fits = np.abs(whole).max() < 2**31  # False for NaN, too
            if fits and (whole / by == values).all() and not (np.signbit(values) & (values == 0)).any():
                return _narrow(whole.astype(np.int64))[0], kind, by
    if values.dtype.kind == "i" and values.dtype.itemsize > 1 and values.size:
        low, high = int(values.min()), int(values.max())
        for narrow in _NARROW:
            if np.iinfo(narrow).min <= low and high <= np.iinfo(narrow).max:
                return values.astype(narrow), kind, 0
    return values, kind, 0


def _cut(narrowed: tuple[_Narrow, np.ndarray | None], start: int, end: int) -> tuple:
    (values, kind, by), starts = narrowed
    if starts is None:
        return _encoded((values[start:end], kind, by))
    lengths = np.diff(starts[start : end + 1])
    return (*_encoded((values[starts[start] : starts[end]], kind, by)), *_encoded(_narrow(lengths)))


def _encoded(narrow: _Narrow) -> tuple[str, str, int, int, bytes]:
    values, kind, by = narrow
    return kind, values.dtype.str, by, values.shape[1] if values.ndim > 1 else 0, values.tobytes()


def _decoded(column: list) -> Any:
    values = _values(*column[:5])
    return Ragged(values, starts_of(_values(*column[5:]))) if len(column) > 5 else values


def _values(kind: str, narrow: str, by: int, width: int, data: bytes) -> np.ndarray:
    values = np.frombuffer(data, narrow).astype(kind, copy=False)
    if by > 1:
        values = values / by
    return values.reshape(-1, width) if width else values
