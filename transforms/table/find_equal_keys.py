"""Find rows that share a key. They are kept, and a warning has their number."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from recordmill.transforms.runtime import progress
from recordmill.transforms.table.spill_rows import RANGES, Spill, read_index, rows_before, spill_path

_SLICE_ROWS = 1 << 20
"""Rows per slice, at 20 bytes each."""
_READS = 16
"""Files that are read at once."""

Place = tuple[str, int]
"""A file and the number of a row in it."""


class EqualKeys(NamedTuple):
    """Keys that several rows have.

    Attributes:
        keys, rows: how many keys, and how many rows have one of them.
        divided: keys whose rows are in several splits.
        example: places of two rows with one key, the first by order; None where there is none.
    """

    keys: int = 0
    rows: int = 0
    divided: int = 0
    example: tuple[Place, Place] | None = None


def find_equal_keys(spills: Sequence[Spill], output: str, slice_rows: int = _SLICE_ROWS) -> EqualKeys:
    """Return keys of several rows. Only the indices of the files are read, 20 bytes a row.

    Raises:
        EndedElsewhereError, OSError: see `read_index`.
    """
    progress.set_step("comparing keys")
    total = EqualKeys()
    for first, end in slices(slice_rows, spills):
        found = _equal_keys(spills, output, first, end)
        keys, rows, divided = total.keys + found.keys, total.rows + found.rows, total.divided + found.divided
        total = EqualKeys(keys, rows, divided, total.example or found.example)
    return total


def slices(rows: int, spills: Sequence[Spill]) -> Iterator[tuple[int, int]]:
    """First and end of ranges of the hash that hold about so many rows; all that has one key is in one of them."""
    before = rows_before(spills)
    first = 0
    while first < RANGES:
        end = max(first + 1, int(np.searchsorted(before, before[first] + rows, "right")) - 1)
        yield first, end
        first = end


def _equal_keys(spills: Sequence[Spill], output: str, first: int, end: int) -> EqualKeys:
    """Return the keys whose hashes are in the ranges `first` up to `end`."""
    if not spills:
        return EqualKeys()
    paths = [spill_path(output, spill.split, spill.name) for spill in spills]
    with ThreadPoolExecutor(_READS) as pool:
        parts = list(pool.map(read_index, paths, [spill.piece(first, end) for spill in spills]))
    rows, spill_of_row = np.concatenate(parts), np.repeat(np.arange(len(spills)), list(map(len, parts)))
    _, key_of_row, numbers = np.unique(rows["order"], return_inverse=True, return_counts=True)
    equal = np.flatnonzero(numbers > 1)
    if not len(equal):
        return EqualKeys()
    splits = sorted({spill.split for spill in spills})
    split_of_row = np.array([splits.index(spill.split) for spill in spills])[spill_of_row]
    splits_of_key = np.bincount(np.unique(key_of_row * len(splits) + split_of_row) // len(splits))
    of_first = np.flatnonzero(key_of_row == equal[0]).tolist()
    one, other = sorted((spills[spill_of_row[row]].source, int(rows["line"][row])) for row in of_first)[:2]
    return EqualKeys(len(equal), int(numbers[equal].sum()), int((splits_of_key > 1).sum()), (one, other))


def equal_keys_warning(found: EqualKeys, column: str) -> str:
    """Return a sentence; empty if no rows share a key."""
    if found.example is None:
        return ""
    one, other = (f"{path} row {line:,}" for path, line in found.example)
    divided = (
        f" Those of {found.divided:,} are in several splits; --group-column {column} keeps them in one."
        if found.divided
        else ""
    )
    return (
        f"--key {column}: {found.rows:,} rows have {found.keys:,} keys between them, {one} and {other} the same one, "
        "for example; all are kept. Leave out rows that are there twice, or give a --key of which each row has its own."
        f"{divided}"
    )
