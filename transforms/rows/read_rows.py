"""Read rows of CSV, TSV, JSON Lines and Parquet files as batches of columns, or as texts."""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.file_kinds import describe_container, describe_parquet
from recordmill.schemas.inputs.tables import RowsFile, RowsReading, rows_format
from recordmill.schemas.rejects import Reason
from recordmill.transforms.rows.convert_columns import cast_values
from recordmill.transforms.rows.read_csv import read_csv
from recordmill.transforms.rows.read_json import read_json_lines
from recordmill.transforms.rows.row_batch import (
    MOST_COLUMNS,
    BadRow,
    RowBatch,
    check_batch,
    format_name,
    format_value,
    has_texts,
    is_list,
    list_like,
    plain_array,
)
from recordmill.transforms.storage.resolve import check_unchanged, file_version, find_archive, storage_for


def read_parquet(path: str, stream: BinaryIO, columns: tuple[str, ...], batch_rows: int) -> Iterator[RowBatch]:
    """Yield batches of values, read a part of a row group at a time. Members of structs are columns with dots in their
    names. Numbers of Hugging Face's ClassLabel are the names that they stand for.

    Raises:
        AnnotationFileError: It is not a Parquet file, or is truncated or damaged, or names a column twice.
    """
    try:
        file, schema = _open_parquet(stream)
        class_names = _class_label_names(schema)
        tensors = {
            field.name: tuple(field.type.shape) for field in schema if isinstance(field.type, pa.FixedShapeTensorType)
        }
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
        batch_rows, first = max(1, min(batch_rows, _BATCH_BYTES // max(1, row_bytes))), 1
        wanted = [
            field.with_type(_readable_type(field.type)).with_nullable(True)
            for field in schema
            if not columns or any(c == field.name or c.startswith(f"{field.name}.") for c in columns)
        ]
        for batch in file.iter_batches(batch_rows, columns=[field.name for field in wanted]):
            table = pa.Table.from_batches([batch]).cast(pa.schema(wanted))
            while any(pa.types.is_struct(field.type) for field in table.schema):
                table = table.flatten()
            names = [name for name in table.column_names if not columns or name in columns]
            if twice := [name for name, number in Counter(names).items() if number > 1]:
                raise AnnotationFileError(f"{path} names the column {format_value(twice[0])} twice. Rename one")
            cut: dict[str, list[int]] = {name: [] for name in names}
            arrays = {
                name: plain_array(table.column(name).combine_chunks(), cut[name], tensors.get(name, ()))
                for name in names
            }
            known = {name: label_names for name, label_names in class_names.items() if name in arrays}
            read = RowBatch(arrays, np.arange(first, first + len(batch)), [], is_typed=True, names=known)
            yield _name_classes(
                read._replace(cut={name: sum(numbers) for name, numbers in cut.items() if any(numbers)})
            )
            first += len(batch)
    except UnicodeDecodeError as error:
        raise AnnotationFileError(
            f"{path} has a column whose name is not UTF-8 ({error.object[:40]!r}). Rename it"
        ) from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno is not None:
            raise  # of the storage
        stream.seek(0)
        what = describe_parquet(stream.read(_HEAD))
        fault = f"is not Parquet but {what}" if what else f"is not a Parquet file, or is truncated: {error}"
        raise AnnotationFileError(f"{path} {fault}") from error


_BATCH_BYTES = 16 << 20


def _open_parquet(stream: BinaryIO) -> tuple[pq.ParquetFile, pa.Schema]:
    """Return the file to read, and its schema, whose types its columns have after a cast; see `_readable_type`."""
    # The default for Spark's timestamps, nanoseconds, ends in the year 2262 and wraps.
    file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    schema = file.schema_arrow
    if not any(_is_unreadable(field.type) for field in schema):
        return file, schema
    # Without Arrow's types in the footer, lists are of any size, and texts are texts.
    stream.seek(-8, io.SEEK_END)
    length = stream.read(4)
    stream.seek(-8 - int.from_bytes(length, "little"), io.SEEK_END)
    footer = stream.read(int.from_bytes(length, "little")).replace(b"ARROW:schema", b"arrow-schema")
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer + length + b"PAR1"))
    return pq.ParquetFile(stream, metadata=metadata, coerce_int96_timestamp_unit="us"), schema


