"""Batch of rows as columns."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.inputs.images import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.rows.kinds import Seen

MOST_CELL_BYTES = 64 << 20
"""Maximum bytes of a cell. A longer one comes from a quote that is not closed, or a file without newlines."""
MOST_COLUMNS = 10_000
IMAGE_STARTS = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
"""First bytes of JPEG and PNG files."""
_SHOWN = 60


class BadRow(NamedTuple):
    """Row that is left out.

    Attributes:
        line: see RowBatch.lines; the reject's id.
        detail: what was found, for a person.
    """

    line: int
    reason: Reason
    detail: str

    def reject(self, path: str) -> Rejected:
        return Rejected("row", self.line, self.reason, f"{path} row {self.line}: {self.detail}", file_name=path)


class ColumnPart(NamedTuple):
    """Values of a column that look alike, or items of its lists; `places` are their rows in the batch."""

    look: Seen
    places: np.ndarray
    values: pa.Array


class RowBatch(NamedTuple):
    """Consecutive rows of a file.

    Attributes:
        columns: Arrays of equal length by name. The name of a nested column is its path, with dots.
        lines: int64 [rows]: Number of each row in its file, from 1 for the first row after the head; in JSON Lines, of
            the line.
        bad: Rows that are not in `columns`.
        is_typed: False if all values are texts whose types are not known yet (CSV).
        parts: Values by type, by name of a column that has several types; `columns` has such values as texts.
        names: Names in the order of their numbers, by column of numbers that stand for names (ClassLabel).
        cut: Number of points in time that are cut to microseconds, by column.
        comment: First lines of the file that were skipped, as they begin with #; empty without.
        unnamed: First line of the file, if it looks like a row instead of names of columns; empty if it does not.
    """

    columns: dict[str, pa.Array]
    lines: np.ndarray
    bad: list[BadRow]
    is_typed: bool
    parts: Mapping[str, Sequence[ColumnPart]] = {}
    names: Mapping[str, tuple[str, ...]] = {}
    cut: Mapping[str, int] = {}
    comment: str = ""
    unnamed: str = ""

    def values(self, column: str) -> list[Any]:
        """Return the value of each row; None for each if the file has no such column."""
        array = self.columns.get(column)
        return [None] * len(self.lines) if array is None else python_values(array)

    def without(self, bad: Sequence[BadRow]) -> "RowBatch":
        """Return the batch without the values of bad rows. `parts` has to be empty."""
        if not bad:
            return self
        is_good = pa.array(np.isin(self.lines, [row.line for row in bad], invert=True))
        columns = {name: array.filter(is_good) for name, array in self.columns.items()}
        return self._replace(columns=columns, lines=self.lines[is_good], bad=[*self.bad, *bad])


def check_batch(batch: RowBatch, names: Iterable[str], cure: str) -> RowBatch:
    """Return the batch with texts instead of bytes. Rows with a text that is not UTF-8 are bad.

    Args:
        names: Columns of names of classes, keys, groups or splits. Their bytes are texts, and their NaN is a missing
            value.
        cure: End of the message.
    """
    columns: dict[str, pa.Array] = {}
    bad: dict[int, BadRow] = {}
    for name, array in batch.columns.items():
        is_binary = pa.types.is_large_binary(array.type)
        is_text = not batch.is_typed or (is_binary and name in names) or has_texts(array.type)
        if is_binary or pa.types.is_large_string(array.type):
            lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
            for place in np.flatnonzero(lengths > MAX_RECORD_BYTES).tolist():
                detail = f"column {name}: {lengths[place]:,} bytes; the limit is {MAX_RECORD_BYTES:,}"
                bad[int(batch.lines[place])] = BadRow(int(batch.lines[place]), Reason.RECORD_TOO_LARGE, detail)
        if name in names and pa.types.is_floating(array.type):
            array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        try:
            columns[name] = array.cast(pa.large_string()) if is_text and is_binary else array
            if is_text and not is_binary:
                array.validate(full=True)
            continue
        except pa.ArrowInvalid:
            columns[name] = array
        for line, value in zip(batch.lines.tolist(), array, strict=True):
            try:
                _ = value.as_py().decode() if is_binary and value.is_valid else _python_value(value)
            except UnicodeDecodeError as error:
                is_image = error.object.startswith(IMAGE_STARTS)
                advice = "Without --images, such a column has the image files" if is_image else cure
                detail = f"column {name} is not UTF-8: {format_value(error.object)}. {advice}"
                bad.setdefault(line, BadRow(line, Reason.NOT_TEXT, detail))
    good_batch = batch._replace(columns=columns).without([bad[line] for line in sorted(bad)])
    return check_batch(good_batch, names, cure) if bad else good_batch


def has_texts(type_: pa.DataType) -> bool:
    """Return True if values of a type hold texts, which a Parquet file does not guarantee to be UTF-8."""
    if pa.types.is_dictionary(type_):
        return has_texts(type_.value_type)
    is_text = pa.types.is_large_string(type_) or pa.types.is_string(type_) or pa.types.is_string_view(type_)
    return is_text or any(has_texts(type_.field(i).type) for i in range(type_.num_fields))


def plain_array(array: pa.Array, cut: list[int], shape: tuple[int, ...] = ()) -> pa.Array:
    """Return the same values in one of the types that columns have, without views, fixed sizes and extensions.

    Whole decimals are int64 where all of them fit. Points in time are at least microseconds, as Python's are.

    Args:
        cut: Gets the number of points in time that are finer.
        shape: Shape of values that are flat lists, and become lists in lists.
    """
    type_, types = array.type, pa.types
    if len(shape) > 1:
        items = pc.list_flatten(array)
        for size in reversed(shape[1:]):
            items = pa.FixedSizeListArray.from_arrays(items, size)
        return _list_array(array, np.where(array.is_valid(), shape[0], 0), plain_array(items, cut))
    if isinstance(type_, pa.BaseExtensionType):
        return plain_array(array.storage, cut)
    if is_list(type_):
        return list_like(array, plain_array(pc.list_flatten(array), cut))
    if types.is_run_end_encoded(type_):
        return plain_array(pc.run_end_decode(array), cut)
    if types.is_string(type_) or types.is_string_view(type_):
        return array.cast(pa.large_string())
    if types.is_binary(type_) or types.is_binary_view(type_) or types.is_fixed_size_binary(type_):
        return array.cast(pa.large_binary())
    if types.is_dictionary(type_):
        values = plain_array(array.dictionary, cut)
        if types.is_large_string(values.type):
            return pa.DictionaryArray.from_arrays(array.indices, values)
        return plain_array(array.dictionary_decode(), cut)
    if types.is_timestamp(type_) and type_.unit == "ns":
        finer = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False) % 1000
        cut.append(int(np.count_nonzero(finer)))
        return array.cast(pa.timestamp("us", type_.tz), safe=False)
    if types.is_float16(type_):
        return array.cast(pa.float32())
    if types.is_decimal(type_) and type_.scale <= 0:
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid:
            return array
    return array


def is_list(type_: pa.DataType) -> bool:
    kinds = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    return any(check(type_) for check in (*kinds, pa.types.is_list_view, pa.types.is_large_list_view))


def list_like(array: pa.Array, items: pa.Array) -> pa.Array:
    """Return lists of `items`, as many in each as in those of `array`."""
    return _list_array(array, pc.fill_null(pc.list_value_length(array), 0).to_numpy(), items)


def _list_array(array: pa.Array, counts: np.ndarray, items: pa.Array) -> pa.Array:
    """Return lists of `counts` items each; missing where `array` has a missing value."""
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(pa.array(ends), items, mask=array.is_null())


def flatten_lists(array: pa.Array) -> tuple[pa.Array, np.ndarray, tuple[int, ...]]:
    """Return the items of all levels of lists, their number in each row, and the shape of the lists in lists.

    The numbers are int64 [rows]. The shape has the sizes that all rows share, and -1 for a size that differs; it is ()
    for plain lists.

    >>> flatten_lists(pa.array([[[1, 2, 3], [4, 5, 6]], None]))[1:]
    (array([6, 0]), (2, 3))
    """
    ends = np.arange(len(array) + 1)
    shape: list[int] = []
    while is_list(array.type):
        counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        given = np.unique(counts[array.is_valid().to_numpy(zero_copy_only=False)] if not shape else counts)
        shape.append(int(given[0]) if len(given) == 1 else -1)
        ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[ends]
        array = array.flatten()
    return array, np.diff(ends), tuple(shape) if len(shape) > 1 else ()


def python_values(array: pa.Array) -> list[Any]:
    """Return the values of an array; dates, times and durations beyond Python's range as texts of ISO 8601."""
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _list_values(array)
    if array.null_count == 0 and (pa.types.is_float64(array.type) or pa.types.is_int64(array.type)):
        values: list[Any] = array.to_numpy().tolist()  # Arrow makes a scalar of each number: five times as long
        return values
    try:
        return array.to_pylist()
    except (OverflowError, ValueError):
        return list(map(_python_value, array))


