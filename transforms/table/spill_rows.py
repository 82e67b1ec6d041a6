"""Files of rows become sorted files of records, see `recordmill.transforms.table.spill_file`."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.tables import RowsFile
from recordmill.transforms.dataset.facts import FACTS, tagged
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import RowsRecipe
from recordmill.transforms.table.read_records import RowReader
from recordmill.transforms.table.spill_file import Spill, record_orders, sort_records, write_spill

_SPILL_BYTES = 64_000_000
"""Of records, and so what a worker holds."""


class SpillRows(beam.PTransform):
    """Convert RowsFile to Spill; Facts are in the output FACTS.

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]):
        spill = beam.FlatMap(_spill, AsSingleton(self._chosen), self._recipe)
        return files | "SpreadFiles" >> beam.Reshuffle() | "Spill" >> spill.with_outputs(FACTS, main="spills")


def _spill(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    reader = RowReader(file, chosen, recipe)
    pending: list[list[pa.Table]] = [[] for _ in recipe.splits.names]
    size = number = 0
    for good, split, _ in reader:
        orders = record_orders(recipe.seed, good.identities)
        records = pa.table({"order": orders, "line": good.lines, "record": good.records})
        for index, parts in enumerate(pending):
            parts.append(records.filter(pa.array(split == index)) if len(pending) > 1 else records)
        size += good.records.nbytes
        if size >= _SPILL_BYTES:
            yield from _spills(pending, file, number, recipe)
            size, number = 0, number + 1
    yield from _spills(pending, file, number, recipe)
    yield tagged(reader.facts)


def _spills(pending: list[list[pa.Table]], file: RowsFile, number: int, recipe: RowsRecipe) -> Iterator[Spill]:
    for split, parts in zip(recipe.splits.names, pending, strict=True):
        if any(map(len, parts)):
            records = sort_records(pa.concat_tables(parts))
            yield write_spill(recipe.output, split, file.path, f"rows-{file.number:05d}-{number:05d}", records)
        parts.clear()
