"""Features of open fields: values of images and objects that a source has and no layout knows."""

import difflib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import nan
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from recordmill.schemas.boxes import shortest_decimal
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import DTYPES, ColumnType, Feature, FeatureKind, FeatureTable, Form, Reading, RecordOf
from recordmill.schemas.values import VALUES

Axis = Literal["image", "object"]
AXES: tuple[Axis, Axis] = ("image", "object")
_SOURCES: dict[Axis, str] = {"image": "image.field:", "object": "objects.field:"}
_PREFIXES: dict[str, dict[Axis, str]] = {
    "detection": {"image": "image/", "object": "image/object/"},
    "keras": {"image": "image_", "object": ""},
    "tfds": {"image": "", "object": "objects/"},
    "classification": {"image": ""},
}
"""Beginning of keys by layout and axis. A layout without an axis does not store its fields."""
_MISSING = {FeatureKind.INT64: "-1", FeatureKind.FLOAT: "nan", FeatureKind.BYTES: ""}
FLAT_VALUES, LENGTHS = "/ragged_flat_values", "/ragged_row_lengths_0"
"""Ends of the keys of lists of different lengths, as TFDS names them."""
RAGGED = -1
FLAGS, TRACK = ("difficult", "truncated", "view"), "track_id"
WELL_KNOWN = (*FLAGS, TRACK)
"""Fields of objects that records of layout `detection` have without a request. FLAGS are written together."""
_MOST_KEY_BYTES = 200


class FieldColumn(msgspec.Struct, frozen=True):
    """A field, and its stored form.

    Attributes:
        axis: What has a value: an image, or an object.
        path: Path in the words of the source, without the prefix of its axis.
        size: Number of values in each list; 0 for a single value, RAGGED for lists of different lengths.
        is_bool: True if its numbers 0 and 1 are false and true in the source.
    """

    axis: Axis
    path: str
    kind: FeatureKind
    size: int = 0
    is_bool: bool = False

    @property
    def source(self) -> str:
        """Source of its feature, or the beginning of the sources of its two features."""
        return f"objects.{self.path}" if self.is_well_known else f"{_SOURCES[self.axis]}{self.path}"

    @property
    def is_well_known(self) -> bool:
        """True for a field that layout `detection` has in any case."""
        return self.axis == "object" and not self.size and _KINDS_OF_WELL_KNOWN.get(self.path) is self.kind

    @property
    def shown(self) -> str:
        """Name of the field in `--fields`."""
        return f"image.{self.path}" if self.axis == "image" else self.path

    @property
    def missing(self) -> str:
        """Value that is stored for a missing value, as text."""
        is_flag = self.is_well_known and self.path != TRACK and self.kind is FeatureKind.INT64
        return "0" if is_flag else _MISSING[self.kind]


_KINDS_OF_WELL_KNOWN = dict.fromkeys(WELL_KNOWN, FeatureKind.INT64) | {"view": FeatureKind.BYTES}
_WELL_KNOWN = {
    column.source: column
    for column in (FieldColumn("object", path, kind) for path, kind in _KINDS_OF_WELL_KNOWN.items())
}
"""Well-known fields by the source of their feature, which layout `detection` has in any case."""


def is_field(source: str) -> bool:
    """Return True for the source of a field's feature."""
    return source in _WELL_KNOWN or _axis_of(source) is not None


def _axis_of(source: str) -> Axis | None:
    return next((axis for axis, start in _SOURCES.items() if source.startswith(start)), None)


def stores_axis(layout: str, axis: Axis) -> bool:
    """Return True if records of a layout store fields of images, or of objects."""
    return axis in _PREFIXES.get(layout, {})


def check_new_key(key: str, name: str, table: FeatureTable) -> str:
    """Return the name that `--rename` gives to a key.

    Raises:
        ConfigError: It cannot be a key.
    """
    if not is_key(name):
        raise ConfigError(f"--rename {key}={name}: a key has 1 to {_MOST_KEY_BYTES} bytes of printable text")
    group = next((prefix for prefix in table.groups if name.startswith(f"{prefix}/")), None)
    if group and not key.startswith(f"{group}/"):
        raise ConfigError(
            f"--rename {key}={name}: in layout {table.layout} all lists below {group}/ have the same length. Choose "
            "another key"
        )
    return name


def is_key(name: str) -> bool:
    """Return True if a record can have this key. A file next to the shards may have the name of a key."""
    return bool(name) and name.isprintable() and len(name.encode()) <= _MOST_KEY_BYTES


class FieldsOfTable(NamedTuple):
    """Features of records with fields.

    Attributes:
        faults: Why each of the other fields has none.
    """

    table: FeatureTable
    faults: list[str]


