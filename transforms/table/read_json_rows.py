"""JSON Lines become batches of columns."""

from collections.abc import Iterator
from math import isfinite
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.rejects import Reason
from recordmill.transforms.table.row_batch import MOST_CELL_BYTES, BadRow, RowBatch, shown

_BATCH_BYTES = 16 << 20
_BOM = b"\xef\xbb\xbf"


def read_json(path: str, stream: BinaryIO, columns: tuple[str, ...], batch_rows: int) -> Iterator[RowBatch]:
    """Batches of values; null, and a key that is not there, are missing values. Nested objects become columns with
    dots in their names. A column that mixes types within a batch holds texts, see `as_text`.

    Raises:
        AnnotationFileError: it is one JSON array.
    """
    number, is_at_end = 0, False
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
                if line.lstrip().startswith(b"["):
                    raise AnnotationFileError(f"{path} is one JSON array; give a JSON object a line (jq -c '.[]')")
            if len(line) == MOST_CELL_BYTES and not line.endswith(b"\n"):
                while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                    pass
                bad.append(BadRow(number, Reason.MALFORMED_ROW, f"longer than {MOST_CELL_BYTES >> 20} MB"))
            elif line.strip():
                try:
                    rows.append(flat(_decode(line)))
                    numbers.append(number)
                except ValueError as error:
                    bad.append(BadRow(number, Reason.MALFORMED_ROW, str(error)))
        yield RowBatch(_columns(rows, columns), np.array(numbers, np.int64), bad, is_typed=True)


def _decode(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"no JSON object: {shown(value)}")
    return value


def flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A row without objects in objects.

    Raises:
        ValueError: two values have one name.

    >>> flat({"a": 1, "b": {"c": 2, "d": {"e": 3}}})
    {'a': 1, 'b.c': 2, 'b.d.e': 3}
    """
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        inner = flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
        if both := found.keys() & inner.keys():
            raise ValueError(f"two values for {min(both)!r}")
        found |= inner
    return found


def _columns(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> dict[str, pa.Array]:
    values: dict[str, list[Any]] = {}
    for place, row in enumerate(rows):
        for name, value in row.items():
            if name not in values:
                if columns and name not in columns:
                    continue
                values[name] = [None] * len(rows)
            values[name][place] = value
    return {name: _array(column) for name, column in values.items()}


def _array(values: list[Any]) -> pa.Array:
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        array = None
    if array is None or (pa.types.is_nested(array.type) and not _is_plain_list(array.type)):
        return pa.array([None if value is None else as_text(value) for value in values], pa.large_string())
    return array


def _is_plain_list(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) and not pa.types.is_nested(type_.value_type)


def as_text(value: Any) -> str:
    """A value of a column that must be text: as JSON writes it, without the quotes of what is one text there.

    >>> from decimal import Decimal
    >>> as_text(True), as_text("a"), as_text([1, "b"]), as_text(Decimal("1.50"))
    ('true', 'a', '[1,"b"]', '1.50')
    """
    plain = msgspec.to_builtins(value)
    if isinstance(plain, float) and not isfinite(plain):
        return str(plain)  # JSON has none, and msgspec writes null
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
