"""Records as Arrow tables with the columns that Hugging Face's datasets expect, and back to the same bytes.

Each image or map is a struct of `bytes` and `path`. Annotations are a struct of lists, `objects`, one list per value. A
value that is missing is null.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recordmill.schemas.block import Ragged, starts_of
from recordmill.schemas.dataset.tfds import class_names
from recordmill.schemas.features import ColumnType, Feature, FeatureKind, FeatureTable, RecordOf
from recordmill.schemas.field_features import RAGGED
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.containers.dataset_card import IMAGE, HubFeature, class_label, sequence, value
from recordmill.transforms.containers.sample_codings import FILES, SampleColumn, Samples
from recordmill.transforms.containers.sample_values import SampleCodec, unlike_error
from recordmill.transforms.records.example import ExampleWriter, Record
from recordmill.transforms.records.parse_record import parse_example

_IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def arrow_type(feature: HubFeature) -> pa.DataType:
    """Return the Arrow type in which datasets stores a feature."""
    match feature.get("_type"):
        case "Value" if feature["dtype"].startswith("timestamp"):
            return pa.timestamp("us", "UTC")
        case "Value":
            return pa.type_for_alias(feature["dtype"])
        case "ClassLabel":
            return pa.int64()
        case "Image":
            return _IMAGE_TYPE
        case "Sequence":
            return pa.list_(arrow_type(feature["feature"]), feature.get("length", -1))
    return pa.struct([(name, arrow_type(inner)) for name, inner in feature.items()])


class ArrowCodec(ABC):
    """Converter of serialised tf.Examples to Arrow tables, and back.

    Attributes:
        features: Features of datasets by column.
        schema: Schema of the tables, with the features in its metadata.
        files: Columns with images, which come first.
        image_leaves: Paths of their bytes in Parquet.
    """

    @cached_property
    def leaf_types(self) -> dict[str, str]:
        """Physical type in Parquet of each leaf column by path."""
        empty = pa.BufferOutputStream()
        pq.write_table(self.schema.empty_table(), empty)
        schema = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
        return {schema.column(leaf).path: schema.column(leaf).physical_type for leaf in range(len(schema))}

    def __init__(self, features: Mapping[str, HubFeature]):
        self.features = features
        self.files = [name for name, feature in features.items() if feature == IMAGE]
        about = msgspec.json.encode({"info": {"features": features}})
        fields = [(name, arrow_type(feature)) for name, feature in features.items()]
        self.schema = pa.schema(fields, {"huggingface": about})
        self.image_leaves = [f"{name}.bytes" for name in self.files]

    @abstractmethod
    def arrays(self, records: Sequence[Record], first: int) -> list[pa.Array]:
        """Return the columns of records.

        Args:
            records: Records in one or several parts.
            first: Number of the first record, for errors.

        Raises:
            ConfigError: A record would not come back byte for byte.
        """

    @abstractmethod
    def records(self, columns: Mapping[str, pa.Array], files: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
        """Yield the records of columns, whose images lack `bytes`.

        Args:
            files: Bytes of the images by column; b"" where a row has none.

        Raises:
            ValueError, LookupError, TypeError, OverflowError, pa.ArrowException: A value cannot be that of a record.
        """


def arrow_codec(table: FeatureTable, labels: LabelMap) -> ArrowCodec:
    """Return the codec of a layout."""
    return _RowArrays(table, labels) if table.record_of is RecordOf.ROW else _SampleArrays(table, labels)


def _images(files: Sequence[Any], paths: Sequence[str | None]) -> pa.Array:
    is_missing = pa.array([not len(file) for file in files])
    return pa.StructArray.from_arrays(
        [pa.array(files, pa.binary()), pa.array(paths, pa.string())], fields=list(_IMAGE_TYPE), mask=is_missing
    )


def _unnest(lists: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Return the values of lists, and where each list starts: int64 [rows + 1]. A null is an empty list."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return lists.flatten(), starts_of(lengths.to_numpy(zero_copy_only=False).astype(np.int64))


def _list_array(starts: np.ndarray, values: pa.Array, is_null: np.ndarray | None = None) -> pa.Array:
    mask = None if is_null is None else pa.array(is_null)
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values, mask=mask)


# Images with annotations, or with a class


class _SampleArrays(ArrowCodec):
    """Codec of samples in COCO's terms, see SampleCodec. Classes are class indices in place of category ids."""

    _OBJECTS = "objects"

    def __init__(self, table: FeatureTable, labels: LabelMap):
        self._codec = codec = SampleCodec(table, labels)
        self._ids = np.array([category.id for category in labels.categories], np.int64)
        self._order = np.argsort(self._ids)
        self._names = class_names(labels.categories)
        self._images = [column for column in codec.image_columns if column.key != _FILE_NAME]
        features = {
            **dict.fromkeys(codec.files, IMAGE),
            **{column.key: self._feature(column) for column in self._images},
        }
        if codec.has_objects:
            features[self._OBJECTS] = {
                _shown(column.key): sequence(self._feature(column)) for column in codec.object_columns
            }
        super().__init__(features)

    def _feature(self, column: SampleColumn) -> HubFeature:
        dtype = {"text": "string", "rle": "string"}.get(column.type, column.type)
        single = class_label(self._names) if column.key in (_LABEL, *_CLASS_IDS) else value(dtype)
        if not column.size:
            return single
        return sequence(single, column.size if column.size != RAGGED and column.missing is None else -1)

    def arrays(self, records: Sequence[Record], first: int) -> list[pa.Array]:
        samples = self._codec.samples(records, first)
        names = samples.images[_FILE_NAME]
        arrays = [
            _images(samples.files[name], names if name == FILES["image.encoded"] else [None] * len(records))
            for name in self._codec.files
        ]
        arrays += [self._array(column, samples.images[column.key]) for column in self._images]
        if self._codec.has_objects:
            values = [self._array(column, samples.objects[column.key]) for column in self._codec.object_columns]
            lists = [_list_array(samples.starts, array) for array in values]
            arrays.append(pa.StructArray.from_arrays(lists, fields=list(self.schema.field(self._OBJECTS).type)))
        return arrays

    def records(self, columns: Mapping[str, pa.Array], files: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
        images = {column.key: self._values(column, columns[column.key]) for column in self._images}
        images[_FILE_NAME] = columns[self._codec.files[0]].field("path").to_pylist()
        objects, starts = {}, np.zeros(len(images[_FILE_NAME]) + 1, np.int64)
        if self._codec.has_objects:
            for column in self._codec.object_columns:
                flat, starts = _unnest(pc.struct_field(columns[self._OBJECTS], _shown(column.key)))
                objects[column.key] = self._values(column, flat)
        yield from self._codec.records(Samples(images, objects, starts, {name: list(files[name]) for name in files}))

    def _array(self, column: SampleColumn, values: Any) -> pa.Array:
        """Return a column of a sample, or of annotations, as an Arrow array."""
        if column.key in _CLASS_IDS:
            values = _with_values(values, lambda ids: self._order[np.searchsorted(self._ids, ids, sorter=self._order)])
        if column.type in ("text", "rle"):
            is_missing = (lambda text: text == column.missing) if column.size == 0 else lambda texts: not any(texts)
            nulled = column.missing is not None
            texts = [None if nulled and is_missing(text) else text for text in values]
            return pa.array(texts, pa.list_(pa.string()) if column.size else pa.string())
        flat = values.values if isinstance(values, Ragged) else values.ravel()
        is_null = _is_missing(column, flat)
        leaf = pa.array(flat > 0 if column.type == "bool" else flat, mask=is_null if is_null.any() else None)
        if isinstance(values, Ragged):
            return _list_array(values.starts, leaf)
        if not column.size:
            return leaf
        if column.missing is None:
            return pa.FixedSizeListArray.from_arrays(leaf, column.size)
        is_empty = np.asarray(is_null.reshape(-1, column.size).all(axis=1))
        leaf = leaf.filter(pa.array(np.repeat(~is_empty, column.size)))
        return _list_array(starts_of(np.where(is_empty, 0, column.size)), leaf, is_empty)

    def _values(self, column: SampleColumn, array: pa.Array) -> Any:
        """Return the values of an array, see `_array`."""
        if column.type in ("text", "rle"):
            missing = column.missing or ""
            empty: Any = [missing] * max(column.size, 0) if column.size else missing
            return [empty if text is None else text for text in array.to_pylist()]
        leaf, starts = _unnest(array) if column.size else (array, np.zeros(1, np.int64))
        flat = self._numbers(column, leaf)
        if column.key in _CLASS_IDS:
            if len(flat) and not 0 <= flat.min() <= flat.max() < len(self._ids):
                raise ValueError(f"class index {flat.max()} does not exist")
            flat = self._ids[flat]
        if column.size == RAGGED:
            return Ragged(flat, starts)
        if not column.size:
            return flat
        if not array.null_count:
            return flat.reshape(-1, column.size)
        rows = np.full((len(array), column.size), column.missing, flat.dtype)
        rows[array.is_valid().to_numpy(zero_copy_only=False)] = flat.reshape(-1, column.size)
        return rows

    def _numbers(self, column: SampleColumn, leaf: pa.Array) -> np.ndarray:
        missing = column.missing if column.missing is not None else -1
        if column.type == "bool":
            leaf = leaf.cast(pa.int64())
        if leaf.null_count:
            leaf = pc.fill_null(leaf, pa.scalar(missing, leaf.type))
        return leaf.to_numpy(zero_copy_only=False)


_FILE_NAME, _LABEL = "file_name", "label"
_CLASS_IDS = ("category_id", "tags")
"""Columns with category ids, which become class indices."""


def _shown(key: str) -> str:
    return "category" if key == "category_id" else key


def _with_values(column: Any, change: Any) -> Any:
    return Ragged(change(column.values), column.starts) if isinstance(column, Ragged) else change(column)


def _is_missing(column: SampleColumn, numbers: np.ndarray) -> np.ndarray:
    """Return which numbers are stored for missing values: bool [n]. NaN with other bits than NumPy's is a value."""
    if column.type == "bool":
        return numbers < 0
    if column.missing is None:
        return np.zeros(len(numbers), bool)
    if column.missing != column.missing:
        bits = f"u{numbers.dtype.itemsize}"
        return numbers.view(bits) == np.array(column.missing, numbers.dtype).view(bits)
    return numbers == column.missing


# Rows of tables


class _RowArrays(ArrowCodec):
    """Codec of rows: a column per feature under its own name, and the image as `image`. Null means that the record
    lacks the feature."""

    def __init__(self, table: FeatureTable, labels: LabelMap):
        self._table = table
        by_source = {feature.source: feature for feature in table.features}
        self._image = by_source.get("image.encoded")
        self._path = by_source["image.file_name"] if self._image else None
        self._columns = [feature for feature in table.features if feature not in (self._image, self._path)]
        features = {"image": IMAGE} if self._image else {}
        super().__init__(features | {feature.name: _row_feature(feature, labels) for feature in self._columns})
        self._writer = cache(self._new_writer)

    def _new_writer(self, absent: frozenset[str]) -> ExampleWriter:
        features = tuple(feature for feature in self._table.features if feature.name not in absent)
        return ExampleWriter(msgspec.structs.replace(self._table, features=features))

    def arrays(self, records: Sequence[Record], first: int) -> list[pa.Array]:
        joined = [b"".join(record) for record in records]
        parsed = [parse_example(record) for record in joined]
        arrays = []
        try:
            if self._image and self._path:
                paths = [row[self._path.name][1][0].decode() for row in parsed]
                arrays.append(_images([row[self._image.name][1][0] for row in parsed], paths))
            for feature in self._columns:
                arrays.append(_row_array(feature, self.schema.field(feature.name).type, parsed))
        except (ValueError, KeyError, IndexError, TypeError, OverflowError, pa.ArrowException) as fault:
            raise unlike_error(first, str(fault), len(records)) from fault
        columns = dict(zip(self.schema.names, arrays, strict=True))
        files = {"image": [row[self._image.name][1][0] for row in parsed]} if self._image else {}
        for number, (record, rebuilt) in enumerate(zip(joined, self.records(columns, files), strict=True)):
            if rebuilt != record:
                raise unlike_error(first + number, "a value would change")
        return arrays

    def records(self, columns: Mapping[str, pa.Array], files: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
        values = {feature.source: _row_values(feature, columns[feature.name]) for feature in self._columns}
        if self._image and self._path:
            values[self._image.source] = list(files["image"])
            values[self._path.source] = [path.encode() for path in columns["image"].field("path").to_pylist()]
        names = {feature.source: feature.name for feature in self._table.features}
        for row in zip(*values.values(), strict=True):
            present = {source: item for source, item in zip(values, row, strict=True) if item is not None}
            yield self._writer(frozenset(names[source] for source in values.keys() - present.keys())).write(present)


_ROW_TYPES = {
    ColumnType.BOOL: "bool",
    ColumnType.DATE: "date32",
    ColumnType.TIMESTAMP: "timestamp[us, tz=UTC]",
}
_NUMPY_TYPES = {ColumnType.BOOL: "bool", ColumnType.DATE: "M8[D]", ColumnType.TIMESTAMP: "M8[us]"}
_KIND_TYPES = {FeatureKind.BYTES: "string", FeatureKind.FLOAT: "float32", FeatureKind.INT64: "int64"}


def _row_feature(feature: Feature, labels: LabelMap) -> HubFeature:
    if feature.is_packed:
        return value("binary")
    names = list(feature.values)
    if feature.column_type is ColumnType.CLASS:
        names = class_names(labels.categories)
    single = value(_ROW_TYPES.get(feature.column_type, _KIND_TYPES[feature.kind]))  # type: ignore[arg-type]
    if names and len(set(names)) == len(names):
        single = class_label(names)
    if _is_optional(feature):
        return single
    for size in reversed(feature.shape):
        single = sequence(single, int(size) if size.isdecimal() else -1)
    return single


def _is_optional(feature: Feature) -> bool:
    """Return True for a single value that some records lack."""
    return bool(feature.shape) and feature.shape[0].startswith("0 or 1 of ")


def _row_array(feature: Feature, type_: pa.DataType, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    """Return the column of a feature, given the parsed records."""
    lists = [row[feature.name][1] if feature.name in row else None for row in rows]
    is_absent = np.array([values is None for values in lists], bool)
    present = [values for values in lists if values is not None]
    starts = starts_of(np.array([0 if values is None else len(values) for values in lists], np.int64))
    if feature.kind is FeatureKind.BYTES:
        leaf = pa.array([text for values in present for text in values], pa.binary())
        leaf = leaf if feature.is_packed else leaf.cast(pa.string())  # a check of UTF-8
    else:
        flat = np.concatenate(present) if present else np.zeros(0, np.int64)
        leaf = pa.array(flat.astype(_NUMPY_TYPES.get(feature.column_type, flat.dtype)))  # type: ignore[arg-type]
    if not feature.is_list or _is_optional(feature):
        return leaf.take(pa.array(starts[:-1], mask=is_absent)).cast(type_)
    for size in reversed(feature.shape[1:]):
        leaf = pa.FixedSizeListArray.from_arrays(leaf, int(size))
    starts = starts // prod(map(int, feature.shape[1:]))
    return _list_array(starts, leaf, is_absent if is_absent.any() else None).cast(type_)


def _row_values(feature: Feature, array: pa.Array) -> list[Any]:
    """Return the value of each row as in its record; None where the record lacks the feature."""
    is_valid = array.is_valid().to_pylist()
    is_single = not feature.is_list or _is_optional(feature)
    size, starts = 1, np.arange(len(array) + 1)
    if not is_single:
        array, starts = _unnest(array)
        size = prod(map(int, feature.shape[1:]))
        for _ in feature.shape[1:]:
            array, _ = _unnest(array)
    if array.type == pa.date32():
        array = array.cast(pa.int32())
    if feature.kind is FeatureKind.BYTES:
        flat: Any = [text if text is None or feature.is_packed else text.encode() for text in array.to_pylist()]
    else:
        storage = pa.float32() if feature.kind is FeatureKind.FLOAT else pa.int64()
        flat = pc.fill_null(array.cast(storage), pa.scalar(0, storage)).to_pylist()
    if not feature.is_list:
        return [item if is_there else None for item, is_there in zip(flat, is_valid, strict=True)]
    lists = (flat[start * size : end * size] for start, end in pairwise(starts.tolist()))
    return [items if is_there else None for items, is_there in zip(lists, is_valid, strict=True)]
