"""Rows as they are read: columns of a batch of rows."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.rejects import Reason, Rejected

MOST_CELL_BYTES = 64 << 20
"""A longer cell is a fault: of a quote that is not closed, or of a file without ends of lines."""
_SHOWN = 60


class BadRow(NamedTuple):
    """A row that is left out.

    Attributes:
        line: see RowBatch.lines; the reject's id.
        detail: what was found, for a person.
    """

    line: int
    reason: Reason
    detail: str

    def reject(self, path: str) -> Rejected:
        return Rejected("row", self.line, self.reason, f"{path} row {self.line}: {self.detail}")


class Seen(str, Enum):
    """What a value looks like."""

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
    OTHER = "values of a type that has no feature"


class ColumnPart(NamedTuple):
    """The values of a column that look alike, or items of its lists; `places` are those of their rows in the batch."""

    look: Seen
    places: np.ndarray
    values: pa.Array


class LongCells(NamedTuple):
    """Cells of several lines, of CSV: also of columns that are not read.

    Attributes:
        cells: how many there are.
        like_rows: those whose lines look like rows, see `long_cells`.
        lines: over how many lines more those go on, in all.
        first: the first of them: (line, see RowBatch.lines, and column).
    """

    cells: int = 0
    like_rows: int = 0
    lines: int = 0
    first: tuple[int, str] | None = None

    def add(self, other: "LongCells") -> "LongCells":
        first = min(filter(None, (self.first, other.first)), default=None)
        return LongCells(self.cells + other.cells, self.like_rows + other.like_rows, self.lines + other.lines, first)


class RowBatch(NamedTuple):
    """Rows that follow each other in a file.

    Attributes:
        columns: by name, of equal length; of nested columns the path, with dots.
        lines: int64 [rows]: the number of each row in its file, from 1 for the first after the head; of JSON Lines the
            line.
        bad: rows that are not in `columns`.
        is_typed: False where all values are texts that stand for what they may (CSV).
        parts: by name, of columns whose values are of several types, so that `columns` has them as texts.
        long_cells: looks for those of CSV; it takes a while, and once is enough.
        escaped: quotes of CSV after a backslash, read since the batch before.
    """

    columns: dict[str, pa.Array]
    lines: np.ndarray
    bad: list[BadRow]
    is_typed: bool
    parts: Mapping[str, Sequence[ColumnPart]] = {}
    long_cells: Callable[[], LongCells] = LongCells
    escaped: int = 0

    def values(self, column: str) -> list[Any]:
        """The value of each row; None in all of them where the file has no such column."""
        array = self.columns.get(column)
        return [None] * len(self.lines) if array is None else python_values(array)


def python_values(array: pa.Array) -> list[Any]:
    """The values of an array; dates and points in time that Python has not are texts."""
    try:
        return array.to_pylist()
    except (OverflowError, ValueError):
        return list(map(_python_value, array))


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return str(value.cast(pa.large_string()).as_py())


def shown(value: Any) -> str:
    """A value for a message; also one of Arrow's."""
    text = repr(_python_value(value) if isinstance(value, pa.Scalar) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