def add_fields(
    table: FeatureTable,
    columns: Iterable[FieldColumn],
    names: Mapping[str, str] = MappingProxyType({}),
    is_part: bool = False,
) -> FieldsOfTable:
    """Return the table with the features of fields, but for those whose key is taken or impossible.

    Args:
        names: Other keys of fields by their usual ones, those of `--rename`.
        is_part: True for one of several sets, in which a key of `names` may be that of another set's field.

    Raises:
        ConfigError: A key is not that of a field, or a name cannot be a key.
    """
    added = {feature.name: feature for feature in table.features}
    readings = {value.reading.name for value in VALUES if value.reading and value.source in table.sources}
    faults: list[str] = []
    usual = set[str]()
    for column in columns:
        if not stores_axis(table.layout, column.axis):
            faults.append(f"{column.shown} is a field of objects, and records of layout {table.layout} have no objects")
            continue
        if column.source in table.sources:  # a well-known field of the layout
            continue
        key = _PREFIXES[table.layout][column.axis] + column.path.replace(".", "/")
        usual.add(key)
        features = list(_features(column, table, check_new_key(key, names[key], table) if key in names else key))
        if fault := _key_fault(column, key, features, added, readings):
            faults.append(fault)
        else:
            added |= {feature.name: feature for feature in features}
    if not is_part and (unknown := [key for key in names if key not in usual]):
        keys = sorted([*usual, *added])
        near = difflib.get_close_matches(unknown[0], keys, 1, 0.5)
        hint = f"Did you mean {near[0]}?" if near else f"They have {', '.join(keys)}"
        raise ConfigError(f"--rename: records have no feature {unknown[0]!r}. {hint}")
    features_by_name = tuple(added[name] for name in sorted(added))
    return FieldsOfTable(msgspec.structs.replace(table, features=features_by_name), faults)


def _key_fault(
    column: FieldColumn,
    key: str,
    features: Sequence[Feature],
    taken: Mapping[str, Feature],
    readings: Collection[str],
) -> str:
    """Return why a field cannot be stored; empty if it can."""
    if column.axis == "object" and column.path in readings:
        return f"recordmill.open gives the name of the field {column.shown} to a value of the layout"
    cure = f"Add --rename {shlex.quote(key)}=NAME"
    for feature in features:
        if other := taken.get(feature.name):
            what = other.meaning or other.source
            return f"the key of the field {column.shown}, {feature.name}, is taken ({what}). {cure}"
        if "" in feature.name.split("/"):
            return f"the key of the field {column.shown!r}, {feature.name}, has an empty part. {cure}"
        if not is_key(feature.name):
            return f"the field {column.shown!r} has no key of 1 to {_MOST_KEY_BYTES} bytes of printable text"
    return ""


def _features(column: FieldColumn, table: FeatureTable, key: str) -> Iterator[Feature]:
    """Yield the feature of a field, or the two of lists of different lengths."""
    is_alone = column.axis == "image" or table.record_of is RecordOf.ANNOTATION
    rows: tuple[str, ...] = () if is_alone else ("N",)
    type_ = ColumnType.BOOL if column.is_bool else None
    meaning = f"field {column.path}; {column.missing or 'empty'} where it is missing"
    # A feature of bytes whose dimensions are all sizes would be packed numbers.
    is_varying = column.size == RAGGED or (is_alone and bool(column.size) and column.kind is FeatureKind.BYTES)
    if not is_varying:
        shape = (*rows, str(column.size)) if column.size else rows
        yield Feature(key, column.source, column.kind, shape, "", meaning, default=column.missing, column_type=type_)
        return
    values = (f"V of {column.shown}",)
    if is_alone:
        yield Feature(key, column.source, column.kind, values, "", f"field {column.path}", column_type=type_)
        return
    flat, meaning = f"{column.source}{FLAT_VALUES}", f"field {column.path}"
    yield Feature(f"{key}{FLAT_VALUES}", flat, column.kind, values, "", meaning, column_type=type_)
    lengths = f"number of values of {column.path} of each object"
    yield Feature(f"{key}{LENGTHS}", f"{column.source}{LENGTHS}", FeatureKind.INT64, rows, "", lengths)


