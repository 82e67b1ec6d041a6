"""Cells of several lines which look like rows: of a quote that is not closed, up to the next one.

Such a file is CSV all the same (RFC 4180, section 2.6), and nobody but its author knows which was meant.
"""

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.table.row_batch import CsvHead


def rows_in_cells(cells: pa.Array, name: str, head: CsvHead) -> tuple[int, dict[int, int]]:
    """Of the texts of the column `name`, how many are of several lines; and of those whose lines all have the
    separators that rows would have there, where they are, and how many lines of the file each goes on over."""
    before, between = head.names.index(name), len(head.names) - 1
    if not between:
        return 0, {}
    have_lines = pc.indices_nonzero(pc.match_substring(cells, "\n"))
    found = {}
    for place, text in zip(have_lines.to_pylist(), cells.take(have_lines).to_pylist(), strict=True):
        _, *whole, last = text.split("\n")
        separators = [line.count(head.delimiter) for line in (*whole, last)]
        if any(separators) and separators == [between] * len(whole) + [before]:
            found[place] = len(separators)
    return len(have_lines), found
