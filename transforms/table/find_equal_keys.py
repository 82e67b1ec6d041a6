"""Find rows that share a key. They are kept, and a warning has their number."""

import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from recordmill.transforms.runtime import progress
from recordmill.transforms.table.spill_rows import RANGES, Spill, read_index, rows_before, spill_path

_SLICE_ROWS = 1 << 20
"""Rows per slice, at 20 bytes each."""
_READS = 16
"""Maximum number of files to read at the same time."""

Place = tuple[str, int]
"""A file, and the number of a row in it."""


def equal_keys_warning(
    spills: Sequence[Spill], output: str, column: str, may_group: bool = True, slice_rows: int = _SLICE_ROWS
) -> str:
    """Return a sentence about rows that share a key; empty if there are none. Only the indices of the files are read,
    20 bytes per row.

    Args:
        output: Folder of the data set.
        column: Column of the keys.
        may_group: True if --group-column may be added to the command.

    Raises:
        EndedElsewhereError, OSError: See `read_index`.
    """
    progress.set_step("comparing keys")
    keys = rows = divided = 0
    example: list[Place] = []
    for first, end in slices(slice_rows, spills):
        row_counts, split_counts, places = _find_equal_keys(spills, output, first, end)
        keys += len(row_counts)
        rows += int(row_counts.sum())
        divided += int((split_counts > 1).sum())
        example = example or places
    if not keys:
        return ""
    one, other = (f"{path} row {line:,}" for path, line in example)
    advice = f": --group-column {shlex.quote(column)} keeps them in one" if may_group else ""
    advice = f" The rows of {divided:,} keys are in several splits{advice}." if divided else ""
    return (
        f"--key {column}: {rows:,} rows share {keys:,} keys, for example {one} and {other}. All are kept. "
        "Delete repeated rows, or give a --key that differs in each row."
        f"{advice}"
    )


def slices(rows: int, spills: Sequence[Spill]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of hash ranges with about `rows` rows each. All rows of a key are in one slice."""
    before = rows_before(spills)
    first = 0 if spills else RANGES
    while first < RANGES:
        end = max(first + 1, int(np.searchsorted(before, before[first] + rows, "right")) - 1)
        yield first, end
        first = end


def _find_equal_keys(
    spills: Sequence[Spill], output: str, first: int, end: int
) -> tuple[np.ndarray, np.ndarray, list[Place]]:
    """Return the K keys of several rows whose hashes are in the ranges `first` up to `end`.

    Returns:
        row_counts: int64 [K], the number of rows with the key.
        split_counts: int64 [K], the number of splits that have such rows.
        places: Places of two rows with the first key; empty if K is 0.
    """
    paths = [spill_path(output, spill.split, spill.name) for spill in spills]
    with ThreadPoolExecutor(_READS) as pool:
        parts = list(pool.map(read_index, paths, [spill.piece(first, end) for spill in spills]))
    rows, spill_of_row = np.concatenate(parts), np.repeat(np.arange(len(spills)), list(map(len, parts)))
    _, key_of_row, row_counts = np.unique(rows["order"], return_inverse=True, return_counts=True)
    equal = np.flatnonzero(row_counts > 1)
    if not len(equal):
        return equal, equal, []
    splits = sorted({spill.split for spill in spills})
    split_of_row = np.array([splits.index(spill.split) for spill in spills])[spill_of_row]
    split_counts = np.bincount(np.unique(key_of_row * len(splits) + split_of_row) // len(splits))
    first_rows = np.flatnonzero(key_of_row == equal[0]).tolist()
    places = sorted((spills[spill_of_row[row]].source, int(rows["line"][row])) for row in first_rows)
    return row_counts[equal], split_counts[equal], places[:2]