def field_columns(table: FeatureTable) -> tuple[FieldColumn, ...]:
    """Return the fields that records of a table have."""
    columns = []
    for feature in table.features:
        axis = _axis_of(feature.source)
        if feature.source in _WELL_KNOWN:
            columns.append(_WELL_KNOWN[feature.source])
        if axis is None or feature.source.endswith(LENGTHS):
            continue
        path = feature.source.removeprefix(_SOURCES[axis]).removesuffix(FLAT_VALUES)
        is_ragged = bool(feature.shape) and feature.shape[-1].startswith("V of ")
        sizes = [int(size) for size in feature.shape if size.isdecimal()]
        is_bool = feature.column_type is ColumnType.BOOL
        columns.append(FieldColumn(axis, path, feature.kind, RAGGED if is_ragged else sum(sizes), is_bool))
    return tuple(columns)


def field_readings(table: FeatureTable) -> Iterator[Reading]:
    """Yield the readers' value of each field, under its path. A field of the image has the prefix `image.` if an object
    has a field with this path, or if the path is the name of another value."""
    columns = [column for column in field_columns(table) if not column.is_well_known]
    names = {value.reading.name for value in VALUES if value.reading}
    names |= {column.path for column in columns if column.axis == "object"}
    features = {feature.source: feature for feature in table.features}
    for column in columns:
        flat = features.get(f"{column.source}{FLAT_VALUES}")
        feature = flat or features[column.source]
        name = column.shown if column.path in names else column.path
        padding = {FeatureKind.INT64: -1, FeatureKind.FLOAT: nan}.get(column.kind, 0)
        shape = ("N", *feature.shape) if flat else feature.shape
        form = Form.RAGGED if flat else Form.AS_IT_IS
        yield Reading(name, feature.source, DTYPES[column.kind], shape, feature.meaning, padding, form)


def field_keys(table: FeatureTable) -> dict[str, str]:
    """Return the key of each field in a record, by the name that readers give it, and by that in `--fields`."""
    keys = {feature.source: feature.name for feature in table.features}
    columns = ((column, keys.get(f"{column.source}{FLAT_VALUES}")) for column in field_columns(table))
    shown = {column.shown: flat or keys[column.source] for column, flat in columns}
    return shown | {reading.name: keys[reading.source] for reading in field_readings(table)}


def lengths_source(flat_source: str) -> str:
    """Return the source of the number of values of each object, by the source of the values of all objects."""
    return flat_source.removesuffix(FLAT_VALUES) + LENGTHS


def split_lists(flat: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """Return the parts of a sequence with these lengths.

    Raises:
        ValueError: The parts are not the whole sequence.

    >>> split_lists("abc", [2, 0, 1])
    ['ab', '', 'c']
    """
    if sum(lengths) != len(flat) or min(lengths, default=0) < 0:
        raise ValueError(f"{len(flat):,} values for lists of {sum(lengths):,} values")
    return [flat[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


def field_values(column: FieldColumn, values: Mapping[str, Any]) -> list[Any]:
    """Return the value of a field of each object, or of the image, as in the source; None where it is missing.

    Args:
        values: Values of a record by source, as `RecordParser` returns them.

    Raises:
        ValueError: The lengths of lists do not fit their values.
    """
    lengths = values.get(f"{column.source}{LENGTHS}")
    stored = values[column.source if lengths is None else f"{column.source}{FLAT_VALUES}"]
    flat = [stored] if isinstance(stored, bytes) else list(stored)
    if column.size == RAGGED:
        lists = [flat] if lengths is None else split_lists(flat, lengths.tolist())
    else:
        size = column.size or 1
        lists = split_lists(flat, [size] * (len(flat) // size))
        lists = [[] if all(_is_missing(column, value) for value in items) else items for items in lists]
    plain = [[_source_value(column, value) for value in items] or None for items in lists]
    return plain if column.size else [items and items[0] for items in plain]


def _is_missing(column: FieldColumn, value: Any) -> bool:
    if isinstance(value, bytes):
        return not value
    return value != value if column.kind is FeatureKind.FLOAT else value == int(column.missing)


def _source_value(column: FieldColumn, value: Any) -> Any:
    """Return a stored value as in the source; None for NaN, and for a boolean that is missing in a list."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if column.kind is FeatureKind.FLOAT:
        return None if value != value else shortest_decimal(value)
    if column.is_bool:
        return None if value < 0 else bool(value)
    return int(value)


def nest_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by path as nested mappings; without missing ones.

    >>> nest_values({"a.b": 1, "a.c": None, "d": 2})
    {'a': {'b': 1}, 'd': 2}
    """
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *folders, name = path.split(".")
        place: Any = nested
        for folder in folders if value is not None else ():
            place = place.setdefault(folder, {}) if isinstance(place, dict) else place
        if value is not None and isinstance(place, dict) and not isinstance(place.get(name), dict):
            place[name] = value
        elif value is not None:  # another value has the path of a mapping
            nested[path] = value
    return nested
