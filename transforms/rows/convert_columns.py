"""Convert values of columns to values of features, and find rows whose value does not fit."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.block import starts_of
from recordmill.schemas.features import ColumnType, FeatureKind
from recordmill.schemas.inputs.labels import number_name
from recordmill.schemas.inputs.tables import CLASS_TYPES, Column
from recordmill.schemas.rejects import Reason
from recordmill.transforms.rows.kinds import KINDS
from recordmill.transforms.rows.read_json import as_text
from recordmill.transforms.rows.row_batch import flatten_lists, format_name, format_value, is_list, python_values


class FeatureColumn(NamedTuple):
    """Values of a feature for a batch of rows.

    Attributes:
        values: Values of all rows, concatenated: int64 or float32, or a binary array.
        ends: int64 [rows + 1]: the values of row i are values[ends[i] : ends[i + 1]].
        absent: bool [rows]: rows whose record lacks the feature; None if none does.
        is_list: False if each row has one value at most.
    """

    name: str
    kind: FeatureKind
    values: Any
    ends: np.ndarray
    absent: np.ndarray | None = None
    is_list: bool = True


_NAMED = (*CLASS_TYPES, ColumnType.ENUM)


class ValueFault(NamedTuple):
    """Fault of a value: place of its row in the batch, reason, and a text about the value."""

    place: int
    reason: Reason
    detail: str


def convert_column(
    column: Column, array: pa.Array | None, rows: int, indices: Mapping[str, int]
) -> tuple[FeatureColumn, list[ValueFault]]:
    """Return a column's feature for a batch of `rows` rows, undefined in rows with a fault; and the faults.

    Args:
        array: None if the file lacks the column.
        indices: Index by name, for a column of classes, or of an enum.
    """
    if array is None:
        array = pa.nulls(rows, pa.large_string())
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    has_lists = is_list(array.type)
    if column.type in (ColumnType.BYTES, *_NAMED) and has_lists and not column.is_list:
        array, has_lists = as_texts(array), False  # a list in a column of texts
    form: Callable[[str], str] = str
    if column.type in CLASS_TYPES and all(map(_is_finite, indices)):
        array, form = without_nan(array), number_name
    elif column.type in CLASS_TYPES and all(name.lower() in ("true", "false") for name in indices):
        form = str.lower
    indices = {form(name): index for name, index in indices.items()} | {**indices}
    is_missing = is_null(array)
    faults: list[ValueFault] = []
    counts = np.ones(rows, np.int64)
    if column.is_list:
        array, counts, _ = (
            flatten_lists(array) if has_lists else (array.drop_null(), (~is_missing).astype(np.int64), ())
        )
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        size = math.prod(column.shape)
        what = f"values, but its shape {list(column.shape)} has {size:,}"
        wrong = ~is_missing & (counts != size) & bool(column.shape)
        faults += value_faults(
            wrong, Reason.OTHER_TYPE, lambda place: f"column {column.name} has {counts[place]:,} {what}"
        )
    elif has_lists:
        faults += value_faults(~is_missing, Reason.OTHER_TYPE, partial(_type_fault, column, array))
        array = pa.nulls(rows, pa.large_string())
    elif is_missing.any() and column.default is not None:
        texts = as_texts(array)
        array, is_missing = pc.fill_null(texts, pa.scalar(column.default).cast(texts.type)), np.zeros(rows, bool)
    values, item_faults = _convert_items(column, array, indices, form)
    owners = np.repeat(np.arange(rows), counts)
    faults += [fault._replace(place=int(owners[fault.place])) for fault in item_faults]
    if is_missing.any() and not column.is_optional:
        faults += value_faults(is_missing, Reason.MISSING_VALUE, lambda _: f"column {column.name} has no value")
    if is_missing.any() and not column.is_list:  # values of missing rows are dropped, so that lists can be cut
        counts = (~is_missing).astype(np.int64)
        values = values[~is_missing] if isinstance(values, np.ndarray) else values.filter(pa.array(~is_missing))
    absent = is_missing if is_missing.any() else None
    return (FeatureColumn(column.feature, column.kind, values, starts_of(counts), absent, column.is_list), faults)


def without_nan(names: pa.Array) -> pa.Array:
    """Return names that are numbers, with null instead of NaN, which is text in CSV."""
    if not pa.types.is_large_string(names.type):
        return names
    return pc.if_else(pc.match_substring_regex(names, "(?i)^[+-]?nan$"), None, names)


def _is_finite(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def is_null(array: pa.Array) -> np.ndarray:
    return array.is_null().to_numpy(zero_copy_only=False)


def value_faults(is_faulty: np.ndarray, reason: Reason, detail: Callable[[int], str]) -> list[ValueFault]:
    return [ValueFault(place, reason, detail(place)) for place in np.flatnonzero(is_faulty).tolist()]


def _convert_items(
    column: Column, array: pa.Array, indices: Mapping[str, int], form: Callable[[str], str]
) -> tuple[np.ndarray | pa.Array, list[ValueFault]]:
    """Return values of the column's type, one for each of `array`; faults have places in `array`."""
    text = f"column {column.name}: its list has an item without a value"
    holes = value_faults(is_null(array), Reason.MISSING_VALUE, lambda _: text) if column.is_list else []
    if column.type is ColumnType.BYTES:
        return pc.fill_null(as_texts(array).cast(pa.large_binary()), b""), holes
    if column.type in _NAMED:
        numbers, faults = _name_indices(column, array, indices, form)
        return numbers, faults + holes
    cast = cast_values(array, next(kind.arrow for kind in KINDS if kind.type is column.type))
    is_unfit = is_null(cast) & ~is_null(array)
    faults = value_faults(is_unfit, Reason.OTHER_TYPE, partial(_type_fault, column, array))
    if pa.types.is_floating(array.type):
        faults = [
            fault if math.isfinite(array[fault.place].as_py()) else fault._replace(reason=Reason.NOT_FINITE)
            for fault in faults
        ]
    faults += holes
    if column.type is ColumnType.FLOAT:
        with np.errstate(over="ignore"):
            values = pc.fill_null(cast, 0.0).to_numpy(zero_copy_only=False).astype(np.float32)
        return values, faults + value_faults(
            ~np.isfinite(values), Reason.NOT_FINITE, lambda place: f"column {column.name}: {format_value(array[place])}"
        )
    whole = cast.cast(pa.int32() if column.type is ColumnType.DATE else pa.int64()).cast(pa.int64())
    return pc.fill_null(whole, 0).to_numpy(zero_copy_only=False), faults


