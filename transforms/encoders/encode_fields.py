"""Encode open fields of images and objects as columns of records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.block import Ragged, starts_of
from recordmill.schemas.features import ColumnType, FeatureKind, FeatureTable, RecordOf
from recordmill.schemas.field_features import FLAT_VALUES, LENGTHS, RAGGED, FieldColumn, field_columns
from recordmill.schemas.inputs.tables import Column as RowColumn
from recordmill.schemas.layouts import requested_fields
from recordmill.schemas.rejects import Reason
from recordmill.schemas.statistics import COUNTED_FIELDS
from recordmill.transforms.blocks.image_facts import FieldItems
from recordmill.transforms.records.example import Column, bytes_items, item_values
from recordmill.transforms.rows.convert_columns import ValueFault, convert_column
from recordmill.transforms.rows.read_json import as_text, batches_of_rows

_TYPES = {
    FeatureKind.INT64: ColumnType.INT64,
    FeatureKind.FLOAT: ColumnType.FLOAT,
    FeatureKind.BYTES: ColumnType.BYTES,
}
_OF_TEXT: dict[FeatureKind, Callable[[str], Any]] = {
    FeatureKind.INT64: int,
    FeatureKind.FLOAT: float,
    FeatureKind.BYTES: str.encode,
}


class FieldEncoder:
    """Encoder of the open fields of records.

    Args:
        table: Features of the records.
    """

    def __init__(self, table: FeatureTable):
        columns = field_columns(table)
        self._by_axis = {axis: [column for column in columns if column.axis == axis] for axis in ("image", "object")}
        self._is_alone = table.record_of is RecordOf.ANNOTATION
        self._counted = requested_fields(table)[:COUNTED_FIELDS]

    def encode(self, axis: str, rows: Ragged | None, number: int) -> tuple[dict[str, Column], list[ValueFault]]:
        """Return the columns of an axis by source of their feature, and the values that do not fit.

        Args:
            rows: JSON of each image or object; None if none has fields.
            number: Number of images or objects.
        """
        if not self._by_axis[axis]:
            return {}, []
        values: list[dict[str, Any]] = [{}] * number
        if rows is not None:
            values = msgspec.json.decode(b"[%b]" % b",".join([row or b"{}" for row in rows.rows()]))
        columns: dict[str, Column] = {}
        faults: list[ValueFault] = []
        for column in self._by_axis[axis]:
            plain = _plain_column(column, [row.get(column.path) for row in values])
            if plain is not None:
                columns[column.source] = plain
                continue
            lists, wrong = _convert(column, values)
            faults += wrong
            columns |= dict(self._store(column, lists))
        return columns, faults

    def items(self, axis: str, columns: Mapping[str, Column]) -> dict[str, FieldItems]:
        """Return the values of the fields with statistics, by source of their feature.

        Args:
            columns: Columns of the axis, from `encode`.
        """
        is_alone = axis == "image" or self._is_alone
        return {column.source: _items(column, columns, is_alone) for column in self._counted if column.axis == axis}

    def _store(self, column: FieldColumn, lists: list[list[Any]]) -> Iterator[tuple[str, Column]]:
        """Yield the columns of a field, given the values of each row."""
        is_bytes = column.kind is FeatureKind.BYTES
        dtype = np.float32 if column.kind is FeatureKind.FLOAT else np.int64
        is_alone = column.axis == "image" or self._is_alone
        if column.size != RAGGED:
            width, missing = column.size or 1, _OF_TEXT[column.kind](column.missing)
            filled = [values if len(values) == width else [missing] * width for values in lists]
            if not is_bytes:
                array = np.array(filled, dtype).reshape(-1, width)
                yield column.source, array if column.size else array[:, 0]
            elif column.size:
                yield column.source, _bytes_lists(filled)
            else:
                yield column.source, [row[0] for row in filled]
            return
        lengths = np.array(list(map(len, lists)), np.int64)
        flat: Column = lists
        if not is_bytes:
            flat = Ragged(np.array([value for row in lists for value in row], dtype), starts_of(lengths))
        elif not is_alone:
            flat = _bytes_lists(lists)
        yield f"{column.source}{'' if is_alone else FLAT_VALUES}", flat
        if not is_alone:
            yield f"{column.source}{LENGTHS}", lengths


def _items(column: FieldColumn, columns: Mapping[str, Column], is_alone: bool) -> FieldItems:
    """Return the values of a field that are not missing.

    Args:
        is_alone: True if a record has the values of one image or object.
    """
    is_ragged = column.size == RAGGED
    stored: Any = columns[f"{column.source}{FLAT_VALUES}" if is_ragged and not is_alone else column.source]
    if column.kind is not FeatureKind.BYTES:
        if isinstance(stored, Ragged):
            return FieldItems(_present(column, stored.values), len(stored.lengths), int((stored.lengths == 0).sum()))
        is_missing = _is_missing(column, stored).reshape(len(stored), column.size or 1).all(axis=1)
        return FieldItems(_present(column, stored.ravel()), len(stored), int(is_missing.sum()))
    if isinstance(stored, Ragged):
        rows = [list(item_values(row)) for row in stored.rows()]
    else:
        rows = [row if column.size else [row] for row in stored]
    lists = [list(filter(None, row)) for row in rows]
    return FieldItems([text for row in lists for text in row], len(lists), sum(not row for row in lists))


def _is_missing(column: FieldColumn, numbers: np.ndarray) -> np.ndarray:
    return np.isnan(numbers) if column.kind is FeatureKind.FLOAT else numbers == int(column.missing)


def _present(column: FieldColumn, numbers: np.ndarray) -> np.ndarray:
    return numbers[~_is_missing(column, numbers)]


_EXACT = 2**53
"""Bound of the whole numbers that float64 holds."""


def _bytes_lists(lists: list[list[bytes]]) -> Ragged:
    """Return lists of bytes as serialised lists, see Column."""
    items = bytes_items([value for row in lists for value in row])
    sizes = starts_of(np.array(list(map(len, items)), np.int64))
    lengths = np.array(list(map(len, lists)), np.int64)
    return Ragged(np.frombuffer(b"".join(items), np.uint8), sizes[starts_of(lengths)])


def _plain_column(column: FieldColumn, values: list[Any]) -> Column | None:
    """Return the column of single values of the field's kind, as `_convert` gives in more steps; else None."""
    types = set(map(type, values)) - {NoneType}
    if column.size:
        return None
    missing = _OF_TEXT[column.kind](column.missing)
    if column.kind is FeatureKind.BYTES:
        return [missing if value is None else value.encode() for value in values] if types <= {str} else None
    filled = [missing if value is None else value for value in values]
    if column.kind is FeatureKind.INT64:
        with suppress(OverflowError):
            return np.array(filled, np.int64) if types <= {int, bool} else None
    elif types <= {float, int, bool}:
        with suppress(OverflowError):
            numbers = np.array(filled, np.float64)
            return numbers.astype(np.float32) if not (np.abs(numbers) >= _EXACT).any() else None
    return None


