"""All rows of a table are looked at, and the types of its columns follow."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.tables import RowsFile
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.cores import usable_cores
from recordmill.transforms.runtime.look_ahead import look_ahead
from recordmill.transforms.table.choose_schema import ChosenSchema, ColumnChoice, choose_schema
from recordmill.transforms.table.observe_columns import TableStats, observe
from recordmill.transforms.table.read_rows import read_rows


class InferSchema(beam.PTransform):
    """RowsFile become one ChosenSchema.

    Args:
        files: all of them, for messages.
        read: the only columns that are read; all where empty.
    """

    def __init__(self, choice: ColumnChoice, files: Sequence[RowsFile], read: tuple[str, ...], encoding: str):
        super().__init__()
        self._choice = choice
        self._files = tuple(files)
        self._read = read
        self._encoding = encoding

    def expand(self, files: PCollection[RowsFile]) -> PCollection[ChosenSchema]:
        distinct = self._choice.numbered
        return (
            files
            | "SpreadFiles" >> beam.Reshuffle()
            | "Observe" >> beam.FlatMap(_observe, self._read, self._encoding, distinct)
            | "AddUp" >> beam.combiners.ToList()
            | "Choose" >> beam.Map(_choose, self._choice, self._files)
        )


def _observe(file: RowsFile, read: tuple[str, ...], encoding: str, distinct: tuple[str, ...]) -> Iterator[TableStats]:
    progress.set_step("looking at columns")
    stats = TableStats()
    cores = usable_cores()
    with ThreadPoolExecutor(cores) as pool:  # Arrow's work needs no interpreter
        look = partial(observe, file=file.number, distinct=distinct)
        for seen in look_ahead(look, read_rows(file, read, encoding), pool, cores):
            stats.add(seen)
    yield stats


def _choose(found: list[TableStats], choice: ColumnChoice, files: tuple[RowsFile, ...]) -> ChosenSchema:
    """In the files' order, so that columns are in that of the first file that has them."""
    total = TableStats()
    for stats in sorted(found, key=lambda stats: sorted(stats.bad)):
        total.add(stats)
    return choose_schema(total, choice, files)