def _is_unreadable(type_: pa.DataType, is_nested: bool = False) -> bool:
    """Return True for types that Arrow cannot read: lists of a fixed size if one is missing, and nested dictionaries of
    several row groups."""
    type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    if pa.types.is_fixed_size_list(type_) or (is_nested and pa.types.is_dictionary(type_)):
        return True
    return any(_is_unreadable(type_.field(index).type, True) for index in range(type_.num_fields))


def _readable_type(type_: pa.DataType) -> pa.DataType:
    """Return a type in Arrow's schema without extensions, with lists of any size, and dictionaries of texts only."""
    if isinstance(type_, pa.BaseExtensionType):
        return _readable_type(type_.storage_type)
    if is_list(type_):
        return pa.large_list(_readable_type(type_.value_type))
    if pa.types.is_struct(type_):
        fields = (type_.field(index) for index in range(type_.num_fields))
        return pa.struct([pa.field(field.name, _readable_type(field.type)) for field in fields])
    if pa.types.is_map(type_):
        return pa.map_(_readable_type(type_.key_type), _readable_type(type_.item_type))
    if pa.types.is_dictionary(type_):
        value_type = _readable_type(type_.value_type)
        return pa.dictionary(pa.int32(), value_type) if has_texts(value_type) else value_type
    return type_


def _class_label_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return the names of ClassLabel columns, which Hugging Face's `datasets` writes into the schema's metadata."""
    with suppress(msgspec.DecodeError, AttributeError, KeyError, TypeError):
        features = msgspec.json.decode((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return dict(_find_class_labels(features, ""))
    return {}


def _find_class_labels(features: dict[str, Any], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns of ClassLabels, also in lists and structs."""
    for name, feature in features.items():
        while isinstance(feature, list) or (isinstance(feature, dict) and "feature" in feature):
            feature = feature[0] if isinstance(feature, list) else feature["feature"]
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and "names" in feature:
            yield f"{prefix}{name}", tuple(map(str, feature["names"]))
        elif isinstance(feature, dict) and "_type" not in feature:
            yield from _find_class_labels(feature, f"{prefix}{name}.")


def _name_classes(batch: RowBatch) -> RowBatch:
    """Return the batch with names instead of the numbers of ClassLabel. -1 is a missing label. Any other number
    without a name makes a bad row."""
    bad: dict[int, BadRow] = {}
    for column, names in batch.names.items():
        array, rows = batch.columns[column], np.arange(len(batch.lines))
        is_in_lists = is_list(array.type)
        items = array.flatten() if is_in_lists else array
        if not pa.types.is_integer(items.type):
            continue
        if is_in_lists:
            rows = np.repeat(rows, pc.fill_null(pc.list_value_length(array), 0).to_numpy())
        numbers = pc.fill_null(items, -1).to_numpy(zero_copy_only=False)
        for place in np.flatnonzero((numbers < -1) | (numbers >= len(names))).tolist():
            detail = f"column {column}: {numbers[place]} is not the number of one of its {len(names):,} class names"
            row = int(rows[place])
            bad.setdefault(row, BadRow(int(batch.lines[row]), Reason.UNKNOWN_CLASS, detail))
        is_name = pa.array((numbers >= 0) & (numbers < len(names)))
        indices = pc.if_else(is_name, pa.array(numbers), pa.scalar(None, pa.array(numbers).type))
        named = pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.large_string()))
        batch.columns[column] = list_like(array, named) if is_in_lists else named
    return batch.without([bad[row] for row in sorted(bad)])


_BATCH_ROWS = 8192


def read_rows(file: RowsFile, reading: RowsReading) -> Iterator[RowBatch]:
    """Yield the rows of a file in their order, in batches of bounded size.

    Raises:
        AnnotationFileError: It has another format, is truncated or damaged, or has changed since the start of the
            job, which reads it twice.
        OSError: See `Storage.open`.
    """
    for batch in _read_file_batches(file, reading):
        if (number := len(batch.columns)) > MOST_COLUMNS:
            raise AnnotationFileError(
                f"{file.path} has {number:,} columns; the limit is {MOST_COLUMNS:,}. Choose columns by --columns"
            )
        yield check_batch(batch, reading.names, _CURES[batch.is_typed])


