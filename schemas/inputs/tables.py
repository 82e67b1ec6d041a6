"""Tables: contents of columns, and their features in a record."""

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from recordmill.schemas.features import CLASS_OF_ROW, ColumnType, Feature, FeatureKind, FeatureTable
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.layouts import TABLE, is_image_feature

_WRITTEN = {
    ColumnType.INT64: (FeatureKind.INT64, ""),
    ColumnType.FLOAT: (FeatureKind.FLOAT, ""),
    ColumnType.BYTES: (FeatureKind.BYTES, "utf-8, or bytes as they are"),
    ColumnType.BOOL: (FeatureKind.INT64, "0 or 1"),
    ColumnType.DATE: (FeatureKind.INT64, "days since 1970-01-01"),
    ColumnType.TIMESTAMP: (FeatureKind.INT64, "microseconds since 1970-01-01 UTC"),
    ColumnType.ENUM: (FeatureKind.INT64, "0..values-1"),
    ColumnType.CLASS: (FeatureKind.INT64, "0..classes-1"),
    ColumnType.CLASS_NAME: (FeatureKind.BYTES, "utf-8, the name of a class"),
    ColumnType.TERM_INDEX: (FeatureKind.INT64, "0..terms-1"),
    ColumnType.TERM_VALUE: (FeatureKind.FLOAT, "count or tf-idf"),
    ColumnType.TERM_COUNT: (FeatureKind.INT64, "count"),
    ColumnType.TOKEN_IDS: (FeatureKind.INT64, "1..terms+1"),
}
"""FeatureKind and unit of the values, by column type."""
CLASS_TYPES = (ColumnType.CLASS, ColumnType.CLASS_NAME)
_PLAIN = {FeatureKind.BYTES: ColumnType.BYTES, FeatureKind.FLOAT: ColumnType.FLOAT, FeatureKind.INT64: ColumnType.INT64}
_PBTXT_TYPES = {FeatureKind.BYTES: "BYTES", FeatureKind.FLOAT: "FLOAT", FeatureKind.INT64: "INT"}
TEXT_PARTS = {
    ColumnType.TERM_INDEX: "index",
    ColumnType.TERM_VALUE: "value",
    ColumnType.TERM_COUNT: "value",
    ColumnType.TOKEN_IDS: "tokens",
}
"""One or two features of a column of texts, by their role: see `recordmill.transforms.encoders.fit_encoder`."""


_ROW = "row."
_LIST, _OPTIONAL, _TERMS = "N of ", "0 or 1 of ", "T of "

