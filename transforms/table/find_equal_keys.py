"""Find rows that share a key. They are kept, and a warning has their number."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, PCollection

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
        example: order, and places of two rows with one key; of all the first by order. None where there is none.
    """

    keys: int = 0
    rows: int = 0
    divided: int = 0
    example: tuple[int, Place, Place] | None = None


@dataclass(eq=False, repr=False)
class FindEqualKeys(beam.PTransform):
    """Convert Spill to one EqualKeys. Only the indices of the files are read, 20 bytes a row."""

    output: str

    def expand(self, spills: PCollection[Spill]) -> PCollection[EqualKeys]:
        return (
            spills.pipeline
            | "OnceSpilled" >> beam.Create([_SLICE_ROWS])
            | "Slices" >> beam.FlatMap(slices, AsList(spills)).with_output_types(tuple[int, int])
            | "SpreadSlices" >> beam.Reshuffle()
            | "Compare" >> beam.Map(_equal_keys, AsList(spills), self.output).with_output_types(EqualKeys)
            | "AddUp" >> beam.CombineGlobally(added)
        )


def slices(rows: int, spills: Sequence[Spill]) -> Iterator[tuple[int, int]]:
    """First and end of ranges of the hash that hold about so many rows; all that has one key is in one of them."""
    before = rows_before(spills)
    first = 0
    while first < RANGES:
        end = max(first + 1, int(np.searchsorted(before, before[first] + rows, "right")) - 1)
        yield first, end
        first = end


def _equal_keys(slice_: tuple[int, int], spills: list[Spill], output: str) -> EqualKeys:
    progress.set_step("comparing keys")
    return equal_keys(spills, output, *slice_)


def equal_keys(spills: Sequence[Spill], output: str, first: int, end: int) -> EqualKeys:
    """Return keys of several rows, among those whose hashes are in the ranges `first` up to `end`.

    Raises:
        EndedElsewhereError, OSError: see `read_index`.
    """
    if not spills:
        return EqualKeys()
    paths = [spill_path(output, spill.split, spill.name) for spill in spills]
    with ThreadPoolExecutor(_READS) as pool:
        parts = list(pool.map(read_index, paths, [spill.piece(first, end) for spill in spills]))
    rows, spill_of_row = np.concatenate(parts), np.repeat(np.arange(len(spills)), list(map(len, parts)))
    orders, key_of_row, numbers = np.unique(rows["order"], return_inverse=True, return_counts=True)
    equal = np.flatnonzero(numbers > 1)
    if not len(equal):
        return EqualKeys()
    splits = sorted({spill.split for spill in spills})
    split_of_row = np.array([splits.index(spill.split) for spill in spills])[spill_of_row]
    splits_of_key = np.bincount(np.unique(key_of_row * len(splits) + split_of_row) // len(splits))
    of_first = np.flatnonzero(key_of_row == equal[0]).tolist()
    one, other = sorted((spills[spill_of_row[row]].source, int(rows["line"][row])) for row in of_first)[:2]
    example = int(orders[equal[0]]), one, other
    return EqualKeys(len(equal), int(numbers[equal].sum()), int((splits_of_key > 1).sum()), example)


def added(found: Iterable[EqualKeys]) -> EqualKeys:
    """Add the keys of several slices."""
    found = list(found)
    keys, rows, divided = (sum(numbers) for numbers in zip(*((0, 0, 0), *(each[:3] for each in found)), strict=True))
    return EqualKeys(keys, rows, divided, min((each.example for each in found if each.example), default=None))


def equal_keys_warning(found: EqualKeys, column: str) -> str:
    """Return a sentence; empty if no rows share a key."""
    if found.example is None:
        return ""
    one, other = (f"{path} row {line:,}" for path, line in found.example[1:])
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