def cast_values(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return values as another type; null if unfit."""
    try:
        return _cast_all(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) < 2:
            return pa.nulls(len(array), target)
    half = len(array) // 2
    return pa.concat_arrays([cast_values(array[:half], target), cast_values(array[half:], target)])


def _cast_all(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the values as another type, all unchanged.

    Raises:
        pa.ArrowInvalid: A value is not of the type, or would be another number.
    """
    source = array.type
    if pa.types.is_timestamp(target):
        if pa.types.is_string(source) or pa.types.is_large_string(source):
            return _parse_timestamps(array)
        if pa.types.is_timestamp(source):  # a time that does not fit int64 is not valid
            array = array.cast(pa.timestamp("us", source.tz))
        return array.cast(target)
    if pa.types.is_boolean(source) and not pa.types.is_boolean(target):
        raise pa.ArrowInvalid("true and false are not numbers")
    if pa.types.is_float64(target) and pa.types.is_integer(source):
        return array.cast(target, safe=False)  # beyond 2**53 it rounds, as float32 does sooner
    if pa.types.is_float64(target) and pa.types.is_decimal(source):
        array = array.cast(pa.large_string())  # Arrow's own cast makes 2.00000000000 1.9999999999999998
    if pa.types.is_int64(target) and pa.types.is_large_string(source):
        return _parse_whole_numbers(array)
    if pa.types.is_temporal(source) and pa.types.is_int64(target):
        raise pa.ArrowInvalid("a time is a number of its unit only, which differs between files")
    values = array.cast(target)
    is_unsafe = pa.types.is_primitive(source) and (pa.types.is_boolean(target) or pa.types.is_date(target))
    if is_unsafe and not values.cast(source).equals(array):
        raise pa.ArrowInvalid("2 is not true, and a time of day is not a date")
    return values


def _parse_whole_numbers(texts: pa.Array) -> pa.Array:
    """Parse whole numbers, also written as 12.0 or 1e3."""
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts.cast(_EXACT).cast(pa.int64())


_EXACT = pa.decimal128(38, 18)  # holds int64, which float64 rounds from 2**53 on


def _parse_timestamps(texts: pa.Array) -> pa.Array:
    """Parse ISO 8601, with an offset from UTC or without; days begin at 0:00."""
    has_zone = pc.match_substring_regex(texts, r"[T ].*(Z|[+-][0-9]{2}:?[0-9]{2})$")
    without = pc.if_else(has_zone, pa.scalar(None, texts.type), texts).cast(pa.timestamp("us"))
    with_zone = pc.if_else(has_zone, texts, pa.scalar(None, texts.type)).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(without, with_zone.cast(pa.timestamp("us")))


def _name_indices(
    column: Column, array: pa.Array, indices: Mapping[str, int], form: Callable[[str], str]
) -> tuple[np.ndarray, list[ValueFault]]:
    """Return the index of each value's name, or of the form that equal names share."""
    encoded = array.dictionary_encode()
    names = [format_name(value) for value in python_values(encoded.dictionary)]
    table = np.array([*(indices.get(name, indices.get(form(name), -1)) for name in names), 0])
    numbers = table[pc.fill_null(encoded.indices, len(names)).to_numpy(zero_copy_only=False)]
    what = "a class" if column.type in CLASS_TYPES else "a value of the enum"
    return np.maximum(numbers, 0), value_faults(
        numbers < 0,
        Reason.UNKNOWN_CLASS,
        lambda place: f"column {column.name}: {format_value(array[place])} is not {what}",
    )


def as_texts(array: pa.Array) -> pa.Array:
    """Return values as texts, see `as_text`; bytes unchanged."""
    type_ = array.type
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return array.cast(pa.large_binary())
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return array
    if pa.types.is_integer(type_) or pa.types.is_null(type_):
        return array.cast(pa.large_string())
    return pa.array([None if value is None else as_text(value) for value in python_values(array)], pa.large_string())


def _type_fault(column: Column, array: pa.Array, place: int) -> str:
    kind = f"a list of {column.type.value}" if column.is_list else f"of type {column.type.value}"
    return f"column {column.name}: {format_value(array[place])} is not {kind}"
