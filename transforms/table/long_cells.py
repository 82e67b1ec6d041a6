"""Cells of several lines which look like rows: of a quote that is not closed, up to the next one.

Such a file is CSV all the same (RFC 4180, section 2.6), and nobody but its author knows which was meant.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.table.row_batch import LongCells

_MANY_LINES = 100
"""Of a cell in a table of one column, which has no separators to tell rows by."""


def long_cells(columns: Mapping[str, pa.Array], delimiter: bytes, lines: np.ndarray) -> LongCells:
    """The cells of several lines in rows with these numbers. Their lines look like rows where all have the separators
    that rows would have there.

    Args:
        columns: all that the file has, in order; large_binary [rows] each.
        lines: int64 [rows]: see RowBatch.
    """
    found = LongCells()
    for before, (name, cells) in enumerate(columns.items()):
        is_long = pc.or_(pc.match_substring(cells, b"\n"), pc.match_substring(cells, b"\r"))
        places = pc.indices_nonzero(is_long)
        like = [
            (place, len(after))
            for place, text in zip(places.to_pylist(), cells.take(places).to_pylist(), strict=True)
            if _looks_like_rows(after := lines_of(text)[1:], before, len(columns) - 1, delimiter)
        ]
        first = (int(lines[like[0][0]]), name) if like else None
        found = found.add(LongCells(len(places), len(like), sum(number for _, number in like), first))
    return found


def lines_of(text: bytes) -> list[bytes]:
    """Its lines, whichever of CRLF, LF and CR ends them."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _looks_like_rows(after: Sequence[bytes], before: int, between: int, delimiter: bytes) -> bool:
    """Whether the lines of a cell after its first are rows: all but the last have the separators of a row, `between`,
    and the last, which the cell ends in, those `before` its column."""
    if not between:
        return len(after) >= _MANY_LINES
    separators = [line.count(delimiter) for line in after]
    return any(separators) and separators == [between] * (len(after) - 1) + [before]
