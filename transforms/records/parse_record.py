"""Parse a tf.Example, with or without a layout's table."""

from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.schemas.field_features import FLAT_VALUES, lengths_source, split_lists
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.values import VALUE_OF
from recordmill.transforms.records.example import Buffer, cut_large_values

Values = list[bytes] | np.ndarray
"""Values of a feature: float32, int64 or bytes."""

_PACKAGE = "recordmill"
_FIELD = descriptor_pb2.FieldDescriptorProto
_LISTS = {
    FeatureKind.BYTES: _FIELD.TYPE_BYTES,
    FeatureKind.FLOAT: _FIELD.TYPE_FLOAT,
    FeatureKind.INT64: _FIELD.TYPE_INT64,
}
_KINDS = {kind.value: kind for kind in _LISTS}

TypedValues = tuple[FeatureKind, Values]


def parse_example(record: bytes) -> dict[str, TypedValues]:
    """Return the features of a tf.train.Example, see `parse_record`."""
    features, _ = parse_record(record)
    return features


def parse_record(record: bytes) -> tuple[dict[str, TypedValues], dict[str, list[TypedValues | None]]]:
    """Return the values of a tf.train.Example or tf.train.SequenceExample, by the names of their features.

    The first dict has the features of the Example, or of the context, without those that have no list. The second has
    the steps of each feature list, and None for a step without a list.

    Raises:
        google.protobuf.message.DecodeError: The record is not a tf.train.Example.
    """
    example = _example_class()()
    example.ParseFromString(record)
    features = ((name, _typed_values(feature)) for name, feature in example.features.feature.items())
    lists = example.feature_lists.feature_list.items()
    return (
        {name: values for name, values in features if values},
        {name: [_typed_values(step) for step in steps.feature] for name, steps in lists},
    )


def _typed_values(feature: Any) -> TypedValues | None:
    name = feature.WhichOneof("kind")
    if not name:
        return None
    kind = _KINDS[name]
    return kind, _decode_list(kind, getattr(feature, name))


def _decode_list(kind: FeatureKind, message: Any) -> Values:
    if kind is FeatureKind.BYTES:
        return list(message.value)
    if kind is FeatureKind.INT64:
        return np.fromiter(message.value, np.int64, len(message.value))
    packed = message.SerializeToString()  # ends in the packed numbers: a hundred times as fast as single ones
    return np.frombuffer(packed, "<f4", len(message.value), len(packed) - 4 * len(message.value))


