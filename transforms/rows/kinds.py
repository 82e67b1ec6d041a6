"""Kinds of values: how each format of rows writes them, and the column type that holds them. The one table of both."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from recordmill.schemas.features import ColumnType


class Seen(str, Enum):
    """Kind of a value by its form."""

    BOOL = "true or false"
    INT64 = "whole numbers"
    LARGE = "whole numbers beyond int64"
    FLOAT = "numbers"
    NOT_FINITE = "NaN or infinity"
    DATE = "dates"
    TIMESTAMP = "points in time"
    ENUM = "values of an enum"
    TEXT = "text"
    BINARY = "bytes"
    NESTED = "lists of different sizes in lists"
    OTHER = "values of a type that has no feature"


class Kind(NamedTuple):
    """Row of KINDS.

    Attributes:
        is_of: True for the Arrow types whose values are of this kind.
        json: Python type of such values in JSON; None if JSON has no such values.
        text: Regular expression of such a cell in CSV; empty if CSV has no such cells.
        type: Type of a column that has only values of this kind.
        arrow: Arrow type to which values of such a column are cast; None to leave them unchanged.
    """

    seen: Seen
    is_of: Callable[[pa.DataType], bool]
    json: type | None = None
    text: str = ""
    type: ColumnType = ColumnType.BYTES
    arrow: pa.DataType | None = None


def _is_whole(type_: pa.DataType) -> bool:
    return types.is_integer(type_) or (types.is_decimal(type_) and type_.scale <= 0)


def _is_number(type_: pa.DataType) -> bool:
    return types.is_floating(type_) or types.is_decimal(type_)


def _is_text(type_: pa.DataType) -> bool:
    return types.is_large_string(type_) or types.is_null(type_)


_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
# No plus sign: a number that has one may be a phone number, and would lose it.
_FLOAT = "-?((0|[1-9][0-9]*)([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?"
KINDS = (
    Kind(Seen.INT64, _is_whole, int, "^-?(0|[1-9][0-9]*)$", ColumnType.INT64, pa.int64()),
    Kind(Seen.FLOAT, _is_number, float, f"^{_FLOAT}$", ColumnType.FLOAT, pa.float64()),
    Kind(Seen.DATE, types.is_date, None, f"^{_DAY}$", ColumnType.DATE, pa.date32()),
    Kind(Seen.TIMESTAMP, types.is_timestamp, None, f"^{_DAY}[T ]{_TIME}$", ColumnType.TIMESTAMP, pa.timestamp("us")),
    Kind(Seen.BOOL, types.is_boolean, bool, "(?i)^(true|false)$", ColumnType.BOOL, pa.bool_()),
    Kind(Seen.NOT_FINITE, lambda _: False, None, "(?i)^[+-]?(nan|inf|infinity)$", ColumnType.FLOAT),
    Kind(Seen.ENUM, types.is_dictionary, type=ColumnType.ENUM),
    Kind(Seen.TEXT, _is_text, str),
    Kind(Seen.BINARY, types.is_large_binary),
    Kind(Seen.NESTED, types.is_large_list, list),
)
"""Kinds in the order in which they are tried. A value of no kind is OTHER, or LARGE."""
