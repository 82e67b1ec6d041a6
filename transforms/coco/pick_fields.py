"""Pick the requested open fields of the rows of COCO files."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.field_features import Axis
from recordmill.schemas.inputs.coco import STORED_OF_IMAGES, STORED_OF_OBJECTS
from recordmill.schemas.inputs.fields import FieldSelection, leaf_values
from recordmill.transforms.coco.file_fields import FIELDS
from recordmill.transforms.join.choose_fields import observe_fields
from recordmill.transforms.join.observed_labels import ObservedLabel

STORED: dict[Axis, frozenset[str]] = {"image": STORED_OF_IMAGES, "object": STORED_OF_OBJECTS}
_QUOTED = ("NaN", "Infinity", "-Infinity")
_ROWS_WITH_PATHS = 1000
"""Rows of a block whose paths messages know."""

Columns = Mapping[str, Sequence[Any]]
"""JSON text of each row by the name of its field; empty without the field."""


class PickedFields(NamedTuple):
    """Requested open fields of rows.

    Attributes:
        texts: JSON of the fields of each row by path; empty without any.
        observed: What decides how the fields are stored.
    """

    texts: list[bytes] = []
    observed: tuple[ObservedLabel, ...] = ()


NO_PICKED = PickedFields()


def row_columns(rows: Sequence[Any]) -> Columns:
    """Return the columns of typed rows of `file_fields.decode_with_fields`."""
    if not rows or isinstance(rows[0], msgspec.Raw):
        return {}
    attributes = zip(rows[0].__struct_encode_fields__, rows[0].__struct_fields__, strict=True)
    raw = {field.name for field in msgspec.structs.fields(rows[0]) if field.type is msgspec.Raw}
    return {name: list(map(attrgetter(place), rows)) for name, place in attributes if place in raw}


def raw_columns(rows: Iterable[msgspec.Raw]) -> Columns:
    """Return the columns of the JSON texts of rows."""
    decoded = list(map(FIELDS.decode, rows))
    return {
        name: [row.get(name, b"") for row in decoded] for name in dict.fromkeys(name for row in decoded for name in row)
    }


def pick_fields(
    axis: Axis, columns: Columns, number: int, selection: FieldSelection, is_quoted: bool = False
) -> PickedFields:
    """Return the requested fields of rows.

    Args:
        number: Number of rows.
        is_quoted: True if `quote_nan` has quoted NaN and infinity in the rows. They are missing values.

    >>> columns = {"id": [b"1", b"2"], "score": [b"0.5", b""], "attributes": [b'{"x": [1]}', b'{"x": [2]}']}
    >>> picked = pick_fields("object", columns, 2, FieldSelection({"score": "", "attributes.x": ""}))
    >>> picked.texts
    [b'{"score":0.5,"attributes.x":[1]}', b'{"attributes.x":[2]}']
    """
    open_ = {name: texts for name, texts in columns.items() if name not in STORED[axis]}
    wanted = [name for name in open_ if selection.is_all or any(_is_within(path, name) for path in selection.kinds)]
    picked = selection.pick_columns({name: _decode_values(open_[name], is_quoted) for name in wanted})
    paths = {path for name, texts in open_.items() for path in _paths(name, texts[:_ROWS_WITH_PATHS])}
    observed = observe_fields(axis, picked, number, paths, is_previewed=selection.is_previewed)
    return PickedFields(_row_texts(picked, number), tuple(observed))


def _row_texts(columns: Mapping[str, Sequence[Any]], number: int) -> list[bytes]:
    """Return the JSON of each row; empty without values."""
    names, encode = list(columns), msgspec.json.Encoder().encode
    rows = (
        {name: value for name, value in zip(names, values, strict=True) if value is not None}
        for values in zip(*columns.values(), strict=True)
    )
    return [encode(row) if row else b"" for row in rows] or [b""] * number


def _is_within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _paths(name: str, texts: Sequence[Any]) -> set[str]:
    values = _decode_values(texts, False)
    return {path for value in values for path, leaf in leaf_values({name: value}) if leaf is not None}


def _decode_values(texts: Sequence[Any], is_quoted: bool) -> list[Any]:
    try:
        values = msgspec.json.decode(b"[%b]" % b",".join([text or b"null" for text in texts]))
    except msgspec.ValidationError:  # a number beyond float64
        values = [_finite(json.loads(bytes(text or b"null"))) for text in texts]
    return list(map(_unquoted, values)) if is_quoted else values


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _each(_finite, value)


def _unquoted(value: Any) -> Any:
    return None if value in _QUOTED else _each(_unquoted, value)


def _each(change: Any, value: Any) -> Any:
    """Return a value whose items are changed."""
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    return list(map(change, value)) if isinstance(value, list) else value


def merge_fields(texts: Iterable[bytes]) -> tuple[bytes, int]:
    """Return the fields of several rows of an image or object, and the number of values that are not those of the
    first row that has the field.

    >>> merge_fields([b'{"a":1}', b"", b'{"a":2,"b":3}'])
    (b'{"a":1,"b":3}', 1)
    """
    given = list(dict.fromkeys(filter(None, texts)))
    if len(given) < 2:
        return next(iter(given), b""), 0
    merged: dict[str, Any] = {}
    others = 0
    for row in map(msgspec.json.decode, given):
        others += sum(merged.setdefault(path, value) != value for path, value in row.items())
    return msgspec.json.encode(merged), others
