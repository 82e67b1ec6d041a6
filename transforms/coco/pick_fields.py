"""Pick the requested open fields of the rows of COCO files."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.field_features import Axis
from recordmill.schemas.inputs.coco import STORED_OF_IMAGES, STORED_OF_OBJECTS
from recordmill.schemas.inputs.fields import FieldSelection, check_number, known_paths
from recordmill.transforms.coco.file_fields import FIELDS
from recordmill.transforms.join.field_values import observe_fields
from recordmill.transforms.join.observed_labels import ObservedLabel

STORED: dict[Axis, frozenset[str]] = {"image": STORED_OF_IMAGES, "object": STORED_OF_OBJECTS}
_QUOTED = ("NaN", "Infinity", "-Infinity")
_ROWS_WITH_PATHS = 1000
"""Rows of a block whose paths messages know."""


class PickedFields(NamedTuple):
    """Requested open fields of rows.

    Attributes:
        texts: JSON of the fields of each row by path; empty without any.
        observed: What decides how the fields are stored.
    """

    texts: list[bytes] = []
    observed: tuple[ObservedLabel, ...] = ()


NO_PICKED = PickedFields()


class OpenFields:
    """JSON texts of the open fields of rows, by name.

    Args:
        rows: Typed rows of `file_fields.decode_with_fields`, or texts of rows.
    """

    def __init__(self, axis: Axis, rows: Sequence[Any]):
        self._rows, self._places = rows, dict[str, str]()
        if rows and isinstance(rows[0], msgspec.Raw):
            self._rows = list(map(FIELDS.decode, rows))
            names = dict.fromkeys(name for row in self._rows for name in row)
        elif rows:
            attributes = zip(rows[0].__struct_fields__, rows[0].__struct_encode_fields__, strict=True)
            raw = {field.name for field in msgspec.structs.fields(rows[0]) if field.type is msgspec.Raw}
            self._places = {name: place for place, name in attributes if place in raw}
        self.names = [name for name in self._places or (names if rows else ()) if name not in STORED[axis]]

    def column(self, name: str) -> list[Any]:
        """Return the text of each row; empty without the field."""
        if self._places:
            return list(map(attrgetter(self._places[name]), self._rows))
        return [row.get(name, b"") for row in self._rows]


def pick_fields(axis: Axis, rows: Sequence[Any], selection: FieldSelection, is_quoted: bool = False) -> PickedFields:
    """Return the requested fields of rows.

    Args:
        rows: See OpenFields.
        is_quoted: True if `quote_nan` has quoted NaN and infinity in the rows. They are missing values.

    Raises:
        ConfigError: All fields are requested, and they are more than MOST_FIELDS.

    >>> rows = map(msgspec.Raw, [b'{"id": 1, "score": 0.5, "attributes": {"x": [1]}}', b'{"attributes": {"x": [2]}}'])
    >>> pick_fields("object", [*rows], FieldSelection({"score": "", "attributes.x": ""})).texts
    [b'{"score":0.5,"attributes.x":[1]}', b'{"attributes.x":[2]}']
    """
    fields = OpenFields(axis, rows)
    if selection.is_all:
        check_number(fields.names)
    wanted = [
        name for name in fields.names if selection.is_all or any(_is_within(path, name) for path in selection.kinds)
    ]
    picked = selection.pick_columns({name: _decode_values(fields.column(name), is_quoted) for name in wanted})
    paths = sorted(_first_paths(axis, rows))
    observed = observe_fields(axis, picked, len(rows), paths, is_previewed=selection.is_previewed)
    return PickedFields(_row_texts(picked, len(rows)), tuple(observed))


def nested_paths(axis: Axis, rows: Sequence[Any]) -> PickedFields:
    """Return the paths of the leaves in fields that are objects or lists.

    >>> nested_paths("object", [msgspec.Raw(b'{"a": 1, "attributes": {"x": 1}}')]).observed[0].name
    'attributes.x'
    """
    return PickedFields([], tuple(observe_fields(axis, {}, 0, sorted(_first_paths(axis, rows, is_nested=True)))))


def _first_paths(axis: Axis, rows: Sequence[Any], is_nested: bool = False) -> Iterator[str]:
    """Yield the paths of the leaves of the first rows; or those of fields that are objects or lists."""
    fields = OpenFields(axis, rows[:_ROWS_WITH_PATHS])
    for name in fields.names[:_ROWS_WITH_PATHS]:
        texts = fields.column(name)
        if is_nested:
            texts = [text for text in texts if bytes(memoryview(text)[:1]) in (b"{", b"[")]
        values = _decode_values(texts, False) if texts else ()
        yield from {path for value in values for path in known_paths({name: value})}


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


def _decode_values(texts: Sequence[Any], is_quoted: bool) -> list[Any]:
    try:
        values = msgspec.json.decode(b"[%b]" % b",".join([text or b"null" for text in texts]))
    except msgspec.ValidationError:  # a number beyond float64
        values = [_finite(json.loads(bytes(text or b"null"))) for text in texts]
    return list(map(_unquoted, values)) if is_quoted else values


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _change_items(_finite, value)


def _unquoted(value: Any) -> Any:
    return None if value in _QUOTED else _change_items(_unquoted, value)


def _change_items(change: Any, value: Any) -> Any:
    """Return a value whose items are changed."""
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    return list(map(change, value)) if isinstance(value, list) else value