_SAVE = "Save the file as UTF-8"
_CURES = {True: "Write it as UTF-8, or as binary", False: "Give --encoding, latin-1 for example"}


class TextRow(NamedTuple):
    """Row of a table of names.

    Attributes:
        number: Number of the row in its file, from 1 for the first row after the head; in JSON Lines, of the line.
        cells: Text of each chosen column, without spaces around it; empty for a missing value.
        fault: Reason why the row has no cells; empty for a good row.
        values: Values of further columns, without missing ones: texts, or, unless the file is a CSV, JSON's.
    """

    number: int
    cells: tuple[str, ...]
    fault: str = ""
    values: Mapping[str, Any] = {}


def read_texts(
    path: str, choose: Callable[[list[str]], Sequence[str]], version: str = "", has_values: bool = False
) -> tuple[Sequence[str], Iterator[TextRow]]:
    """Return the columns that `choose` picks by their names, and the rows that are not blank.

    Args:
        has_values: True for rows with the values of other columns.
        version: Version of the file at the start of the job; empty for the current version.

    Raises:
        AnnotationFileError: See `read_rows`. The rows raise it, too.
    """
    file = RowsFile(path, 0, version or file_version(path))
    return _text_rows(_read_file_batches(file, RowsReading(is_label_table=True)), choose, has_values)


def read_csv_texts(
    path: str, stream: BinaryIO, choose: Callable[[list[str]], Sequence[str]]
) -> tuple[Sequence[str], Iterator[TextRow]]:
    """Return `read_texts` of an open CSV file. It may be compressed by gzip, bzip2 or zstd.

    Raises:
        AnnotationFileError: See `read_texts`.
    """
    return _text_rows(read_csv(path, _open_text(path, stream), RowsReading(is_label_table=True)), choose)


def _text_rows(
    batches: Iterator[RowBatch], choose: Callable[[list[str]], Sequence[str]], has_values: bool = False
) -> tuple[Sequence[str], Iterator[TextRow]]:
    first = next(batches, RowBatch({}, np.zeros(0, np.int64), [], is_typed=True))
    columns = choose(list(first.columns))
    rows = (_batch_text_rows(batch, columns, has_values) for batch in chain((first,), batches))
    return columns, chain.from_iterable(rows)


def _batch_text_rows(batch: RowBatch, columns: Sequence[str], has_values: bool) -> list[TextRow]:
    chosen = {name: array for name, array in batch.columns.items() if name in columns}
    other_arrays = [array for name, array in batch.columns.items() if name not in columns]
    checks_all = has_values and batch.is_typed  # texts of CSV are decoded below
    good = check_batch(batch if checks_all else batch._replace(columns=chosen), columns, _SAVE)
    cells = [["" if value is None else format_name(value).strip() for value in good.values(name)] for name in columns]
    rows = [TextRow(row.line, (), row.detail) for row in good.bad]
    lists = [name for name in columns if name in good.columns and pa.types.is_nested(good.columns[name].type)]
    for line, row_cells in zip(good.lines.tolist(), zip(*cells, strict=True), strict=True):
        if not any(row_cells):
            place = np.searchsorted(batch.lines, line)
            if not any(_has_text(array[place]) for array in other_arrays):
                continue
        fault = f"column {lists[0]} has a list instead of a single value" if lists else ""
        rows.append(TextRow(line, () if fault else row_cells, fault))
    if has_values:
        read = good if checks_all else batch
        values = dict(zip(read.lines.tolist(), _further_values(read, columns), strict=True))
        rows = [row._replace(values=values.get(row.number, {})) for row in rows]
    return sorted(rows, key=itemgetter(0))


def _has_text(value: pa.Scalar) -> bool:
    try:
        return bool(str(value.as_py() or "").strip())
    except UnicodeDecodeError:
        return True


