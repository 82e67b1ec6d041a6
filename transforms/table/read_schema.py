"""Types of columns in the file of `--schema`."""

from collections import Counter
from collections.abc import Container

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.tables import TEXT_PARTS, Column, TableSchema
from recordmill.transforms.storage.resolve import storage_for


def read_schema(path: str) -> TableSchema:
    """Return the schema in a file: JSON as `schema.json` of a data set, or TensorFlow Metadata's text form.

    Raises:
        ConfigError: It is neither, or has a column twice.
    """
    data = storage_for(path).read(path)
    is_json = data.lstrip().startswith(b"{") or path.endswith(".json")
    try:
        schema = msgspec.json.decode(data, type=TableSchema) if is_json else _from_pbtxt(path, data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--schema {path} is not a schema.json: {error}") from error
    names = Counter(column.name for column in schema.columns if column.type not in TEXT_PARTS)
    if twice := [name for name, number in names.items() if number > 1]:
        raise ConfigError(f"--schema {path} has the column {twice[0]!r} twice. Remove one")
    return schema


def columns_by_name(schema: TableSchema, names: Container[str] = ()) -> dict[str, Column]:
    """Return the columns of a schema by name. Columns of encoded texts are columns of bytes: the schema does not know
    more about the texts.

    Args:
        names: Columns that are read; empty for all.
    """
    plain = (
        Column(column.name, column.name, ColumnType.BYTES, default=column.default)
        if column.type in TEXT_PARTS
        else column
        for column in schema.columns
    )
    return {column.name: column for column in plain if not names or column.name in names}


def _from_pbtxt(path: str, data: bytes) -> TableSchema:
    try:
        from google.protobuf import text_format
        from tensorflow_metadata.proto.v0 import schema_pb2
    except ImportError as error:
        raise ConfigError(
            f"--schema {path}: reading a schema.pbtxt needs tensorflow-metadata (pip install tensorflow-metadata)"
        ) from error
    try:
        schema = text_format.Parse(data, schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ConfigError(f"--schema {path} is not a schema.pbtxt: {error}") from error
    types = {schema_pb2.BYTES: ColumnType.BYTES, schema_pb2.FLOAT: ColumnType.FLOAT, schema_pb2.INT: ColumnType.INT64}
    if unknown := [feature.name for feature in schema.feature if feature.type not in types]:
        raise ConfigError(f"--schema {path}: the feature {unknown[0]!r} has a type that records cannot store")
    names = {domain.name: tuple(domain.value) for domain in schema.string_domain}
    columns = []
    for feature in schema.feature:
        type_ = types[feature.type]
        if type_ is ColumnType.INT64 and feature.HasField("bool_domain"):
            type_ = ColumnType.BOOL
        values = names.get(feature.int_domain.name, ()) if type_ is ColumnType.INT64 else ()
        if values:
            type_ = ColumnType.ENUM
        count = feature.value_count
        shape = tuple(dim.size for dim in feature.shape.dim)
        is_list = bool(shape) or (feature.HasField("value_count") and (count.min, count.max) != (1, 1))
        columns.append(Column(feature.name, feature.name, type_, is_list, values=values, shape=shape))
    return TableSchema(tuple(columns))
