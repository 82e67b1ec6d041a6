"""Declarations of the columns of a Block, and faults of their values."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

RAGGED = {"text": np.uint8, "bytes": np.uint8, "float64 list": np.float64}
"""Dtype of the values of ragged columns, by the dtype of their rows. Texts are UTF-8."""
Fault = tuple[str, int]
"""Text, and the first row that is wrong."""


class BlockColumn(NamedTuple):
    """Column of a Block.

    Attributes:
        axis: Number of rows, for N images with M objects.
        dtype: NumPy's name of the dtype, or a key of RAGGED.
        unit: Unit of the numbers, or format of the bytes.
        meaning: Text for the documentation.
        fill: Value of a row that the source does not give, and of all rows if a Block lacks the column. `()` is stored
            as zeros if `width` numbers are.
        width: Numbers per row; 0 for a single one. The length of a list is a multiple of it.
        minimum: Minimum of a row's numbers; None for any. Floats are finite in any case.
        name: Name of the field of Block.
    """

    axis: Literal["N", "N + 1", "M"]
    dtype: str
    unit: str
    meaning: str
    fill: Any = 0
    width: int = 0
    minimum: Any = None
    name: str = ""

    @property
    def form(self) -> str:
        """Dtype and shape.

        >>> BlockColumn("N", "int64", "px", "", width=2).form, BlockColumn("M", "float64 list", "px", "", width=3).form
        ('int64 [N, 2]', 'float64 list [M]')
        """
        width = f", {self.width}" if self.width and self.dtype not in RAGGED else ""
        return f"{self.dtype} [{self.axis}{width}]"

    def find_fault(self, column: Any, rows: int, end: int = 0, has_unit: bool = True) -> Fault | None:
        """Return the first fault of an array, or of a `recordmill.schemas.block.Ragged`; None if it is valid.

        Args:
            rows: Number of rows that the column should have.
            end: End of the last row, for the column of N + 1 rows.
            has_unit: False if the values are as in the source, and may be beyond what the unit allows.
        """
        values, starts = getattr(column, "values", column), getattr(column, "starts", None)
        ragged = RAGGED.get(self.dtype)
        if not isinstance(values, np.ndarray) or (starts is None) != (ragged is None):
            return f"is a {type(column).__name__}, not {self.form}", 0
        width = () if ragged or not self.width else (self.width,)
        if values.dtype != np.dtype(ragged or self.dtype) or values.shape[1:] != width:
            return f"is {values.dtype} {[*values.shape]}, not {self.form}", 0
        number = len(values) if starts is None else len(starts) - 1
        if number != rows:
            return f"has {number} rows instead of {rows}", min(number, rows)
        if self.axis == "N + 1":
            return _find_starts_fault(values, end)
        if starts is not None and (fault := _find_starts_fault(starts, len(values))):
            return fault
        return next(self._value_faults(values, starts), None) if has_unit else None

    def _value_faults(self, values: np.ndarray, starts: np.ndarray | None) -> Iterator[Fault]:
        if starts is not None and self.width and (is_odd := np.diff(starts) % self.width > 0).any():
            yield f"has a list whose length is not a multiple of {self.width}", int(np.argmax(is_odd))
        if self.dtype == "text" and starts is not None and (values > 127).any():
            yield from _text_faults(values.tobytes(), starts.tolist())
        is_wrong = ~np.isfinite(values)
        if self.minimum is not None:
            is_wrong |= values < self.minimum
        if is_wrong.any():
            index = int(np.argwhere(is_wrong)[0, 0])
            row = index if starts is None else int(np.searchsorted(starts, index, side="right")) - 1
            minimum = "" if self.minimum is None else f", and the minimum is {self.minimum}"
            yield f"has {values[index].tolist()}; numbers must be finite{minimum}", row


def _find_starts_fault(starts: np.ndarray, end: int) -> Fault | None:
    is_wrong = (np.diff(starts) < 0) | (starts[1:] > end)
    is_wrong[:1] |= starts[0] != 0
    is_wrong[-1:] |= starts[-1] != end
    return (f"has starts that do not ascend from 0 to {end}", int(np.argmax(is_wrong))) if is_wrong.any() else None


def _text_faults(data: bytes, starts: list[int]) -> Iterator[Fault]:
    for row in range(len(starts) - 1):
        text = data[starts[row] : starts[row + 1]]
        try:
            text.decode()
        except UnicodeDecodeError:
            yield f"has {text!r}, which is not UTF-8", row