SCHEMA_FILES = ("schema.json", "schema.pbtxt")
"""Files of a table next to its shards."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """Column of a table, and its stored form.

    Attributes:
        name: Name in the table; nested columns have their path, with dots.
        feature: Name of the feature.
        is_list: True if a value is a list.
        is_optional: True if some rows have no value; their records lack the feature.
        default: Value for missing values, written as in a CSV file; None to skip missing values.
        values: Names of an ENUM, in the order of their numbers.
        shape: Sizes of a list of lists, which is stored as one list, row by row; () for any other column.
    """

    name: str
    feature: str
    type: ColumnType
    is_list: bool = False
    is_optional: bool = False
    default: str | None = None
    values: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def kind(self) -> FeatureKind:
        return _WRITTEN[self.type][0]

    @property
    def as_feature(self) -> Feature:
        """Feature of the column. An optional column is a list of at most one value, so that readers accept records
        without a value."""
        if self.type in TEXT_PARTS:
            source = f"{self.name}.{TEXT_PARTS[self.type]}"
            shape: tuple[str, ...] = (f"{_TERMS}{self.name}",)
        else:
            source = f"{CLASS_OF_ROW if self.type in CLASS_TYPES else _ROW}{self.name}"
            # Dimensions with one name have one length. Columns differ in length, so each has its own name.
            shape = (f"{_LIST if self.is_list else _OPTIONAL}{self.name}",) if self.is_list or self.is_optional else ()
            if self.shape and not self.is_optional:
                shape = tuple(map(str, self.shape))
        kind, unit = _WRITTEN[self.type]
        meaning = f"column {self.name}"
        return Feature(
            self.feature, source, kind, shape, unit, meaning, None, self.values, self.default, column_type=self.type
        )

    @classmethod
    def of_feature(cls, feature: Feature) -> "Column":
        """Return the column of a feature with a column type."""
        name = feature.source.removeprefix(CLASS_OF_ROW).removeprefix(_ROW)
        type_ = ColumnType(feature.column_type)
        shape = "".join(feature.shape)
        if type_ in TEXT_PARTS:
            name = feature.source.removesuffix(f".{TEXT_PARTS[type_]}")
            return cls(name, feature.name, type_, is_list=True, default=feature.default)
        sizes = tuple(map(int, feature.shape)) if feature.has_sizes else ()
        is_list, is_optional = bool(sizes) or shape.startswith(_LIST), shape.startswith(_OPTIONAL)
        return cls(name, feature.name, type_, is_list, is_optional, feature.default, feature.values, sizes)


class TableSchema(msgspec.Struct, frozen=True):
    """Columns that are written, in the order of the table."""

    columns: tuple[Column, ...]

    @property
    def features(self) -> tuple[Feature, ...]:
        return tuple(sorted((column.as_feature for column in self.columns), key=lambda feature: feature.name))

    def table(self, image_features: tuple[Feature, ...] = ()) -> FeatureTable:
        """Return the features of the columns, and of the images that rows name."""
        features = sorted((*self.features, *image_features), key=lambda feature: feature.name)
        return msgspec.structs.replace(TABLE, features=tuple(features))

    @classmethod
    def of_features(cls, features: Iterable[Feature]) -> "TableSchema":
        return cls(tuple(Column.of_feature(feature) for feature in features if not is_image_feature(feature)))


class RowsFile(File, frozen=True, array_like=True, gc=False):
    """File of rows.

    Attributes:
        number: Index in the order of paths.
        partitions: Columns in the names of its folders, `year=2026/kind=cat`, with the value of all its rows: a whole
            number, a text, or None if it is missing.
    """

    number: int = 0
    partitions: tuple[tuple[str, int | str | None], ...] = ()


class RowsReading(NamedTuple):
    """Rules for reading files of rows.

    Attributes:
        columns: Columns to read; empty for all.
        encoding: Text encoding of CSV.
        delimiter: Delimiter of CSV; empty to choose it by the first line.
        names: Columns whose values are names of classes, keys, groups or splits.
        texts: Columns whose values become one text each. A list in JSON is one, as another row may have another type.
        is_label_table: True for tables of labels or groups, which are UTF-8. Their columns without a name are skipped;
            in other tables such a column is an error.
    """

    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    delimiter: str = ""
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    is_label_table: bool = False


def schema_files(features: Iterable[Feature], classes: Iterable[str]) -> dict[str, str]:
    """Return the files next to the shards by name: the columns as JSON, which --schema reads, and all features as
    TensorFlow Metadata's schema."""
    features = tuple(features)
    schema = TableSchema.of_features(features)
    as_json = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
    image_features = filter(is_image_feature, features)
    return dict(zip(SCHEMA_FILES, (f"{as_json}\n", schema_pbtxt(schema, classes, image_features)), strict=True))