def _further_values(batch: RowBatch, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of other columns in each row."""
    names = [name for name in batch.columns if name not in columns]
    values = [map(_json_value, batch.values(name)) for name in names]
    keys = [name.strip() for name in names]
    return [
        {key: value for key, value in zip(keys, row, strict=True) if value is not None}
        for row in zip(*values, strict=True)
    ] or [{} for _ in batch.lines]


def _json_value(value: Any) -> Any:
    """Return a value as JSON has it; None for a missing one."""
    if isinstance(value, list):
        return list(map(_json_value, value))
    if isinstance(value, str | bytes):
        return (value.decode(errors="replace") if isinstance(value, bytes) else value) or None
    return value if value is None or isinstance(value, bool | int | float) else format_name(value)


def read_stream(path: str, stream: Any, reading: RowsReading) -> Iterator[RowBatch]:
    """Yield the rows of an open file, see `read_rows`."""
    for batch in _read_batches(path, stream, reading):
        yield check_batch(batch, reading.names, _SAVE if reading.is_label_table else _CURES[batch.is_typed])


def _read_file_batches(file: RowsFile, reading: RowsReading) -> Iterator[RowBatch]:
    with storage_for(file.path).open(file.path) as stream:
        for batch in _read_batches(file.path, stream, reading):
            yield _add_partitions(file, batch, reading.columns)
    check_unchanged(file.path, file.version)


def _add_partitions(file: RowsFile, batch: RowBatch, wanted: Sequence[str]) -> RowBatch:
    """Return the batch with the columns in the names of its file's folders.

    Raises:
        AnnotationFileError: The file has another value in such a column.
    """
    columns = dict(batch.columns)
    for name, value in file.partitions:
        if wanted and name not in wanted:
            continue
        scalar = pa.scalar(value, pa.int64() if isinstance(value, int) else pa.large_string())
        own = columns.get(name)
        if own is not None and len(other_values := _other_values(own, scalar)):
            raise AnnotationFileError(
                f"{file.path}: column {name} has {format_value(other_values[0])}, and the folder {name}={value} says "
                "another value. Rename the column or the folder"
            )
        if own is None or own.null_count:
            columns[name] = pa.repeat(scalar, len(batch.lines))
    return batch._replace(columns=columns)


def _other_values(array: pa.Array, value: pa.Scalar) -> pa.Array:
    """Return the values of a column that are not `value`."""
    array = array.drop_null()
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    is_binary = pa.types.is_large_binary(array.type)
    cells = cast_values(cast_values(array, pa.large_string()) if is_binary else array, value.type)
    return array.filter(pc.fill_null(pc.not_equal(cells, value), True))


def _read_batches(path: str, stream: Any, reading: RowsReading) -> Iterator[RowBatch]:
    format_ = rows_format(path)
    if format_ == "parquet":
        # Columns are far apart in the file, and seeking back in a member of an archive unpacks it again.
        whole = io.BytesIO(stream.read()) if find_archive(path) else stream
        yield from read_parquet(path, whole, reading.columns, _BATCH_ROWS)
        return
    try:
        unpacked = _open_text(path, stream)
        if format_ == "json":
            yield from read_json_lines(path, unpacked, reading, _BATCH_ROWS)
        else:
            yield from read_csv(path, unpacked, reading)
    except OSError as error:
        if error.errno is not None:
            raise  # of the storage
        raise AnnotationFileError(f"{path} is damaged or truncated ({error}). Download it again") from error


_HEAD = 1 << 16


def _open_text(path: str, stream: Any) -> BinaryIO:
    """Return the decompressed stream of CSV or JSON.

    Raises:
        AnnotationFileError: It is an archive, a workbook, or another file that is not text.
    """
    unpacked = _decompress_stream(stream)
    what = describe_container(unpacked.peek(_HEAD), is_table=True)
    if what and not what.startswith("text"):
        raise AnnotationFileError(f"{path} is not {'JSON' if rows_format(path) == 'json' else 'a table'} but {what}")
    return unpacked


_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_BZIP2 = re.compile(rb"BZh[1-9]1AY&SY")


def _decompress_stream(stream: Any) -> io.BufferedReader:
    """Return the stream without its compression by gzip, bzip2 or zstd, which its first bytes show."""
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
    head = buffered.peek(10)[:10]
    packed = next((name for start, name in _PACKED.items() if head.startswith(start)), "")
    if not packed or (packed == "bz2" and not _BZIP2.match(head)):
        return buffered
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(buffered, "r"), packed))