def _list_values(array: pa.Array) -> list[Any]:
    """Return the values of an array of lists, with those of all lists converted at once."""
    items = python_values(array.flatten())
    ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)).tolist()
    lists: list[Any] = [items[start:end] for start, end in pairwise([0, *ends])]
    if array.null_count:
        lists = [
            values if is_valid else None for values, is_valid in zip(lists, array.is_valid().to_pylist(), strict=True)
        ]
    return lists


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        raise
    except (OverflowError, ValueError):
        if isinstance(value, pa.MapScalar):
            return [tuple(map(_python_value, pair.values())) for pair in value.values]
        if isinstance(value, pa.ListScalar):
            return list(map(_python_value, value.values))
        if isinstance(value, pa.StructScalar):
            return {name: _python_value(member) for name, member in value.items()}
        text = str(value.cast(pa.large_string()).as_py())
        if pa.types.is_duration(value.type):
            return f"PT{Decimal(text).scaleb(-_DIGITS[value.type.unit]):f}S"
        return text


_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def format_name(value: object) -> str:
    """Return a value as a name, for example a class.

    >>> format_name("cat"), format_name(3), format_name(True)
    ('cat', '3', 'true')
    """
    if isinstance(value, bytes):
        return value.decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def format_value(value: Any) -> str:
    """Return a value for a message; also one of Arrow's."""
    if isinstance(value, pa.BinaryScalar) and value.is_valid:  # texts, too
        is_text = isinstance(value, pa.StringScalar)
        start = value.as_buffer().slice(0, min(value.as_buffer().size, 4 * _SHOWN)).to_pybytes()
        value = start.decode(errors="replace") if is_text else start
    text = repr(_python_value(value) if isinstance(value, pa.Scalar) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