@cache
def _example_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="recordmill/example.proto", package=_PACKAGE, syntax="proto3")
    for kind, type_ in _LISTS.items():
        file.message_type.add(name=f"{kind.value}List").field.add(
            name="value", number=1, label=_FIELD.LABEL_REPEATED, type=type_
        )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(_LISTS, 1):
        _add_message_field(feature, kind.value, number, f"{kind.value}List", oneof_index=0)
    _add_message_field(file.message_type.add(name="FeatureList"), "feature", 1, "Feature", label=_FIELD.LABEL_REPEATED)
    for type_, field in (("Feature", "feature"), ("FeatureList", "feature_list")):
        map_ = file.message_type.add(name=f"{type_}s")
        entry = map_.nested_type.add(name=f"{type_}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
        _add_message_field(entry, "value", 2, type_)
        _add_message_field(map_, field, 1, f"{type_}s.{type_}Entry", label=_FIELD.LABEL_REPEATED)
    example = file.message_type.add(name="Example")
    _add_message_field(example, "features", 1, "Features")
    _add_message_field(example, "feature_lists", 2, "FeatureLists")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


def _add_message_field(
    message: Any, name: str, number: int, type_: str, label: int = _FIELD.LABEL_OPTIONAL, **more: Any
) -> None:
    type_name = f".{_PACKAGE}.{type_}"
    message.field.add(name=name, number=number, type=_FIELD.TYPE_MESSAGE, type_name=type_name, label=label, **more)


RecordFault = tuple[str, str]
"""Reason and detail of an error in a record."""


class RecordParser:
    """Parser of the records of one table. It accepts the records that `tf.io.parse_single_example` accepts with the
    spec of the table (`recordmill.schemas.features.parse_spec`), without TensorFlow."""

    def __init__(self, table: FeatureTable):
        self._columns = {feature.source: _Column(feature) for feature in table.features}

    def __call__(self, record: bytes) -> dict[str, Any]:
        """Return values by source: bytes for a single text or file, and otherwise a flat array.

        Raises:
            RecordParseError: The record is not an Example of the table.
        """
        return dict(self.lazy(record))

    def lazy(self, record: Buffer) -> "RecordValues":
        """Return the values of a call. Each is decoded, and compared with the table, when it is read. The record must
        not change before.

        Raises:
            RecordParseError: The record is not an Example.
        """
        rest, large = cut_large_values(record)  # protobuf would copy an image twice
        features = _parse_features(rest)
        if any(name in features for name in large):  # the last one counts
            features, large = _parse_features(record), {}
        return RecordValues(self._columns, features, large)


def _parse_features(record: Buffer) -> Any:
    """Return protobuf's map of the features of an Example."""
    example = _example_class()()
    try:
        example.ParseFromString(bytes(record))
    except DecodeError as error:
        raise RecordParseError(f"it is not a tf.train.Example: {first_line(error)}") from error
    return example.features.feature


class _Column:
    """A feature with what each record compares it with.

    Attributes:
        item_size: Number of values of an item, or of the record if `has_sizes`.
    """

    def __init__(self, feature: Feature):
        self.feature = feature
        self.has_sizes = feature.has_sizes
        self.is_single = not feature.shape or feature.is_packed
        self.item_size = 1 if self.is_single else prod(int(size) for size in feature.shape if size.isdecimal())


class RecordValues(Mapping[str, Any]):
    """Values of a record by source. See `RecordParser`.

    Args:
        features: Protobuf's map of the other features.
        large: See `cut_large_values`.
    """

    __slots__ = ("_columns", "_features", "_large", "_values")

    def __init__(self, columns: Mapping[str, _Column], features: Any, large: Mapping[str, memoryview]):
        self._columns, self._features, self._large = columns, features, large
        self._values: dict[str, Any] = {}

    def __getitem__(self, source: str) -> Any:
        """Raises RecordParseError if the value is not as in the table."""
        if source not in self._values:
            column = self._columns[source]
            name = column.feature.name
            typed_values: TypedValues | None = None
            if name in self._large:
                typed_values = FeatureKind.BYTES, [bytes(self._large[name])]
            elif name in self._features:  # indexing the map of a message would add the key
                typed_values = _typed_values(self._features[name])
            self._values[source] = _check_value(column, typed_values)
        return self._values[source]

    def buffer(self, source: str) -> Buffer:
        """Return a single text or file. A large one is a part of the record, not copied. Errors as for an item."""
        column = self._columns[source]
        view = self._large.get(column.feature.name)
        if view is None:
            return self[source]  # type: ignore[no-any-return]
        return _check_value(column, (FeatureKind.BYTES, [view]))  # type: ignore[list-item, no-any-return]

    def __contains__(self, source: object) -> bool:
        return source in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def convert_to_layout_types(values: dict[str, Any], table: FeatureTable, labels: LabelMap) -> dict[str, Any]:
    """Return the values of a record with the types of its layout: numbers of classes instead of names, and integers
    instead of floats. The number of an unknown class name is -1.

    >>> from recordmill.schemas.inputs.annotations import Category
    >>> from recordmill.schemas.layouts import KERAS, change_keys_and_types
    >>> table = change_keys_and_types(KERAS, {}, {"id": FeatureKind.FLOAT}, label_as_text=True)
    >>> values = {"objects.category_id": b"cat", "objects.id": np.array([7.0], np.float32)}
    >>> convert_to_layout_types(values, table, LabelMap((Category(17, "cat"),)))
    {'objects.category_id': array([17]), 'objects.id': array([7])}
    """
    meant = {}
    for feature in table.features:
        source = feature.source
        if source not in values or source not in VALUE_OF or VALUE_OF[source].kind is not FeatureKind.INT64:
            continue
        if feature.kind is FeatureKind.FLOAT:
            meant[source] = values[source].astype(np.int64)
        elif feature.kind is FeatureKind.BYTES:
            names = [values[source]] if isinstance(values[source], bytes) else values[source]
            by_name = _class_numbers(source, labels)
            meant[source] = np.array([by_name.get(name, -1) for name in names], np.int64)
    return values | meant


def _class_numbers(source: str, labels: LabelMap) -> dict[bytes, int]:
    """Return the number that a source stores for each class, by class name."""
    by_id = {
        "objects.label": labels.label_by_id(),
        "objects.category_id": {category.id: category.id for category in labels.all},
    }
    number = by_id.get(source, labels.index_by_id())
    return {category.name.encode(): number[category.id] for category in labels.categories}


def join_values(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the values of an image's records, in a layout with one record per object."""
    first, *rest = records
    object_sources = [source for source in first if rest and source.startswith("objects.")]
    return first | {source: _join([values[source] for values in records]) for source in object_sources}


def _join(values: list[Any]) -> np.ndarray:
    is_text = isinstance(values[0], bytes)  # an open field
    return np.array(values, object) if is_text else np.concatenate(values)


def _check_value(column: _Column, typed_values: TypedValues | None) -> Any:
    feature, item_size = column.feature, column.item_size
    kind, values = typed_values or (feature.kind, [])
    if kind is not feature.kind:
        raise RecordParseError(f"{feature.name} is {kind.value}; the manifest says {feature.kind.value}")
    if len(values) != item_size if column.has_sizes else len(values) % item_size:
        wanted = f"{item_size:,}" if column.has_sizes else f"a multiple of {item_size:,}"
        raise RecordParseError(f"{feature.name} has {len(values):,} values; the manifest says {wanted}")
    if feature.kind is not FeatureKind.BYTES:
        return np.asarray(values, np.float32 if feature.kind is FeatureKind.FLOAT else np.int64)
    if column.is_single:
        return values[0]
    array = np.empty(len(values), object)  # dtype object: an array of dtype bytes drops trailing zero bytes
    array[:] = values
    return array


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


class RecordParseError(ValueError):
    """Error of a record that cannot be parsed."""


def length_faults(values: dict[str, Any], table: FeatureTable, keypoints: int) -> Iterator[RecordFault]:
    """Yield an error for each list whose length differs from the other lists of its dimension.

    Args:
        keypoints: Number of keypoints per object.
    """
    by_dimension: dict[str, dict[str, float]] = {}
    for feature in table.features:
        if feature.shape and not feature.shape[0].isdecimal():
            item_size = prod(int(size) for size in feature.shape[1:])
            length = values[feature.source].size / item_size  # an integer, unless the list is damaged
            by_dimension.setdefault(feature.shape[0], {})[feature.source] = length
    for lengths in by_dimension.values():
        if len(set(lengths.values())) > 1:
            yield "object_lists", f"lists with one value per object differ in length: {lengths}"
    for flat in (feature.source for feature in table.features if feature.source.endswith(FLAT_VALUES)):
        try:
            split_lists(values[flat], values[lengths_source(flat)].tolist())
        except ValueError as fault:
            yield "object_lists", f"{flat}: {fault}"
    if "objects.keypoint_x" in values:
        number, objects = values["objects.keypoint_x"].size, values["objects.id"].size
        if number != objects * keypoints:
            yield "keypoints", f"{number} keypoints for {objects} objects of {keypoints} each"