def _convert(column: FieldColumn, rows: Sequence[Mapping[str, Any]]) -> tuple[list[list[Any]], list[ValueFault]]:
    """Return the values of each row as a list, empty where they are missing; and values that do not fit."""
    lists: list[list[Any]] = [[] for _ in rows]
    faults: list[ValueFault] = []
    stored = RowColumn(column.path, column.path, _TYPES[column.kind], bool(column.size), is_optional=True)
    cells = [{column.path: row[column.path]} if column.path in row else {} for row in rows]
    for batch in batches_of_rows([_plain(cell, column) for cell in cells]):
        places = batch.lines.tolist()
        feature, wrong = convert_column(stored, batch.columns.get(column.path), len(places), {})
        faults += [fault._replace(place=places[fault.place]) for fault in wrong]
        values = feature.values.to_pylist() if column.kind is FeatureKind.BYTES else feature.values.tolist()
        for place, start, end in zip(places, feature.ends.tolist(), feature.ends.tolist()[1:], strict=False):
            lists[place] = values[start:end]
    if column.size > 0:  # of a data set that has the field already, or a kind that the user named
        faults += [
            ValueFault(place, Reason.OTHER_TYPE, f"field {column.path}: {len(row)} values, not {column.size}")
            for place, row in enumerate(lists)
            if row and len(row) != column.size
        ]
    return lists, faults


def _plain(cell: dict[str, Any], column: FieldColumn) -> dict[str, Any]:
    """Return a value with 0 and 1 for booleans, if numbers are stored; with the text of a list, if texts are."""
    if column.kind is not FeatureKind.BYTES:
        return {path: _number(value) for path, value in cell.items()}
    is_text = not column.size
    return {path: as_text(value) if is_text and isinstance(value, list) else value for path, value in cell.items()}


_BOOLS = {"true": 1, "false": 0}


def _number(value: Any) -> Any:
    """Return 0 and 1 for booleans, also for those of CSV, which are texts."""
    if isinstance(value, list):
        return list(map(_number, value))
    if isinstance(value, str):
        return _BOOLS.get(value.lower(), value)
    return int(value) if isinstance(value, bool) else value
