"""Read JSON Lines in batches of columns."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import NoneType
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.json_text import repeated_key
from recordmill.schemas.inputs.tables import RowsReading
from recordmill.schemas.rejects import Reason
from recordmill.transforms.rows.kinds import KINDS, Seen
from recordmill.transforms.rows.row_batch import (
    MOST_CELL_BYTES,
    BadRow,
    ColumnPart,
    RowBatch,
    format_value,
    plain_array,
)

_BATCH_BYTES = 16 << 20
_BOM = b"\xef\xbb\xbf"


def read_json_lines(path: str, stream: BinaryIO, reading: RowsReading, batch_rows: int) -> Iterator[RowBatch]:
    """Yield batches of values; null, and a key that is not there, are missing values. Nested objects are columns with
    dots in their names. A column that mixes types holds texts.

    Raises:
        AnnotationFileError: The file is one JSON array, an object over several lines, or an object of columns; or an
            object in rows has so many keys that it is a map.
    """
    number, is_at_end, columns = 0, False, reading.columns
    keys: dict[str, set[str]] = {}
    while not is_at_end:
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        bad: list[BadRow] = []
        size = 0
        while len(rows) < batch_rows and size < _BATCH_BYTES:
            line = stream.readline(MOST_CELL_BYTES)
            if not line:
                is_at_end = True
                break
            number += 1
            size += len(line)
            if number == 1:
                line = line.removeprefix(_BOM)
                if what := _file_form_fault(line):
                    raise AnnotationFileError(f"{path} {what}")
            if len(line) == MOST_CELL_BYTES and not line.endswith(b"\n"):
                while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                    pass
                bad.append(BadRow(number, Reason.MALFORMED_ROW, f"longer than {MOST_CELL_BYTES >> 20} MB"))
            elif line.strip():
                try:
                    row = flatten_row(_decode_row(line), "", keys)
                    if reading.texts or reading.names or reading.is_label_table:
                        _settle_values(row, reading)
                    rows.append(row)
                    numbers.append(number)
                except ValueError as error:
                    bad.append(BadRow(number, Reason.MALFORMED_ROW, str(error)))
                for name, members in keys.items():
                    if len(members) >= _MOST_KEYS and (not columns or any(c.startswith(f"{name}.") for c in columns)):
                        raise AnnotationFileError(
                            f"{path} line {number:,}: column {name!r} is an object with {len(members):,} different "
                            "keys so far, and each would be a column. Write two lists, of its keys and of its values, "
                            "or leave the column out by --columns"
                        )
        yield from _split_by_type(rows, numbers, bad, columns)


_MOST_KEYS = 1000


def _settle_values(row: dict[str, Any], reading: RowsReading) -> None:
    """Set values that would depend on the types beside them: lists become texts. NaN as a name becomes a missing
    value, because it would be missing among numbers, and the text `nan` among texts."""
    for name in reading.texts:
        if isinstance(row.get(name), list):
            row[name] = as_text(row[name])
    for name in row if reading.is_label_table else reading.names:
        if row.get(name) != row.get(name):
            row[name] = None


def _file_form_fault(line: bytes) -> str:
    """Return the kind of a file without a row on each line, by its first line; empty if it may have rows."""
    if line.lstrip().startswith(b"["):
        return "is one JSON array. Write one JSON object per line (jq -c '.[]')"
    if line.strip() == b"{":
        return "has a JSON value over several lines. Write one JSON object per line (jq -c .)"
    try:
        row = _decode_row(line)
    except ValueError:
        what = describe_content(line)
        return f"is not JSON but {what}" if what else ""
    by_index = [value for value in row.values() if isinstance(value, dict) and "0" in value]
    is_numbered = all(value.keys() == set(map(str, range(len(value)))) for value in by_index)
    if (by_index and len(by_index) == len(row) and is_numbered) or row.keys() == {"columns", "index", "data"}:
        return (
            "has the columns of a data frame instead of rows, as pandas' to_json() writes them. Write one JSON object "
            "per line: to_json(PATH, orient='records', lines=True)"
        )
    return ""


def _decode_row(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        value = _decode_with_nan(line)
        if value is None:
            raise ValueError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {format_value(value)}")
    # A row without objects in it has a colon for each of its keys, unless its texts have some.
    if line.count(b":") != len(value) and (key := repeated_key(line, value)) is not None:
        raise ValueError(f"an object has the key {key!r} twice, and the first value would be dropped")
    return value


def _decode_with_nan(line: bytes) -> Any:
    """Return the value of a line that is JSON but for NaN or Infinity, which Python writes; None for any other."""
    constants: list[str] = []

    def number(text: str) -> float:
        constants.append(text)
        return float(text)

    try:
        value = json.loads(line, parse_constant=number)
        msgspec.json.encode(value)  # no lone surrogates
    except (ValueError, RecursionError):
        return None
    return value if constants else None


def flatten_row(row: dict[str, Any], prefix: str, keys: dict[str, set[str]]) -> dict[str, Any]:
    """Return a row without nested objects.

    Args:
        keys: Gets the keys of each object in the row, by the name of the object.

    Raises:
        ValueError: Two values have one name.

    >>> flatten_row({"a": 1, "b": {"c": 2, "d": {"e": 3}}}, "", {})
    {'a': 1, 'b.c': 2, 'b.d.e': 3}
    """
    columns: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        inner = {name: value}
        if isinstance(value, dict):
            keys.setdefault(name, set()).update(value)
            inner = flatten_row(value, f"{name}.", keys)
        if both := columns.keys() & inner.keys():
            raise ValueError(f"two values for {min(both)!r}")
        columns |= inner
    return columns


def batches_of_rows(rows: list[dict[str, Any]]) -> Iterator[RowBatch]:
    """Yield rows of values by column as batches, see `read_json_lines`. Lines are places in `rows`."""
    yield from _split_by_type(rows, [*range(len(rows))], [], ())


def batches_of_columns(columns: Mapping[str, list[Any]], rows: int) -> Iterator[RowBatch]:
    """Yield columns of values, None for missing ones, as batches, see `batches_of_rows`."""
    arrays = {name: _uniform_array(values) for name, values in columns.items()}
    if None not in arrays.values():
        yield RowBatch(arrays, np.arange(rows), [], is_typed=True)
        return
    values = zip(*columns.values(), strict=True)
    named = [dict(zip(columns, row, strict=True)) for row in values]
    yield from batches_of_rows([{name: value for name, value in row.items() if value is not None} for row in named])


def _gather_columns(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for place, row in enumerate(rows):
        for name, value in row.items():
            if name not in values:
                if columns and name not in columns:
                    continue
                values[name] = [None] * len(rows)
            values[name][place] = value
    return values


def _split_by_type(
    rows: list[dict[str, Any]], numbers: list[int], bad: list[BadRow], columns: tuple[str, ...]
) -> Iterator[RowBatch]:
    """Yield one batch; if a column has lists and other values, a batch for each. So the result of a row does not depend
    on the rows beside it."""
    values = _gather_columns(rows, columns)
    arrays = {name: _uniform_array(column) for name, column in values.items()}
    unlike = [column for name, column in values.items() if arrays[name] is None]
    mixed = [column for column in unlike if len({type(value) is list for value in column if value is not None}) > 1]
    if mixed:
        groups: dict[tuple[bool, ...], list[int]] = {}
        for place in range(len(rows)):
            groups.setdefault(tuple(isinstance(column[place], list) for column in mixed), []).append(place)
        for places in groups.values():
            yield from _split_by_type(
                [rows[place] for place in places], [numbers[place] for place in places], bad, columns
            )
            bad = []
        return
    whole = {name: _text_array(values[name]) if array is None else array for name, array in arrays.items()}
    parts = {name: list(_column_parts(values[name])) for name, array in arrays.items() if array is None}
    yield RowBatch(whole, np.array(numbers, np.int64), bad, is_typed=True, parts=parts)


def _uniform_array(values: list[Any]) -> pa.Array | None:
    """Return values as an Arrow array; None if types differ, a value is nested, or a number is too large."""
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError):
        return None
    type_, depth = array.type, 0
    items: Iterable[Any] = values
    while pa.types.is_list(type_):
        type_, items, depth = type_.value_type, chain.from_iterable(filter(None, items)), depth + 1
    # Arrow takes true after 1.5 for 1.0, and 7 for 7.0: another text. Lists in lists never are texts by themselves.
    fit = {float, NoneType, int} if depth > 1 else {float, NoneType}
    if pa.types.is_nested(type_) or (pa.types.is_floating(type_) and not set(map(type, items)) <= fit):
        return None
    return plain_array(array, [])


def _text_array(values: list[Any]) -> pa.Array:
    """Return a column, or the items of its lists, as texts: see `as_text`."""

    def text(value: Any) -> str | None:
        return None if value is None else as_text(value)

    if any(isinstance(value, list) for value in values):
        lists = [None if value is None else list(map(text, value)) for value in values]
        return pa.array(lists, pa.large_list(pa.large_string()))
    return pa.array(map(text, values), pa.large_string())


def _column_parts(values: list[Any]) -> Iterator[ColumnPart]:
    """Yield the values of each look; of lists their items."""
    by_look: dict[Seen, list[tuple[int, Any]]] = {}
    for place, value in enumerate(values):
        for item in value if isinstance(value, list) else (value,):
            if item is not None:
                by_look.setdefault(_observe_kind(item), []).append((place, item))
    for look, cells in by_look.items():
        places, items = zip(*cells, strict=True)
        is_odd = look in (Seen.LARGE, Seen.NESTED, Seen.OTHER)
        yield ColumnPart(look, np.array(places), pa.array(map(as_text, items)) if is_odd else pa.array(items))


def _observe_kind(item: Any) -> Seen:
    if type(item) is int and not -(1 << 63) <= item < 1 << 63:
        return Seen.LARGE
    return _KIND_OF.get(type(item), Seen.OTHER)


_KIND_OF = {kind.json: kind.seen for kind in KINDS if kind.json}


def as_text(value: Any) -> str:
    """Return a value of a column of texts: as JSON writes it, or Python's json NaN; a single text without quotes.

    >>> as_text(True), as_text("a"), as_text([1, "b"]), as_text(1e-5), as_text([float("nan"), None])
    ('true', 'a', '[1,"b"]', '1e-05', '[NaN,null]')
    >>> as_text([1e22]), as_text([1e22, None])
    ('[1e22]', '[1e22,null]')
    """
    plain = msgspec.to_builtins(value)
    if isinstance(plain, str | float):
        return str(plain)  # as `format_name`, so that a class has one name: 1e-05
    text = msgspec.json.encode(plain).decode()
    if "null" in text:  # JSON has no NaN and no infinity: msgspec writes null for them, and Python their names
        named = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
        return named if _NOT_FINITE.search(named) else text
    return text


_NOT_FINITE = re.compile("NaN|Infinity")