def schema_pbtxt(schema: TableSchema, classes: Iterable[str], image_features: Iterable[Feature] = ()) -> str:
    """Return the schema as TensorFlow Metadata's schema.proto in text form, which TFX and TFDV read.

    Args:
        image_features: Further features of every record.

    Source: https://github.com/tensorflow/metadata/blob/master/tensorflow_metadata/proto/v0/schema.proto
    """
    names = list(classes)
    lines = []
    always = (Column(feature.name, feature.name, _PLAIN[feature.kind]) for feature in image_features)
    for column in sorted((*schema.columns, *always), key=lambda column: column.feature):
        lines += ["feature {", f"  name: {_quoted(column.feature)}", f"  type: {_PBTXT_TYPES[column.kind]}"]
        if column.type in (ColumnType.CLASS, ColumnType.ENUM):
            last = max(len(names if column.type is ColumnType.CLASS else column.values) - 1, 0)
            lines += [f"  int_domain {{ name: {_quoted(column.feature)} min: 0 max: {last} is_categorical: true }}"]
        elif column.type is ColumnType.BOOL:
            lines += ["  int_domain { min: 0 max: 1 }"]
        lines += [f"  presence {{ min_fraction: {0 if column.is_optional else 1} min_count: 1 }}"]
        least = 0 if column.type in TEXT_PARTS else 1
        sizes = "" if column.is_optional else "".join(f"dim {{ size: {size} }} " for size in column.shape)
        is_ragged = column.is_list and not sizes
        lines += [f"  value_count {{ min: {least} }}" if is_ragged else f"  shape {{ {sizes}}}", "}"]
        if column.is_optional and not column.is_list:
            lines[-2] = "  value_count { min: 1 max: 1 }"
    for column in schema.columns:
        if column.values:  # an int_domain cannot store names
            values = [f"  value: {_quoted(value)}" for value in column.values]
            lines += ["string_domain {", f"  name: {_quoted(column.feature)}", *values, "}"]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    escaped = "".join(
        f"\\{byte:03o}" if byte < 32 or byte > 126 or chr(byte) in "\"'\\" else chr(byte) for byte in text.encode()
    )
    return f'"{escaped}"'


NAMES_CURE = "The first line looks like a row. If it is one, put a line with the names of the columns before it"
"""Cure for a table without names of columns, see `looks_like_row`."""


def looks_like_row(names: Sequence[str], rows: Iterable[Sequence[str]] = (), may_be_numbers: bool = True) -> bool:
    """Return True if names of columns look like values: an image, a number, or a value of their own column.

    Args:
        rows: First rows of the table.
        may_be_numbers: True if whole numbers at equal distances, and years, may be names.

    >>> looks_like_row(["5.1", "setosa"]), looks_like_row(["a.jpg", "cat"]), looks_like_row(["country", "2019", "2020"])
    (True, True, False)
    >>> looks_like_row(["id", "cat"], [["1", "cat"]]), looks_like_row(["id", "cat"], [["id", "cat"]])
    (True, False)
    """
    if any(is_image_name(name) or _DECIMAL.fullmatch(name) for name in names):
        return True
    numbers = [int(name) for name in names if _WHOLE.fullmatch(name)]
    steps = {after - before for before, after in pairwise(numbers)}
    is_scale = (len(steps) == 1 and min(steps) > 0) or all(1900 <= number < 2100 for number in numbers)
    if numbers and not (may_be_numbers and is_scale):
        return True
    return any(
        any(name and name == cell for name, cell in zip(names, row, strict=False)) for row in rows if row != names
    )


def names_cure(names: Sequence[str]) -> str:
    """Return the end of a message about missing columns: NAMES_CURE, or nothing."""
    return f". {NAMES_CURE}" if looks_like_row(names) else ""


_WHOLE = re.compile("-?[0-9]{1,18}")
_DECIMAL = re.compile("-?[0-9]*[.][0-9]+(e-?[0-9]+)?", re.IGNORECASE)


_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_FORMATS |= {".parquet": "parquet", ".pq": "parquet", ".tab": "tsv", ".tsv": "tsv"}
ENDINGS = tuple(_FORMATS)
_PACKED = re.compile(r"[.](gz|bz2|zst)$")


def rows_format(path: str) -> str:
    """Return `csv`, `tsv`, `json` or `parquet`, by the suffix of a file name; empty for any other suffix.

    >>> rows_format("gs://b/rows-00001-of-00002.csv.gz")
    'csv'
    """
    return _FORMATS.get(os.path.splitext(_PACKED.sub("", path.lower()))[1], "")
